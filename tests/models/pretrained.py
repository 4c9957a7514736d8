"""Models of transformers that generate no text, by task: classes with tiny random configs.

transformers is imported where it is needed, so this module may be imported without it.
"""

from __future__ import annotations

from typing import Any

import torch

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
    "mpnet": {"relative_attention_num_buckets": 32},
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
    "mobilevitv2": {"patch_size": 2, "image_size": 64},
    "mobilenet_v1": {"depth_multiplier": 0.25, "image_size": 64},
    "mobilenet_v2": {"depth_multiplier": 0.25, "image_size": 64},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.25, "image_size": 64, "hidden_dim": 320},
    "levit": {
        "hidden_sizes": [16] * 3,
        "num_attention_heads": [2] * 3,
        "key_dim": [8] * 3,
        "depths": [1] * 3,
        "image_size": 64,
        "patch_size": 16,
    },
    "cvt": {
        "embed_dim": [8, 8, 16],
        "num_heads": [1, 1, 2],
        "depth": [1, 2, 3],
        "mlp_ratio": [2.0] * 3,
        "patch_sizes": [7, 3, 3],
        "patch_stride": [4, 2, 2],
        "patch_padding": [2, 1, 1],
    },
    "hiera": {
        "embed_dim": 8,
        "image_size": [64, 64],
        "patch_stride": [4, 4],
        "patch_size": [7, 7],
        "depths": [1, 1, 1, 1],
        "num_heads": [1, 1, 2, 2],
        "mlp_ratio": 2.0,
    },
    "parakeet_encoder": {"num_mel_bins": 16, "subsampling_conv_channels": 8},
    "align": {"projection_dim": 80},
    "align_vision_model": {"width_coefficient": 0.25, "depth_coefficient": 0.25, "image_size": 64, "hidden_dim": 320},
    "dinov2": {"image_size": 32, "patch_size": 8, "mlp_ratio": 2},
    "vit_msn": {},
    **{name: {"out_indices": [1, 2, 3, 4], "num_hidden_layers": 4} for name in ("beit", "data2vec-vision")},
    "focalnet": {
        "embed_dim": 16,
        "hidden_sizes": [16, 32],
        "depths": [1, 1],
        "focal_levels": [2, 2],
        "focal_windows": [3, 3],
    },
    "bit": {**_STEPS, "hidden_sizes": [16, 32], "num_groups": 4},
    "glpn": {**_FOUR, "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16},
    "yolos": {"image_size": [32, 32], "num_detection_tokens": 5},
    **dict.fromkeys(("wav2vec2", "hubert", "wavlm", "unispeech", "unispeech-sat", "data2vec-audio", "sew"), _WAVES),
    "wav2vec2-conformer": {**_WAVES, "conv_depthwise_kernel_size": 3},
    "audio-spectrogram-transformer": {"max_length": 48, "num_mel_bins": 16, "patch_size": 8},
    "whisper": {"max_source_positions": 32, "num_mel_bins": 16},
    "clip_text_model": {"eos_token_id": 98},
    "layoutlm": {"max_2d_position_embeddings": 128},
    "lilt": {"hidden_size": 48, "max_2d_position_embeddings": 128, "channel_shrink_ratio": 2},
    "longformer": {"attention_window": 4},
    "xlm": {"emb_dim": 32},
    "flaubert": {"emb_dim": 32},
    "chinese_clip_text_model": {},
}
# parts of the names of classes whose config has another model's in it
_OVER_OTHERS = ("Detr", "TableTransformer", "DPT", "DepthAnything", "VitPose", "UperNet")
_NECK = {
    "neck_hidden_sizes": [8] * 4,
    "fusion_hidden_size": 8,
    "reassemble_hidden_size": 32,
    "head_hidden_size": 8,
}


def _classes(ending: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{name}{ending}" for name in names)


# classes by task; each architecture is in one row or more
CLASSES: dict[str, tuple[str, ...]] = {
    "feature-extraction": (
        *_classes("Model", *_BERTS, "Esm", "Flaubert", "ModernBert", "XLM", "Splinter", "IBert", "BigBird", "LayoutLM"),
        *_classes("Model", "Lilt", "CLIPText", "CLIPVision", "SiglipVision", "Dinov2", "Swin", "Wav2Vec2", "Hubert"),
        *_classes("Model", "Bart", "Marian", "M2M100", "T5", "GPT2", "Qwen3", "Llama", "Mamba", "T5Encoder", "AST"),
        *_classes("Model", "ViT", "DeiT", "Beit", "ConvNext", "ResNet", "WavLM", "Data2VecAudio", "Wav2Vec2Bert"),
        *_classes("Model", "XLNet", "Ernie", "FNet", "EuroBert", "JinaEmbeddingsV3", "Gemma3Text", "Deberta"),
        *_classes("Model", "Funnel", "Canine", "DINOv3ViT"),
        "DPRQuestionEncoder",
    ),
    "text-classification": (
        *_classes("ForSequenceClassification", *_BERTS, "Deberta", "Bart", "Llama", "GPT2", "Flaubert", "ModernBert"),
        *_classes("ForSequenceClassification", "XLM", "BigBird", "Ernie", "XLNet", "FNet", "Yoso", "NomicBert"),
        *_classes("ForSequenceClassification", "EuroBert", "Esm", "LayoutLM", "Lilt", "XLMRobertaXL"),
    ),
    "token-classification": _classes(
        "ForTokenClassification",
        *("Bert", "DistilBert", "Roberta", "DebertaV2", "Electra", "LayoutLM", "BigBird", "Albert", "Camembert"),
        *("XLMRoberta", "ConvBert", "MobileBert", "ModernBert", "RoFormer", "Ernie", "XLNet", "Deberta", "SqueezeBert"),
    ),
    "question-answering": (
        *_classes("ForQuestionAnswering", "Bert", "Roberta", "MPNet", "Albert", "DistilBert", "Splinter", "Lilt"),
        *_classes("ForQuestionAnswering", "Electra", "XLMRoberta", "Camembert", "DebertaV2", "Deberta", "ModernBert"),
        *_classes("ForQuestionAnswering", "BigBird", "MobileBert", "ConvBert", "Ernie", "LayoutLM"),
        "XLNetForQuestionAnsweringSimple",
    ),
    "fill-mask": (
        *_classes("ForMaskedLM", "Bert", "Roberta", "DistilBert", "Electra", "DebertaV2", "Esm", "ModernBert"),
        *("LongformerForMaskedLM", "XLMWithLMHeadModel"),
        *_classes("ForMaskedLM", "Albert", "XLMRoberta", "Camembert", "MPNet", "MobileBert", "ConvBert", "BigBird"),
        *_classes("ForMaskedLM", "Ernie", "RoFormer", "SqueezeBert", "Deberta", "RemBert", "FNet"),
    ),
    "multiple-choice": _classes(
        "ForMultipleChoice", "Bert", "Roberta", "Electra", "RemBert", "DistilBert", "XLMRoberta", "Ernie"
    ),
    "image-classification": _classes(
        "ForImageClassification",
        *("Beit", "ConvNext", "ConvNextV2", "Cvt", "Data2VecVision", "DeiT", "Dinov2", "EfficientNet", "Hiera"),
        *("Levit", "MobileNetV1", "MobileNetV2", "MobileViT", "PoolFormer", "Pvt", "RegNet", "ResNet", "Segformer"),
        *("Swin", "Swinv2", "ViT", "ViTMSN", "CLIP", "Siglip", "Dinov2WithRegisters", "DonutSwin", "SwiftFormer"),
        *("IJepa", "ImageGPT", "MetaClip2", "MobileViTV2", "FocalNet", "Bit"),
    ),
    "object-detection": _classes(
        "ForObjectDetection",
        *("Detr", "Yolos", "TableTransformer", "ConditionalDetr", "RTDetr", "DeformableDetr", "DabDetr"),
    ),
    "semantic-segmentation": _classes(
        "ForSemanticSegmentation", "Segformer", "Beit", "MobileViT", "Data2VecVision", "DPT", "UperNet", "MobileNetV2"
    ),
    "image-segmentation": ("DetrForSegmentation",),
    "depth-estimation": _classes("ForDepthEstimation", "GLPN", "DPT", "DepthAnything"),
    "keypoint-detection": ("VitPoseForPoseEstimation",),
    "masked-im": _classes("ForMaskedImageModeling", "ViT", "DeiT", "Swin"),
    "image-to-image": ("Swin2SRForImageSuperResolution",),
    "audio-classification": (
        *_classes("ForSequenceClassification", "Wav2Vec2", "Hubert", "WavLM", "Data2VecAudio", "SEW", "UniSpeechSat"),
        *_classes("ForSequenceClassification", "UniSpeech", "Wav2Vec2Bert", "Wav2Vec2Conformer"),
        *_classes("ForAudioClassification", "AST", "Whisper"),
    ),
    "audio-frame-classification": _classes(
        "ForAudioFrameClassification", "Wav2Vec2", "WavLM", "UniSpeechSat", "Data2VecAudio", "Wav2Vec2Conformer"
    ),
    "audio-xvector": _classes("ForXVector", "Wav2Vec2", "UniSpeechSat", "WavLM", "Data2VecAudio"),
    "automatic-speech-recognition": _classes(
        "ForCTC",
        *("Wav2Vec2", "Hubert", "WavLM", "UniSpeech", "SEW", "Data2VecAudio", "Wav2Vec2Conformer"),
        *("UniSpeechSat", "Wav2Vec2Bert", "SEWD", "Parakeet"),
    ),
    "zero-shot-image-classification": _classes(
        "Model", "CLIP", "Siglip", "ChineseCLIP", "Align", "AltCLIP", "Blip", "MetaClip2", "CLIPSeg", "Siglip2"
    ),
}
# classes that are refused, and what the error says
REFUSED = {"LongformerForMaskedLM": "looks at values that it computes"}  # whether a token attends to all others


def made(name: str) -> Any:
    """The model of a class.  Raises LeftOutError with the reason where it makes no tiny model."""
    try:
        model_class = getattr(decoders.library(), name)
        model = decoders.tiny_model(model_class, _config(model_class))
    except decoders.LeftOutError:
        raise
    except Exception as error:  # whatever a class needs that is not here
        raise decoders.LeftOutError(f"no tiny model: {decoders.line(error)}") from error
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0  # as training leaves it; some models load it as 0
    return model


def _config(model_class: Any) -> Any:
    before = {name: dict(getattr(decoders, name)) for name in ("TINY", "OVERRIDES")}
    decoders.TINY.update(multimodal.SIZES | {"num_queries": 7})
    decoders.OVERRIDES.update(OVERRIDES)
    try:
        if any(word in model_class.__name__ for word in _OVER_OTHERS):
            return _over_another(model_class)
        return decoders.tiny_config(model_class.config_class, ("is_decoder", "use_cache"))
    finally:
        for name, content in before.items():
            table = getattr(decoders, name)
            table.clear()
            table.update(content)


def _over_another(model_class: Any) -> Any:
    """The config of a model on top of another, whose default is one of timm, or has all its sizes."""
    kind, name = model_class.config_class, model_class.__name__
    taken = kind.__init__.__annotations__ or {}
    known = {size: item for size, item in decoders.TINY.items() if hasattr(kind, size) or size in taken}
    known.pop("is_decoder", None)
    if "DPT" in name:
        return kind(**known | {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], **_NECK})
    if "DepthAnything" in name:
        return kind(backbone_config=_vit("Dinov2", reshape_hidden_states=False), **known, **_NECK)
    if "VitPose" in name:
        sizes = {"image_size": [64, 48], "patch_size": [16, 16]}
        return kind(backbone_config=_vit("VitPoseBackbone", **sizes), num_labels=5)
    if "UperNet" in name:
        convolutions = _resnet("ResNet", out_features=[f"stage{stage}" for stage in range(1, 5)])
        more = {"hidden_size": 16, "auxiliary_channels": 16, "auxiliary_in_channels": 16}
        return kind(backbone_config=convolutions, **known | more)
    if "RTDetr" in name:
        more = {"encoder_in_channels": [8, 16, 16], "encoder_hidden_dim": 32, "decoder_in_channels": [32] * 3}
        backbone = _resnet("RTDetrResNet", out_indices=(2, 3, 4))
        return kind(backbone_config=backbone, **known | more | {"encoder_attention_heads": 4})
    if name == "DetrForSegmentation":  # it groups its channels, and a map for each head, by 8
        known |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
        backbone = _resnet("ResNet", out_features=[f"stage{stage}" for stage in range(1, 5)])
    else:
        backbone = _resnet("ResNet", out_features=["stage4"])
    return kind(use_timm_backbone=False, use_pretrained_backbone=False, backbone_config=backbone, **known)


def _resnet(name: str, **keys: Any) -> Any:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4, "layer_type": "basic"}
    return getattr(decoders.library(), f"{name}Config")(**sizes, **keys)


def _vit(name: str, **keys: Any) -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "mlp_ratio": 2, "image_size": 32}
    every = {"patch_size": 8, "out_indices": [1, 2, 3, 4]} if name == "Dinov2" else {"out_indices": [4]}
    return getattr(decoders.library(), f"{name}Config")(**sizes | every | keys)
