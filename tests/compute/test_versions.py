"""What operators computed in older opsets, where the newest version says it in another way or computes another thing.

The expected values follow from the specification of the version; from opset 7 on ONNX Runtime computes the row, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as ort

import proto_schema as ps

OLDEST_OF_RUNTIME = 7


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def i64(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
MATRIX = f32([1, 2, 3], [4, 5, 6])
E3 = np.exp(CUBE.reshape(2, 12) - CUBE.reshape(2, 12).max(axis=1, keepdims=True))
LAST = np.exp(CUBE - CUBE.max(axis=2, keepdims=True))


@dataclass(frozen=True)
class Row:
    """One node at one opset."""

    operator: str
    opset: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    note: str = ""


ROWS = (
    Row("Add", 1, (CUBE, f32(1, 2, 3)), (CUBE + f32([1], [2], [3]),), {"broadcast": 1, "axis": 1}, "axis"),
    Row("Add", 6, (CUBE, f32(1, 2, 3, 4)), (CUBE + f32(1, 2, 3, 4),), {"broadcast": 1}, "last axes"),
    Row("Mul", 6, (CUBE, f32([1, 2, 3], [4, 5, 6])), (CUBE * f32([[1], [2], [3]], [[4], [5], [6]]),),
        {"broadcast": 1, "axis": 0}, "two axes"),
    Row("Pow", 1, (CUBE, f32(2)), (CUBE**2,), {"broadcast": 1}),
    Row("Less", 1, (CUBE, f32(1, 12)), (f32([[1]], [[12]]) > CUBE,), {"broadcast": 1, "axis": 0}),
    Row("Add", 7, (CUBE, f32(1, 2, 3, 4)), (CUBE + f32(1, 2, 3, 4),), {}, "numpy"),
    Row("PRelu", 1, (-CUBE, f32(1, 2, 3)), (-CUBE * f32([1], [2], [3]),), {}, "a slope for each channel"),
    Row("PRelu", 7, (-CUBE, f32([1], [2], [3])), (-CUBE * f32([1], [2], [3]),)),
    Row("Softmax", 1, (CUBE,), ((E3 / E3.sum(axis=1, keepdims=True)).reshape(CUBE.shape),), {}, "a matrix"),
    Row("Softmax", 11, (CUBE,), ((E3 / E3.sum(axis=1, keepdims=True)).reshape(CUBE.shape),), {"axis": 1}),
    Row("Softmax", 13, (CUBE,), (LAST / LAST.sum(axis=2, keepdims=True),), {}, "the last axis"),
    Row("Hardmax", 1, (MATRIX[None],), (f32([[0, 0, 0], [0, 0, 1]]),), {}, "a matrix"),
    Row("Dropout", 1, (MATRIX,), (MATRIX,), {"is_test": 1, "consumed_inputs": [0]}),
    Row("Dropout", 6, (MATRIX,), (MATRIX, np.ones((2, 3), np.float32)), {"is_test": 1}, "a mask of floats"),
    Row("Dropout", 7, (MATRIX,), (MATRIX,), {"ratio": 0.9}, "never trains"),
    Row("Dropout", 10, (MATRIX,), (MATRIX,), {"ratio": 0.9}, "never trains"),
    Row("Dropout", 12, (MATRIX, np.array(0.9, np.float32), np.array(False)), (MATRIX, np.ones((2, 3), bool))),
    Row("Pad", 1, (MATRIX,), (f32([0, 0, 1, 2, 3], [0, 0, 4, 5, 6]),), {"paddings": [0, 2, 0, 0]}),
    Row("Pad", 2, (MATRIX,), (f32([9, 1, 2], [9, 4, 5]),), {"pads": [0, 1, 0, -1], "value": 9.0}, "fewer at the end"),
    Row("Pad", 11, (MATRIX, i64(0, 1, 0, 1)), (f32([2, 1, 2, 3, 2], [5, 4, 5, 6, 5]),), {"mode": "reflect"}),
    Row("Pad", 18, (MATRIX, i64(1, 0), f32(7)[0], i64(1)), (f32([7, 1, 2, 3], [7, 4, 5, 6]),), {}, "some axes"),
    Row("Clip", 1, (MATRIX,), (f32([2, 2, 3], [4, 5, 5]),), {"min": 2.0, "max": 5.0}),
    Row("Clip", 6, (MATRIX,), (f32([1, 2, 3], [4, 4, 4]),), {"max": 4.0}, "no lower limit"),
    Row("Clip", 11, (MATRIX, np.float32(9), np.float32(3)), (np.full((2, 3), 3, np.float32),), {}, "the upper wins"),
    Row("Squeeze", 1, (CUBE[None, :, None],), (CUBE[:, None],), {"axes": [0]}),
    Row("Squeeze", 11, (CUBE[None, :, None],), (CUBE[None],), {"axes": [-3]}),
    Row("Squeeze", 13, (CUBE[None, :, None], i64(0, 2)), (CUBE,)),
    Row("Unsqueeze", 1, (MATRIX,), (MATRIX[None, :, None],), {"axes": [0, 2]}),
    Row("Unsqueeze", 13, (MATRIX, i64(-1)), (MATRIX[..., None],)),
    Row("Slice", 1, (CUBE,), (CUBE[:, 1:, :-1],), {"axes": [1, 2], "starts": [1, 0], "ends": [1000, -1]}),
    Row("Slice", 10, (CUBE, i64(3), i64(-1000), i64(2), i64(-2)), (CUBE[:, :, 3::-2],), {}, "backwards"),
    Row("TopK", 1, (MATRIX,), (f32([3, 2], [6, 5]), i64([2, 1], [2, 1])), {"k": 2}),
    Row("TopK", 10, (MATRIX, i64(1)), (f32([4, 5, 6]), i64([1, 1, 1])), {"axis": 0}),
    Row("TopK", 11, (f32(1, 3, 3, 2), i64(3)), (f32(1, 2, 3), i64(0, 3, 1)), {"largest": 0}, "the first of equal ones"),
    Row("Reshape", 1, (CUBE,), (CUBE.reshape(2, 12),), {"shape": [0, -1]}),
    Row("Reshape", 5, (CUBE, i64(0, -1)), (CUBE.reshape(2, 12),)),
    Row("Reshape", 14, (CUBE[:0], i64(3, 0)), (np.zeros((3, 0), np.float32),), {"allowzero": 1}),
    Row("Tile", 1, (MATRIX, np.float32(2), np.float32(1)), (np.tile(MATRIX, (1, 2)),), {}, "one axis"),
    Row("Tile", 6, (MATRIX, i64(2, 1)), (np.tile(MATRIX, (2, 1)),)),
    Row("Split", 1, (MATRIX,), (MATRIX[:, :1], MATRIX[:, 1:]), {"axis": 1, "split": [1, 2]}),
    Row("Split", 2, (MATRIX,), (MATRIX[:1], MATRIX[1:]), {}, "equal pieces"),
    Row("Split", 13, (MATRIX, i64(2, 1)), (MATRIX[:, :2], MATRIX[:, 2:]), {"axis": 1}),
    Row("Split", 18, (MATRIX,), (MATRIX[:, :2], MATRIX[:, 2:]), {"axis": 1, "num_outputs": 2}, "a smaller last piece"),
    Row("Concat", 1, (MATRIX, MATRIX), (np.concatenate([MATRIX, MATRIX], 1),), {}, "axis 1 by default"),
    Row("Cast", 1, (MATRIX,), (MATRIX.astype(np.int32),), {"to": "INT32"}, "the name of the type"),
    Row("Cast", 6, (f32(-1.7, 2.5),), (i64(-1, 2),), {"to": 7}),
    Row("Sum", 1, (MATRIX, MATRIX), (2 * MATRIX,)),
    Row("Max", 6, (MATRIX, 5 - MATRIX), (np.maximum(MATRIX, 5 - MATRIX),)),
    Row("Mean", 8, (MATRIX, f32(1, 2, 3)), ((MATRIX + f32(1, 2, 3)) / 2,)),
    Row("ReduceSum", 1, (CUBE,), (CUBE.sum((0, 2), keepdims=True),), {"axes": [0, 2]}),
    Row("ReduceSum", 13, (CUBE, i64(-1)), (CUBE.sum(2),), {"keepdims": 0}),
    Row("ReduceSum", 13, (CUBE,), (CUBE,), {"noop_with_empty_axes": 1}, "nothing is reduced"),
    Row("ReduceMax", 11, (CUBE,), (CUBE.max((1,)),), {"axes": [-2], "keepdims": 0}),
    Row("ReduceL2", 18, (MATRIX, i64(0)), (np.sqrt((MATRIX**2).sum(0, keepdims=True)),)),
    Row("ArgMax", 12, (f32([1, 3, 3]),), (i64(2),), {"axis": 1, "select_last_index": 1, "keepdims": 0}),
    Row("Scatter", 9, (f32(1, 2, 3), i64(1), f32(9)), (f32(1, 9, 3),)),
    Row("Gather", 1, (MATRIX, i64(1, 0)), (MATRIX[:, [1, 0]],), {"axis": 1}),
    Row("Upsample", 9, (f32([[[1, 2]]]), f32(1, 1, 2, 2)), (f32([[[1, 1, 2, 2], [1, 1, 2, 2]]]),)),
    Row("Div", 7, (np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)),
        (np.array([3, -3, -3, 3], np.int32),), {}, "towards zero"),
    Row("Mod", 13, (i64(7, -7, 7, -7), i64(3, 3, -3, -3)), (i64(1, 2, -2, -1),), {}, "the sign of the divisor"),
    Row("Mod", 13, (i64(7, -7, 7, -7), i64(3, 3, -3, -3)), (i64(1, -1, 1, -1),), {"fmod": 1}),
    Row("Pow", 13, (np.array([2, 3], np.int32), f32(3, 0.5)), (np.array([8, 1], np.int32),), {}, "of the base's type"),
    Row("OneHot", 11, (i64(0, -1, 5), i64(3), f32(2, 7)), (f32([7, 2, 2], [2, 2, 7], [2, 2, 2]),)),
    Row("ReduceLogSumExp", 13, (f32([1000, 1000]),), (f32([1000 + np.log(2)]),), {"axes": [1]}, "no overflow"),
)  # fmt: skip


def _name(row: Row) -> str:
    return f"{row.operator}-{row.opset}" + (f"-{row.note.replace(' ', '-')}" if row.note else "")


def model(row: Row) -> bytes:
    inputs = [f"x{at}" for at in range(len(row.inputs))]
    outputs = [f"y{at}" for at in range(len(row.outputs))]
    node = ps.helper.make_node(row.operator, inputs, outputs, **row.attributes)
    code = ps.helper.np_dtype_to_tensor_dtype
    given = [
        ps.helper.make_tensor_value_info(name, code(np.asarray(value).dtype), np.shape(value))
        for name, value in zip(inputs, row.inputs, strict=True)
    ]
    made = [
        ps.helper.make_tensor_value_info(name, code(np.asarray(value).dtype), None)
        for name, value in zip(outputs, row.outputs, strict=True)
    ]
    graph = ps.helper.make_graph([node], "row", given, made)
    imports = [ps.helper.make_opsetid("", row.opset)]
    return ps.helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_row(row: Row) -> None:
    data = model(row)
    feed = {f"x{at}": np.asarray(value) for at, value in enumerate(row.inputs)}
    found = ps.reference.ReferenceEvaluator(data).run(None, feed)
    compare(found, row.outputs)
    if row.opset >= OLDEST_OF_RUNTIME:
        try:
            session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        except ort.NotImplemented:
            return  # no kernel for these dtypes: the values of the row say what is right
        compare(session.run(None, feed), row.outputs)


def compare(found: Any, wanted: Any) -> None:
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == np.asarray(theirs).dtype
        assert mine.shape == np.shape(theirs)
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)
