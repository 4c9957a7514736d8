"""A language model as a folder for ONNX Runtime, and the loop that generates with it.  Needs transformers.

The model is tiny and random, made from a config without a network.  A folder that `save_pretrained` wrote does as well:
`purexport.language_model("Llama-3.2-1B", "out", ...)`.

python examples/language_model.py
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

import purexport

SIZES = {"vocab_size": 1000, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
TOKENS = 12


def made() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()


def generated(path: Path, ids: np.ndarray[Any, Any]) -> list[int]:
    """The tokens behind `ids`, each the likeliest one."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    caches = [item for item in session.get_inputs() if item.name.startswith("past_key_values")]
    past = {item.name: np.zeros((1, item.shape[1], 0, item.shape[3]), np.float32) for item in caches}
    names = [item.name.replace("present", "past_key_values") for item in session.get_outputs()]
    found: list[int] = []
    length = 0
    while len(found) < TOKENS:
        total = length + ids.shape[1]
        feed = {"input_ids": ids, "attention_mask": np.ones((1, total), np.int64)}
        feed["position_ids"] = np.arange(length, total)[None]
        results = dict(zip(names, session.run(None, feed | past), strict=True))
        found.append(int(results.pop("logits")[0, -1].argmax()))
        ids, length, past = np.array([found[-1:]]), total, results
    return found


def main() -> None:
    model = made()
    check = bool(find_spec("onnxruntime"))
    report = purexport.language_model(model, "llama", target="onnxruntime", verify=check)
    print(report.as_text())

    if check:
        ids = torch.tensor([[1, 5, 42, 7]])
        tokens = generated(Path("llama", "model.onnx"), ids.numpy())
        print(f"generated: {tokens}")
        options: dict[str, Any] = {"max_new_tokens": TOKENS, "do_sample": False, "eos_token_id": None}
        wanted = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, 4:].tolist()
        print("as generate() of transformers" if tokens == wanted else f"but transformers: {wanted}")


if __name__ == "__main__":
    if find_spec("transformers"):
        main()
    else:
        print("this example needs transformers: pip install 'transformers>=5'")
