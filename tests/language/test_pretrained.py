"""Models of transformers that generate no text: their tasks, the names and axes of their files, and what is refused.

transformers is needed.  `pytest -m sweep` writes and verifies every class of tests/models/pretrained.py; names and axes
are compared with those of optimum's exporter (2.1, read once), where it has the architecture.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import proto_schema as ps
import purexport
from purexport.cli.main import main
from purexport.errors import ExportError, VerificationError
from purexport.language.interface import part_of
from purexport.language.tasks import class_for, task_named, task_of
from tests.models import decoders, pretrained
from tests.torchvision_shim import torchvision

torchvision()  # transformers imports it where it is installed
transformers = pytest.importorskip("transformers", reason="models of folders are made by transformers")

pytestmark = pytest.mark.filterwarnings("ignore")

B, S = "batch_size", "sequence_length"
TOKENS = {name: [B, S] for name in ("input_ids", "attention_mask")}
TYPED = TOKENS | {"token_type_ids": [B, S]}
CHOICES = {name: [B, "num_choices", S] for name in TYPED}
IMAGE = {"pixel_values": [B, 3, "height", "width"]}
WAVE = {"input_values": [B, S]}
HIDDEN = ["last_hidden_state"]
# (class, task, inputs, outputs) as optimum has them; an axis that the model takes at one size only is a number
PORTS: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("BertModel", "feature-extraction", TYPED, HIDDEN),
    ("RobertaModel", "feature-extraction", TOKENS, HIDDEN),
    ("DistilBertModel", "feature-extraction", TOKENS, HIDDEN),
    ("DebertaV2Model", "feature-extraction", TOKENS, HIDDEN),
    ("XLMModel", "feature-extraction", TYPED, HIDDEN),
    ("LayoutLMModel", "feature-extraction", {**TYPED, "bbox": [B, S, 4]}, HIDDEN),
    ("GPT2Model", "feature-extraction", {**TOKENS, "position_ids": [B, S]}, HIDDEN),
    ("CLIPVisionModel", "feature-extraction", {"pixel_values": [B, 3, 32, 32]}, [*HIDDEN, "pooler_output"]),
    ("T5EncoderModel", "feature-extraction", TOKENS, HIDDEN),
    ("ASTForAudioClassification", "audio-classification", {"input_values": [B, 48, 16]}, ["logits"]),
    ("BartForSequenceClassification", "text-classification", TOKENS, ["logits"]),
    ("GPT2ForSequenceClassification", "text-classification", TOKENS, ["logits"]),
    ("ElectraForMultipleChoice", "multiple-choice", CHOICES, ["logits"]),
    ("BertForQuestionAnswering", "question-answering", TYPED, ["start_logits", "end_logits"]),
    ("ResNetForImageClassification", "image-classification", IMAGE, ["logits"]),
    ("YolosForObjectDetection", "object-detection", IMAGE, ["logits", "pred_boxes"]),
    ("ViTForMaskedImageModeling", "masked-im", {"pixel_values": [B, 3, 32, 32]}, ["reconstruction"]),
    ("Wav2Vec2ForCTC", "automatic-speech-recognition", WAVE, ["logits"]),
    ("Wav2Vec2ForXVector", "audio-xvector", WAVE, ["logits", "embeddings"]),
    (
        "CLIPModel",
        "zero-shot-image-classification",
        {
            **{name: ["text_batch_size", S] for name in TOKENS},
            "pixel_values": [B, 3, 32, 32],
        },
        ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"],
    ),
]


@pytest.mark.parametrize(("name", "task", "inputs", "outputs"), PORTS, ids=[row[0] for row in PORTS])
def test_names_are_optimums(name: str, task: str, inputs: dict[str, Any], outputs: list[str]) -> None:
    model = pretrained.made(name)
    assert task_of(type(model), model.config).name == task
    part = part_of(model, task_named(task))
    assert {port.name: list(port.shape) for port in part.inputs} == inputs
    assert list(part.output_names) == outputs


# (class, the task that is asked for, the class that is written)
ASKED = [
    ("BertForMaskedLM", "feature-extraction", "BertModel"),
    ("BertForSequenceClassification", None, "BertForSequenceClassification"),
    ("LlamaForCausalLM", "feature-extraction", "LlamaModel"),
    ("XLMWithLMHeadModel", None, "XLMWithLMHeadModel"),
]


@pytest.mark.parametrize(("name", "task", "written"), ASKED)
def test_the_class_for_a_task(name: str, task: str | None, written: str) -> None:
    config = getattr(transformers, name).config_class(architectures=[name])
    kind, _ = class_for(config, None if task is None else task_named(task))
    assert kind.__name__ == written


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny BERT, whose checkpoint has a head that its other tasks leave out."""
    place = tmp_path_factory.mktemp("fine")
    pretrained.made("BertForSequenceClassification").save_pretrained(place)
    (place / "tokenizer.json").write_text('{"version": "1.0"}')
    (place / "preprocessor_config.json").write_text("{}")
    (place / "README.md").write_text("not copied")
    return place


@pytest.fixture
def folder(fine: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    (tmp_path / "folder").mkdir()
    for path in fine.iterdir():
        (tmp_path / "folder" / path.name).write_bytes(path.read_bytes())
    return tmp_path / "folder"


def change(folder: Path, **keys: Any) -> None:
    config = json.loads((folder / "config.json").read_text()) | keys
    (folder / "config.json").write_text(json.dumps(config))


def test_verb(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The task follows from the folder; what a tokenizer reads is beside the file; nothing is warned of."""
    out = folder.parent / "out"
    assert main(["hf", str(folder), "-o", str(out), "--verify"]) == 0
    said = capsys.readouterr()
    assert "task: text-classification, BertForSequenceClassification" in said.out and "verified: " in said.out
    assert "warning" not in said.out + said.err
    names = ["config.json", "model.onnx", "preprocessor_config.json", "tokenizer.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert main(["hf", str(folder), "-o", str(out), "--task", "feature-extraction", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["outputs"] == {"last_hidden_state": [B, S, 32]} and report["opset"] == 20
    ps.checker.check_model(out / "model.onnx", full_check=True)


def test_the_tokenizer_says_what_it_makes(folder: Path) -> None:
    """Whoever feeds a session what the tokenizer gives must not be asked for more."""
    (folder / "tokenizer_config.json").write_text('{"model_input_names": ["input_ids", "attention_mask"]}')
    report = purexport.pretrained_model(folder, folder.parent / "out")
    assert report.inputs == TOKENS


def test_quantized(folder: Path) -> None:
    report = purexport.pretrained_model(folder, folder.parent / "out", quantize="int8", verify=True)
    assert report.difference is not None and report.nodes["DequantizeLinear"] > 0


def test_a_head_that_the_checkpoint_lacks(folder: Path) -> None:
    """Random numbers for it would be a file that says anything."""
    with pytest.raises(ValueError, match=r"classifier|qa_outputs"):
        purexport.pretrained_model(folder, folder.parent / "out", task="question-answering")
    assert not (folder.parent / "out").exists()


# (keys of config.json, options, the code and a part of the error)
REFUSED: list[tuple[dict[str, Any], list[str], str]] = [
    ({}, ["--task", "image-classification"], "it has some for .*text-classification.* \\[no-task\\]"),
    ({}, ["--task", "text-clasification"], "did you mean 'text-classification'"),
    ({}, ["--task", "text-generation"], "`purexport llm`"),
    ({"architectures": ["BertForNextSentencePrediction"]}, [], "give the task with --task .*\\[no-task\\]"),
    ({"architectures": ["BertLMHeadModel"]}, [], "`purexport llm` .*\\[generates-text\\]"),
    ({"architectures": ["NoSuchModel"]}, [], "'NoSuchModel', which is not a model of transformers"),
    ({"model_type": "evil", "auto_map": {"AutoConfig": "evil.EC"}}, [], "is not run.*\\[runs-code\\]"),
]


@pytest.mark.parametrize(("keys", "options", "said"), REFUSED, ids=range(len(REFUSED)))
def test_refusals(
    keys: dict[str, Any], options: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(folder, **keys)
    assert main(["hf", str(folder), "-o", str(folder.parent / "out"), *options]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(said, line), line
    assert not (folder.parent / "out").exists()


def test_what_comes_from_strangers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A class of the folder's code is not run where transformers has the model; a link out of the folder is refused."""
    out, mark = folder.parent / "out", folder.parent / "ran"
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    change(folder, auto_map={"AutoModel": "evil.EM"})
    assert main(["hf", str(folder), "-o", str(out)]) == 0
    assert "neither run nor copied" in capsys.readouterr().out and not mark.exists() and not (out / "evil.py").exists()
    (folder.parent / "secret").write_text("SECRET")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to(folder.parent / "secret")
    assert main(["hf", str(folder), "-o", str(folder.parent / "two")]) == 1
    assert "[file-outside-folder]" in capsys.readouterr().err and not (folder.parent / "two").exists()


def test_a_wrong_file_is_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is compared before anything is written."""
    call = purexport.ONNXProgram.__call__

    def wrong(self: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return tuple(item + 0.01 for item in call(self, *args, **kwargs))

    monkeypatch.setattr(purexport.ONNXProgram, "__call__", wrong)
    with pytest.raises(VerificationError, match=r"with batch_size 2, sequence_length 11: output 'logits' .* differs"):
        purexport.pretrained_model(folder, folder.parent / "out", verify=True)
    assert not (folder.parent / "out").exists()


@pytest.mark.parametrize("name", ["meta/llama", "google/bert"])
@pytest.mark.parametrize("verb", ["hf", "llm"])
def test_the_name_of_a_hub(verb: str, name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([verb, name, "-o", str(tmp_path / "out")]) == 2
    assert f"hf download {name} --local-dir {name.partition('/')[2]}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM", "ViTModel", "BartForSequenceClassification"])
def test_llm_points_here(name: str, tmp_path: Path) -> None:
    """A folder and a model of another kind are refused by the function for language models, which says where to go."""
    model = pretrained.made(name)
    model.save_pretrained(tmp_path / "folder")
    for given in (model, tmp_path / "folder"):
        with pytest.raises(ExportError, match="purexport hf") as refused:
            purexport.language_model(given, tmp_path / "out")
        assert refused.value.code == "not-a-decoder" and not (tmp_path / "out").exists()


def test_a_model_for_something_else(tmp_path: Path) -> None:
    model = pretrained.made("BertForSequenceClassification")
    with pytest.raises(
        ExportError, match="BertForSequenceClassification is not a model for fill-mask; give a BertForMask"
    ):
        purexport.pretrained_model(model, tmp_path / "out", "fill-mask")


@pytest.mark.full
def test_weights_that_loading_changes(tmp_path: Path) -> None:
    """transformers (5.24) sets the embedding of the padding token to 0 in this model: the error names the weight."""
    model = pretrained.made("ChineseCLIPModel")
    embedding = model.text_model.embeddings.word_embeddings
    embedding.weight.data[embedding.padding_idx] = torch.arange(32.0)
    model.save_pretrained(tmp_path / "folder")
    with pytest.raises(
        VerificationError, match=r"gives 'text_model\.embeddings\.word_embeddings\.weight' other values"
    ):
        purexport.pretrained_model(tmp_path / "folder", tmp_path / "out", verify=True)


ROWS = [(task, name) for task, names in pretrained.CLASSES.items() for name in names]
FEW = (
    *("RobertaForMaskedLM", "ConvNextForImageClassification", "ViTForImageClassification", "HubertForCTC", "CLIPModel"),
    *("MobileBertForMaskedLM", "AltCLIPModel"),  # a weight without numbers; one type of tokens
    *(
        "LevitForImageClassification",
        "RTDetrForObjectDetection",
        "SEWDForCTC",
    ),  # tables kept, in itself; by torch.export
)


def _marked(task: str, name: str) -> Any:
    marks = pytest.mark.full if name in FEW else pytest.mark.sweep
    return pytest.param(task, name, id=f"{task}-{name}", marks=marks)


@pytest.mark.parametrize(("task", "name"), [_marked(*row) for row in ROWS])
def test_written_and_verified(task: str, name: str, tmp_path: Path) -> None:
    """From a folder, at two sizes."""
    try:
        model = pretrained.made(name)
    except decoders.LeftOutError as error:
        pytest.skip(str(error))
    model.save_pretrained(tmp_path / "folder")
    if name in pretrained.REFUSED:
        with pytest.raises(ExportError, match=pretrained.REFUSED[name]):
            purexport.pretrained_model(tmp_path / "folder", tmp_path / "out")
        return
    report = purexport.pretrained_model(tmp_path / "folder", tmp_path / "out", verify=True)
    assert report.task == task and len(report.verified) == 2
