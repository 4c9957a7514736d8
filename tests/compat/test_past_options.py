"""Options and arguments as code written for torch.onnx gives them, through all its years."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import proto_schema as ps
import purexport
from purexport import OperatorExportTypes, TrainingMode


class Scaled(nn.Module):
    """A parameter of which something is computed, which constant folding does once."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, scale: float = 2.0) -> torch.Tensor:
        shifted = (self.weight * scale).abs() + x.reshape(x.shape[0], 1, -1)
        return shifted if y is None else shifted - y


class Keyed(nn.Module):
    """Takes a dict by position, and keyword arguments beside it."""

    def forward(self, x: dict[str, torch.Tensor], flag: bool = False) -> torch.Tensor:
        return x["a"] if flag else x["a"] + x["b"]


class Pairs(nn.Module):
    def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        first, (second, third) = state
        return x + first * second - third


X, Y = torch.ones(2, 3), torch.full((2, 3), 0.5)


def quiet_export(*args: Any, **options: Any) -> purexport.ONNXProgram:
    """An export that must not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return purexport.export(*args, **options)


def names(values: Any) -> list[str]:
    return [item.name for item in values]


def op_types(program: purexport.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model_proto.graph.node]


# Arguments ------------------------------------------------------------------------------------------------------------

A, B = torch.ones(2), torch.zeros(2)
ARGUMENTS = [
    # what it shows, model, args, kwargs, names of inputs
    ("a-tensor", Scaled(), X, None, ["x"]),
    ("a-tuple", Scaled(), (X, Y), None, ["x", "y"]),
    ("numbers-are-inputs", Scaled(), (X, Y, 3.0), None, ["x", "y", "scale"]),
    ("a-last-dict-is-keywords", Scaled(), (X, {"y": Y, "scale": 3.0}), None, ["x", "y", "scale"]),
    ("keywords-out-of-order", Scaled(), (X, {"scale": 3.0, "y": Y}), None, ["x", "y", "scale"]),
    ("an-empty-last-dict-is-none", Keyed(), ({"a": A, "b": B}, {}), None, ["x_a", "x_b"]),
    ("only-keywords", Scaled(), {"x": X}, None, ["x"]),
    ("a-dict-that-is-no-keywords", Keyed(), ({"a": A, "b": B},), None, ["x_a", "x_b"]),
    ("a-dict-and-keywords", Keyed(), ({"a": A, "b": B}, {"flag": True}), None, ["x_a", "x_b"]),
    ("kwargs-leave-args-alone", Keyed(), ({"a": A, "b": B},), {"flag": False}, ["x_a", "x_b"]),
    ("nested-tuples", Pairs(), (X, (Y, (X, Y))), None, ["x", "state_0", "state_1_0", "state_1_1"]),
    ("a-script", torch.jit.script(Scaled()), (X, {"y": Y, "scale": 3.0}), None, ["x", "y"]),
]


@pytest.mark.parametrize(
    ("model", "args", "kwargs", "inputs"), [pytest.param(*row[1:], id=row[0]) for row in ARGUMENTS]
)
def test_arguments(model: nn.Module, args: Any, kwargs: Any, inputs: list[str]) -> None:
    program = quiet_export(model, args, kwargs=kwargs, verify=True)
    # keywords stand in the order in which they are given, or in that of a script's parameters
    assert sorted(names(program.model_proto.graph.input)) == sorted(inputs)


def test_keywords_that_the_model_does_not_take() -> None:
    with pytest.raises(purexport.ExportError, match=r"keyword arguments \(y, z\) that.*'x'; its parameters are x, y$"):
        purexport.export(lambda x, y: x + y, ({"y": Y, "z": X},))


# Positions ------------------------------------------------------------------------------------------------------------

FIRST = (True, False, TrainingMode.EVAL, ["input"], ["result"])
POSITIONS = [
    # what follows the eighth position, opset and IR of the file
    ("none", (), 20),
    ("torch-2", (OperatorExportTypes.ONNX, 13, True, {"input": {0: "n"}}, False, None), 13),
    ("torch-2-none", (None, 11), 11),
    ("torch-1", (False, False, None, 12, True, True, None, True, {"input": {0: "n"}}, None, None, True, False), 12),
]


@pytest.mark.parametrize(("rest", "opset"), [pytest.param(*row[1:], id=row[0]) for row in POSITIONS])
@pytest.mark.filterwarnings("ignore:aten is an older name", "ignore:export_raw_ir is an older name")
@pytest.mark.filterwarnings("ignore:the option '.*' has no effect any more")
def test_options_by_position(rest: tuple[Any, ...], opset: int) -> None:
    file = io.BytesIO()
    purexport.export(Scaled(), (X,), file, *FIRST, *rest)
    model = onnx.load_from_string(file.getvalue())
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == opset
    assert (names(model.graph.input), names(model.graph.output)) == (["input"], ["result"])
    dimension = model.graph.input[0].type.tensor_type.shape.dim[0]
    assert (dimension.dim_param == "n") == (len(rest) > 3)


MISTAKES = [
    ("unknown", {"opset_verison": 13}, (), "no option 'opset_verison'; the nearest is 'opset_version'"),
    ("unknown-past", {"strip_docstring": True}, (), "the nearest is 'strip_doc_string'"),
    ("twice", {"opset_version": 13}, (None, 13), "got 'opset_version' by position and by name"),
    ("too-many", {}, (None,) * 9, "takes at most 16 arguments by position, 17 were given"),
]


@pytest.mark.parametrize(("given", "rest", "message"), [pytest.param(*row[1:], id=row[0]) for row in MISTAKES])
def test_mistakes(given: dict[str, Any], rest: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        purexport.export(Scaled(), (X,), None, *FIRST, *rest, **given)


# Options without a meaning --------------------------------------------------------------------------------------------

PAST: list[dict[str, Any]] = [
    {"_retain_param_name": True},
    {"strip_doc_string": True},
    {"enable_onnx_checker": True},
    {"example_outputs": X},
    {"propagate": False},
    {"add_node_names": True},
    {"fixed_batch_size": False},
    {"dynamo": True},
    {"fallback": False},
    {"optimize": True},
    {"artifacts_dir": "."},
    {"autograd_inlining": True},
]


@pytest.mark.parametrize("option", [pytest.param(option, id=next(iter(option))) for option in PAST])
def test_an_option_of_the_past_says_that_it_has_no_effect(option: dict[str, Any]) -> None:
    said = f"the option '{next(iter(option))}' has no effect any more: "
    with pytest.warns(UserWarning, match=said) as caught:
        program = purexport.export(nn.ReLU(), (X,), **option)
    assert program.report.warnings[0].startswith(said)
    assert caught[0].filename == __file__, "the warning points at the caller"


# What options do ------------------------------------------------------------------------------------------------------


def test_a_file_object_and_a_path_hold_the_same(tmp_path: Path) -> None:
    file, path = io.BytesIO(), tmp_path / "model.onnx"
    for target in (file, path, str(path)):
        quiet_export(Scaled(), (X,), target)
        assert file.getvalue() == (path.read_bytes() if target is not file else file.getvalue())


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("opset", [9, 13, 20])
def test_constant_folding_of_parameters(fold: bool, opset: int) -> None:
    """Without it the parameter is in the file, with what is computed of it; sizes are numbers all the same."""
    program = quiet_export(Scaled(), (X,), do_constant_folding=fold, opset_version=opset, verify=True)
    assert op_types(program) == (["Reshape", "Add"] if fold else ["Mul", "Abs", "Reshape", "Add"])
    assert ("weight" in names(program.model_proto.graph.initializer)) is not fold


@pytest.mark.parametrize("opset", [9, 20])
def test_initializers_as_inputs_are_defaults(opset: int) -> None:
    """As up to IR version 3: the runtime takes other weights at the call."""
    model = nn.Linear(3, 2)
    assert names(quiet_export(model, (X,), keep_initializers_as_inputs=False).model_proto.graph.input) == ["input"]
    program = quiet_export(model, (X,), keep_initializers_as_inputs=True, opset_version=opset, verify=True)
    data = ps.dumps(program.model_proto)
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    ps.checker.check_model(program.model_proto)
    assert names(program.model_proto.graph.input) == ["input", "weight", "bias"]
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"input": X.numpy(), "bias": torch.full((2,), 9.0).numpy()})
    torch.testing.assert_close(torch.from_numpy(got), X @ model.weight.detach().T + 9.0)


def test_names_are_those_of_the_first_inputs_then_of_the_parameters() -> None:
    program = quiet_export(nn.Linear(3, 2), (X,), input_names=["image", "w"], keep_initializers_as_inputs=True)
    assert names(program.model_proto.graph.input) == ["image", "w", "bias"]


class Lines(logging.Handler):
    """What was logged while it is a handler of the logger."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def logged() -> Iterator[Lines]:
    logger, lines = logging.getLogger("purexport"), Lines()
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(lines)
    logger.setLevel(level)


def test_progress_names_the_stages(logged: Lines) -> None:
    seen: list[tuple[str, int, int]] = []
    quiet_export(Scaled(), (X,), io.BytesIO(), verify=True, progress=lambda *stage: seen.append(stage))
    stages = ("capture", "functionalize", "lower", "build", "verify", "save")
    assert seen == [(stage, number, 6) for number, stage in enumerate(stages, start=1)]
    quiet_export(Scaled(), (X,), progress=True)
    assert logged.lines == [f"export: {stage} ({number}/6)" for number, stage in enumerate(stages[:4], start=1)]
    logged.lines.clear()
    quiet_export(nn.GELU("tanh"), (X,), report=True)
    (text,) = logged.lines
    assert text.startswith("route: trace (the default)\nfile: opset 20, 1 node, 138 B\nrules: aten::gelu")
    with pytest.raises(ValueError, match="progress=3 is neither True, False nor a function"):
        purexport.export(Scaled(), (X,), progress=3)
