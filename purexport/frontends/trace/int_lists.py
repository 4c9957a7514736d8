"""Functions that take a list of numbers, or one number for all axes, under the tracer.

Under the tracer a size is a tensor.  In a list it stays what it is, but a single one becomes the example's number, and
torch's tracer does not warn.  So it is handed over as a list here.  Convolutions lose the numbers of a list, too: their
padding becomes a `pad` before them, and the other numbers are asked for as Python does, so that the tracer warns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

_POOLS = ("avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool", "lp_pool")
# the number of axes of the functions, by name
_AXES: Mapping[str, int] = {
    **{f"{name}{axes}d": axes for name in _POOLS for axes in (1, 2, 3)},
    **{f"{name}{axes}d_with_indices": axes for name in _POOLS for axes in (1, 2, 3)},
    "unfold": 2,
    "fold": 2,
    "roll": 1,
}
_CONVOLUTIONS = {
    **{f"conv{axes}d": (axes, ("stride", "padding", "dilation", "groups")) for axes in (1, 2, 3)},
    **{
        f"conv_transpose{axes}d": (axes, ("stride", "padding", "output_padding", "groups", "dilation"))
        for axes in (1, 2, 3)
    },
}

NAMES = frozenset([*_AXES, *_CONVOLUTIONS])
"""The functions of which `listed` may change the arguments."""


def listed(
    function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call of `function`, with computed numbers in a form that the tracer keeps."""
    if name in _CONVOLUTIONS:
        return _of_convolution(name, args, kwargs)
    axes = _AXES.get(name)
    # Tensor.unfold takes one axis, a size and a step, and these are kept
    if axes is None or function is torch.Tensor.unfold:
        return args, kwargs
    return (
        tuple([item] * axes if position and _is_computed(item) else item for position, item in enumerate(args)),
        {key: [item] * axes if _is_computed(item) else item for key, item in kwargs.items()},
    )


def _of_convolution(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    axes, numbers = _CONVOLUTIONS[name]
    given = dict(zip(("input", "weight", "bias", *numbers), args, strict=False)) | kwargs
    if not any(_is_computed(item) for key in numbers for item in _items(given.get(key))):
        return args, kwargs
    padding = _items(given.get("padding", 0))
    if "transpose" not in name and any(map(_is_computed, padding)):
        widths = padding * axes if len(padding) == 1 else padding
        both_ends = [width for width in reversed(widths) for _ in range(2)]
        given["input"] = functional.pad(given["input"], both_ends)
        given["padding"] = 0
    for key in numbers:
        if any(map(_is_computed, _items(given.get(key)))):
            given[key] = [int(item) for item in _items(given[key])] if key != "groups" else int(given[key])
    return (), given


def _items(argument: Any) -> list[Any]:
    return list(argument) if isinstance(argument, (list, tuple)) else [argument]


def _is_computed(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dim() == 0 and not item.is_floating_point()
