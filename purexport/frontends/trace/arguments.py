"""Walks over the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from purexport.frontends.trace.numbers import SYMBOLIC


def mapped(function: Callable[[Any], Any], items: Any) -> Any:
    """The items with the function applied to each that is no list."""
    if type(items) in (list, tuple):
        return [mapped(function, item) for item in items]
    return function(items)


def leaves(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """All arguments, those in lists one by one."""
    for item in (*args, *kwargs.values()):
        if type(item) in (list, tuple):
            yield from leaves(item, {})
        else:
            yield item


def tensors_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors among the arguments."""
    return [item for item in leaves(args, kwargs) if isinstance(item, torch.Tensor)]


def numbers_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The symbolic numbers among the arguments."""
    return [item for item in leaves(args, kwargs) if isinstance(item, SYMBOLIC)]
