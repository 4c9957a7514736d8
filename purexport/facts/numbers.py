"""Operators between tensors and Python numbers: sizes, numbers read from tensors, and tensors made from numbers."""

from __future__ import annotations

from typing import Any

import torch

from purexport.facts.fact import Fact, alike


def _size(self: torch.Tensor, dim: int) -> Any:
    return self.size(dim)


def _count(self: torch.Tensor) -> Any:
    return self.numel()


FACTS = (
    Fact("aten::size", shapes={"int": _size}),
    Fact("aten::numel", shapes=_count),
    *alike("Int IntImplicit Float Bool", Fact("aten::", reads_number=True)),
    *alike("scalar_tensor zeros ones full arange", Fact("aten::", makes_constant=True)),
)
