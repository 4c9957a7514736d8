"""The architectures of llama.cpp's files: for each the names of transformers' models, and what else differs.

A row has what differs from Llama's names. llama.cpp rotates pairs that lie beside each other in some architectures;
where transformers' model has the halves of a head behind each other, its converter has put the rows of q and k in
turns. Gemma's and Nemotron's norms multiply with one plus the weight, and the file has the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BEHIND = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
_AROUND = _BEHIND | {"ffn_norm": "pre_feedforward_layernorm"}  # norms before and behind the second half of a layer
_GPT_TOP = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f"}
_GPT = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_MPT = {
    "attn_norm": "norm_1",
    "attn_qkv": "attn.Wqkv",
    "attn_output": "attn.out_proj",
    "ffn_norm": "norm_2",
    "ffn_up": "ffn.up_proj",
    "ffn_down": "ffn.down_proj",
}


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp.

    `models` are the `model_type` of configs that go with it; `top` and `layer` map its names to those of parameters,
    the latter behind `layers` and a number. `in_turns`: rows of q and k are in the order of llama.cpp's rotation.
    `one_more`: norms are one more than the weights. `transposed`: matrices of layers lie as [out, in], and those of the
    model as [in, out].
    """

    models: tuple[str, ...]
    layer: Mapping[str, str] = field(default_factory=lambda: _LAYER)
    top: Mapping[str, str] = field(default_factory=lambda: _TOP)
    layers: str = "model.layers"
    in_turns: bool = False
    one_more: bool = False
    transposed: bool = False


def _like_llama(
    *models: str, names: Mapping[str, str] | None = None, in_turns: bool = False, one_more: bool = False
) -> Architecture:
    return Architecture(models, {**_LAYER, **(names or {})}, in_turns=in_turns, one_more=one_more)


def _gpt(model: str, transposed: bool) -> Architecture:
    top = {name: f"transformer.{new}" for name, new in _GPT_TOP.items()} | {"output": "lm_head"}
    return Architecture((model,), _GPT, top, "transformer.h", transposed=transposed)


ARCHITECTURES: dict[str, Architecture] = {
    "llama": _like_llama("llama", "mistral", in_turns=True),
    "qwen2": _like_llama("qwen2"),
    "qwen3": _like_llama("qwen3"),
    "arcee": _like_llama("arcee", in_turns=True),
    "command-r": _like_llama("cohere"),
    "cohere2": _like_llama("cohere2"),
    "ernie4_5": _like_llama("ernie4_5"),
    "exaone4": _like_llama("exaone4", names=_BEHIND),
    "gemma": _like_llama("gemma", one_more=True),
    "gemma2": _like_llama("gemma2", one_more=True, names=_AROUND),
    "gemma3": _like_llama("gemma3_text", one_more=True, names=_AROUND),
    "glm4": _like_llama(
        "glm4",
        names={
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
            "ffn_up": "mlp.gate_up_proj",
        },
    ),
    "gpt2": _gpt("gpt2", transposed=True),
    "granite": _like_llama("granite", in_turns=True),
    "hunyuan-dense": _like_llama(
        "hunyuan_v1_dense",
        names={"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    ),
    "mpt": Architecture(
        ("mpt",),
        _MPT,
        {"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head"},
        "transformer.blocks",
    ),
    "nemotron": _like_llama("nemotron", one_more=True),
    "olmo": _like_llama("olmo", in_turns=True),
    "olmo2": _like_llama("olmo2", "olmo3", names=_BEHIND),
    "phi2": Architecture(
        ("phi",),
        _LAYER | {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
        _TOP | {"output_norm": "model.final_layernorm"},
    ),
    "phi3": _like_llama("phi3", names={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}),
    "seed_oss": _like_llama("seed_oss", names={"post_attention_norm": "post_attention_layernorm"}),
    "smollm3": _like_llama("smollm3", in_turns=True),
    "stablelm": _like_llama("stablelm"),
    "starcoder": _gpt("gpt_bigcode", transposed=False),
    "starcoder2": _like_llama("starcoder2", names={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}),
}
"""By the name in the file (`general.architecture`). `mpt` has the one matrix of q, k and v as transformers has it."""
