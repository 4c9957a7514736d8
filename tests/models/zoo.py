"""The list of networks, with random weights under which the result depends on every layer.

Freshly initialised deep networks fade out: the last layers see almost a constant, and comparing the outputs proves
nothing.  So weights are drawn to keep the variance, and batch-normalization statistics are those of real activations.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from tests.models.dcgan import Generator
from tests.models.super_resolution import SubPixelNet
from tests.torchvision_shim import torchvision


@dataclass(frozen=True)
class Network:
    """A network and the shape of one example: `small` keeps the default tests fast, `full` is its usual size."""

    name: str
    factory: Callable[..., nn.Module] | str
    small: tuple[int, ...]
    full: tuple[int, ...]
    small_options: tuple[tuple[str, Any], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def make(self, full: bool = False) -> nn.Module:
        """The network in eval mode.  Do not change it: it is shared by the tests of one process."""
        return _make(self, full)

    def example(self, batch: int, full: bool = False) -> Tensor:
        generator = torch.Generator().manual_seed(batch)
        return torch.randn(batch, *(self.full if full else self.small), generator=generator)


def _image(name: str, small: int, full: int = 224, **options: Any) -> Network:
    return Network(name, name, (3, small, small), (3, full, full), options=tuple(options.items()))


# AlexNet and VGG stay at 224: below, their adaptive pooling would enlarge the image, which no ONNX operator does.
NETWORKS = (
    _image("alexnet", 224),
    _image("vgg11_bn", 224),
    _image("resnet50", 64),
    _image("squeezenet1_1", 64),
    _image("densenet121", 64),
    _image("inception_v3", 107, 299, init_weights=False),
    _image("googlenet", 64, init_weights=False),
    _image("mobilenet_v2", 64),
    _image("mobilenet_v3_large", 64),
    _image("efficientnet_b0", 64),
    _image("convnext_tiny", 64),
    Network("vit_b_32", "vit_b_32", (3, 64, 64), (3, 224, 224), small_options=(("image_size", 64),)),
    _image("swin_t", 64),
    Network("dcgan", Generator, (100, 1, 1), (100, 1, 1)),
    Network("super_resolution", SubPixelNet, (1, 24, 20), (1, 224, 224)),
)


@functools.lru_cache(maxsize=2)
def _make(network: Network, full: bool) -> nn.Module:
    options = dict(network.options) | ({} if full else dict(network.small_options))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(zlib.crc32(network.name.encode()))
        model = _factory(network)(**options).eval()
        draw_weights(model)
        images = 4 if network.example(1, full).shape[-1] >= 224 else 16
        _calibrate(model, network.example(images, full))
    return model


def _factory(network: Network) -> Callable[..., nn.Module]:
    if isinstance(network.factory, str):
        return functools.partial(getattr(torchvision().models, network.factory), weights=None)
    return network.factory


def draw_weights(model: nn.Module) -> None:
    """Weights that keep the variance from layer to layer."""
    for module in model.modules():
        if isinstance(module, (_ConvNd, nn.Linear)):
            mode = "fan_out" if isinstance(module, _ConvTransposeNd) else "fan_in"
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
        elif isinstance(module, (_BatchNorm, nn.LayerNorm)):
            nn.init.uniform_(module.weight, 0.5, 1.5)
        if isinstance(getattr(module, "bias", None), nn.Parameter):
            nn.init.normal_(module.bias, std=0.1)
        if isinstance(getattr(module, "layer_scale", None), nn.Parameter):  # ConvNeXt starts it at 1e-6
            nn.init.uniform_(module.layer_scale, 0.3, 0.7)


def _calibrate(model: nn.Module, example: Tensor) -> None:
    """Give batch normalization the scale of one forward pass, and bring the result to the order of 0.05."""
    scale = 0.05 / measured(model, example).std()
    last = [layer for layer in model.modules() if isinstance(layer, (_ConvNd, nn.Linear))][-1]
    for parameter in last.parameters():
        parameter.mul_(scale)


def measured(model: nn.Module, *example: Any) -> Any:
    """Give batch normalization the scale of one forward pass, and return its result.

    The means stay near zero: networks that subtract the true ones magnify rounding errors from layer to layer.
    """

    def measure(layer: _BatchNorm, inputs: tuple[Tensor]) -> None:
        power = inputs[0].square().mean(dim=(0, *range(2, inputs[0].dim())))
        layer.running_var.copy_(power)
        layer.running_mean.copy_(0.1 * power.sqrt() * torch.randn_like(power))

    hooks = [layer.register_forward_pre_hook(measure) for layer in model.modules() if isinstance(layer, _BatchNorm)]
    result = model(*example)
    for hook in hooks:
        hook.remove()
    return result
