"""What is computed of constants, by our evaluator, within a budget of work and memory.

The sizes of the results are known before anything is computed, and so is what the node costs: a few numbers can ask for
any amount of either. A node that is not cheap stays as it is.
"""

from __future__ import annotations

from typing import Any

from proto_schema.budget import ExceededError
from proto_schema.compute.costs import weight
from proto_schema.onnx import NodeProto
from proto_schema.reference.evaluator import ReferenceEvaluator
from proto_schema.reference.failures import EvaluationError, UnsupportedOperatorError
from proto_schema.simplification.draft import PLAIN, Draft

RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
KEPT = frozenset({"DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear"})
"""Folding these would undo a quantization."""


def folded(draft: Draft, node: NodeProto) -> dict[str, Any] | None:
    """The results of a node by name; None where it is no work on small constants, or past the budget."""
    if node.domain or node.op_type in RANDOM | KEPT or any(item.g is not None for item in node.attribute):
        return None
    if (node.domain or "", node.op_type or "", node.overload or "") in draft.functions:
        return None
    names = [name for name in node.output if name]
    for name in names:
        sizes = draft.sizes(name)
        if sizes is None or draft.dtype(name) not in PLAIN or draft.nbytes(draft.dtype(name), sizes) > draft.limit:
            return None
    feed = {}
    for name in node.input:
        if name:
            array = draft.array(name)
            if array is None or draft.dtype(name) not in PLAIN:
                return None
            feed[name] = array
    # a constant is in the file already
    budget = draft.budget if node.op_type != "Constant" else draft.budget.fresh()
    try:
        found = ReferenceEvaluator(node, draft.opsets).run(names, feed, budget=budget)
        results = dict(zip(names, found, strict=True))
        if any(getattr(array, "shape", None) != draft.sizes(name) for name, array in results.items()):
            return None
        if any(weight(array) > draft.limit for array in results.values() if array.dtype == object):
            return None  # texts, whose lengths the shapes do not tell
        if node.op_type != "Constant":  # only as much may be new as the budget has
            draft.budget.hold(max(0, sum(map(weight, found)) - sum(map(weight, feed.values()))))
    except (EvaluationError, UnsupportedOperatorError, ExceededError):
        return None  # the node fails when the model runs, is not cheap, or nothing here computes it: it stays
    return results
