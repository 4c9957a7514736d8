"""Language models of transformers with a KV cache by torch.export; tests/models/decoders.py has the cases."""

from __future__ import annotations

from typing import Any

import pytest

import purexport
from tests.harness import run_ort
from tests.models import decoders
from tests.torchvision_shim import torchvision

# why a class does not pass by torch.export
OTHERWISE = {
    "GitForCausalLM": "asks in Python whether the cache is empty, and does something else then; a remark says so",
    "LongcatFlashForCausalLM": "loops over the experts that the data chooses",
}


def _names() -> list[str]:
    try:
        torchvision()  # transformers imports it where it is installed
        return decoders.classes()
    except ImportError:
        return []


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _names())
def test_decoder(name: str) -> None:
    pytest.importorskip("transformers")
    if name in OTHERWISE:
        pytest.skip(OTHERWISE[name])
    try:
        decoder = decoders.made(name)
    except decoders.LeftOutError as error:
        pytest.skip(str(error))
    program = purexport.export(
        decoder.step,
        decoder.args(**decoders.EXAMPLE),
        capture="export",
        opset_version=decoders.OPSET,
        input_names=decoder.input_names,
        output_names=decoder.output_names,
        dynamic_axes=decoder.axes(),
    )
    data = program.model_proto.SerializeToString()

    def run(feeds: dict[str, Any]) -> Any:
        return run_ort(data, list(feeds.values()))

    decoder.check(run)
