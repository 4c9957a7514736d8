"""Nodes in the newest form of their operator, so that one pattern matches a node at every opset."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from proto_schema import operators
from proto_schema.ir import Node
from proto_schema.ir.calls import LAST_AXIS, has_attributes, means_today
from proto_schema.operators import OpSchema
from proto_schema.operators.changes import FORMERLY, newest

_IDLE = frozenset({"consumed_inputs", "spatial"})  # attributes that are gone and said nothing by their default
_OF_RESULT = frozenset({"OneHot", "Unsqueeze", "ConcatFromSequence"})  # whose axes are those of the result


class OperatorForm:
    """How the nodes of one operator at one opset are read. `is_known` is False where they mean something else."""

    def __init__(self, op_type: str, domain: str, opset: int) -> None:
        latest = newest(op_type, domain)
        schema = operators.schema(op_type, opset, domain) if latest is not None else None
        self.is_known = latest is None or (schema is not None and not schema.deprecated)
        self.latest, self.schema = latest, schema
        self.is_softmax = False
        self.places: list[int] | None = None  # the place in the newest form of each input, where it is another one
        self.moved: dict[str, int] = {}  # attributes that are inputs there
        self.defaults: dict[str, Any] = {}
        self.has_axis = op_type not in _OF_RESULT
        if latest is None or schema is None:
            return
        self.is_softmax = not means_today(schema, opset) and op_type in LAST_AXIS
        self.is_known = self.is_known and (means_today(schema, opset) or self.is_softmax)
        self._compare(schema, latest)

    def _compare(self, schema: OpSchema, latest: OpSchema) -> None:
        names = {formal.name: place for place, formal in enumerate(latest.inputs)}
        places = [names.get(formal.name, place) for place, formal in enumerate(schema.inputs)]
        if places != list(range(len(places))):
            self.places = places
        for old in schema.attributes:
            new = next((new for (op_type, new), name in FORMERLY.items() if (op_type, name) == (schema.name, old)), old)
            if new in names and old not in latest.attributes:
                self.moved[old] = names[new]
        for rows in (latest.attributes, schema.attributes):
            self.defaults.update({name: row.default for name, row in rows.items() if name not in self.moved})
        if self.is_softmax:
            self.defaults["axis"] = 1

    def inputs(self, node: Node) -> list[Any]:
        """The inputs in the newest form: values, None, and arrays for what are attributes here."""
        found: list[Any] = list(node._reads)
        if self.places is not None:
            found, old = [], found
            for place, value in zip(self.places, old, strict=False):
                found += [None] * (place + 1 - len(found))
                found[place] = value
        for name, place in self.moved.items() if self.moved else ():
            value = node.attributes.get(name)
            if value is not None:
                found += [None] * (place + 1 - len(found))
                found[place] = self._array(place, value)
        while found and found[-1] is None:
            found.pop()
        return found

    def _array(self, place: int, value: Any) -> Any:
        assert self.latest is not None  # or nothing would have moved
        whole = self.latest.inputs[place].type == "tensor(int64)" or isinstance(value, int)
        if self.latest.name == "TopK":
            value = [value]
        return np.array(value, np.int64 if whole or isinstance(value, list) else np.float32)

    def attribute(self, node: Node, name: str) -> Any:
        """The value of an attribute, with its default; text is bytes."""
        value = node.attributes.get(name)
        value = self.defaults.get(name) if value is None else value
        if name == "axis" and isinstance(value, int) and self.has_axis:
            rank = node._reads[0].rank if node._reads and node._reads[0] is not None else None
            if self.is_softmax:
                return -1 if rank and value % rank == rank - 1 else None
            return value % rank if rank else value
        return value

    def has_defaults(self, node: Node, named: Any) -> bool:
        """Whether all attributes but the named ones say what the operator does anyway."""
        for name in node.attributes if has_attributes(node) else ():
            if name in named or name in self.moved or name == "consumed_inputs":
                continue
            default = self.defaults.get(name)
            value = node.attributes[name]
            if default is None or plain(value) != plain(default):
                return False
        return not self.is_softmax or "axis" in named or self.attribute(node, "axis") == -1


@lru_cache(maxsize=512)
def form_of(op_type: str, domain: str, opset: int) -> OperatorForm:
    """The form of an operator at an opset."""
    return OperatorForm(op_type, domain, opset)


def plain(value: Any) -> Any:
    """A value of an attribute in the form in which it is compared."""
    if isinstance(value, str):
        return value.encode()
    return tuple(value) if isinstance(value, list) else value
