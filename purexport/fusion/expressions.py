"""The neutral graph as expressions: what pattern rows are matched against.

An expression is what a value is, seen through what changes no number: copies, casts between float types, views of the
same elements, numbers that sizes give.  Two ways of writing the same have the same expression: `x[..., :4]` and the
first part of `x.chunk(2, -1)` are both ("slice", x, 0, 4).  Axes count from the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from purexport.aten.graph import AtenGraph, AtenValue, Call, ScalarType, TensorType
from purexport.aten.names import operator_of

_COPIES = frozenset({"aten::clone", "aten::detach", "aten::contiguous", "aten::alias", "aten::lift_fresh"})
_CASTS = frozenset({"aten::to", "aten::type_as", "aten::_to_copy", "aten::float", "aten::_autocast_to_full_precision"})
_END = 1 << 62  # a bound behind every axis


class Expressions:
    """What the values of a graph are."""

    def __init__(self, graph: AtenGraph) -> None:
        self.inputs = {item.value: item for item in graph.inputs}
        self._made: dict[AtenValue, tuple[Call, int]] = {}
        for call in graph.calls:
            for index, value in enumerate(call.outputs):
                self._made[value] = (call, index)

    def call(self, value: Any) -> Call | None:
        """The call that makes a value."""
        return self._made[value][0] if isinstance(value, AtenValue) and value in self._made else None

    def plain(self, value: Any) -> Any:
        """The value whose numbers `value` has, seen through copies and casts between float types."""
        while True:
            call = self.call(value)
            if call is None or is_of_numbers(call):
                return value
            if self._keeps_numbers(call):
                value = _only_operand(call)
            elif call.base == "aten::cat" and len(kept := [x for x in call.args["tensors"] if not _is_empty(x)]) == 1:
                value = kept[0]
            else:
                return value

    def _keeps_numbers(self, call: Call) -> bool:
        """Whether the result of a call has the numbers of its first operand."""
        base = call.base
        if base in ("aten::dropout", "aten::dropout_"):
            return call.args["train"] is False
        if base in ("aten::mul", "aten::div"):
            return bool(self.number(call.args["other"]) == 1)
        if base == "aten::slice":
            found = self._slice(call)
            return found is not None and found[1:] == (0, found[3], found[3], 1)
        return base in _COPIES or (base in _CASTS and _both_float(call))

    def _slice(self, call: Call) -> tuple[int, int, int, int, int] | None:
        """(axis from the end, start, end, size, step) of a slice with known bounds."""
        shape = shape_of(call.args["self"])
        bounds = [self.number(call.args[name], sizes=True) for name in ("dim", "start", "end", "step")]
        if shape is None:
            return None
        axis, start, end, step = bounds
        if not isinstance(axis, int) or step is None:
            return None
        axis = axis % len(shape) - len(shape)
        size = shape[axis]
        if start in (None, 0) and isinstance(end, int) and end >= _END >> 1 and step == 1:
            return (axis, 0, size, size, 1) if isinstance(size, int) else None
        if axis != -1 or not isinstance(size, int) or not all(isinstance(item, int) for item in (start, end)):
            return None  # a number may be that of a size of the example, which other axes need not have
        start, end, step = slice(start, end, step).indices(size)
        return axis, start, end, size, step

    def _source(self, value: AtenValue) -> AtenValue:
        """Where a number comes from, seen through copies."""
        call = self.call(value)
        while call is not None and (call.base in _COPIES or call.base in _CASTS):
            value = _only_operand(call)
            call = self.call(value)
        return value

    def number(self, value: Any, *, sizes: bool = False) -> Any:
        """A Python number; None where it is unknown.

        With `sizes` also one that is computed from sizes, which is that of the example: for parts of the last axis.
        """
        if not isinstance(value, AtenValue):
            return value
        value = self._source(value)
        item = self.inputs.get(value)
        if item is not None:
            held = item.tensor
            return held.item() if item.kind == "constant" and held is not None and held.numel() == 1 else None
        call = self.call(value)
        if call is None:
            return None
        if call.base == "aten::size" and "dim" in call.args and sizes:
            shape, dim = shape_of(call.args["self"]), self.number(call.args["dim"], sizes=True)
            return shape[dim] if shape is not None and isinstance(shape[dim], int) else None
        if call.base in _ON_NUMBERS:
            names = ("a", "b") if is_of_numbers(call) else ("self", "other")
            operands = [self.number(call.args[name], sizes=sizes) for name in names if name in call.args]
            if None not in operands:
                return _ON_NUMBERS[call.base](*operands)
        if call.base in ("aten::ScalarImplicit", "aten::Int", "aten::IntImplicit"):
            return self.number(call.args["a"], sizes=sizes)
        return None

    def sliced(self, value: Any) -> tuple[AtenValue, int, int, int] | None:
        """(x, start, end, step) for elements of the last axis of x."""
        value = self.plain(value)
        call = self.call(value)
        if call is None:
            return None
        if call.base == "aten::slice" and (found := self._slice(call)) is not None and found[0] == -1:
            return self.plain(call.args["self"]), found[1], found[2], found[4]
        if call.target == "prim::getitem":
            made, index = self.call(call.args["list"]), self.number(call.args["index"])
            if made is None or not isinstance(index, int):
                return None
            return self._part(made, index)
        if call.base in ("aten::chunk", "aten::split", "aten::split_with_sizes", "aten::tensor_split"):
            return self._part(call, self._made[value][1])
        return None

    def _part(self, call: Call, index: int) -> tuple[AtenValue, int, int, int] | None:
        shape, dim = shape_of(call.args.get("self")), self.number(call.args.get("dim"))
        if shape is None or not isinstance(dim, int) or dim % len(shape) != len(shape) - 1:
            return None
        size = shape[-1]
        if not isinstance(size, int):
            return None
        if call.base == "aten::chunk":
            step = -(-size // self.number(call.args["chunks"], sizes=True))
            ends = [*range(0, size, step), size]
        elif call.base == "aten::split":
            ends = [*range(0, size, self.number(call.args["split_size"], sizes=True)), size]
        elif call.base == "aten::split_with_sizes":
            ends = [0]
            for part in call.args["split_sizes"]:
                ends.append(ends[-1] + self.number(part, sizes=True))
        else:
            return None
        return self.plain(call.args["self"]), ends[index], ends[index + 1], 1

    def operands(self, value: Any, base: str) -> tuple[Any, Any] | None:
        """The two operands of a call of `base` (a sum with alpha 1), seen plainly."""
        call = self.call(self.plain(value))
        if call is None or call.base != base or call.args.get("alpha", 1) != 1 or is_of_numbers(call):
            return None
        return self.plain(call.args["self"]), self.plain(call.args["other"])

    def joined(self, value: Any, axis: int) -> list[Any] | None:
        """The parts of a concatenation along an axis counted from the end, without empty ones."""
        value = self.plain(value)
        call, shape = self.call(value), shape_of(value)
        if call is None or call.base not in ("aten::cat", "aten::concat") or shape is None:
            return None
        if call.args["dim"] % len(shape) - len(shape) != axis:
            return None
        return [self.plain(item) for item in call.args["tensors"] if not _is_empty(item)]

    def same(self, one: Any, other: Any) -> bool:
        """Whether two arguments are computed alike of the same inputs."""
        if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
            return len(one) == len(other) and all(map(self.same, one, other))
        if not isinstance(one, AtenValue) or not isinstance(other, AtenValue):
            return type(one) is type(other) and bool(one == other)
        one, other = self.plain(one), self.plain(other)
        if one is other:
            return True
        mine, theirs = self.call(one), self.call(other)
        if mine is None or theirs is None or mine.blocks or mine.target != theirs.target:
            return False
        places = [self._made[item][1] for item in (one, other)]
        names = mine.args.keys() | theirs.args.keys()
        return places[0] == places[1] and all(self.same(mine.args.get(name), theirs.args.get(name)) for name in names)

    def evaluated(self, value: Any, given: dict[AtenValue, torch.Tensor]) -> Any:
        """What torch computes for a value with these tensors for inputs.

        Raises LookupError where it takes another input of the user, or a call that torch has no operator for.
        """
        found: dict[AtenValue, Any] = dict(given)

        def get(arg: Any) -> Any:
            if isinstance(arg, (list, tuple)):
                return [get(item) for item in arg]
            if not isinstance(arg, AtenValue):
                return arg
            if arg not in found:
                item, call = self.inputs.get(arg), self.call(arg)
                if item is not None:
                    if item.tensor is None or item.kind == "user":
                        raise LookupError(item.name)
                    found[arg] = item.tensor.detach()
                elif call is None or call.blocks:
                    raise LookupError("a value without a call")
                elif call.target == "prim::getitem":
                    found[arg] = get(call.args["list"])[call.args["index"]]
                elif call.base in ("aten::ScalarImplicit", "aten::Int", "aten::IntImplicit"):
                    found[arg] = get(call.args["a"])
                else:
                    _run(call, {name: get(item) for name, item in call.args.items()}, found)
            return found[arg]

        return get(value)


def _run(call: Call, args: dict[str, Any], found: dict[AtenValue, Any]) -> None:
    function = operator_of(call.target)
    if function is None:
        raise LookupError(call.target)
    results = function(**args)
    if len(call.outputs) == 1:
        results = (results,)
    found.update(zip(call.outputs, results, strict=True))


def _only_operand(call: Call) -> AtenValue:
    found: AtenValue = call.args["self"] if "self" in call.args else call.args["input"]
    return found


def leaves(expressions: Expressions, value: AtenValue) -> Iterator[AtenValue]:
    """The graph inputs that a value is computed of."""
    seen: set[AtenValue] = set()
    stack = [value]
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        seen.add(item)
        call = expressions.call(item)
        if call is None:
            yield item
        else:
            stack.extend(call.inputs())


def shape_of(value: Any) -> tuple[Any, ...] | None:
    """The recorded shape of a tensor."""
    return value.type.shape if isinstance(value, AtenValue) and isinstance(value.type, TensorType) else None


def _is_empty(value: Any) -> bool:
    shape = shape_of(value)
    return shape == (0,)


def _both_float(call: Call) -> bool:
    types = [value.type for value in (call.args.get("self"), call.outputs[0]) if isinstance(value, AtenValue)]
    return len(types) == 2 and all(isinstance(item, TensorType) and item.dtype.is_floating_point for item in types)


_ON_NUMBERS: dict[str, Any] = {
    "aten::floor_divide": lambda one, other: one // other,
    "aten::floordiv": lambda one, other: one // other,
    "aten::add": lambda one, other: one + other,
    "aten::sub": lambda one, other: one - other,
    "aten::mul": lambda one, other: one * other,
    "aten::neg": lambda one: -one,
}


def is_of_numbers(call: Call) -> bool:
    """Whether a call computes numbers of Python, such as sizes, of which no row knows."""
    return bool(call.outputs) and all(isinstance(value.type, ScalarType) for value in call.outputs)
