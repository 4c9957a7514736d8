"""Rows of sequences and optionals.

The elements of a sequence have one type; a size in which they may differ is a symbol of its own.
"""

from __future__ import annotations

from proto_schema.inference.given import given, numbers
from proto_schema.inference.operators.control import joined
from proto_schema.inference.rows import row
from proto_schema.inference.site import Site
from proto_schema.inference.types import OptionalOf, SequenceOf, Tensor, Type, from_proto
from proto_schema.onnx import TensorProto
from proto_schema.sizes import Dim, symbol
from proto_schema.sizes.size import equals


def _plain(type_: Type | None) -> Type | None:
    """A type without the content, which the elements need not share."""
    return Tensor(type_.dtype, type_.shape) if isinstance(type_, Tensor) else type_


@row("SequenceEmpty")
def sequence_empty(site: Site) -> Type | None:
    """No elements, of a dtype."""
    return SequenceOf(Tensor(site.attribute("dtype", TensorProto.FLOAT)))


@row("SequenceConstruct")
def sequence_construct(site: Site) -> Type | None:
    """The inputs as elements."""
    found = _plain(site.type(0))
    for place in range(1, len(site.inputs)):
        found = joined(site, found, _plain(site.type(place)))
    return SequenceOf(found)


@row("SequenceAt")
def sequence_at(site: Site) -> Type | None:
    """One element."""
    given_ = site.type(0)
    return given_.element if isinstance(given_, SequenceOf) else None


@row("SequenceInsert")
def sequence_insert(site: Site) -> Type | None:
    """The sequence with an element more."""
    given_ = site.type(0)
    if not isinstance(given_, SequenceOf):
        return None
    return SequenceOf(joined(site, given_.element, _plain(site.type(1))))


@row("SequenceErase")
def sequence_erase(site: Site) -> Type | None:
    """The sequence with an element less."""
    return site.type(0)


@row("SequenceLength")
def sequence_length(site: Site) -> Type | None:
    """The number of elements."""
    return site.out(())


@row("ConcatFromSequence")
def concat_from_sequence(site: Site) -> Type | None:
    """The elements one after the other along an axis, or stacked on a new one."""
    given_ = site.type(0)
    element = given_.element if isinstance(given_, SequenceOf) else None
    if not isinstance(element, Tensor):
        return None
    if element.shape is None:
        return site.out(None, element.dtype)
    new = bool(site.attribute("new_axis", 0))
    axis = site.axis(site.attribute("axis", 0), len(element.shape) + new)
    rest = element.shape[axis:] if new else element.shape[axis + 1 :]
    return site.out((*element.shape[:axis], site.fresh(), *rest), element.dtype)


@row("SplitToSequence")
def split_to_sequence(site: Site) -> Type | None:
    """Parts along an axis: of size 1, of one size, of which the last may be smaller, or of the sizes that are given."""
    shape, dtype = site.shape(0), site.dtype(0)
    if shape is None:
        return SequenceOf(Tensor(dtype))
    axis = site.axis(site.attribute("axis", 0), len(shape))
    if not site.has(1):
        part: tuple[Dim, ...] = (1,) if site.attribute("keepdims", 1) else ()
    else:
        part = (_part(site, shape[axis]),)
    return SequenceOf(Tensor(dtype, (*shape[:axis], *part, *shape[axis + 1 :])))


def _part(site: Site, whole: Dim) -> Dim:
    sizes, shape = numbers(given(site, "split", 1)), site.shape(1)
    if not sizes or shape is None:
        return site.fresh()
    if min(sizes) < 0:
        site.fail(f"a part has size {min(sizes)}")
    if not shape and sizes[0] == 0:
        site.fail("a part has size 0, and where one number says the size of all parts it must be greater than zero")
    if shape:
        if equals(sum(sizes), whole) is False:
            site.fail(f"split has the sum {sum(sizes)}, and the axis has size {whole}")
        return sizes[0] if len(set(sizes)) == 1 else site.fresh()
    return sizes[0] if site.scope.equations.equals(whole % sizes[0], 0) else site.fresh()


# Optionals -----------------------------------------------------------------------------------------------------------


@row("Optional")
def optional(site: Site) -> Type | None:
    """The input, or nothing of a type."""
    if site.has(0):
        return OptionalOf(_plain(site.type(0)))
    type_ = site.attribute("type")
    return OptionalOf(from_proto(type_, lambda label: symbol(label) if label else site.fresh()))


@row("OptionalGetElement")
def optional_get_element(site: Site) -> Type | None:
    """What the optional holds; since opset 18 what is no optional stays as it is."""
    given_ = site.type(0)
    return given_.element if isinstance(given_, OptionalOf) else given_


@row("OptionalHasElement")
def optional_has_element(site: Site) -> Type | None:
    """Whether there is something; where the input is no optional, this is known."""
    type_ = site.type(0)
    known = not site.has(0) or (type_ is not None and not isinstance(type_, OptionalOf))
    return site.out((), content=(site.has(0),) if known else None)
