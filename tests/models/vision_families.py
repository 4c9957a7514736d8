"""Vision models with dynamic batch, height and width: tiny forms of many families, and the sizes that they must take.

Each family is a row: how it is made, the example's size, and other sizes that the same file must take.  Models that
need whole windows or whole halvings get sizes that fit them; where a model takes any size, odd ones are among them.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.models.unet import UNet
from tests.models.zoo import draw_weights, measured
from tests.torchvision_shim import torchvision

Size = tuple[int, int, int]  # batch, height, width

ANY: tuple[Size, ...] = ((1, 72, 99), (3, 97, 64), (2, 50, 83))
FITS_32: tuple[Size, ...] = ((1, 64, 128), (3, 128, 96), (2, 32, 160))
FITS_16: tuple[Size, ...] = ((1, 80, 112), (3, 48, 64), (2, 128, 32))
FITS_8: tuple[Size, ...] = ((1, 72, 104), (3, 96, 64), (2, 40, 88))
_LARGER: tuple[Size, ...] = ((1, 96, 150), (3, 131, 107), (2, 120, 99))
_FLOW: tuple[Size, ...] = ((1, 136, 128), (2, 128, 144), (1, 144, 136))


@dataclass(frozen=True, eq=False)
class Family:
    """One model.

    name      of the row
    make      the module
    example   the size of the example: batch, height, width
    others    three other sizes
    channels  of an image
    images    how many images of one size the model takes
    more      further arguments, which are no tensors
    drawn     False where the weights stay as the model has them
    """

    name: str
    make: Callable[[], nn.Module]
    example: Size = (2, 64, 96)
    others: Sequence[Size] = ANY
    channels: int = 3
    images: int = 1
    more: tuple[Any, ...] = ()
    drawn: bool = True

    def model(self) -> nn.Module:
        """The module in eval mode, with random weights under which every layer counts."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(zlib.crc32(self.name.encode()))
            model = self.make().eval()
            if self.drawn:
                draw_weights(model)
            measured(model, *self.inputs(self.example))
        return model

    def inputs(self, size: Size, seed: int = 0) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(seed)
        batch, height, width = size
        images = (torch.randn(batch, self.channels, height, width, generator=generator) for _ in range(self.images))
        return (*images, *self.more)

    def tensors(self, size: Size, seed: int = 0) -> list[Tensor]:
        return [item for item in self.inputs(size, seed) if isinstance(item, Tensor)]

    def input_names(self) -> list[str]:
        return [f"image_{position}" for position in range(self.images)]

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        return {name: {0: "batch", 2: "height", 3: "width"} for name in self.input_names()}


def share_off(found: Any, wanted: Any) -> float:
    """How far the numbers of one array are from those of another, as a share of the largest."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def _torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model: nn.Module = torchvision().models.get_model(name, **{"weights": None, **options})
        return model

    return make


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torchvision()  # timm imports it
        model: nn.Module = importlib.import_module("timm").create_model(name, num_classes=10, **options)
        return model

    return make


def _densenet() -> nn.Module:
    kind = torchvision().models.densenet.DenseNet
    model: nn.Module = kind(growth_rate=8, block_config=(2, 2, 2, 2), num_init_features=16, num_classes=10)
    return model


def _vgg() -> nn.Module:
    """A narrow VGG; its adaptive pooling to 7 x 7 gets other sizes than multiples of 7."""
    vgg = torchvision().models.vgg
    model: nn.Module = vgg.VGG(vgg.make_layers([16, "M", 32, "M", 32, "M"]), num_classes=10, init_weights=False)
    model.classifier = nn.Sequential(nn.Linear(32 * 7 * 7, 10))
    return model


def _swin(version: str, window: int) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        module = torchvision().models.swin_transformer
        model: nn.Module = module.SwinTransformer(
            patch_size=[4, 4],
            embed_dim=16,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=[window, window],
            num_classes=10,
            block=getattr(module, f"SwinTransformerBlock{version}"),
            downsample_layer=getattr(module, f"PatchMerging{version}"),
        )
        return model

    return make


_SWIN = {
    "embed_dim": 16,
    "depths": (2, 2),
    "num_heads": (2, 4),
    "window_size": 4,
    "img_size": 64,
    "strict_img_size": False,
}
_VIT = {"img_size": 64, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2, "dynamic_img_size": True}
_MAXVIT = {"img_size": 64, "depths": (1, 1), "embed_dim": (32, 64), "stem_width": 16}


def _diffusers(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torchvision()
        model: nn.Module = getattr(importlib.import_module("diffusers"), name)(**options)
        return model

    return make


class _First(nn.Module):
    """The tensor of a model that wraps it in an object."""

    def __init__(self, model: nn.Module, method: str = "forward", field: str = "sample", *more: Any) -> None:
        super().__init__()
        self.model, self.method, self.field, self.more = model, method, field, more

    def forward(self, image: Tensor) -> Tensor:
        found = getattr(self.model, self.method)(image, *self.more)
        result: Tensor = getattr(found, self.field)
        return result


_UNET = {
    "sample_size": 16,
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": 8,
}
_VAE = {
    "block_out_channels": (8, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "latent_channels": 4,
}


def _unet2d() -> nn.Module:
    return _First(_diffusers("UNet2DModel", **_UNET)(), "forward", "sample", 7)


def _vae_decoder() -> nn.Module:
    return _First(_diffusers("AutoencoderKL", **_VAE)(), "decode")


FAMILIES = (
    Family("resnet", _torchvision("resnet18")),
    Family("efficientnet", _torchvision("efficientnet_b0"), drawn=False),
    Family("mobilenet_v3", _torchvision("mobilenet_v3_small")),
    Family("mobilenet_v4", _timm("mobilenetv4_conv_small")),
    Family("convnext", _timm("convnext_atto", depths=(1, 1, 1, 1))),
    Family("densenet", _densenet),
    Family("regnet", _torchvision("regnet_y_400mf")),
    Family("shufflenet", _torchvision("shufflenet_v2_x0_5")),
    Family("inception", _torchvision("inception_v3", init_weights=False), (2, 107, 131), _LARGER),
    Family("googlenet", _torchvision("googlenet", init_weights=False)),
    Family("squeezenet", _torchvision("squeezenet1_1")),
    Family("hrnet", _timm("hrnet_w18_small"), others=FITS_32),
    Family("vgg", _vgg, (2, 56, 112), ((1, 112, 56), (3, 168, 112), (2, 56, 56))),
    Family("vgg-any", _vgg, others=((1, 72, 99), (3, 97, 64), (2, 120, 83))),
    Family("deeplab_v3", _torchvision("deeplabv3_mobilenet_v3_large", weights_backbone=None)),
    Family("fcn", _torchvision("fcn_resnet50", weights_backbone=None)),
    Family("lraspp", _torchvision("lraspp_mobilenet_v3_large", weights_backbone=None)),
    Family("swin-torchvision", _swin("", 4)),
    Family("swin_v2-torchvision", _swin("V2", 4)),
    Family("swin-timm", _timm("swin_tiny_patch4_window7_224", **_SWIN), others=FITS_8),
    Family("swin_v2-timm", _timm("swinv2_tiny_window8_256", **_SWIN), others=FITS_8),
    Family("vit", _timm("vit_tiny_patch16_224", **_VIT), others=FITS_16),
    Family("vit-pad", _timm("vit_tiny_patch16_224", dynamic_img_pad=True, **_VIT)),
    Family("eva", _timm("eva02_tiny_patch14_224", **_VIT), others=FITS_16),
    Family("dino_v3", _timm("vit_base_patch16_dinov3", **_VIT), others=FITS_16),
    Family("maxvit", _timm("maxvit_rmlp_pico_rw_256", **_MAXVIT), others=FITS_32),
    Family("davit", _timm("davit_tiny", depths=(1, 1), embed_dims=(16, 32), num_heads=(2, 4))),
    Family("xcit", _timm("xcit_nano_12_p16_224", depth=2, embed_dim=32, num_heads=2)),
    Family("mvit_v2", _timm("mvitv2_tiny")),
    Family("tiny_vit", _timm("tiny_vit_5m_224")),
    Family("pvt", _timm("pvt_v2_b0")),
    Family("fastvit", _timm("fastvit_t8"), others=FITS_32),
    Family("mobilevit", _timm("mobilevit_xxs"), others=FITS_32),
    Family("edgenext", _timm("edgenext_xx_small")),
    Family("unet", lambda: UNet("interpolate")),
    Family("unet2d", _unet2d, (2, 16, 24), ((1, 32, 40), (3, 56, 24), (2, 16, 64))),
    Family("vae-decoder", _vae_decoder, (2, 8, 12), ((1, 7, 10), (3, 12, 5), (2, 16, 9)), channels=4),
    Family("raft", _torchvision("raft_small"), (1, 128, 136), _FLOW, images=2, more=(1,)),
)
