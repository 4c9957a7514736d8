"""Folders that strangers wrote, given to `purexport llm`: no Python of them runs, no file beside them is given away.

Each row changes a folder that is fine otherwise.  transformers is needed; tests/language/test_config.py has what runs
without it.
"""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import proto_schema as ps
import purexport
from purexport.cli.main import main
from purexport.errors import ExportError, VerificationError
from purexport.language import folder
from purexport.weights.stored import CheckpointFile
from tests.torchvision_shim import torchvision

torchvision()  # transformers imports it where it is installed
transformers = pytest.importorskip("transformers", reason="language models are made by transformers")

SIZES = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
SIZES |= {"num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model."""
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("fine")
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).save_pretrained(place)
    (place / "tokenizer.json").write_text('{"version": "1.0"}')
    return place


@pytest.fixture
def lm(fine: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    (tmp_path / "lm").mkdir()
    for path in fine.iterdir():
        (tmp_path / "lm" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "secret.txt").write_text("SECRET")
    return tmp_path / "lm"


def change(lm: Path, **keys: Any) -> None:
    config = json.loads((lm / "config.json").read_text()) | keys
    (lm / "config.json").write_text(json.dumps(config))


def plant(lm: Path) -> Path:
    """A module in the folder that leaves a mark where it runs; the mark."""
    mark = lm.parent / "ran"
    (lm / "evil.py").write_text(
        f"open({str(mark)!r}, 'w').close()\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class EC(LlamaConfig):\n    model_type = 'evil'\n"
        "class EM(LlamaForCausalLM):\n    config_class = EC\n"
    )
    return mark


# keys of config.json that name code, and whether the folder can be written without it
CODE: list[tuple[dict[str, Any], bool]] = [
    ({"model_type": "evil", "auto_map": {"AutoConfig": "evil.EC"}}, False),
    ({"model_type": "evil", "auto_map": {"AutoConfig": "evil.EC", "AutoModelForCausalLM": "evil.EM"}}, False),
    ({"model_type": None, "auto_map": {"AutoConfig": "evil.EC"}}, False),
    ({"auto_map": {"AutoConfig": "evil.EC", "AutoModelForCausalLM": "evil.EM"}}, True),
    ({"architectures": ["EM"], "auto_map": {"AutoModelForCausalLM": "evil.EM"}}, True),
    ({"_attn_implementation": "evil/kernel"}, True),
    ({"attn_implementation": "kernels-community/flash-attn"}, True),
    ({"experts_implementation": "sonicmoe"}, True),
]


@pytest.mark.parametrize(("keys", "written"), CODE, ids=[" ".join(row[0]) for row in CODE])
def test_code_is_not_run(
    keys: dict[str, Any], written: bool, lm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever answers yes to everything is not asked."""
    mark, out = plant(lm), lm.parent / "out"
    change(lm, **keys)
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n" * 99))
    assert main(["llm", str(lm), "-o", str(out)]) == (0 if written else 1)
    said = capsys.readouterr()
    assert not mark.exists() and out.exists() is written and not (out / "evil.py").exists()
    if written:
        assert "neither run nor copied" in said.out or "which is not loaded" in said.out
    else:
        assert "that auto_map names is not run" in said.err and "[runs-code]" in said.err
        assert len(said.err.splitlines()) == 1


def test_code_of_a_part_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model makes the parts of it by their configs, and transformers asks for each of them anew."""
    text = SIZES | {"model_type": "llama"}
    vision = {"model_type": "clip_vision_model", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 4, "patch_size": 2, "intermediate_size": 16, "projection_dim": 8}
    config = transformers.LlavaConfig(text_config=text, vision_config=vision, image_token_id=5)
    transformers.LlavaForConditionalGeneration(config).save_pretrained(tmp_path / "lm")
    mark = plant(tmp_path / "lm")
    found = json.loads((tmp_path / "lm/config.json").read_text())
    for part in ("text_config", "vision_config"):
        found[part]["auto_map"] = {"AutoModel": "evil.EM", "AutoConfig": "evil.EC"}
    (tmp_path / "lm/config.json").write_text(json.dumps(found))
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n" * 99))
    source = folder.look_into(tmp_path / "lm")
    folder.read_folder(source)
    assert not mark.exists() and sum("auto_map" in remark for remark in source.remarks) == 2


def test_code_that_is_trusted(lm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs after a warning, and the model is that of its class."""
    mark, out = plant(lm), lm.parent / "out"
    change(lm, model_type="evil", auto_map={"AutoConfig": "evil.EC", "AutoModelForCausalLM": "evil.EM"})
    with pytest.warns(UserWarning, match="Python files of .* run now, with all rights of this process"):
        report = purexport.language_model(lm, out, verify=True, trust_remote_code=True)
    assert mark.exists() and report.difference is not None and not (out / "evil.py").exists()
    assert any(remark.startswith("trust_remote_code: ") for remark in report.warnings)
    change(lm, auto_map={"AutoConfig": "evil.EC", "AutoModelForCausalLM": "org/other--evil.EM"})
    assert main(["llm", str(lm), "-o", str(lm.parent / "two"), "--trust-remote-code"]) == 1
    assert "only code of the folder itself is run" in capsys.readouterr().err


def test_code_of_a_tokenizer(lm: Path) -> None:
    """It is copied as text, no template is rendered, and the report names it."""
    template = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    (lm / "chat_template.jinja").write_text(template)
    (lm / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": "evil.T"}, "x": template}))
    (lm / "odd_config.json").write_bytes(b"auto_map" + b"[" * 100_000)
    report = purexport.language_model(lm, lm.parent / "out")
    assert "tokenizer_config.json names Python code in auto_map, which is neither run nor copied" in report.warnings
    for name in ("chat_template.jinja", "tokenizer_config.json", "odd_config.json"):
        assert (lm.parent / "out" / name).read_bytes() == (lm / name).read_bytes()


# (keys of config.json, what is said)
ODD: list[tuple[dict[str, Any], str]] = [
    ({"architectures": ["pipeline"]}, "architectures names 'pipeline', which is not a model of transformers that"),
    ({"architectures": ["Trainer"]}, "architectures names 'Trainer', which is not a model"),
    ({"architectures": ["models"]}, "architectures names 'models', which is not a model"),
    ({"architectures": ["PreTrainedModel"]}, "architectures names 'PreTrainedModel', which is not a model"),
    ({"architectures": ["LlamaModel"]}, "architectures names 'LlamaModel', which is not a model"),
    ({"architectures": ["GPT2LMHeadModel"]}, "transformers cannot make GPT2LMHeadModel by it (AttributeError:"),
    ({"architectures": [5]}, "architectures is [5]"),
    ({"quantization_config": 5}, "quantization_config is 5"),
    ({"quantization_config": {"quant_method": ["x"]}}, "quantized by ['x'], and gptq, awq"),
    ({"dtype": "os.system"}, "dtype: 'os.system' is not a dtype"),
    ({"num_attention_heads": 0}, "num_attention_heads: 0 is not a number of heads"),
    ({"num_key_value_heads": 0}, "transformers cannot make LlamaForCausalLM by it (ZeroDivisionError:"),
    ({"num_attention_heads": 3}, "The hidden size (64) is not a multiple of the number of attention heads (3)"),
    ({"hidden_act": "evil"}, "transformers cannot make LlamaForCausalLM by it (it has no 'evil' for hidden_act)"),
    ({"hidden_act": 5}, "hidden_act"),
    ({"rope_parameters": {"rope_type": "evil"}}, "it has no 'evil' for rope_parameters.rope_type"),
    ({"hidden_size": "64"}, "hidden_size"),
    ({"hidden_size": None}, "hidden_size"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers: 1000000000 is not"),
    ({"num_hidden_layers": 50_000}, "50000 layers cannot fit the checkpoint, which has 21 tensors"),
    ({"num_hidden_layers": 30}, "has 21 of the 273 parameters of LlamaForCausalLM, and not 'model.layers.2."),
    ({"hidden_size": 10**6}, "a layer of 1000000 times 48 cannot fit"),
    ({"head_dim": 10**8}, "its model is far larger than the checkpoint, which has 21 tensors of 56000 numbers"),
    ({"model_type": "bert", "architectures": None}, "BertConfig is not the config of a model that generates text"),
    ({"model_type": "llama2"}, "transformers has no model_type 'llama2'; a newer release may have it"),
    ({"model_type": "timm_wrapper"}, "transformers cannot make"),
    ({"__class__": 5}, "transformers cannot make a config by it (TypeError: __class__"),
    ({"num_key_value_heads": 5}, "transformers cannot run LlamaForCausalLM by it (RuntimeError: The size of tensor"),
    ({"output_hidden_states": 0.5}, "transformers cannot run LlamaForCausalLM by it (TypeError:"),
    ({"return_dict": None}, "transformers cannot run LlamaForCausalLM by it (AttributeError: 'tuple' object has no"),
    ({"text_config": 5}, "transformers cannot make LlamaForCausalLM by it"),
    ({"vision_config": {"num_hidden_layers": 10**9}}, "vision_config.num_hidden_layers: 1000000000 is not"),
]


@pytest.mark.parametrize(("keys", "message"), ODD, ids=[str(row[0])[:50] for row in ODD])
def test_odd_configs(keys: dict[str, Any], message: str, lm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, nothing is written."""
    change(lm, **keys)
    out = lm.parent / "out"
    assert main(["llm", str(lm), "-o", str(out)]) == 1
    said = capsys.readouterr().err
    assert message in said and len(said.splitlines()) == 1 and "--traceback" not in said
    assert not out.exists()


def test_nothing_is_fetched(lm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While transformers makes a config or a model, its hub is offline; afterwards it is what it was."""
    constants = importlib.import_module("huggingface_hub.constants")
    before, seen = constants.HF_HUB_OFFLINE, []

    def noting(function: Any) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            seen.append(constants.HF_HUB_OFFLINE)
            return function(*args, **kwargs)

        return noted

    for kind, name in ((transformers.AutoConfig, "from_pretrained"), (transformers.LlamaForCausalLM, "_from_config")):
        monkeypatch.setattr(kind, name, noting(getattr(kind, name)))
    source = folder.look_into(lm)
    folder.read_folder(source)
    monkeypatch.setattr(
        transformers.LlamaForCausalLM, "from_pretrained", noting(lambda *_, **__: torch.nn.Linear(1, 1))
    )
    folder.loaded(source, None)
    assert seen == [True, True, True] and constants.HF_HUB_OFFLINE is before


LINKS = ["tokenizer.json", "vocab.txt", "config.json", "generation_config.json", "model.safetensors"]


@pytest.mark.parametrize("name", LINKS)
def test_links_out_of_the_folder(name: str, lm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What they lead to is in nothing that is written."""
    outside = lm.parent / "secret.txt"
    if (lm / name).exists():
        (lm / name).rename(outside)
    (lm / name).symlink_to(outside)
    assert main(["llm", str(lm), "-o", str(lm.parent / "out")]) == 1
    assert "[file-outside-folder]" in capsys.readouterr().err and not (lm.parent / "out").exists()


def test_a_hub_cache(lm: Path) -> None:
    """Every file of a snapshot is a link to a blob, those of weights too."""
    snapshot, blobs = lm.parent / "models--org--lm/snapshots/abc", lm.parent / "models--org--lm/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(lm.iterdir())):
        path.rename(blobs / f"{number:040x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:040x}")
    report = purexport.language_model(snapshot, lm.parent / "out", verify=True)
    assert report.difference is not None and "tokenizer.json" in report.files
    assert not any(path.is_symlink() for path in (lm.parent / "out").iterdir())


@pytest.mark.parametrize("there", [False, True])
def test_nothing_is_left_behind(there: bool, lm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full at the last file: those before it go again, and what was there stays."""
    out = lm.parent / "out"
    if there:
        out.mkdir()
        (out / "mine.txt").write_text("mine")
        (out / "config.json").write_bytes((lm / "config.json").read_bytes())

    def full(place: Path, files: Any) -> None:
        (place / "tokenizer.json").write_text("{}")
        raise OSError(28, "No space left on device", str(place))

    monkeypatch.setattr("purexport.language.model.write_files", full)
    assert main(["llm", str(lm), "-o", str(out)]) == 2
    assert sorted(path.name for path in out.glob("*")) == (["config.json", "mine.txt"] if there else [])
    assert out.exists() is there


@pytest.mark.parametrize("there", [False, True], ids=["new", "over an older one"])
def test_a_wrong_file_does_not_stay(there: bool, lm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `verify` finds a difference, there is no file that somebody might use, not even an older one."""
    out = lm.parent / "out"
    if there:
        assert main(["llm", str(lm), "-o", str(out)]) == 0

    def differs(*_: Any, **__: Any) -> float:
        raise VerificationError("step 3: a logit differs")

    monkeypatch.setattr("purexport.language.model.check_steps", differs)
    assert main(["llm", str(lm), "-o", str(out), "--verify"]) == 1
    assert not (out / "model.onnx").exists() and out.exists() is there


def test_the_quiet_path(lm: Path) -> None:
    """Nothing is to be said of an ordinary model, and nothing is asked of transformers by a name of the past."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="`torch.jit")  # torch says it of each trace
        report = purexport.language_model(lm, lm.parent / "out", verify=True)
    assert report.warnings == []


NO_MEMORY = [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")]


@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["_from_config", "forward"])
def test_no_memory_is_not_an_answer(name: str, error: Exception, lm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither torch's error for it, nor Python's, says that the model cannot be exported."""
    function = getattr(transformers.LlamaForCausalLM, name)

    def fails(*args: Any, **kwargs: Any) -> Any:
        if name == "forward" and not torch.jit.is_tracing():  # type: ignore[attr-defined]
            return function(*args, **kwargs)
        raise error

    monkeypatch.setattr(transformers.LlamaForCausalLM, name, fails)
    with pytest.raises(MemoryError):
        purexport.language_model(lm, lm.parent / "out")
    assert main(["llm", str(lm), "-o", str(lm.parent / "out")]) == 2


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE, errno.EACCES, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("place", ["CheckpointFile.read", "CheckpointFile.__init__", "_from_config"])
def test_the_system_says_no(
    place: str, number: int, lm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is never an answer about the model."""

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number), "it")

    owner = transformers.LlamaForCausalLM if place == "_from_config" else CheckpointFile
    monkeypatch.setattr(owner, place.rpartition(".")[2], fails)
    assert main(["llm", str(lm), "-o", str(lm.parent / "out")]) == 2
    assert os.strerror(number) in capsys.readouterr().err


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["llm", str(tmp_path / "none"), "-o", str(tmp_path / "out")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_long_tables_are_asked_for(lm: Path) -> None:
    change(lm, max_position_embeddings=10_000_000)
    with pytest.raises(ExportError, match=r"max_position_embeddings is 10000000, .* max_length="):
        purexport.language_model(lm, lm.parent / "out", "onnxruntime")
    purexport.language_model(lm, lm.parent / "out", "onnxruntime", max_length=32)
    assert ps.load(lm.parent / "out/model.onnx").graph is not None
