"""Random nodes on our evaluator and in ONNX Runtime, by theme.

By default a few of each theme run; `pytest -m sweep tests/compute/test_random_nodes.py` runs hundreds. No row may write
into its inputs, so all arrays are read-only. A node that ONNX Runtime refuses counts for nothing, but few may be so.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.compute import random_ml  # noqa: F401  it declares themes
from tests.compute.random_nodes import KINDS, Draw
from tests.compute.runtime import Node, compare, found, wanted
from tests.tolerances import assert_near

FEW, MANY = 24, 300


def run(kind: str, seeds: range) -> None:
    """AssertionError where a node differs, or ONNX Runtime refuses more than every fourth."""
    refused = []
    for seed in seeds:
        node = KINDS[kind](Draw(seed))
        for item in node.inputs:
            if isinstance(item, np.ndarray):
                item.flags.writeable = False
        try:
            wanted(node)
        except Exception as error:
            refused.append(str(error))
            continue
        try:
            compare(node)
        except (AssertionError, ValueError) as error:
            shapes = [None if item is None else np.shape(item) for item in node.inputs]
            raise AssertionError(
                f"seed {seed}: {node.op_type} {node.opset} {node.attributes} {shapes}: {error}"
            ) from error
    assert len(refused) <= len(seeds) // 4, refused[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_as_in_onnx_runtime(kind: str) -> None:
    run(kind, range(FEW))


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_as_in_onnx_runtime_often(kind: str) -> None:
    run(kind, range(FEW, MANY))


def test_a_difference_is_found() -> None:
    """The guard itself: results of other attributes are refused."""
    data = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    node = Node("MaxPool", [data], {"kernel_shape": [2, 2], "strides": [2, 2]})
    other = Node("AveragePool", [data], {"kernel_shape": [2, 2], "strides": [2, 2]})
    with pytest.raises(AssertionError, match="Mismatched elements: 4 / 4"):
        assert_near(found(node)[0], wanted(other)[0])
