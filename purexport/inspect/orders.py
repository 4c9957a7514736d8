"""The wanted changes of a model, checked against it, as orders to a `Rewriter`: fields, metadata, opsets, names.

Strategy: paths and entries are found as elements, so that an order names the bytes that it changes. The rewriter, which
knows the scopes, changes the names; what it renamed is compared with what was asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from proto_schema.graphs.calls import domain_of
from proto_schema.graphs.names import as_text
from proto_schema.graphs.similar import similar
from proto_schema.onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    StringStringEntryProto,
    TensorShapeProto,
)
from proto_schema.wire import LEN, MASK64, VARINT, varint
from proto_schema.wire.codec import decode
from proto_schema.wire.fields import STRING, Field, Message, field_of
from proto_schema.wire.generate import finder
from proto_schema.wire.scalars import checked_int, text_to_bytes
from purexport.inspect.elements import Bytes, Element
from purexport.inspect.paths import find, parse
from purexport.inspect.rewrite import DIM, NODE, VALUE, Orders, Piece, Rewriter
from purexport.inspect.values import value_of

MODEL_FIELDS = ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string")
"""Fields of a model that can be set by their name alone."""

_SETTABLE = {*((ModelProto, name) for name in MODEL_FIELDS), (GraphProto, "name"), (NodeProto, "name")}
_SETTABLE_ANYWHERE = ("doc_string", "denotation")


@dataclass(frozen=True)
class Edits:
    """What to change.

    `fields`: path -> value, None removes it: the `MODEL_FIELDS`, `graph.name`, the `name` of a node, any `doc_string`
    or `denotation`. `metadata`: key -> value, None removes the entry. `opsets`: domain -> version, a declaration only.
    The others map old names to new ones; `inputs` and `outputs` must be inputs and outputs of the graph.
    """

    fields: Mapping[str, str | int | None] = field(default_factory=dict)
    metadata: Mapping[str, str | None] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    dims: Mapping[str, str] = field(default_factory=dict)
    drop_doc_strings: bool = False


@dataclass(frozen=True)
class Change:
    """`what` changed from `old` to `new` (None: absent). `places`: in which fields it was, and how often.

    All doc strings that were removed are one change, without their texts.
    """

    what: str
    old: str | int | None
    new: str | int | None
    places: Mapping[str, int] = field(default_factory=dict)


class EditPlan:
    """The edits of one model, checked against it; `changes` lists what they change."""

    def __init__(self, source: Bytes, model: ModelProto, edits: Edits, append: bool = False) -> None:
        self.source = source
        self.model = model
        self.edits = edits
        self.append = append
        self.orders = Orders(no_doc_strings=edits.drop_doc_strings)
        self.changes: list[Change] = []
        self.top = list(source.children(source.whole()))
        for path, value in edits.fields.items():
            self._set(path, value)
        self._metadata()
        for domain, version in edits.opsets.items():
            self._opset(domain, version)
        self._names()

    def pieces(self) -> list[Piece]:
        """The new file. ValueError for names that are not in the model, or taken."""
        self._expect_ends()
        rewriter = Rewriter(self.source.view, self.orders, set(self._values()) if self.orders.names[VALUE] else set())
        pieces = rewriter.pieces()
        for kind, names in self.orders.names.items():
            for old, new in names.items():
                self._renamed(rewriter, kind, old, new)
        if rewriter.doc_strings:
            self.changes.append(Change("doc strings", None, None, dict(rewriter.doc_strings)))
        return pieces

    def record(self) -> bytes:
        """What `append` writes. ValueError for changes that it cannot express."""
        orders = self.orders
        others = [*orders.names.values(), orders.dropped, orders.node_names, *([1] if orders.no_doc_strings else [])]
        fields = orders.records.pop(0, {})
        added = orders.added.pop(0, [])
        if any(others) or orders.records or orders.added or None in fields.values():
            raise ValueError("append only sets fields of the model and adds metadata or domains; do it without append")
        return b"".join(new for new in [*fields.values(), *(record for _, record in added)] if new is not None)

    # Fields -----------------------------------------------------------------------------------------------------------

    def _set(self, path: str, value: str | int | None) -> None:
        steps = parse(path)
        if not steps:
            raise ValueError(f"the field to set has no name; {_known_fields()}")
        parent = path[: len(path) - len(steps[-1].text)].rstrip(".")
        name = steps[-1].text
        parents = find(self.source, parent)
        for element in parents:
            row = _settable(element, name, path)
            if element.message is NodeProto and name == "name" and len(parents) > 1:
                raise ValueError(f"{path}: {len(parents)} nodes would have one name; name one of them")
            if value is None and row.name == "ir_version":
                raise ValueError("ir_version: every model has one, so it can be set but not removed")
            self._set_one(element, row, path, value)

    def _set_one(self, element: Element, row: Field, path: str, value: str | int | None) -> None:
        there = [child for child in self.source.children(element) if child.field is row]
        old = value_of(self.source, there[-1], None) if there else None
        record = None if value is None else _record(row, value, path)
        shown = value if value is None or row.kind is STRING else int(value)
        old_shown = as_text(old) if isinstance(old, (str, bytes)) else old
        if old_shown == shown and (len(there) < 2 or self.append):
            return
        self.orders.records.setdefault(element.body, {})[row.number] = record
        if element.message is NodeProto and record is not None:
            self.orders.node_names.add(_octets(str(value)))
        label = f"{element.path}.{row.name}".lstrip(".")
        self.changes.append(Change(label, old_shown, shown))

    def _metadata(self) -> None:
        row = _row(ModelProto, "metadata_props")
        found: dict[str, list[tuple[Element, StringStringEntryProto]]] = {}
        for element in self._of(row):
            entry = decode(StringStringEntryProto, self.source.view[element.body : element.stop])
            found.setdefault(as_text(entry.key), []).append((element, entry))
        for key, value in self.edits.metadata.items():
            label = f'metadata_props["{key}"]'
            if key not in found and value is None:
                raise ValueError(f"no metadata is called {key!r}{_close(key, found)}")
            if key not in found:
                made = StringStringEntryProto(key=key, value=value).SerializeToString()
                self.orders.added.setdefault(0, []).append((row.number, _message(row, made)))
                self.changes.append(Change(label, None, value))
                continue
            (first, entry), *again = found[key]
            old = as_text(entry.value)
            self.orders.dropped.update(element.start for element, _ in again)
            if value is None:
                self.orders.dropped.add(first.start)
            elif value != old:
                text = _row(StringStringEntryProto, "value")
                self.orders.records[first.body] = {text.number: _record(text, value, label)}
            if value != old or again:
                self.changes.append(Change(label, old, value))

    def _opset(self, domain: str, version: int) -> None:
        row, number = _row(ModelProto, "opset_import"), _row(OperatorSetIdProto, "version")
        wanted = domain_of(domain)
        label = f'opset_import["{wanted or "ai.onnx"}"]'
        record = _record(number, version, label)
        there = [
            (element, entry) for element, entry in self._opsets(self._of(row)) if domain_of(entry.domain) == wanted
        ]
        old = there[-1][1].version if there else None
        if not there:
            made = OperatorSetIdProto(domain=wanted, version=version).SerializeToString()
            self.orders.added.setdefault(0, []).append((row.number, _message(row, made)))
        if old == version:
            return
        self.changes.append(Change(label, old, version))
        for element, _ in there:
            self.orders.records[element.body] = {number.number: record}
        inner = _row(FunctionProto, "opset_import")
        for function in self._of(_row(ModelProto, "functions")) if there else ():
            own = [child for child in self.source.children(function) if child.field is inner]
            for element, entry in self._opsets(own):
                if domain_of(entry.domain) == wanted and entry.version == old:
                    self.orders.records[element.body] = {number.number: record}
                    self.changes.append(Change(f"{function.path}.{label}", old, version))

    def _opsets(self, elements: Sequence[Element]) -> Iterator[tuple[Element, OperatorSetIdProto]]:
        for element in elements:
            yield element, decode(OperatorSetIdProto, self.source.view[element.body : element.stop])

    def _of(self, row: Field) -> list[Element]:
        return [element for element in self.top if element.field is row]

    # Names ------------------------------------------------------------------------------------------------------------

    def _names(self) -> None:
        edits = self.edits
        values: dict[str, str] = {}
        for group in (edits.inputs, edits.outputs, edits.values):
            for old, new in group.items():
                if values.setdefault(old, new) != new:
                    raise ValueError(f"{old!r} is to be called both {values[old]!r} and {new!r}")
        for kind, names in ((VALUE, values), (NODE, edits.nodes), (DIM, edits.dims)):
            for old, new in names.items():
                if not old or not new:
                    raise ValueError(f"cannot rename {old!r} to {new!r}: a name has at least one character")
            new, count = next(iter(Counter(names.values()).most_common(1)), ("", 0))
            if count > 1:
                raise ValueError(f"two names would become {new!r}")
            changed = {_octets(old): _octets(new) for old, new in names.items() if old != new}
            self.orders.names[kind] = changed
        if self.orders.names[VALUE] and self.model.training_info:
            raise ValueError("the model has training_info, into which renamed values are not followed")

    def _expect_ends(self) -> None:
        graph = self.model.graph or GraphProto()
        for kind, names, ends in (
            ("input", self.edits.inputs, graph.input),
            ("output", self.edits.outputs, graph.output),
        ):
            known = {as_text(value.name): None for value in ends}
            for old in names:
                if old not in known:
                    raise ValueError(f"the graph has no {kind} {old!r}{_close(old, known)}")

    def _renamed(self, rewriter: Rewriter, kind: str, old: bytes, new: bytes) -> None:
        places = dict(rewriter.renamed.get((kind, old), {}))
        if not places:
            raise ValueError(f"no {kind} is called {as_text(old)!r}{_close(as_text(old), self._known(kind))}")
        if kind == NODE and sum(places.values()) > 1:
            count = sum(places.values())
            raise ValueError(f"{count} nodes are called {as_text(old)!r}: set graph.node[N].name of one, by its place")
        self.changes.append(Change(kind, as_text(old), as_text(new), places))

    def _values(self) -> Iterator[bytes]:
        """The names of the values that the main graph defines."""
        graph = self.model.graph or GraphProto()
        sparse = [row.values for row in graph.sparse_initializer if row.values is not None]
        names = [row.name for rows in (graph.input, graph.initializer, sparse) for row in rows]
        for name in chain(names, *(node.output for node in graph.node)):
            if name:
                yield text_to_bytes(name)

    def _known(self, kind: str) -> list[str]:
        if kind == VALUE:
            return list(map(as_text, self._values()))
        found: list[Any] = []
        if kind == NODE:
            nodes = self.model.graph.node if self.model.graph is not None else []
            return [as_text(node.name) for node in nodes if node.name]
        finder(ModelProto, TensorShapeProto.Dimension)(self.model, found)
        return list(dict.fromkeys(as_text(dimension.dim_param) for dimension in found if dimension.dim_param))


def _settable(element: Element, name: str, path: str) -> Field:
    row = field_of(element.message, name, repeated=False) if element.message is not None else None
    allowed = name in _SETTABLE_ANYWHERE or (element.message, name) in _SETTABLE
    if row is None or not allowed:
        raise ValueError(f"{path} cannot be set; {_known_fields()}")
    return row


def _known_fields() -> str:
    return f"what can: {', '.join(MODEL_FIELDS)}, graph.name, graph.node[3].name, and any doc_string or denotation"


def _row(cls: type[Message], name: str) -> Field:
    row = field_of(cls, name)
    assert row is not None, name
    return row


def _octets(text: str) -> bytes:
    """A name as the file has it: UTF-8; bytes that the command line could not decode stay as they came."""
    return text.encode(errors="surrogateescape")


def _record(row: Field, value: str | int, path: str) -> bytes:
    if row.kind is STRING:
        return _message(row, _octets(str(value)))
    try:
        number = checked_int(row, int(value))
    except ValueError:
        raise ValueError(f"{path} is a whole number, not {value!r}") from None
    return varint(row.number << 3 | VARINT) + varint(number & MASK64)


def _message(row: Field, value: bytes) -> bytes:
    return varint(row.number << 3 | LEN) + varint(len(value)) + value


def _close(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = similar(name, names) or names[:3]
    return f"; there is {', '.join(map(ascii, close))}" if close else "; there is none at all"


__all__ = ["MODEL_FIELDS", "Change", "EditPlan", "Edits"]
