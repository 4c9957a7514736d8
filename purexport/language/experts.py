"""transformers' mixtures of experts, recorded as one call of `purexport_llm::experts` each.

transformers asks a registry for the function that runs the experts that a router chose.  For the time of a capture each
function there first asks whether the layer is one that our call can say, and stays what it was otherwise.

What a layer does between its two products is found by trying: its gate is run on random numbers, and compared with the
gates that the call knows.
Invariant: afterwards the registry is what it was, also after an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from purexport.aten import own_operators as own
from purexport.language.library import library
from purexport.torch_patches.before_composites import below

Tensor = torch.Tensor
Gate = tuple[
    bool, float, float, float
]  # interleaved, alpha, beta, limit (0: none), as `purexport_llm::experts` has them

_ALPHAS, _BETAS = (1.0, 1.702), (0.0, 1.0)  # those that models have
_NEAR = 1e-5
_SCALES = torch.tensor([[1.0], [1.0], [10.0], [10.0], [100.0], [100.0], [10000.0], [10000.0]])  # beyond any limit


@contextmanager
def experts_recorded(wanted: bool) -> Iterator[None]:
    """Inside, layers of experts are recorded as one call each, if that is wanted."""
    if not wanted:
        yield
        return
    registry = getattr(library("integrations.moe"), "ALL_EXPERTS_FUNCTIONS", None)
    if registry is None:  # an older transformers, whose layers of experts are their own
        yield
        return
    mapping = registry._global_mapping
    before = dict(mapping)
    try:
        mapping.update({name: _recorded(function) for name, function in before.items()})
        yield
    finally:
        mapping.clear()
        mapping.update(before)


def _recorded(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def experts(layer: Any, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        gate = _gate_of(layer) if _is_plain(layer, x, index, weights) else None
        if gate is None:
            return function(layer, x, index, weights)
        biases = [getattr(layer, f"{name}_bias") if layer.has_bias else None for name in ("gate_up_proj", "down_proj")]
        call = own.operator("experts")
        found: Tensor = call(
            x, index, weights, layer.gate_up_proj, layer.down_proj, *biases, layer.is_transposed, *gate
        )
        return found

    return experts


def _is_plain(layer: Any, x: Tensor, index: Tensor, weights: Tensor) -> bool:
    """Whether the layer has two products with a gate between them, and nothing else, in one type."""
    if not layer.has_gate or layer.has_post_expert_norm or layer._is_expert_parallel:
        return False
    tensors = (x, weights, layer.gate_up_proj, layer.down_proj)
    return x.dim() == index.dim() == weights.dim() == 2 and len({item.dtype for item in tensors}) == 1


def _gate_of(layer: Any) -> Gate | None:
    """The gate that computes what the layer's own does, by its values; None where none is known."""
    with below(), torch.no_grad():
        both = torch.randn(8, 12, generator=torch.Generator().manual_seed(0)) * _SCALES
        try:
            wanted = layer._apply_gate(both.clone())
        except (RuntimeError, TypeError, ValueError):
            return None
        limits = {0.0, *(float(item) for item in vars(layer).values() if isinstance(item, (int, float)) and item > 0)}
        for interleaved in (False, True):
            for alpha in _ALPHAS:
                for beta in _BETAS:
                    for limit in sorted(filter(math.isfinite, limits)):
                        found = own.gated(both, interleaved, alpha, beta, limit)
                        if found.shape == wanted.shape and torch.allclose(found, wanted, rtol=_NEAR, atol=_NEAR):
                            return interleaved, alpha, beta, limit
    return None
