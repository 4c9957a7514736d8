"""The options of an export: one value, checked before anything runs."""

from __future__ import annotations

import dataclasses
import inspect
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import purexport
from purexport.compat.past_options import _PAST
from purexport.lock import alone
from purexport.options import Options

# parameters of export that are no options: what is exported and where to, and those that are ignored with a remark
NO_OPTIONS = {"model", "args", "f", "kwargs", "by_position", "past", *_PAST}


def never(x: torch.Tensor) -> torch.Tensor:
    raise AssertionError("the model ran")


X = torch.ones(2)

# (option, value, error, words of it)
REFUSED: list[tuple[str, Any, type[Exception], str]] = [
    ("opset_version", 8, ValueError, "opset_version=8 is not one of 9 to"),
    ("opset_version", True, ValueError, "opset_version=True is not one of 9 to"),
    ("opset_version", "17", ValueError, "opset_version='17' is not one of 9 to"),
    ("operator_export_type", "ONNX", ValueError, "operator_export_type='ONNX' is not an OperatorExportTypes"),
    ("mutated_state", "keep", ValueError, "mutated_state='keep' is not one of 'warn', 'error', 'io'"),
    ("branches", "all", ValueError, "branches='all' is not one of 'example', 'both'"),
    ("input_names", "x", ValueError, "lists of names, not the string 'x'"),
    ("output_names", ["y", "y"], ValueError, "names must differ from each other"),
    ("training", "eval", purexport.ExportError, "training='eval' is neither a bool nor a TrainingMode"),
    ("capture", "script", ValueError, "capture='script' is not one of 'auto', 'trace', 'export'"),
    ("export_modules_as_functions", "all", ValueError, "neither a bool nor a set of module classes"),
    ("export_modules_as_functions", True, ValueError, "export_modules_as_functions needs an nn.Module"),
    ("progress", 1.5, ValueError, "progress=1.5 is neither True, False nor a function"),
    ("custom_translation_table", {7: never}, TypeError, "custom_translation_table"),
    ("verify", (X,), ValueError, "verify=tuple is neither True, False nor a list of arguments, as in verify=[(x, y)]"),
    ("rtol", -1.0, ValueError, "rtol=-1.0 is not a number from 0 on"),
    ("atol", float("nan"), ValueError, "atol=nan is not a number from 0 on"),
    ("target", "onnxruntime; 1.20", ValueError, "target='onnxruntime; 1.20' is not a target; available are"),
    ("target", "tensorrt", ValueError, "target='tensorrt' is not a target; available are"),
    (
        "target",
        "onnx; onnxruntime==0.9",
        ValueError,
        "the kernels of ONNX Runtime 0.9 are not known; the known versions are",
    ),
    ("target", 7, ValueError, "target=7 is not a target"),
    ("weights", {"w": X}, purexport.WeightsError, "weights fill the tensors of an nn.Module"),
]


@pytest.mark.parametrize(
    ("name", "value", "error", "words"), REFUSED, ids=[f"{row[0]}-{number}" for number, row in enumerate(REFUSED)]
)
def test_refused_before_the_model_runs(name: str, value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        purexport.export(never, X, **{name: value})
    assert words in str(caught.value)


def test_names_of_inputs_and_outputs_differ() -> None:
    with pytest.raises(ValueError, match="input_names and output_names both give 'x'"):
        Options(input_names=["x"], output_names=["x"])


def test_a_release_that_does_not_load_the_opset() -> None:
    with pytest.raises(ValueError, match=r"loads opsets up to 20; give an opset_version"):
        Options(target="onnx; onnxruntime==1.17", opset_version=21)
    assert Options(target="onnx; onnxruntime==1.17", opset_version=20).release is not None
    assert Options(target="onnx; any").release is None


def test_fields_are_the_parameters_of_export() -> None:
    """The same names in the same order with the same defaults."""
    parameters = list(inspect.signature(purexport.export).parameters.values())
    options = [(item.name, item.default) for item in parameters if item.name not in NO_OPTIONS]
    assert [(item.name, item.default) for item in dataclasses.fields(Options)] == options


def test_a_wrong_option_waits_for_no_other_export() -> None:
    errors: list[Exception] = []

    def export() -> None:
        try:
            purexport.export(never, X, capture="words")
        except ValueError as error:
            errors.append(error)

    with alone():
        thread = threading.Thread(target=export, daemon=True)
        thread.start()
        thread.join(30)
    assert len(errors) == 1


class Counter(torch.nn.Module):
    """Writes to its buffer."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


def held(x: torch.Tensor) -> torch.Tensor:
    return x + torch.arange(3 if x.shape[0] == 3 else 2)


def fixed(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(2)


# (model, options, words of the warning), one for each stage that has something to say
SAID: list[tuple[Any, dict[str, Any], str]] = [
    (Counter(), {}, "the model writes to its buffer 'count'"),
    (held, {"dynamic_axes": {"x": [0]}, "input_names": ["x"]}, "axis 'x_dim_0'"),
    (fixed, {"dynamic_axes": {"x": [0]}, "input_names": ["x"], "capture": "export"}, "axis 'x_dim_0'"),
]


@pytest.mark.parametrize(("model", "options", "words"), SAID, ids=["write", "types", "capture"])
def test_remarks_point_at_the_caller(model: Any, options: dict[str, Any], words: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        purexport.export(model, X, **options)
    places = [warning.filename for warning in caught if words in str(warning.message)]
    assert places == [__file__], [str(warning.message) for warning in caught]


def test_a_model_of_torch_alone_is_placed_at_the_call_of_export() -> None:
    """No line of ours stands between the user's and torch's; torch's own is the place where it has one."""
    layer = torch.nn.Unflatten(0, (2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = purexport.export(layer, torch.ones(6, 3), capture="trace", dynamic_axes={"input": {0: "n"}})
    assert program.report.warnings
    ours = str(Path(purexport.__file__).parent)
    assert not any(ours in remark for remark in program.report.warnings)
