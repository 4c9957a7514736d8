"""Operators whose sizes follow from content, and those whose sizes torch's own shape functions do not tell rightly.

A shape function runs on fakes: what it returns has sizes, a dtype, and the memory that it shares.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from purexport.aten.graph import Call, TensorType, values_in
from purexport.facts.fact import Aliases, Fact, alike

_MASKS = (torch.bool, torch.uint8)


def _has_mask(call: Call) -> bool:
    if call.target != "aten::index.Tensor":
        return False
    types = [value.type for value in values_in(call.args["indices"])]
    return any(isinstance(type_, TensorType) and type_.dtype in _MASKS for type_ in types)


def holds_for_all_sizes(condition: Any) -> bool:
    """Whether a condition on symbolic sizes holds, whatever they are.

    The import stands here because it loads sympy, which a trace without dynamic axes does not need.
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(condition))


def _one_hot(self: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    """torch's own wants to know the largest class; here the number of classes is one that only the run knows.

    So it is where the number is computed and may be negative, which asks for the largest class, too.
    """
    known = holds_for_all_sizes(num_classes >= 0)
    classes = num_classes if known else _unknown_size(self, least=0 if isinstance(num_classes, torch.SymInt) else 1)
    return self.new_empty((*self.shape, classes), dtype=torch.int64)


def _unknown_size(beside: Any, least: int) -> Any:
    """A size that only the run knows, of the machine that the fake `beside` belongs to."""
    from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size

    size = beside.fake_mode.shape_env.create_unbacked_symint()
    _constrain_range_for_size(size, min=least)
    return size


def _index(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    """torch's own does not broadcast zero-dim positions with the others, and knows no masks of uint8."""
    indices = [item != 0 if item is not None and item.dtype is torch.uint8 else item for item in indices]
    if any(item is not None and item.dim() for item in indices):
        indices = [
            item.reshape(1) if item is not None and not item.dim() and item.dtype is not torch.bool else item
            for item in indices
        ]
    return torch.ops.aten.index.Tensor(self, indices)


def along_axis(function: Any, self: torch.Tensor, *args: Any, dim: int | None = None, **others: Any) -> Any:
    """`unique` and its like, of which torch's own takes a negative axis for another one."""
    return function(self, *args, dim=dim + self.dim() if dim is not None and dim < 0 else dim, **others)


def _combinations(self: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    """torch's own chooses rows by a mask, so that their number would be one that only the run knows."""
    count = self.shape[0]
    if not isinstance(count, int):
        return torch.combinations(self, r, with_replacement)
    rows = math.comb(count + r - 1, r) if with_replacement else math.comb(count, r)
    return self.new_empty((rows, r) if r else (0,))


FACTS = (
    *alike(
        "_unique _unique2 argwhere bincount masked_select nonzero nonzero_numpy repeat_interleave "
        "unique_dim_consecutive",
        Fact("aten::", data_dependent=True),
    ),
    Fact("aten::_reshape_from_tensor", aliases=Aliases.MAYBE, data_dependent=True),
    Fact("torchvision::nms", data_dependent=True),
    Fact(
        "aten::unique_consecutive",
        data_dependent=True,
        shapes=functools.partial(along_axis, torch.ops.aten.unique_consecutive.default),
    ),
    Fact(
        "aten::unique_dim",
        data_dependent=True,
        shapes=functools.partial(along_axis, torch.ops.aten.unique_dim.default),
    ),
    Fact("aten::one_hot", data_dependent=True, shapes=_one_hot),
    Fact("aten::index", data_dependent=_has_mask, shapes={"Tensor": _index}),
    Fact("aten::_unsafe_index", shapes={"Tensor": _index}),
    Fact("aten::combinations", shapes=_combinations),
)
