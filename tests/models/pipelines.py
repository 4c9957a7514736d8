"""Pipelines of diffusers with a few random weights: Stable Diffusion, SDXL and Stable Diffusion 3.

The tokenizer has the letters of the alphabet as its words, so nothing is fetched.
"""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import torch

_TEXT = {"hidden_size": 32, "intermediate_size": 37, "num_attention_heads": 4, "num_hidden_layers": 3}
_TEXT |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "vocab_size": 60, "max_position_embeddings": 77}
_BLOCKS = {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D")}
_BLOCKS |= {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")}


def tokenizer(folder: Path) -> Any:
    """A CLIP tokenizer whose words are letters; its files are written to a folder."""
    from transformers import CLIPTokenizer

    letters = string.ascii_lowercase
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{one}</w>" for one in letters)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)


def _vae(latents: int = 4) -> Any:
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    return AutoencoderKL(
        block_out_channels=[8, 16],
        down_block_types=["DownEncoderBlock2D", "DownEncoderBlock2D"],
        up_block_types=["UpDecoderBlock2D", "UpDecoderBlock2D"],
        latent_channels=latents,
        norm_num_groups=4,
    )


def stable_diffusion(folder: Path) -> Any:
    """Stable Diffusion 1."""
    from diffusers import DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=32,
        attention_head_dim=4,
        **_BLOCKS,
    )
    return StableDiffusionPipeline(
        vae=_vae(),
        text_encoder=CLIPTextModel(CLIPTextConfig(**_TEXT)).eval(),
        tokenizer=tokenizer(folder),
        unet=unet,
        scheduler=DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def stable_diffusion_xl(folder: Path) -> Any:
    """SDXL: two text encoders, and conditions on sizes."""
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=64,
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 2),
        projection_class_embeddings_input_dim=6 * 8 + 32,
        **_BLOCKS,
    )
    config = CLIPTextConfig(**_TEXT, projection_dim=32)
    words = tokenizer(folder)
    return StableDiffusionXLPipeline(
        vae=_vae(),
        text_encoder=CLIPTextModel(config).eval(),
        text_encoder_2=CLIPTextModelWithProjection(config).eval(),
        tokenizer=words,
        tokenizer_2=words,
        unet=unet,
        scheduler=EulerDiscreteScheduler(),
    )


def stable_diffusion_3(folder: Path) -> Any:
    """Stable Diffusion 3 without its T5: a transformer over patches."""
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    torch.manual_seed(0)
    transformer = SD3Transformer2DModel(
        sample_size=32,
        patch_size=1,
        in_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=64,
        caption_projection_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
    )
    config = CLIPTextConfig(**_TEXT, projection_dim=32)
    words = tokenizer(folder)
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=_vae(),
        text_encoder=CLIPTextModelWithProjection(config).eval(),
        text_encoder_2=CLIPTextModelWithProjection(config).eval(),
        text_encoder_3=None,
        tokenizer=words,
        tokenizer_2=words,
        tokenizer_3=None,
    )


PIPELINES = {"stable diffusion": stable_diffusion, "sdxl": stable_diffusion_xl, "sd3": stable_diffusion_3}
