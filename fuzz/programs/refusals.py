"""The refusals that are known: a row says by which words one is told, and what it is.  Any other is a finding."""

from __future__ import annotations

import re

# (words of the error, kind): the first row that fits
KNOWN: list[tuple[str, str]] = [
    (r"at the model \(.*decides on the content of a tensor|its Python code decides on", "torch.export: data decides"),
    (r"torch\.export does not take the model", "torch.export itself refuses"),
    (r"INTERNAL ASSERT FAILED .*alias_analysis", "torch.jit.trace does not know the operator in place"),
    (r"a result of \w+ shares, and the tracer drops such writes", "a write that the tracer drops"),
    (r"Could not guard on data-dependent expression", "a size that data decides, where torch must know it"),
    (r"may or may not have given another name to", "a write to what a branch or loop may have renamed"),
    (r"may be an element of the list at .*, whose length depends on data", "a write to what may be in a list"),
    (r"it has several places for one element", "a write through a view that overlaps itself"),
    (r"does not run: select\(\): index -?\d+ out of range", "a branch that raises an error"),
    (r"may or may not have copied", "a write through what may be a copy"),
    (r"changes the shape of a tensor in place, inside a branch", "a shape changed in place in a branch or loop"),
    (r"may resize its out= tensor, inside a branch", "a shape changed in place in a branch or loop"),
    (r"changes the shape of a tensor that .* returned as it is", "a shape changed in place of a returned tensor"),
    (
        r"its sizes must be known(, and an axis is dynamic)?; write into the base",
        "a write through a view of unknown sizes",
    ),
    (r"which has no form in ONNX; make both of one type", "two types for one name"),
    (r"the trace holds a size fixed that was declared dynamic", "the trace holds a dynamic size fixed"),
    (r"this view is not supported; write into the base tensor", "a write through a view without an inverse"),
    (r"torch\.export holds a size fixed that follows from a dynamic axis", "torch.export holds a dynamic size fixed"),
    (r"declare (its axes|that axis) static", "sizes that must be known"),
    (r"carries changes its type at every step", "two types for one name"),
    (r"Could not extract specialized integer", "a size that data decides, where torch must know it"),
    (r"must have same reduction dim, but got .*\bu\d", "a size that data decides, where torch must know it"),
    (r"should be broadcastable to", "a size that data decides, where torch must know it"),
    (r"(fake_quantize_per_\w+|aten::histogram\S*) .*does not run", "torch has no shape function for it"),
    (r"with float zero points has no ONNX form", "zero points that are no integers"),
    (r"of float64 has no ONNX form, whose QuantizeLinear is float32", "ONNX quantizes float32 only"),
    (r"needs spatial axes of known size", "sizes that must be known"),
    (r"aten::combinations .*of a dynamic axis has no rule", "sizes that must be known"),
    (r"linalg_solve_triangular .*takes no tensor\(bool\)", "torch's kernel takes booleans for numbers"),
    (r"without input channels has no ONNX form", "a convolution of no channels"),
    (r"grid_sampler .*of mode \d+ and padding \d+ has no ONNX form", "modes that torch does not document"),
    (r"fill_diagonal_ .* is supported on matrices without wrap", "a diagonal of more than a matrix"),
    (r"with more tolerances than matrices has no rule", "more tolerances than matrices"),
    (r"with scales in another shape than that of the norms", "scales that torch takes as they lie in memory"),
    (r"aten::copy_ .*requested shape has too few dimensions", "a script itself does not run it"),
    # on these torch's kernels run, and its shape functions, which a script is read with, do not
    (r"aten::tile .*Repeats cannot be negative", "torch's shape function is stricter than its kernel"),
    (r"__rshift__.* Expected input tensor to have an integral", "torch's shape function is stricter than its kernel"),
    (
        r"native_channel_shuffle .*dimension size -1 .* is ambiguous",
        "torch's shape function is stricter than its kernel",
    ),
    (r"aten::narrow.Tensor .*start must be an 0-dim integral", "torch's shape function is stricter than its kernel"),
    (r"log_softmax.* with two bool tensors is not supported", "torch's shape function is stricter than its kernel"),
    (r"expected predicate to be bool, got torch.uint8", "torch's shape function is stricter than its kernel"),
    (r"more than one element of the written-to tensor refers", "torch's shape function is stricter than its kernel"),
]
_GAP = re.compile(r"^  \w+::\S+ ", re.MULTILINE)
_LATER = re.compile(r"^  \w+::\S+ .* needs opset \d+ or later", re.MULTILINE)


def kind_of(text: str) -> str | None:
    """The kind of a refusal, or None for one that no row tells."""
    gaps = _GAP.findall(text)
    if gaps and len(_LATER.findall(text)) == len(gaps):
        return "the operator needs a later opset"
    return next((kind for words, kind in KNOWN if re.search(words, text)), None)
