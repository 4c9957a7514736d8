"""Language models of transformers with a KV cache: what a test case is, how its model is made, how it is judged.

A case is a class of `MODEL_FOR_CAUSAL_LM_MAPPING` with a tiny random config.  `Step` wraps the model so that all
arguments and results are tensors: (input_ids, attention_mask, past_0_key, past_0_value, ...) -> (logits,
present_0_key, ...).  The cache is a `DynamicCache` that is made inside.  One set of sizes is exported, with the axes
batch, seq, past and total (= past + seq) dynamic.  The file is then run on a prefill of other sizes with an empty past,
and on greedy steps of one token with the growing cache.  Logits and caches are compared with torch.

The attention mask has a hole, so that a file that lost the mask is found.  It has no query without any key, whose
result would be noise.  Windows are shorter than what is generated.

A case has two exports: `Step`, and the model itself with a `DynamicCache` among its arguments (`own`).

transformers is imported where it is needed, so this module may be imported without it.
"""

from __future__ import annotations

import importlib
import inspect
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.tolerances import CHAIN, assert_near

OPSET = 20
EXAMPLE = {"batch": 2, "seq": 3, "past": 5}
PREFILL = {"batch": 3, "seq": 7, "past": 0}
STEPS = 6
LAYERS = 2
PARAMETERS = 10_000_000  # at most; a config that makes more has a size that TINY does not name

# What a config's argument becomes, wherever a config takes an argument of that name.
TINY: dict[str, Any] = {
    "vocab_size": 99,
    "max_position_embeddings": 64,
    "num_labels": 2,
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "emb_dim", "embedding_size", "embedding_dim"), 32),
    **dict.fromkeys(("input_embedding_size", "output_embedding_size", "word_embed_proj_dim", "dim_model_base"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), LAYERS),
    **dict.fromkeys(("num_decoder_layers", "encoder_layers", "num_encoder_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_decoder_attention_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "swa_num_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "dim_head", "swa_head_dim", "kv_channels", "d_head", "v_head_dim"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "rotary_dim", "index_head_dim", "indexer_head_dim"), 8),
    **dict.fromkeys(("intermediate_size", "decoder_ffn_dim", "encoder_ffn_dim", "ffn_dim", "n_inner", "dff"), 48),
    **dict.fromkeys(
        ("dim_ff", "d_inner", "moe_intermediate_size", "shared_intermediate_size", "feed_forward_size"), 48
    ),
    **dict.fromkeys(("shared_expert_intermediate_size", "shared_experts_intermediate_size"), 48),
    **dict.fromkeys(("intermediate_size_mlp", "dense_intermediate_size", "prefix_dense_intermediate_size"), 48),
    **dict.fromkeys(("ffn_hidden_size", "expert_ffn_hidden_size", "moe_shared_expert_intermediate_size"), 48),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", "n_group", "topk_group"), 2),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), 1),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"), 1),
    "moe_layer_end_index": LAYERS,
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "o_lora_rank", "gated_norm_rank", "hc_lowrank", "laurel_rank"), 16),
    **dict.fromkeys(("index_n_heads", "indexer_n_heads"), 4),
    **dict.fromkeys(("n_positions", "n_ctx", "max_seq_len", "max_target_positions", "context_length"), 64),
    **dict.fromkeys(("max_source_positions", "original_max_position_embeddings"), 64),
    **dict.fromkeys(("sliding_window", "sliding_window_size", "window_size", "attention_window_size"), 4),
    **dict.fromkeys(("local_attention", "attention_chunk_size"), 4),
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size"), 8),
    "max_window_layers": 1,
    "vocab_size_per_layer_input": 99,
    "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 0,
    "query_pre_attn_scalar": 8,
    "prompt_length": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "is_decoder": True,
    "use_cache": True,
}
# What single configs need beside that, by model type.
OVERRIDES: dict[str, dict[str, Any]] = {
    # multi-head latent attention: as many keys as queries
    **{
        name: {"num_key_value_heads": 4}
        for name in (
            "dots3_note_text",
            "axk1",
            "deepseek_v2",
            "deepseek_v3",
            "glm4_moe_lite",
            "minicpm3",
            "youtu",
        )
    },
    "longcat_flash": {"num_key_value_heads": 4, "zero_expert_num": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "intermediate_size": 48},
    "roc_bert": {
        "pronunciation_vocab_size": 20,
        "shape_vocab_size": 20,
        "pronunciation_embed_dim": 8,
        "shape_embed_dim": 8,
    },
    "zaya": {"num_experts_per_tok": 1},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "blt": {"encoder_hash_byte_group_vocab": 100},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "siglip_vision_model": {"num_hidden_layers": 1, "image_size": 32, "patch_size": 16},
    "got_ocr2_vision": {"num_hidden_layers": 1, "image_size": 32, "window_size": 4, "global_attn_indexes": [0]},
    "phi4_multimodal_audio": {"num_blocks": 1},
    "modernbert-decoder": {"layer_types": ["full_attention", "sliding_attention"]},
    "cohere_compass_text": {
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in ("full_attention", "sliding_attention")
        },
    },
}
# Classes that are no case, with the reason; others are found by running them (`made` raises LeftOutError).
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(
        ("BambaForCausalLM", "GraniteMoeHybridForCausalLM", "Mamba2ForCausalLM", "ZambaForCausalLM"),
        "has state-space layers, whose state is not a key and value",
    ),
    "Zamba2ForCausalLM": "has state-space layers, whose state is not a key and value",
    "KimiLinearForCausalLM": "has linear attention, whose state is not a key and value",
    "ReformerModelWithLMHead": "has a cache of buckets of its own",
    "Qwen4ExpForCausalLM": "keeps the keys of an indexer beside keys and values",
    **dict.fromkeys(
        ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"),
        "goes on from the hidden states of another model",
    ),
    **dict.fromkeys(
        ("Gemma3nForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
        "no tiny model, for its vision tower; its text model is a case of its own",
    ),
    "GitForCausalLM": "takes a past to begin with an image, and an empty past to have none, which is another path",
}


Run = Callable[[dict[str, Any]], dict[str, Any]]  # a file in a runtime: inputs by name -> outputs by name


class LeftOutError(Exception):
    """A class that is no case: it does not run in eager mode with a DynamicCache of keys and values alone."""


def library(module: str = "") -> Any:
    """transformers or a module of it, without the types that it has where it is installed."""
    return importlib.import_module(f"transformers.{module}".rstrip("."))


def classes() -> list[str]:
    """The names of the mapping's classes."""
    return sorted(set(library("models.auto.modeling_auto").MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()))


class Step(nn.Module):
    """A decoder with tensors in and out.  `layers` are the layers of the cache that hold keys and values."""

    def __init__(self, model: nn.Module, layers: int) -> None:
        super().__init__()
        self.model = model
        self.layers = layers

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        cache = filled(past)
        result = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        present = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
        return (result.logits, *present)


@dataclass(frozen=True, eq=False)
class Task:
    """One export of a case: what `purexport.export` gets, and how the file is judged."""

    model: nn.Module
    args: tuple[Tensor, ...]
    kwargs: dict[str, Any]
    axes: dict[str, Any]
    names: dict[str, Any]  # those of inputs and outputs, where they are given
    check: Callable[[Run], None]  # AssertionError unless the file does as torch


@dataclass(frozen=True, eq=False)
class Decoder:
    """A case: the wrapped model, and the shape of each tensor of the cache, with -1 for batch and -2 for its length."""

    name: str
    step: Step
    shapes: Sequence[tuple[int, ...]]
    vocabulary: int

    @property
    def input_names(self) -> list[str]:
        return ["input_ids", "attention_mask", *(f"past_{name}" for name in self._cache_names())]

    @property
    def output_names(self) -> list[str]:
        return ["logits", *(f"present_{name}" for name in self._cache_names())]

    def _cache_names(self) -> list[str]:
        return [f"{layer}_{part}" for layer in range(self.step.layers) for part in ("key", "value")]

    def axes(self, labels: Sequence[str] = ("batch", "seq", "past", "total")) -> dict[str, dict[int, str]]:
        """`dynamic_axes`: the four axes by name."""
        batch, seq, past, total = labels
        found = {"input_ids": {0: batch, 1: seq}, "attention_mask": {0: batch, 1: total}}
        for name, shape in zip(self.input_names[2:], self.shapes, strict=True):
            found[name] = {shape.index(-1): batch, shape.index(-2): past}
        return found

    def args(self, batch: int, seq: int, past: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Random tokens and a random cache."""
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, self.vocabulary, (batch, seq), generator=generator)
        sizes = {-1: batch, -2: past}
        cache = [torch.randn([sizes.get(size, size) for size in shape], generator=generator) for shape in self.shapes]
        return (ids, mask(batch, past + seq), *cache)

    def wrapped(self) -> Task:
        """The export of `Step`."""
        names = {"input_names": self.input_names, "output_names": self.output_names}
        return Task(self.step, self.args(**EXAMPLE), {}, self.axes(), names, self.check)

    def own(self) -> Task:
        """The export of the model itself, with a cache among its arguments."""
        ids, mask, *past = self.args(**EXAMPLE)
        kwargs = {"input_ids": ids, "attention_mask": mask, "past_key_values": filled(past), "use_cache": True}
        axes = self.axes()
        cache = {name.removeprefix("past_").replace("_", "."): axes.pop(name) for name in self.input_names[2:]}
        return Task(self.step.model, (), kwargs, {**axes, "past_key_values": cache}, {}, self._check_own)

    def _check_own(self, run: Run) -> None:
        theirs = [own_name(name) for name in self.input_names]

        def renamed(feeds: dict[str, Any]) -> dict[str, Any]:
            found = run(dict(zip(theirs, feeds.values(), strict=True)))
            return {name: found[own_name(name)] for name in self.output_names}

        self.check(renamed)

    def check(self, run: Run) -> None:
        """AssertionError unless `run` does as torch: a prefill and greedy steps."""
        args = self.args(**PREFILL, seed=1)
        for count in range(1 + STEPS):
            where = f"step {count}" if count else "prefill"
            with torch.no_grad():
                wanted = self.step(*args)
            found = run({name: tensor.numpy() for name, tensor in zip(self.input_names, args, strict=True)})
            compare(found, dict(zip(self.output_names, wanted, strict=True)), where)
            token = wanted[0][:, -1:].argmax(-1)
            past = wanted[1:]
            args = (token, mask(len(token), args[1].shape[1] + 1), *past)


def mask(batch: int, total: int) -> Tensor:
    """[batch, total] int64 of ones, with a zero in the second row."""
    result = torch.ones(batch, total, dtype=torch.int64)
    result[1:2, 1] = 0
    return result


def filled(past: Sequence[Tensor]) -> Any:
    """A `DynamicCache` that holds the given keys and values."""
    cache = library("cache_utils").DynamicCache()
    for layer in range(len(past) // 2):
        cache.update(past[2 * layer], past[2 * layer + 1], layer)
    return cache


def own_name(name: str) -> str:
    """The name that we give to what `Step` calls `past_0_key` or `present_0_key`."""
    kind, _, rest = name.partition("_")
    kinds = {"past": "past_key_values", "present": "present"}
    return f"{kinds[kind]}.{rest.replace('_', '.')}" if kind in kinds else name


def compare(found: dict[str, Any], wanted: dict[str, Tensor], where: str) -> None:
    """AssertionError unless the outputs are those of torch."""
    assert list(found) == list(wanted), f"{where}: outputs {list(found)}, torch gives {list(wanted)}"
    for name, want in wanted.items():
        assert_near(np.asarray(found[name]), want, CHAIN, f"{where}, {name}")


def tiny_config(config_class: Any, leave: Sequence[str] = ()) -> Any:
    """A config with the sizes of TINY but for some arguments, and the configs in it likewise."""
    taken = inspect.signature(config_class.__init__).parameters
    kinds = {name: _kind(config_class, name) for name in config_class.sub_configs or () if name in taken}
    inner = {name: tiny_config(kind, leave) for name, kind in kinds.items()}
    given = {name: value for name, value in TINY.items() if name in taken and name not in leave}
    return config_class(**(given | inner | OVERRIDES.get(config_class.model_type, {})))


def _kind(config_class: Any, name: str) -> Any:
    """The class of an inner config; where any class may be there, that of the default."""
    kind = config_class.sub_configs[name]
    return kind if hasattr(kind, "model_type") else type(getattr(config_class(), name))


def made(name: str) -> Decoder:
    """The case of a class.  Raises LeftOutError with the reason where it is none."""
    if name in LEFT_OUT:
        raise LeftOutError(LEFT_OUT[name])
    try:
        model_class = getattr(library(), name)
        model = tiny_model(model_class, tiny_config(model_class.config_class))
    except LeftOutError:
        raise
    except Exception as error:  # whatever a class needs that is not here
        raise LeftOutError(f"no tiny model: {line(error)}") from error
    return _case(name, model)


def tiny_model(model_class: Any, config: Any) -> nn.Module:
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in model_class(config).parameters())
    if count > PARAMETERS:
        raise LeftOutError(f"no tiny model: {count} parameters")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(zlib.crc32(model_class.__name__.encode()))
        model = model_class(config).eval()
        # as made, a model says nearly the same whatever it is given
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model  # type: ignore[no-any-return]


def _case(name: str, model: Any) -> Decoder:
    caches = library("cache_utils")
    cache = caches.DynamicCache()
    ids = torch.randint(3, 90, (3, 5))
    try:
        with torch.no_grad():
            result = model(input_ids=ids, attention_mask=torch.ones_like(ids), past_key_values=cache, use_cache=True)
    except Exception as error:
        raise LeftOutError(f"{_other_layers(model)}does not run with a DynamicCache: {line(error)}") from error
    if not getattr(cache, "layers", None):
        raise LeftOutError("takes a DynamicCache and puts nothing in it")
    kinds = {type(layer).__name__ for layer in cache.layers if type(layer) is not caches.DynamicLayer}
    if kinds:
        raise LeftOutError(f"keeps state other than keys and values: {', '.join(sorted(kinds))}")
    tensors = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    if any(tensor is None or list(tensor.shape[::2]) != [3, 5] for tensor in tensors):
        shapes = [None if tensor is None else tuple(tensor.shape) for tensor in tensors]
        raise LeftOutError(f"keeps other than [batch, heads, length, size] for each layer: {shapes}")
    shapes = [(-1, tensor.shape[1], -2, tensor.shape[3]) for tensor in tensors]
    decoder = Decoder(name, Step(model, len(cache.layers)).eval(), shapes, min(90, result.logits.shape[-1]))
    _must_hold(decoder, ids, result.logits)
    return decoder


def _other_layers(model: Any) -> str:
    """What layers a cache that is made from the config has beside those of keys and values, as a reason."""
    caches = library("cache_utils")
    try:
        layers = caches.DynamicCache(config=model.config).layers
    except (AttributeError, LookupError, TypeError, ValueError):  # no cache is made from such a config
        return ""
    kinds = {type(layer) for layer in layers} - {caches.DynamicLayer, caches.DynamicSlidingWindowLayer}
    return f"needs {', '.join(sorted(kind.__name__ for kind in kinds))} in its cache; " if kinds else ""


def _must_hold(decoder: Decoder, ids: Tensor, logits: Tensor) -> None:
    """The model in eager mode: what it says of all tokens at once it says in steps, and it hears what it is given."""
    empty = decoder.args(3, 2, 0)[2:]
    try:
        with torch.no_grad():
            first = decoder.step(ids[:, :2], torch.ones(3, 2, dtype=torch.int64), *empty)
            second = decoder.step(ids[:, 2:], torch.ones(3, 5, dtype=torch.int64), *first[1:])
            last = decoder.step(*decoder.args(**EXAMPLE))
    except Exception as error:
        raise LeftOutError(f"does not run in steps: {line(error)}") from error
    if not all(torch.isfinite(tensor).all() for tensor in (*second, *last)):
        raise LeftOutError("gives numbers that are not finite")
    if not torch.allclose(second[0], logits[:, 2:], rtol=1e-3, atol=1e-3):
        raise LeftOutError("says other things in steps than of all tokens at once")


def line(error: Exception, most: int = 160) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:most]
