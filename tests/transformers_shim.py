"""The operator of transformers that stands for torch's grouped product where torch.export refuses that.

The tests do not need `transformers` itself, so the operator is declared here with its schema, unless the package is
imported already.
"""

from __future__ import annotations

import torch


def _kernel(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    result, start = input.new_zeros(input.shape[0], weight.shape[2]), 0
    for group, end in enumerate(offs.tolist()):
        result[start:end] = input[start:end] @ weight[group]
        start = end
    return result


def _shape(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return input.new_empty(input.shape[0], weight.shape[2])


if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
    torch.library.custom_op(
        "transformers::grouped_mm_fallback",
        _kernel,
        mutates_args=(),
        schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor",
    ).register_fake(_shape)


def grouped_mm_fallback(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """Rows of `input`, the segments of which end at `offs`, times the matrix of their segment in `weight`."""
    result: torch.Tensor = torch.ops.transformers.grouped_mm_fallback(input, weight, offs)
    return result
