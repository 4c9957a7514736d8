"""What is computed of constants, by our evaluator, within a budget of bytes."""

from __future__ import annotations

from typing import Any

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
    """The results of a node by name; None where it is no work on small constants.

    The sizes of the results are known before anything is computed: a few numbers can ask for any amount of memory.
    """
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
    try:
        found = ReferenceEvaluator(node, draft.opsets).run(names, feed)
    except (EvaluationError, UnsupportedOperatorError):
        return None  # the node fails when the model runs, or nothing here computes it: it stays
    results = dict(zip(names, found, strict=True))
    fits = all(getattr(array, "shape", None) == draft.sizes(name) for name, array in results.items())
    return results if fits else None
