"""The row that makes LinearAttention of ONNX Runtime from a recurrence of heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from purexport.aten import own_operators as own
from purexport.aten.graph import AtenValue
from purexport.fusion.expressions import shape_of
from purexport.fusion.rewriting import FusionSite


def linear_attention(site: FusionSite) -> Sequence[AtenValue] | None:
    """A recurrence with a matrix for each head.

    Selective state spaces of channels stay: the kernel (ONNX Runtime 1.31, CPU) takes thousands of heads one by one.
    """
    call = site.call
    if call.target != own.RECURRENCE:
        return None
    args = dict(call.args)
    if any(args[name].tensor.dtype != torch.float32 for name in ("query", "key", "value", "state", "decay")):
        site.refuse("the kernel for linear attention takes float32 only")
        return None
    if args.pop("rate") is not None or (shape_of(args["value"]) or ())[-1:] == (1,):
        return None
    return site.write(own.LINEAR_ATTENTION, [item.tensor for item in call.outputs], **args)
