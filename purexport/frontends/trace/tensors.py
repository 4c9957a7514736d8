"""Tensors without data: what the model computes with while it is captured.

A `Recorded` tensor stands for a value of the graph.  Its `Layout` is what torch would say of the example's tensor, and
the sizes as expressions; equal layouts are one object, so that they are keys of what operators give.  Python that asks
for a size gets a number, or a symbolic one where the size can change.  C++ code that asks gets the same through
`__torch_dispatch__`, because the class states that it answers for its sizes itself.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from proto_schema.sizes import Dim
from purexport.aten.graph import AtenValue as Value
from purexport.aten.graph import TensorType
from purexport.frontends.trace.arguments import leaves
from purexport.frontends.trace.numbers import Number, plain, wrapped
from purexport.torch_patches.before_composites import below

_aten = torch.ops.aten


class Layout:
    """A tensor without its elements: sizes, and an example on the device `meta`, which nothing may change.

    torch has no quantized tensors on that device, so one of float32 stands for each, and `dtype` is that of the tensor.
    """

    __slots__ = ("dtype", "example", "meta", "sizes", "static", "type")

    def __init__(self, sizes: tuple[Dim, ...], meta: torch.Tensor, dtype: torch.dtype) -> None:
        self.sizes = sizes
        self.meta = meta
        self.dtype = dtype
        self.example = meta.shape
        self.static = all(isinstance(size, int) for size in sizes)
        strides = tuple(meta.stride()) if meta.layout is torch.strided else None
        self.type = TensorType(dtype, tuple(meta.shape), strides)

    def copied(self) -> torch.Tensor:
        """An example of its own, which may be changed."""
        return torch.empty_strided(self.example, self.meta.stride(), dtype=self.meta.dtype, device="meta")


class Recorded(torch.Tensor):
    """A tensor of the model that is captured.

    `layout_` is its layout, `value` its value in the graph, `owner` the recorder, `place` the call that makes it, among
    the calls of the log.  `memory` are the storages that it may share, `free` is False where constants of the model
    alone decide its elements.  `elements` are those of the example, once somebody has asked.
    """

    layout_: Layout
    value: Value
    owner: Any
    place: int
    memory: frozenset[int]
    free: bool
    elements: torch.Tensor | None
    numbers: tuple[Any, ...] | None

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def of(owner: Any, layout: Layout, value: Value, place: int, memory: frozenset[int], free: bool) -> Recorded:
        """A new tensor."""
        meta = layout.meta
        made = torch.Tensor._make_wrapper_subclass(
            Recorded, meta.shape, meta.stride(), None, None, layout.dtype, meta.layout, _CPU, False, False, "sizes"
        )
        made.layout_ = layout
        made.value = value
        made.owner = owner
        made.place = place
        made.memory = memory
        made.free = free
        made.elements = None
        made.numbers = None
        return made

    # -- sizes

    @property
    def shape(self) -> Any:  # type: ignore[override]
        layout = self.layout_
        if layout.static:
            return layout.example
        if self.numbers is None:
            self.numbers = tuple(
                size if isinstance(size, int) else wrapped(Number(self.owner, int, number, size, (self, axis)))
                for axis, (size, number) in enumerate(zip(layout.sizes, layout.example, strict=True))
            )
        return torch.Size(self.numbers)

    def size(self, dim: Any = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return len(self.layout_.sizes)

    ndimension = dim

    @property
    def ndim(self) -> int:  # type: ignore[override]
        return len(self.layout_.sizes)

    def numel(self) -> Any:
        return math.prod(self.shape)

    nelement = numel

    def __getitem__(self, index: Any) -> Any:
        return self.owner.part(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.owner.put(self, index, value)

    def __len__(self) -> int:
        if not self.layout_.sizes:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0])

    def __iter__(self) -> Any:
        if not self.layout_.sizes:
            raise TypeError("iteration over a 0-d tensor")
        steps = self.owner.rows.steps_over(self)
        return iter(self.unbind(0)) if steps is None else steps

    def stride(self, dim: Any = None) -> Any:
        found = self._strides()
        return found if dim is None else found[dim]

    def _strides(self) -> tuple[Any, ...]:
        layout = self.layout_
        if layout.static:
            return tuple(layout.meta.stride())
        given, shape = layout.meta.stride(), self.shape
        found: list[Any] = [0] * len(given)
        step: Any = 1
        for axis in sorted(range(len(given)), key=lambda axis: (given[axis], layout.example[axis])):
            if given[axis] or layout.example[axis] == 1:  # an expanded axis has no stride
                found[axis] = step
                step = step * shape[axis]
        if tuple(map(plain, found)) != given:  # a part of a tensor
            return tuple(map(self.owner.unknown, given))
        return tuple(found)

    def is_contiguous(self, memory_format: Any = torch.contiguous_format) -> bool:
        return self.layout_.meta.is_contiguous(memory_format=memory_format)

    def contiguous(self, memory_format: Any = torch.contiguous_format) -> torch.Tensor:
        """Also where the example is contiguous, because tensors of other sizes may not be: then it is a copy."""
        if self.layout_.static and self.is_contiguous(memory_format):
            return self
        found: torch.Tensor = _aten.contiguous.default(self, memory_format=memory_format)
        return found

    def storage_offset(self) -> Any:
        return self.layout_.meta.storage_offset()

    # -- elements

    def tolist(self) -> Any:
        layout = self.layout_
        if not layout.sizes:
            return self.item()
        if self.free and 0 < math.prod(layout.example) <= _NUMBERS:
            rows = self.unbind() if isinstance(layout.sizes[0], int) else self.owner.elements_as_in_example(self)
            return [row.tolist() for row in rows]
        with below():
            return self.owner.elements_of(self).tolist()

    def numpy(self, *, force: bool = False) -> Any:
        with below():
            return self.owner.elements_of(self).numpy(force=force)

    def __array__(self, dtype: Any = None) -> Any:
        with below():
            return self.owner.elements_of(self).__array__(dtype)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"tensor(..., size=({', '.join(map(str, self.layout_.sizes))}), dtype={self.dtype})"

    def __deepcopy__(self, memo: Any) -> Any:
        return self.clone()

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if not self.layout_.sizes else repr(self)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        question = QUESTIONS.get(func)
        if question is not None and type(args[0]) is Recorded:
            return question(*args, **(kwargs or {}))
        owner = next(item.owner for item in leaves(args, kwargs or {}) if type(item) is Recorded)
        return owner.leaf(func, args, kwargs or {})


_CPU = torch.device("cpu")
_NUMBERS = 256  # that a list of numbers of the graph may have


def _is_dense(x: Recorded) -> bool:
    meta = x.layout_.meta
    ordered = sorted((stride, size) for stride, size in zip(meta.stride(), meta.shape, strict=True) if size != 1)
    expected = 1
    for stride, size in ordered:
        if stride != expected:
            return False
        expected *= size
    return True


QUESTIONS: dict[Any, Any] = {
    _aten.sym_size.default: Recorded.size,
    _aten.sym_size.int: Recorded.size,
    _aten.size.default: lambda x: x.owner.numbers_of_sizes(x),
    _aten.size.int: lambda x, dim: x.owner.numbers_of_sizes(x)[dim],
    _aten.sym_numel.default: Recorded.numel,
    _aten.numel.default: lambda x: math.prod(x.owner.numbers_of_sizes(x)),
    _aten.dim.default: Recorded.dim,
    _aten.sym_stride.default: Recorded.stride,
    _aten.stride.default: Recorded.stride,
    _aten.stride.int: Recorded.stride,
    _aten.sym_storage_offset.default: Recorded.storage_offset,
    _aten.storage_offset.default: Recorded.storage_offset,
    _aten.is_contiguous.default: Recorded.is_contiguous,
    _aten.is_contiguous.memory_format: Recorded.is_contiguous,
    _aten.is_strides_like_format.default: lambda x, format: x.layout_.meta.is_contiguous(memory_format=format),
    _aten.is_non_overlapping_and_dense.default: _is_dense,
}
