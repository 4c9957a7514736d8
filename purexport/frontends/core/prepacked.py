"""The packed weights of torch's quantized layers, which are objects and not tensors.

Each object is replaced by a plain list of its weights:

    linear               [weight, bias]
    convolution          [weight, bias, stride, padding, output_padding, dilation, groups, transposed]
    embedding            [weight]
    one recurrent layer  [input weight, hidden weight, input bias, hidden bias, reduce_range]

Weights are quantized tensors (in the float16 variants, plain ones).  They become constants of the neutral graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from purexport.errors import ExportError

_CONVOLUTIONS = ("Conv2dPackedParamsBase", "Conv3dPackedParamsBase")

Constant = Callable[[torch.Tensor, str], Any]


def unpacked(packed: Any, scope: str, constant: Constant) -> list[Any]:
    """The list that replaces an object; `constant(tensor, name)` makes a value of the graph.

    Raises ExportError for an object of an unknown kind.
    """
    kind = str(packed._type()).rpartition(".")[2]
    if kind == "LinearPackedParamsBase":
        return _weights(packed.unpack(), scope, constant)
    if kind in _CONVOLUTIONS:
        spatial = [list(getattr(packed, name)()) for name in ("stride", "padding", "output_padding", "dilation")]
        numbers = [packed.groups(), bool(packed.transpose())]
        return [*_weights((packed.weight(), packed.bias()), scope, constant), *spatial, *numbers]
    if kind == "EmbeddingPackedParamsBase":
        return [constant(torch.ops.quantized.embedding_bag_unpack(packed), _name(scope, "weight"))]
    if kind == "CellParamsBase":
        return _cell(packed, scope, constant)
    raise ExportError(
        f"{scope or 'the model'} holds an object of class {packed._type()}, and its weights are not known",
        code="packed-weights",
    )


def _weights(pair: Any, scope: str, constant: Constant) -> list[Any]:
    weight, bias = pair
    return [
        constant(weight, _name(scope, "weight")),
        None if bias is None else constant(bias.detach(), _name(scope, "bias")),
    ]


def _cell(packed: Any, scope: str, constant: Constant) -> list[Any]:
    (kind, tensors, _, flags, inner), _ = packed.__getstate__()
    if kind != "quantized_dynamic":
        raise ExportError(
            f"{scope or 'the model'} holds recurrent weights of kind {kind}; quantize them dynamically",
            code="packed-weights",
        )
    weights = [_weights(item.unpack(), scope, constant)[0] for item in inner]
    biases = [constant(tensor.detach(), _name(scope, "bias")) for tensor in tensors]
    return [*weights, *biases, bool(flags[0])]


def _name(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
