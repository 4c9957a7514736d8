"""What is computed of constants, by our evaluator, within a budget of work and memory.

The sizes of the results are known before anything is computed, and so is what the node costs: a few numbers can ask for
any amount of either. A node that is not cheap stays as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proto_schema.budget import ExceededError
from proto_schema.compute.costs import weight
from proto_schema.ir import Node, Value
from proto_schema.onnx import NodeProto
from proto_schema.operators import RANDOM
from proto_schema.reference.failures import EvaluationError
from proto_schema.reference.program import Linker
from proto_schema.reference.values import plain
from proto_schema.simplification.known import PLAIN, Known
from proto_schema.tensors.dtypes import DTYPES, element_count

KEPT = frozenset({"DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear"})
"""Folding these would undo a quantization."""

_LEFT = RANDOM | KEPT


def folded(known: Known, node: Node) -> dict[Value, Any] | None:
    """The results of a node; None where it is no work on small constants, or past the budget."""
    if any(item is not None and known.array(item) is None for item in node._reads):
        return None  # most nodes: they read something that is computed
    if node.domain or node.op_type in _LEFT or node.bodies or known.calls_function(node):
        return None
    if node.op_type in ("Constant", "Identity"):  # whose tensor is in the file already
        array = known.array(node.inputs[0] if node.inputs else node.output)
        if array is not None and array.dtype != object:
            return {node.output: array}
    results = {f"output_{place}": value for place, value in enumerate(node.outputs) if value is not None}
    for value in results.values():
        if value.sizes is None or value.dtype not in PLAIN:
            return None
        if DTYPES[value.dtype].nbytes(element_count(value.sizes)) > known.limit:
            return None
    feed = {}
    for place, item in enumerate(node.inputs):
        if item is not None:
            array = known.array(item)
            if array is None or item.dtype not in PLAIN:
                return None
            feed[f"input_{place}"] = array
    written = NodeProto(
        op_type=node.op_type,
        input=["" if item is None else f"input_{place}" for place, item in enumerate(node.inputs)],
        output=["" if value is None else f"output_{place}" for place, value in enumerate(node.outputs)],
        attribute=node.attributes.messages(),
    )
    # a constant is in the file already
    budget = known.budget if node.op_type != "Constant" else known.budget.fresh()
    try:
        linker = Linker({}, {})
        program = linker.program(list(feed), list(results), {}, [written], known.opsets)
        if linker.missing:
            return None
        with np.errstate(all="ignore"):
            found = [plain(value) for value in program.run(feed, list(results), budget)]
        made = dict(zip(results.values(), found, strict=True))
        if any(getattr(array, "shape", None) != value.sizes for value, array in made.items()):
            return None
        if any(weight(array) > known.limit for array in found if array.dtype == object):
            return None  # texts, whose lengths the shapes do not tell
        if node.op_type != "Constant":  # only as much may be new as the budget has
            known.budget.hold(max(0, sum(map(weight, found)) - sum(map(weight, feed.values()))))
    except (EvaluationError, ExceededError):
        return None  # the node fails when the model runs, is not cheap, or nothing here computes it: it stays
    return made
