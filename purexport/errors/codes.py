"""The codes of the errors: one row a cause, with what it means, what to do about it and how such an error reads.

A code is a name for a cause, and stays the same when the words of a message change: `error.code` of every error that
`purexport.errors` and `proto_schema.errors` define. `docs/error-codes.md` is this table as a page. A cause is what a
user would look up, so that raise sites with one cause and one remedy share a row; the message says the rest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """One cause: its name, what it means and why that is an error, what to do, and the text of such an error."""

    name: str
    meaning: str
    remedy: str
    example: str


FAMILIES: tuple[tuple[str, tuple[Code, ...]], ...] = (
    (
        "Operators",
        (
            Code(
                "no-rule",
                "Neither purexport nor torch says how this operator is made of others. Guessing would give wrong "
                "numbers.",
                "Write the operation with other operators, give a rule by `register_custom_op_symbolic` or "
                "`custom_translation_table`, or keep the call with `OperatorExportTypes.ONNX_FALLTHROUGH`.",
                "aten::foo  at net (model.py:7)  has no rule, and torch has no decomposition of it",
            ),
            Code(
                "form-without-rule",
                "The operator has a rule, and the rule does not know this argument or this form of the operator.",
                "Write the form that the message names, or give a rule of your own for the operator.",
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
                "ONNX has the operator, or this form of it, only in a later opset than the one that was asked for.",
                "Export with an `opset_version` that is at least the one in the message.",
                "aten::grid_sampler_2d  at net (model.py:7)  needs opset 16 or later: ONNX GridSample came later",
            ),
            Code(
                "no-opset",
                "An ONNX operator of the lowering does not take this data type at any opset.",
                "Cast the operands to another dtype before the call.",
                "aten::mm  at net (model.py:7)  no opset has it: ONNX MatMul takes no tensor(bool) as 'A' at opset 20",
            ),
            Code(
                "size-not-known",
                "The rule must know a size as a number, and the axis is dynamic or its size follows from data.",
                "Declare that axis static, or write the operation so that no size is needed.",
                "aten::channel_shuffle  at net (model.py:7)  shuffles a dynamic number of channels; declare that axis "
                "static",
            ),
            Code(
                "value-not-known",
                "The rule must know an argument as a number, and the model computes it.",
                "Give the argument as a number of Python, or write the operation on tensors.",
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
                "A quantized tensor reaches what has no form of it in ONNX.",
                "Call `.dequantize()` or `.int_repr()` before, or use another quantized dtype or scheme.",
                "aten::view  at net (model.py:7)  of a tensor quantized per channel has no ONNX form; dequantize it "
                "before",
            ),
            Code(
                "zero-point-not-integer",
                "Zero points of ONNX are integers, and torch computes with the fraction too.",
                "Round the zero points, or use an affine scheme.",
                "aten::quantize_per_tensor  at net (model.py:7)  with zero points that are no integers has no ONNX "
                "form; round them before",
            ),
            Code(
                "float64-unsupported",
                "ONNX computes this operator in float32 only, which would lose digits without a word.",
                "Cast the operand to float32 before the call.",
                "torchvision::nms  at net (model.py:7)  of float64 boxes is computed in float32 by ONNX; convert them "
                "with .float() first",
            ),
            Code(
                "memory-layout",
                "The call reads memory by its place, beside what its tensor shows. A file has tensors and no memory.",
                "Call `.clone()` or `.contiguous()` on the tensor before, or index its elements.",
                "aten::as_strided  at net (model.py:7)  of a part of a tensor reads memory outside that part; call "
                ".clone() on the part before",
            ),
            Code(
                "computes-gradients",
                "The model computes gradients when it runs, and a file has no place for them.",
                "Export under `torch.no_grad()`, or leave the loss out of the model.",
                "aten::ctc_loss  at net (model.py:7)  computes gradients, which a file has no place for; export under "
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
                "An operator export type asks to keep this call as a node, and a node cannot hold its arguments.",
                "Export with `OperatorExportTypes.ONNX`, or change the argument that the message names.",
                "aten::foo  at net (model.py:7)  gives complex or quantized tensors, which no node can hold",
            ),
            Code(
                "several-causes",
                "Operators cannot be exported, each for another cause; `error.gaps` has the code of each.",
                "See the code of each gap.",
                "2 operators cannot be exported at opset 11",
            ),
            Code(
                "rule-fault",
                "A lowering rule wrote what ONNX does not take. It is a mistake of purexport, or of a rule of yours.",
                "Report it with the message; until it is mended, write the operation in another way.",
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
                "A symbolic function cannot take the call as it is, or refuses it itself.",
                "Change the function, or the call, as the message says.",
                "my::op  at net (model.py:7)  has a symbolic function that takes a list, and its length is not known "
                "here",
            ),
            Code(
                "symbolic-fails",
                "A symbolic function raised an error, or gave something else than the operator does.",
                "Mend the function: the message names it, and the error is chained.",
                "the symbolic function of my::op at net (model.py:7) failed: KeyError: 'axis'",
            ),
            Code(
                "autograd-function",
                "An autograd Function hides from the capture what it computes.",
                "Pass it tensors, write to copies in its `forward`, or declare the operation by `torch.library`.",
                "the autograd Function Scale takes a number that follows from a dynamic size; pass it as a tensor",
            ),
        ),
    ),
    (
        "The model and its arguments",
        (
            Code(
                "model-does-not-run",
                "The model itself raised an error on the example arguments.",
                "Run `model(*args)`, and mend what it says.",
                "the model does not run on these args: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
            ),
            Code(
                "args-do-not-fit",
                "The arguments are not those that the model's `forward` takes.",
                "Give `args` and `kwargs` as the model is called.",
                "the model takes 1 args, 2 were given",
            ),
            Code(
                "argument-not-a-tensor",
                "The arguments hold an object in which torch cannot see the tensors.",
                "Pass tensors, or register the class as a pytree node, as the message says.",
                "args holds 'a', which is no tensor; pass example tensors",
            ),
            Code(
                "args-share-memory",
                "The model writes to an input, and another argument shares its memory. Inputs of a file never do.",
                "Pass tensors of their own (`.clone()`).",
                "the model writes to its input 'x' at net (model.py:7), and two of the args share memory; pass tensors "
                "of their own (.clone())",
            ),
            Code(
                "output-not-a-tensor",
                "The model returns what is neither a tensor nor a number, and outputs of ONNX are tensors.",
                "Return tensors, or register the class as a pytree node.",
                "output 'y' is a list, and ONNX outputs are tensors",
            ),
            Code(
                "script-without-forward",
                "The script has no `forward` that could be exported.",
                "Script a module that calls it.",
                "the script has no method forward of its own; script a module that calls it",
            ),
            Code(
                "neither-route",
                "The trace failed, and so did torch.export. `error.causes` has both errors.",
                "Read both: mending either is enough.",
                "neither route took the model.\nby trace: the model does not run\nby torch.export: it is refused",
            ),
            Code(
                "packed-weights",
                "A quantized layer holds its weights in an object whose form is not known.",
                "Quantize the layer in another way.",
                "net.lstm holds recurrent weights of kind 1; quantize them dynamically",
            ),
            Code(
                "parameters-written",
                "The model writes to its parameters when it runs. In a file they are constants.",
                "Write to buffers.",
                "the model writes to its parameters weight when it runs; write to buffers",
            ),
            Code(
                "state-written",
                "The model writes to its buffers or inputs, and `mutated_state='error'` asks to refuse that.",
                "Leave the option out, or take `mutated_state='io'`.",
                "the model writes to its buffer 'count'; the file does not\n(mutated_state='error')",
            ),
            Code(
                "buffer-assigned",
                "The model gives a buffer another tensor, and torch.export does not record which.",
                "Export with `capture='trace'`, or write into the buffer (`.copy_()`).",
                "the model assigns its buffer 'count', and torch.export does not record what; export with "
                "capture='trace', or write into the buffer (.copy_())",
            ),
            Code(
                "different-devices",
                "A model without values holds a tensor on the meta device that is no parameter, buffer or attribute.",
                "Register that tensor as a buffer.",
                "torch.export does not take the model: found two different devices meta, cpu\n(for the capture, ...)",
            ),
            Code(
                "trace-without-values",
                "A trace of a model without values cannot follow what depends on them.",
                "Use `capture='export'`, or a model with values.",
                "a trace without values lost what is computed before net (model.py:7); use capture='export', or a "
                "model with values",
            ),
            Code(
                "tensor-without-values",
                "A tensor is on the meta device or fake, and no values were given for it.",
                "Give them with `weights=`; register the tensor as a buffer where it has no name.",
                "the model holds a tensor without values that is no parameter, buffer or attribute (the capture calls "
                "it 'c0'); register it as a buffer, and give it with weights=",
            ),
            Code(
                "wrong-option",
                "An option has a value that it does not take.",
                "Give one that the message names. (Most such mistakes are a `ValueError` without a code.)",
                "training='yes' is neither a bool nor a TrainingMode",
            ),
            Code(
                "not-exported",
                "An `ExportError` that was raised without a code: by a rule of yours, for example.",
                "Read the message.",
                "",
            ),
        ),
    ),
    (
        "Dynamic axes",
        (
            Code(
                "dynamic-axis-held",
                "A size that follows from a dynamic axis is a fixed number in what was captured. The file would be "
                "wrong at other sizes.",
                "Compute the size by torch operators from `x.shape`, or declare the axis static.",
                "torch.export holds a size fixed that follows from a dynamic axis: n == 4; compute it by torch "
                "operators from x.shape, or declare the axis static",
            ),
            Code(
                "axis-of-size-one",
                "`squeeze` removes a dynamic axis only because its size is 1 in the example.",
                "Give an example in which the axis is larger, or index it.",
                "aten::squeeze at net (model.py:7) removes a dynamic axis, whose size is 1 only for the example; give "
                "an example in which it is larger, or index the axis instead",
            ),
            Code(
                "other-sizes-do-not-run",
                "The model runs on the example, and not on other sizes of the axes that were declared dynamic.",
                "Declare these axes static, or change the line so that it takes any size.",
                "aten::add at net (model.py:7) does not run with other sizes on the dynamic axes: sizes differ. "
                "Declare these axes static, or change the line so that it takes any size",
            ),
            Code(
                "no-shape-function",
                "Nobody says which sizes the operator gives, so that sizes after it are unknown.",
                "Declare the axes static; for an operator of your own register a fake implementation "
                "(`torch.library.register_fake`).",
                "my::op at net (model.py:7) has no shape function, so its sizes under dynamic axes are unknown",
            ),
            Code(
                "dynamic-shapes-do-not-fit",
                "`dynamic_shapes` has another form than the arguments.",
                "Give it the form of the arguments: one entry for each.",
                "dynamic_shapes has 1 entries, and the args are x, y",
            ),
            Code(
                "sizes-compared",
                "A script decides on whether two sizes are equal, and that is known only when the file runs.",
                "Declare one of the axes static, or leave the comparison out.",
                "the script compares sizes that may or may not be equal when the model runs",
            ),
        ),
    ),
    (
        "Data that decides",
        (
            Code(
                "data-dependent",
                "Python code or a script decides on the content of a tensor in a way that has no form in ONNX.",
                "Use `torch.where` or `torch.cond`, say what holds with `torch._check`, or script the function.",
                "torch.export does not take the model: its Python code decides on the content of a tensor at net "
                "(model.py:7); use torch.where or torch.cond there, say what holds with torch._check, or script the "
                "function",
            ),
            Code(
                "data-dependent-size",
                "A size follows from data, and torch must know it to say what shape the call gives.",
                "Write the call so that its shape does not depend on that size.",
                "aten::reshape at net (model.py:7) does not run: Could not guard on data-dependent expression",
            ),
            Code(
                "paths-disagree",
                "A name is of one type after one branch and of another type after the other. ONNX has one type for a "
                "value.",
                "Give both the same dtype, rank and keys.",
                "at net (model.py:7) a variable is a list on one path and a dict on the other",
            ),
            Code(
                "loop-changes-type",
                "What a loop carries has another type, or other keys, in a later step than in the first.",
                "Make both of one type before the loop begins.",
                "what the loop at net (model.py:7) carries changes its type at every step, which ONNX cannot say",
            ),
            Code(
                "none-on-one-path",
                "A value is None on one path and a tensor on the other, and is used as if it were always there.",
                "Test it with `is not None`, or return a flag beside it.",
                "aten::add at net (model.py:7) takes a value that is None on one path at net (model.py:5); test it "
                "with 'is not None'",
            ),
            Code(
                "list-of-unknown-length",
                "The length of a list, or an index into it, depends on data, and this use has no form in ONNX.",
                "Use a tensor, or a list whose length is known.",
                "at net (model.py:7) a list is sliced at a position that depends on data; cut a tensor instead",
            ),
        ),
    ),
    (
        "Writes in place",
        (
            Code(
                "alias-unknown",
                "A branch or loop decides whether two names are one tensor or list, and one of them is written to.",
                "Write to a copy (`.clone()`, `list(...)`), or assign a new value.",
                "the script changes a list or dict at net (model.py:7) that may or may not be the one of another name, "
                "because of the branch at net (model.py:5); change a copy (list(...)), or assign a new one",
            ),
            Code(
                "write-to-list-element",
                "A tensor is written to that may be an element of a list whose length depends on data.",
                "Put a `.clone()` into the list, or assign a new tensor.",
                "aten::add_ at net (model.py:7) writes in place to a tensor that may be an element of the list at net "
                "(model.py:5), whose length depends on data; put a .clone() into the list, or assign a new tensor",
            ),
            Code(
                "write-to-constant",
                "A tensor is written to that is no input, parameter or buffer, so that its value before is unknown.",
                "Register it with `register_buffer`, or write to a `.clone()` of it.",
                "aten::add_ at net (model.py:7) writes to a tensor that is no input, parameter or buffer; its value "
                "from before the call is not known. Register it with register_buffer, or write to a .clone() of it",
            ),
            Code(
                "write-not-followed",
                "An operator writes to several tensors, or to others than it says. What is written is not known.",
                "Write it as an assignment of a new tensor.",
                "aten::foo_ at net (model.py:7) writes in a way that cannot be followed; write it as an assignment of "
                "a new tensor",
            ),
            Code(
                "fill-diagonal",
                "`fill_diagonal_` is followed on matrices without `wrap` only.",
                "Write to `.diagonal()`.",
                "aten::fill_diagonal_ at net (model.py:7) is supported on matrices without wrap; write to .diagonal()",
            ),
            Code(
                "no-pure-form",
                "An operator writes in place, or to `out=`, and torch has no other form of it.",
                "Write it as an assignment of a new tensor.",
                "aten::foo_ at net (model.py:7) writes in place, and torch has no pure form of it",
            ),
            Code(
                "shape-changed-in-place",
                "A call changes the shape of a tensor that other names show too.",
                "Use the form that is not in place, or pass an `out=` tensor of the result's shape.",
                "aten::t_ at net (model.py:7) changes the shape of a tensor in place, inside a branch or loop that "
                "depends on data; use the form that is not in place",
            ),
            Code(
                "view-without-inverse",
                "A write goes through a view, and what it means for the base tensor is not known.",
                "Write into the base tensor, or build a new one.",
                "aten::add_ at net (model.py:7) writes through aten::foo (net (model.py:6)): this view is not "
                "supported; write into the base tensor, or build a new tensor",
            ),
            Code(
                "view-sizes-unknown",
                "A write goes through a view, and where it goes is known only for sizes that are known.",
                "Declare the axes static, write into the base tensor, or build a new one.",
                "aten::add_ at net (model.py:7) writes through aten::unfold (net (model.py:6)): its sizes must be "
                "known; write into the base tensor, or build a new tensor",
            ),
            Code(
                "view-overlaps",
                "A write goes through a view that shows an element several times, where the order would decide.",
                "Write into the base tensor, or build a new one.",
                "aten::add_ at net (model.py:7) writes through aten::unfold (net (model.py:6)): it has several places "
                "for one element; write into the base tensor, or build a new tensor",
            ),
            Code(
                "trace-drops-write",
                "The model writes to memory that torch's tracer does not know to be shared, and so drops the write.",
                "Call `.clone()` on the results of that call, or export with `capture='export'`.",
                "the model writes to memory that a result of unbind shares, and the tracer drops such writes; call "
                ".clone() on the results, or export with capture='export'",
            ),
        ),
    ),
    (
        "Traces, scripts and programs",
        (
            Code(
                "trace-cannot-record",
                "torch's tracer does not record this call.",
                "Use `capture='export'`.",
                "a trace cannot record torch.cond, while_loop, scan and other operators that torch compiles first; use "
                "capture='export'",
            ),
            Code(
                "torch-internal-error",
                "torch itself fails: one of its own assertions does not hold.",
                "Export by the other route, or write the operation in another way.",
                "the model does not run on these args: RuntimeError: r INTERNAL ASSERT FAILED at alias_analysis.cpp",
            ),
            Code(
                "torch-export-refuses",
                "torch.export does not take the model, for a reason of its own.",
                "See what it says, or use `capture='trace'`.",
                "torch.export does not take the model: Unsupported: generator at net (model.py:7)",
            ),
            Code(
                "program-not-read",
                "An ExportedProgram holds what has no place in a file, or what torch cannot resolve.",
                "Export the program without it.",
                "the program's input 'n' is no tensor, and ONNX has no place for it",
            ),
            Code(
                "call-does-not-run",
                "A call of a script raises an error on the shapes and dtypes that reach it.",
                "Mend the call; where it stands in a branch that is never taken, leave it out.",
                "aten::mm at net (model.py:7) does not run: a and b must have same reduction dim",
            ),
            Code(
                "script-raises",
                "The script raises an error on the example, whatever the data.",
                "Give an example on which the script runs.",
                "the script raises at net (model.py:7) on these args: ValueError: too short",
            ),
            Code(
                "script-operator",
                "The interpretation of scripts does not know this operation.",
                "Write it in another way, or export the module itself without `torch.jit.script`.",
                "aten::foo at net (model.py:7) cannot be exported from a script yet",
            ),
            Code(
                "script-object",
                "The script uses an object that is neither a module nor made by the script.",
                "Return its attributes as a tuple, or keep them in modules.",
                "the script returns an instance of a class; return its attributes, as a tuple",
            ),
            Code(
                "script-hides-effect",
                "The effect of a context or of a quantized call cannot be seen in a script.",
                "Export the module itself by trace.",
                "the script enters __torch__.Mode at net (model.py:7), which a script does not show the effect of; "
                "export the module itself by trace",
            ),
            Code(
                "script-too-long",
                "A script is interpreted at the export, and takes more steps than are tried.",
                "Look for a loop that does not end, or write it on tensors.",
                "the script takes more than 1000000 steps at export, at net (model.py:7)",
            ),
        ),
    ),
    (
        "Verification and groups of processes",
        (
            Code(
                "output-differs",
                "`verify=True` ran the file, and an output differs from torch's by more than the tolerance.",
                "Report it with the model: wrong numbers are the worst fault that there is.",
                "output 'y' differs at 3 of 12 places, first at (0, 1): 1.0 in onnxruntime, 2.0 in torch",
            ),
            Code(
                "verify-impossible",
                "`verify=True` cannot run the model or the file.",
                "Leave `verify` out, or compare a small model of the same code.",
                "verify=True runs the model, and args have no values; pass real tensors",
            ),
            Code(
                "other-process-failed",
                "Another process of the group failed; no process has written anything that stays.",
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
                "a.npy: it does not begin as numpy's versions 1 to 3 of the format do",
            ),
            Code(
                "weights-do-not-fit",
                "The names or shapes of the weights are not those of the model, or the model takes no weights.",
                "Rename with `rename=`, pass `strict=False`, or pass the weights of this model.",
                "weights cannot be put into scripted modules; use load_state_dict before the export",
            ),
            Code(
                "weights-not-plain",
                "A value stands for a tensor without being a plain one: sparse, quantized, a subclass or no tensor.",
                "Pass plain tensors, as the message says.",
                "weights: tensor 'w' is sparse_coo; pass its dense form",
            ),
            Code(
                "weights-spread",
                "The values of a tensor are spread over the processes of a group.",
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
                "`DecodeError`: the bytes are not the message that was asked for.",
                "See the path and the offset; `purexport inspect` shows the bytes there.",
                "graph.node[3] @0x12: wire type 7 does not exist",
            ),
            Code(
                "not-encodable",
                "`EncodeError`: a message holds a value that the format cannot express.",
                "Change the value at the path that the message names.",
                "graph.node[3].name: 3 is no text",
            ),
            Code(
                "external-data",
                "`ExternalDataError`: the data file of a tensor is missing, unsafe to open or too short.",
                "Put the data file beside the model, as it was when both were written.",
                "tensor 'w': there is no file weights.bin beside the model",
            ),
            Code(
                "invalid-model",
                "`CheckError`: the model breaks a rule of the ONNX specification.",
                "See the place that the message names.",
                "graph.node[3]: Relu takes 1 input, and has 2",
            ),
        ),
    ),
)

CODES: dict[str, Code] = {row.name: row for _, rows in FAMILIES for row in rows}
