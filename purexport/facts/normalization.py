"""Normalization: results never alias an argument, and running statistics are written although no schema says so."""

from __future__ import annotations

from typing import Any

import torch

from purexport.facts.fact import Aliases, Fact, Statistics, alike


def _like_input(input: torch.Tensor, **others: Any) -> torch.Tensor:
    """torch's own functions choose a kernel first, and for that they ask whether there are any elements."""
    return torch.empty(input.shape, dtype=input.dtype)


FACTS = (
    Fact("aten::batch_norm", aliases=Aliases.NEVER, statistics=Statistics(), shapes=_like_input),
    *alike("native_batch_norm _batch_norm_impl_index", Fact("aten::", statistics=Statistics())),
    Fact("aten::cudnn_batch_norm", statistics=Statistics(momentum="exponential_average_factor")),
    Fact(
        "aten::instance_norm",
        aliases=Aliases.NEVER,
        statistics=Statistics(switch="use_input_stats", by_instance=True),
        shapes=_like_input,
    ),
    Fact("aten::layer_norm", aliases=Aliases.NEVER),
    Fact("aten::group_norm", aliases=Aliases.NEVER, shapes=_like_input),
)
