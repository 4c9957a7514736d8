"""Every causal language model of transformers with a cache of keys and values: tests/models/decoders.py has the cases.

`benchmarks/decoders.py` counts the same in processes of their own, which is faster to read and survives a crash.
"""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest

import purexport
from tests.models import decoders, encoder_decoders
from tests.torchvision_shim import torchvision

# why a class does not pass by a route
FAILS: dict[str, dict[str, str]] = {
    "trace": {},
    "export": {
        "GitForCausalLM": "asks in Python whether the cache is empty, and does something else then; a remark says so"
    },
}
LEAST = 125  # classes that are cases; more of them left out would hide what does not export any more


def _names() -> list[str]:
    try:
        torchvision()  # transformers imports it where it is installed
        return decoders.classes()
    except ImportError:
        return []


def _params() -> list[Any]:
    return [
        pytest.param(
            name, route, marks=[pytest.mark.xfail(reason=fails[name])] if name in fails else [], id=f"{name}-{route}"
        )
        for name in _names()
        for route, fails in FAILS.items()
    ]


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["wrapped", "own"])
@pytest.mark.parametrize(("name", "route"), _params())
def test_decoder(name: str, route: str, form: str) -> None:
    try:
        decoder = decoders.made(name)
    except decoders.LeftOutError as error:
        pytest.skip(str(error))
    check(decoder.own() if form == "own" else decoder.wrapped(), route)


def check(task: decoders.Task, route: str) -> None:
    program = purexport.export(
        task.model,
        task.args,
        kwargs=task.kwargs,
        capture=route,
        opset_version=decoders.OPSET,
        dynamic_axes=task.axes,
        **task.names,
    )
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs, outputs = ([item.name for item in ends] for ends in (session.get_inputs(), session.get_outputs()))

    def run(feeds: dict[str, Any]) -> dict[str, Any]:
        found = session.run(outputs, {name: value for name, value in feeds.items() if name in inputs})
        return dict(zip(outputs, found, strict=True))

    task.check(run)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["first", "step", "with-cache"])
@pytest.mark.parametrize("route", ["trace", "export"])
@pytest.mark.parametrize(
    "name", ["BartForConditionalGeneration", "T5ForConditionalGeneration", "WhisperForConditionalGeneration"]
)
def test_encoder_decoder(name: str, route: str, form: str) -> None:
    pytest.importorskip("transformers")
    torchvision()
    check(encoder_decoders.made(name).tasks()[form], route)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
def test_few_classes_are_left_out() -> None:
    pytest.importorskip("transformers")
    reasons = [_reason(name) for name in _names()]
    assert reasons.count("") >= LEAST, [reason for reason in reasons if reason]


def _reason(name: str) -> str:
    try:
        decoders.made(name)
    except decoders.LeftOutError as error:
        return f"{name}: {error}"
    return ""
