"""Functions whose numbers torch.export fixes, because their schemas say `int` and not `SymInt`.

Where such a number follows from a size, the call becomes an operator of our own with the same schema but for that
(`single_calls`).  Our shape functions keep the size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

from purexport.aten.names import schema_of

_POOLS: Mapping[str, tuple[str, ...]] = {
    "avg": ("self", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    "max": ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
}
_LISTS = ("kernel_size", "stride", "padding", "dilation")
_NAMES: Mapping[str, tuple[str, ...]] = {
    "linspace": ("start", "end", "steps"),
    "logspace": ("start", "end", "steps", "base"),
    "hann_window": ("window_length", "periodic"),
    "blackman_window": ("window_length", "periodic"),
    "bartlett_window": ("window_length", "periodic"),
    "hamming_window": ("window_length", "periodic", "alpha", "beta"),
    "kaiser_window": ("window_length", "periodic", "beta"),
    "tril_indices": ("row", "col", "offset"),
    "triu_indices": ("row", "col", "offset"),
    "istft": (
        "self",
        "n_fft",
        "hop_length",
        "win_length",
        "window",
        "center",
        "normalized",
        "onesided",
        "length",
        "return_complex",
    ),
    "unfold": ("self", "dimension", "size", "step"),
    **{f"{kind}_pool{axes}d": names for kind, names in _POOLS.items() for axes in (1, 2, 3)},
}
# how torch names the overload that takes so many of the names of a window
_OVERLOADS: Mapping[str, tuple[str, ...]] = {
    "hamming_window": ("", "", ".periodic", ".periodic_alpha", ".periodic_alpha_beta"),
    "kaiser_window": ("", "", ".periodic", ".beta"),
    **dict.fromkeys(("hann_window", "blackman_window", "bartlett_window"), ("", "", ".periodic")),
}
OPERATORS = tuple(name + overload for name in _NAMES for overload in dict.fromkeys(_OVERLOADS.get(name, ("",))))


def _functions() -> Mapping[Any, str]:
    found: dict[Any, str] = {torch.Tensor.unfold: "unfold", torch.Tensor.istft: "istft"}
    for name in _NAMES:
        if name != "unfold":
            places = (torch, functional, torch._C._nn)
            found.update({getattr(place, name): name for place in places if hasattr(place, name)})
    return found


FUNCTIONS = _functions()


def schema(target: str) -> str:
    """The schema of an operator, without its namespace and its aliases, with `SymInt` in the place of `int`."""
    text = str(schema_of(target)).removeprefix("aten::").replace("(a)", "")
    return re.sub(r"\bint\b(?=[\[ ?])", "SymInt", text)


def call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The operator and its arguments by name; None for a call of which torch fixes nothing that may change."""
    name = FUNCTIONS[function]
    names = _NAMES[name]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    numbers = [item for key, item in given.items() if key not in ("self", "input")]
    if not any(isinstance(item, torch.SymInt) for item in pytree.tree_leaves(numbers)):
        return None
    if "input" in given:
        given["self"] = given.pop("input")
    if "_pool" in name:
        if given.pop("return_indices", False) or given.get("ceil_mode"):
            return None
        axes = int(name[-2])
        for key in _LISTS:
            item = given.get(key)
            if item is None:
                given.pop(key, None)
            elif not isinstance(item, (list, tuple)):
                given[key] = [item] * axes
        if given.get("divisor_override", ()) is None:
            given.pop("divisor_override")
    several = _OVERLOADS.get(name)
    overload = several[sum(key in given for key in names)] if several is not None else ""
    given = {key: item for key, item in given.items() if key not in ("out", "requires_grad")}
    return name + overload, given
