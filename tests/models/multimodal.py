"""Language models of transformers with more than one graph: encoder-decoders, other state, pictures.

A case is a class with a tiny random config, and the inputs that a processor would make, where the model needs more
than its config says.  transformers is imported where it is needed, so this module may be imported without it.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.language.senses import SOUNDS, sense_of
from purexport.language.state import slots_of
from purexport.language.vision import has_pictures
from tests.models import decoders
from tests.models.decoders import LeftOutError, line

# what the configs of encoders need beside the sizes of decoders, by the name of an argument
SIZES: dict[str, Any] = {
    **dict.fromkeys(("num_mel_bins", "input_feat_per_channel"), 20),
    **dict.fromkeys(("encoder_num_hidden_layers", "decoder_num_hidden_layers", "speech_encoder_layers"), 2),
    **dict.fromkeys(("encoder_num_attention_heads", "decoder_num_attention_heads"), 4),
    **dict.fromkeys(("encoder_num_key_value_heads", "decoder_num_key_value_heads"), 4),
    **dict.fromkeys(("speech_encoder_attention_heads", "conformer_num_attention_heads"), 4),
    **dict.fromkeys(("d_kv", "kv_dim"), 8),
    **dict.fromkeys(("d_ff", "speech_encoder_intermediate_size", "t2u_encoder_ffn_dim", "t2u_decoder_ffn_dim"), 48),
    **dict.fromkeys(("t2u_encoder_layers", "t2u_decoder_layers", "adaptor_kernel_size", "num_adapter_layers"), 2),
    **dict.fromkeys(("t2u_encoder_attention_heads", "t2u_decoder_attention_heads"), 4),
    "feature_projection_input_dim": 20,
    "src_vocab_size": 99,
    "tgt_vocab_size": 99,
    "decoder_vocab_size": 99,
    "conv_channels": 32,
    "attention_window": 4,
    "num_global_layers": 1,
    "relative_attention_num_buckets": 8,
    "decoder_start_token_id": 1,
    **dict.fromkeys(("image_token_id", "image_token_index"), 98),
    **dict.fromkeys(("video_token_id", "video_token_index"), 97),
    "vision_start_token_id": 96,
    "image_size": 32,
    "patch_size": 8,
    "depth": 2,
}
_SSM = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_chunk_size": 16}
_MIXED = {"layer_types": ["linear_attention", "full_attention"]}
_LINEAR = {f"linear_{name}": size for name, size in (("num_key_heads", 2), ("num_value_heads", 4))}
_LINEAR |= {f"linear_{name}_head_dim": 8 for name in ("key", "value")}
# what single configs need beside that, by model type
OVERRIDES: dict[str, dict[str, Any]] = {
    "gemma3": {"mm_tokens_per_image": 4},
    "bamba": {**_SSM, "attn_layer_indices": [1]},
    "granitemoehybrid": {**_SSM, "layer_types": ["mamba", "attention"]},
    "falcon_h1": {**_SSM, "mamba_d_ssm": 64, "mamba_d_head": 8},
    "mamba2": {"num_heads": 8, "head_dim": 8, "expand": 2, "n_groups": 1, "chunk_size": 16},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 8, "chunk_size": 16, "n_groups": 1},
    **{name: {**_LINEAR, **_MIXED} for name in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid")},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "kimi_linear": {"layer_types": ["linear_attention", "full_attention"], "num_key_value_heads": 4},
    **{name: {"out_hidden_size": 32} for name in ("qwen3_5_vision", "qwen3_5_moe_vision", "qwen2_5_omni_vision")},
    **{name: {"out_hidden_size": 32, "deepstack_visual_indexes": [0]} for name in ("qwen3_vl_vision",)},
    "qwen2_5_vl_vision": {"out_hidden_size": 32, "window_size": 32, "fullatt_block_indexes": [1]},
    "qwen2_5_vl_text": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}},
    "gemma4": {"audio_token_id": 96},
    "gemma4_text": {"hidden_size_per_layer_input": 0},
    "paligemma": {"projection_dim": 32},
    **{kind: {"audio_token_id": 98} for kind in ("voxtral", "qwen3_asr")},
    "voxtral_encoder": {"max_source_positions": 10, "intermediate_size": 64},
    "qwen3_asr_encoder": {"n_window_infer": 100, "output_dim": 32, "downsample_hidden_size": 8},
    "granite_speech": {"audio_token_index": 98, "has_lora_adapter": False, "window_size": 15},
    "granite_speech_encoder": {"hidden_dim": 32, "num_layers": 2, "num_heads": 4, "context_size": 20, "output_dim": 10},
    "blip_2_qformer": {"encoder_hidden_size": 32},
    "bailing_hybrid": {"layer_types": ["linear_attention", "full_attention"]},
}
_WITHOUT_HEADS = ("is_decoder",)  # what tells a decoder alone


def made(name: str, kind: str) -> tuple[Any, dict[str, torch.Tensor] | None]:
    """The model of a class, and inputs or None.  Raises LeftOutError with the reason where it is no case."""
    try:
        model_class = getattr(decoders.library(), name)
        config = _config(model_class)
        model = decoders.tiny_model(model_class, config)
        keeps = kind == "state" and bool(slots_of(model))
    except LeftOutError:
        raise
    except Exception as error:  # whatever a class needs that is not here
        raise LeftOutError(f"no tiny model that runs: {line(error)}") from error
    if kind == "state" and not keeps:
        raise LeftOutError("keeps nothing but keys and values")
    if kind == "audio" and sense_of(model) is not SOUNDS:
        raise LeftOutError("has no get_audio_features, or no token for sound")
    if kind == "vision" and not has_pictures(model):
        raise LeftOutError("has no get_image_features, or no token for pictures")
    if kind == "encoder-decoder" and not getattr(model.config, "is_encoder_decoder", False):
        raise LeftOutError("is not an encoder-decoder")
    return model, None


def _config(model_class: Any) -> Any:
    before, overrides = dict(decoders.TINY), dict(decoders.OVERRIDES)
    decoders.TINY.update(SIZES)
    decoders.OVERRIDES.update(OVERRIDES)
    try:
        return decoders.tiny_config(model_class.config_class, _WITHOUT_HEADS)
    finally:
        decoders.TINY.clear()
        decoders.TINY.update(before)
        decoders.OVERRIDES.clear()
        decoders.OVERRIDES.update(overrides)
