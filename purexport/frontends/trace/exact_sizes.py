"""Numbers that follow from sizes, in float64 as Python computes them.

Under the tracer a size is a tensor of integers, and `h * 0.29` is one of float32: for 100 it is 29, where Python has
28.999999999999996, which `math.floor` and `int` make 28.  So beside such a tensor the same is computed in float64.
Whatever rounds, compares or reads the number takes that one, and so does what makes it an integer (`x.fill_(h * 0.29)`)
or a double.  In all else a number next to tensors is float32 anyway.
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
# the functions that take a number as it is, and whose result has the dtype of something else
_TAKING = frozenset(
    [
        *("full", "full_like", "new_full", "fill", "fill_", "fill_diagonal_", "scalar_tensor", "__setitem__"),
        *("arange", "linspace", "logspace"),
        *("masked_fill", "masked_fill_", "index_fill", "index_fill_", "constant_pad_nd"),
        *("threshold", "_threshold", "threshold_", "hardtanh", "hardtanh_", "pad", "scatter", "scatter_"),
    ]
)

# the functions that take numbers so where they are given a dtype, and otherwise have the numbers' own
_LITERALS = frozenset(["tensor", "as_tensor", "asarray", "new_tensor"])


class ExactSizes:
    """The numbers of one trace."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # both stay, so that no other has the key

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The number in float64; the tensor itself where it is not one of these numbers."""
        return self.found.get(id(tensor), (tensor, tensor))[1]

    def given(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a function, numbers in float64 where it would convert that of float32, which is rounded.

        Beside a double, or in a function whose result does not take its dtype from the number.
        """
        if not self.found:
            return args, kwargs
        taking = name in _TAKING or (name in _LITERALS and kwargs.get("dtype") is not None)
        if not taking and not any(map(_is_double, (*args, *kwargs.values()))):
            return args, kwargs
        return tuple(map(self._exact, args)), {key: self._exact(item) for key, item in kwargs.items()}

    def _exact(self, item: Any) -> Any:
        if _is_list(item):
            return type(item)(map(self._exact, item))
        return self.of(item) if isinstance(item, torch.Tensor) else item

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


def _is_list(item: Any) -> bool:
    return type(item) in (list, tuple)


def _is_double(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dtype == torch.float64


def _is_whole(tensor: torch.Tensor) -> bool:
    return not tensor.dim() and tensor.dtype == torch.int64 and is_size(tensor)
