"""Functions for models, named as in `torch.onnx.operators`: they treat sizes as tensors, which a graph can compute.

Models can use them on every route.  Scripts compile them.  The fake tensors of torch.export have no content, so there
the functions use the sizes themselves.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.torch_patches.torch_jit import is_scripting


def shape_as_tensor(x: torch.Tensor) -> torch.Tensor:
    """The shape of `x` as an int64 tensor of shape [rank]; a dynamic axis has its size at run time."""
    if is_scripting():  # noqa: SIM108  a script compiles one branch only
        shape = torch._shape_as_tensor(x)
    else:
        shape = _shape(x)
    return shape


def reshape_from_tensor_shape(x: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    """`x` reshaped to `shape`, an int64 tensor of shape [rank] that may be data-dependent."""
    if is_scripting():  # noqa: SIM108
        reshaped = torch._reshape_from_tensor(x, shape)
    else:
        reshaped = _reshaped(x, shape)
    return reshaped


def _shape(x: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_exporting() and x.dim():
        return torch.stack([torch.scalar_tensor(size, dtype=torch.int64) for size in x.shape])
    return torch._shape_as_tensor(x)


def _reshaped(x: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_exporting():
        sizes: list[Any] = [size.item() for size in shape.unbind()]
        return x.reshape(sizes)
    return torch._reshape_from_tensor(x, shape)
