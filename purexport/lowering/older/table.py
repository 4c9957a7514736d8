"""The table of older forms: what writes an ONNX operator, where the opset has none or its version cannot say the call.

A form is a function of `op` and of the operator's arguments, by the names and in the places of the newest version:
inputs are values (a list where the operator takes any number), attributes are plain.  It computes exactly what the
operator computes, and every rule profits.  It returns None where it cannot say a call; then the call is refused with
the lowest opset that can.

The emitter asks this table only after the opset's own version has refused.  A form may use every operator, those of
this table too: each is written by still older ones where it must be.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from purexport.lowering.core.context import OlderForm
from purexport.lowering.older import elements, gather_scatter, order, running, windows

FORMS: Mapping[str, OlderForm] = MappingProxyType(
    {
        "Add": elements.of_small_integers("Add"),
        "BitwiseAnd": elements.bitwise("And"),
        "BitwiseOr": elements.bitwise("Or"),
        "BitwiseXor": elements.bitwise("Xor"),
        "Clip": elements.clip,
        "CumSum": running.cumulative_sum,
        "Div": elements.of_small_integers("Div"),
        "Equal": elements.equal,
        "GatherElements": gather_scatter.gather_elements,
        "GreaterOrEqual": elements.greater_or_equal,
        "LessOrEqual": elements.less_or_equal,
        "Max": elements.maximum,
        "MaxPool": windows.max_pool,
        "Min": elements.minimum,
        "Mod": elements.modulo,
        "Mul": elements.of_small_integers("Mul"),
        "NonMaxSuppression": order.non_max_suppression,
        "Pad": gather_scatter.pad,
        "Range": gather_scatter.count_up,
        "Round": elements.half_to_even,
        "ScatterElements": running.scatter_elements,
        "Slice": gather_scatter.slices,
        "Split": gather_scatter.split,
        "Sub": elements.of_small_integers("Sub"),
        "TopK": order.top_k,
        "Unique": order.unique,
    }
)
