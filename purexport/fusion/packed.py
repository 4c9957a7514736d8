"""Products of one input as one product, of their weights behind each other: queries, keys and values.

A runtime joins the weights once, when it loads the file. The products of a gated layer are left apart: joined, and cut
in two behind it, they take ONNX Runtime longer for one token (10 to 15 % of the layer at a width of 768) and as long
for a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from purexport.aten.graph import AtenValue, TensorType
from purexport.fusion.expressions import shape_of
from purexport.fusion.rewriting import FusionSite, tensor


def one_product(site: FusionSite, parts: Sequence[AtenValue], *, whole: bool) -> list[AtenValue]:
    """The parts, computed by one product, where they are products of one input; otherwise as they are.

    They come as a single value, behind each other, where `whole` is asked for.
    """
    known = site.known
    calls = [call for item in parts if (call := known.call(item)) is not None and call.base == "aten::linear"]
    if len(calls) != len(parts) or any(call.args["input"] is not calls[0].args["input"] for call in calls):
        return list(parts)
    weights, biases = ([call.args[name] for call in calls] for name in ("weight", "bias"))
    given = [item for item in biases if item is not None]
    kinds = {item.type.dtype for item in (*weights, *given) if isinstance(item.type, TensorType)}
    if not all(item in known.inputs for item in (*weights, *given)) or len(kinds) != 1:
        return list(parts)
    if len(given) not in (0, len(parts)):
        return list(parts)
    sizes = [(shape_of(item) or (None,))[0] for item in weights]
    width, total = (shape_of(weights[0]) or (None,))[-1], sum(size for size in sizes if isinstance(size, int))
    (weight,) = site.write("aten::cat", [tensor(weights[0], total, width)], tensors=weights, dim=0)
    bias = site.write("aten::cat", [tensor(given[0], total)], tensors=given, dim=0)[0] if given else None
    shape = (shape_of(parts[0]) or ())[:-1]
    (found,) = site.write(
        "aten::linear", [tensor(parts[0], *shape, total)], input=calls[0].args["input"], weight=weight, bias=bias
    )
    if whole:
        return [found]
    types = [tensor(found, *shape, size) for size in sizes]
    return site.write("aten::split_with_sizes", types, self=found, split_sizes=sizes, dim=-1)
