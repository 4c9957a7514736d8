"""Rows of operators with subgraphs: If, Loop, Scan, SequenceMap.

A value that differs between the branches of an If, or from one iteration to the next, keeps what both have in common; a
size in which they differ is a symbol of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from proto_schema.inference.rows import row
from proto_schema.inference.site import Outputs, Site
from proto_schema.inference.types import MapOf, OptionalOf, SequenceOf, Shape, Sparse, Tensor, Type
from proto_schema.onnx import TensorProto
from proto_schema.sizes import Dim


def joined(site: Site, one: Type | None, other: Type | None) -> Type | None:
    """What is known of a value that may be either of two."""
    if one is None or other is None or one == other:
        return one if one == other else None
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.dtype and other.dtype and one.dtype != other.dtype:
            site.fail(f"a value has data type {_dtype(one.dtype)} on one path and {_dtype(other.dtype)} on the other")
        return Tensor(one.dtype or other.dtype, _joined_shape(site, one.shape, other.shape))
    if isinstance(one, Sparse) and isinstance(other, Sparse):
        return Sparse(one.dtype or other.dtype, _joined_shape(site, one.shape, other.shape))
    if isinstance(one, SequenceOf) and isinstance(other, SequenceOf):
        return SequenceOf(joined(site, one.element, other.element))
    if isinstance(one, OptionalOf) and isinstance(other, OptionalOf):
        return OptionalOf(joined(site, one.element, other.element))
    if isinstance(one, MapOf) and isinstance(other, MapOf) and one.key == other.key:
        return MapOf(one.key, joined(site, one.value, other.value))
    if isinstance(one, OptionalOf) or isinstance(other, OptionalOf):
        return one if isinstance(one, OptionalOf) else other  # an optional may become its value
    return site.fail("a value is of one kind of type on one path and of another on the other")


def _joined_shape(site: Site, one: Shape, other: Shape) -> Shape:
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple([a if a == b else site.fresh() for a, b in zip(one, other, strict=True)])


def _dtype(code: int) -> str:
    return TensorProto.DataType(code).name if code in TensorProto.DataType._value2member_map_ else str(code)


def body_of(
    site: Site, name: str, given: Sequence[Type | None], *, last: bool = True, runs: bool = True
) -> list[Type | None]:
    """The types of the outputs of a subgraph, none where it is not there.

    `last`: no other try follows.  `runs`: it may run; the nodes of one that never does may contradict each other.
    """
    graph = site.attribute(name)
    return [] if graph is None or site.body is None else site.body(graph, given, last, runs)


@row("If")
def either(site: Site) -> Outputs:
    """What the branches have in common; of a condition that is known, the branch that is taken."""
    condition = (site.content(0) or (None,))[0]
    branches = [
        body_of(site, name, (), runs=condition is not other)
        for name, other in (("then_branch", False), ("else_branch", True))
    ]
    if isinstance(condition, bool):
        return branches[0 if condition else 1]
    return [joined(site, one, other) for one, other in zip(*branches, strict=False)]


@row("Loop")
def loop(site: Site) -> Outputs:
    """The carried values, then what each iteration gives, stacked."""
    known = [Tensor(TensorProto.INT64, ()), Tensor(TensorProto.BOOL, ())]
    carried, made = _settled(site, known, [site.type(place) for place in range(2, len(site.inputs))], [], skipped=1)
    # an optional that the body turns into its value comes out as that
    final = [
        after if isinstance(before, OptionalOf) and after is not None else before
        for before, after in zip(carried, made[1:], strict=False)
    ]
    return [*final, *[_stacked(item, site.fresh()) for item in made[1 + len(carried) :]]]


@row("Scan")
def scan(site: Site) -> Outputs:
    """The carried values, then one row of each iteration, stacked; opset 8 has lengths and a batch axis before it."""
    batched = site.version < 9
    first = 1 if batched else 0
    rows = int(site.attribute("num_scan_inputs", 0))
    count = len(site.inputs) - first - rows
    if count < 0:
        site.fail(f"num_scan_inputs is {rows}, and there are {len(site.inputs) - first} inputs")
    if count > site.outputs:
        site.fail(f"there are {count} loop state variables, and {site.outputs} outputs")
    inputs = [site.type(place) for place in range(first, len(site.inputs))]
    axes = [1] * rows if batched else list(site.attribute("scan_input_axes") or [0] * rows)
    length: Dim | None = None
    given: list[Type | None] = []
    for item, axis in zip(inputs[count:], axes, strict=False):
        if not isinstance(item, Tensor) or item.shape is None:
            given.append(Tensor(item.dtype) if isinstance(item, Tensor) else None)
            continue
        place = site.axis(axis, len(item.shape))
        size = item.shape[place]
        length = size if length is None else site.same(length, size, "the lengths of what is scanned")
        left = [size for other, size in enumerate(item.shape) if other != place and not (batched and other == 0)]
        given.append(Tensor(item.dtype, tuple(left)))
    starts = [_rowless(item) if batched else item for item in inputs[:count]]
    carried, made = _settled(site, [], starts, given, skipped=0)
    length = site.fresh() if length is None else length
    outputs = made[count:]
    places = list(site.attribute("scan_output_axes") or [0] * len(outputs))
    stacked = []
    for item, place in zip(outputs, places, strict=False):
        rank = None if not isinstance(item, Tensor) or item.shape is None else len(item.shape) + 1
        stacked.append(_stacked(item, length, 0 if rank is None else site.axis(place, rank)))
    if batched:
        first_shape = inputs[0].shape if inputs and isinstance(inputs[0], Tensor) else None
        batch = first_shape[0] if first_shape else site.fresh()
        return [_stacked(item, batch) for item in (*carried, *stacked)]
    return [*carried, *stacked]


@row("SequenceMap")
def sequence_map(site: Site) -> Outputs:
    """The body on each element of the sequences; other inputs are given as they are."""
    given = []
    for place in range(len(site.inputs)):
        item = site.type(place)
        given.append(item.element if isinstance(item, SequenceOf) else item)
    return [SequenceOf(item) for item in body_of(site, "body", given)]


def _settled(
    site: Site,
    before: Sequence[Type | None],
    carried: Sequence[Type | None],
    after: Sequence[Type | None],
    skipped: int,
) -> tuple[list[Type | None], list[Type | None]]:
    """The types of carried values that hold in each iteration, and what the body makes of them.

    A size that an iteration changes becomes a symbol, and the body is tried again, until none changes any more.
    """
    found = [_plain(item) for item in carried]
    loose: list[set[int]] = [set() for _ in found]
    for _ in range(2 + sum(len(item.shape or ()) + 1 for item in found if isinstance(item, Tensor))):
        made = body_of(site, "body", [*before, *found, *after], last=False)
        if len(made) < skipped + len(found):
            break
        changed = [_loosened(site, item, made[skipped + place], loose[place]) for place, item in enumerate(found)]
        if changed == found:
            break
        found = changed
    made = body_of(site, "body", [*before, *found, *after])
    return found, made


def _loosened(site: Site, given: Type | None, made: Type | None, loose: set[int]) -> Type | None:
    """What `given` and `made` have in common; `loose` has the axes that are symbols already, for any size."""
    if not isinstance(given, Tensor) or not isinstance(made, Tensor):
        return given if given == made else joined(site, given, made)
    if given.dtype and made.dtype and given.dtype != made.dtype:
        site.fail(f"a carried value is {_dtype(given.dtype)} at first, and {_dtype(made.dtype)} after an iteration")
    if given.shape is None or made.shape is None or len(given.shape) != len(made.shape):
        return Tensor(given.dtype or made.dtype)
    shape = list(given.shape)
    for axis, (one, other) in enumerate(zip(given.shape, made.shape, strict=True)):
        if one != other and axis not in loose:
            loose.add(axis)
            shape[axis] = site.fresh()
    return Tensor(given.dtype or made.dtype, tuple(shape))


def _plain(item: Type | None) -> Type | None:
    """A type without the content, which the iterations change."""
    return Tensor(item.dtype, item.shape) if isinstance(item, Tensor) else item


def _rowless(item: Type | None) -> Type | None:
    """One row of a batch."""
    if not isinstance(item, Tensor):
        return item
    return Tensor(item.dtype, item.shape[1:] if item.shape else None)


def _stacked(item: Type | None, length: Dim, axis: int = 0) -> Type | None:
    if not isinstance(item, Tensor):
        return None
    if item.shape is None:
        return Tensor(item.dtype)
    return Tensor(item.dtype, (*item.shape[:axis], length, *item.shape[axis:]))
