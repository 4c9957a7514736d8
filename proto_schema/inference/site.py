"""`Site`: what a row of the table sees of one node, whether that comes from a message or is just being made.

A row reads inputs and attributes, and returns the types of the outputs, made by `out`.  It asks `same` where two sizes
must be equal, which may learn an equation, and `fresh` for a size of which nothing is known.  What contradicts the
operator's specification goes to `fail`.  The dtype of an output follows from the type constraints of the operator's
version wherever these say it (`bound`), so most rows give a shape only.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn, TypeAlias

from proto_schema import operators
from proto_schema.inference.types import (
    MOST,
    Content,
    Element,
    OptionalOf,
    SequenceOf,
    Shape,
    Sparse,
    Tensor,
    Type,
    text_of,
)
from proto_schema.onnx import AttributeProto, GraphProto, SparseTensorProto, TensorProto, TypeProto
from proto_schema.operators import UNBOUNDED, Occurrence, OpSchema
from proto_schema.sizes import ContradictionError, Dim, Equations, Size, minimum, symbol
from proto_schema.sizes.size import LARGEST as FURTHEST
from proto_schema.sizes.size import equals, less

Outputs: TypeAlias = "list[Type | None]"
Body = Callable[[Any, "Sequence[Type | None]", bool, bool], "list[Type | None]"]
"""Infers the graph of an attribute for the types of its inputs, and gives the types of its outputs.

The third argument is False for a try, after which nothing may be declared of the values inside; the last one is False
for a graph that never runs, whose contradictions are none of the model.
"""


class Misfit(Exception):  # noqa: N818 - never leaves the package
    """The inputs or attributes of a node contradict its specification."""


class Scope:
    """What the nodes of one graph share: the equations that were learnt, and fresh symbols."""

    def __init__(self, prefix: str = "unk__") -> None:
        self.equations = Equations()
        self.prefix = prefix
        self.taken: set[str] = set()
        self._counts = [0]  # shared with the scopes inside, as the others are

    @property
    def count(self) -> int:
        """How many fresh sizes there are by now."""
        return self._counts[0]

    def inside(self) -> Scope:
        """The scope of a body: it knows what was learnt until now, and what it learns does not hold outside."""
        made = copy.copy(self)
        made.equations = self.equations.copy()
        return made

    def learn(self, one: Dim, other: Dim) -> None:
        """The two sizes are equal from now on.  Raises ContradictionError where they cannot be."""
        self.equations.learn(one, other)

    def meet(self, sizes: Sequence[Dim]) -> Dim:
        """The size of a result whose operands broadcast from these, of which none is known to be 1 or to be equal.

        A number among them wins, because the others are 1 or that number.
        """
        number = next((size for size in sizes if isinstance(size, int)), None)
        return self.fresh() if number is None else number

    def fresh(self) -> Size:
        """A size of which nothing is known, with a name that no other has."""
        name = f"{self.prefix}{self._counts[0]}"
        self._counts[0] += 1
        return self.fresh() if name in self.taken else symbol(name)


class Site(Occurrence):
    """One node: its operator's version, its inputs and attributes."""

    __slots__ = ("attributes", "body", "inputs", "outputs", "schema", "scope")

    def __init__(
        self,
        schema: OpSchema,
        inputs: Sequence[Type | None],
        attributes: Mapping[str, Any],
        outputs: int,
        scope: Scope,
        body: Body | None = None,
    ) -> None:
        """`inputs`: `ABSENT` for one that the node leaves out, None for one of which nothing is known.

        `attributes` holds Python values: numbers, bytes, lists, TensorProto, GraphProto, TypeProto.
        """
        self.schema = schema
        self.inputs = inputs
        self.attributes = attributes
        self.outputs = outputs
        self.scope = scope
        self.body = body

    # -- inputs

    def has(self, place: int) -> bool:
        """Whether the node has that input."""
        return place < len(self.inputs) and self.inputs[place] is not ABSENT

    def type(self, place: int) -> Type | None:
        """The type of an input; None where it is absent or not known."""
        found = self.inputs[place] if place < len(self.inputs) else None
        return None if found is ABSENT else found

    def tensor(self, place: int) -> Tensor:
        """An input that is a tensor; one of which nothing is known where it is not known or is no tensor."""
        found = self.inputs[place] if place < len(self.inputs) else None
        return found if isinstance(found, Tensor) else UNKNOWN

    def dtype(self, place: int) -> int:
        """The dtype of an input, 0 where it is not known."""
        return self.tensor(place).dtype

    def shape(self, place: int) -> Shape:
        """The shape of an input, None where its rank is not known."""
        found = self.inputs[place] if place < len(self.inputs) else None
        return found.shape if isinstance(found, (Tensor, Sparse)) else None

    def rank(self, place: int) -> int | None:
        """The rank of an input."""
        shape = self.shape(place)
        return None if shape is None else len(shape)

    def shape_of_rank(self, place: int, rank: int) -> Shape:
        """The shape of an input that must have that rank."""
        shape = self.shape(place)
        if shape is not None and len(shape) != rank:
            self.fail(f"{self._named(place)} has rank {len(shape)}, and {self.schema.name} takes rank {rank}")
        return shape

    def content(self, place: int) -> Content:
        """The elements of an input, as far as they are known; None where nothing is."""
        found = self.inputs[place] if place < len(self.inputs) else None
        return found.content if isinstance(found, Tensor) else None

    def sizes(self, place: int) -> tuple[Dim, ...] | None:
        """The elements of an integer input where each is known, at least as a size; else None."""
        content = self.content(place)
        if content is None:
            return None
        found = tuple([item for item in content if isinstance(item, (int, Size))])
        return found if len(found) == len(content) else None

    def ints(self, place: int) -> tuple[int, ...] | None:
        """The elements of an integer input where all are numbers; else None."""
        content = self.content(place)
        if content is None:
            return None
        found = tuple([item for item in content if isinstance(item, int)])
        return found if len(found) == len(content) else None

    def floats(self, place: int) -> tuple[float, ...] | None:
        """The elements of a floating-point input where all are numbers; else None."""
        content = self.content(place)
        if content is None:
            return None
        found = tuple([float(item) for item in content if isinstance(item, (int, float))])
        return found if len(found) == len(content) else None

    # -- attributes

    def axis(self, value: int, rank: int, *, past_end: bool = False) -> int:
        """An axis counted from the front.  With `past_end`, the rank itself is an axis too."""
        if not -rank <= value < rank + past_end:
            self.fail(f"axis {value} is out of range for rank {rank}")
        return value + rank if value < 0 else value

    def axes(self, values: Sequence[int], rank: int) -> list[int]:
        """Axes counted from the front, none twice."""
        found = [self.axis(value, rank) for value in values]
        if len(set(found)) != len(found):
            self.fail(f"axes {list(values)} name an axis twice")
        return found

    # -- outputs

    def out(self, shape: Shape, dtype: int = 0, content: Content = None) -> Tensor:
        """An output that is a tensor.  Without `dtype`, the operator's type constraints say it."""
        if content is not None:
            content = None if len(content) > MOST else _followed(content)
        for size in shape or ():
            if size.__class__ is int and size > LARGEST:
                self.fail(f"the size {size} of an output overflows int64")
        return Tensor(dtype, shape, content)

    def fresh(self) -> Size:
        """A size of which nothing is known."""
        return self.scope.fresh()

    def unknown(self, rank: int) -> tuple[Dim, ...]:
        """A shape of that rank of which nothing is known."""
        return tuple([self.scope.fresh() for _ in range(rank)])

    # -- sizes

    def same(self, one: Dim, other: Dim, what: str) -> Dim:
        """The size that both must be; a number where one is.  `what` names them in the error."""
        if one == other:
            return one
        if equals(one, other) is False:
            self.fail(f"{what} must be equal, and are {one} and {other}")
        # equations contradict where a label stands for several sizes, and runtimes do not look at labels
        with suppress(ContradictionError):
            self.scope.learn(one, other)
        return one if isinstance(one, int) else other if isinstance(other, int) else one

    def broadcast(self, *shapes: Shape) -> Shape:
        """The common shape of operands (https://onnx.ai/onnx/repo-docs/Broadcasting.html); None for an unknown rank."""
        known = [shape for shape in shapes if shape is not None]
        if len(known) != len(shapes):
            return None
        first = known[0]
        if all(shape == first for shape in known):
            return first
        rank = max(map(len, known))
        padded = [(1,) * (rank - len(shape)) + shape for shape in known]
        return tuple([self._broadcast(sizes) for sizes in zip(*padded, strict=True)])

    def _broadcast(self, sizes: Sequence[Dim]) -> Dim:
        wide = [size for size in sizes if size.__class__ is not int or size != 1]
        if len(wide) < 2:
            return wide[0] if wide else 1
        if len(wide) == 2 and wide[0] == wide[1]:
            return wide[0]
        numbers = {size for size in wide if isinstance(size, int)}
        if len(numbers) > 1:
            self.fail(f"sizes {sorted(numbers)} do not broadcast")
        equations = self.scope.equations
        if all(equations.equals(wide[0], size) for size in wide[1:]):
            return next(iter(numbers), wide[0])
        if not numbers:
            for size in wide:
                if all(size == other or self._covers(size, other) for other in wide):
                    return size
        return self.scope.meet(wide)

    def _covers(self, one: Dim, other: Dim) -> bool:
        """Whether two sizes can only broadcast to the first: it is never the smaller one, and the other is not 0 alone.

        So it is with `seq` and `min(seq, 512)`.
        """
        resolved = self.scope.equations.resolved
        one, other = resolved(one), resolved(other)
        return less(one, other) is False and minimum(one, 1) == minimum(other, 1)

    # -- errors

    def fail(self, reason: str) -> NoReturn:
        """Refuse the node."""
        raise Misfit(reason)

    def _named(self, place: int) -> str:
        formals = self.schema.inputs
        return f"input {formals[min(place, len(formals) - 1)].name!r}" if formals else f"input {place}"


def _followed(content: Sequence[Element]) -> Content:
    """The elements without numbers of so many digits that no size comes of them: each node may double the digits."""
    if any(item.__class__ is int and not -FURTHEST < item < FURTHEST for item in content):
        content = [None if isinstance(item, int) and not -FURTHEST < item < FURTHEST else item for item in content]
    return tuple(content) if any(item is not None for item in content) else None


ABSENT: Any = OptionalOf(None)
"""Stands for an input that the node leaves out."""
UNKNOWN = Tensor(0)
LARGEST = 2**63 - 1
"""A size is an int64 in a file."""


def check_inputs(site: Site) -> None:
    """Raises Misfit for an input of a type that the operator's version does not take, or not beside the others."""
    schema = site.schema
    bound: dict[str, str] = {}
    for place, given in enumerate(site.inputs):
        text = None if given is ABSENT else text_of(given)
        if text is None or not schema.inputs:
            continue
        formal = schema.inputs[min(place, len(schema.inputs) - 1)]
        allowed = schema.constraints.get(formal.type, (formal.type,))
        if text not in allowed and text not in map(_spelled, allowed):
            site.fail(f"input {formal.name!r} is {text}, which {schema.name} does not take")
        if formal.homogeneous and bound.setdefault(formal.type, text) != text:
            site.fail(f"input {formal.name!r} is {text}, and another of type {formal.type} is {bound[formal.type]}")


def check_form(site: Site) -> None:
    """Raises Misfit for a number of inputs, or a type of an attribute, that the operator's version does not take."""
    reason = misform(site.schema, len(site.inputs), site.attributes)
    if reason:
        site.fail(reason)


def misform(schema: OpSchema, count: int, attributes: Mapping[str, Any]) -> str:
    """Why a node with so many inputs and these attributes is none of that version of the operator; "" if it is."""
    if not schema.min_input <= count <= schema.max_input:
        least, most = schema.min_input, schema.max_input
        taken = f"{least}" if least == most else f"{least} or more" if most >= UNBOUNDED else f"{least} to {most}"
        return f"there are {count} inputs, and {schema.name} takes {taken}"
    for name, value in attributes.items():
        declared = schema.attributes.get(name)
        if declared is None or declared.type not in _NOT:
            continue
        first = value[0] if value.__class__ is list and value else None
        if isinstance(value, _NOT[declared.type]) or isinstance(first, _NOT_IN.get(declared.type, ())):
            return f"attribute {name!r} is of another type than {schema.name} takes"
    return ""


_ONE, _TEXT, _LIST = (int, float), (bytes, str), (list, tuple)
_PROTOS = (TensorProto, GraphProto, SparseTensorProto, TypeProto)
_NOT: dict[int, tuple[type, ...]] = {
    AttributeProto.FLOAT: (*_TEXT, *_LIST, *_PROTOS),
    AttributeProto.INT: (float, *_TEXT, *_LIST, *_PROTOS),
    AttributeProto.STRING: (*_ONE, *_LIST, *_PROTOS),
    AttributeProto.FLOATS: (*_ONE, *_TEXT, *_PROTOS),
    AttributeProto.INTS: (*_ONE, *_TEXT, *_PROTOS),
    AttributeProto.STRINGS: (*_ONE, *_TEXT, *_PROTOS),
    AttributeProto.TENSOR: (*_ONE, *_TEXT, *_LIST, GraphProto, SparseTensorProto, TypeProto),
    AttributeProto.SPARSE_TENSOR: (*_ONE, *_TEXT, *_LIST, GraphProto, TensorProto, TypeProto),
    AttributeProto.GRAPH: (*_ONE, *_TEXT, *_LIST, TensorProto, SparseTensorProto, TypeProto),
    AttributeProto.TYPE_PROTO: (*_ONE, *_TEXT, *_LIST, TensorProto, GraphProto, SparseTensorProto),
}
_NOT = {code: (*kinds, type(None)) for code, kinds in _NOT.items()}
_NOT_IN: dict[int, tuple[type, ...]] = {
    AttributeProto.FLOATS: (*_TEXT, *_PROTOS),
    AttributeProto.INTS: (float, *_TEXT, *_PROTOS),
    AttributeProto.STRINGS: (*_ONE, *_PROTOS),
}
"""The kinds of values that an attribute of a type is not, or has not in its list."""


def _spelled(text: str) -> str:
    """`map(int64, float)` of the schemas is `map(int64,tensor(float))`."""
    return text.replace(", ", ",")


# The dtypes that follow from the type constraints --------------------------------------------------------------------


def completed(site: Site, made: Type | None, place: int) -> Type | None:
    """An output as its row gave it, with the dtype that the operator's version says."""
    if isinstance(made, Tensor) and made.dtype:
        return made
    if made is not None and not isinstance(made, Tensor):
        return made
    schema = site.schema
    dtype, sources = _origins(schema.domain, schema.name, schema.since_version)[min(place, len(schema.outputs) - 1)]
    for index, variadic in () if dtype else sources:
        for given in site.inputs[index:] if variadic else site.inputs[index : index + 1]:
            if isinstance(given, Tensor) and given.dtype:
                dtype = given.dtype
                break
            if made is None and isinstance(given, (SequenceOf, Sparse)) and given is not ABSENT:
                return None  # the row says what becomes of them
        if dtype:
            break
    if made is None:
        return Tensor(dtype) if dtype else None
    return Tensor(dtype, made.shape, made.content)


@cache
def _origins(domain: str, name: str, version: int) -> tuple[tuple[int, tuple[tuple[int, bool], ...]], ...]:
    """For each output: its dtype where the schema fixes it, else the inputs that have it (place, whether variadic)."""
    schema = operators.schema(name, version, domain)
    found = []
    for output in schema.outputs if schema is not None else ():
        allowed = schema.constraints.get(output.type, (output.type,)) if schema is not None else ()
        places = tuple(
            (place, formal.option == "variadic")
            for place, formal in enumerate(schema.inputs if schema is not None else ())
            if formal.type == output.type and formal.homogeneous
        )
        found.append((_code(next(iter(allowed))) if len(allowed) == 1 else 0, places))
    return tuple(found)


def _code(text: str) -> int:
    """The dtype of `tensor(float)`; 0 for what is no tensor."""
    name = text[len("tensor(") : -1].upper() if text.startswith("tensor(") else ""
    return int(TensorProto.DataType[name]) if name else 0
