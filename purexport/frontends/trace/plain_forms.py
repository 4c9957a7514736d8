"""Calls that torch's tracer records wrongly, in a form that it records as they are.

It records no bool as a number, `fill` as a call that has no schema, and dropout in eval mode and `atleast_1d` without a
sign that they alias.
"""

from __future__ import annotations

from typing import Any

import torch

# functions of a number that has the dtype of a tensor: the tracer records no bool as a number
FILLING = frozenset(
    [
        "full",
        "full_like",
        "new_full",
        "fill",
        "fill_",
        "masked_fill",
        "masked_fill_",
        "index_fill",
        "index_fill_",
        "index_add",
        "index_add_",
        "pad",
        "constant_pad_nd",
        "_unsafe_masked_index",
    ]
)
DROPOUTS = frozenset(["dropout", "feature_dropout", "dropout1d", "dropout2d", "dropout3d"])
AT_LEAST = {"atleast_1d": 1, "atleast_2d": 2, "atleast_3d": 3}


def bools_as_numbers(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with 0 and 1 for bools that are numbers; `full` of a bool stays one of bools."""
    filler = args[1] if len(args) > 1 else kwargs.get("fill_value")
    if name == "full" and isinstance(filler, bool) and kwargs.get("dtype") is None:
        kwargs = {**kwargs, "dtype": torch.bool}
    numbers = [key for key in ("fill_value", "value", "alpha") if isinstance(kwargs.get(key), bool)]
    plain = {key: int(kwargs[key]) for key in numbers}
    return tuple(int(item) if isinstance(item, bool) else item for item in args), {**kwargs, **plain}


def filled(input: torch.Tensor, value: Any) -> torch.Tensor:
    """`torch.fill`, which the tracer records as a `full_like` that lacks arguments."""
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(input).fill_(value)
    return torch.full_like(input, value)


def with_axes(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """`atleast_1d`, `atleast_2d` or `atleast_3d`, recorded as a view."""
    if tensor.dim() == 0:
        return tensor.view([1] * count)
    if tensor.dim() == 1 and count > 1:
        tensor = tensor.unsqueeze(0)
    return tensor.unsqueeze(2) if tensor.dim() == 2 and count > 2 else tensor


def drops(args: Any, kwargs: Any) -> bool:
    """Whether a dropout is in training mode: by keyword (of torch.nn.functional or of torch), else the third place."""
    given = kwargs.get("training", kwargs.get("train"))
    return bool(given if given is not None else args[2] if len(args) > 2 else True)
