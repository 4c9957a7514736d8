"""The operator history against the official one, field by field, and the data file against its maker."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import onnx
import pytest
from onnx import defs, helper

from proto_schema import operators
from proto_schema.operators import OpSchema

ROOT = Path(__file__).resolve().parents[2]
OFFICIAL = defs.get_all_schemas_with_history()


def _formals(parameters: list[defs.OpSchema.FormalParameter]) -> list[tuple[object, ...]]:
    return [(p.name, p.type_str, p.option.name.lower(), p.is_homogeneous, p.min_arity) for p in parameters]


def _default(attribute: onnx.AttributeProto) -> object:
    if not attribute.type:
        return None
    value = helper.get_attribute_value(attribute)
    return tuple(value) if isinstance(value, list) else value


def _official(schema: defs.OpSchema) -> dict[str, object]:
    return {
        "name": schema.name,
        "domain": schema.domain,
        "since_version": schema.since_version,
        "deprecated": schema.deprecated,
        "inputs": _formals(schema.inputs),
        "outputs": _formals(schema.outputs),
        "attributes": {
            name: (name, a.type.value, a.required, _default(a.default_value)) for name, a in schema.attributes.items()
        },
        "constraints": {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints},
        "min_input": schema.min_input,
        "max_input": schema.max_input,
        "min_output": schema.min_output,
        "max_output": schema.max_output,
        "is_function": schema.has_function or schema.has_context_dependent_function,
        "context_dependent": bool(schema.has_context_dependent_function),
        "deterministic": {"Deterministic": True, "NonDeterministic": False}.get(_word(schema.node_determinism)),
        "experimental": _word(schema.support_level) == "EXPERIMENTAL",
    }


def _word(member: object) -> str:
    return str(member).rpartition(".")[2]


def _ours(schema: OpSchema) -> dict[str, object]:
    fields = {name: getattr(schema, name) for name in OpSchema.__slots__}
    for side in ("inputs", "outputs"):
        fields[side] = [(f.name, f.type, f.option, f.homogeneous, f.min_arity) for f in fields[side]]
    fields["attributes"] = {key: (a.name, a.type, a.required, a.default) for key, a in schema.attributes.items()}
    return fields


def test_every_version_of_every_operator_equals_the_official_one() -> None:
    assert len(OFFICIAL) > 650
    for official in OFFICIAL:
        ours = operators.schema(official.name, official.since_version, official.domain)
        assert ours is not None, official.name
        assert _ours(ours) == _official(official), (official.name, official.since_version)


def test_nothing_is_known_that_the_official_package_does_not_know() -> None:
    ours = {
        (domain, name, version)
        for domain in operators.domains()
        for name in operators._data()["operators"][domain]
        for version in operators.versions(name, domain)
    }
    assert ours == {(schema.domain, schema.name, schema.since_version) for schema in OFFICIAL}


def test_the_literal_types_of_formals_are_the_types_that_the_official_package_allows() -> None:
    for official in OFFICIAL:
        ours = operators.schema(official.name, official.since_version, official.domain)
        assert ours is not None
        pairs = zip([*ours.inputs, *ours.outputs], [*official.inputs, *official.outputs], strict=True)
        for formal, parameter in pairs:
            if formal.type not in ours.constraints:
                assert parameter.types == {formal.type}


@pytest.mark.parametrize(
    ("name", "opset", "domain", "since"),
    [
        ("Relu", 13, "", 13),
        ("Relu", 12, "", 6),
        ("Relu", 5, "", 1),
        ("Relu", 99, "", 14),
        ("Relu", 14, "ai.onnx", 14),
        ("Relu", 0, "", None),
        ("Gelu", 19, "", None),
        ("Gelu", 20, "", 20),
        ("Scatter", 10, "", 9),
        ("Scatter", 12, "", 11),  # deprecated, yet returned
        ("Normalizer", 3, "ai.onnx.ml", 1),
        ("Normalizer", 3, "", None),
        ("Nothing", 20, "", None),
        ("Relu", 20, "com.example", None),
    ],
)
def test_the_version_in_force(name: str, opset: int, domain: str, since: int | None) -> None:
    found = operators.schema(name, opset, domain)
    assert (found.since_version if found else None) == since


def test_a_deprecated_version_says_so() -> None:
    scatter = operators.schema("Scatter", 11)
    assert scatter is not None
    assert scatter.deprecated
    assert "Scatter" in operators.operators(10)
    assert "Scatter" not in operators.operators(11)


def test_versions_are_ascending() -> None:
    assert operators.versions("Clip") == (1, 6, 11, 12, 13)
    assert operators.versions("Clip", "ai.onnx") == operators.versions("Clip")
    assert operators.versions("Nothing") == ()


@pytest.mark.parametrize("opset", [1, 7, 9, 13, 18, 20, 21, 24, 28])
@pytest.mark.parametrize("domain", ["", "ai.onnx.ml"])
def test_operators_at_an_opset(opset: int, domain: str) -> None:
    newest: dict[str, defs.OpSchema] = {}
    for schema in sorted(OFFICIAL, key=lambda schema: schema.since_version):
        if schema.domain == domain and schema.since_version <= opset:
            newest[schema.name] = schema
    assert operators.operators(opset, domain) == tuple(sorted(n for n, s in newest.items() if not s.deprecated))


def test_newest_opsets() -> None:
    assert operators.newest_opset() == defs.onnx_opset_version() == 28
    assert operators.newest_opset("ai.onnx") == 28
    assert operators.newest_opset("ai.onnx.ml") == 5
    with pytest.raises(ValueError, match=re.escape("the domain 'com.example'; known: ''")):
        operators.newest_opset("com.example")


def test_ir_versions_are_those_of_the_releases() -> None:
    for (domain, opset), ir_version in helper.OP_SET_ID_VERSION_MAP.items():
        assert operators.ir_version_for(opset, domain) == ir_version
    assert operators.ir_version_for(3) == 3


@pytest.mark.parametrize(
    ("opset", "domain", "message"),
    [
        (29, "", "opset 29 of the domain ''; newest: 28"),
        (0, "", "opset 0 of the domain ''"),
        (1, "com.example", "the domain 'com.example'; official domains only"),
    ],
)
def test_an_ir_version_that_is_not_known(opset: int, domain: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        operators.ir_version_for(opset, domain)


def test_the_data_file_is_what_the_tool_makes() -> None:
    spec = importlib.util.spec_from_file_location("make_operators", ROOT / "tools" / "make_operators.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = tool.TARGET.read_text(encoding="ascii")
    assert f'"source":"onnx {onnx.__version__}"' in text, "made by another version of onnx: run tools/make_operators.py"
    assert text == tool.render()
    assert len(text) < 300_000


def test_the_data_loads_from_a_zip(tmp_path: Path) -> None:
    archive = tmp_path / "site.zip"
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr("proto_schema/__init__.py", "")
        for name in ("errors.py", *(f"{room}/__init__.py" for room in ("operators", "wire")), "wire/records.py"):
            target.write(ROOT / "proto_schema" / name, f"proto_schema/{name}")
        target.write(ROOT / "proto_schema/data/operators.json", "proto_schema/data/operators.json")
    code = "from proto_schema import operators as o; print(o.__file__, o.schema('Clip', 20).since_version)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "site.zip" in done.stdout
    assert done.stdout.endswith(" 13\n")


def test_a_package_without_its_data_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pkgutil.get_data", lambda package, resource: None)
    with pytest.raises(FileNotFoundError, match=re.escape("data/operators.json is missing; reinstall the package")):
        operators.packaged.__wrapped__("operators.json")
