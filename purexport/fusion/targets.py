"""Which rows a target has.  A target is named as in `purexport.language_model(target=...)`."""

from __future__ import annotations

from collections.abc import Sequence

from purexport.fusion.attention import attention_with_past, group_query_attention
from purexport.fusion.experts import mixture_of_experts
from purexport.fusion.gates import gated_unit
from purexport.fusion.norms import bare_rms_norm, rms_norm, skip_norm
from purexport.fusion.products import fused_attention, written_attention
from purexport.fusion.recurrences import linear_attention
from purexport.fusion.rewriting import Row
from purexport.fusion.rotary import partial_rotary, rotary, split_rotary
from purexport.fusion.views import tokens_first

TARGETS = ("onnx", "onnxruntime", "onnxruntime-genai")
_PATTERNS: tuple[Row, ...] = (
    rms_norm,
    bare_rms_norm,
    rotary,
    split_rotary,
    partial_rotary,
    fused_attention,
    written_attention,
)


def rows_of(target: str, positions: int) -> Sequence[Row]:
    """The rows of a target, in the order in which they are applied; tables of angles have so many `positions`."""
    if target == "onnx":
        return (*_PATTERNS, attention_with_past, gated_unit)
    return (
        *_PATTERNS,
        group_query_attention(positions, lengths=target == "onnxruntime-genai"),
        attention_with_past,
        skip_norm,
        mixture_of_experts,
        linear_attention,
        tokens_first,
    )
