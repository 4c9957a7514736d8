"""Results of operators on torch's fake tensors, without asking torch the same question for every layer.

A model of many layers calls the same operators on the same shapes over and over, and what torch does for one call of a
fake tensor takes as long as the call of a kernel many times over.  The result of an operator that gives one new tensor
is a matter of its arguments' shapes, strides and types, so torch is asked once for each.  An operator that gives a view
goes to torch's kernel for tensors without data (device `meta`) at once.  All else is torch's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

_CPU = torch.device("cpu")
_ATEN = torch.ops.aten
_VIEWS = frozenset(
    [
        _ATEN._unsafe_view.default,
        _ATEN.expand.default,
        _ATEN.permute.default,
        _ATEN.select.int,
        _ATEN.slice.Tensor,
        _ATEN.squeeze.dim,
        _ATEN.t.default,
        _ATEN.transpose.int,
        _ATEN.unsqueeze.default,
        _ATEN.view.default,
    ]
)
_VALUES = (bool, int, float, complex, str, torch.dtype, torch.memory_format, torch.layout)
_OF_DATA = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class _Layout(NamedTuple):
    """A tensor without its elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    fake: bool = True


class Shaped:
    """Called with an operator and its arguments, of which some are fake, it gives the result."""

    def __init__(self) -> None:
        self._known: dict[Any, _Layout] = {}
        self._plain: dict[Any, bool] = {}

    def __call__(self, overload: Any, args: Any, kwargs: Any) -> Any:
        if overload is torch.ops.prim.device.default and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        if overload in _VIEWS and isinstance(args[0], FakeTensor) and args[0].fake_device == _CPU:
            mode = args[0].fake_mode
            with in_kernel_invocation_manager(mode):
                result = overload(*args, **kwargs)
            return FakeTensor(mode, result, _CPU)
        if overload is torch.ops.aten._grouped_mm.default and (args[0].dim(), args[1].dim()) == (2, 3):
            # torch, asked for shapes only, refuses all types but bfloat16
            return args[0].new_empty(args[0].shape[0], args[1].shape[2])
        if not self._is_plain(overload):
            return overload(*args, **kwargs)
        fakes: list[FakeTensor] = []
        key = _key((args, tuple(kwargs.items())), fakes)
        if key is None or not fakes or any(item.fake_device != _CPU for item in fakes):
            return overload(*args, **kwargs)
        known = self._known.get((overload, key))
        if known is not None:
            return _made(fakes[0].fake_mode, known)
        result = overload(*args, **kwargs)
        if type(result) is FakeTensor and result.fake_device == _CPU and result.layout is torch.strided:
            self._known[overload, key] = _Layout(tuple(result.shape), result.stride(), result.dtype)
        return result

    def _is_plain(self, overload: Any) -> bool:
        """Whether an operator gives one new tensor, of a shape that does not depend on elements."""
        if overload not in self._plain:
            schema = overload._schema
            everything = (*schema.arguments, *schema.returns)
            self._plain[overload] = (
                (overload.namespace == "aten" or overload.namespace.startswith("purexport"))
                and len(schema.returns) == 1
                and isinstance(schema.returns[0].type, torch.TensorType)
                and all(item.alias_info is None for item in everything)
                and not _OF_DATA.intersection(overload.tags)
            )
        return self._plain[overload]


def _key(item: Any, fakes: list[FakeTensor]) -> Any:
    """What a result's shape may depend on, or None where that is not known; fills `fakes`."""
    if isinstance(item, torch.Tensor):
        if fake := isinstance(item, FakeTensor):
            fakes.append(item)
        elif item.device != _CPU or type(item) not in (torch.Tensor, torch.nn.Parameter):
            return None
        return None if item.layout is not torch.strided else _Layout(tuple(item.shape), item.stride(), item.dtype, fake)
    if isinstance(item, (list, tuple)):
        parts = [_key(part, fakes) for part in item]
        return None if None in parts else tuple(parts)
    if item is None or isinstance(
        item, (bool, int, float, complex, str, torch.dtype, torch.memory_format, torch.layout)
    ):
        return type(item), item
    return None


def _made(mode: FakeTensorMode, layout: _Layout) -> FakeTensor:
    with in_kernel_invocation_manager(mode):
        plain = torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device="meta")
    return FakeTensor(mode, plain, _CPU)
