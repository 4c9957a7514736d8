"""Every row in float64 too: its float32 inputs and weights made double, and the table's bounds for double.

So a rule that goes through float32 (a constant, an attribute, a Cast, a kernel) is found without a row of its own.
ONNX Runtime computes; a row that it has no kernel for is skipped.  By default one row in eight runs, at one opset, and
those of `ALWAYS`; `pytest -m sweep` takes all, at opsets where many operators have other forms.
"""

from __future__ import annotations

import copy
import zlib
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedInRuntime
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException
from torch import nn

import purexport
from tests.harness import (
    CAPTURES,
    OPSETS,
    PROGRAM_OPSETS,
    Input,
    Row,
    axes_by_name,
    check_file,
    compare_with_torch,
    export,
)
from tests.lowering.test_rules_have_rows import operator_modules, rows_of
from tests.tiers import Asked
from tests.tolerances import TABLE, USUAL, Bounds

AT = (9, 17, 23)
DRAWN = "test_random/"  # numbers by chance, which no one compares
ONE_IN = 8
DOUBLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}

# rows that are not right to a double's last bits, and whose rounding that is
LOOSE = {
    "test_fourier/istft": "torch squares the model's float32 window in float32",
    "test_fourier/istft-frames": "torch squares the model's float32 window in float32",
    "test_fourier/there-and-back-short-time": "torch squares the model's float32 window in float32",
    "test_fourier/signal-windows": "the model makes its windows in float32",
    "test_fourier/kaiser_window-of-any-length": "the model makes its window in float32",
    "test_create/linspace-any": "the model makes its steps in float32",
    "test_complex/rotary": "the model makes its turns in float32",
    "test_numbers/scale": "a file has a power of a size as a float32 number",
    "test_numbers/scale-by-root": "a file has a power of a size as a float32 number",
    "test_functions/lgamma-0": "what is zero at 1 and 2 is a difference of larger numbers",
    "test_functions/special_gammaln-0": "what is zero at 1 and 2 is a difference of larger numbers",
}
IN_FLOAT32 = TABLE["float32"]

# rows whose rules were wrong in float64 once, or go another way in it: each by default
ALWAYS = {
    "test_norm/rms",
    "test_norm/layer",
    "test_activations/selu",
    "test_activations/gelu-tanh",
    "test_activations/logit-eps",
    "test_activations/softshrink-lambda",
    "test_arithmetic/floor-divide-exact",
    "test_arithmetic/remainder-exact",
    "test_sorting/sort-nan",
    "test_sorting/topk-nan",
    "test_attention/attention",
    "test_attention/mask-float",
    "test_attention/decoder",
    "test_covariance/cov-correction",
    "test_fourier/fft-ortho-real",
    "test_resize/nearest-exact-2d-any-size",
    "test_resize/bilinear-2d-aligned-any-size",
    "test_resize/bicubic-2d-any-size",
    "test_resize/antialias-bicubic-any-size",
    "test_vision/align-aligned-adaptive",
    "test_vision/ps-align-adaptive",
}

# rows that do not run in float64, and why
APART = {
    "test_complex/recurrence-dynamic": "its loop begins with complex64, which the model makes, and goes on in double",
    "test_covariance/cov-number": "ONNX Runtime fuses the division by zero into the product and refuses its own factor",
}


def _doubled(value: Any) -> Any:
    """An input description of float64 in place of float32."""
    if isinstance(value, Input):
        return replace(value, dtype=DOUBLE.get(value.dtype, value.dtype))
    return type(value)(map(_doubled, value)) if isinstance(value, (list, tuple)) else value


def _name(module: ModuleType, row: Row) -> str:
    return f"{module.__name__.rpartition('.')[2]}/{row.name}"


def _params() -> list[Any]:
    found = []
    for module in operator_modules():
        for row in rows_of(module):
            name = _name(module, row)
            inputs, kwargs = _doubled(row.inputs), {key: _doubled(value) for key, value in row.kwargs.items()}
            if (
                name in APART
                or name.startswith(DRAWN)
                or not set(row.routes) & set(CAPTURES)
                or (inputs, kwargs) == (row.inputs, row.kwargs)
            ):
                continue
            double = copy.copy(row)
            double.inputs, double.kwargs = inputs, kwargs
            opsets = {max(_opset(row, at), row.min_opset or at) for at in AT}
            taken = zlib.crc32(name.encode()) % (ONE_IN * len(opsets))
            for number, opset in enumerate(sorted(opsets)):
                tier = "default" if name in ALWAYS else "full" if taken == number else "sweep"
                if taken == number and zlib.crc32(f"{name} by default".encode()) % 3 == 0:
                    tier = "default"
                if tier in Asked.tiers:
                    marks = () if tier == "default" else getattr(pytest.mark, tier)
                    found.append(pytest.param(name, double, opset, id=f"{name}-{opset}", marks=marks))
    return found


def _opset(row: Row, wanted: int) -> int:
    """That opset, or of the row's own ones the nearest."""
    if row.opsets in (OPSETS, PROGRAM_OPSETS):
        return wanted
    return min(row.opsets, key=lambda opset: abs(opset - wanted))


@pytest.mark.parametrize(("name", "row", "opset"), _params())
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_row(name: str, row: Row, opset: int) -> None:
    """The file computes in float64 what torch does; or the export refuses, and says so."""
    args, kwargs = row.make_inputs()
    model = row.make_model()
    if isinstance(model, nn.Module):
        model = model.double()
    try:
        with torch.no_grad():
            copy.deepcopy(model)(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        pytest.skip(f"torch does not compute it in float64: {error}")
    axes = axes_by_name(row.dynamic_axes(), args)
    try:
        program = export(
            model,
            args,
            kwargs,
            opset=opset,
            capture=next(route for route in row.routes if route in CAPTURES),
            dynamic_axes=axes,
        )
    except purexport.UnsupportedOperatorError as error:
        assert "float64" in str(error) or "opset" in str(error)
        return
    data = program.model_proto.SerializeToString()
    check_file(data, opset)
    bounds = Bounds(*IN_FLOAT32, loose=LOOSE[name]) if name in LOOSE else USUAL
    for case_args, case_kwargs in row.cases():
        try:
            compare_with_torch(model, data, case_args, case_kwargs, bounds)
        except NotImplementedInRuntime as error:
            pytest.skip(f"ONNX Runtime has no kernel of doubles: {error}")
        except RuntimeException as error:
            if "does not support double" not in str(error):
                raise
            pytest.skip(f"ONNX Runtime has no kernel of doubles: {error}")


def test_reasons_are_of_rows() -> None:
    names = {
        f"{module.__name__.rpartition('.')[2]}/{row.name}" for module in operator_modules() for row in rows_of(module)
    }
    assert names >= {*LOOSE, *APART, *ALWAYS}
