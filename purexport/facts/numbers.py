"""Operators between tensors and Python numbers: sizes, numbers read from tensors, and tensors made from numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from purexport.facts.fact import Fact, alike
from purexport.facts.recurrent import unknown_size


def _size(self: torch.Tensor, dim: int) -> Any:
    return self.size(dim)


def _count(self: torch.Tensor) -> Any:
    return self.numel()


def _arange(*, end: Any, start: Any = 0, step: Any = 1, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    """torch's own function asks for the sign of a step that is a symbolic float."""
    if not any(isinstance(item, torch.SymFloat) for item in (start, end, step)):
        return torch.arange(start, end, step, dtype=dtype)
    return torch.empty(unknown_size(), dtype=dtype)


def _range(*, start: Any, end: Any, step: Any = 1, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    """torch's own function fixes the bounds.  `end` is included where a step meets it."""
    if dtype is not None and not dtype.is_floating_point:  # torch truncates all three first
        start, end, step = (math.trunc(item) if isinstance(item, float) else item for item in (start, end, step))
    bounds = (start, end, step)
    if not any(isinstance(item, (torch.SymInt, torch.SymFloat)) for item in bounds):
        return torch.empty(math.floor((end - start) / step) + 1, dtype=dtype)
    whole = all(isinstance(item, (int, torch.SymInt)) for item in bounds)
    return torch.empty((end - start) // step + 1 if whole else unknown_size(), dtype=dtype)


def _spaced(*, start: Any, end: Any, steps: Any, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    """torch's own function fixes the number of steps."""
    is_complex = any(
        torch.is_complex(item) if isinstance(item, torch.Tensor) else isinstance(item, complex) for item in (start, end)
    )
    return torch.linspace(0, 1j if is_complex else 1, 1, dtype=dtype).new_empty(steps)


def _window(*, window_length: Any, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    """torch's own function fixes the length."""
    return torch.empty(window_length, dtype=dtype)


def _triangle(row: Any, col: Any, offset: int, dtype: torch.dtype | None, *, upper: bool) -> torch.Tensor:
    """torch's own function fixes both sizes.  The closed form is that of a square that the offset does not leave."""
    function = torch.triu_indices if upper else torch.tril_indices
    if isinstance(row, int) and isinstance(col, int):
        return function(row, col, offset, dtype=dtype or torch.int64)
    if str(row) == str(col):
        above = offset if upper else -offset
        side = row - above if above >= 0 else row + above - 1
        count = side * (side + 1) // 2 if above >= 0 else row * row - side * (side + 1) // 2
    else:
        count = unknown_size()
    return torch.empty((2, count), dtype=dtype or torch.int64)


def _tril(*, row: Any, col: Any, offset: int = 0, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    return _triangle(row, col, offset, dtype, upper=False)


def _triu(*, row: Any, col: Any, offset: int = 0, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    return _triangle(row, col, offset, dtype, upper=True)


FACTS = (
    Fact("aten::size", shapes={"int": _size}),
    Fact("aten::numel", shapes=_count),
    *alike("Int IntImplicit Float Bool", Fact("aten::", reads_number=True)),
    *alike("scalar_tensor zeros ones full", Fact("aten::", makes_constant=True)),
    Fact("aten::arange", makes_constant=True, shapes=_arange),
    Fact("aten::range", shapes=_range),
    *alike("linspace logspace", Fact("aten::", shapes=_spaced)),
    *alike("hann_window hamming_window blackman_window bartlett_window kaiser_window", Fact("aten::", shapes=_window)),
    Fact("aten::tril_indices", shapes=_tril),
    Fact("aten::triu_indices", shapes=_triu),
)
