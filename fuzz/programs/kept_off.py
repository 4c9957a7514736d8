"""What the generator keeps off, because a runtime or torch is wrong there and not the file: a row a case, and why.

A row is (what the statement holds, whether the case needs a tensor without elements, the reason).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

# (pattern of the statement, only with an empty tensor, reason)
CASES: list[tuple[str, bool, str]] = [
    (r"^(\S+)\.masked_scatter_\(.*, \1\)", False, "torch reads what it has just written"),
    (r"einsum", True, "ONNX Runtime 1.31 divides by zero in Einsum of empty tensors, which ends the process"),
]


def is_kept_off(statement: str, tensors: Iterable[torch.Tensor]) -> bool:
    """Whether a statement on these tensors is one of the cases."""
    empty = any(not tensor.numel() for tensor in tensors)
    return any((empty or not needs) and re.search(pattern, statement) for pattern, needs, _ in CASES)
