"""Lets a function of ours see the index in `x[index]` and `x[index] = value` before torch reads it.

For a tensor of one whole number in an index, torch takes the number itself in C++, where no symbolic one is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_NAMES = ("__getitem__", "__setitem__")


def indexing_of_tensors() -> tuple[Any, ...]:
    """What Python finds on `torch.Tensor` itself for an index."""
    return tuple(vars(torch.Tensor).get(name) for name in _NAMES)


@contextmanager
def indices_replaced(
    replaced: Callable[[torch.Tensor, Any], tuple[torch.Tensor, Any]], part_of: Callable[[torch.Tensor, Any], Any]
) -> Iterator[None]:
    """Inside, `x[index]` is `y[other]` with `y, other = replaced(x, index)`, in the whole process.

    What `y[other]` gives says `part_of`, and torch itself where that is NotImplemented.
    """
    before = dict(zip(_NAMES, indexing_of_tensors(), strict=True))
    get: Any = torch.Tensor.__getitem__
    put: Any = torch.Tensor.__setitem__
    tensor: Any = torch.Tensor

    def part(self: torch.Tensor, index: Any) -> Any:
        given = replaced(self, index)
        found = part_of(*given)
        return get(*given) if found is NotImplemented else found

    tensor.__getitem__ = part
    tensor.__setitem__ = lambda self, index, value: put(*replaced(self, index), value)
    try:
        yield
    finally:
        for name, method in before.items():
            if method is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, method)
