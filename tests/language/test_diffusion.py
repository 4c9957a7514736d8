"""Pipelines of diffusers as folders: Stable Diffusion, SDXL and Stable Diffusion 3 with random weights.

diffusers is no requirement of the tests: they run where it is installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import proto_schema as ps
import purexport
from purexport.cli.main import main
from purexport.errors import ExportError
from tests.torchvision_shim import torchvision

IMAGE = {"batch_size", "height", "width"}
TEXT = {"batch_size", "sequence_length"}
# the files of a pipeline, with the names of the inputs and of the axes that vary
FILES: dict[str, dict[str, tuple[list[str], set[str]]]] = {
    "stable diffusion": {
        "text_encoder": (["input_ids"], TEXT),
        "unet": (["sample", "timestep", "encoder_hidden_states"], IMAGE | TEXT),
        "vae_encoder": (["sample"], {"batch_size", "sample_height", "sample_width"}),
        "vae_decoder": (["latent_sample"], {"batch_size", "latent_height", "latent_width"}),
    },
    "sdxl": {
        "text_encoder": (["input_ids"], TEXT),
        "text_encoder_2": (["input_ids"], TEXT),
        "unet": (["sample", "timestep", "encoder_hidden_states", "text_embeds", "time_ids"], IMAGE | TEXT),
    },
    "sd3": {
        "transformer": (["hidden_states", "timestep", "encoder_hidden_states", "pooled_projections"], IMAGE | TEXT),
    },
}


def made(name: str, folder: Path) -> Any:
    torchvision()  # transformers imports it where it is installed
    pytest.importorskip("diffusers", reason="pipelines are made by diffusers, which is not installed")
    from tests.models.pipelines import PIPELINES

    return PIPELINES[name](folder)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_a_pipeline(name: str, tmp_path: Path) -> None:
    pipe = made(name, tmp_path / "words")
    before, state = vars(pipe.scheduler).copy(), torch.get_rng_state()
    report = purexport.pipeline(pipe, tmp_path / "out", verify=True)
    assert vars(pipe.scheduler) == before and torch.equal(torch.get_rng_state(), state)
    for part, (names, axes) in FILES[name].items():
        graph = ps.load(tmp_path / "out" / part / "model.onnx").graph
        assert [item.name for item in graph.input] == names
        shapes = report.parts[part]["inputs"].values()
        assert {size for shape in shapes for size in shape if isinstance(size, str)} == axes
        assert "and on 1 more call" in report.parts[part]["verified"]
        assert json.loads((tmp_path / "out" / part / "config.json").read_bytes())
    beside = {"model_index.json", "scheduler/scheduler_config.json", "tokenizer/tokenizer_config.json"}
    assert beside <= {*report.files}
    assert all((tmp_path / "out" / file).is_file() for file in report.files)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made("stable diffusion", tmp_path / "words").save_pretrained(tmp_path / "sd")
    assert main(["pipeline", str(tmp_path / "sd"), "-o", str(tmp_path / "out"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [*report["parts"]] == ["text_encoder", "unet", "vae_encoder", "vae_decoder"]
    assert (tmp_path / "out" / "unet" / "model.onnx").is_file()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_a_call_that_the_pipeline_refuses(tmp_path: Path) -> None:
    pipe = made("stable diffusion", tmp_path / "words")
    words = r"does not run on prompt: .*give inputs=\[\{...\}, \{...\}\], the keyword arguments of two calls"
    with pytest.raises(ExportError, match=words) as caught:
        purexport.pipeline(pipe, tmp_path / "out", inputs=[{"prompt": 3}])
    assert caught.value.code == "pipeline-does-not-run" and not (tmp_path / "out").exists()


def test_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"Linear is not a pipeline of diffusers; export takes other models"):
        purexport.pipeline(torch.nn.Linear(2, 2), tmp_path / "out")
    with pytest.raises(ExportError, match=r"has no model_index\.json; a folder as pipe\.save_pretrained writes"):
        purexport.pipeline(tmp_path, tmp_path / "out")
    with pytest.raises(ValueError, match=r"target='x' is not one of 'onnx', 'onnxruntime'"):
        purexport.pipeline(tmp_path, tmp_path / "out", "x")


INDEXES = {
    "a-library": ({"_class_name": "StableDiffusionPipeline", "unet": ["evil", "Model"]}, "unet is of 'evil', and only"),
    "a-path": ({"_class_name": "StableDiffusionPipeline", "unet": ["os.path", "Model"]}, "unet is of 'os.path'"),
    "a-class": ({"_class_name": ["evil", "Pipeline"]}, r"diffusers has no pipeline \['evil', 'Pipeline'\]"),
    "no-mapping": ([5], "diffusers has no pipeline None"),
    "damaged": (None, "it is not JSON"),
}


@pytest.mark.parametrize("name", INDEXES)
def test_no_code_of_a_folder_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a module with the name of a library lies in the current folder."""
    pytest.importorskip("diffusers", reason="pipelines are read by diffusers")
    index, words = INDEXES[name]
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "model_index.json").write_text("{" if index is None else json.dumps(index))
    with pytest.raises(ExportError, match=words) as caught:
        purexport.pipeline(tmp_path, tmp_path / "out")
    assert caught.value.code in ("runs-code", "odd-config")
