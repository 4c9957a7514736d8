"""Pooling and windows: torch's own shape functions take known numbers, and a symbol among them would be fixed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from purexport.aten.names import operator_of
from purexport.facts.fact import Aliases, Fact


def _numbers(argument: Any, axes: int) -> list[Any]:
    items = list(argument) if isinstance(argument, (list, tuple)) else [argument]
    return items * axes if len(items) == 1 else items


def _pooled(
    target: str,
    axes: int,
    *,
    self: torch.Tensor,
    kernel_size: Sequence[Any],
    stride: Sequence[Any] = (),
    padding: Sequence[Any] = (0,),
    dilation: Sequence[Any] = (1,),
    **others: Any,
) -> Any:
    """What torch's own function says, or the sizes where a number is computed.

    With `ceil_mode` torch asks whether the last window begins beyond the end.  None does where windows are wide enough,
    whatever the size, so torch is not asked there for sizes that are open.
    """
    kernel, pads, gaps = (_numbers(item, axes) for item in (kernel_size, padding, dilation))
    steps = _numbers(stride, axes) if stride else kernel
    sizes = self.shape[self.dim() - axes :]
    rows = list(zip(sizes, kernel, steps, pads, gaps, strict=True))
    computed = any(isinstance(item, torch.SymInt) for item in [*kernel, *steps, *pads, *gaps])
    ceil = bool(others.get("ceil_mode"))
    if ceil:
        are_open = any(isinstance(size, torch.SymInt) for size in sizes) and not computed
        computed = are_open and all(pad + step - 1 <= gap * (wide - 1) for _, wide, step, pad, gap in rows)
    if not computed:
        named = {"self": self, "kernel_size": kernel_size, "stride": stride, "padding": padding, **others}
        if "avg" not in target:
            named["dilation"] = dilation
        if target == "aten::max_pool1d":  # of which torch's function fixes symbolic sizes, too
            return torch.ops.aten.max_pool1d_with_indices(**named)[0]
        operator: Any = operator_of(target)
        return operator(**named)
    found = [
        (size + 2 * pad - gap * (wide - 1) - 1 + (step - 1 if ceil else 0)) // step + 1
        for size, wide, step, pad, gap in rows
    ]
    result = self.new_empty((*self.shape[: self.dim() - axes], *found))
    return (result, torch.empty_like(result, dtype=torch.int64)) if "indices" in target else result


def _unfold(*, self: torch.Tensor, dimension: int, size: Any, step: Any) -> torch.Tensor:
    if not any(isinstance(item, torch.SymInt) for item in (size, step)):
        return self.unfold(dimension, size, step)
    shape = list(self.shape)
    shape[dimension] = (shape[dimension] - size) // step + 1
    return self.new_empty((*shape, size))


_COMPOSITES = frozenset(["avg_pool1d", "max_pool1d", "max_pool2d", "max_pool3d"])


def _row(name: str, axes: int) -> Fact:
    aliases = Aliases.NEVER if name in _COMPOSITES else None
    return Fact(f"aten::{name}", aliases=aliases, shapes=functools.partial(_pooled, f"aten::{name}", axes))


FACTS = (
    *(
        _row(name, axes)
        for axes in (1, 2, 3)
        for name in (f"avg_pool{axes}d", f"max_pool{axes}d", f"max_pool{axes}d_with_indices")
    ),
    Fact("aten::unfold", shapes=_unfold),
)
