"""Decoders by what they keep, with padding: a loop around the file makes the tokens that `generate` makes in torch.

transformers is no requirement of the tests: they run where it is installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import proto_schema as ps
import purexport
from purexport.cli.main import main
from purexport.errors import ExportError, VerificationError
from purexport.language.caches import decoder_with
from purexport.language.checked import check_steps
from purexport.language.model import program_of
from tests.torchvision_shim import torchvision

torchvision()  # transformers imports it where it is installed
transformers = pytest.importorskip("transformers", reason="language models are made by transformers")

from tests.language.test_language_model import SIZES  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

ROOM, NEW = 24, 16
LENGTHS = (7, 4, 6)  # of the prompts of a batch
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 48}
WINDOW = {"sliding_window": 4}
MORE: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": GPT2,
    "Gemma2ForCausalLM": WINDOW,
    "Gemma3ForCausalLM": WINDOW,
    "MistralForCausalLM": WINDOW,
}


def made(name: str, **more: Any) -> Any:
    """A tiny model of a class, with weights that tell tokens apart, and that ends no text."""
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**SIZES, **MORE.get(name, {}), **more})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.15) if parameter.dim() > 1 else parameter.add_(0.1)
    return model


def prompts() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(3, 90, (length,), generator=generator) for length in LENGTHS]


def by_torch(model: Any) -> list[list[int]]:
    """What `generate` makes of the batch, padded on the left, as it wants it."""
    ids, mask = padded("left")
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "eos_token_id": None}
    return model.generate(ids, attention_mask=mask, **options)[:, ids.shape[1] :].tolist()  # type: ignore[no-any-return]


def padded(side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The prompts as one tensor, and its mask."""
    rows, masks = [], []
    for prompt in prompts():
        rest = torch.zeros(max(LENGTHS) - len(prompt), dtype=torch.int64)
        parts, seen = (prompt, rest), (torch.ones_like(prompt), rest)
        rows.append(torch.cat(parts if side == "right" else parts[::-1]))
        masks.append(torch.cat(seen if side == "right" else seen[::-1]))
    return torch.stack(rows), torch.stack(masks)


def loop(file: bytes, side: str, cache: str | None, target: str, *, last: bool = False) -> list[list[int]]:
    """Greedy tokens by the file: the loop that a program around ONNX Runtime has."""
    runtime = pytest.importorskip("onnxruntime")
    quiet = runtime.SessionOptions()
    quiet.log_severity_level = 3  # it warns at each write that the buffers are copied
    session = runtime.InferenceSession(file, quiet, providers=["CPUExecutionProvider"])
    counted = (target != "onnx" and cache == "static") or target == "onnxruntime-genai"
    ids, mask = padded(side)
    names = {item.name: item for item in session.get_inputs()}
    slots = ROOM if cache == "static" else 0
    state = {
        name: torch.zeros(len(ids), item.shape[1], slots, item.shape[3])
        for name, item in names.items()
        if name.startswith("past_key_values")
    }
    new, shown, tokens = ids, mask, []
    for _ in range(NEW):
        past = mask.shape[1] - new.shape[1]
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        feed = {"input_ids": new, "attention_mask": mask, "position_ids": positions[:, -new.shape[1] :]}
        if cache is None:
            feed |= {"input_ids": ids, "position_ids": positions}
        elif counted:
            feed["attention_mask"] = (torch.arange(mask.shape[1]) < mask.sum(1)[:, None]).long()
        elif cache == "static":
            whole = torch.zeros(len(ids), ROOM, dtype=torch.int64)
            whole[:, : mask.shape[1]] = mask
            feed |= {"attention_mask": whole, "past_length": torch.tensor([past])}
        given = {name: item.numpy() for name, item in (feed | state).items() if name in names}
        outputs = dict(zip([item.name for item in session.get_outputs()], session.run(None, given), strict=True))
        logits = torch.from_numpy(outputs.pop("logits"))
        state = {name.replace("present", "past_key_values"): torch.from_numpy(x) for name, x in outputs.items()}
        assert logits.shape[1] == (1 if last else feed["input_ids"].shape[1])
        ends = [0] * len(ids) if last else [int(row.nonzero().max()) - shown.shape[1] for row in shown]
        token = torch.stack([logits[row, end].argmax() for row, end in enumerate(ends)])[:, None]
        tokens.append(token)
        new, shown = token, torch.ones_like(token)
        ids, mask = torch.cat([ids, token], 1), torch.cat([mask, shown], 1)
    return torch.cat(tokens, 1).tolist()  # type: ignore[no-any-return]


# model, target, opset, cache, side of the padding, last logits only, the operator that says how
ROWS: list[tuple[str, str, int | None, str | None, str, bool, str]] = [
    ("LlamaForCausalLM", "onnx", None, "static", "left", False, "TensorScatter"),
    ("LlamaForCausalLM", "onnx", 17, "static", "right", True, "ScatterND"),
    ("LlamaForCausalLM", "onnxruntime", None, "static", "right", True, "GroupQueryAttention"),
    ("LlamaForCausalLM", "onnxruntime", 21, None, "left", False, "Softmax"),
    ("LlamaForCausalLM", "onnx", None, "dynamic", "right", True, "Attention"),
    ("LlamaForCausalLM", "onnxruntime", None, "dynamic", "right", False, "GroupQueryAttention"),
    ("LlamaForCausalLM", "onnxruntime-genai", None, "dynamic", "right", True, "GroupQueryAttention"),
    ("Qwen2ForCausalLM", "onnxruntime", None, "dynamic", "left", True, "GroupQueryAttention"),
    ("GPT2LMHeadModel", "onnx", 24, "static", "left", True, "TensorScatter"),
    ("GPT2LMHeadModel", "onnx", None, None, "right", True, "Attention"),
    ("Gemma2ForCausalLM", "onnx", None, "static", "left", False, "TensorScatter"),
    ("Gemma3ForCausalLM", "onnx", 23, "static", "left", True, "ScatterND"),
    ("Gemma3ForCausalLM", "onnxruntime-genai", None, "static", "right", False, "GroupQueryAttention"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(str(item) for item in row[:6]))
def test_tokens(row: Any) -> None:
    """A batch of prompts of unequal length becomes the same 16 tokens as in torch."""
    name, target, opset, cache, side, last, operator = row
    model = made(name)
    room = ROOM if cache == "static" else None
    program, _, _ = program_of(model, target, opset, cache=cache, max_length=room, last_logits=last)
    graph = program.model_proto.graph
    assert graph is not None and operator in {node.op_type for node in graph.node}
    assert loop(program.model_proto.SerializeToString(), side, cache, target, last=last) == by_torch(model)


def test_static_for_genai(tmp_path: Path) -> None:
    """onnxruntime-genai gives the file one buffer for the past and the present."""
    runtime = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")
    model = made("Gemma3ForCausalLM")
    purexport.language_model(model, tmp_path, "onnxruntime-genai", cache="static", max_length=ROOM)
    search = json.loads((tmp_path / "genai_config.json").read_text())["search"]
    assert search["past_present_share_buffer"] and search["max_length"] == ROOM
    loaded = runtime.Model(str(tmp_path))
    parameters = runtime.GeneratorParams(loaded)
    parameters.set_search_options(max_length=max(LENGTHS) + NEW, do_sample=False)
    generator = runtime.Generator(loaded, parameters)
    generator.append_tokens(prompts()[0][None].numpy().astype("int32"))
    while not generator.is_done():
        generator.generate_next_token()
    found = [int(token) for token in generator.get_sequence(0)][LENGTHS[0] :]
    assert len(found) > 3 and found == by_torch(model)[0][: len(found)]


Feed = dict[str, torch.Tensor]


def _hidden_seen(feed: Feed) -> Feed:
    return feed | {"attention_mask": torch.ones_like(feed["attention_mask"])}


def _mask_off_by_one(feed: Feed) -> Feed:
    mask = feed["attention_mask"].roll(1, 1)
    mask[:, 0] = 1
    return feed | {"attention_mask": mask}


def _later(feed: Feed) -> Feed:
    """Positions that are those of the slots, as if there was no padding."""
    ids, past = feed["input_ids"], feed.get("past_length")
    start = int(past) if past is not None else feed["attention_mask"].shape[1] - ids.shape[1]
    return feed | {"position_ids": torch.arange(start, start + ids.shape[1]).expand_as(ids)}


def _one_further(feed: Feed) -> Feed:
    return feed | {"past_length": feed["past_length"] + 1}


def _at_the_start(feed: Feed) -> Feed:
    return feed | {"past_length": torch.zeros_like(feed["past_length"])}


def _empty(feed: Feed) -> Feed:
    return feed | {name: torch.zeros_like(item) for name, item in feed.items() if name.startswith("past_key")}


def _none(feed: Feed) -> Feed:
    return feed


# what is wrong with a file, and where it is seen first; GPT-2 has a table of positions, Llama only distances
FAULTS: list[tuple[str, str | None, Callable[[Feed], Feed], str]] = [
    ("LlamaForCausalLM", "static", _hidden_seen, "the prompt, rows with padding on the left"),
    ("LlamaForCausalLM", "dynamic", _mask_off_by_one, "the prompt, rows with padding on the left"),
    ("GPT2LMHeadModel", "dynamic", _later, "the prompt, rows with padding on the left"),
    ("GPT2LMHeadModel", "static", _later, "the prompt, rows with padding on the left"),
    ("GPT2LMHeadModel", None, _hidden_seen, "the prompt, rows with padding on the left"),
    ("LlamaForCausalLM", "static", _one_further, "the prompt"),
    ("LlamaForCausalLM", "static", _at_the_start, "step 1"),
    ("LlamaForCausalLM", "static", _empty, "step 1"),
    ("LlamaForCausalLM", "dynamic", _empty, "step 1"),
]


@pytest.mark.parametrize(("name", "cache", "fault", "place"), FAULTS)
def test_check_sees_faults(name: str, cache: str | None, fault: Callable[[Feed], Feed], place: str) -> None:
    """What a wrong file would give is made by torch: inputs are changed before it."""
    decoder = decoder_with(made(name), "onnx", cache, ROOM, last_logits=False)

    def runs(feed: Feed) -> Sequence[torch.Tensor]:
        changed = fault(feed)
        with torch.no_grad():
            return decoder.step(*(changed[name] for name in decoder.input_names))  # type: ignore[no-any-return]

    with pytest.raises(VerificationError, match=rf"^{place}: a logit"):
        check_steps(decoder, runs, 3)
    fault = _none
    assert check_steps(decoder, runs, 3) < 1e-5


@pytest.mark.parametrize("cache", ["dynamic", "static", None])
def test_check_sees_logits_of_padding(cache: str | None) -> None:
    """The last slot of a row with padding behind it is no token."""
    model = made("LlamaForCausalLM")
    decoder, whole = (decoder_with(model, "onnx", cache, ROOM, last) for last in (True, False))

    def runs(feed: Feed) -> Sequence[torch.Tensor]:
        with torch.no_grad():
            logits, *state = whole.step(*(feed[name] for name in whole.input_names))
        return (logits[:, -1:], *state)

    with pytest.raises(VerificationError, match="the prompt, rows with padding on the right"):
        check_steps(decoder, runs, 3)


def test_refusals(tmp_path: Path) -> None:
    model, out = made("LlamaForCausalLM"), tmp_path / "out"
    for options, sentence in (
        ({"cache": "static"}, "cache='static' needs max_length=N, the number of tokens"),
        ({"cache": "static", "max_length": 0}, "max_length=0 is not a number of tokens"),
        ({"cache": "paged"}, "cache='paged' is not one of 'dynamic', 'static', None"),
        ({"cache": None, "target": "onnxruntime-genai"}, "onnxruntime-genai needs a cache"),
        ({"prompt_length": 4}, "prompt_length= is for target='onnx' with cache='static' and without quantize= and"),
        (
            {"cache": "static", "max_length": 8, "prompt_length": 9},
            "prompt_length=9 is not a number of tokens from 2 to 8",
        ),
    ):
        with pytest.raises(ValueError, match=sentence):
            purexport.language_model(model, out, **options)
    narrow = made("LlamaForCausalLM", head_dim=12)
    with pytest.raises(
        ExportError, match=r"in LlamaForCausalLM more does \(.*12 elements.*use target='onnx' or cache='dynamic'"
    ):
        purexport.language_model(narrow, out, "onnxruntime", cache="static", max_length=ROOM)
    several = transformers.T5Config(vocab_size=99, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(ExportError, match="not a decoder of keys and values only, and cache='static' is for these"):
        purexport.language_model(transformers.T5ForConditionalGeneration(several), out, cache="static", max_length=ROOM)
    assert not out.exists()


def test_models_that_count_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are no tokens: a model that takes them for such is refused, and so is one that cannot run."""
    model = made("LlamaForCausalLM")
    forward = model.forward

    def shifted(position_ids: Any = None, past_key_values: Any = None, **others: Any) -> Any:
        length = past_key_values.get_mask_sizes(0, 0)[0] if past_key_values is not None else 0
        place = past_key_values.get_seq_length() if past_key_values is not None else 0
        scaled = position_ids * (1 + length - place) if position_ids is not None else None
        return forward(position_ids=scaled, past_key_values=past_key_values, **others)

    monkeypatch.setattr(model, "forward", shifted)
    with pytest.raises(ExportError, match="computes other logits with a static cache than with a dynamic one"):
        decoder_with(model, "onnx", "static", ROOM, last_logits=False)

    def listed(position_ids: Any = None, past_key_values: Any = None, **others: Any) -> Any:
        if past_key_values is not None and not isinstance(past_key_values, transformers.DynamicCache):
            raise TypeError("a list is needed")
        return forward(position_ids=position_ids, past_key_values=past_key_values, **others)

    monkeypatch.setattr(model, "forward", listed)
    with pytest.raises(ExportError, match=r"does not run with a static cache \(a list is needed\)"):
        decoder_with(model, "onnx", "static", ROOM, last_logits=False)


def test_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made("LlamaForCausalLM").save_pretrained(tmp_path / "from")
    options = ["--cache", "static", "--max-length", "32", "--json"]
    assert main(["llm", str(tmp_path / "from"), "-o", str(tmp_path / "static"), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["opset"] == 24 and report["nodes"]["TensorScatter"] == 4
    assert any("verify" in remark for remark in report["warnings"])  # no weights were there to compare
    graph = ps.load(tmp_path / "static" / "model.onnx").graph
    assert {item.name: len(item.type.tensor_type.shape.dim) for item in graph.input}["past_length"] == 1
    assert main(["llm", str(tmp_path / "from"), "-o", str(tmp_path / "none"), "--cache", "none"]) == 0
    assert "past_key_values" not in str(ps.load(tmp_path / "none" / "model.onnx").graph.input)
    assert main(["llm", str(tmp_path / "from"), "-o", str(tmp_path / "no"), "--cache", "static"]) == 2
    assert "needs max_length=N" in capsys.readouterr().err
