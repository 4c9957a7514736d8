"""Forty language models of every kind, each by one call of `purexport.language_model` with `verify=True`.

    python benchmarks/one_call.py [--target onnx onnxruntime] [--kind hybrids ...] [--only NAME ...]

Each model has a tiny random config (tests/models/multimodal.py) and nothing else is given: no inputs, no recipe. A line
says whether the file says what torch says (`right`, with the largest difference of a logit, of the largest logit), or
why there is none. Each model runs in a process forked from this one. Needs Linux, transformers and onnxruntime.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from purexport.language.model import language_model  # noqa: E402
from tests.models import decoders, multimodal  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

# by kind, and how the tests call that kind
MODELS: dict[str, tuple[str, str]] = {
    "decoders": (
        "",
        "LlamaForCausalLM MistralForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM Gemma2ForCausalLM "
        "Gemma3ForCausalLM Phi3ForCausalLM GptOssForCausalLM DeepseekV3ForCausalLM OlmoeForCausalLM SmolLM3ForCausalLM "
        "GPT2LMHeadModel BloomForCausalLM",
    ),
    "hybrids": (
        "state",
        "Qwen3_5ForCausalLM Qwen3NextForCausalLM Lfm2MoeForCausalLM MambaForCausalLM Mamba2ForCausalLM "
        "FalconH1ForCausalLM GraniteMoeHybridForCausalLM JambaForCausalLM NemotronHForCausalLM KimiLinearForCausalLM",
    ),
    "encoder-decoders": (
        "encoder-decoder",
        "T5ForConditionalGeneration BartForConditionalGeneration M2M100ForConditionalGeneration",
    ),
    "pictures": (
        "vision",
        "LlavaForConditionalGeneration Gemma3ForConditionalGeneration Qwen2VLForConditionalGeneration "
        "Qwen2_5_VLForConditionalGeneration Qwen3VLForConditionalGeneration Qwen3_5ForConditionalGeneration "
        "Gemma4ForConditionalGeneration LlavaOnevisionForConditionalGeneration PaliGemmaForConditionalGeneration "
        "Lfm2VlForConditionalGeneration",
    ),
    "sound": (
        "encoder-decoder",
        "WhisperForConditionalGeneration Speech2TextForConditionalGeneration CohereAsrForConditionalGeneration",
    ),
}
SECONDS = 300  # for one model


def line_of(name: str, kind: str, target: str) -> str:
    """What became of a model, in a line that begins with a word for it."""
    begun = time.process_time()
    try:
        model = multimodal.made(name, kind)[0] if kind else decoders.made(name).step.model
    except decoders.LeftOutError as error:
        return f"left    {name}: {error}"
    try:
        with tempfile.TemporaryDirectory() as place:
            report = language_model(model, place, target, verify=True)
    except Exception as error:  # whatever happens is the result
        first = str(error).partition("\n")[0][:300]
        word = "WRONG" if "differ" in first else "refused" if getattr(error, "code", "") else "fails"
        return f"{word:7} {name}: {type(error).__name__}: {first}"
    files = " ".join(file for file in report.files if file.endswith(".onnx"))
    spent = time.process_time() - begun
    return f"right   {name}: {files}, {report.difference:.1e}, {spent:.1f} s"


def _in_a_fork(name: str, kind: str, target: str) -> str:
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        signal.alarm(SECONDS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(writing, line_of(name, kind, target).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode() or f"fails   {name}: the process ended"
    os.waitpid(process, 0)
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--target", nargs="+", choices=("onnx", "onnxruntime"), default=["onnx"])
    parser.add_argument("--kind", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--only", nargs="+")
    chosen = parser.parse_args()
    torchvision()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for target in chosen.target:
        words: Counter[str] = Counter()
        for kind in chosen.kind:
            made_as, names = MODELS[kind]
            for name in names.split():
                if chosen.only and name not in chosen.only:
                    continue
                said = _in_a_fork(name, made_as, target)
                words[said.split()[0]] += 1
                print(said, flush=True)
        print(f"{target}: {dict(words)}", flush=True)


if __name__ == "__main__":
    main()
