"""`verify`: how far results may be apart in each data type, on which arguments, and what errors say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel
from torch import Tensor, nn

import purexport
from purexport.runtime import sessions

X = torch.linspace(1, 2, 8).reshape(2, 4)


class Fickle(nn.Module):
    """Computes something else while it is exported, which no exporter can see.

    The product is rounded to `dtype` and comes out as `result`.
    """

    def __init__(self, dtype: torch.dtype, result: torch.dtype | None, factor: float) -> None:
        super().__init__()
        self.dtype, self.result, self.factor = dtype, result or dtype, factor

    def forward(self, x: Tensor) -> Tensor:
        wide = x.double() if self.dtype == torch.float64 else x.float()
        return (wide * (1 if purexport.is_in_onnx_export() else self.factor)).to(self.dtype).to(self.result)


# the type that the file computes with, that of its result, a factor that is right and one that is wrong
BOUNDS = [
    (torch.float64, None, 1 + 1e-8, 1 + 1e-6),
    (torch.float32, None, 1 + 2e-4, 1 + 1e-2),
    (torch.float16, None, 1.005, 1.05),
    (torch.float16, torch.float32, 1.005, 1.05),
    (torch.bfloat16, None, 1.03, 1.5),
    (torch.bfloat16, torch.float32, 1.03, 1.5),
    (torch.float8_e4m3fn, None, 1.1, 2.0),
    (torch.int32, None, 1.0, 2.0),
    (torch.bool, None, 1.0, 0.0),
]
IDS = ["-".join(str(item).removeprefix("torch.") for item in row[:2] if item) for row in BOUNDS]


@pytest.mark.parametrize(("dtype", "result", "right", "wrong"), BOUNDS, ids=IDS)
def test_bounds_follow_from_the_dtypes(
    dtype: torch.dtype, result: torch.dtype | None, right: float, wrong: float
) -> None:
    x = X.double() if dtype == torch.float64 else X
    purexport.export(Fickle(dtype, result, right), (x,), verify=True, capture="trace")
    with pytest.raises(purexport.VerificationError, match=r"output 'output' differs at \d of 8 places"):
        purexport.export(Fickle(dtype, result, wrong), (x,), verify=True, capture="trace")


GIVEN = [
    # dtype, factor, bounds under which it passes, bounds under which it does not
    (torch.float32, 1.05, {"rtol": 0.1}, {"rtol": 0.01}),
    (torch.float32, 1.05, {"rtol": 0, "atol": 0.2}, {"rtol": 0, "atol": 0.01}),
    (torch.float32, 1 + 1e-5, {}, {"rtol": 0, "atol": 0}),
    (torch.float16, 1.002, {}, {"rtol": 1e-5, "atol": 1e-5}),
    (torch.int32, 2.0, {"atol": 2}, {"atol": 0.5}),
]


@pytest.mark.parametrize(("dtype", "factor", "wide", "narrow"), GIVEN, ids=lambda item: str(item))
def test_given_bounds(dtype: torch.dtype, factor: float, wide: dict[str, float], narrow: dict[str, float]) -> None:
    model = Fickle(dtype, None, factor)
    purexport.export(model, (X,), verify=True, capture="trace", **wide)
    with pytest.raises(purexport.VerificationError, match="differs"):
        purexport.export(model, (X,), verify=True, capture="trace", **narrow)


class Grows(nn.Module):
    """What the file of an example of few rows does not know."""

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return x * (3 if len(x) > 4 and not purexport.is_in_onnx_export() else 2) + (0 if y is None else y)


AXES: dict[str, Any] = {"dynamic_axes": {"x": {0: "n"}, "y": {0: "n"}}}
MORE: list[tuple[Any, dict[str, Any], list[Any], str]] = [
    # args, options, more arguments, what the error says
    ((X,), AXES, [], ""),
    ((X,), AXES, [(X[:1],), X[:1], {"x": X}], ""),
    ((X, X), AXES, [(X[:1], X[:1]), (X, {"y": X})], ""),
    ((X,), AXES, [(X,), (X.repeat(3, 1),)], r"verify\[1\]: output 'output' differs at 24 of 24 places"),
    ((X,), {}, [X[:1]], r"verify\[0\]: onnxruntime refuses the arguments that the model takes: .*invalid dimensions"),
]


@pytest.mark.parametrize(("args", "options", "more", "message"), MORE)
@pytest.mark.filterwarnings("ignore:dynamic_axes names 'y'", "ignore:.*len.x.*4")
def test_more_arguments(args: Any, options: dict[str, Any], more: list[Any], message: str) -> None:
    """Each as `args`; the example itself is compared too."""

    def export() -> purexport.ONNXProgram:
        return purexport.export(Grows(), args, verify=more, capture="trace", **options)

    if not message:
        assert export()(*args)[0].shape == X.shape
        with pytest.raises(purexport.VerificationError, match=r"^output 'output' differs"):
            purexport.export(Fickle(torch.float32, None, 2.0), (X,), verify=[], capture="trace")
        return
    with pytest.raises(purexport.VerificationError, match=message):
        export()


def test_no_session_is_kept() -> None:
    program = purexport.export(nn.Linear(4, 2), (X,), verify=True)
    assert program._sessions._session is None


def test_a_type_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's own words are about a node; ours say what to do."""

    def fails(*_: Any) -> Any:
        raise NoKernel("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Add(14)")

    monkeypatch.setattr(sessions, "session_of", fails)
    with pytest.raises(
        purexport.ExportError, match=r"no kernel for one of its operators.*float32 \(.*Add\(14\)"
    ) as told:
        purexport.export(nn.Linear(4, 2), (X,), verify=True)
    assert told.value.code == "verify-impossible"
