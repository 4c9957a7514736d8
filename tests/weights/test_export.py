"""Exports with weights from outside give the very file that the loaded model gives, whatever the model and the source.

The truth is the model with the same weights in memory: its file, byte for byte, and what torch computes with it.
"""

from __future__ import annotations

import copy
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import proto_schema as ps
import purexport
from proto_schema.external.payload import FileRange, Payload, contiguous
from purexport.weights import open_weights
from tests.models.case import Case
from tests.models.test_zoo import CASES
from tests.tiers import dealt
from tests.tolerances import assert_near
from tests.weights import made
from tests.weights.models import MODELS, Built, exported, numbers, safetensors


def same_results(program: purexport.ONNXProgram, model: nn.Module, args: tuple[Any, ...]) -> None:
    with torch.no_grad():
        wanted = copy.deepcopy(model)(*args)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for mine, theirs in zip(program(*args), wanted, strict=True):
        assert_near(mine, theirs)


KINDS = [(name, kind) for name in MODELS for kind in ("hollow", "real")] + [("layers of many kinds", "fake")]


@pytest.mark.parametrize("route", ["trace", "export"])
@pytest.mark.parametrize(("name", "kind"), dealt(KINDS, 4))
def test_file_of_the_loaded_model(name: str, route: str, kind: str, tmp_path: Path) -> None:
    built = MODELS[name]
    loaded = built.real()
    model = built.real(seed=1) if kind == "real" else getattr(built, kind)()
    weights = [safetensors(tmp_path / "m.safetensors", built.state(loaded)), built.rest(loaded)]
    for axes in (None, built.axes) if built.axes and kind == "hollow" else (None,):
        program = exported(model, built, capture=route, dynamic_axes=axes, weights=weights)
        wanted = exported(loaded, built, capture=route, dynamic_axes=axes)
        assert program.report.route == route
        assert ps.dumps(program.model_proto) == ps.dumps(wanted.model_proto)
    same_results(program, loaded, built.args)


def test_the_model_is_as_before(tmp_path: Path) -> None:
    built = MODELS["layers of many kinds"]
    path = safetensors(tmp_path / "m.safetensors", built.state(built.real()))
    for model in (built.hollow(), built.real(seed=1)):
        before = dict(model.named_parameters()) | dict(model.named_buffers())
        values = {name: tensor.detach().clone() for name, tensor in before.items()}
        flat = list(model.recurrent._flat_weights)  # type: ignore[union-attr]
        exported(model, built, weights=path)
        after = dict(model.named_parameters()) | dict(model.named_buffers())
        assert list(after) == list(before) and all(after[name] is before[name] for name in before)
        assert all(one is other for one, other in zip(model.recurrent._flat_weights, flat, strict=True))  # type: ignore[union-attr, arg-type]
        assert all(tensor.is_meta or torch.equal(values[name], tensor) for name, tensor in after.items())


# Where the weights come from ------------------------------------------------------------------------------------------


def one_file(state: dict[str, torch.Tensor], folder: Path) -> Any:
    return safetensors(folder / "m.safetensors", state)


def shards(state: dict[str, torch.Tensor], folder: Path) -> Any:
    names = list(state)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for part, held in parts.items():
        safetensors(folder / part, {name: state[name] for name in held})
    where = {name: part for part, held in parts.items() for name in held}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return path


def a_folder(state: dict[str, torch.Tensor], folder: Path) -> Any:
    shards(state, folder)
    return folder


def torch_archive(state: dict[str, torch.Tensor], folder: Path) -> Any:
    torch.save({"state_dict": state, "epoch": 3}, folder / "m.pt")
    return folder / "m.pt"


def strided_archive(state: dict[str, torch.Tensor], folder: Path) -> Any:
    torch.save(strided(state, folder), folder / "m.pt")
    return folder / "m.pt"


def npz(state: dict[str, torch.Tensor], folder: Path) -> Any:
    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    np.savez(folder / "m.npz", **arrays)  # type: ignore[arg-type]
    return folder / "m.npz"


def another_model(state: dict[str, torch.Tensor], folder: Path) -> Any:
    built = MODELS["layers of many kinds"]
    model = built.real()
    model.load_state_dict(state)
    exported(model, built, f=folder / "other.onnx", training=purexport.TrainingMode.TRAINING, external_data=True)
    held = open_weights(folder / "other.onnx")
    return [state, {name: held[name] for name in state if name in held}]


def unaligned(state: dict[str, torch.Tensor], folder: Path) -> Any:
    path = safetensors(folder / "m.safetensors", state, pad=1)
    return purexport.Checkpoint(path, rename={"pad": None})


def strided(state: dict[str, torch.Tensor], folder: Path) -> Any:
    return {name: tensor.t().contiguous().t() if tensor.dim() == 2 else tensor for name, tensor in state.items()}


def arrays(state: dict[str, torch.Tensor], folder: Path) -> Any:
    return {name: tensor.numpy() for name, tensor in state.items()}


def mapped_arrays(state: dict[str, torch.Tensor], folder: Path) -> Any:
    found = {}
    for number, (name, tensor) in enumerate(state.items()):
        np.save(folder / f"{number}.npy", tensor.numpy())
        found[name] = np.load(folder / f"{number}.npy", mmap_mode="r")
    return found


def opened(state: dict[str, torch.Tensor], folder: Path) -> Any:
    return open_weights(safetensors(folder / "m.safetensors", state))


def prefixed(state: dict[str, torch.Tensor], folder: Path) -> Any:
    path = safetensors(folder / "m.safetensors", {f"model.{name}": tensor for name, tensor in state.items()})
    return purexport.Checkpoint(path, rename={"model.": ""})


def without_prefix(state: dict[str, torch.Tensor], folder: Path) -> Any:
    short = {name.removeprefix("linear."): tensor for name, tensor in state.items() if name.startswith("linear.")}
    rest = {name: tensor for name, tensor in state.items() if not name.startswith("linear.")}
    return [purexport.Checkpoint(short, rename={"": "linear."}).open(), rest]


def renamed(state: dict[str, torch.Tensor], folder: Path) -> Any:
    path = safetensors(folder / "m.safetensors", {name.upper(): tensor for name, tensor in state.items()})
    names = {name.upper(): name for name in state}
    return purexport.Checkpoint(path, rename=names.get)


SOURCES: list[Callable[[dict[str, torch.Tensor], Path], Any]] = [
    lambda state, folder: state,
    arrays,
    one_file,
    lambda state, folder: str(one_file(state, folder)),
    a_folder,
    another_model,
    npz,
    shards,
    strided_archive,
    torch_archive,
    mapped_arrays,
    opened,
    prefixed,
    renamed,
    strided,
    unaligned,
    without_prefix,
]


@pytest.mark.parametrize("source", dealt(SOURCES, 4, [source.__name__ for source in SOURCES]))
@pytest.mark.parametrize("kind", ["hollow", "real"])
def test_sources(source: Callable[..., Any], kind: str, tmp_path: Path) -> None:
    built = MODELS["layers of many kinds"]
    loaded = built.real()
    model = built.hollow() if kind == "hollow" else built.real(seed=1)
    program = exported(model, built, capture="trace", weights=source(built.state(loaded), tmp_path))
    wanted = exported(loaded, built, capture="trace")
    assert ps.dumps(program.model_proto) == ps.dumps(wanted.model_proto)


def payloads(program: purexport.ONNXProgram) -> dict[str, Any]:
    assert program.model_proto.graph is not None
    return {item.name or "": item.raw_data for item in program.model_proto.graph.initializer}


def test_bytes_stay_in_the_file(tmp_path: Path) -> None:
    built = MODELS["layers of many kinds"]
    path = safetensors(tmp_path / "m.safetensors", built.state(built.real()))
    program = exported(built.hollow(), built, weights=path, f=tmp_path / "m.onnx", external_data=True)
    found = payloads(program)
    weights = open_weights(path)
    for name, stored in weights.items():
        if name in found:
            held = found[name]
            assert isinstance(held, FileRange) and held.identity == stored.payload.identity
    # nothing reads the count of batches, and the scale is computed with, being small
    assert set(weights) - set(found) == {"norm.num_batches_tracked", "scale"}
    ps.checker.check_model(tmp_path / "m.onnx")


def test_one_range_that_two_parameters_have(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", torch.zeros(3))
            self.register_buffer("other", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.one.add_(x)
            return self.one * 2 + self.other

    stored = open_weights(safetensors(tmp_path / "m.safetensors", {"w": numbers(3)}))["w"]
    for weights in ({"one": stored, "other": stored}, dict.fromkeys(("one", "other"), numbers(3))):
        for model in (Two(), Built(Two, ()).hollow()):
            program = exported(model, Built(Two, (numbers(3),)), weights=weights)
            torch.testing.assert_close(program(numbers(3))[0], numbers(3) * 5)


# Options that touch the weights ---------------------------------------------------------------------------------------


def test_without_weights(tmp_path: Path) -> None:
    built = MODELS["layers of many kinds"]
    loaded = built.real()
    for options in ({"export_params": False}, {"keep_initializers_as_inputs": True, "weights": built.state(loaded)}):
        program, wanted = (
            exported(built.hollow(), built, **options),
            exported(loaded, built, **options, capture="export"),
        )
        assert ps.dumps(program.model_proto) == ps.dumps(wanted.model_proto)


def test_state_goes_in_and_out() -> None:
    built = MODELS["a buffer that is written"]
    loaded = built.real()
    program = exported(built.hollow(), built, weights=built.state(loaded), mutated_state="io")
    wanted = exported(loaded, built, capture="export", mutated_state="io")
    assert ps.dumps(program.model_proto) == ps.dumps(wanted.model_proto)
    torch.testing.assert_close(program.state, wanted.state)


def test_verified(tmp_path: Path) -> None:
    built = MODELS["layers of many kinds"]
    path = safetensors(tmp_path / "m.safetensors", built.state(built.real()))
    for model in (built.hollow(), built.real(seed=1)):
        exported(model, built, weights=path, verify=True)


def test_an_exported_program(tmp_path: Path) -> None:
    built = MODELS["transposed weights"]
    loaded, hollow = built.real(), built.hollow()
    path = safetensors(tmp_path / "m.safetensors", built.state(loaded))
    program = torch.export.export(hollow, tuple(item.to("meta") for item in built.args), strict=False)
    same_results(exported(program, built, weights=path), loaded, built.args)
    with pytest.raises(purexport.ExportError, match="this ExportedProgram has no values; leave verify out"):
        exported(program, built, weights=path, verify=True)


def test_arguments_without_values() -> None:
    built = MODELS["layers of many kinds"]
    loaded = built.real()
    args = tuple(item.to("meta") for item in built.args)
    made = exported(built.hollow(), Built(built.make, args), weights=built.state(loaded))
    assert ps.dumps(made.model_proto) == ps.dumps(exported(loaded, built, capture="export").model_proto)


class Wide(nn.Module):
    """Weights of more than what is read at once: a product, a divisor, a mask, and a table, some read transposed."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(160, 300).to(dtype))
        self.divisor = nn.Parameter((torch.rand(160, 160) + 1).to(dtype))
        self.table = nn.Embedding(300, 160, dtype=dtype)
        self.register_buffer("mask", torch.ones(300, 300).tril().log().to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.weight.t().float() / self.divisor[:5].float()
        z = functional.scaled_dot_product_attention(y, y, y, attn_mask=self.mask[:5, :5].float())
        return z + self.table(torch.arange(5)).float() + (self.weight.float() * self.weight.float()).sum(1)


WIDE = Built(Wide, (numbers(5, 300),))
CASTS = [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)]
CASTS += [(torch.float16, torch.bfloat16), (torch.float64, torch.float16), (torch.float8_e5m2, torch.float32)]
LAID_OUT = [
    pytest.param(*cast, layout, marks=pytest.mark.full if number % 2 != place else ())
    for number, cast in enumerate(CASTS)
    for place, layout in enumerate(["as it is", "transposed"])
]


@pytest.mark.parametrize(
    ("held", "wanted", "layout"), dealt(LAID_OUT, 2), ids=lambda value: str(value).removeprefix("torch.")
)
def test_weights_that_no_rule_sees(held: torch.dtype, wanted: torch.dtype, layout: str, tmp_path: Path) -> None:
    loaded, built = Built(lambda: Wide(wanted), ()).real(), Built(lambda: Wide(wanted), WIDE.args)
    state = {name: tensor.to(held) for name, tensor in built.state(loaded).items()}
    loaded.load_state_dict({name: tensor.to(wanted) for name, tensor in state.items()})
    if layout == "transposed":
        state = {name: tensor.t().contiguous().t() for name, tensor in state.items()}
    torch.save(state, tmp_path / "m.pt")
    weights = purexport.Checkpoint(tmp_path / "m.pt", cast=True)
    for model in (built.hollow(), built.real(seed=1)):
        program = exported(model, built, weights=weights, capture="export")
        held_bytes = {name: bytes(contiguous(data)) for name, data in payloads(program).items()}
        for name, tensor in loaded.state_dict().items():
            if name in held_bytes:
                assert held_bytes[name] == tensor.contiguous().view(torch.uint8).numpy().tobytes()
        assert {"weight", "divisor", "table.weight"} <= set(held_bytes)
        same_results(program, loaded, built.args)


def test_what_is_not_strict() -> None:
    built = MODELS["layers of many kinds"]
    loaded, model = built.real(), built.real(seed=1)
    state = built.state(loaded)
    part = {name: tensor for name, tensor in state.items() if name.startswith("linear")}
    program = exported(model, built, weights=purexport.Checkpoint({**part, "more": numbers(2)}, strict=False))
    model.load_state_dict(part, strict=False)
    assert ps.dumps(program.model_proto) == ps.dumps(exported(model, built).model_proto)
    # the count of batches is missing, and nothing reads it
    rest = {name: tensor for name, tensor in state.items() if "tracked" not in name}
    exported(built.hollow(), built, weights=purexport.Checkpoint(rest, strict=False))


def test_tied_weights_under_one_name() -> None:
    built = MODELS["tied weights"]
    loaded = built.real()
    wanted = ps.dumps(exported(loaded, built, capture="export").model_proto)
    table = loaded.table.weight.detach()  # type: ignore[union-attr]
    for weights in ({"table.weight": table}, {"head.weight": table}, {"head.weight": table, "table.weight": table + 0}):
        assert ps.dumps(exported(built.hollow(), built, weights=weights).model_proto) == wanted


def test_a_transposed_view_is_written_in_pieces(tmp_path: Path) -> None:
    from purexport.weights.model.mapped import Mapped

    path = safetensors(tmp_path / "m.safetensors", {"w": numbers(300, 200)})
    mapped = Mapped(runs=False)
    view = mapped.view(open_weights(path)["w"])
    assert view is not None
    for part in (view, view[10:20], view.t(), view[:, 3], view[5:7].t()):
        found = mapped.origins.payload(part)
        assert isinstance(found, Payload)
        assert b"".join(bytes(piece) for piece in found.chunks(1000)) == part.contiguous().numpy().tobytes()
        assert isinstance(found, FileRange) == part.is_contiguous()


@pytest.mark.full
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc, as Linux has it"
)
def test_a_large_model_takes_little_memory(tmp_path: Path) -> None:
    """The whole process stays under 700 MB, of which torch is the most, with 2.1 GB of weights."""
    code = """
import sys, torch, purexport
with torch.device("meta"):
    model = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192) for _ in range(8)))
purexport.export(model, (torch.zeros(1, 8192),), "m.onnx", weights="m.safetensors", external_data="reference")
sys.stdout.write(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    layers = [
        (f"{number}.{name}", shape)
        for number in range(8)
        for name, shape in (("weight", [8192, 8192]), ("bias", [8192]))
    ]
    header, end = {}, 0
    for name, shape in layers:
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = made.safetensors(tmp_path / "m.safetensors", text)
    os.truncate(path, 8 + len(text) + end)
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) < 700_000
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.safetensors"]
    assert os.path.getsize(tmp_path / "m.onnx") < 300_000


FAMILIES = [(case, route) for case in CASES for route in case.routes if route != "script"]
# those that choose what they compute by the values that their layers give
BY_VALUE = {"experts-index-add", "experts-nonzero", "experts-mask", "experts-hits"}


@pytest.mark.sweep
@pytest.mark.parametrize(("case", "route"), FAMILIES, ids=[f"{case.name}-{route}" for case, route in FAMILIES])
def test_families_without_memory(case: Case, route: str) -> None:
    """The models of tests/models/test_zoo.py, with dynamic axes: pytest -m sweep tests/weights/test_export.py."""
    loaded, args = case.model(), case.example()
    with torch.device("meta"):
        hollow = case.make().eval()
    rest: dict[str, Any] = dict(loaded.named_buffers())
    for path, module in loaded.named_modules():
        held = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        rest.update({f"{path}.{name}" if path else name: value for name, value in held.items()})
    count = sum(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(args))
    names = [f"x{number}" for number in range(count)]
    options: dict[str, Any] = {"capture": route, "input_names": names, "dynamic_axes": case.dynamic_axes()}
    built = Built(case.make, args)
    if route == "trace" and case.name in BY_VALUE:
        with pytest.raises(purexport.ExportError, match="a trace without values cannot follow"):
            exported(hollow, built, weights=[loaded.state_dict(), rest], **options)
        return
    if (case.name, route) == ("diffusion-ddim", "trace"):
        del options["dynamic_axes"]  # torch's trace of it takes none
    program = exported(hollow, built, weights=[loaded.state_dict(), rest], opset_version=17, **options)
    wanted = exported(loaded, built, opset_version=17, **options)
    assert ps.dumps(program.model_proto) == ps.dumps(wanted.model_proto)
