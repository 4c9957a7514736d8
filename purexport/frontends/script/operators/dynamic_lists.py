"""Lists whose length is known only at run time, and known lists with an index or a searched number of that sort.

A change makes a new value, which the list object then holds, so that every name of the list sees it.  A list of tuples
is one list for each position in the tuples, and most operators run on each of these (`by_columns`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from purexport.aten.graph import AtenValue, Block, Call
from purexport.errors import ExportError
from purexport.frontends.script.conversions import literal, to_number, to_tensor
from purexport.frontends.script.kinds import NUMBER_DTYPES
from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import DYNAMIC, ELEMENTS, PLACE, Form, Handler, Handlers, ScriptNode
from purexport.frontends.script.sequences import (
    KIND_OF_DTYPE,
    Element,
    as_dynamic,
    column,
    dynamic,
    element_of,
    element_of_item,
    fresh,
    joined_elements,
    sequence_fake,
    width_of,
)
from purexport.frontends.script.values import Columns, FakeSequence, ScriptList

handles = Handlers()
_END = 2**63 - 1


def list_operator(*kinds: str, on: Sequence[Form] = (DYNAMIC,)) -> Callable[[Handler], Handler]:
    """Register the handler of operators whose first operand is a list."""

    def register(handler: Handler) -> Handler:
        @functools.wraps(handler)
        def on_list(machine: Machine, node: ScriptNode, items: Any, *rest: Any) -> Any:
            return handler(machine, node, items, *rest) if isinstance(items, ScriptList) else NotImplemented

        handles(*kinds, on=on)(on_list)
        return handler

    return register


def by_columns(
    collect: Callable[[list[Any]], Any] | None = None, *, changes: bool = False
) -> Callable[[Handler], Handler]:
    """Extend the decorated handler to lists of tuples: it runs on the list for each position in the tuples.

    `collect` makes the result from the results of these runs.  Without `collect` they are the columns of a new list, or
    the result is the list itself where the handler `changes` it.
    """

    def decorate(handler: Handler) -> Handler:
        @functools.wraps(handler)
        def on_columns(machine: Machine, node: ScriptNode, items: ScriptList, *rest: Any) -> Any:
            width = width_of(items, *rest)
            if not width:
                return handler(machine, node, items, *rest)
            parts: list[ScriptList] = [machine.own(column(items, place)) for place in range(width)]
            results = [
                on_columns(machine, node, part, *(_part(item, place) for item in rest))
                for place, part in enumerate(parts)
            ]
            if changes:
                machine.change(items, ScriptList((), items.kind, Columns(tuple(parts))), node.source)
            if collect is not None:
                return collect(results)
            return items if changes else machine.own(ScriptList((), items.kind, Columns(tuple(results))))

        return on_columns

    return decorate


def _part(item: Any, place: int) -> Any:
    if isinstance(item, ScriptList):
        return column(item, place)
    return item[place] if isinstance(item, tuple) else item


def _int(machine: Machine, node: ScriptNode, target: str, a: Any, b: Any) -> AtenValue:
    """Arithmetic on two integers; at least one of them is computed by the graph."""
    return machine.emit(target, {"a": a, "b": b}, machine.shapes.unknown(int), node.source)


def _sequence_length(machine: Machine, node: ScriptNode, sequence: AtenValue) -> AtenValue:
    return machine.emit("sequence::length", {"list": sequence}, machine.shapes.unknown_size(), node.source)


def _rows(columns: list[Any]) -> list[Any]:
    return list(zip(*columns, strict=True))


@list_operator("aten::len")
@by_columns(lambda lengths: lengths[0])
def _length(machine: Machine, node: ScriptNode, items: ScriptList) -> Any:
    value, element = dynamic(machine, items, node.source)
    if isinstance(element, FakeSequence):
        return _sequence_length(machine, node, value)
    return machine.emit("aten::size.int", {"self": value, "dim": 0}, machine.shapes.unknown_size(), node.source)


@list_operator("aten::__getitem__", on=(DYNAMIC, PLACE))
@by_columns(tuple)
def _at(machine: Machine, node: ScriptNode, items: ScriptList, index: Any) -> Any:
    value, element = dynamic(machine, items, node.source)
    if isinstance(element, FakeSequence):
        fake = fresh(machine, element)
        machine.aliasing.share(element, fake)
        return machine.emit("sequence::at", {"list": value, "index": index}, fake, node.source)
    scalar = torch.empty((), dtype=NUMBER_DTYPES[element])
    picked = machine.emit("aten::select.int", {"self": value, "dim": 0, "index": index}, scalar, node.source)
    return to_number(machine, element, picked, node.source)


def _inserted(machine: Machine, node: ScriptNode, items: ScriptList, index: Any, item: Any) -> AtenValue:
    """The list with `item` before `index`, or at the end for None."""
    value, element = dynamic(machine, items, node.source, element_of_item(machine, item, node.source))
    if isinstance(element, FakeSequence):
        args = {"list": value, "item": item, "index": index}
        machine.aliasing.put(element, machine.fakes[item], node.source)
        return machine.emit("sequence::insert", args, element, node.source)
    middle = literal(machine, [item], NUMBER_DTYPES[element], node.source)
    parts = [value, middle]
    if index is not None:
        parts = [_range(machine, node, value, 0, index), middle, _range(machine, node, value, index, _END)]
    return _cat(machine, node, parts, element)


def _range(machine: Machine, node: ScriptNode, value: AtenValue, start: Any, end: Any, step: int = 1) -> AtenValue:
    args = {"self": value, "dim": 0, "start": start, "end": end, "step": step}
    fake = torch.empty([machine.shapes.unknown_size()], dtype=value.tensor.dtype)
    return machine.emit("aten::slice.Tensor", args, fake, node.source)


def _cat(machine: Machine, node: ScriptNode, parts: list[AtenValue], element: Element) -> AtenValue:
    return machine.emit("aten::cat", {"tensors": parts, "dim": 0}, sequence_fake(machine, element), node.source)


def _erased(machine: Machine, node: ScriptNode, items: ScriptList, index: Any) -> AtenValue:
    value, element = dynamic(machine, items, node.source)
    if isinstance(element, FakeSequence):
        return machine.emit("sequence::erase", {"list": value, "index": index}, element, node.source)
    if index == -1:
        return _range(machine, node, value, 0, -1)
    position = index
    if isinstance(index, AtenValue) or index < 0:
        # -1 + 1 would be the begin of the list
        size = machine.emit("aten::size.int", {"self": value, "dim": 0}, machine.shapes.unknown_size(), node.source)
        shifted = _int(machine, node, "aten::add.int", index, size)
        position = _int(machine, node, "aten::remainder.int", shifted, size)
    after = _int(machine, node, "aten::add.int", position, 1)
    parts = [_range(machine, node, value, 0, position), _range(machine, node, value, after, _END)]
    return _cat(machine, node, parts, element)


def _hold(machine: Machine, node: ScriptNode, items: ScriptList, value: AtenValue) -> ScriptList:
    machine.change(items, ScriptList((), items.kind, value), node.source)
    return items


@list_operator("aten::append")
@by_columns(changes=True)
def _append(machine: Machine, node: ScriptNode, items: ScriptList, item: Any) -> Any:
    return _hold(machine, node, items, _inserted(machine, node, items, None, item))


@list_operator("aten::insert", on=(DYNAMIC, PLACE))
@by_columns(changes=True)
def _insert(machine: Machine, node: ScriptNode, items: ScriptList, index: Any, item: Any) -> Any:
    return _hold(machine, node, items, _inserted(machine, node, items, index, item))


@list_operator("aten::pop", on=(DYNAMIC, PLACE))
@by_columns(tuple, changes=True)
def _pop(machine: Machine, node: ScriptNode, items: ScriptList, index: Any = -1) -> Any:
    found = _at(machine, node, items, index)
    _hold(machine, node, items, _erased(machine, node, items, index))
    return found


@list_operator("aten::Delete", on=(DYNAMIC, PLACE))
@by_columns(changes=True)
def _delete(machine: Machine, node: ScriptNode, items: ScriptList, index: Any) -> Any:
    return _hold(machine, node, items, _erased(machine, node, items, index))


@list_operator("aten::_set_item", on=(DYNAMIC, PLACE))
@by_columns(changes=True)
def _set_item(machine: Machine, node: ScriptNode, items: ScriptList, index: Any, item: Any) -> Any:
    if not isinstance(index, AtenValue) and index < 0 and items.value is not None:
        index = _int(machine, node, "aten::add.int", _length(machine, node, items), index)  # fmt: skip
    elif isinstance(index, AtenValue):
        index = _from_the_begin(machine, node, items, index)
    longer = ScriptList((), items.kind, _inserted(machine, node, items, index, item))
    after = machine.record("aten::add.int", {"a": index, "b": 1}, node.source, int)
    return _hold(machine, node, items, _erased(machine, node, longer, after))


def _from_the_begin(machine: Machine, node: ScriptNode, items: ScriptList, index: AtenValue) -> AtenValue:
    """A position that may be negative, converted to one that counts from the start."""
    size = _length(machine, node, items) if items.value is not None else len(items)
    shifted = _int(machine, node, "aten::add.int", index, size)
    return _int(machine, node, "aten::remainder.int", shifted, size)


@list_operator("aten::clear")
def _clear(machine: Machine, node: ScriptNode, items: ScriptList) -> None:
    machine.change(items, ScriptList((), items.kind), node.source)


@list_operator("aten::copy", "aten::list")
@by_columns()
def _copy(machine: Machine, node: ScriptNode, items: ScriptList) -> Any:
    return machine.own(items.clone())


def _made(machine: Machine, items: ScriptList, value: AtenValue) -> Any:
    return machine.own(ScriptList((), items.kind, value))


@list_operator("aten::add")
@by_columns()
def _joined(machine: Machine, node: ScriptNode, one: ScriptList, other: ScriptList) -> Any:
    """The elements of `one`, then those of `other`."""
    element = joined_elements(
        machine, element_of(machine, one, node.source), element_of(machine, other, node.source), node.source
    )
    values = [as_dynamic(machine, items, element, node.source) for items in (one, other)]
    if not isinstance(element, FakeSequence):
        return _made(machine, one, _cat(machine, node, values, element))
    if other.value is None:
        longer = values[0]
        for item in other:
            machine.aliasing.put(element, machine.fakes[item], node.source)
            longer = machine.emit(
                "sequence::insert", {"list": longer, "item": item, "index": None}, element, node.source
            )
        return _made(machine, one, longer)
    size = _sequence_length(machine, node, values[1])
    return _made(machine, one, _gathered(machine, node, values[0], values[1], element, size, (0, 1)))


@list_operator("aten::extend", "aten::add_")
@by_columns(changes=True)
def _extend(machine: Machine, node: ScriptNode, items: ScriptList, more: ScriptList) -> ScriptList:
    machine.touch(items, node.source)
    items.become(_joined(machine, node, items, more))
    return items


def _gathered(
    machine: Machine,
    node: ScriptNode,
    start: AtenValue,
    of: AtenValue,
    element: Element,
    count: Any,
    places: tuple[Any, int],
) -> AtenValue:
    """`start` and then `count` elements of `of`, at first + step * 0, 1, 2, ...; `places` is (first, step)."""
    first, stride = places
    with machine.body() as body:
        step, inner = machine.value(machine.shapes.unknown_size()), machine.value(element)
        offset = _int(machine, node, "aten::mul.int", step, stride)
        index = _int(machine, node, "aten::add.int", offset, first)
        item = machine.emit("sequence::at", {"list": of, "index": index}, fresh(machine, element), node.source)
        longer = machine.emit("sequence::insert", {"list": inner, "item": item, "index": None}, element, node.source)
    result = machine.value(element)
    args = {"most": count, "condition": True, "carried": [start]}
    machine.add(Call("prim::Loop", args, [result], node.source, [Block(body.calls, [True, longer], [step, inner])]))
    return result


@list_operator("aten::slice")
@by_columns()
def _slice(
    machine: Machine, node: ScriptNode, items: ScriptList, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    value, element = dynamic(machine, items, node.source)
    if not isinstance(element, FakeSequence):
        first, last = 0 if start is None else start, _END if end is None else end
        return _made(machine, items, _range(machine, node, value, first, last, step))
    size = _sequence_length(machine, node, value)
    first, last = (_bounded(machine, node, place, size) for place in (0 if start is None else start, _last(end, size)))
    count = _int(machine, node, "aten::sub.int", last, first)
    if step != 1:
        more = _int(machine, node, "aten::add.int", count, step - 1)
        count = _int(machine, node, "aten::floordiv.int", more, step)
    count = machine.emit("prim::max.int", {"a": count, "b": 0}, machine.shapes.unknown_size(), node.source)
    empty = machine.emit("sequence::construct", {"items": [], "dtype": element.element.dtype}, element, node.source)
    return _made(machine, items, _gathered(machine, node, empty, value, element, count, (first, step)))


def _last(end: Any, size: AtenValue) -> Any:
    return size if end is None or (isinstance(end, int) and end >= _END) else end


def _bounded(machine: Machine, node: ScriptNode, place: Any, size: AtenValue) -> Any:
    """A bound of a slice, as a position from 0 to `size`."""
    if place is size:
        return size
    if isinstance(place, int) and place < 0:
        place = _int(machine, node, "aten::add.int", size, place)
        return machine.emit("prim::max.int", {"a": place, "b": 0}, machine.shapes.unknown_size(), node.source)
    if isinstance(place, AtenValue):
        raise ExportError(
            f"at {node.source} a list is sliced at a position that depends on data; cut a tensor instead",
            code="list-of-unknown-length",
        )
    return machine.emit("prim::min.int", {"a": size, "b": place}, machine.shapes.unknown_size(), node.source)


@list_operator("aten::reverse")
@by_columns(changes=True)
def _reverse(machine: Machine, node: ScriptNode, items: ScriptList) -> Any:
    value, element = dynamic(machine, items, node.source)
    if not isinstance(element, FakeSequence):
        args = {"self": value, "dims": [0]}
        return _hold(
            machine, node, items, machine.emit("aten::flip", args, sequence_fake(machine, element), node.source)
        )
    size = _sequence_length(machine, node, value)
    last = _int(machine, node, "aten::sub.int", size, 1)
    empty = machine.emit("sequence::construct", {"items": [], "dtype": element.element.dtype}, element, node.source)
    return _hold(machine, node, items, _gathered(machine, node, empty, value, element, size, (last, -1)))


@list_operator("aten::mul", on=(DYNAMIC, PLACE))
def _repeated(machine: Machine, node: ScriptNode, items: ScriptList, count: Any) -> Any:
    """`items * count`"""
    value, element = dynamic(machine, items, node.source)
    if isinstance(element, FakeSequence):
        raise ExportError(
            f"at {node.source} a list of tensors is repeated as often as data says; use torch.Tensor.repeat",
            code="list-of-unknown-length",
        )
    times = machine.record("prim::max.int", {"a": count, "b": 0}, node.source, int)
    args = {"self": value, "repeats": [times]}
    return _made(machine, items, machine.emit("aten::repeat", args, sequence_fake(machine, element), node.source))


@list_operator("aten::__contains__", on=(DYNAMIC, ELEMENTS))
def _contains(machine: Machine, node: ScriptNode, items: ScriptList, wanted: Any) -> Any:
    value = _numbers(machine, items, node)
    if isinstance(wanted, AtenValue):
        wanted = to_tensor(machine, wanted, node.source)
    name = "aten::eq.Tensor" if isinstance(wanted, AtenValue) else "aten::eq.Scalar"
    equal = machine.record(name, {"self": value, "other": wanted}, node.source)
    return to_number(machine, bool, machine.record("aten::any", {"self": equal}, node.source), node.source)


def _numbers(machine: Machine, items: ScriptList, node: ScriptNode) -> AtenValue:
    value, element = dynamic(machine, items, node.source)
    if isinstance(element, FakeSequence):
        raise ExportError(
            f"at {node.source} the script searches or sorts a list of tensors, whose length depends on data",
            code="list-of-unknown-length",
        )
    return value


@list_operator("aten::sum", "prim::max", "prim::min")
def _reduced(machine: Machine, node: ScriptNode, items: ScriptList) -> Any:
    value = _numbers(machine, items, node)
    dtype, name = value.tensor.dtype, node.kind.replace("prim::", "aten::")
    args = {"self": value, "dtype": dtype} if name == "aten::sum" else {"self": value}
    result = machine.emit(name, args, torch.empty((), dtype=dtype), node.source)
    return to_number(machine, KIND_OF_DTYPE[dtype], result, node.source)


@list_operator("aten::sorted", on=(DYNAMIC, ELEMENTS))
def _sorted(machine: Machine, node: ScriptNode, items: ScriptList) -> Any:
    value = _numbers(machine, items, node)
    args = {"self": value, "dim": 0, "descending": False}
    outputs = [
        machine.value(machine.fakes[value]),
        machine.value(torch.empty_like(machine.fakes[value], dtype=torch.int64)),
    ]
    machine.add(Call("aten::sort", args, outputs, node.source))
    return _made(machine, items, outputs[0])


@list_operator("aten::sort", on=(DYNAMIC, ELEMENTS))
def _sort(machine: Machine, node: ScriptNode, items: ScriptList, reverse: bool = False) -> Any:
    _hold(machine, node, items, _sorted(machine, node, items).value)
    if reverse:
        _reverse(machine, node, items)


@list_operator("aten::stack")
def _stacked(machine: Machine, node: ScriptNode, items: ScriptList, dim: int = 0) -> Any:
    value, element = dynamic(machine, items, node.source)
    sizes = list(fresh(machine, element).shape)
    at = dim % (len(sizes) + 1)
    sizes.insert(at, machine.shapes.unknown_size())
    fake = torch.empty(sizes, dtype=element.element.dtype)
    return machine.emit("sequence::stack", {"list": value, "dim": at}, fake, node.source)


@list_operator("aten::cat", "aten::concat")
def _concatenated(machine: Machine, node: ScriptNode, items: ScriptList, dim: int = 0) -> Any:
    value, element = dynamic(machine, items, node.source)
    sizes = list(fresh(machine, element).shape)
    at = dim % len(sizes)
    sizes[at] = machine.shapes.unknown_size()
    fake = torch.empty(sizes, dtype=element.element.dtype)
    return machine.emit("sequence::cat", {"list": value, "dim": at}, fake, node.source)


@list_operator("prim::ListUnpack")
def _list_unpack(machine: Machine, node: ScriptNode, items: ScriptList) -> Any:
    return node.packed(_unpacked(machine, node, items))


@by_columns(_rows)
def _unpacked(machine: Machine, node: ScriptNode, items: ScriptList) -> list[Any]:
    return [_at(machine, node, items, index) for index in range(node.torch.outputsSize())]
