"""Schemas of operators: those of the standard as the official package says them, and users' own in a registry."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

import proto_schema as ps
from proto_schema import defs
from proto_schema.defs import OpSchema, Registry, SchemaError
from proto_schema.parser import parse_model

FIELDS = ["name", "domain", "since_version", "deprecated", "min_input", "max_input", "min_output", "max_output"]
FIELDS += ["has_function", "has_context_dependent_function", "non_deterministic"]


def _facts(schema: Any) -> dict[str, Any]:
    facts = {field: getattr(schema, field) for field in FIELDS}
    facts["enums"] = schema.node_determinism.name, schema.support_level.name
    for side in ("inputs", "outputs"):
        facts[side] = [
            (row.name, row.type_str, row.option.name, row.is_homogeneous, row.min_arity, _types(row))
            for row in getattr(schema, side)
        ]
    facts["attributes"] = {
        name: (row.name, row.type.name, row.required, row.default_value.SerializeToString())
        for name, row in schema.attributes.items()
    }
    facts["constraints"] = {row.type_param_str: sorted(row.allowed_type_strs) for row in schema.type_constraints}
    return facts


def _types(row: Any) -> list[str]:
    """Their names, but for maps, which the official package spells in another way here than in constraints."""
    return sorted(name for name in row.types if "map(" not in name)


def test_all_schemas_are_those_of_the_official_package() -> None:
    ours, theirs = (
        {(row.domain, row.name, row.since_version): _facts(row) for row in module.get_all_schemas_with_history()}
        for module in (defs, onnx.defs)
    )
    assert len(theirs) > 600
    assert ours == theirs
    newest = {(row.domain, row.name, row.since_version) for row in onnx.defs.get_all_schemas()}
    assert newest <= {(row.domain, row.name, row.since_version) for row in defs.get_all_schemas()}
    assert {row.name for row in onnx.defs.get_function_ops()} <= {row.name for row in defs.get_function_ops()}


ASKED: list[tuple[Any, ...]] = [
    ("Conv",), ("Conv", ""), ("Conv", 13), ("Conv", 13, ""), ("Conv", 99), ("Conv", 0), ("Upsample",), ("Upsample", 13),
    ("Scaler", "ai.onnx.ml"), ("Scaler", 1, "ai.onnx.ml"), ("Scaler",), ("nothing",), ("Conv", "nowhere"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", ASKED)
def test_what_is_asked_for(arguments: tuple[Any, ...]) -> None:
    assert defs.has(*arguments) == onnx.defs.has(*arguments)
    if defs.has(*arguments):
        assert defs.get_schema(*arguments).since_version == onnx.defs.get_schema(*arguments).since_version
    else:
        with pytest.raises(SchemaError):
            defs.get_schema(*arguments)


def test_versions() -> None:
    assert defs.onnx_opset_version() == onnx.defs.onnx_opset_version()
    assert defs.onnx_ml_opset_version() == onnx.defs.onnx_ml_opset_version()
    official = onnx.defs.C.schema_version_map()
    assert defs.schema_version_map() == {domain: official[domain] for domain in ps.operators.domains()}
    assert defs.get_schema("Selu").function_body.node[0].op_type == "Constant"
    assert defs.get_schema("Conv").function_body == ps.FunctionProto()
    assert defs.get_schema("Concat").is_infinite(defs.get_schema("Concat").max_input)
    assert defs.get_schema("Conv").has_type_and_shape_inference_function


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("Convv",), "there is no operator ai.onnx::Convv; is Conv meant?"),
        (("Celu", 11), "ai.onnx::Celu does not exist at opset 11; it does from 12 on"),
        (("f", "mine"), "there is no operator mine::f"),
    ],
)
def test_errors(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(SchemaError) as caught:
        defs.get_schema(*arguments)
    assert str(caught.value) == text


# -- users' own --------------------------------------------------------------------------------------------------------

MODEL = (
    '<ir_version: 8, opset_import: ["": 17, "mine": 5]> g (float[2] x, int32 k) => (float[2] y) {{ y = mine.Op {} }}'
)


def _schema(version: int = 5, **changed: Any) -> OpSchema:
    parts: dict[str, Any] = {
        "inputs": [OpSchema.FormalParameter("a", "T"), OpSchema.FormalParameter("b", "tensor(int32)")],
        "outputs": [OpSchema.FormalParameter("c", "T")],
        "type_constraints": [("T", ["tensor(float)"], "")],
        "attributes": [OpSchema.Attribute("n", OpSchema.AttrType.INTS, "what it is for", required=False)],
    }
    return OpSchema("Op", "mine", version, **{**parts, **changed})


CALLS = [
    ("<n = [1, 2]> (x, k)", ""),
    ("(x)", "Op (as of opset 5) has 1 inputs; it takes 2"),
    ("<m = 1> (x, k)", "has no such attribute; it has: n"),
    ("<n = 1> (x, k)", "attribute"),
    ("(k, k)", "int32"),
]


@pytest.mark.parametrize(("call", "problem"), CALLS)
def test_the_checker_takes_a_registry(call: str, problem: str) -> None:
    model = parse_model(MODEL.format(call))
    registry = Registry([_schema(), _schema(1, inputs=[]), _schema(6, outputs=[])])
    ps.checker.check_model(model)  # operators of unknown domains are not looked at
    with pytest.raises(ps.CheckError, match="there is no operator 'Op' in opset 5 of the domain 'mine'"):
        ps.checker.check_model(model, check_custom_domain=True)
    if not problem:
        ps.checker.check_model(model, full_check=True, check_custom_domain=True, registry=registry)
        return
    with pytest.raises(ps.CheckError) as caught:
        ps.checker.check_model(model, full_check=True, check_custom_domain=True, registry=registry)
    assert problem in str(caught.value)


def test_what_is_registered_stays_in_its_registry() -> None:
    first, second = Registry(), Registry()
    defs.register_schema(_schema(), first)
    defs.register_schema(_schema(3), first)
    assert (first.has("Op", "mine"), first.has("Op", 2, "mine"), first.has("Op", 3, "mine")) == (True, False, True)
    assert first.get_schema("Op", 4, "mine").since_version == 3
    assert len(first.get_all_schemas()) == len(second.get_all_schemas()) + 1
    assert len(first.get_all_schemas_with_history()) == len(defs.get_all_schemas_with_history()) + 2
    assert not second.has("Op", "mine") and not defs.has("Op", "mine")
    with pytest.raises(SchemaError, match="mine::Op has a schema of version 3 already"):
        first.register_schema(_schema(3))
    with pytest.raises(SchemaError, match=r"ai\.onnx::Relu has a schema of version 14 already"):
        first.register_schema(OpSchema("Relu", "", 14))
    defs.deregister_schema("Op", 5, "mine", first)
    assert first.get_schema("Op", "mine").since_version == 3
    first.deregister_schema("Op", 3, "mine")
    assert not first.has("Op", "mine")
    with pytest.raises(SchemaError, match="no schema of version 3 of mine::Op was registered here"):
        first.deregister_schema("Op", 3, "mine")


def test_constructors() -> None:
    schema = _schema(doc="text")
    assert (schema.min_input, schema.max_input, schema.doc) == (2, 2, "text")
    assert schema.inputs[0].types == {"tensor(float)"} and schema.inputs[1].types == {"tensor(int32)"}
    assert str(schema) == str(_schema(doc="text")) != str(_schema(4, doc="text"))
    epsilon = defs.get_schema("BatchNormalization").attributes["epsilon"].default_value
    attribute = OpSchema.Attribute("e", epsilon, "small")
    assert (attribute.default_value, attribute.type, attribute.required) == (epsilon, OpSchema.AttrType.FLOAT, False)
    with pytest.raises(TypeError, match="name must be of type str, not int"):
        OpSchema(3, "mine", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the type 'U' of 'x' is neither a type"):
        OpSchema("f", "mine", 1, inputs=[OpSchema.FormalParameter("x", "U")])
