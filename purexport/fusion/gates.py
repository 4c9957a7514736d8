"""A row for the gated unit of language models, silu(gate) * up, which is an operator of the standard since opset 28."""

from __future__ import annotations

from collections.abc import Sequence

from purexport.aten import own_operators as own
from purexport.aten.graph import AtenValue
from purexport.fusion.expressions import shape_of
from purexport.fusion.rewriting import FusionSite


def gated_unit(site: FusionSite) -> Sequence[AtenValue] | None:
    """silu(gate) * up, both of one shape and type."""
    call, known = site.call, site.known
    if call.base != "aten::mul" or not all(isinstance(call.args[name], AtenValue) for name in ("self", "other")):
        return None
    one, other = call.args["self"], call.args["other"]
    for active, up in ((one, other), (other, one)):
        activation = known.call(active)
        if activation is None or activation.base != "aten::silu":
            continue
        gate = activation.args["self"]
        if shape_of(gate) is None or shape_of(gate) != shape_of(up) or gate.tensor.dtype != up.tensor.dtype:
            continue
        return site.write(own.SWIGLU, [call.outputs[0].tensor], gate=gate, up=up)
    return None
