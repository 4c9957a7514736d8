"""Every causal language model of transformers with a cache of keys and values: tests/models/decoders.py has the cases.

`benchmarks/decoders.py` counts the same in processes of their own, which is faster to read and survives a crash.
"""

from __future__ import annotations

from typing import Any

import pytest

import purexport
from tests.harness import run_ort
from tests.models import decoders
from tests.torchvision_shim import torchvision

_BY_DATA = "loops over the experts that the data chooses"
# why a class does not pass by a route
FAILS = {
    "trace": dict.fromkeys(("DbrxForCausalLM", "JetMoeForCausalLM", "LongcatFlashForCausalLM"), _BY_DATA),
    "export": {
        "GitForCausalLM": "asks in Python whether the cache is empty, and does something else then; a remark says so",
        "LongcatFlashForCausalLM": _BY_DATA,
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
@pytest.mark.parametrize(("name", "route"), _params())
def test_decoder(name: str, route: str) -> None:
    try:
        decoder = decoders.made(name)
    except decoders.LeftOutError as error:
        pytest.skip(str(error))
    program = purexport.export(
        decoder.step,
        decoder.args(**decoders.EXAMPLE),
        capture=route,
        opset_version=decoders.OPSET,
        input_names=decoder.input_names,
        output_names=decoder.output_names,
        dynamic_axes=decoder.axes(),
    )
    data = program.model_proto.SerializeToString()

    def run(feeds: dict[str, Any]) -> Any:
        return run_ort(data, list(feeds.values()))

    decoder.check(run)


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
