"""Tokens a second of a Llama-like model of 100 million parameters: our files beside those of other exporters.

    python benchmarks/language_speed.py [--threads 2] [--repeats 7] [--only ours builder ...] [--profile ours]

The files are ours by target="onnxruntime" and target="onnx", that of onnxruntime-genai's builder, and those of
torch.onnx.export with dynamo=True and dynamo=False.  All run in ONNX Runtime in one process, with the same tensors: a
prompt of 256 tokens, and 64 steps whose cache is what the step before gave, without a copy in Python.  The files take
turns, in another order at each step, so that other work of the machine falls on all of them.  Tokens a second are those
of the tenth percentile, which such work disturbs least.  A ratio is the median of the ratios to the first file at the
same step, in seconds and in processor time.  The logits of all files are compared.  A file that cannot be made is
named with the reason.  Needs transformers and onnxruntime;
onnxruntime-genai and onnx_ir for the builder, onnxscript for dynamo=True.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import purexport  # noqa: E402
from purexport.language.step import decoder_of  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

PROMPT, STEPS = 256, 64
PROMPTS = 3  # times that a prompt is run before the steps
OPSET = 20  # of the other exporters; dynamo=False has none behind
SIZES = {"vocab_size": 16000, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
SIZES |= {"num_key_value_heads": 4, "intermediate_size": 2048, "max_position_embeddings": 2048}
WIDTH = SIZES["hidden_size"] // SIZES["num_attention_heads"]


def made() -> Any:
    """The model, with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, pad_token_id=0, tie_word_embeddings=False)).eval()


def ours(model: Any, place: Path, target: str = "onnxruntime") -> Path:
    purexport.language_model(model, place, target)
    return place / "model.onnx"


def for_genai(model: Any, place: Path) -> Path:
    return ours(model, place, "onnxruntime-genai")


def standard(model: Any, place: Path) -> Path:
    return ours(model, place, "onnx")


def builder(model: Any, place: Path) -> Path:
    """The file of onnxruntime-genai's builder; it reads a folder with a tokenizer."""
    from onnxruntime_genai.models.builder import create_model, parse_extra_options
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    source, cache = str(place / "from"), str(place / "cache")
    model.save_pretrained(source)
    words = {f"w{index}": index for index in range(100)}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0"))).save_pretrained(source)
    options = parse_extra_options(None, source, str(place), "fp32", "cpu", cache, [])
    create_model(None, source, str(place), "fp32", "cpu", cache, **options)
    return place / "model.onnx"


def dynamo(model: Any, place: Path) -> Path:
    """torch.onnx.export(dynamo=True) of the step of our module."""
    decoder = decoder_of(model)
    dims = {label: torch.export.Dim.DYNAMIC for axes in decoder.axes.values() for label in axes.values()}
    shapes = [{axis: dims[label] for axis, label in decoder.axes[name].items()} for name in decoder.input_names]
    place.mkdir(exist_ok=True)
    names: dict[str, Any] = {"input_names": decoder.input_names, "output_names": decoder.output_names}
    torch.onnx.export(
        decoder.step,
        decoder.args(2, 7, 11),
        str(place / "model.onnx"),
        dynamo=True,
        dynamic_shapes=(*shapes[:2], tuple(shapes[2:])),
        opset_version=OPSET,
        verbose=False,
        **names,
    )
    return place / "model.onnx"


def torchscript(model: Any, place: Path) -> Path:
    """torch.onnx.export(dynamo=False)."""
    decoder = decoder_of(model)
    place.mkdir(exist_ok=True)
    names: dict[str, Any] = {"input_names": decoder.input_names, "output_names": decoder.output_names}
    example, path = decoder.args(2, 7, 11), str(place / "model.onnx")
    torch.onnx.export(
        decoder.step, example, path, dynamo=False, dynamic_axes=decoder.axes, opset_version=OPSET, **names
    )
    return place / "model.onnx"


MAKERS: dict[str, Callable[[Any, Path], Path]] = {
    "ours": ours,
    "ours, for genai": for_genai,
    "ours, standard operators": standard,
    "builder": builder,
    "dynamo=True": dynamo,
    "dynamo=False": torchscript,
}


class Spent(NamedTuple):
    """Seconds."""

    wall: float
    processor: float


class Runner:
    """A file in ONNX Runtime, with the cache of the step before."""

    def __init__(self, path: Path, threads: int, profile: str = "") -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        if profile:
            options.enable_profiling, options.profile_file_prefix = True, profile
        # threads that wait for work would take the processor from the other files
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._value = onnxruntime.OrtValue.ortvalue_from_numpy
        self._inputs = [item.name for item in self.session.get_inputs()]
        self._outputs = [item.name for item in self.session.get_outputs()]
        self.start()

    def start(self) -> None:
        self._cache = {
            name: self._value(np.zeros((1, SIZES["num_key_value_heads"], 0, WIDTH), np.float32))
            for name in self._inputs
            if name.startswith("past")
        }
        self._past = 0

    def run(self, ids: np.ndarray[Any, Any]) -> tuple[Spent, Any]:
        """What it took, and the logits."""
        total = self._past + ids.shape[1]
        given = {
            "input_ids": ids,
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(self._past, total)[None],
        }
        feeds = {name: self._value(array) for name, array in given.items() if name in self._inputs} | self._cache
        begun = Spent(time.perf_counter(), time.process_time())
        found = dict(zip(self._outputs, self.session.run_with_ort_values(self._outputs, feeds), strict=True))
        taken = Spent(time.perf_counter() - begun.wall, time.process_time() - begun.processor)
        logits = found.pop("logits")
        self._cache = {name.replace("present", "past_key_values"): value for name, value in found.items()}
        self._past = total
        return taken, logits


def measured(runners: dict[str, Runner], seed: int, found: dict[str, tuple[list[Spent], list[Spent]]]) -> None:
    """Add what the prompt and each step takes to `found`."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(3, SIZES["vocab_size"], (1, PROMPT + STEPS))
    order = list(runners)
    said: dict[str, list[Any]] = {name: [] for name in order}
    for count in [*[PROMPT - 1] * PROMPTS, *range(PROMPT, PROMPT + STEPS)]:
        for name in generator.permutation(order):
            if count < PROMPT:
                runners[name].start()
            taken, logits = runners[name].run(ids[:, : count + 1] if count < PROMPT else ids[:, count : count + 1])
            found[name][count >= PROMPT].append(taken)
            said[name].append(logits.numpy()[0, -1])
    one = np.concatenate(said[order[0]])
    for name, other in said.items():
        difference = float(np.abs(one - np.concatenate(other)).max() / np.abs(one).max())
        assert difference < 1e-3, f"{name} gives other logits: {difference}"


def quick(seconds: list[float]) -> float:
    """The tenth percentile."""
    return sorted(seconds)[len(seconds) // 10]


def report(found: dict[str, tuple[list[Spent], list[Spent]]]) -> None:
    """Tokens a second by the quick tenth; and the median ratio to the first file, in seconds and in processor time."""
    first, *_ = found
    print(f"{'':26}   tokens a second      {first!r} is so many times as quick (by processor time)")
    print(f"{'':26} {'prompt':>8} {'steps':>8} {'prompt':>18} {'steps':>18}")
    for name, parts in found.items():
        seconds = [quick([one.wall for one in part]) for part in parts]
        rates = f"{PROMPT / seconds[0]:8.1f} {1 / seconds[1]:8.1f}"
        ratios = []
        for part, mine in zip(parts, found[first], strict=True):
            pairs = [zip(*pair, strict=True) for pair in zip(part, mine, strict=True)]
            apart = [[theirs / ours for theirs, ours in pair] for pair in pairs]
            ratios.append([statistics.median(item) for item in zip(*apart, strict=True)])
        print(f"{name:26} {rates} " + " ".join(f"{wall:10.2f} ({spent:.2f})" for wall, spent in ratios))


def profiled(runner: Runner) -> None:
    """Print the milliseconds of each kind of node, over one prompt and the steps behind it."""
    runner.start()
    ids = np.random.default_rng(0).integers(3, SIZES["vocab_size"], (1, PROMPT + STEPS))
    runner.run(ids[:, :PROMPT])
    for count in range(PROMPT, PROMPT + STEPS):
        runner.run(ids[:, count : count + 1])
    path = runner.session.end_profiling()
    totals: dict[tuple[str, bool], float] = {}
    seen: dict[str, int] = {}
    for event in json.loads(Path(path).read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            key = event["args"]["op_name"]
            seen[event["name"]] = seen.get(event["name"], 0) + 1
            place = (key, seen[event["name"]] == 1)
            totals[place] = totals.get(place, 0) + event["dur"] / 1000
    for (kind, is_prompt), spent in sorted(totals.items(), key=lambda item: (-item[0][1], -item[1])):
        print(f"  {'prompt' if is_prompt else 'steps':6} {kind:32} {spent:8.1f} ms")
    os.unlink(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=list(MAKERS), default=list(MAKERS))
    parser.add_argument("--profile", choices=list(MAKERS))
    chosen = parser.parse_args()
    torchvision()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    model = made()
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{count / 1e6:.0f} million parameters, {chosen.threads} threads, {PROMPT} tokens and {STEPS} steps")
    with tempfile.TemporaryDirectory() as folder:
        runners: dict[str, Runner] = {}
        for name in [chosen.profile] if chosen.profile else chosen.only:
            place = Path(folder) / str(len(runners))
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    path = MAKERS[name](model, place)
                assert path.is_file()
                runners[name] = Runner(path, chosen.threads, str(place) if chosen.profile else "")
            except Exception as error:  # another exporter's refusal is a result
                print(f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
        del model
        if chosen.profile:
            profiled(runners[chosen.profile])
            return
        measured(runners, 0, {name: ([], []) for name in runners})
        found: dict[str, tuple[list[Spent], list[Spent]]] = {name: ([], []) for name in runners}
        for seed in range(1, 1 + chosen.repeats):
            measured(runners, seed, found)
        report(found)


if __name__ == "__main__":
    main()
