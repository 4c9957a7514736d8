"""Schemas of operators, with the names of `onnx.defs`.

    ps.defs.get_schema("Conv", 13).attributes["group"].default_value

The functions here speak of the standard alone, which never changes; docs are left out. Operators of users' own are in a
`Registry`, an object that its owner hands on: `ps.checker.check_model(model, registry=mine)`. There is none for the
whole process, so that what one library registers changes no other one's checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from proto_schema import operators
from proto_schema.graphs.similar import similar
from proto_schema.onnx import AttributeProto, FunctionProto, NodeProto
from proto_schema.tensors.attributes import get_attribute_value, make_attribute
from proto_schema.tensors.dtypes import DTYPES

__all__ = [
    "AI_ONNX_PREVIEW_DOMAIN",
    "AI_ONNX_PREVIEW_TRAINING_DOMAIN",
    "ONNX_DOMAIN",
    "ONNX_ML_DOMAIN",
    "OpSchema",
    "Registry",
    "SchemaError",
    "deregister_schema",
    "get_all_schemas",
    "get_all_schemas_with_history",
    "get_function_ops",
    "get_schema",
    "has",
    "onnx_ml_opset_version",
    "onnx_opset_version",
    "register_schema",
    "schema_version_map",
]

ONNX_DOMAIN = ""
ONNX_ML_DOMAIN = "ai.onnx.ml"
AI_ONNX_PREVIEW_DOMAIN = "ai.onnx.preview"
AI_ONNX_PREVIEW_TRAINING_DOMAIN = "ai.onnx.preview.training"

_TYPE = re.compile(r"(?:tensor|sparse_tensor|seq|map|optional|opaque)\(.*\)\Z")
_PLAIN_TYPES = frozenset(row.text for row in DTYPES.values())


class SchemaError(ValueError):
    """There is no such schema, or there is one already. The message names the operator, version and domain."""


class FormalParameterOption(IntEnum):
    """How many values a formal parameter stands for."""

    Single = 0
    Optional = 1
    Variadic = 2


class DifferentiationCategory(IntEnum):
    """Whether a gradient flows through a parameter. The data here does not say."""

    Unknown = 0
    Differentiable = 1
    NonDifferentiable = 2


class NodeDeterminism(Enum):
    """Whether a node gives the same for the same inputs."""

    Unknown = 0
    NonDeterministic = 1
    Deterministic = 2


class SupportType(IntEnum):
    """Whether the standard keeps the operator as it is."""

    COMMON = 0
    EXPERIMENTAL = 1


class AttrType(IntEnum):
    """AttributeProto.AttributeType, without the undefined one."""

    FLOAT = AttributeProto.FLOAT
    INT = AttributeProto.INT
    STRING = AttributeProto.STRING
    TENSOR = AttributeProto.TENSOR
    GRAPH = AttributeProto.GRAPH
    SPARSE_TENSOR = AttributeProto.SPARSE_TENSOR
    TYPE_PROTO = AttributeProto.TYPE_PROTO
    FLOATS = AttributeProto.FLOATS
    INTS = AttributeProto.INTS
    STRINGS = AttributeProto.STRINGS
    TENSORS = AttributeProto.TENSORS
    GRAPHS = AttributeProto.GRAPHS
    SPARSE_TENSORS = AttributeProto.SPARSE_TENSORS
    TYPE_PROTOS = AttributeProto.TYPE_PROTOS


class _Shown:
    """Values that compare and print by their constructor's arguments."""

    _SHOWN: tuple[str, ...] = ()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._SHOWN)
        return f"OpSchema.{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))


class FormalParameter(_Shown):
    """An input or output as declared. `types` are those that it may have: a schema fills them in."""

    _SHOWN = ("name", "type_str", "description", "option", "is_homogeneous", "min_arity", "differentiation_category")

    def __init__(
        self,
        name: str,
        type_str: str,
        description: str = "",
        *,
        param_option: FormalParameterOption = FormalParameterOption.Single,
        is_homogeneous: bool = True,
        min_arity: int = 1,
        differentiation_category: DifferentiationCategory = DifferentiationCategory.Unknown,
    ) -> None:
        self.name = name
        self.type_str = type_str
        self.description = description
        self.option = param_option
        self.is_homogeneous = is_homogeneous
        self.min_arity = min_arity
        self.differentiation_category = differentiation_category
        self.types: set[str] = set()


class TypeConstraintParam(_Shown):
    """A name such as "T", and the types that it stands for."""

    _SHOWN = ("type_param_str", "allowed_type_strs", "description")

    def __init__(self, type_param_str: str, allowed_type_strs: Sequence[str], description: str = "") -> None:
        self.type_param_str = type_param_str
        self.allowed_type_strs = list(allowed_type_strs)
        self.description = description


class Attribute(_Shown):
    """An attribute as declared: with a type, or with a default value (an AttributeProto), which has one."""

    _SHOWN = ("name", "type", "description", "default_value", "required")

    def __init__(
        self,
        name: str,
        type: Any = None,
        description: str = "",
        *,
        required: bool = True,
        default_value: AttributeProto | None = None,
    ) -> None:
        if default_value is None and hasattr(type, "ref_attr_name"):
            default_value = type
        self.name = name
        self.description = description
        self.required = required and default_value is None
        self.default_value = AttributeProto() if default_value is None else default_value
        self.type = AttrType((type if default_value is None else default_value.type) or 0)


_Formals: TypeAlias = "Sequence[FormalParameter]"
_Constraints: TypeAlias = "Sequence[TypeConstraintParam | tuple[str, Sequence[str], str]]"
_Attributes: TypeAlias = "Sequence[Attribute]"
_Determinism: TypeAlias = NodeDeterminism


class OpSchema:
    """One version of an operator."""

    FormalParameterOption = FormalParameterOption
    DifferentiationCategory = DifferentiationCategory
    NodeDeterminism = NodeDeterminism
    SupportType = SupportType
    AttrType = AttrType
    FormalParameter = FormalParameter
    TypeConstraintParam = TypeConstraintParam
    Attribute = Attribute

    def __init__(
        self,
        name: str,
        domain: str,
        since_version: int,
        doc: str = "",
        *,
        inputs: _Formals = (),
        outputs: _Formals = (),
        type_constraints: _Constraints = (),
        attributes: _Attributes = (),
        node_determinism: _Determinism = NodeDeterminism.Deterministic,
    ) -> None:
        """A schema of a user's own. TypeError and ValueError for arguments that make none."""
        for what, value, kind in (("name", name, str), ("domain", domain, str), ("since_version", since_version, int)):
            if not isinstance(value, kind):
                raise TypeError(f"{what} must be of type {kind.__name__}, not {type(value).__name__}")
        self.name = name
        self.domain = domain
        self.since_version = since_version
        self.doc = doc
        self.type_constraints = [
            row if isinstance(row, TypeConstraintParam) else TypeConstraintParam(*row) for row in type_constraints
        ]
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.attributes = {attribute.name: attribute for attribute in attributes}
        self.node_determinism = node_determinism
        self.support_level = SupportType.COMMON
        self.deprecated = False
        self.has_function = False
        self.has_context_dependent_function = False
        allowed = {row.type_param_str: row.allowed_type_strs for row in self.type_constraints}
        for formal in (*self.inputs, *self.outputs):
            if formal.type_str not in allowed and not _is_type(formal.type_str):
                raise ValueError(
                    f"{name}: the type {formal.type_str!r} of {formal.name!r} is neither a type, such as "
                    "tensor(float), nor the name of one of type_constraints"
                )
            formal.types = set(allowed.get(formal.type_str, (formal.type_str,)))

    @cached_property
    def row(self) -> operators.OpSchema:
        """The schema as the checker uses it."""
        inputs, outputs = (tuple(map(_formal, side)) for side in (self.inputs, self.outputs))
        (min_input, max_input), (min_output, max_output) = operators.arity(inputs), operators.arity(outputs)
        return operators.OpSchema(
            name=self.name,
            domain=operators.canonical(self.domain),
            since_version=self.since_version,
            deprecated=self.deprecated,
            inputs=inputs,
            outputs=outputs,
            attributes={name: _declared(attribute) for name, attribute in self.attributes.items()},
            constraints={row.type_param_str: frozenset(row.allowed_type_strs) for row in self.type_constraints},
            min_input=min_input,
            max_input=max_input,
            min_output=min_output,
            max_output=max_output,
            is_function=self.has_function or self.has_context_dependent_function,
        )

    @property
    def min_input(self) -> int:
        """The least number of inputs."""
        return self.row.min_input

    @property
    def max_input(self) -> int:
        """The greatest number of inputs; 2**31 - 1 where there is none."""
        return self.row.max_input

    @property
    def min_output(self) -> int:
        """The least number of outputs."""
        return self.row.min_output

    @property
    def max_output(self) -> int:
        """The greatest number of outputs; 2**31 - 1 where there is none."""
        return self.row.max_output

    @property
    def non_deterministic(self) -> bool:
        """Whether a node may give different results for the same inputs, or the standard does not say."""
        return self.node_determinism != NodeDeterminism.Deterministic

    @property
    def has_type_and_shape_inference_function(self) -> bool:
        """Whether types and shapes of the results are inferred."""
        from proto_schema.inference.rows import table

        return (operators.canonical(self.domain), self.name) in table()

    @property
    def function_body(self) -> FunctionProto:
        """The function that the standard defines the operator by; empty where there is no body here."""
        from proto_schema.inlining.standard import ROWS, body_of

        lowest = min((since for since, _ in ROWS.get(self.name, ())), default=0)
        opset = max(self.since_version, lowest)
        body = body_of(NodeProto(op_type=self.name), operators.canonical(self.domain), opset)
        return FunctionProto() if body is None else body

    @staticmethod
    def is_infinite(count: int) -> bool:
        """Whether a greatest number of values means any number."""
        return count == operators.UNBOUNDED

    def __repr__(self) -> str:
        fields = ("name", "domain", "since_version", "doc", "type_constraints", "inputs", "outputs", "attributes")
        return "OpSchema(\n" + ",\n".join(f"    {name}={getattr(self, name)!r}" for name in fields) + "\n)"


# -- the standard ------------------------------------------------------------------------------------------------------


def has(op_type: str, max_inclusive_version: int | str | None = None, domain: str = ONNX_DOMAIN) -> bool:
    """Whether the standard has the operator, at this opset or at any; deprecated ones too.

    The second argument may be the domain, as in onnx.
    """
    return Registry().has(op_type, max_inclusive_version, domain)


def get_schema(op_type: str, max_inclusive_version: int | str | None = None, domain: str = ONNX_DOMAIN) -> OpSchema:
    """The operator's schema in force at this opset, or the newest. SchemaError where there is none.

    The second argument may be the domain, as in onnx.
    """
    return Registry().get_schema(op_type, max_inclusive_version, domain)


def get_all_schemas() -> list[OpSchema]:
    """The newest schema of each operator of the standard."""
    return Registry().get_all_schemas()


def get_all_schemas_with_history() -> list[OpSchema]:
    """Each version of each operator of the standard."""
    return Registry().get_all_schemas_with_history()


def get_function_ops() -> list[OpSchema]:
    """The newest schemas of operators that the standard defines by others."""
    return [schema for schema in get_all_schemas() if schema.has_function or schema.has_context_dependent_function]


def onnx_opset_version() -> int:
    """The newest opset of the standard domain."""
    return operators.newest_opset(ONNX_DOMAIN)


def onnx_ml_opset_version() -> int:
    """The newest opset of ai.onnx.ml."""
    return operators.newest_opset(ONNX_ML_DOMAIN)


def schema_version_map() -> dict[str, tuple[int, int]]:
    """Domain -> (first opset, newest opset) of the standard's domains."""
    return {domain: (1, operators.newest_opset(domain)) for domain in operators.domains()}


def register_schema(schema: OpSchema, registry: Registry) -> None:
    """As `Registry.register_schema`."""
    registry.register_schema(schema)


def deregister_schema(op_type: str, version: int, domain: str, registry: Registry) -> None:
    """As `Registry.deregister_schema`."""
    registry.deregister_schema(op_type, version, domain)


# -- users' own operators ----------------------------------------------------------------------------------------------


class Registry:
    """The schemas of the standard, and those that were registered here. Not for several threads that register."""

    def __init__(self, schemas: Iterable[OpSchema] = ()) -> None:
        self._own: dict[tuple[str, str], dict[int, OpSchema]] = {}
        for schema in schemas:
            self.register_schema(schema)

    def register_schema(self, schema: OpSchema) -> None:
        """Adds a schema. SchemaError where the standard or this registry has that version of the operator."""
        key = operators.canonical(schema.domain), schema.name
        if schema.since_version in operators.versions(key[1], key[0]) or schema.since_version in self._own.get(key, {}):
            raise SchemaError(f"{_shown(*key)} has a schema of version {schema.since_version} already")
        self._own.setdefault(key, {})[schema.since_version] = schema

    def deregister_schema(self, op_type: str, version: int, domain: str) -> None:
        """Removes a schema that was registered here. SchemaError where there is none."""
        key = operators.canonical(domain), op_type
        if version not in self._own.get(key, {}):
            raise SchemaError(f"no schema of version {version} of {_shown(*key)} was registered here")
        del self._own[key][version]
        if not self._own[key]:
            del self._own[key]

    def find(self, op_type: str, opset: int, domain: str) -> operators.OpSchema | None:
        """The registered schema in force at this opset, for the checker."""
        own = self._own.get((operators.canonical(domain), op_type), {})
        version = max((since for since in own if since <= opset), default=None)
        return None if version is None else own[version].row

    def has(self, op_type: str, max_inclusive_version: int | str | None = None, domain: str = ONNX_DOMAIN) -> bool:
        """Whether the operator exists, at this opset or at any."""
        return self._in_force(op_type, *_asked(max_inclusive_version, domain)) is not None

    def get_schema(
        self, op_type: str, max_inclusive_version: int | str | None = None, domain: str = ONNX_DOMAIN
    ) -> OpSchema:
        """The schema in force at this opset, or the newest. SchemaError where there is none."""
        opset, domain = _asked(max_inclusive_version, domain)
        found = self._in_force(op_type, opset, domain)
        if found is None:
            raise SchemaError(_missing(op_type, opset, domain))
        return found

    def get_all_schemas(self) -> list[OpSchema]:
        """The newest schema of each operator."""
        newest = {(schema.domain, schema.name): schema for schema in self.get_all_schemas_with_history()}
        return list(newest.values())

    def get_all_schemas_with_history(self) -> list[OpSchema]:
        """Each version of each operator, by domain, name and version."""
        keys = {(domain, name) for domain in operators.domains() for name in operators.names(domain)} | set(self._own)
        return [
            self._version(name, domain, since)
            for domain, name in sorted(keys)
            for since in sorted({*operators.versions(name, domain), *self._own.get((domain, name), ())})
        ]

    def _in_force(self, op_type: str, opset: int | None, domain: str) -> OpSchema | None:
        key = operators.canonical(domain), op_type
        known = {*operators.versions(op_type, domain), *self._own.get(key, ())}
        version = max((since for since in known if opset is None or since <= opset), default=None)
        return None if version is None else self._version(op_type, key[0], version)

    def _version(self, op_type: str, domain: str, since: int) -> OpSchema:
        return self._own.get((domain, op_type), {}).get(since) or _standard(op_type, domain, since)


@lru_cache(maxsize=2048)
def _standard(op_type: str, domain: str, since: int) -> OpSchema:
    row = operators.schema(op_type, since, domain)
    assert row is not None
    made = OpSchema(
        row.name,
        row.domain,
        row.since_version,
        inputs=[_parameter(formal) for formal in row.inputs],
        outputs=[_parameter(formal) for formal in row.outputs],
        type_constraints=[TypeConstraintParam(name, sorted(types)) for name, types in row.constraints.items()],
        attributes=[_attribute(attribute) for attribute in row.attributes.values()],
    )
    made.node_determinism = {
        True: NodeDeterminism.Deterministic,
        False: NodeDeterminism.NonDeterministic,
        None: NodeDeterminism.Unknown,
    }[row.deterministic]
    made.support_level = SupportType.EXPERIMENTAL if row.experimental else SupportType.COMMON
    made.deprecated = row.deprecated
    made.has_context_dependent_function = row.context_dependent
    made.has_function = row.is_function and not row.context_dependent
    made.__dict__["row"] = row
    return made


def _asked(version: int | str | None, domain: str) -> tuple[int | None, str]:
    """(opset, domain) of arguments in onnx's orders."""
    return (None, version) if isinstance(version, str) else (version, domain)


def _missing(op_type: str, opset: int | None, domain: str) -> str:
    versions = operators.versions(op_type, domain)
    if versions:
        return f"{_shown(domain, op_type)} does not exist at opset {opset}; it does from {versions[0]} on"
    known = operators.names(domain)
    close = similar(op_type, known) if known else []
    return f"there is no operator {_shown(domain, op_type)}" + (f"; is {close[0]} meant?" if close else "")


def _shown(domain: str, name: str) -> str:
    return f"{domain or 'ai.onnx'}::{name}"


def _is_type(text: str) -> bool:
    return text in _PLAIN_TYPES or _TYPE.match(text) is not None


def _formal(parameter: FormalParameter) -> operators.Formal:
    options: tuple[operators.Option, ...] = ("single", "optional", "variadic")
    option = options[parameter.option]
    return operators.Formal(parameter.name, parameter.type_str, option, parameter.is_homogeneous, parameter.min_arity)


def _declared(attribute: Attribute) -> operators.Attribute:
    default = attribute.default_value
    value = get_attribute_value(default) if default.type else None
    held = tuple(value) if isinstance(value, list) else value
    return operators.Attribute(attribute.name, int(attribute.type), attribute.required, held)


def _parameter(formal: operators.Formal) -> FormalParameter:
    option = {"single": 0, "optional": 1, "variadic": 2}[formal.option]
    return FormalParameter(
        formal.name,
        formal.type,
        param_option=FormalParameterOption(option),
        is_homogeneous=formal.homogeneous,
        min_arity=formal.min_arity,
    )


def _attribute(row: operators.Attribute) -> Attribute:
    if row.default is None:
        return Attribute(row.name, row.type, required=row.required)
    value: Any = list(row.default) if isinstance(row.default, tuple) else row.default
    return Attribute(row.name, default_value=make_attribute(row.name, value, attr_type=row.type))
