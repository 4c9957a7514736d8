"""Fake quantization whose observer is off, in a form without the state of the observer."""

from __future__ import annotations

import torch


def fake_quantized(
    value: torch.Tensor,
    observes: torch.Tensor,
    enabled: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    constant: float,
    quant_min: int,
    quant_max: int,
    axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> torch.Tensor:
    """`fused_moving_avg_obs_fake_quant` whose observer is off: plain fake quantization, nothing is written."""
    if not enabled.any():
        return value
    if per_row_fake_quant:
        return torch.fake_quantize_per_channel_affine(value, scale, zero_point, axis, quant_min, quant_max)
    return torch.fake_quantize_per_tensor_affine(value, scale, zero_point, quant_min, quant_max)
