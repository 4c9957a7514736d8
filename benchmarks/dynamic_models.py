"""The models of `dynamic.py`: what people export with dynamic axes, with random weights, their arguments, their axes.

Networks of timm, transformers and diffusers are the real architectures. BERT, GPT-2 and those of timm have their real
size; the Llama, the UNet and the VAE are narrow, so that the graph is measured and not the weights. The detector is
written here after the YOLO family. Example sizes are at least 2, because torch.export fixes an axis of size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tests.torchvision_shim import torchvision

torchvision()  # which timm, transformers and diffusers import

Axes = dict[str, dict[int, str]]


@dataclass
class Case:
    """A model with its example, and arguments of other sizes that its file must take.

    `axes`: the dynamic axes by name of input and output. `args` and `others` may be nested; `inputs` names their
    tensors in order. `marks` is for whoever measures.
    """

    model: nn.Module
    args: tuple[Any, ...]
    others: list[tuple[Any, ...]]
    inputs: list[str]
    outputs: list[str]
    axes: Axes
    marks: list[tuple[str, float]] = field(default_factory=list)

    def shapes(self) -> tuple[Any, ...]:
        """The dynamic axes of the inputs as torch.export takes them."""
        found = [dict.fromkeys(self.axes[name], torch.export.Dim.DYNAMIC) for name in self.inputs]
        shapes: tuple[Any, ...] = pytree.tree_unflatten(found, pytree.tree_structure(self.args))
        return (shapes,) if isinstance(self.model, Call) else shapes


class Call(nn.Module):
    """A model that is called in one way, with options and results as the function says."""

    def __init__(self, model: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, *args: Any) -> Any:
        return self.call(self.model, *args)


# Images ---------------------------------------------------------------------------------------------------------------

BATCH = {0: "batch"}
IMAGE = {0: "batch", 2: "height", 3: "width"}


def _vision(model: nn.Module, axes: dict[int, str], example: Sequence[int], *others: Sequence[int]) -> Case:
    images = [torch.randn(tuple(sizes)) for sizes in (example, *others)]
    return Case(
        model.eval(),
        (images[0],),
        [(image,) for image in images[1:]],
        ["image"],
        ["scores"],
        {"image": axes, "scores": BATCH},
    )


def _timm(name: str, **options: Any) -> nn.Module:
    import timm

    model: nn.Module = timm.create_model(name, pretrained=False, **options)
    return model


def _convnext() -> Case:
    return _vision(_timm("convnext_atto"), IMAGE, (2, 3, 224, 224), (3, 3, 256, 192), (1, 3, 64, 96))


def _vit() -> Case:
    model = _timm("vit_tiny_patch16_224", dynamic_img_size=True)
    return _vision(model, IMAGE, (2, 3, 192, 160), (3, 3, 256, 128), (1, 3, 224, 224))


def _swin() -> Case:
    model = _timm("swin_tiny_patch4_window7_224", strict_img_size=False)
    return _vision(model, IMAGE, (2, 3, 224, 192), (3, 3, 256, 320), (1, 3, 224, 224))


def _of_batch(name: str) -> Callable[[], Case]:
    return lambda: _vision(_timm(name), BATCH, (2, 3, 224, 224), (3, 3, 224, 224), (1, 3, 224, 224))


# Language -------------------------------------------------------------------------------------------------------------

TEXT = {0: "batch", 1: "sequence"}


def _tokens(*sizes: int) -> tuple[Tensor, Tensor]:
    """Ids, and a mask whose first row has two places of padding."""
    mask = torch.ones(sizes, dtype=torch.int64)
    mask[0, -2:] = 0
    return torch.randint(0, 1000, sizes), mask


def _bert() -> Case:
    from transformers import BertConfig, BertModel

    def call(model: nn.Module, ids: Tensor, mask: Tensor) -> Any:
        return model(ids, attention_mask=mask, return_dict=False)

    axes = {"input_ids": TEXT, "attention_mask": TEXT, "hidden": TEXT, "pooled": BATCH}
    model = Call(BertModel(BertConfig()).eval(), call)
    return Case(model, _tokens(2, 16), [_tokens(3, 40), _tokens(1, 5)], list(axes)[:2], list(axes)[2:], axes)


def _gpt2() -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    def call(model: nn.Module, ids: Tensor, mask: Tensor) -> Any:
        return model(ids, attention_mask=mask, use_cache=False, return_dict=False)[0]

    axes = {"input_ids": TEXT, "attention_mask": TEXT, "logits": TEXT}
    model = Call(GPT2LMHeadModel(GPT2Config()).eval(), call)
    return Case(model, _tokens(2, 16), [_tokens(3, 40), _tokens(1, 5)], list(axes)[:2], list(axes)[2:], axes)


def _llama() -> Case:
    """A decoder whose keys and values are inputs and outputs; the other sizes begin with an empty past."""
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    layers, groups, width = 8, 2, 32
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=8 * width,
        intermediate_size=512,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=groups,
    )

    def call(model: nn.Module, ids: Tensor, mask: Tensor, past: Sequence[Tensor]) -> Any:
        cache = DynamicCache()
        for layer in range(layers):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        logits = model(ids, attention_mask=mask, past_key_values=cache, use_cache=True).logits
        return (logits, *(tensor for layer in cache.layers for tensor in (layer.keys, layer.values)))

    def arguments(batch: int, length: int, before: int) -> tuple[Any, ...]:
        past = tuple(torch.randn(batch, groups, before, width) for _ in range(2 * layers))
        return torch.randint(0, 1000, (batch, length)), torch.ones(batch, before + length, dtype=torch.int64), past

    held = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
    axes: Axes = {"input_ids": TEXT, "attention_mask": {0: "batch", 1: "total"}, "logits": TEXT}
    axes |= {f"past.{name}": {0: "batch", 2: "past"} for name in held}
    axes |= {f"present.{name}": {0: "batch", 2: "total"} for name in held}
    return Case(
        Call(LlamaForCausalLM(config).eval(), call),
        arguments(2, 4, 6),
        [arguments(1, 7, 0), arguments(3, 1, 9)],
        ["input_ids", "attention_mask", *(f"past.{name}" for name in held)],
        ["logits", *(f"present.{name}" for name in held)],
        axes,
    )


# Diffusion ------------------------------------------------------------------------------------------------------------


def _unet() -> Case:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64, 64, 64),
        layers_per_block=2,
        norm_num_groups=8,
        attention_head_dim=8,
        cross_attention_dim=32,
    )

    def call(model: nn.Module, sample: Tensor, time: Tensor, text: Tensor) -> Any:
        return model(sample, time, text, return_dict=False)[0]

    def arguments(batch: int, height: int, width: int) -> tuple[Tensor, ...]:
        return torch.randn(batch, 4, height, width), torch.tensor(7), torch.randn(batch, 9, 32)

    axes: Axes = {"sample": IMAGE, "time": {}, "text": BATCH, "noise": IMAGE}
    others = [arguments(3, 32, 24), arguments(1, 16, 40)]
    return Case(Call(model.eval(), call), arguments(2, 16, 24), others, list(axes)[:3], ["noise"], axes)


def _vae() -> Case:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(32, 64, 64, 64),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=2,
        latent_channels=4,
        norm_num_groups=8,
    )
    wrapped = Call(model.eval(), lambda model, latent: model.decode(latent, return_dict=False)[0])
    latents = [torch.randn(sizes) for sizes in ((2, 4, 8, 12), (3, 4, 10, 7), (1, 4, 16, 16))]
    axes: Axes = {"latent": IMAGE, "image": IMAGE}
    return Case(wrapped, (latents[0],), [(latent,) for latent in latents[1:]], ["latent"], ["image"], axes)


# Detection ------------------------------------------------------------------------------------------------------------


class Convolution(nn.Module):
    """Convolution, normalization, SiLU."""

    def __init__(self, before: int, after: int, size: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
        self.norm = nn.BatchNorm2d(after)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(x)))


class Bottleneck(nn.Module):
    """Two convolutions, and the input added where a backbone has it."""

    def __init__(self, width: int, add: bool) -> None:
        super().__init__()
        self.first, self.second = Convolution(width, width, 3), Convolution(width, width, 3)
        self.add = add

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x))
        return x + y if self.add else y


class Split(nn.Module):
    """A cross-stage block: one half goes through bottlenecks, and all that they give is joined with it."""

    def __init__(self, before: int, after: int, depth: int, add: bool) -> None:
        super().__init__()
        width = after // 2
        self.first = Convolution(before, 2 * width)
        self.last = Convolution((2 + depth) * width, after)
        self.blocks = nn.ModuleList(Bottleneck(width, add) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Pyramid(nn.Module):
    """Spatial pooling, three times over, all joined."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = Convolution(width, width // 2), Convolution(2 * width, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Head(nn.Module):
    """Boxes and scores of each place of three levels; a box is four distances, each a distribution over bins."""

    def __init__(self, widths: Sequence[int], classes: int, bins: int = 16) -> None:
        super().__init__()
        self.classes, self.bins = classes, bins
        self.boxes = nn.ModuleList(self._branch(width, 4 * bins) for width in widths)
        self.scores = nn.ModuleList(self._branch(width, classes) for width in widths)
        self.distances: Tensor
        self.register_buffer("distances", torch.arange(bins, dtype=torch.float32).view(1, bins, 1, 1))

    @staticmethod
    def _branch(width: int, after: int) -> nn.Module:
        return nn.Sequential(Convolution(width, 64, 3), Convolution(64, 64, 3), nn.Conv2d(64, after, 1))

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        found, centers, strides = [], [], []
        for level, box, score, stride in zip(levels, self.boxes, self.scores, (8.0, 16.0, 32.0), strict=True):
            batch, _, height, width = level.shape
            found.append(torch.cat([box(level), score(level)], 1).view(batch, 4 * self.bins + self.classes, -1))
            across = torch.arange(width, device=level.device, dtype=level.dtype) + 0.5
            down = torch.arange(height, device=level.device, dtype=level.dtype) + 0.5
            y, x = torch.meshgrid(down, across, indexing="ij")
            centers.append(torch.stack((x, y), -1).view(-1, 2))
            strides.append(torch.full((height * width, 1), stride, device=level.device, dtype=level.dtype))
        center, scale = torch.cat(centers).transpose(0, 1), torch.cat(strides).transpose(0, 1)
        boxes, scores = torch.cat(found, 2).split((4 * self.bins, self.classes), 1)
        batch, _, places = boxes.shape
        shares = boxes.view(batch, 4, self.bins, places).transpose(2, 1).softmax(1)
        near, far = (shares * self.distances).sum(1).chunk(2, 1)
        low, high = center - near, center + far
        return torch.cat((torch.cat(((low + high) / 2, high - low), 1) * scale, scores.sigmoid()), 1)


class Detector(nn.Module):
    """A backbone of five strides, a neck that goes up and down again, a head on three levels."""

    def __init__(self, width: int = 16, classes: int = 80) -> None:
        super().__init__()
        a, b, c, d, e = (width << level for level in range(5))
        self.stem = nn.Sequential(Convolution(3, a, 3, 2), Convolution(a, b, 3, 2), Split(b, b, 1, True))
        self.third = nn.Sequential(Convolution(b, c, 3, 2), Split(c, c, 2, True))
        self.fourth = nn.Sequential(Convolution(c, d, 3, 2), Split(d, d, 2, True))
        self.fifth = nn.Sequential(Convolution(d, e, 3, 2), Split(e, e, 1, True), Pyramid(e))
        self.up = nn.Upsample(scale_factor=2.0, mode="nearest")
        self.middle, self.fine = Split(d + e, d, 1, False), Split(c + d, c, 1, False)
        self.down = nn.ModuleList([Convolution(c, c, 3, 2), Convolution(d, d, 3, 2)])
        self.again = nn.ModuleList([Split(c + d, d, 1, False), Split(d + e, e, 1, False)])
        self.head = Head((c, d, e), classes)

    def forward(self, image: Tensor) -> Tensor:
        third = self.third(self.stem(image))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        middle = self.middle(torch.cat([self.up(fifth), fourth], 1))
        fine = self.fine(torch.cat([self.up(middle), third], 1))
        medium = self.again[0](torch.cat([self.down[0](fine), middle], 1))
        coarse = self.again[1](torch.cat([self.down[1](medium), fifth], 1))
        return self.head([fine, medium, coarse])


def _detector() -> Case:
    case = _vision(Detector(), IMAGE, (2, 3, 128, 192), (3, 3, 224, 160), (1, 3, 320, 320))
    case.axes["scores"] = {0: "batch", 2: "places"}
    return case


MODELS: dict[str, Callable[[], Case]] = {
    "bert-base": _bert,
    "gpt2": _gpt2,
    "llama-cache": _llama,
    "convnext-atto": _convnext,
    "convnext-atto, batch": _of_batch("convnext_atto"),
    "vit-tiny": _vit,
    "vit-tiny, batch": _of_batch("vit_tiny_patch16_224"),
    "swin-tiny": _swin,
    "swin-tiny, batch": _of_batch("swin_tiny_patch4_window7_224"),
    "unet": _unet,
    "vae-decoder": _vae,
    "yolo-like": _detector,
}
"""By name: language with dynamic batch and length, images with dynamic batch, height and width, or batch alone."""

__all__ = ["MODELS", "Case"]
