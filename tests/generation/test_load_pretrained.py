"""A folder runs again: the tokens are those of the model.  A decoder that is written by hand needs no transformers.

The models of transformers are those of the tests of `language_model`, with every cache and target, in `full`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
import purexport
from proto_schema.operators import runtimes
from purexport.errors import ExportError
from purexport.generation import settings
from purexport.generation.files import without_kernel

WORDS, WIDTH = 11, 4
TABLE = np.random.default_rng(0).normal(size=(WORDS, WIDTH)).astype(np.float32)
HEAD = np.random.default_rng(1).normal(size=(WIDTH, WORDS)).astype(np.float32)


def write_decoder(folder: Path, config: dict[str, Any] | None = None, operator: str = "Tanh") -> Path:
    """A decoder whose logits are those of the sum of all tokens that the mask shows, with a cache of the tokens."""
    make = ps.helper
    axes = ["batch_size", 1, "past_sequence_length", WIDTH]
    inputs = [
        make.make_tensor_value_info("input_ids", ps.TensorProto.INT64, ["batch_size", "sequence_length"]),
        make.make_tensor_value_info("attention_mask", ps.TensorProto.INT64, ["batch_size", "total_sequence_length"]),
        make.make_tensor_value_info("past_key_values.0.key", ps.TensorProto.FLOAT, axes),
    ]
    outputs = [
        make.make_tensor_value_info("logits", ps.TensorProto.FLOAT, ["batch_size", "sequence_length", WORDS]),
        make.make_tensor_value_info("present.0.key", ps.TensorProto.FLOAT, [*axes[:2], "total_sequence_length", WIDTH]),
    ]
    nodes = [
        make.make_node("Gather", ["table", "input_ids"], ["embedded"]),
        make.make_node("Unsqueeze", ["embedded", "one"], ["key"]),
        make.make_node("Concat", ["past_key_values.0.key", "key"], ["present.0.key"], axis=2),
        make.make_node("Cast", ["attention_mask"], ["shown"], to=ps.TensorProto.FLOAT),
        make.make_node("Unsqueeze", ["shown", "one_and_three"], ["wide"]),
        make.make_node("Mul", ["present.0.key", "wide"], ["seen"]),
        make.make_node("ReduceSum", ["seen", "one_and_two"], ["sum"], keepdims=0),
        make.make_node(operator, ["sum"], ["bent"]),
        make.make_node("Unsqueeze", ["bent", "one"], ["row"]),
        make.make_node("MatMul", ["row", "head"], ["last"]),
        make.make_node("Shape", ["input_ids"], ["sizes"]),
        make.make_node("Concat", ["sizes", "one"], ["wanted"], axis=0),
        make.make_node("Expand", ["last", "wanted"], ["logits"]),
    ]
    constants = {"table": TABLE, "head": HEAD, "one": np.array([1])}
    constants |= {"one_and_three": np.array([1, 3]), "one_and_two": np.array([1, 2])}
    weights = [ps.numpy_helper.from_array(item, name) for name, item in constants.items()]
    graph = make.make_graph(nodes, "decoder", inputs, outputs, weights)
    folder.mkdir(parents=True, exist_ok=True)
    ps.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=8), folder / "model.onnx")
    (folder / "config.json").write_text(json.dumps({"architectures": ["OfTestsForCausalLM"]} | (config or {})))
    return folder


def continued(row: list[int], count: int) -> list[int]:
    """The tokens that the decoder must find, computed without it."""
    row = list(row)
    for _ in range(count):
        row.append(int((np.tanh(TABLE[row].sum(0)) @ HEAD).argmax()))
    return row


PROMPTS = np.array([[0, 2, 6], [1, 5, 7]])


@pytest.mark.parametrize("runtime", ["onnxruntime", "reference"])
def test_greedy(runtime: str, tmp_path: Path) -> None:
    """The tokens of both runtimes, with padding in front of a row, and with an end; tensors of torch come back."""
    import torch

    model = purexport.load_pretrained(write_decoder(tmp_path, {"pad_token_id": 0}), runtime=runtime)
    wanted = [[0, *continued([2, 6], 6)], continued([1, 5, 7], 6)]
    assert wanted[0][3:] != continued([0, 2, 6], 6)[3:]  # the mask counts
    assert model.generate(PROMPTS, max_new_tokens=6).tolist() == wanted
    end = wanted[0][3]
    found = model.generate(torch.from_numpy(PROMPTS), max_new_tokens=6, eos_token_id=[end])
    assert isinstance(found, torch.Tensor)
    stops = [row.index(end, 3) + 1 if end in row[3:] else 9 for row in wanted]
    assert stops[0] < stops[1] == found.shape[1]  # so that the first row has padding behind its end
    assert found.tolist() == [row[:stop] + [0] * (max(stops) - stop) for row, stop in zip(wanted, stops, strict=True)]


def test_call(tmp_path: Path) -> None:
    """A call gives logits and a cache, with which the next one goes on; the first cache may be used again."""
    model = purexport.load_pretrained(write_decoder(tmp_path))
    first = model(input_ids=PROMPTS)
    assert first.logits.shape == first[0].shape == (2, 3, WORDS) and first.past_key_values.get_seq_length() == 3
    for token in (4, 6):
        after = model(input_ids=np.full((2, 1), token), past_key_values=first.past_key_values)
        wanted = np.tanh(TABLE[PROMPTS].sum(1) + TABLE[token]) @ HEAD
        np.testing.assert_allclose(after.logits[:, 0], wanted, rtol=1e-5)
    with pytest.raises(AttributeError, match="the outputs are logits, past_key_values, and not loss"):
        _ = first.loss


def _without(name: str) -> Callable[[Path], Any]:
    def changed(folder: Path) -> Any:
        (write_decoder(folder) / name).unlink()
        return purexport.load_pretrained(folder)

    return changed


def _weights_elsewhere(folder: Path) -> Any:
    model = ps.load(write_decoder(folder) / "model.onnx")
    ps.save(model, folder / "model.onnx", external_data=True, size_threshold=0)
    (folder / "model.onnx.data").unlink()
    return purexport.load_pretrained(folder)


def _of_browser(folder: Path) -> Any:
    write_decoder(folder / "onnx")
    return purexport.load_pretrained(folder)


def _half(folder: Path) -> Any:
    write_decoder(folder)
    (folder / "model.onnx").rename(folder / "encoder.onnx")
    return purexport.load_pretrained(folder)


def _odd_config(folder: Path) -> Any:
    (write_decoder(folder) / "config.json").write_text("[")
    return purexport.load_pretrained(folder)


def _generated(**options: Any) -> Callable[[Path], Any]:
    return lambda folder: purexport.load_pretrained(write_decoder(folder)).generate(PROMPTS, **options)


def _called(**inputs: Any) -> Callable[[Path], Any]:
    return lambda folder: purexport.load_pretrained(write_decoder(folder))(**inputs)


def _unknown_operator(runtime: str) -> Callable[[Path], Any]:
    return lambda folder: purexport.load_pretrained(write_decoder(folder, operator="Bent"), runtime=runtime)


def _of_labels(folder: Path) -> Any:
    """A file whose logits are those of labels."""
    make = ps.helper
    ids = make.make_tensor_value_info("input_ids", ps.TensorProto.INT64, ["batch_size", "sequence_length"])
    logits = make.make_tensor_value_info("logits", ps.TensorProto.INT64, ["batch_size", "sequence_length"])
    folder.mkdir(exist_ok=True)
    graph = make.make_graph([make.make_node("Neg", ["input_ids"], ["logits"])], "labels", [ids], [logits])
    ps.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=8), folder / "model.onnx")
    (folder / "config.json").write_text('{"architectures": ["OfTestsForSequenceClassification"]}')
    return purexport.load_pretrained(folder)


WIDE = np.zeros((2, 1, 1), np.int64)
ERRORS: list[tuple[str, Callable[[Path], Any], type[Exception], str]] = [
    ("no folder", purexport.load_pretrained, FileNotFoundError, r"there is no such folder"),
    (
        "no file",
        _without("model.onnx"),
        ExportError,
        r"has none of vision.onnx, encoder.onnx, prefill.onnx, model.onnx; give a",
    ),
    ("of a browser", _of_browser, ExportError, r"is laid out for transformers.js, which runs its files in onnx/"),
    ("half of two", _half, FileNotFoundError, r"encoder.onnx is there, and decoder.onnx, which belongs to it, is not"),
    ("no weights", _weights_elsewhere, FileNotFoundError, r"the weights of model.onnx are in this file.*\.data"),
    ("odd config", _odd_config, ExportError, r"config.json is not JSON"),
    ("operator", _unknown_operator("onnxruntime"), ExportError, r"onnxruntime does not run .*Bent.*target='onnx'"),
    ("operator here", _unknown_operator("reference"), ExportError, r"the evaluator does not run .*Bent"),
    ("runtime", lambda folder: purexport.load_pretrained(folder, runtime="tvm"), ValueError, r"runtime='tvm' is not"),
    ("beams", _generated(num_beams=4), ValueError, r"num_beams=4 is neither greedy search nor.*pass num_beams=1"),
    ("a word", _generated(temprature=1.0), ValueError, r"neither a setting nor an input 'temprature'"),
    ("mask", _generated(attention_mask=WIDE[..., 0]), ValueError, r"attention_mask is \[2, 1\], and the cache and"),
    ("input", _called(input_ids=PROMPTS, pixel_values=WIDE), ValueError, r"model.onnx takes no pixel_values"),
    ("missing", _called(), ValueError, r"input_ids are missing"),
    ("floats", _called(input_ids=PROMPTS * 0.5), ValueError, r"input_ids has elements of float64, and model.onnx"),
    ("sizes", _called(input_ids=PROMPTS[..., None]), ValueError, r"input_ids is \[2, 3, 1\], and model.onnx takes"),
    ("labels", lambda folder: _of_labels(folder).generate(PROMPTS), ExportError, r"generates no text \(OfTestsForSeq"),
    ("labels' input", lambda folder: _of_labels(folder)(bbox=WIDE), ValueError, r"model.onnx takes input_ids, and not"),
    ("labels' none", lambda folder: _of_labels(folder)(), ValueError, r"takes input_ids, and input_ids is missing"),
]


@pytest.mark.parametrize(("call", "kind", "words"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors(call: Callable[[Path], Any], kind: type[Exception], words: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=words):
        call(tmp_path / "out")


def test_a_release_that_is_too_old_is_told(tmp_path: Path) -> None:
    path = write_decoder(tmp_path) / "model.onnx"
    assert without_kernel(path, "1.31.0") == "" == without_kernel(path, "99.0")
    old = runtimes.releases()[0]
    ps.save(ps.version_converter.convert_version(ps.load(path), old.newest_opset + 1), path)
    told = f"onnxruntime {old.version} loads opset {old.newest_opset} at most, and the file has {old.newest_opset + 1}"
    assert without_kernel(path, old.version) == told


# what is asked, and what is not installed -> the end of the message
NEEDS = [
    ({"do_sample": True}, "or pass do_sample=False"),
    ({"do_sample": True, "repetition_penalty": 1.2}, "or pass do_sample=False, repetition_penalty=None"),
    ({"suppress_tokens": [3]}, "or pass suppress_tokens=None"),
]


@pytest.mark.parametrize(("options", "words"), NEEDS)
def test_without_transformers(
    options: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What numpy does not do is an error that says what to install, and never another text."""
    monkeypatch.setattr(settings, "installed", lambda name: name != "transformers")
    with pytest.raises(ExportError, match=f"processors of transformers, which is not installed.*{words}"):
        purexport.load_pretrained(write_decoder(tmp_path)).generate(PROMPTS, **options)
