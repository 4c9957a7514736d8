"""Sizes that the content of a tensor decides (how many elements a filter kept), of which Python asks in a trace.

For the tracer such a size is one like any other.  At other sizes of the inputs it may well be the same, and with other
contents it is not, so no probe of other sizes shows what follows from it.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.frontends.trace.nodes import inputs_of
from purexport.torch_patches.torch_jit import tracing_state, value_of
from purexport.torch_patches.tracer import untraced

_DECIDES = frozenset(["aten::nonzero", "aten::nonzero_numpy", "aten::argwhere", "aten::masked_select"])
_DECIDES |= {"aten::_unique2", "aten::unique_consecutive", "aten::unique_dim", "torchvision::nms"}
_MAY_DECIDE = (*_DECIDES, "aten::where", "aten::index")
_SIZES = frozenset(["aten::size", "aten::numel"])
# the shape is that of the first input, whatever the others hold
_LIKE_FIRST = frozenset(
    f"aten::{name}{suffix}"
    for name in ("index_add", "index_put", "index_copy", "index_fill", "scatter", "scatter_add", "masked_fill", "copy")
    for suffix in ("", "_")
) | {"aten::linear", "aten::layer_norm", "aten::masked_scatter", "aten::masked_scatter_", "aten::type_as"}
_COMPARED = {"aten::eq": False, "aten::ne": True, "aten::gt": True, "aten::le": False}  # what holds of a size and 0


# questions that torch's own search of the graph answers; each takes as long as the graph is
_SEARCHES = 64


class ChosenSizes:
    """Which numbers of one trace follow from sizes that the data decides."""

    def __init__(self) -> None:
        self.searches = 0
        self.plain: set[int] = set()  # values whose shapes the data does not decide, so that each is looked at once

    def is_chosen(self, tensor: torch.Tensor) -> bool:
        """Whether a number that follows from sizes follows from one that data decides: of a first axis, or of all."""
        if not self._may_be():
            return False
        value = value_of(tensor)
        values, seen = [value], set()
        while values:
            value = values.pop()
            if value.unique() in seen:
                continue
            seen.add(value.unique())
            node = value.node()
            if node.kind() not in _SIZES:
                values += inputs_of(node)
            elif (node.inputsSize() < 2 or not _number(node.inputsAt(1))) and self._has_chosen_shape(node.inputsAt(0)):
                return True
        return False

    def _may_be(self) -> bool:
        """False where the trace has no operator that may decide a size.

        Most models have none, and torch looks through its graph much faster than we do, but from the start each time.
        """
        state = tracing_state()
        graph: Any = state.graph() if state is not None else None
        if graph is None or self.searches == _SEARCHES:
            return graph is not None
        self.searches += 1
        return any(graph.findNode(kind) for kind in _MAY_DECIDE)

    def _has_chosen_shape(self, value: Any) -> bool:
        values, seen = [value], set()
        while values:
            value = values.pop()
            if value.unique() in seen or value.unique() in self.plain:
                continue
            seen.add(value.unique())
            node = value.node()
            kind = node.kind()
            found = inputs_of(node)
            if kind in _DECIDES or (kind == "aten::where" and len(found) == 1):
                return True
            if kind == "aten::index" and any(map(_is_mask, inputs_of(found[1].node()))):
                return True
            values += found[:1] if kind in _LIKE_FIRST else found[1:2] if kind == "aten::embedding" else found
        self.plain |= seen
        return False


def _is_mask(value: Any) -> bool:
    return value.type().kind() == "TensorType" and value.type().dtype() in (torch.bool, torch.uint8)


def answer_with_elements(tensor: torch.Tensor) -> bool | None:
    """The answer to the question whether a size is 0 (or not), for one that is not; None for other questions."""
    node = value_of(tensor).node()
    if node.kind() in _COMPARED and _number(node.inputsAt(1)) == 0:
        return _COMPARED[node.kind()]
    with untraced():
        return True if node.kind() == "prim::NumToTensor" and tensor.numel() == 1 else None


def _number(value: Any) -> Any:
    """The constant number that a value is, else None."""
    node = value.node()
    if node.kind() != "prim::Constant":
        return None
    found = value.toIValue()
    return found.item() if isinstance(found, torch.Tensor) and found.numel() == 1 else found
