"""A model's bytes with some fields changed: new bytes for these and for the lengths around them, ranges for the rest.

Strategy: the field table guides the walk, which goes down only to places where a change can be. Small messages are
first searched for the names as plain bytes. A renamed value is followed by scope: a subgraph sees the names of the
graphs around it unless it has its own, and a function sees only its own.
Invariants: all other fields keep their bytes, unknown fields and odd encodings included, and a file in canonical form
stays in it. Nothing is renamed to a name that is already taken, in its scope or in one around or below that uses it.
The bytes must decode: a model that does not is refused earlier.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from proto_schema.external.payload import went_past
from proto_schema.graphs.names import as_text
from proto_schema.onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    ShardingSpecProto,
    SimpleShardedDimProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorAnnotation,
    TensorProto,
    TensorShapeProto,
    ValueInfoProto,
)
from proto_schema.wire import LEN, MAX_LENGTH, Span, varint, walk
from proto_schema.wire.fields import MESSAGE, Field, Message, field_of, message_class, reachable
from purexport.inspect.elements import accepts

Piece: TypeAlias = "tuple[int, int] | bytes"
"""Bytes `start` to `stop` of the source, or new ones."""

VALUE, NODE, DIM = "value", "node", "dim"

NAMES = {
    (NodeProto, "input"): VALUE,
    (NodeProto, "output"): VALUE,
    (ValueInfoProto, "name"): VALUE,
    (TensorProto, "name"): VALUE,
    (FunctionProto, "input"): VALUE,
    (FunctionProto, "output"): VALUE,
    (TensorAnnotation, "tensor_name"): VALUE,
    (StringStringEntryProto, "value"): VALUE,  # of quant_parameter_tensor_names
    (ShardingSpecProto, "tensor_name"): VALUE,
    (NodeProto, "name"): NODE,
    (TensorShapeProto.Dimension, "dim_param"): DIM,
    (SimpleShardedDimProto, "dim_param"): DIM,
}
"""Where names stand, and of what."""

_NO_VALUES_BELOW = {
    *((AttributeProto, name) for name in ("t", "tensors", "sparse_tensor", "sparse_tensors")),
    (SparseTensorProto, "indices"),
    (TensorProto, "external_data"),
    (ModelProto, "training_info"),
}
"""Messages in which the same fields hold no name of a value. Metadata is another, wherever it stands."""

_DEFINITIONS = {
    GraphProto: (
        ("input", "name"),
        ("initializer", "name"),
        ("sparse_initializer", "values", "name"),
        ("node", "output"),
    ),
    FunctionProto: (("input",), ("node", "output")),
}
"""Which fields bring a value's name into being, by what is a scope."""

_SMALL = 4096  # a message up to this size is searched for names before it is walked through
_FEW = 16  # up to so many names: the search for each of them is a pass of its own
_EXPRESSION = re.compile(rb"(?=.*[-+*/%(])[\w\s.,+*/%()^-]+")
_TWO_WORDS = re.compile(rb"\w\s+\w")
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*")


@dataclass
class Orders:
    """What to change. A message is known by the offset of its body (0: the model), a field by that of its tag.

    `records`: by message and field number the one record that the field has from now on, None for none. `added`:
    further records of repeated fields. `dropped`: fields to leave out. `names`: old ones to new ones, by what they are
    of, as bytes. `node_names`: names that records give to nodes, so that no other node may have them.
    """

    records: dict[int, dict[int, bytes | None]] = field(default_factory=dict)
    added: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    names: dict[str, dict[bytes, bytes]] = field(default_factory=lambda: {VALUE: {}, NODE: {}, DIM: {}})
    node_names: set[bytes] = field(default_factory=set)
    no_doc_strings: bool = False

    @property
    def places(self) -> list[int]:
        """The offsets at which a change is ordered."""
        return sorted({*self.records, *self.added, *self.dropped})


@dataclass
class _Scope:
    """A graph or function: the names defined in it before and after, and which of them are renamed to what."""

    outer: _Scope | None = None
    before: set[bytes] = field(default_factory=set)
    after: set[bytes] = field(default_factory=set)
    own: dict[bytes, bytes] = field(default_factory=dict)

    def sees(self, name: bytes) -> bool:
        """Whether a value is called so from now on, here or further out."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.after:
                return True
            scope = scope.outer
        return False

    def new(self, name: bytes) -> bytes | None:
        """What the value of that name is called from now on; None for the same as before."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.before:
                return scope.own.get(name)
            scope = scope.outer
        return None


_NOWHERE = _Scope()


class Rewriter:
    """One pass over a model's bytes. `renamed` counts fields by (kind of name, old name), `doc_strings` fields.

    `values` are the names that the main graph defines.
    """

    def __init__(self, view: memoryview, orders: Orders, values: set[bytes]) -> None:
        self.view = view
        self.orders = orders
        self.renamed: dict[tuple[str, bytes], Counter[str]] = defaultdict(Counter)
        self.doc_strings: Counter[str] = Counter()
        self._places = orders.places
        # a name that the main graph does not define is renamed where a subgraph or function defines it
        self._inner = {old: new for old, new in orders.names[VALUE].items() if old not in values}
        self._fresh = {kind: set(names.values()) - set(names) for kind, names in orders.names.items()}
        self._fresh[NODE] |= orders.node_names
        self._old = {new: old for old, new in orders.names[VALUE].items()}
        self._main = self._entered(values, orders.names[VALUE], None)
        needles = [name for names in orders.names.values() for pair in names.items() for name in pair]
        needles += orders.node_names
        self._needles = needles if len(needles) <= _FEW else None
        active = {cls for (cls, _), kind in NAMES.items() if orders.names[kind] or self._fresh[kind]}
        if orders.no_doc_strings:
            active |= {cls for cls in reachable(ModelProto) if field_of(cls, "doc_string")}
        self._classes = {cls for cls in reachable(ModelProto) if reachable(cls) & active}

    def pieces(self) -> list[Piece]:
        """The new bytes of the whole file. ValueError if a name is already taken, or the result is too large."""
        whole = len(self.view)
        return self._message(ModelProto, 0, whole, _NOWHERE) or [(0, whole)]

    # Messages ---------------------------------------------------------------------------------------------------------

    def _message(self, cls: type[Message], body: int, stop: int, scope: _Scope) -> list[Piece] | None:
        """The new value of a message; None if nothing in it changes."""
        spans = list(_walk(self.view, body, stop))
        table = {row.number: row for row in cls.FIELDS}
        records = dict(self.orders.records.get(body, {}))
        placed: set[int] = set()
        changes: list[tuple[int, int, list[Piece]]] = []
        merged: dict[int, _Scope] = {}
        for span in spans:
            row = table.get(span.number)
            if span.start in self.orders.dropped:
                changes.append((span.start, span.stop, []))
            elif row is None or not accepts(row, span.wire_type):
                continue
            elif span.number in records:
                new = records[span.number] if span.number not in placed else None
                placed.add(span.number)
                if new != bytes(self.view[span.start : span.stop]):
                    changes.append((span.start, span.stop, [new] if new else []))
            else:
                pieces = self._field(cls, row, span, spans, merged, scope)
                if pieces is not None:
                    changes.append((span.start, span.stop, pieces))
        added = [(number, new) for number, new in records.items() if number not in placed and new]
        added += self.orders.added.get(body, [])
        places = {number: _place_for(spans, table, number, body) for number in {number for number, _ in added}}
        changes += [(places[number], places[number], [new]) for number, new in sorted(added, key=lambda item: item[0])]
        return self._joined(sorted(changes, key=lambda change: change[:2]), body, stop) if changes else None

    @staticmethod
    def _joined(changes: list[tuple[int, int, list[Piece]]], body: int, stop: int) -> list[Piece]:
        pieces: list[Piece] = []
        at = body
        for start, after, new in changes:
            if start > at:
                pieces.append((at, start))
            pieces += new
            at = after
        if stop > at:
            pieces.append((at, stop))
        return pieces

    def _field(
        self, cls: type[Message], row: Field, span: Span, spans: list[Span], merged: dict[int, _Scope], scope: _Scope
    ) -> list[Piece] | None:
        """The new record of a field; None if nothing changes, empty if the field is removed.

        `merged`: the scopes of graphs that may come in several pieces, by their field, entered once.
        """
        if row.name == "doc_string" and self.orders.no_doc_strings:
            self.doc_strings[f"{cls.__qualname__}.doc_string"] += 1
            return []
        if row.kind is not MESSAGE:
            kind = NAMES.get((cls, row.name))
            return self._name(cls, row, kind, span, scope) if kind is not None else None
        child = message_class(cls, row)
        if not self._may_change(child, span):
            return None
        if child is GraphProto and not row.repeated and row.number in merged:
            below = merged[row.number]
        else:
            below = merged[row.number] = self._scope_below(cls, row, child, span, spans, scope)
        value = self._message(child, span.body, span.stop, below)
        return None if value is None else [_head(row.number, piece_bytes(value)), *value]

    def _may_change(self, cls: type[Message], span: Span) -> bool:
        at = bisect_left(self._places, span.body)
        if at < len(self._places) and self._places[at] <= span.stop:
            return True
        if cls not in self._classes:
            return False
        if self.orders.no_doc_strings or span.stop - span.body > _SMALL:
            return True
        data = bytes(self.view[span.body : span.stop])
        return self._needles is None or any(name in data for name in self._needles)

    # Names ------------------------------------------------------------------------------------------------------------

    def _scope_below(
        self, cls: type[Message], row: Field, child: type[Message], span: Span, spans: list[Span], scope: _Scope
    ) -> _Scope:
        if not self.orders.names[VALUE] or (cls, row.name) in _NO_VALUES_BELOW or row.name == "metadata_props":
            return _NOWHERE
        if child is FunctionProto:
            return self._entered(_defined(self.view, child, [span]), self._inner, None)
        if child is not GraphProto:
            return scope
        if cls is ModelProto:
            return self._main
        # readers merge a field that occurs twice, so it is one graph
        parts = [span] if row.repeated else [other for other in spans if other.number == row.number]
        return self._entered(_defined(self.view, child, parts), self._inner, scope)

    def _name(self, cls: type[Message], row: Field, kind: str, span: Span, scope: _Scope) -> list[Piece] | None:
        text = bytes(self.view[span.body : span.stop])
        renamed = scope.new if kind == VALUE else self.orders.names[kind].get
        parts = _identifiers(text) if kind == DIM else [text]
        if kind != VALUE and not self._fresh[kind].isdisjoint([text, *parts]):
            raise ValueError(f"cannot rename a {kind} to {as_text(text)!r}: another {kind} is called so")
        old = [part for part in dict.fromkeys([text, *parts]) if renamed(part) is not None]
        if not old:
            return None
        for part in old:
            self.renamed[kind, part][f"{cls.__qualname__}.{row.name}"] += 1
        new = renamed(text)
        if new is None:
            new = _IDENTIFIER.sub(lambda match: renamed(match[0]) or match[0], text)
        return [_head(row.number, len(new)), new]

    def _entered(self, defined: set[bytes], wanted: dict[bytes, bytes], outer: _Scope | None) -> _Scope:
        """The scope of a graph or function that defines these names. ValueError if a new name is taken in it."""
        own = {old: wanted[old] for old in defined if old in wanted} if wanted else {}
        after = {own.get(name, name) for name in defined} if own else defined
        for new in own.values():
            if (new in defined and new not in own) or (outer is not None and outer.sees(new)):
                raise ValueError(f"cannot rename a value to {as_text(new)!r}: another value is called so")
        for name in after if outer is not None and self._old else ():
            old = self._old.get(name)
            if old is not None and old not in defined and outer is not None and outer.new(old) == name:
                names = f"{as_text(old)!r} to {as_text(name)!r}"
                raise ValueError(f"cannot rename {names}: a subgraph has a value of its own of that name")
        return _Scope(outer, defined, after, own)


def _identifiers(text: bytes) -> list[bytes]:
    """The names in a dimension that is an expression, such as `2*batch + 1`; none in one that is a name itself."""
    return _IDENTIFIER.findall(text) if _EXPRESSION.fullmatch(text) and not _TWO_WORDS.search(text) else []


def _defined(view: memoryview, cls: type[Message], parts: Sequence[Span]) -> set[bytes]:
    """The names of the values that a graph or function defines, the empty one for optional outputs left out."""
    found = {
        name for part in parts for steps in _DEFINITIONS[cls] for name in _texts(view, cls, part.body, part.stop, steps)
    }
    return found - {b""}


def _texts(view: memoryview, cls: type[Message], body: int, stop: int, steps: Sequence[str]) -> Iterator[bytes]:
    """The values of a field of text, given by the steps to it."""
    row = field_of(cls, steps[0])
    for span in _walk(view, body, stop):
        if row is None or span.number != row.number or span.wire_type != LEN:
            continue
        if len(steps) == 1:
            yield bytes(view[span.body : span.stop])
        else:
            yield from _texts(view, message_class(cls, row), span.body, span.stop, steps[1:])


def _walk(view: memoryview, body: int, stop: int) -> Iterator[Span]:
    """The fields of a message; the mapping hears of each, as in `Bytes.children`."""
    for span in walk(view, body, stop):
        yield span
        went_past(view, span.stop - span.body)


def _place_for(spans: Sequence[Span], table: dict[int, Field], number: int, body: int) -> int:
    """Where a new record goes: after the known fields of its number and of lower ones, so that the order is kept."""
    before = [span.stop for span in spans if span.number <= number and span.number in table]
    return before[-1] if before else body


def _head(number: int, size: int) -> bytes:
    if size > MAX_LENGTH:
        raise ValueError(f"the result would pass protobuf's limit of 2 GiB with {size} bytes: use external data")
    return varint(number << 3 | LEN) + varint(size)


def piece_bytes(pieces: Sequence[Piece]) -> int:
    """The number of bytes that the pieces make."""
    return sum(len(piece) if isinstance(piece, bytes) else piece[1] - piece[0] for piece in pieces)


__all__ = ["DIM", "NAMES", "NODE", "VALUE", "Orders", "Piece", "Rewriter", "piece_bytes"]
