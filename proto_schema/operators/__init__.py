"""The operator history: what every operator looked like at every opset, in every official domain.

The facts are data, `data/operators.json`, made from the official package by `tools/make_operators.py`, which also
describes the form of the file. It is read once, on first use; a schema is parsed when it is first asked for.
A domain's newest version of an operator with `since_version <= opset` is the one in force, as in the specification
(docs/Versioning.md, "Operator versioning"). The domain "ai.onnx" is another name of "".
"""

from __future__ import annotations

import json
import pkgutil
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeAlias

from proto_schema.wire.records import dataclass

__all__ = [
    "RANDOM",
    "Attribute",
    "Formal",
    "Occurrence",
    "OpSchema",
    "arity",
    "domains",
    "ir_version_for",
    "names",
    "newest_opset",
    "operators",
    "schema",
    "versions",
]

Option: TypeAlias = Literal["single", "optional", "variadic"]
Default: TypeAlias = "int | float | bytes | tuple[Any, ...] | None"

RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""The operators of ai.onnx that draw numbers: two nodes of the same inputs differ."""

UNBOUNDED = 2**31 - 1
"""`max_input` or `max_output` of an operator with a variadic formal, as the official package has it."""


@dataclass(frozen=True, slots=True)
class Formal:
    """An input or output as declared: `type` is a constraint's name ("T") or a literal type ("tensor(int64)").

    `min_arity` is the least number of values of a variadic formal, and 1 for the others. The values of a
    heterogeneous (not `homogeneous`) variadic may differ in type.
    """

    name: str
    type: str
    option: Option
    homogeneous: bool
    min_arity: int


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute as declared: `type` is a code of AttributeProto.AttributeType; `default` is None without one."""

    name: str
    type: int
    required: bool
    default: Default


@dataclass(frozen=True, slots=True)
class OpSchema:
    """One version of one operator. `constraints` maps "T" to the type strings it allows ("seq(tensor(float))").

    `is_function`: other operators define it, `context_dependent` if they depend on the node. `deterministic` is None
    where the standard does not say.
    """

    name: str
    domain: str
    since_version: int
    deprecated: bool
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    attributes: dict[str, Attribute]
    constraints: dict[str, frozenset[str]]
    min_input: int
    max_input: int
    min_output: int
    max_output: int
    is_function: bool
    context_dependent: bool = False
    deterministic: bool | None = True
    experimental: bool = False


class Occurrence:
    """A node of one version of an operator: its attributes as Python values, with the defaults of the operator."""

    __slots__ = ()
    schema: OpSchema
    attributes: Mapping[str, Any]

    @property
    def version(self) -> int:
        """The opset in which this version of the operator appeared."""
        return self.schema.since_version

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute: the node's, else the operator's default, else `default`. Text is bytes."""
        if name in self.attributes:
            return self.attributes[name]
        declared = self.schema.attributes.get(name)
        if declared is None or declared.default is None:
            return default
        return list(declared.default) if isinstance(declared.default, tuple) else declared.default

    def text(self, name: str, default: str = "") -> str:
        """The value of a text attribute."""
        value = self.attribute(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)


def schema(op_type: str, opset: int, domain: str = "") -> OpSchema | None:
    """The schema in force at this opset, deprecated ones too; None where the operator does not exist (yet)."""
    position = bisect_right(versions(op_type, domain), opset)
    return _parsed(op_type, canonical(domain), position - 1) if position else None


def versions(op_type: str, domain: str = "") -> tuple[int, ...]:
    """The opsets at which the operator was introduced or changed, ascending; empty for an unknown operator."""
    return _versions(canonical(domain)).get(op_type, ())


def operators(opset: int, domain: str = "") -> tuple[str, ...]:
    """The names of the operators that exist at this opset and are not deprecated there, sorted."""
    found = ((name, schema(name, opset, domain)) for name in _versions(canonical(domain)))
    return tuple(name for name, entry in found if entry is not None and not entry.deprecated)


def names(domain: str = "") -> tuple[str, ...]:
    """The names of all operators of the domain, at whatever opset they exist."""
    return tuple(_versions(canonical(domain)))


def domains() -> tuple[str, ...]:
    """The domains whose operators are known here, "" first."""
    return tuple(_data()["operators"])


def newest_opset(domain: str = "") -> int:
    """The newest opset of the domain in the data. Raises ValueError for a domain that is not an official one."""
    newest: dict[str, int] = _data()["newest"]
    key = canonical(domain)
    if key not in newest:
        raise ValueError(f"no operators are known for the domain {domain!r}; known: {', '.join(map(repr, newest))}")
    return newest[key]


def ir_version_for(opset: int, domain: str = "") -> int:
    """The lowest IR version that was released with this opset of this domain.

    An opset between two released ones (2 to 4 of "") counts as the next released one. Raises ValueError for an
    unknown domain and for an opset newer than the data.
    """
    rows = _data()["ir_versions"].get(canonical(domain))
    if rows is None:
        raise ValueError(f"no IR version is known for the domain {domain!r}; official domains only")
    position = bisect_left(rows, [opset, 0])
    if opset < 1 or position == len(rows):
        raise ValueError(f"no IR version is known for opset {opset} of the domain {domain!r}; newest: {rows[-1][0]}")
    return int(rows[position][1])


def canonical(domain: str) -> str:
    """The domain as the data spells it: "ai.onnx" is ""."""
    return "" if domain == "ai.onnx" else domain


@cache
def packaged(name: str) -> dict[str, Any]:
    """The content of a JSON file of the folder `data`.  Raises FileNotFoundError if the package lacks it."""
    text = pkgutil.get_data("proto_schema", f"data/{name}")  # through the loader: works from a zip as well
    if text is None:
        raise FileNotFoundError(f"proto_schema/data/{name} is missing; reinstall the package")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _data() -> dict[str, Any]:
    return packaged("operators.json")


@cache
def _all_versions() -> dict[str, dict[str, tuple[int, ...]]]:
    return {
        domain: {name: tuple(row[0] for row in rows) for name, rows in names.items()}
        for domain, names in _data()["operators"].items()
    }


def _versions(domain: str) -> dict[str, tuple[int, ...]]:
    """Operator -> versions. Only names of the data are kept: a cache by any name that is asked for would grow."""
    return _all_versions().get(domain, {})


@cache
def _allowed(index: int) -> frozenset[str]:
    data = _data()
    return frozenset(data["types"][position] for position in data["sets"][index])


@cache
def _parsed(op_type: str, domain: str, position: int) -> OpSchema:
    since, flags, inputs, outputs, attributes, constraints = _data()["operators"][domain][op_type][position]
    formals_in = tuple(map(_formal, inputs))
    formals_out = tuple(map(_formal, outputs))
    min_input, max_input = arity(formals_in)
    min_output, max_output = arity(formals_out)
    return OpSchema(
        name=op_type,
        domain=domain,
        since_version=since,
        deprecated=bool(flags & 1),
        inputs=formals_in,
        outputs=formals_out,
        attributes={name: _attribute(name, declared) for name, declared in attributes.items()},
        constraints={name: _allowed(index) for name, index in constraints.items()},
        min_input=min_input,
        max_input=max_input,
        min_output=min_output,
        max_output=max_output,
        is_function=bool(flags & 2),
        context_dependent=bool(flags & 4),
        deterministic=None if flags & 16 else not flags & 8,
        experimental=bool(flags & 32),
    )


@cache
def _formal(text: str) -> Formal:
    name, type_name, *suffix = text.split(" ")
    if not suffix:
        return Formal(name, type_name, "single", True, 1)
    mark, arity = suffix[0][0], suffix[0][1:]
    if mark == "?":
        return Formal(name, type_name, "optional", True, 1)
    return Formal(name, type_name, "variadic", mark == "*", int(arity))


def _attribute(name: str, declared: int | list[Any]) -> Attribute:
    if isinstance(declared, int):
        return Attribute(name, abs(declared), declared < 0, None)
    code, default = declared
    return Attribute(name, code, False, _default(default))


def _default(value: Any) -> Default:
    if isinstance(value, list):
        return tuple(map(_default, value))
    result: Default = value.encode() if isinstance(value, str) else value
    return result


def arity(formals: tuple[Formal, ...]) -> tuple[int, int]:
    """Least and most number of values: trailing optional ones may miss, those before a variadic one may not."""
    low = high = 0
    for position, formal in enumerate(formals):
        if formal.option == "variadic":
            return position + formal.min_arity, UNBOUNDED
        high += 1
        if formal.option == "single":
            low = high
    return low, high
