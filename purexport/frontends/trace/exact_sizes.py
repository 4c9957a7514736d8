"""Numbers that follow from sizes, in float64 as Python computes them.

Under the tracer a size is a tensor of integers, and `h * 0.29` is one of float32: for 100 it is 29, where Python has
28.999999999999996, which `math.floor` and `int` make 28.  So beside such a tensor the same is computed in float64.
Whatever rounds, compares or reads the number takes that one.  In all else a number next to tensors is float32 anyway.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.frontends.trace.nodes import is_size

_SMOOTH = frozenset(
    ["mul", "div", "true_divide", "__rdiv__", "add", "sub", "__rsub__", "pow", "__rpow__", "neg", "abs", "sqrt"]
)
# a small error of an operand may be a large one of the result
_COMPARING = frozenset(["gt", "lt", "ge", "le", "eq", "ne"])
_ROUNDING = frozenset(["floor", "ceil", "trunc", "round", "floor_divide", "remainder", "fmod"])
_STEEP = _COMPARING | _ROUNDING | {"__floordiv__", "__rfloordiv__", "__rmod__"}
NAMES = _SMOOTH | _STEEP
"""The functions whose results may be numbers that follow from sizes."""


class ExactSizes:
    """The numbers of one trace."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # both stay, so that no other has the key

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The number in float64; the tensor itself where it is not one of these numbers."""
        return self.found.get(id(tensor), (tensor, tensor))[1]

    def result(self, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """What `function` gives, `result`, or the same of numbers in float64."""
        if not isinstance(result, torch.Tensor) or result.dim() or result.dtype not in (torch.float32, torch.bool):
            return result
        tensors = [item for item in args if isinstance(item, torch.Tensor)]
        if not all(id(item) in self.found or _is_whole(item) for item in tensors):
            return result
        if result.dtype == torch.bool and not any(id(item) in self.found for item in tensors):
            return result
        exact = function(*map(self._double, args), **kwargs)
        if name in _STEEP:
            result = exact.to(result.dtype)
        self.found[id(result)] = result, exact
        return result

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """`int` of a number."""
        exact = self.of(tensor)
        return torch.trunc(exact).to(torch.int64) if exact.is_floating_point() else tensor

    def fraction(self, tensor: torch.Tensor) -> torch.Tensor:
        """`float` of a number."""
        if tensor.is_floating_point():
            return tensor
        result = tensor.to(torch.get_default_dtype())
        self.found[id(result)] = result, tensor.to(torch.float64)
        return result

    def _double(self, item: Any) -> Any:
        return self.of(item).to(torch.float64) if isinstance(item, torch.Tensor) else item


def _is_whole(tensor: torch.Tensor) -> bool:
    return not tensor.dim() and tensor.dtype == torch.int64 and is_size(tensor)
