"""The cases that the official package ships for runtimes: models, inputs, and the outputs that they must give.

Those of single operators are made by its own generators (`onnx.backend.test.case.node`), the others lie in files. Each
has its tolerances. `EXCUSED` lists what cannot be compared by value, with the reason.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import proto_schema as ps

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FOLDERS = ("simple", "pytorch-converted", "pytorch-operator")
BFLOAT16_RTOL = 2**-6  # two units in the last place, as the official runner allows


@dataclass(frozen=True)
class Case:
    """One model with its sets of inputs and outputs; each a list in the order of the graph's."""

    name: str
    model: bytes
    sets: tuple[tuple[list[Any], list[Any]], ...]
    rtol: float
    atol: float
    folder: str = ""
    operators: frozenset[str] = frozenset()


SHAPE = "random numbers: shape, dtype and range are compared"
EXCUSED: dict[str, tuple[str, Callable[[list[Any], list[Any]], None]]] = {}
"""Case -> why its values are not compared, and what is compared in their place."""


def _in_range(low: float, high: float) -> Callable[[list[Any], list[Any]], None]:
    def check(found: list[Any], wanted: list[Any]) -> None:
        for mine, theirs in zip(found, wanted, strict=True):
            expected = value(theirs)
            assert mine.shape == expected.shape
            assert mine.dtype == expected.dtype
            assert low <= mine.min() <= mine.max() <= high

    return check


for _name in ("bernoulli", "bernoulli_double", "bernoulli_seed"):
    for _form in ("", "_expanded"):
        EXCUSED[f"test_{_name}{_form}"] = (SHAPE, _in_range(0, 1))


def _near(rtol: float) -> Callable[[list[Any], list[Any]], None]:
    def check(found: list[Any], wanted: list[Any]) -> None:
        for mine, theirs in zip(found, wanted, strict=True):
            same(mine, value(theirs), rtol, 1e-7)

    return check


STEPS = "float16: what is expected was rounded after each step of a softmax, and ours once"
EXCUSED["test_attention_4d_causal_fp16_expanded"] = (STEPS, _near(2**-8))


GRADIENT = "Gradient differentiates the graph around it, which is the business of a training framework; it is refused"
REFUSED = {"test_gradient_of_add": GRADIENT, "test_gradient_of_add_and_mul": GRADIENT}
"""Case -> why the evaluator refuses it."""


@cache
def node_cases() -> tuple[Case, ...]:
    """The cases of single operators; making them takes some seconds."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return tuple(
        Case(
            item.name,
            item.model.SerializeToString(),
            tuple((list(inputs), list(outputs)) for inputs, outputs in item.data_sets),
            item.rtol,
            item.atol,
            operators=frozenset(node.op_type for node in item.model.graph.node),
        )
        for item in found
    )


@cache
def stored_cases() -> tuple[Case, ...]:
    """The cases that lie in files."""
    return tuple(_stored(path) for kind in FOLDERS for path in sorted((DATA / kind).iterdir()) if path.is_dir())


def _stored(path: Path) -> Case:
    said = json.loads((path / "data.json").read_text()) if (path / "data.json").exists() else {}
    model = (path / "model.onnx").read_bytes()
    read = ps.loads(model).graph
    assert read is not None
    sets = []
    for data in sorted(path.glob("test_data_set_*")):
        inputs = [_value(data / f"input_{at}.pb", item.type) for at, item in enumerate(read.input)]
        outputs = [_value(data / f"output_{at}.pb", item.type) for at, item in enumerate(read.output)]
        sets.append((inputs, outputs))
    names = frozenset(node.op_type or "" for node in read.node)
    rtol, atol = said.get("rtol", 1e-3), said.get("atol", 1e-7)
    return Case(path.name, model, tuple(sets), rtol, atol, str(path), names)


def _value(path: Path, type_: ps.TypeProto | None) -> Any:
    kind = None if type_ is None else type_.WhichOneof("value")
    message = {"sequence_type": ps.SequenceProto, "optional_type": ps.OptionalProto}.get(kind or "", ps.TensorProto)
    return message.FromString(path.read_bytes()) if path.exists() else None


def value(given: Any) -> Any:
    """An expected output as `run` returns it: the types that numpy lacks in the wider type."""
    if given is None or isinstance(given, dict):
        return given
    if isinstance(given, (list, tuple)):
        return [value(item) for item in given]
    if isinstance(given, onnx.TensorProto):
        given = ps.TensorProto.FromString(given.SerializeToString())
    if isinstance(given, ps.TensorProto):
        return ps.numpy_helper.to_array(given)
    if isinstance(given, ps.SequenceProto):
        return ps.numpy_helper.to_list(given)
    if isinstance(given, ps.OptionalProto):
        return ps.numpy_helper.to_optional(given)
    array = np.asarray(given)
    if array.dtype.kind in "OUS":
        return array.astype(object)
    return array if array.dtype.isbuiltin == 1 else ps.numpy_helper.to_array(ps.numpy_helper.from_array(array))


def feed(case: Case, inputs: Sequence[Any]) -> dict[str, Any]:
    """The inputs by name; an official TensorProto as one of ours."""
    graph = ps.loads(case.model).graph
    assert graph is not None
    given = [_ours(item) for item in inputs]
    return {item.name or "": held for item, held in zip(graph.input, given, strict=False) if held is not None}


def _ours(given: Any) -> Any:
    kind = getattr(ps, type(given).__name__, None)
    return kind.FromString(given.SerializeToString()) if kind is not None and hasattr(given, "DESCRIPTOR") else given


def same(found: Any, wanted: Any, rtol: float, atol: float, bfloat16: bool = False) -> None:
    """Compare one output. AssertionError where shape, dtype or a value differs."""
    if wanted is None:
        assert found is None
    elif isinstance(wanted, dict):
        assert found == wanted
    elif isinstance(wanted, list):
        assert isinstance(found, list)
        assert len(found) == len(wanted)
        for mine, theirs in zip(found, wanted, strict=True):
            same(mine, theirs, rtol, atol, bfloat16)
    else:
        assert isinstance(found, np.ndarray), type(found)
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        if wanted.dtype.kind == "O":
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, rtol=max(rtol, BFLOAT16_RTOL) if bfloat16 else rtol, atol=atol)


def run(case: Case) -> None:
    """Run a case on our evaluator. AssertionError or EvaluationError where it fails."""
    model = ps.load(f"{case.folder}/model.onnx") if case.folder else ps.loads(case.model)
    session = ps.reference.ReferenceEvaluator(model)
    types = session.output_types or []
    half = [item is not None and item.tensor_type is not None and item.tensor_type.elem_type == 16 for item in types]
    for inputs, outputs in case.sets:
        if case.name in REFUSED:
            with pytest.raises(ps.reference.EvaluationError, match="Gradient differentiates"):
                session.run(None, feed(case, inputs))
            continue
        found = session.run(None, feed(case, inputs))
        assert len(found) == len(outputs)
        if case.name in EXCUSED:
            EXCUSED[case.name][1](found, outputs)
            continue
        for mine, theirs, rounded in zip(found, outputs, half, strict=True):
            same(mine, value(theirs), case.rtol, case.atol, rounded)
