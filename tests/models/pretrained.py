"""Models of transformers that generate no text, by task: classes with tiny random configs.

transformers is imported where it is needed, so this module may be imported without it.
"""

from __future__ import annotations

from typing import Any

from tests.models import decoders, multimodal

_BERTS = (
    *("Albert", "Bert", "Camembert", "ConvBert", "Data2VecText", "DebertaV2", "DistilBert", "Electra", "MobileBert"),
    *("MPNet", "Nystromformer", "RemBert", "Roberta", "RoFormer", "SqueezeBert", "XLMRoberta", "MegatronBert"),
)
_STEPS = {"depths": [1, 1], "hidden_sizes": [8, 16], "embedding_size": 8}
_SWIN = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2, "image_size": 32, "patch_size": 4}
_FOUR = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16]}
_WAVES = {
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 32,
    "num_labels": 3,
    "classifier_proj_size": 16,
    "tdnn_dim": (16, 16, 16),
    "tdnn_kernel": (3, 3, 1),
    "tdnn_dilation": (1, 2, 1),
    "xvector_output_dim": 16,
}
# what configs need beside the sizes of language models, by model type
OVERRIDES: dict[str, dict[str, Any]] = {
    "albert": {"num_hidden_groups": 1},
    "distilbert": {"dim": 32, "hidden_dim": 48},
    "mobilebert": {"intra_bottleneck_size": 16, "true_hidden_size": 16, "num_feedforward_networks": 2},
    "nystromformer": {"num_landmarks": 11, "segment_means_seq_len": 11},
    "squeezebert": {f"{part}_groups": 2 for part in ("q", "k", "v", "post_attention", "intermediate", "output")},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 4, "layer_types": None},
    "resnet": {**_STEPS, "layer_type": "basic"},
    "regnet": {**_STEPS, "groups_width": 8},
    "convnext": {**_STEPS, "num_stages": 2},
    "convnextv2": {**_STEPS, "num_stages": 2},
    "swin": _SWIN,
    "swinv2": {**_SWIN, "pretrained_window_sizes": [0, 0]},
    "swin2sr": {**_SWIN, "num_heads": [2, 2], "image_size": 16, "patch_size": 1, "window_size": 4, "upscale": 2},
    "donut-swin": _SWIN,
    "segformer": {**_FOUR, "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16, "num_encoder_blocks": 4},
    "pvt": {
        "depths": [1] * 4,
        "hidden_sizes": [8, 8, 16, 16],
        "num_attention_heads": [1, 1, 2, 2],
        "image_size": 64,
        "num_encoder_blocks": 4,
        "mlp_ratios": [2] * 4,
    },
    "poolformer": {**_FOUR, "num_encoder_blocks": 4},
    "mobilevit": {"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 8], "image_size": 64},
    "mobilenet_v1": {"depth_multiplier": 0.25, "image_size": 64},
    "mobilenet_v2": {"depth_multiplier": 0.25, "image_size": 64},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.25, "image_size": 64, "hidden_dim": 320},
    "levit": {"hidden_sizes": [16, 16, 16], "num_attention_heads": [2, 2, 2], "key_dim": [8] * 3, "depths": [1] * 3},
    "cvt": {"embed_dim": [8, 8, 16], "num_heads": [1, 1, 2], "depth": [1, 1, 1]},
    "hiera": {**_SWIN, "image_size": [64, 64], "patch_stride": [4, 4], "patch_size": [7, 7], "depths": [1, 1, 1, 1]},
    "dinov2": {"image_size": 32, "patch_size": 8, "mlp_ratio": 2},
    "vit_msn": {},
    "beit": {"out_indices": [1, 2, 3, 4], "num_hidden_layers": 4},
    "glpn": {**_FOUR, "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16},
    "yolos": {"image_size": [32, 32], "num_detection_tokens": 5},
    **dict.fromkeys(("wav2vec2", "hubert", "wavlm", "unispeech", "unispeech-sat", "data2vec-audio", "sew"), _WAVES),
    "wav2vec2-conformer": {**_WAVES, "conv_depthwise_kernel_size": 3},
    "audio-spectrogram-transformer": {"max_length": 48, "num_mel_bins": 16, "patch_size": 8},
    "whisper": {"max_source_positions": 32, "num_mel_bins": 16},
    "clip_text_model": {"eos_token_id": 98},
    "layoutlm": {"max_2d_position_embeddings": 128},
    "lilt": {"max_2d_position_embeddings": 128, "channel_shrink_ratio": 2},
    "longformer": {"attention_window": 4},
    "xlm": {"emb_dim": 32},
    "flaubert": {"emb_dim": 32},
    "chinese_clip_text_model": {},
}


def _classes(ending: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{name}{ending}" for name in names)


# classes by task; each architecture is in one row or more
CLASSES: dict[str, tuple[str, ...]] = {
    "feature-extraction": (
        *_classes("Model", *_BERTS, "Esm", "Flaubert", "ModernBert", "XLM", "Splinter", "IBert", "BigBird", "LayoutLM"),
        *_classes("Model", "Lilt", "CLIPText", "CLIPVision", "SiglipVision", "Dinov2", "Swin", "Wav2Vec2", "Hubert"),
        *_classes("Model", "Bart", "Marian", "M2M100", "T5", "GPT2", "Qwen3", "Llama", "Mamba"),
    ),
    "text-classification": _classes(
        "ForSequenceClassification", *_BERTS, "Deberta", "Bart", "Llama", "GPT2", "Flaubert", "ModernBert", "XLM"
    ),
    "token-classification": _classes(
        "ForTokenClassification", "Bert", "DistilBert", "Roberta", "DebertaV2", "Electra", "LayoutLM", "BigBird"
    ),
    "question-answering": _classes(
        "ForQuestionAnswering", "Bert", "Roberta", "MPNet", "Albert", "DistilBert", "Splinter", "Lilt"
    ),
    "fill-mask": (
        *_classes("ForMaskedLM", "Bert", "Roberta", "DistilBert", "Electra", "DebertaV2", "Esm", "ModernBert"),
        *("LongformerForMaskedLM", "XLMWithLMHeadModel"),
    ),
    "multiple-choice": _classes("ForMultipleChoice", "Bert", "Roberta", "Electra", "RemBert"),
    "image-classification": _classes(
        "ForImageClassification",
        *("Beit", "ConvNext", "ConvNextV2", "Cvt", "Data2VecVision", "DeiT", "Dinov2", "EfficientNet", "Hiera"),
        *("Levit", "MobileNetV1", "MobileNetV2", "MobileViT", "PoolFormer", "Pvt", "RegNet", "ResNet", "Segformer"),
        *("Swin", "Swinv2", "ViT", "ViTMSN", "CLIP", "Siglip"),
    ),
    "object-detection": _classes(
        "ForObjectDetection", "Detr", "Yolos", "TableTransformer", "ConditionalDetr", "RTDetr"
    ),
    "semantic-segmentation": _classes("ForSemanticSegmentation", "Segformer", "Beit", "MobileViT"),
    "depth-estimation": _classes("ForDepthEstimation", "GLPN"),
    "masked-im": _classes("ForMaskedImageModeling", "ViT", "DeiT", "Swin"),
    "image-to-image": ("Swin2SRForImageSuperResolution",),
    "audio-classification": (
        *_classes("ForSequenceClassification", "Wav2Vec2", "Hubert", "WavLM", "Data2VecAudio", "SEW", "UniSpeechSat"),
        *_classes("ForAudioClassification", "AST", "Whisper"),
    ),
    "audio-frame-classification": _classes("ForAudioFrameClassification", "Wav2Vec2", "WavLM"),
    "audio-xvector": _classes("ForXVector", "Wav2Vec2", "UniSpeechSat"),
    "automatic-speech-recognition": _classes(
        "ForCTC", "Wav2Vec2", "Hubert", "WavLM", "UniSpeech", "SEW", "Data2VecAudio", "Wav2Vec2Conformer"
    ),
    "zero-shot-image-classification": _classes("Model", "CLIP", "Siglip", "ChineseCLIP", "Align"),
}


def made(name: str) -> Any:
    """The model of a class.  Raises LeftOutError with the reason where it makes no tiny model."""
    try:
        model_class = getattr(decoders.library(), name)
        return decoders.tiny_model(model_class, _config(model_class))
    except decoders.LeftOutError:
        raise
    except Exception as error:  # whatever a class needs that is not here
        raise decoders.LeftOutError(f"no tiny model: {decoders.line(error)}") from error


def _config(model_class: Any) -> Any:
    before = {name: dict(getattr(decoders, name)) for name in ("TINY", "OVERRIDES")}
    decoders.TINY.update(multimodal.SIZES | {"num_queries": 7})
    decoders.OVERRIDES.update(OVERRIDES)
    try:
        if "Detr" in model_class.__name__ or "TableTransformer" in model_class.__name__:
            return _detector(model_class)
        return decoders.tiny_config(model_class.config_class, ("is_decoder", "use_cache"))
    finally:
        for name, content in before.items():
            table = getattr(decoders, name)
            table.clear()
            table.update(content)


def _detector(model_class: Any) -> Any:
    """A detector's config, whose default backbone is one of timm, or has all its sizes."""
    library, kind = decoders.library(), model_class.config_class
    sizes = {**decoders.TINY, "num_queries": 7}
    taken = kind.__init__.__annotations__ or {}
    known = {name: item for name, item in sizes.items() if hasattr(kind, name) or name in taken}
    known.pop("is_decoder", None)
    if "RTDetr" in model_class.__name__:
        backbone = library.RTDetrResNetConfig(
            embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, layer_type="basic", out_indices=(2, 3, 4)
        )
        more = {"encoder_in_channels": [8, 16, 16], "encoder_hidden_dim": 32, "decoder_in_channels": [32] * 3}
        return kind(backbone_config=backbone, **known, **more, encoder_attention_heads=4)
    backbone = library.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, layer_type="basic", out_features=["stage4"]
    )
    return kind(use_timm_backbone=False, use_pretrained_backbone=False, backbone_config=backbone, **known)
