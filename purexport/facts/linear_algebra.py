"""Linear algebra and CTC loss: torch's own shape functions do not run on fake tensors, or fix the example's sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from purexport.facts.fact import Fact, alike

Tensor = torch.Tensor


def _condition(*, self: Tensor, **_: Any) -> Tensor:
    return self.new_empty(self.shape[:-2], dtype=self.dtype.to_real())


def _norm(*, self: Tensor, dim: Any, keepdim: bool, dtype: torch.dtype | None, **_: Any) -> Tensor:
    axes = range(self.dim()) if dim is None else [axis % max(self.dim(), 1) for axis in dim]
    kept = [1 if axis in axes else size for axis, size in enumerate(self.shape)]
    shape = kept if keepdim else [size for axis, size in enumerate(self.shape) if axis not in axes]
    return self.new_empty(shape, dtype=(dtype or self.dtype).to_real())


def _kron(*, self: Tensor, other: Tensor) -> Tensor:
    rank = max(self.dim(), other.dim())
    one, two = ((*(1,) * (rank - item.dim()), *item.shape) for item in (self, other))
    shape = [first * second for first, second in zip(one, two, strict=True)]
    return self.new_empty(shape, dtype=torch.result_type(self, other))


def _multi_dot(*, tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0].new_empty((*tensors[0].shape[:-1], *tensors[-1].shape[1:]))


def _grouped_mm(
    *, self: Tensor, mat2: Tensor, offs: Tensor | None = None, out_dtype: torch.dtype | None = None, **_: Any
) -> Tensor:
    """torch's own function takes bfloat16 only, which is what its kernels for GPUs take."""
    groups: Sequence[Any] = ()
    if self.dim() == mat2.dim():
        groups = self.shape[:1] if offs is None else offs.shape
    return self.new_empty((*groups, self.shape[-2], mat2.shape[-1]), dtype=out_dtype)


def _covariance(*, self: Tensor, fweights: Tensor | None = None, aweights: Tensor | None = None, **_: Any) -> Tensor:
    dtype = self.dtype if self.is_floating_point() or self.is_complex() else torch.get_default_dtype()
    for item in (fweights, aweights):
        dtype = dtype if item is None else torch.promote_types(dtype, item.dtype)
    rows = self.shape[0] if self.dim() == 2 else 1
    return self.new_empty(() if isinstance(rows, int) and rows == 1 else (rows, rows), dtype=dtype)


def _least_squares(*, self: Tensor, b: Tensor, driver: str | None, **_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, columns = self.shape[-2:]
    vector = b.dim() == 1 or (b.dim() == self.dim() - 1 and b.shape == self.shape[:-1])
    right = b.unsqueeze(-1) if vector else b
    batch = torch.broadcast_shapes(self.shape[:-2], right.shape[:-2])  # type: ignore[no-untyped-call]
    solution = self.new_empty((*batch, columns, right.shape[-1]))
    told = driver not in (None, "gelsy") and rows > columns
    real = self.dtype.to_real()
    residuals = self.new_empty((*batch, right.shape[-1]) if told else (0,), dtype=real)
    rank = self.new_empty((0,) if driver == "gels" else self.shape[:-2], dtype=torch.int64)
    told = driver in ("gelsd", "gelss")
    values = self.new_empty((*self.shape[:-2], min(rows, columns)) if told else (0,), dtype=real)
    return solution.squeeze(-1) if vector else solution, residuals, rank, values


def _ctc_loss(*, log_probs: Tensor, reduction: int, **_: Any) -> Tensor:
    return log_probs.new_empty(log_probs.shape[1:2] if log_probs.dim() == 3 and not reduction else ())


FACTS = (
    Fact("aten::linalg_cond", shapes=_condition),
    *alike("linalg_matrix_norm linalg_norm", Fact("aten::", shapes=_norm)),
    Fact("aten::kron", shapes=_kron),
    Fact("aten::linalg_multi_dot", shapes=_multi_dot),
    Fact("aten::_grouped_mm", shapes=_grouped_mm),
    *alike("cov corrcoef", Fact("aten::", shapes=_covariance)),
    Fact("aten::linalg_lstsq", shapes=_least_squares),
    Fact("aten::ctc_loss", shapes=_ctc_loss),
)
