"""The checker on broken models: the official verdict, and the place in the message; then what is ours alone."""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest

import proto_schema as ps
from proto_schema import checker, helper
from tests.proto_schema.checker_models import A, Change, T, external, floats, put, valid, value
from tests.proto_schema.checker_rows import ATTRIBUTES, NAMES, OPERATORS, STRUCTURE, Row
from tests.proto_schema.checker_rows_data import (
    FULLY_VALID,
    FUNCTIONS,
    SHAPES,
    STRICTER,
    STRICTER_FULL,
    TENSORS,
    TYPES,
    VALID,
)

THEMES = {
    "structure": STRUCTURE,
    "names": NAMES,
    "operators": OPERATORS,
    "attributes": ATTRIBUTES,
    "tensors": TENSORS,
    "functions": FUNCTIONS,
}
BROKEN = [(f"{theme}: {name}", change, start) for theme, rows in THEMES.items() for name, change, start in rows]


def _changed(change: Change) -> ps.ModelProto:
    model = valid()
    change(model)
    return model


def _official(model: ps.ModelProto | bytes | str, full: bool = False) -> str | None:
    """The official checker's complaint."""
    data = model.SerializeToString() if isinstance(model, ps.ModelProto) else model
    try:
        onnx.checker.check_model(data, full_check=full)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error)
    return None


def _ours(model: ps.ModelProto | bytes | str, full: bool = False) -> str | None:
    try:
        checker.check_model(model, full_check=full)
    except ps.CheckError as error:
        return str(error)
    return None


def _rows(rows: list[Row]) -> Any:
    return pytest.mark.parametrize(("change", "start"), [row[1:] for row in rows], ids=[row[0] for row in rows])


def test_the_model_that_the_rows_break_is_valid() -> None:
    assert _official(valid(), full=True) is None
    assert _ours(valid(), full=True) is None


@_rows(BROKEN)
def test_a_broken_model_is_refused_as_the_official_checker_refuses_it(change: Change, start: str) -> None:
    model = _changed(change)
    assert _official(model) is not None
    assert (_ours(model) or "").startswith(start)


@_rows(TYPES)
def test_types_that_do_not_fit_are_refused_by_the_full_check(change: Change, start: str) -> None:
    model = _changed(change)
    assert _official(model) is None
    assert _ours(model) is None
    assert _official(model, full=True) is not None
    assert (_ours(model, full=True) or "").startswith(start)


@_rows(STRICTER)
def test_where_we_are_stricter(change: Change, start: str) -> None:
    assert (_ours(_changed(change)) or "").startswith(start)


@_rows(STRICTER_FULL)
def test_where_the_full_check_is_stricter(change: Change, start: str) -> None:
    """And rightly: ONNX Runtime does not load it."""
    model = _changed(change)
    assert _official(model, full=True) is None
    assert (_ours(model, full=True) or "").startswith(start)
    with pytest.raises(Exception, match=r"Shape of initializer w does not match"):
        onnxruntime.InferenceSession(model.SerializeToString())


@_rows(SHAPES)
def test_shapes_that_do_not_fit_are_refused_by_the_full_check(change: Change, start: str) -> None:
    model = _changed(change)
    assert _ours(model) is None
    assert _official(model, full=True) is not None
    assert (_ours(model, full=True) or "").startswith(start)


@pytest.mark.parametrize("change", [row[1] for row in FULLY_VALID], ids=[row[0] for row in FULLY_VALID])
def test_what_both_full_checks_accept(change: Change) -> None:
    model = _changed(change)
    assert _official(model, full=True) is None
    assert _ours(model, full=True) is None


@pytest.mark.parametrize("change", [row[1] for row in VALID], ids=[row[0] for row in VALID])
def test_an_odd_model_is_accepted_as_the_official_checker_accepts_it(change: Change) -> None:
    model = _changed(change)
    assert _official(model) is None
    assert _ours(model, full=True) is None


def test_ai_onnx_is_the_standard_domain() -> None:  # the official checker takes the name in imports, but not in nodes
    model = valid()
    model.opset_import[0].domain = "ai.onnx"
    model.graph.node[1].domain = "ai.onnx"
    assert _ours(model) is None


# -- options and routes ------------------------------------------------------------------------------------------------


def test_custom_domains_may_be_closed() -> None:
    model = _changed(put("graph.node[3]", op_type="Thrice"))
    checker.check_model(model)
    with pytest.raises(
        ps.CheckError, match=re.escape("graph.node[3].op_type: there is no operator 'Thrice' in opset 1")
    ):
        checker.check_model(model, check_custom_domain=True)
    checker.check_model(valid(), check_custom_domain=True)  # a call of a function of the model is no unknown operator


def test_functions_may_use_other_opsets_where_that_is_allowed() -> None:
    model = _changed(put("functions[0].opset_import[0]", version=7))
    checker.check_model(model, skip_opset_compatibility_check=True)


def test_a_model_may_come_as_bytes_or_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for model, good in ((valid(), True), (_changed(put("graph", name="")), False)):
        path.write_bytes(model.SerializeToString())
        for route in (path.read_bytes(), str(path)):
            assert (_ours(route) is None) is good
            assert (_official(route) is None) is good
    with pytest.raises(ps.DecodeError):
        checker.check_model(b"\xff")


EXTERNAL = [  # what lies beside the model, what the tensor says, the start of the message or None
    ({"a.bin": 8}, {"location": "a.bin"}, None),
    ({"a.bin": 16}, {"location": "a.bin", "offset": "8", "length": "8"}, None),
    ({"d/a.bin": 8}, {"location": "d/a.bin"}, None),
    ({}, {"location": "a.bin"}, "graph.initializer[0].external_data: tensor 'n': cannot open"),
    ({"a.bin/b": 8}, {"location": "a.bin"}, "graph.initializer[0].external_data: tensor 'n': "),
]


@pytest.mark.parametrize(("files", "entries", "start"), EXTERNAL)
def test_external_data_must_be_beside_the_file(
    tmp_path: Path, files: dict[str, int], entries: dict[str, str], start: str | None
) -> None:
    for name, size in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    path = tmp_path / "m.onnx"
    graph = helper.make_graph([], "g", [], [], [external(**entries)])
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert (_official(str(path)) is None) is (start is None)
    complaint = _ours(str(path))
    assert complaint is None if start is None else (complaint or "").startswith(start)


def test_external_data_that_is_too_short_is_refused(tmp_path: Path) -> None:  # the official checker does not look
    (tmp_path / "a.bin").write_bytes(bytes(7))
    path = tmp_path / "m.onnx"
    path.write_bytes(
        helper.make_model(helper.make_graph([], "g", [], [], [external(location="a.bin")])).SerializeToString()
    )
    assert "bytes 0 to 8 of" in (_ours(str(path)) or "")


# -- parts of models ---------------------------------------------------------------------------------------------------

PARTS: list[tuple[str, ps.Message, ps.Message, str]] = [  # function, valid, broken, message
    (
        "check_node",
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Relu", [], ["y"]),
        "input: Relu (as of opset 14)",
    ),
    ("check_attribute", helper.make_attribute("k", 1), ps.AttributeProto(name="k"), "type: is required"),
    ("check_attribute", helper.make_attribute_ref("k", A.INT), ps.AttributeProto(type=A.INT), "name: is required"),
    ("check_tensor", floats("w"), ps.TensorProto(data_type=1, dims=[1]), "its values must be in one field"),
    ("check_value_info", value("x"), ps.ValueInfoProto(name="x"), "type: is required"),
    ("check_graph", helper.make_graph([], "g", [], []), ps.GraphProto(), "name: is required"),
    (
        "check_function",
        valid().functions[0],
        ps.FunctionProto(name="f", output=["y"], domain="d"),
        "output[0]: 'y' is not made",
    ),
    (
        "check_sparse_tensor",
        helper.make_sparse_tensor(floats("v", 0), helper.make_tensor("i", T.INT64, [0], []), [2]),
        ps.SparseTensorProto(),
        "values: is required",
    ),
]


@pytest.mark.parametrize(("name", "good", "bad", "message"), PARTS)
def test_a_part_of_a_model(name: str, good: ps.Message, bad: ps.Message, message: str) -> None:
    check = getattr(checker, name)
    official = getattr(onnx, type(good).__name__)
    getattr(onnx.checker, name)(official.FromString(good.SerializeToString()))
    check(good)
    with pytest.raises(ps.CheckError, match="^" + re.escape(message)):
        check(bad)
    with pytest.raises(TypeError, match="is expected, not a TypeProto"):
        check(ps.TypeProto())


def test_a_part_is_checked_at_the_versions_of_its_context() -> None:
    node = helper.make_node("Gelu", ["x"], ["y"])
    checker.check_node(node)
    with pytest.raises(ps.CheckError, match=re.escape("Gelu does not exist in opset 13; it does from opset 20")):
        checker.check_node(node, checker.CheckerContext(opset_imports={"ai.onnx": 13}))


def test_the_official_name_of_the_error() -> None:
    assert checker.ValidationError is ps.CheckError


# -- the official package's own models ---------------------------------------------------------------------------------

BUNDLED = sorted(glob.glob(os.path.join(onnx.__path__[0], "backend", "test", "data", "**", "*.onnx"), recursive=True))


def _bundled(paths: list[str]) -> Any:
    return pytest.mark.parametrize("path", paths, ids=[os.path.relpath(path, onnx.__path__[0]) for path in paths])


def _agree(path: str) -> None:
    with open(path, "rb") as file:
        data = file.read()
    for full in (False, True):
        assert (_ours(data, full) is None) is (_official(data, full) is None), _ours(data, full)


@_bundled(BUNDLED[::5])
def test_the_verdict_on_a_bundled_model_is_the_official_one(path: str) -> None:
    _agree(path)


@pytest.mark.sweep
@_bundled(BUNDLED)
def test_the_verdict_on_every_bundled_model_is_the_official_one(path: str) -> None:
    _agree(path)


def _test_cases() -> Iterator[tuple[str, bytes]]:
    """The models of the official test cases of every operator, some 1,900."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            if case.model is not None:
                yield case.name, case.model.SerializeToString()


@pytest.mark.sweep
def test_the_verdict_on_every_operator_test_case_is_the_official_one() -> None:
    cases = dict(_test_cases())
    assert len(cases) > 1500
    # The official inference fails on the body of the function that MeanVarianceNormalization is.
    cases.pop("test_mvn")
    odd = [
        name
        for name, data in cases.items()
        for full in (False, True)
        if (_ours(data, full) is None) is not (_official(data, full) is None)
    ]
    assert odd == []
