"""Causes that lie in what ONNX can express, in rules, weights and files."""

from __future__ import annotations

from purexport.errors.code import Code, Family

FAMILIES: tuple[Family, ...] = (
    (
        "Operators",
        (
            Code(
                "no-rule",
                "purexport has no rule for this operator, and torch has no decomposition of it.",
                "Use other operators, write a rule by `register_custom_op_symbolic` or `custom_translation_table`, "
                "or keep the call with `OperatorExportTypes.ONNX_FALLTHROUGH`.",
                "aten::foo  at net (model.py:7)  has no rule, and torch has no decomposition of it",
            ),
            Code(
                "form-without-rule",
                "The rule of the operator does not support this argument or this form.",
                "Use the form that the message names, or write your own rule for the operator.",
                "aten::put_  at net (model.py:7)  with a mask of no axes has no rule; use torch.where",
            ),
            Code(
                "no-onnx-form",
                "ONNX has no operators that compute this, at any opset.",
                "Write the model without it, as the message says.",
                "aten::grid_sampler  at net (model.py:7)  of mode 0 and padding 3 has no ONNX form",
            ),
            Code(
                "opset-too-low",
                "ONNX has the operator, or this form of it, only in a later opset than the requested one.",
                "Export with an `opset_version` that is at least the one in the message. [opsets.md](opsets.md) lists "
                "what needs one.",
                "sequence::split  at net (model.py:7)  needs opset 11 or later: ONNX SplitToSequence does not exist at "
                "opset 9",
            ),
            Code(
                "no-opset",
                "An ONNX operator that the rule needs does not support this data type at any opset.",
                "Cast the operands to another dtype before the call.",
                "aten::mm  at net (model.py:7)  no opset has it: ONNX MatMul does not take tensor(bool) as 'A' "
                "at opset 20",
            ),
            Code(
                "size-not-known",
                "The rule needs a size as a number, but the axis is dynamic or its size depends on data.",
                "Declare that axis static, or write the operation so that no size is needed.",
                "aten::channel_shuffle  at net (model.py:7)  shuffles a dynamic number of channels; declare that axis "
                "static",
            ),
            Code(
                "result-size-unknown",
                "The rule needs the sizes of the result, and the graph cannot compute them.",
                "Declare the axes static, or compute the size from `x.shape` before the call.",
                "aten::reshape  at net (model.py:7)  a size of its result is not known",
            ),
            Code(
                "value-not-known",
                "The rule needs an argument as a number, but the model computes it.",
                "Pass the argument as a Python number, or write the operation on tensors.",
                "aten::nms  at net (model.py:7)  needs an iou_threshold that is a number from 0 on",
            ),
            Code(
                "complex-tensor",
                "ONNX has hardly any complex operators; complex tensors become pairs of real ones, and this form has "
                "no rule for pairs.",
                "Compute with the real and the imaginary part (`torch.view_as_real`).",
                "aten::atan2  at net (model.py:7)  on complex numbers has no rule yet; use atan2 of the imaginary and "
                "the real part",
            ),
            Code(
                "quantized-tensor",
                "A quantized tensor is an argument of an operator that has no quantized form in ONNX.",
                "Call `.dequantize()` or `.int_repr()` before, or use another quantized dtype or scheme.",
                "aten::view  at net (model.py:7)  of a tensor quantized per channel has no ONNX form; dequantize it "
                "before",
            ),
            Code(
                "zero-point-not-integer",
                "Zero points of ONNX are integers, and torch also uses the fraction.",
                "Round the zero points, or use an affine scheme.",
                "aten::quantize_per_tensor  at net (model.py:7)  with float zero points has no ONNX form; round them "
                "before",
            ),
            Code(
                "float64-unsupported",
                "ONNX computes this operator in float32 only, which would silently lose precision.",
                "Cast the operand to float32 before the call.",
                "torchvision::nms  at net (model.py:7)  of float64 boxes is computed in float32 by ONNX; convert them "
                "with .float() first",
            ),
            Code(
                "memory-layout",
                "The call reads memory outside of its tensor. A file has only tensors.",
                "Call `.clone()` or `.contiguous()` on the tensor before, or index its elements.",
                "aten::as_strided  at net (model.py:7)  of a slice of a tensor reads memory outside that slice; call "
                ".clone() on it before",
            ),
            Code(
                "computes-gradients",
                "The model computes gradients when it runs, and a file cannot do this.",
                "Export under `torch.no_grad()`, or leave the loss out of the model.",
                "aten::ctc_loss  at net (model.py:7)  computes gradients, which a file cannot do; export under "
                "torch.no_grad()",
            ),
            Code(
                "no-dtype",
                "ONNX and torch do not share this data type.",
                "Cast the tensor to another dtype.",
                "ONNX has no data type for torch.complex32; cast to another dtype before",
            ),
            Code(
                "call-not-kept",
                "The operator export type keeps this call as a node, but a node cannot have its arguments.",
                "Export with `OperatorExportTypes.ONNX`, or change the argument that the message names.",
                "aten::foo  at net (model.py:7)  gives complex or quantized tensors, which no node can hold",
            ),
            Code(
                "several-causes",
                "Several operators cannot be exported, for different causes; `error.gaps` has the code of each.",
                "See the code of each gap.",
                "2 operators cannot be exported at opset 11",
            ),
            Code(
                "rule-fault",
                "A lowering rule wrote an invalid node. This is a mistake in purexport or in your own rule.",
                "Report it with the message. Until it is fixed, write the operation in another way.",
                "the rule of aten::foo at net (model.py:7) gives tensor(float) where torch gives tensor(int64); this "
                "is a mistake in the rule, please report it",
            ),
        ),
    ),
    (
        "Rules of users",
        (
            Code(
                "symbolic-refuses",
                "A symbolic function does not support this form of the call, or refuses it itself.",
                "Change the function, or the call, as the message says.",
                "my::op  at net (model.py:7)  has a symbolic function that takes a list, and its length is not known "
                "here",
            ),
            Code(
                "symbolic-fails",
                "A symbolic function raised an error, or returned something else than the operator.",
                "Correct the function: the message names it, and its error is chained.",
                "the symbolic function of my::op at net (model.py:7) failed: KeyError: 'axis'",
            ),
            Code(
                "autograd-function",
                "The capture cannot see what an autograd Function computes.",
                "Pass it tensors, write to copies in its `forward`, or declare the operation by `torch.library`.",
                "the autograd Function Scale takes a number that follows from a dynamic size; pass it as a tensor",
            ),
        ),
    ),
    (
        "Verification and groups of processes",
        (
            Code(
                "output-differs",
                "`verify=True` ran the file, and an output differs from torch's by more than the tolerance.",
                "Report it with the model: wrong numbers are the worst kind of fault.",
                "output 'y' differs at 3 of 12 places, first at (0, 1): 1.0 in onnxruntime, 2.0 in torch",
            ),
            Code(
                "verify-impossible",
                "`verify=True` cannot run the model or the file.",
                "Leave `verify` out, or compare a small model of the same code.",
                "verify=True runs the model, and args have no values; pass real tensors",
            ),
            Code(
                "nothing-at-fault",
                "A reproducer was requested, but no node of the file is at fault, or the node cannot be extracted.",
                "Compare a file that differs from its model, and read the report.",
                "there is nothing to reproduce: no node is at fault; compare a file that differs",
            ),
            Code(
                "other-process-failed",
                "Another process of the group failed. Nothing that was written stays.",
                "See the error of that process.",
                "nothing was written, because of\nprocess 1 of 2: WeightsError: no such file",
            ),
        ),
    ),
    (
        "Weights",
        (
            Code(
                "weights-unreadable",
                "A checkpoint is malformed, or unsafe to read.",
                "Save it again; the message says where it is broken.",
                "a.npy: its header asks for 96 bytes of data, but 80 follow",
            ),
            Code(
                "weights-do-not-fit",
                "The names or shapes of the weights do not match the model, or the model takes no weights.",
                "Rename with `rename=`, pass `strict=False`, or pass the weights of this model.",
                "weights cannot be put into scripted modules; use load_state_dict before the export",
            ),
            Code(
                "weights-not-plain",
                "A value is not a plain tensor: it is sparse, quantized, a subclass, or not a tensor.",
                "Pass plain tensors, as the message says.",
                "weights: tensor 'w' is sparse_coo; pass its dense form",
            ),
            Code(
                "weights-spread",
                "The values of a tensor are distributed over the processes of a group.",
                "Write the model with `purexport.distributed.save`.",
                "the values of 'w' are spread over the processes of a group, and none has all of them; write the model "
                "with purexport.distributed.save",
            ),
        ),
    ),
    (
        "Files (`proto_schema`)",
        (
            Code(
                "malformed",
                "`DecodeError`: the bytes are not a valid message of the expected type.",
                "See the path and the offset; `purexport inspect` shows the bytes there.",
                "graph @0x3: wire type 7 does not exist",
            ),
            Code(
                "not-encodable",
                "`EncodeError`: a message holds a value that the format cannot express.",
                "Change the value at the path that the message names.",
                "graph.node[0].name: 3: expected str, not int",
            ),
            Code(
                "external-data",
                "`ExternalDataError`: the data file of a tensor is missing, unsafe to open or too short.",
                "Put the data file beside the model, unchanged since both were written.",
                "tensor 'w': cannot open weights.bin: No such file or directory",
            ),
            Code(
                "invalid-model",
                "`CheckError`: the model breaks a rule of the ONNX specification.",
                "See the place that the message names.",
                "graph.node[0].input: Relu (as of opset 14) has 2 inputs; it takes 1",
            ),
            Code(
                "not-the-syntax",
                "`ParseError`: a text does not follow the textual syntax of ONNX.",
                "See the line, the column and the expected text in the message.",
                "line 1, column 11: expected '(' before the inputs of MatMul, found '['\n"
                "    y = MatMul[X, W]\n"
                "              ^",
            ),
            Code(
                "shapes-contradict",
                "`InferenceError`: the inputs of a node, or a declared type, contradict the inferred types.",
                "See the node that the message names; `purexport infer` shows the types of the other values.",
                "node 'unit' (LpNormalization): axis 9 is out of range for rank 1",
            ),
            Code(
                "not-computable",
                "`EvaluationError`: a node cannot be computed from its inputs, or an input of the run does not fit.",
                "Compare the inputs that the message lists with the specification of the operator.",
                "node 'unit' (LpNormalization) cannot be computed: axis 9 is outside of a tensor of rank 1. Its inputs "
                "are float[3]; compare them with the specification of LpNormalization",
            ),
            Code(
                "budget-spent",
                "`BudgetError`: a node needs more work or memory than the budget of the run has left.",
                "Give the run more with `--budget` (`budget=` in Python), if you trust the file.",
                "node 'unit' (Softmax) is past the budget: it needs 1792 bytes of memory, and the budget is 256 bytes. "
                "Give the run more with --budget (budget= in Python)",
            ),
            Code(
                "operator-unknown",
                "`UnsupportedOperatorError`: the model has operators that the evaluator does not know.",
                "Pass `functions=` with their definitions, or `new_ops=` with classes that compute them.",
                "1 operator cannot be computed: ai.onnx.Unit (node 'unit' (Unit) at opset 28). Pass functions= with "
                "their definitions, or new_ops= with classes that compute them",
            ),
            Code(
                "cannot-convert",
                "`ConversionError`: the operators of the requested opset cannot compute what a node computes.",
                "Convert to the opset that the message names, or replace the node.",
                "cannot convert to opset 13: node 'join' (StringConcat): the operator StringConcat does not exist "
                "before opset 20; opset 20 can express it",
            ),
        ),
    ),
)
