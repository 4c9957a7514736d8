"""The refusals that are known: a row says by which code one is told, and what it is.  Any other is a finding.

A code whose errors quote torch needs some of torch's words too, and one of a gap that several operators have, the
operator.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from purexport.errors import ExportError, Gap, UnsupportedOperatorError

DATA_SIZE = "a size that data decides, where torch must know it"
UNKNOWN_SIZES = "sizes that must be known"
STRICTER = "torch's shape function is stricter than its kernel"

# code: kind
KNOWN = {
    "data-dependent": "torch.export: data decides",
    "data-dependent-size": DATA_SIZE,
    "torch-export-refuses": "torch.export itself refuses",
    "alias-unknown": "a write to what a branch or loop may have renamed or copied",
    "write-to-list-element": "a write to what may be in a list",
    "view-overlaps": "a write through a view that overlaps itself",
    "view-sizes-unknown": "a write through a view of unknown sizes",
    "view-without-inverse": "a write through a view without an inverse",
    "shape-changed-in-place": "a shape changed in place, in a branch or loop or of a returned tensor",
    "paths-disagree": "two types for one name",
    "loop-changes-type": "two types for one name",
    "dynamic-axis-held": "a dynamic size is held fixed",
    "fill-diagonal": "a diagonal of more than a matrix",
    # of gaps
    "opset-too-low": "the operator needs a later opset",
    "size-not-known": UNKNOWN_SIZES,
    "zero-point-not-integer": "zero points that are no integers",
    "float64-unsupported": "ONNX quantizes float32 only",
}

# (code, operator of the gap, kind)
GAPS = [
    ("no-opset", "aten::linalg_solve_triangular*", "torch's kernel takes booleans for numbers"),
    ("no-onnx-form", "aten::conv*", "a convolution of no channels"),
    ("no-onnx-form", "aten::_conv*", "a convolution of no channels"),
    ("no-onnx-form", "aten::grid_sampler*", "modes that torch does not document"),
    ("form-without-rule", "aten::linalg_matrix_rank*", "more tolerances than matrices"),
    ("form-without-rule", "aten::linalg_pinv*", "more tolerances than matrices"),
    ("form-without-rule", "aten::pinverse", "more tolerances than matrices"),
    ("form-without-rule", "aten::_weight_norm*", "scales that torch takes as they lie in memory"),
]

RUN = ("call-does-not-run", "no-shape-function")
TORCH = ("torch-internal-error", "no-shape-function")

# (codes, words of torch that the error quotes, kind)
QUOTED = [
    (TORCH, r"INTERNAL ASSERT FAILED .*alias_analysis", "torch.jit.trace does not know the operator in place"),
    (TORCH, r"^torch\.export does not take the model", "torch.export itself refuses"),
    (RUN, r"select\(\): index -?\d+ out of range", "a branch that raises an error"),
    (RUN, r"Could not extract specialized integer", DATA_SIZE),
    (RUN, r"must have same reduction dim, but got .*\bu\d", DATA_SIZE),
    (RUN, r"should be broadcastable to", DATA_SIZE),
    (RUN, r"^aten::(fake_quantize_per_\w+|histogram)", "torch has no shape function for it"),
    (RUN, r"requested shape has too few dimensions", "a script itself does not run it"),
    # on these torch's kernels run, and its shape functions, which a script is read with, do not
    (RUN, r"Repeats cannot be negative", STRICTER),
    (RUN, r"Expected input tensor to have an integral", STRICTER),
    (RUN, r"dimension size -1 .* is ambiguous", STRICTER),
    (RUN, r"start must be an 0-dim integral", STRICTER),
    (RUN, r"with two bool tensors is not supported", STRICTER),
    (RUN, r"expected predicate to be bool, got torch.uint8", STRICTER),
    (RUN, r"more than one element of the written-to tensor refers", STRICTER),
]


def kind_of(error: ExportError) -> str | None:
    """The kind of a refusal, or None for one that no row tells; of several gaps each must be told."""
    if isinstance(error, UnsupportedOperatorError):
        kinds = [_kind_of_gap(gap) for gap in error.gaps]
        return kinds[0] if all(kinds) else None
    quoted = (kind for codes, words, kind in QUOTED if error.code in codes and re.search(words, str(error)))
    return KNOWN.get(error.code) or next(quoted, None)


def _kind_of_gap(gap: Gap) -> str | None:
    target = gap.target.partition(" ")[0]
    rows = (kind for code, operator, kind in GAPS if code == gap.code and fnmatchcase(target, operator))
    return KNOWN.get(gap.code) or next(rows, None)
