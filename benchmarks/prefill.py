"""A prompt in one run beside one token a run, for language models with recurrences and convolutions.

    python benchmarks/prefill.py [--tokens 512] [--target onnx onnxruntime] [--only NAME ...]

Each model has four layers of 512 numbers and random weights. `purexport.language_model` writes it, with `verify`. The
same file is then given the whole prompt at once, and one token after the other with the state of the token before.
torch is given the prompt at once, too: the model of transformers, as `generate` calls it. Times are seconds of the
processor with one thread, the best of three (of one for single tokens). `apart` is the largest difference of a logit of
the prompt's last token from torch's, of the largest logit; `next` says whether all three choose the same token. Each
line is a process of its own, so that its peak of memory is its own. Needs Linux, transformers and onnxruntime.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from purexport.language.model import language_model  # noqa: E402
from tests.models import decoders  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

COMMON: dict[str, Any] = {"vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4}
COMMON |= {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 4096}
COMMON |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LINEAR: dict[str, Any] = {"linear_num_key_heads": 8, "linear_num_value_heads": 8, "linear_conv_kernel_dim": 4}
LINEAR |= {"linear_key_head_dim": 64, "linear_value_head_dim": 64}
LINEAR |= {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}
SPACES = {"mamba_n_heads": 16, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 64, "mamba_expand": 2}
SPACES |= {"mamba_chunk_size": 64}
MODELS: dict[str, dict[str, Any]] = {
    "Qwen3_5ForCausalLM": LINEAR,
    "Qwen3NextForCausalLM": {**LINEAR, "num_experts": 0},
    "KimiLinearForCausalLM": {
        "linear_num_heads": 8,
        "linear_head_dim": 64,
        "layer_types": LINEAR["layer_types"],
        "num_experts": 4,
        "moe_intermediate_size": 256,
        "num_experts_per_token": 2,
        "first_k_dense_replace": 4,
        "num_key_value_heads": 8,
    },
    "Lfm2ForCausalLM": {"layer_types": ["conv"] * 3 + ["full_attention"]},
    "MambaForCausalLM": {"state_size": 16, "expand": 2},
    "Mamba2ForCausalLM": {
        "state_size": 64,
        "expand": 2,
        "num_heads": 16,
        "head_dim": 64,
        "n_groups": 1,
        "chunk_size": 64,
    },
    "FalconH1ForCausalLM": {**SPACES, "mamba_d_ssm": 1024},
    "GraniteMoeHybridForCausalLM": {**SPACES, "layer_types": ["mamba"] * 3 + ["attention"], "num_local_experts": 0},
    "JambaForCausalLM": {"attn_layer_period": 4, "attn_layer_offset": 3, "expert_layer_period": 8, "num_experts": 2},
    "NemotronHForCausalLM": {
        "mamba_num_heads": 16,
        "mamba_head_dim": 64,
        "n_groups": 1,
        "ssm_state_size": 64,
        "chunk_size": 64,
        "layers_block_type": ["mamba", "mamba", "mamba", "attention"],
    },
}


def made(name: str) -> Any:
    """The model of a class, with random weights that tell tokens apart."""
    kind = getattr(decoders.library(), name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**COMMON, **MODELS[name]})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.05)
    return model


def best(function: Callable[[], Any], times: int) -> tuple[float, Any]:
    """The least seconds of the processor, and the result."""
    found, spent = None, []
    for _ in range(times):
        begun = time.process_time()
        found = function()
        spent.append(time.process_time() - begun)
    return min(spent), found


def line_of(name: str, target: str, tokens: int) -> str:
    """What came of a class."""
    torch.set_num_threads(1)
    model = made(name)
    ids = torch.randint(3, 4096, (1, tokens), generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as place:
        report = language_model(model, place, target, verify=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(Path(place, "model.onnx")), options)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outputs = [item.name.replace("present", "past_key_values") for item in session.get_outputs()]
    inputs = {item.name: item.shape for item in session.get_inputs()}
    sizes = {"batch_size": 1, "past_sequence_length": 0}
    empty = {
        name: np.zeros([sizes.get(size, size) for size in shape], np.float32)
        for name, shape in inputs.items()
        if name.startswith("past_")
    }

    def run(start: int, end: int, state: dict[str, Any]) -> dict[str, Any]:
        feed = {"input_ids": ids[:, start:end].numpy(), "attention_mask": np.ones((1, end), np.int64)}
        feed["position_ids"] = np.arange(start, end)[None]
        answer = session.run(None, state | {key: item for key, item in feed.items() if key in inputs})
        return dict(zip(outputs, answer, strict=True))

    def one_by_one() -> dict[str, Any]:
        state, found = empty, dict[str, Any]()
        for at in range(tokens):
            found = run(at, at + 1, state)
            state = {key: item for key, item in found.items() if key in inputs}
        return found

    with torch.no_grad():
        by_torch, wanted = best(lambda: model(input_ids=ids, use_cache=True).logits[0, -1], 3)
    at_once, whole = best(lambda: run(0, tokens, empty), 3)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    single, last = best(one_by_one, 1)
    chosen = [torch.from_numpy(item["logits"][0, -1]) for item in (whole, last)]
    apart = max(float((item - wanted).abs().max() / wanted.abs().max()) for item in chosen)
    same = len({int(item.argmax()) for item in (*chosen, wanted)}) == 1
    kinds = " ".join(kind for kind in ("LinearAttention", "CausalConvWithState", "Scan") if kind in report.nodes)
    return (
        f"| {name} | {target} | {kinds or '-'} | {at_once:.2f} | {single:.2f} | {single / at_once:.0f}x "
        f"| {by_torch:.2f} | {grown:.0f} | {apart:.0e} | {'same' if same else 'OTHER'} |"
    )


def _send(pipe: Any, *args: Any) -> None:
    torchvision()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    try:
        pipe.send(line_of(*args))
    except Exception as error:  # whatever happens is the result
        pipe.send(f"| {args[0]} | {args[1]} | {type(error).__name__}: {str(error).splitlines()[0][:200]} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--target", nargs="+", choices=("onnx", "onnxruntime"), default=["onnx", "onnxruntime"])
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS))
    chosen = parser.parse_args()
    print(
        "| model | target | operators | prompt at once, s | one by one, s | ratio | torch, s | MB more | apart | next |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    context = multiprocessing.get_context("spawn")
    for name in chosen.only:
        for target in chosen.target:
            here, there = context.Pipe()
            process = context.Process(target=_send, args=(there, name, target, chosen.tokens))
            process.start()
            there.close()
            try:
                print(here.recv(), flush=True)
            except EOFError:
                print(f"| {name} | {target} | the process ended |", flush=True)
            process.join()


if __name__ == "__main__":
    main()
