"""Lists whose length is known only at run time: the common type of their elements, and the value that holds them.

In the graph a list of tensors is a sequence, and a list of numbers is a tensor of one dimension.  A list of tuples is
one list for each position in the tuples (`Columns`).  Invariant: elements agree in dtype and rank.  Sizes in which they
differ become unbacked.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.aten.graph import AtenValue, SequenceType, Source
from purexport.errors import ExportError
from purexport.frontends.script.conversions import literal
from purexport.frontends.script.kinds import NUMBER_DTYPES, kind_of, number_kind
from purexport.frontends.script.recorder import ScriptRecorder
from purexport.frontends.script.values import Columns, FakeSequence, ScriptList

# what every element is like: a FakeSequence for tensors, a number's type, a tuple of those; None for an empty list
Element = Any
KIND_OF_DTYPE = {dtype: kind for kind, dtype in NUMBER_DTYPES.items()}


def element_of(machine: ScriptRecorder, items: ScriptList, source: Source) -> Element:
    """The common type of the elements of a list.  Raises ExportError where ONNX cannot express it."""
    if isinstance(items.value, Columns):
        return tuple(element_of(machine, part, source) for part in items.value.lists)
    if items.value is not None:
        if isinstance(items.value.type, SequenceType):
            return machine.fakes[items.value]
        return KIND_OF_DTYPE[items.value.tensor.dtype]
    found: Element = None
    for item in items:
        found = joined_elements(machine, found, element_of_item(machine, item, source), source)
    return found


def element_of_item(machine: ScriptRecorder, item: Any, source: Source) -> Element:
    """The type of one element.  Raises ExportError where ONNX cannot express it."""
    if number_kind(item) is not None:
        return number_kind(item)
    if isinstance(item, tuple):
        return tuple(element_of_item(machine, part, source) for part in item)
    if kind_of(item) is None:
        raise ExportError(
            f"at {source} a list whose length or index depends on data holds {machine.describe(item)}; in ONNX such a "
            "list holds tensors, numbers or tuples of them",
            code="list-of-unknown-length",
        )
    return FakeSequence(machine.fakes[item])


def joined_elements(machine: ScriptRecorder, one: Element, other: Element, source: Source) -> Element:
    """The common type of two types of elements."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(joined_elements(machine, mine, theirs, source) for mine, theirs in zip(one, other, strict=True))
    if not isinstance(one, FakeSequence) or not isinstance(other, FakeSequence):
        if one is not other or isinstance(one, tuple):
            raise _mixed(machine, one, other, source)
        return one
    mine, theirs = one.element, other.element
    if mine.dtype is not theirs.dtype or mine.dim() != theirs.dim():
        raise _mixed(machine, one, other, source)
    free = one.free | other.free
    wider = machine.shapes.joined(mine, theirs, free)
    new = {str(b) for a, b in zip(mine.shape, wider.shape, strict=True) if str(a) != str(b)}
    machine.aliasing.share(mine, theirs)
    machine.aliasing.share(wider, mine)
    return FakeSequence(wider, free | new) if new else FakeSequence(mine, free)


def _mixed(machine: ScriptRecorder, one: Element, other: Element, source: Source) -> ExportError:
    texts = [_text(machine, element) for element in (one, other)]
    return ExportError(
        f"at {source} a list whose length or index depends on data holds {texts[0]} and {texts[1]}, and the elements "
        "of a list in ONNX agree in dtype and rank",
        code="list-of-unknown-length",
    )


def _text(machine: ScriptRecorder, element: Element) -> str:
    if isinstance(element, FakeSequence):
        return f"a tensor {machine.shapes.type(element.element)}"
    return "a tuple" if isinstance(element, tuple) else f"a number ({element.__name__})"


def sequence_fake(machine: ScriptRecorder, element: Element) -> Any:
    """The fake of a list of such elements, with a new unbacked length."""
    if isinstance(element, FakeSequence):
        return element
    return torch.empty([machine.shapes.unknown_size()], dtype=NUMBER_DTYPES[element])


def as_dynamic(machine: ScriptRecorder, items: ScriptList, element: Element, source: Source) -> AtenValue:
    """The value of the graph that holds a list, which may be known."""
    if isinstance(items.value, AtenValue):
        return items.value
    if isinstance(element, tuple):
        raise ExportError(
            f"at {source} a list of tuples, whose length depends on data, is used as a whole",
            code="list-of-unknown-length",
        )
    if isinstance(element, FakeSequence):
        args = {"items": list(items), "dtype": element.element.dtype}
        for item in items:
            machine.aliasing.put(element, machine.fakes[item], source)
        return machine.emit("sequence::construct", args, element, source)
    return literal(machine, list(items), NUMBER_DTYPES[element], source)


def dynamic(
    machine: ScriptRecorder, items: ScriptList, source: Source, like: Element = None
) -> tuple[AtenValue, Element]:
    """A list as a value, and the type of its elements; `like` is an item that will be put into the list."""
    element = joined_elements(machine, element_of(machine, items, source), like, source)
    if element is None:
        raise ExportError(
            f"at {source} a list is empty, and an index into it depends on data", code="list-of-unknown-length"
        )
    return as_dynamic(machine, items, element, source), element


def fresh(machine: ScriptRecorder, element: FakeSequence) -> torch.Tensor:
    """The fake of one element, with new unbacked sizes where elements may differ."""
    sizes = [machine.shapes.unknown_size() if str(size) in element.free else size for size in element.element.shape]
    return torch.empty(sizes, dtype=element.element.dtype)


def width_of(*operands: Any) -> int:
    """The length of the tuples that are in a list, or that are put into it; 0 where there are no tuples."""
    for item in operands:
        if isinstance(item, ScriptList) and isinstance(item.value, Columns):
            return len(item.value.lists)
        first = next(iter(item), None) if isinstance(item, ScriptList) and item.value is None else item
        if isinstance(first, tuple):
            return len(first)
    return 0


def column(items: ScriptList, place: int) -> ScriptList:
    """The list of the items at one position of the tuples."""
    if isinstance(items.value, Columns):
        return items.value.lists[place].clone()
    return ScriptList([item[place] for item in items])
