"""Composite operators: those that always compute, so that no result aliases an argument, and shapes of others.

For any other composite operator, torch is asked at each call whether the result aliases an argument.  A composite
operator with a row in another file declares its aliasing there.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.facts.fact import Aliases, Fact, alike

_COMPUTE = (
    "conv1d conv2d conv3d _convolution _convolution_mode conv_transpose1d conv_transpose2d conv_transpose3d linear "
    "matmul scaled_dot_product_attention softmax log_softmax adaptive_avg_pool1d relu6 selu upsample_nearest2d "
    "upsample_bilinear2d upsample_bicubic2d"
)


def _adaptive_average(self: torch.Tensor, output_size: Any) -> torch.Tensor:
    """torch's own function asks whether the sizes are 0, which is unknown where data decides them."""
    return self.new_empty((*self.shape[: self.dim() - len(output_size)], *output_size))


def _quantile(
    self: torch.Tensor, q: torch.Tensor | float, dim: int | None, keepdim: bool, **options: Any
) -> torch.Tensor:
    """Up to torch 2.12 torch's own function asks for the numbers in `q`."""
    over = list(range(self.dim())) if dim is None else [dim]
    rest = self.sum(over, keepdim) if self.dim() else self
    return rest.new_empty((*(q.shape if isinstance(q, torch.Tensor) else ()), *rest.shape))


FACTS = (
    *alike(_COMPUTE, Fact("aten::", aliases=Aliases.NEVER)),
    *alike("adaptive_avg_pool2d adaptive_avg_pool3d", Fact("aten::", aliases=Aliases.NEVER, shapes=_adaptive_average)),
    *alike("quantile nanquantile", Fact("aten::", shapes={"": _quantile, "scalar": _quantile})),
)
