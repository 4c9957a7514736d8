"""Lists whose length only the run knows, and known lists at a position that only the run knows.

A list of tensors is a sequence of the graph, a list of numbers a tensor of one dimension.  Elements must agree in dtype
and rank; sizes in which they differ become unknown.  A change makes a new value, which the list object then holds, so
that every name of the list sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from purexport.aten.graph import Block, Call, SequenceType, Source, Value
from purexport.capture.script.objects import CHANGING
from purexport.capture.script.record import NUMBER_DTYPES, kind_of, number_kind
from purexport.capture.script.scope import scope, touch
from purexport.capture.script.values import Columns, FakeSequence, ScriptList
from purexport.errors import ExportError

if TYPE_CHECKING:
    from purexport.capture.script.record import Recorder

# what every element is like: a FakeSequence for tensors, a number's type, a tuple of those; None for an empty list
Element = Any
_KINDS = {dtype: kind for kind, dtype in NUMBER_DTYPES.items()}
_END = 2**63 - 1


# Elements -------------------------------------------------------------------------------------------------------------


def element_of(run: Recorder, items: ScriptList, source: Source) -> Element:
    """What the elements of a list have in common.  Raises ExportError where that has no form in ONNX."""
    if isinstance(items.value, Columns):
        return tuple(element_of(run, part, source) for part in items.value.lists)
    if items.value is not None:
        if isinstance(items.value.type, SequenceType):
            return run.fakes[items.value]
        return _KINDS[items.value.tensor.dtype]
    found: Element = None
    for item in items:
        found = joined_elements(run, found, _element(run, item, source), source)
    return found


def _element(run: Recorder, item: Any, source: Source) -> Element:
    if number_kind(item) is not None:
        return number_kind(item)
    if isinstance(item, tuple):
        return tuple(_element(run, part, source) for part in item)
    if kind_of(item) is None:
        raise ExportError(
            f"at {source} a list whose length or index depends on data holds {run.describe(item)}; in ONNX such a list "
            "holds tensors, numbers or tuples of them",
            code="list-of-unknown-length",
        )
    return FakeSequence(run.fakes[item])


def joined_elements(run: Recorder, one: Element, other: Element, source: Source) -> Element:
    """What elements of either kind have in common."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(joined_elements(run, mine, theirs, source) for mine, theirs in zip(one, other, strict=True))
    if not isinstance(one, FakeSequence) or not isinstance(other, FakeSequence):
        if one is not other or isinstance(one, tuple):
            raise _mixed(run, one, other, source)
        return one
    mine, theirs = one.element, other.element
    if mine.dtype is not theirs.dtype or mine.dim() != theirs.dim():
        raise _mixed(run, one, other, source)
    free = one.free | other.free
    wider = run.machine.joined(mine, theirs, free)
    new = {str(b) for a, b in zip(mine.shape, wider.shape, strict=True) if str(a) != str(b)}
    run.memory.share(mine, theirs)
    run.memory.share(wider, mine)
    return FakeSequence(wider, free | new) if new else FakeSequence(mine, free)


def _mixed(run: Recorder, one: Element, other: Element, source: Source) -> ExportError:
    texts = [_text(run, element) for element in (one, other)]
    return ExportError(
        f"at {source} a list whose length or index depends on data holds {texts[0]} and {texts[1]}, and the elements "
        "of a list in ONNX agree in dtype and rank",
        code="list-of-unknown-length",
    )


def _text(run: Recorder, element: Element) -> str:
    if isinstance(element, FakeSequence):
        return f"a tensor {run.machine.type(element.element)}"
    return "a tuple" if isinstance(element, tuple) else f"a number ({element.__name__})"


def sequence_fake(run: Recorder, element: Element) -> Any:
    """The fake of a list of such elements, of a length of its own."""
    if isinstance(element, FakeSequence):
        return element
    return torch.empty([run.machine.unknown_size()], dtype=NUMBER_DTYPES[element])


def as_dynamic(run: Recorder, items: ScriptList, element: Element, source: Source) -> Value:
    """The value of the graph that holds a list, which may be known."""
    if isinstance(items.value, Value):
        return items.value
    if isinstance(element, tuple):
        raise ExportError(
            f"at {source} a list of tuples, whose length depends on data, is used as a whole",
            code="list-of-unknown-length",
        )
    if isinstance(element, FakeSequence):
        args = {"items": list(items), "dtype": element.element.dtype}
        for item in items:
            run.memory.put(element, run.fakes[item], source)
        return run.emit("sequence::construct", args, element, source)
    return run.literal(list(items), NUMBER_DTYPES[element], source)


def dynamic(run: Recorder, items: ScriptList, source: Source, like: Element = None) -> tuple[Value, Element]:
    """A list as a value, and what its elements are; ``like`` is what is about to be put into it."""
    element = joined_elements(run, element_of(run, items, source), like, source)
    if element is None:
        raise ExportError(
            f"at {source} a list is empty, and an index into it depends on data", code="list-of-unknown-length"
        )
    return as_dynamic(run, items, element, source), element


# Operators ------------------------------------------------------------------------------------------------------------


def _length(run: Recorder, source: Source, items: ScriptList) -> Any:
    value, element = dynamic(run, items, source)
    if isinstance(element, FakeSequence):
        return run.emit("sequence::length", {"list": value}, run.machine.unknown_size(), source)
    return run.emit("aten::size.int", {"self": value, "dim": 0}, run.machine.unknown_size(), source)


def _at(run: Recorder, source: Source, items: ScriptList, index: Any) -> Any:
    value, element = dynamic(run, items, source)
    if isinstance(element, FakeSequence):
        fake = fresh(run, element)
        run.memory.share(element, fake)
        return run.emit("sequence::at", {"list": value, "index": index}, fake, source)
    scalar = torch.empty((), dtype=NUMBER_DTYPES[element])
    picked = run.emit("aten::select.int", {"self": value, "dim": 0, "index": index}, scalar, source)
    return run.to_number(element, picked, source)


def fresh(run: Recorder, element: FakeSequence) -> torch.Tensor:
    """The fake of one element: sizes in which elements differ are its own."""
    sizes = [run.machine.unknown_size() if str(size) in element.free else size for size in element.element.shape]
    return torch.empty(sizes, dtype=element.element.dtype)


def _inserted(run: Recorder, source: Source, items: ScriptList, index: Any, item: Any) -> Value:
    """The list with ``item`` before ``index``; None: at its end."""
    value, element = dynamic(run, items, source, _element(run, item, source))
    if isinstance(element, FakeSequence):
        args = {"list": value, "item": item, "index": index}
        run.memory.put(element, run.fakes[item], source)
        return run.emit("sequence::insert", args, element, source)
    middle = run.literal([item], NUMBER_DTYPES[element], source)
    parts = [value, middle]
    if index is not None:
        parts = [_range(run, source, value, 0, index), middle, _range(run, source, value, index, _END)]
    return _cat(run, source, parts, element)


def _range(run: Recorder, source: Source, value: Value, start: Any, end: Any, step: int = 1) -> Value:
    args = {"self": value, "dim": 0, "start": start, "end": end, "step": step}
    fake = torch.empty([run.machine.unknown_size()], dtype=value.tensor.dtype)
    return run.emit("aten::slice.Tensor", args, fake, source)


def _cat(run: Recorder, source: Source, parts: list[Value], element: Element) -> Value:
    return run.emit("aten::cat", {"tensors": parts, "dim": 0}, sequence_fake(run, element), source)


def _erased(run: Recorder, source: Source, items: ScriptList, index: Any) -> Value:
    value, element = dynamic(run, items, source)
    if isinstance(element, FakeSequence):
        return run.emit("sequence::erase", {"list": value, "index": index}, element, source)
    if index == -1:
        return _range(run, source, value, 0, -1)
    position = index
    if isinstance(index, Value) or index < 0:
        # -1 + 1 would be the begin of the list
        size = run.emit("aten::size.int", {"self": value, "dim": 0}, run.machine.unknown_size(), source)
        shifted = run.emit("aten::add.int", {"a": index, "b": size}, run.machine.unknown(int), source)
        position = run.emit("aten::remainder.int", {"a": shifted, "b": size}, run.machine.unknown(int), source)
    after = run.emit("aten::add.int", {"a": position, "b": 1}, run.machine.unknown(int), source)
    parts = [_range(run, source, value, 0, position), _range(run, source, value, after, _END)]
    return _cat(run, source, parts, element)


def _hold(run: Recorder, source: Source, items: ScriptList, value: Value) -> ScriptList:
    touch(run, items, source)
    items.become(ScriptList((), items.kind, value))
    return items


def _append(run: Recorder, source: Source, items: ScriptList, item: Any) -> Any:
    return _hold(run, source, items, _inserted(run, source, items, None, item))


def _insert(run: Recorder, source: Source, items: ScriptList, index: Any, item: Any) -> Any:
    return _hold(run, source, items, _inserted(run, source, items, index, item))


def _pop(run: Recorder, source: Source, items: ScriptList, index: Any = -1) -> Any:
    found = _at(run, source, items, index)
    _hold(run, source, items, _erased(run, source, items, index))
    return found


def _delete(run: Recorder, source: Source, items: ScriptList, index: Any) -> Any:
    return _hold(run, source, items, _erased(run, source, items, index))


def _set_item(run: Recorder, source: Source, items: ScriptList, index: Any, item: Any) -> Any:
    if not isinstance(index, Value) and index < 0 and items.value is not None:
        index = run.emit("aten::add.int", {"a": _length(run, source, items), "b": index},
                         run.machine.unknown(int), source)  # fmt: skip
    elif isinstance(index, Value):
        index = _from_the_begin(run, source, items, index)
    longer = ScriptList((), items.kind, _inserted(run, source, items, index, item))
    after = run.record("aten::add.int", {"a": index, "b": 1}, source, int)
    return _hold(run, source, items, _erased(run, source, longer, after))


def _from_the_begin(run: Recorder, source: Source, items: ScriptList, index: Value) -> Value:
    """A position that may be negative, counted from the begin."""
    size = _length(run, source, items) if items.value is not None else len(items)
    shifted = run.emit("aten::add.int", {"a": index, "b": size}, run.machine.unknown(int), source)
    return run.emit("aten::remainder.int", {"a": shifted, "b": size}, run.machine.unknown(int), source)


def _clear(run: Recorder, source: Source, items: ScriptList) -> None:
    touch(run, items, source)
    items.become(ScriptList((), items.kind))


def _copy(run: Recorder, source: Source, items: ScriptList) -> Any:
    return run.own(items.clone())


def _made(run: Recorder, items: ScriptList, value: Value) -> Any:
    return run.own(ScriptList((), items.kind, value))


def _joined(run: Recorder, source: Source, one: ScriptList, other: ScriptList) -> Any:
    """The elements of ``one``, then those of ``other``."""
    element = joined_elements(run, element_of(run, one, source), element_of(run, other, source), source)
    values = [as_dynamic(run, items, element, source) for items in (one, other)]
    if not isinstance(element, FakeSequence):
        return _made(run, one, _cat(run, source, values, element))
    if other.value is None:
        longer = values[0]
        for item in other:
            run.memory.put(element, run.fakes[item], source)
            longer = run.emit("sequence::insert", {"list": longer, "item": item, "index": None}, element, source)
        return _made(run, one, longer)
    size = run.emit("sequence::length", {"list": values[1]}, run.machine.unknown_size(), source)
    return _made(run, one, _gathered(run, source, values[0], values[1], element, size, (0, 1)))


def _extend(run: Recorder, source: Source, items: ScriptList, more: ScriptList) -> Any:
    touch(run, items, source)
    items.become(_joined(run, source, items, more))


def _gathered(
    run: Recorder, source: Source, start: Value, of: Value, element: Element, count: Any, places: tuple[Any, int]
) -> Value:
    """``start`` and then ``count`` elements of ``of``, at first + step * 0, 1, 2, ...; ``places`` is (first, step)."""
    first, stride = places
    with scope(run) as body:
        step, inner = run.value(run.machine.unknown_size()), run.value(element)
        offset = run.emit("aten::mul.int", {"a": step, "b": stride}, run.machine.unknown(int), source)
        index = run.emit("aten::add.int", {"a": offset, "b": first}, run.machine.unknown(int), source)
        item = run.emit("sequence::at", {"list": of, "index": index}, fresh(run, element), source)
        longer = run.emit("sequence::insert", {"list": inner, "item": item, "index": None}, element, source)
    result = run.value(element)
    args = {"most": count, "condition": True, "carried": [start]}
    run.add(Call("prim::Loop", args, [result], source, [Block(body.calls, [True, longer], [step, inner])]))
    return result


def _slice(run: Recorder, source: Source, items: ScriptList, start: Any = None, end: Any = None, step: int = 1) -> Any:
    value, element = dynamic(run, items, source)
    if not isinstance(element, FakeSequence):
        first, last = 0 if start is None else start, _END if end is None else end
        return _made(run, items, _range(run, source, value, first, last, step))
    size = run.emit("sequence::length", {"list": value}, run.machine.unknown_size(), source)
    first, last = (_bounded(run, source, place, size) for place in (0 if start is None else start, _last(end, size)))
    count = run.emit("aten::sub.int", {"a": last, "b": first}, run.machine.unknown(int), source)
    if step != 1:
        more = run.emit("aten::add.int", {"a": count, "b": step - 1}, run.machine.unknown(int), source)
        count = run.emit("aten::floordiv.int", {"a": more, "b": step}, run.machine.unknown(int), source)
    count = run.emit("prim::max.int", {"a": count, "b": 0}, run.machine.unknown_size(), source)
    empty = run.emit("sequence::construct", {"items": [], "dtype": element.element.dtype}, element, source)
    return _made(run, items, _gathered(run, source, empty, value, element, count, (first, step)))


def _last(end: Any, size: Value) -> Any:
    return size if end is None or (isinstance(end, int) and end >= _END) else end


def _bounded(run: Recorder, source: Source, place: Any, size: Value) -> Any:
    """A border of a slice as a position from 0 to ``size``."""
    if place is size:
        return size
    if isinstance(place, int) and place < 0:
        place = run.emit("aten::add.int", {"a": size, "b": place}, run.machine.unknown(int), source)
        return run.emit("prim::max.int", {"a": place, "b": 0}, run.machine.unknown_size(), source)
    if isinstance(place, Value):
        raise ExportError(
            f"at {source} a list is sliced at a position that depends on data; cut a tensor instead",
            code="list-of-unknown-length",
        )
    return run.emit("prim::min.int", {"a": size, "b": place}, run.machine.unknown_size(), source)


def _reverse(run: Recorder, source: Source, items: ScriptList) -> Any:
    value, element = dynamic(run, items, source)
    if not isinstance(element, FakeSequence):
        args = {"self": value, "dims": [0]}
        return _hold(run, source, items, run.emit("aten::flip", args, sequence_fake(run, element), source))
    size = run.emit("sequence::length", {"list": value}, run.machine.unknown_size(), source)
    last = run.emit("aten::sub.int", {"a": size, "b": 1}, run.machine.unknown(int), source)
    empty = run.emit("sequence::construct", {"items": [], "dtype": element.element.dtype}, element, source)
    return _hold(run, source, items, _gathered(run, source, empty, value, element, size, (last, -1)))


def _repeated(run: Recorder, source: Source, items: ScriptList, count: Any) -> Any:
    """``items * count``"""
    value, element = dynamic(run, items, source)
    if isinstance(element, FakeSequence):
        raise ExportError(
            f"at {source} a list of tensors is repeated as often as data says; use torch.Tensor.repeat",
            code="list-of-unknown-length",
        )
    times = run.record("prim::max.int", {"a": count, "b": 0}, source, int)
    args = {"self": value, "repeats": [times]}
    return _made(run, items, run.emit("aten::repeat", args, sequence_fake(run, element), source))


def _contains(run: Recorder, source: Source, items: ScriptList, wanted: Any) -> Any:
    value = _numbers(run, items, source)
    if isinstance(wanted, Value):
        wanted = run.to_tensor(wanted, source)
    name = "aten::eq.Tensor" if isinstance(wanted, Value) else "aten::eq.Scalar"
    equal = run.record(name, {"self": value, "other": wanted}, source)
    return run.to_number(bool, run.record("aten::any", {"self": equal}, source), source)


def _numbers(run: Recorder, items: ScriptList, source: Source) -> Value:
    value, element = dynamic(run, items, source)
    if isinstance(element, FakeSequence):
        raise ExportError(
            f"at {source} the script searches or sorts a list of tensors, whose length depends on data",
            code="list-of-unknown-length",
        )
    return value


def _reduced(name: str) -> Callable[..., Any]:
    def rule(run: Recorder, source: Source, items: ScriptList) -> Any:
        value = _numbers(run, items, source)
        args = {"self": value, "dtype": value.tensor.dtype} if name == "aten::sum" else {"self": value}
        kind = _KINDS[value.tensor.dtype]
        return run.to_number(kind, run.emit(name, args, torch.empty((), dtype=value.tensor.dtype), source), source)

    return rule


def _sorted(run: Recorder, source: Source, items: ScriptList) -> Any:
    value = _numbers(run, items, source)
    args = {"self": value, "dim": 0, "descending": False}
    outputs = [run.value(run.fakes[value]), run.value(torch.empty_like(run.fakes[value], dtype=torch.int64))]
    run.add(Call("aten::sort", args, outputs, source))
    return _made(run, items, outputs[0])


def _sort(run: Recorder, source: Source, items: ScriptList, reverse: bool = False) -> Any:
    _hold(run, source, items, _sorted(run, source, items).value)
    if reverse:
        _reverse(run, source, items)


def _stacked(run: Recorder, source: Source, items: ScriptList, dim: int = 0) -> Any:
    value, element = dynamic(run, items, source)
    sizes = list(fresh(run, element).shape)
    at = dim % (len(sizes) + 1)
    sizes.insert(at, run.machine.unknown_size())
    fake = torch.empty(sizes, dtype=element.element.dtype)
    return run.emit("sequence::stack", {"list": value, "dim": at}, fake, source)


def _concatenated(run: Recorder, source: Source, items: ScriptList, dim: int = 0) -> Any:
    value, element = dynamic(run, items, source)
    sizes = list(fresh(run, element).shape)
    at = dim % len(sizes)
    sizes[at] = run.machine.unknown_size()
    fake = torch.empty(sizes, dtype=element.element.dtype)
    return run.emit("sequence::cat", {"list": value, "dim": at}, fake, source)


def _unpacked(run: Recorder, source: Source, items: ScriptList, count: int) -> list[Any]:
    return [_at(run, source, items, index) for index in range(count)]


# Lists of tuples ------------------------------------------------------------------------------------------------------


def width_of(*operands: Any) -> int:
    """The number of parts of the tuples that a list holds, or that are put into it; 0 where there are no tuples."""
    for item in operands:
        if isinstance(item, ScriptList) and isinstance(item.value, Columns):
            return len(item.value.lists)
        first = next(iter(item), None) if isinstance(item, ScriptList) and item.value is None else item
        if isinstance(first, tuple):
            return len(first)
    return 0


def column(items: ScriptList, place: int) -> ScriptList:
    """The list of one part of the tuples."""
    if isinstance(items.value, Columns):
        return items.value.lists[place].clone()
    return ScriptList([item[place] for item in items])


def _by_columns(run: Recorder, kind: str, operands: list[Any], source: Source) -> Any:
    """An operator on a list of tuples: the same on the list of each part."""
    items, *rest = operands
    parts, results = [], []
    for place in range(width_of(*operands)):
        others = [_part(item, place) for item in rest]
        parts.append(run.own(column(items, place)))
        results.append(evaluate(run, kind, [parts[-1], *others], source))
    if kind in CHANGING:
        touch(run, items, source)
        items.become(ScriptList((), items.kind, Columns(tuple(parts))))
    if kind == "aten::len":
        return results[0]
    if kind in ("aten::__getitem__", "aten::pop"):
        return tuple(results)
    if kind == "prim::ListUnpack":
        return list(zip(*results, strict=True))
    return items if kind in CHANGING else run.own(ScriptList((), items.kind, Columns(tuple(results))))


def _part(item: Any, place: int) -> Any:
    if isinstance(item, ScriptList):
        return column(item, place)
    return item[place] if isinstance(item, tuple) else item


DYNAMIC: dict[str, Callable[..., Any]] = {
    "aten::len": _length,
    "aten::__getitem__": _at,
    "aten::append": _append,
    "aten::insert": _insert,
    "aten::extend": _extend,
    "aten::add_": _extend,
    "aten::pop": _pop,
    "aten::Delete": _delete,
    "aten::_set_item": _set_item,
    "aten::clear": _clear,
    "aten::copy": _copy,
    "aten::list": _copy,
    "aten::add": _joined,
    "aten::mul": _repeated,
    "aten::slice": _slice,
    "aten::reverse": _reverse,
    "aten::__contains__": _contains,
    "aten::sum": _reduced("aten::sum"),
    "prim::max": _reduced("aten::max"),
    "prim::min": _reduced("aten::min"),
    "aten::sorted": _sorted,
    "aten::sort": _sort,
    "aten::stack": _stacked,
    "aten::cat": _concatenated,
    "aten::concat": _concatenated,
    "prim::ListUnpack": _unpacked,
}
_OF_TUPLES = frozenset(
    {"aten::len", "aten::__getitem__", "aten::append", "aten::insert", "aten::extend", "aten::add_", "aten::pop"}
    | {"aten::Delete", "aten::_set_item", "aten::copy", "aten::list", "aten::add", "aten::slice", "aten::reverse"}
    | {"prim::ListUnpack"}
)
_TAKES_ALL = frozenset({"aten::tensor", "aten::as_tensor", "aten::__is__", "aten::__isnot__"})
_BY_NUMBER = frozenset(
    {"aten::__getitem__", "aten::insert", "aten::pop", "aten::Delete", "aten::_set_item", "aten::mul"}
)


def is_dynamic(kind: str, operands: list[Any]) -> bool:
    """True when an operator meets a list whose length, or at a position that, only the run knows."""
    first = operands[0] if operands else None
    if kind in _TAKES_ALL:
        return False
    if any(isinstance(item, ScriptList) and item.value is not None for item in operands):
        return True
    return kind in _BY_NUMBER and isinstance(first, ScriptList) and isinstance(operands[1:] and operands[1], Value)


def evaluate(run: Recorder, kind: str, operands: list[Any], source: Source) -> Any:
    """The result of an operator on such a list.  Raises ExportError where ONNX has no form of it."""
    rule = DYNAMIC.get(kind)
    if rule is not None and kind in _OF_TUPLES and width_of(*operands):
        return _by_columns(run, kind, operands, source)
    if rule is None or not isinstance(operands[0], ScriptList):
        raise ExportError(
            f"{kind} at {source} takes a list whose length depends on data, which has no form in ONNX; use torch.stack "
            "or torch.cat of it, or a list of known length",
            code="list-of-unknown-length",
        )
    return rule(run, source, *operands)
