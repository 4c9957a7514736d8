"""as_strided with computed sizes, or of a tensor whose sizes can change: positions that the graph computes.

The element at index i lies at `storage_offset + sum(i * stride)` in the memory of the storage's base.  The positions
along each axis are a range times the stride, and their sum is the index into the flat base.  The base must lie in
memory in the order of its elements, which only its sizes and strides together say: a stride that another order would
give at other sizes is not taken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from purexport.aten.graph import Arg, AtenValue, Call, Dim, TensorType
from purexport.aten.memory import lies_in_order
from purexport.aten.names import parsed
from purexport.facts.fact import UnknownInverse
from purexport.functionalize.storages import Alias

Emit = Callable[[Call], None]
Constant = Callable[[torch.Tensor], AtenValue]

# views that begin where their argument begins
_FROM_THE_START = frozenset(
    ["alias", "detach", "expand", "permute", "reshape", "squeeze", "t", "transpose", "unsqueeze", "view", "view_as"]
)


def is_computed(call: Call) -> bool:
    """Whether a size, a stride or the offset of an as_strided is no number."""
    items = (*call.args["size"], *call.args["stride"], call.args["storage_offset"] or 0)
    return not all(type(item) is int for item in items)


def _overlaps(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether one place in memory stands at two indices."""
    places = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(sizes, strides, strict=True):
        places = places[..., None] + torch.arange(size) * stride
    return len(set(places.flatten().tolist())) < places.numel()


class Strided:
    """The positions that one as_strided shows, in the flat base of its storage.  `emit` takes the calls for them."""

    def __init__(self, alias: Alias, call: Call, emit: Emit, constant: Constant) -> None:
        self.alias = alias
        self.call = call
        self.emit = emit
        self.constant = constant

    def read(self) -> AtenValue:
        """The result of as_strided.  Raises UnknownInverse where the order in memory is not known."""
        flat, places = self._flat(), self._places()
        return self._new("aten::take", flat.tensor.dtype, places.tensor.shape, self=flat, index=places)

    def written(self, new: AtenValue) -> AtenValue:
        """The base with `new` in place of the elements that as_strided shows.

        torch refuses the usual writes where an element is shown twice, but not `tril_`, say.  Raises UnknownInverse.
        """
        if not is_computed(self.call) and _overlaps(self.call.args["size"], self.call.args["stride"]):
            raise UnknownInverse("it contains an element several times", code="view-overlaps")
        base, flat = self.alias.root.current, self._flat()
        places, content = self._flattened(self._places()), self._flattened(new)
        type_ = base.tensor
        all_ = self._new(
            "aten::scatter.src", type_.dtype, flat.tensor.shape, self=flat, dim=0, index=places, src=content
        )
        result = AtenValue(type_)
        self.emit(Call("aten::view_as", {"self": all_, "other": base}, [result], self.call.source))
        return result

    def _new(self, target: str, dtype: torch.dtype, shape: Sequence[Dim] | None, /, **args: Arg) -> AtenValue:
        result = AtenValue(TensorType(dtype, None if shape is None else tuple(shape)))
        self.emit(Call(target, args, [result], self.call.source))
        return result

    def _flattened(self, value: AtenValue) -> AtenValue:
        shape = value.tensor.shape
        count: Any = 1
        for size in shape or ():
            count = None if count is None or size is None else count * size
        return self._new("aten::reshape", value.tensor.dtype, (count,), self=value, shape=[-1])

    def _flat(self) -> AtenValue:
        base = self.alias.root.current
        if not lies_in_order(base.tensor):
            raise UnknownInverse("its tensor does not lie in memory in the order of its elements", code="memory-layout")
        return self._flattened(base)

    def _places(self) -> AtenValue:
        """The position in memory of each element of the result, in its shape."""
        sizes, strides = self.call.args["size"], self.call.args["stride"]
        recorded = self.call.outputs[0].tensor.shape or (None,) * len(sizes)
        offset = self._offset()
        total = offset if isinstance(offset, AtenValue) else self.constant(torch.tensor(offset))
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
            shape = recorded[: axis + 1]
            if axis:
                before = (*shape[:-1], 1)
                total = self._new("aten::unsqueeze", torch.int64, before, self=total, dim=-1)
            along = self._along(shape[-1], size, stride)
            total = self._new("aten::add.Tensor", torch.int64, shape, self=along, other=total, alpha=1)
        return total

    def _along(self, recorded: Dim, size: Arg, stride: Arg) -> AtenValue:
        if type(size) is int and type(stride) is int:
            return self.constant(torch.arange(size) * stride)
        range_ = {"end": size, "dtype": torch.int64, "layout": None, "device": None, "pin_memory": None}
        steps = self._new("aten::arange", torch.int64, (recorded,), **range_)
        return self._new("aten::mul.Tensor", torch.int64, (recorded,), self=steps, other=stride)

    def _offset(self) -> Arg:
        given = self.call.args["storage_offset"]
        if given is not None:
            return given
        above = self.alias.parent.chain if self.alias.parent is not None else []
        if all(parsed(view.target).name in _FROM_THE_START for view, _ in above):
            return 0
        raise UnknownInverse("where its argument begins in memory is not known", code="memory-layout")
