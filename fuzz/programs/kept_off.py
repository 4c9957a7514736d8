"""What the generator keeps off, because a runtime or torch is wrong there and not the file: a row a case, and why.

A row is (what the statement holds, what else the case needs, the reason): "empty" is a tensor without elements,
"large" one with numbers above 100, "shared" two tensors that share memory, "sizes" tensors of different shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

# (pattern of the statement, "", "empty", "large", "shared" or "sizes", reason)
CASES: list[tuple[str, str, str]] = [
    (r"^(\S+)\.masked_scatter_\(.*, \1\)", "", "torch reads what it has just written"),
    (r"\.masked_scatter_\(", "shared", "torch reads what it has just written"),
    (
        r"aten\.binary_cross_entropy\(",
        "sizes",
        "torch.nn.functional refuses it, and the kernel resizes its own result, which torch is to give up",
    ),
    (r"aten\.histogram\(", "empty", "torch's bounds of nothing are what lay in its memory"),
    (
        r"aten\.special_\w*chebyshev_polynomial_",
        "large",
        "torch's float32 errs by 1e-4 of degree 1806 and by 2e-3 of degree 30,000, where whole numbers are right",
    ),
    (r"einsum", "empty", "ONNX Runtime 1.31 divides by zero in Einsum of empty tensors, which ends the process"),
]


def is_kept_off(statement: str, tensors: Iterable[torch.Tensor]) -> bool:
    """Whether a statement on these tensors is one of the cases."""
    given = list(tensors)
    places = {tensor.untyped_storage().data_ptr() for tensor in given}
    holds = {
        "",
        *["empty"] * any(not tensor.numel() for tensor in given),
        *["large"] * any(bool((tensor.abs() > 100).any()) for tensor in given if tensor.is_floating_point()),
        *["shared"] * (len(places) < len(given)),
        *["sizes"] * (len({tensor.shape for tensor in given}) > 1),
    }
    return any(needs in holds and re.search(pattern, statement) for pattern, needs, _ in CASES)
