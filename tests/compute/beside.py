"""A plugin: wherever a test runs a file in ONNX Runtime, our evaluator runs it beside, and must give the same.

    pytest -p tests.compute.beside tests/lowering tests/models

So the rows of all operators that the exporter writes, at all their opsets, are rows of the evaluator, too. It is no
part of the default tests: those run each file once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import proto_schema as ps
from tests import harness
from tests.tolerances import Bounds, assert_near

BOUNDS = Bounds(times=5, loose="two runtimes, which sum in other orders")
RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)


def pytest_configure() -> None:
    """Put the comparison behind `harness.run_ort`."""
    official = harness.run_ort

    def run_both(model: bytes | str, inputs: Any, *, reference: bool = False) -> Any:
        expected = official(model, inputs, reference=reference)
        compare(model, inputs, expected)
        return expected

    harness.run_ort = run_both


def compare(model: bytes | str, inputs: Any, expected: list[np.ndarray]) -> None:
    """Run a model on our evaluator. AssertionError where it differs from what is expected."""
    loaded = ps.loads(model) if isinstance(model, bytes) else ps.load(model)
    graph = loaded.graph
    assert graph is not None
    if any(node.op_type in RANDOM for node in graph.node):
        return
    session = ps.reference.ReferenceEvaluator(loaded)
    feed = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(session.input_names, inputs, strict=True))
    for name, mine, theirs in zip(session.output_names, session.run(None, feed), expected, strict=True):
        where = f"our evaluator, output {name!r}"
        if theirs.dtype == object:
            np.testing.assert_array_equal(mine, theirs, err_msg=where)
        elif theirs.dtype.isbuiltin == 1:
            assert_near(mine, theirs, BOUNDS, where)
        else:  # a type of the package ml_dtypes: ours is wider, and the bounds are those of the type
            relative, absolute = BOUNDS.of(theirs.dtype.name)
            np.testing.assert_allclose(mine, theirs.astype(np.float32), rtol=relative, atol=absolute, err_msg=where)
