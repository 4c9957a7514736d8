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

# loops over the experts that were chosen, whose number depends on data; a trace has those of the example
BY_DATA = ("DbrxForCausalLM", "JetMoeForCausalLM", "LongcatFlashForCausalLM")


def _params() -> list[Any]:
    try:
        torchvision()  # transformers imports it where it is installed
        names = decoders.classes()
    except ImportError:
        return []
    fails = pytest.mark.xfail(reason="loops over experts by data")
    return [pytest.param(name, marks=[fails] if name in BY_DATA else []) for name in names]


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _params())
def test_decoder(name: str) -> None:
    pytest.importorskip("transformers")
    try:
        decoder = decoders.made(name)
    except decoders.LeftOutError as error:
        pytest.skip(str(error))
    program = purexport.export(
        decoder.step,
        decoder.args(**decoders.EXAMPLE),
        capture="trace",
        opset_version=decoders.OPSET,
        input_names=decoder.input_names,
        output_names=decoder.output_names,
        dynamic_axes=decoder.axes(),
    )
    data = program.model_proto.SerializeToString()

    def run(feeds: dict[str, Any]) -> Any:
        return run_ort(data, list(feeds.values()))

    decoder.check(run)
