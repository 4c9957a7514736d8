"""Which operators a model may have: a list that a user writes, or the profile of safe ones.

The profile has the operators of the standard whose results are no larger than the sizes of their inputs and attributes
allow, and which compute them in a bounded number of steps, without graphs, texts, decoders and random numbers. Every
other operator of the standard is in `NOT_SAFE` with the reason; the tests fail for a new one that is in neither.
"""

from __future__ import annotations

from collections.abc import Iterable

from proto_schema import operators

SAFE = "safe"
"""The name of the profile."""

_SAFE_OPERATORS = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization BitCast
BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike CausalConvWithState Ceil Celu Clip Compress
Concat Constant Conv ConvInteger ConvTranspose Cos Cosh CumProd CumSum DeformConv DepthToSpace DequantizeLinear
Det Div Dropout DynamicQuantizeLinear Elu Equal Erf Exp EyeLike Flatten Floor GRU Gather GatherElements GatherND
Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization
HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu
Less LessOrEqual LinearAttention Log LogSoftmax LpNormalization LpPool MatMul MatMulInteger Max MaxPool
MaxRoiPool Mean MeanVarianceNormalization Min Mish Mod Mul Neg NegativeLogLikelihoodLoss NonMaxSuppression
NonZero Not Or PRelu Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization RNN Reciprocal ReduceL1
ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
Reshape ReverseSequence RoiAlign RotaryEmbedding Round Scatter ScatterElements ScatterND Selu Shape Shrink
Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split Sqrt
Squeeze Sub Sum SwiGLU Swish Tan Tanh TensorScatter ThresholdedRelu TopK Transpose Trilu Unique Unsqueeze Where
Xor
"""
NOT_SAFE: dict[str, str] = {
    "If Loop Scan SequenceMap": "runs a graph, perhaps very often",
    "Expand ConstantOfShape Range Tile Resize Upsample Pad CenterCropPad OneHot AffineGrid MaxUnpool Col2Im "
    "BlackmanWindow HannWindow HammingWindow MelWeightMatrix DFT STFT": "numbers in data decide the size of its result",
    "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer": "works on texts",
    "ImageDecoder": "decodes files",
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike": "draws random numbers",
    "Optional OptionalGetElement OptionalHasElement ConcatFromSequence SplitToSequence SequenceAt SequenceConstruct "
    "SequenceEmpty SequenceErase SequenceInsert SequenceLength": "makes or takes what is not a tensor",
    "Einsum": "a text decides what it computes",
}
"""Names of operators, and why they are not in the profile."""


class Allowed:
    """Operators that may occur: single ones, and all of a domain."""

    def __init__(self) -> None:
        self.operators: set[tuple[str, str]] = set()
        self.domains: set[str] = set()

    def takes(self, domain: str, name: str) -> bool:
        """Whether a node of this operator may occur; `domain` is "" for the standard one."""
        return domain in self.domains or (domain, name) in self.operators


def allowed(sources: Iterable[str]) -> Allowed:
    """What files, and the profile that is called `safe`, allow together.

    A line is the name of an operator (`Conv`), one of a domain (`com.microsoft::Gelu`), or all of one (`own::*`);
    what follows a `#` is a remark. Raises ValueError for another line, OSError if the file cannot be read.
    """
    made = Allowed()
    for source in sources:
        if source == SAFE:
            made.operators |= profile().operators
        else:
            _read(made, source)
    return made


def _read(made: Allowed, source: str) -> None:
    count = 0
    with open(source, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text = line.partition("#")[0].strip()
            domain, colons, name = text.rpartition("::")
            domain = operators.canonical(domain)
            if not text:
                continue
            if not name or " " in text or (name == "*" and not colons):
                where = f"{source}, line {number}"
                raise ValueError(f"{where}: {text!a} is neither Operator nor domain::Operator nor domain::*")
            count += 1
            if name == "*":
                made.domains.add(domain)
            else:
                made.operators.add((domain, name))
    if not count:
        raise ValueError(f"{source} allows nothing: write operators into it, one a line, or use {SAFE!r}")


def profile() -> Allowed:
    """The safe operators of the standard domain."""
    made = Allowed()
    made.operators = {("", name) for name in _SAFE_OPERATORS.split()}
    return made
