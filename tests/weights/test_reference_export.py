"""Exports that refer to the checkpoint in place: the file computes what torch computes, and no weight is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

import proto_schema as ps
import purexport
from tests.tolerances import assert_near
from tests.weights.models import MODELS, Built, safetensors

ROOT = Path(__file__).parents[2]


def in_two(state: dict[str, torch.Tensor], folder: Path) -> Any:
    """Two files, one in a folder of its own."""
    (folder / "sub").mkdir()
    names = list(state)
    halves = [{name: state[name] for name in part} for part in (names[::2], names[1::2])]
    files = [folder / "sub/one.safetensors", folder / "two.safetensors"]
    return [safetensors(path, half) for path, half in zip(files, halves, strict=True) if half]


def saved(state: dict[str, torch.Tensor], folder: Path) -> Any:
    torch.save(state, folder / "m.pt")
    return folder / "m.pt"


def whole(state: dict[str, torch.Tensor], folder: Path) -> Any:
    return safetensors(folder / "m.safetensors", state)


def computed(path: Path, args: tuple[Any, ...]) -> list[Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return list(session.run(None, {put.name: arg.numpy() for put, arg in zip(session.get_inputs(), args, strict=True)}))


ROWS: list[tuple[str, Callable[..., Any], str]] = [
    ("layers of many kinds", whole, "export"),
    ("layers of many kinds", saved, "trace"),
    ("tied weights", whole, "trace"),
    ("tied weights", saved, "export"),
    ("a buffer that is not persistent", in_two, "trace"),
    ("transposed weights", whole, "export"),
]


@pytest.mark.parametrize(("name", "source", "route"), ROWS, ids=[f"{row[0]}-{row[1].__name__}" for row in ROWS])
def test_the_checkpoint_is_the_data_file(name: str, source: Callable[..., Any], route: str, tmp_path: Path) -> None:
    built: Built = MODELS[name]
    loaded = built.real()
    weights = source(built.state(loaded), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*") if path.is_file()}
    path = tmp_path / "m.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = [*weights, built.rest(loaded)] if isinstance(weights, list) else [weights, built.rest(loaded)]
        program = purexport.export(built.hollow(), built.args, weights=given, capture=route)
    program.save(path, external_data="reference", size_threshold=64)
    onnx.checker.check_model(path, full_check=True)
    plan = program.plan(path, external_data="reference", size_threshold=64)
    referred = {tensor.file for tensor in plan.tensors if tensor.way == "refer"}
    assert referred == {os.path.relpath(file, tmp_path) for file in before}
    assert {file: file.stat().st_mtime_ns for file in before} == before
    with torch.no_grad():
        wanted = loaded(*built.args)
    for mine, theirs in zip(
        computed(path, built.args), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        assert_near(mine, theirs)
    copy = tmp_path / "copy.onnx"
    ps.save(ps.load(path), copy)
    for mine, theirs in zip(computed(copy, built.args), computed(path, built.args), strict=True):
        assert (mine == theirs).all()


def test_tied_weights_refer_to_one_place(tmp_path: Path) -> None:
    built = MODELS["tied weights"]
    weights = saved(built.state(built.real()), tmp_path)
    program = purexport.export(built.hollow(), built.args, weights=weights)
    plan = program.plan(tmp_path / "m.onnx", external_data="reference", size_threshold=0)
    places = {(tensor.file, tensor.offset) for tensor in plan.tensors if tensor.way == "refer"}
    assert len(places) == 1


# What a save holds in memory ------------------------------------------------------------------------------------------

SAVES = """
import json, resource, sys
import numpy as np
import proto_schema as ps
from proto_schema.files import saveplan  # what is imported once is not what a save takes

size, source, external = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "True"
held = np.ones(size, np.uint8)
def made():
    for start in range(0, size, 1 << 22):
        yield held[start : start + (1 << 22)].tobytes()
held.tofile("w.bin")
data = {
    "memory": lambda: memoryview(held),
    "computed": lambda: ps.LazyPayload(size, made),
    "file": lambda: ps.FileRange("w.bin", 0, size),
}[source]()
tensor = ps.TensorProto(name="w", dims=[size], data_type=2, raw_data=data)
model = ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=[tensor]))
plan = ps.plan(model, "m.onnx", external_data=external)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ps.save(model, "m.onnx", external_data=external)
print(json.dumps([plan.memory, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024]))
"""


SAVED = [
    pytest.param(source, external, marks=pytest.mark.full if (source == "computed") != external else ())
    for source in ("memory", "computed", "file")
    for external in (False, True)
]


@pytest.mark.parametrize(("source", "external"), SAVED)
def test_a_save_takes_no_more_memory_than_planned(source: str, external: bool, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAVES, str(100 << 20), source, str(external)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    planned, taken = json.loads(done.stdout)
    assert taken < planned + (4 << 20) and planned < 16 << 20
    assert (tmp_path / ("m.onnx.data" if external else "m.onnx")).stat().st_size >= 100 << 20
