"""What an export with weights from outside refuses: weights that do not fit, and captures that would need values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import proto_schema as ps
import purexport
from tests.weights.models import MODELS, Built, Tied, exported, numbers, safetensors

TABLE = {"table.weight": numbers(11, 6)}

# (what, model, weights, options, part of the error)
REFUSED: list[tuple[str, Callable[[], Any], Any, dict[str, Any], str]] = [
    (
        "nothing is given",
        MODELS["tied weights"].hollow,
        None,
        {},
        "the model has no values for 1 of its tensors, which are on the meta device or fake:\n"
        "  'table.weight' [11, 6]\n"
        'give them with weights="model.safetensors" or weights={"NAME": tensor}',
    ),
    (
        "all is missing",
        MODELS["tied weights"].hollow,
        {"tabel.weight": numbers(11, 6)},
        {},
        "the checkpoint (the mapping) does not fit the model: 1 missing, 1 unexpected\n"
        "  missing: 'table.weight' float[11, 6] (the checkpoint has 'tabel.weight')\n"
        "  unexpected: 'tabel.weight' in the mapping\n"
        "for other names pass rename={old: new}",
    ),
    (
        "a prefix too many",
        MODELS["tied weights"].hollow,
        {"model.table.weight": numbers(11, 6)},
        {},
        "all missing tensors are there under another prefix: rename={'model.': ''}\n(rename, strict",
    ),
    (
        "a prefix too few",
        lambda: nn.Sequential(Tied()),
        TABLE,
        {},
        "all missing tensors are there under another prefix: rename={'': '0.'}",
    ),
    (
        "shape and type",
        lambda: nn.Linear(2, 3),
        {"weight": numbers(2, 3), "bias": numbers(3, dtype=torch.float16)},
        {},
        "does not fit the model: 2 mismatched\n"
        "  mismatched: 'weight' is float[3, 2] in the model and float[2, 3] in the mapping\n"
        "  mismatched: 'bias' is float[3] in the model and float16[3] in the mapping\n"
        "cast=True converts floating-point types",
    ),
    (
        "tied weights that differ",
        MODELS["tied weights"].real,
        {"table.weight": numbers(11, 6), "head.weight": numbers(11, 6) + 1},
        {},
        "'table.weight' and 'head.weight' are one tensor in the model, and differ in the mapping",
    ),
    (
        "more than the model has",
        lambda: nn.Linear(2, 3),
        {"weight": numbers(3, 2), "bias": numbers(3), "extra": numbers(1)},
        {},
        "1 unexpected\n  unexpected: 'extra' in the mapping\n"
        "to leave out tensors that the model does not have, pass strict=False",
    ),
    (
        "a buffer that no checkpoint holds",
        MODELS["a buffer that is not persistent"].hollow,
        {"take.weight": numbers(24, 8), "take.bias": numbers(24), "mask": torch.ones(12, 12).bool()},
        {},
        "1 missing\n  missing: 'rates' float[4], which checkpoints do not hold\n"
        "attributes and buffers that are not persistent have no values here; lay them over the checkpoint: "
        'weights=[checkpoint, {"NAME": tensor}]; on the command line by a second --weights, a file of torch.save',
    ),
    (
        "a rename of nothing",
        MODELS["tied weights"].real,
        purexport.Checkpoint(TABLE, {"net.": ""}),
        {},
        "begins with 'net.'",
    ),
    ("a function", lambda: torch.relu, TABLE, {}, "weights fill the tensors of an nn.Module or an ExportedProgram"),
    (
        "a script",
        lambda: torch.jit.script(nn.Linear(2, 3)),
        {"weight": numbers(3, 2)},
        {},
        "weights cannot be put into scripted modules; use load_state_dict before the export",
    ),
]


@pytest.mark.parametrize(
    ("make", "weights", "options", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused(make: Callable[[], Any], weights: Any, options: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(purexport.WeightsError) as caught:
        purexport.export(
            make(), (torch.zeros(2, 2, dtype=torch.int64),), tmp_path / "m.onnx", weights=weights, **options
        )
    assert text in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_long_lists_are_cut() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(30)))
    weights = {f"other.{number}": numbers(1) for number in range(40)}
    with pytest.raises(purexport.WeightsError) as caught:
        purexport.export(model, (numbers(1, 2),), weights=weights)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("60 missing, 40 unexpected")
    assert lines[21] == "  missing: and 40 more" and lines[42] == "  unexpected: and 20 more" and len(lines) == 45


def test_verification_needs_values() -> None:
    built = MODELS["tied weights"]
    weights = built.state(built.real())
    meta = torch.zeros(2, 3, dtype=torch.int64, device="meta")
    with pytest.raises(purexport.ExportError, match="args have no values; pass real tensors"):
        purexport.export(built.hollow(), (meta,), weights=weights, verify=True)


class WithNumber(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.number, self.table = nn.Linear(3, 3), torch.tensor(3.5), torch.ones(200, 200).t() * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(x) * self.number.item() + self.table[3, 4].item()
        return result


def test_attributes_that_nobody_gives() -> None:
    built = MODELS["complex, and an attribute"]
    state = built.state(built.real())
    for route in ("export", "trace"):
        with pytest.raises(purexport.WeightsError, match=r"attributes that may be needed: 'offset'; lay them over"):
            exported(built.hollow(), built, weights=state, capture=route)
    # a number of it is no number of what stands in its place
    with_number = Built(WithNumber, (numbers(2, 3),))
    loaded = with_number.real()
    state = with_number.state(loaded)
    with pytest.raises(purexport.WeightsError, match=r"missing: 'number' float\[\], which checkpoints do not hold"):
        exported(with_number.hollow(), with_number, weights=state)
    with pytest.raises(purexport.WeightsError, match="attributes that may be needed: 'table'"):
        exported(with_number.hollow(), with_number, weights=[state, {"number": loaded.number}], capture="trace")
    rest = {"number": loaded.number, "table": loaded.table}
    program = exported(with_number.hollow(), with_number, weights=[state, rest])
    assert ps.dumps(program.model_proto) == ps.dumps(exported(loaded, with_number, capture="export").model_proto)
    # this one is computed anew in each call
    old_form = Built(lambda: nn.utils.weight_norm(nn.Linear(4, 3)), (numbers(2, 4),))
    loaded = old_form.real()
    program = exported(old_form.hollow(), old_form, weights=old_form.state(loaded))
    assert ps.dumps(program.model_proto) == ps.dumps(exported(loaded, old_form, capture="export").model_proto)


@pytest.mark.parametrize("mode", [lambda: torch.device("meta"), FakeTensorMode], ids=["meta", "fake"])
def test_inside_the_mode_that_made_the_model(mode: Callable[[], Any]) -> None:
    built = MODELS["layers of many kinds"]
    loaded = built.real()
    state = built.state(loaded)
    with mode():
        program = exported(built.make().eval(), Built(built.make, (torch.ones(2, 4, 8),)), weights=state)
    assert ps.dumps(program.model_proto) == ps.dumps(exported(loaded, built, capture="export").model_proto)


def test_a_hidden_tensor_without_values() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.items = [torch.ones(3)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.linear(x) + self.items[0]
            return result

    built = Built(Hidden, (numbers(2, 3),))
    with pytest.raises(purexport.ExportError, match="stays on the meta device: register it as a buffer") as caught:
        exported(built.hollow(), built, weights=built.state(built.real()))
    assert caught.value.code == "different-devices"


def test_a_trace_without_values_sees_none() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.linear(x)
            return y if y.sum() > 0 else -y

    built = Built(Branch, (numbers(2, 3),))
    weights = built.state(built.real())
    with pytest.raises(
        purexport.ExportError, match=r"elements that follow from a weight without values, at .*test_refused"
    ):
        exported(built.hollow(), built, weights=weights, capture="trace")
    with pytest.raises(purexport.ExportError, match="no route took the model, which has no values"):
        exported(built.hollow(), built, weights=weights)
    exported(built.real(seed=1), built, weights=weights, capture="trace")


def test_a_changed_checkpoint(tmp_path: Path) -> None:
    built = MODELS["tied weights"]
    path = safetensors(tmp_path / "m.safetensors", built.state(built.real()))
    program = exported(built.hollow(), built, weights=path)
    safetensors(path, {"table.weight": torch.zeros(12, 7)})
    with pytest.raises(ps.ExternalDataError, match="has changed or been replaced"):
        program.save(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
