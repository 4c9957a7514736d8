"""Which float32 inputs and outputs of a node can be of another float type: by its schema, and by rows.

A place is HALF where it changes with the node, FLOAT where it stays in float32 whatever the node computes in, ANY where
the node takes both (as `Shape` does). The schema says most of it. Rows say what schemas do not: places that ONNX
Runtime reads as float32 (`_FIXED`), attributes that name the type of a result (`TYPED`), operators of its own domain
(`MICROSOFT_FORMS`), and operators that no provider of it computes in float16 (`_WITHOUT_HALF`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proto_schema import operators
from proto_schema.inference.types import OptionalOf, SequenceOf
from proto_schema.ir import Node, Value
from proto_schema.onnx import TensorProto
from proto_schema.operators import runtimes
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.wire.records import dataclass

MICROSOFT = "com.microsoft"
FLOAT32, FLOAT16 = int(TensorProto.FLOAT), int(TensorProto.FLOAT16)
HALF, FLOAT, ANY, OTHER = "half", "float", "any", ""
BODIES = frozenset({"If", "Loop", "Scan"})

TYPED: Mapping[str, tuple[str, int | None]] = {
    "Bernoulli": ("dtype", None),
    "BlackmanWindow": ("output_datatype", FLOAT32),
    "Cast": ("to", None),
    "DequantizeLinear": ("output_dtype", 0),
    "EyeLike": ("dtype", None),
    "HammingWindow": ("output_datatype", FLOAT32),
    "HannWindow": ("output_datatype", FLOAT32),
    "MelWeightMatrix": ("output_datatype", FLOAT32),
    "RandomNormal": ("dtype", FLOAT32),
    "RandomNormalLike": ("dtype", None),
    "RandomUniform": ("dtype", FLOAT32),
    "RandomUniformLike": ("dtype", None),
}
"""The attribute that names the type of the result, and what counts without it: None or 0 for the type of an input."""

# operator: inputs and outputs that stay float32. Resize reads them as float32 in every kernel; the statistics of
# LayerNormalization have the type of `stash_type`; a ratio is no data.
_FIXED: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "Resize": ((1, 2), ()),
    "Dropout": ((1,), ()),
    "LayerNormalization": ((), (1, 2)),
}

# Neither the CUDA provider nor the CPU provider has a float16 kernel, nor a body of operators that have one. The CPU's
# kernels are asked, too (`runtimes`), so that a release which learns one takes it out.
_WITHOUT_HALF = frozenset(
    [
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Cosh",
        "Sinh",
        "Tan",
        "Det",
        "CumSum",
        "EyeLike",
        "GridSample",
        "RoiAlign",
        "Hardmax",
        "MaxUnpool",
        "LpPool",
        "GlobalLpPool",
        "LpNormalization",
        "Multinomial",
        "Unique",
        "NonZero",
        "DFT",
        "STFT",
        "MelWeightMatrix",
        "BlackmanWindow",
        "HammingWindow",
        "HannWindow",
        "AffineGrid",
        "Col2Im",
        "DeformConv",
        "Bernoulli",
        "MaxRoiPool",
    ]
)
# with a reduction, the CPU provider has a kernel that refuses float16 when it runs
_REDUCING = frozenset({"ScatterElements", "ScatterND"})
_BITS = frozenset({"BitCast"})  # these look at the bits of an element
# the type of the first input has to fit nothing else
_READERS = frozenset(
    [
        "Shape",
        "Size",
        "Cast",
        "CastLike",
        "ArgMax",
        "ArgMin",
        "IsNaN",
        "IsInf",
        "NonZero",
        "RandomNormalLike",
        "RandomUniformLike",
    ]
)

# inputs -> outputs: T changes with the node, and "." does not; the last letter of the inputs stands for all further
MICROSOFT_FORMS: Mapping[str, tuple[str, str]] = {
    "Attention": ("TTT.TT.", "TT"),
    "BiasAdd": ("TTT", "T"),
    "BiasGelu": ("TT", "T"),
    "BiasSplitGelu": ("TT", "T"),
    "EmbedLayerNormalization": ("..TTTTT..", "T.T"),
    "FastGelu": ("TT", "T"),
    "FusedMatMul": ("TT", "T"),
    "GatherBlockQuantized": ("..T.", "T"),
    "Gelu": ("T", "T"),
    "GroupNorm": ("T..", "T"),
    "GroupQueryAttention": ("TTTTT..TT.TT", "TTT"),
    "MatMulNBits": ("T.T..T", "T"),
    "MoE": ("TTTTTTTT", "T"),
    "MultiHeadAttention": ("TTTT.TTT..", "TTT"),
    "QuickGelu": ("T", "T"),
    "RotaryEmbedding": ("T.TT", "T"),
    "SimplifiedLayerNormalization": ("TT", "T.."),
    "SkipLayerNormalization": ("TTTTT", "T..T"),
    "SkipSimplifiedLayerNormalization": ("TTTT", "T..T"),
}

Types = Callable[["Value | None"], int]


@dataclass(frozen=True)
class Signature:
    """The places of a node that are float32, by HALF, FLOAT, ANY or OTHER; `reason` says why the node has to stay."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str = ""

    @property
    def is_float(self) -> bool:
        """Whether the node reads or makes float32 at all."""
        return any((*self.inputs, *self.outputs))

    @property
    def can_change(self) -> bool:
        """Whether the node can compute in the other type."""
        return not self.reason and HALF in (*self.inputs, *self.outputs)


def schema_of(node: Node, opsets: Mapping[str, int]) -> operators.OpSchema | None:
    """The version of a standard operator that a node calls."""
    domain = operators.canonical(node.domain)
    return operators.schema(node.op_type, opsets.get(domain, 0), domain)


def variables(node: Node, schema: operators.OpSchema) -> tuple[list[str], list[str]]:
    """The type variable of each input and output of a node."""
    return (
        [_formal(schema.inputs, place) for place in range(len(node.inputs))],
        [_formal(schema.outputs, place) for place in range(len(node.outputs))],
    )


def _formal(formals: tuple[operators.Formal, ...], place: int) -> str:
    return formals[min(place, len(formals) - 1)].type if formals else ""


def forms_of(node: Node) -> tuple[str, str] | None:
    """The letters of each input and output of an operator of ONNX Runtime's own; None where there is no row."""
    row = MICROSOFT_FORMS.get(node.op_type) if node.domain in (MICROSOFT, "") else None
    if row is None:
        return None
    inputs, outputs = row
    return inputs.ljust(len(node.inputs), inputs[-1]), outputs.ljust(len(node.outputs), ".")


def signature(node: Node, types: Types, opsets: Mapping[str, int], code: int) -> Signature:
    """The places of a node for another type, of the model's opsets. Nodes with bodies are not asked here."""
    reads = [types(value) == FLOAT32 for value in node.inputs]
    makes = [types(value) == FLOAT32 for value in node.outputs]
    staying = Signature(
        tuple(FLOAT if is_read else OTHER for is_read in reads), tuple(FLOAT if made else OTHER for made in makes)
    )
    if any(_holds_others(value) for value in (*node.inputs, *node.outputs)):
        return Signature(staying.inputs, staying.outputs, "passes sequences or optional values")
    schema = schema_of(node, opsets)
    if schema is None:
        forms = forms_of(node)
        if forms is None:
            reason = f"is of the domain {node.domain or 'ai.onnx'!r}, which says no types for it"
            return Signature(staying.inputs, staying.outputs, reason)
        return Signature(_by_letters(reads, forms[0]), _by_letters(makes, forms[1]))
    reason = _why_not(node, schema, code)
    if reason:
        return Signature(staying.inputs, staying.outputs, reason)
    found = _by_schema(node, schema, reads, makes, code)
    if HALF in (*found.inputs, *found.outputs) or not found.is_float:
        return found
    if ANY in found.inputs and FLOAT not in (*found.inputs, *found.outputs):
        return found
    version = f"opset {opsets.get(operators.canonical(node.domain), 0)}"
    return Signature(staying.inputs, staying.outputs, f"takes no {DTYPES[code].text} at {version}")


def _by_letters(floats: list[bool], letters: str) -> tuple[str, ...]:
    pairs = zip(floats, letters, strict=False)  # there may be more letters than places
    return tuple((HALF if letter == "T" else FLOAT) if is_float else OTHER for is_float, letter in pairs)


def _holds_others(value: Value | None) -> bool:
    return value is not None and isinstance(value.type, (SequenceOf, OptionalOf))


def _why_not(node: Node, schema: operators.OpSchema, code: int) -> str:
    if node.op_type in _BITS:
        return "looks at the bits of its elements"
    if code == FLOAT16 and not node.domain and node.op_type in _REDUCING:
        reduction = node.attributes.get("reduction", b"none")
        if reduction != b"none":
            return "has a reduction, which ONNX Runtime does not compute in float16"
    if code == FLOAT16 and not node.domain and node.op_type in _WITHOUT_HALF:
        first = schema.inputs[0].type if schema.inputs else ""
        if not runtimes.newest().has_kernel(node.op_type, schema.since_version, first, code):
            return "has no float16 kernel in ONNX Runtime"
    return ""


def _by_schema(node: Node, schema: operators.OpSchema, reads: list[bool], makes: list[bool], code: int) -> Signature:
    text = f"tensor({DTYPES[code].text})"
    of_inputs, of_outputs = variables(node, schema)
    fixed = _FIXED.get(node.op_type, ((), ())) if not node.domain else ((), ())

    def takes(variable: str) -> bool:
        return text in schema.constraints.get(variable, (variable,))

    inputs = tuple(
        OTHER
        if not is_read
        else FLOAT
        if place in fixed[0] or not takes(variable)
        else ANY
        if not place and node.op_type in _READERS and not node.domain
        else HALF
        for place, (is_read, variable) in enumerate(zip(reads, of_inputs, strict=True))
    )
    outputs = tuple(
        OTHER if not made else FLOAT if place in fixed[1] or not takes(variable) else HALF
        for place, (made, variable) in enumerate(zip(makes, of_outputs, strict=True))
    )
    return Signature(inputs, outputs)
