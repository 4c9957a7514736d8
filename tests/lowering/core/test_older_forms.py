"""Each older form computes what the operator itself computes: both are written, run in ONNX Runtime and compared.

A row is a call of an ONNX operator. Its inputs are graph inputs of dynamic sizes, or constants where the row says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from proto_schema.legalization import rows
from proto_schema.sizes import Size
from purexport import dtypes
from purexport.errors import OpsetError
from purexport.graph.build import build_model
from purexport.graph.ir import Graph, Value
from purexport.graph.passes.dce import remove_dead_nodes
from purexport.graph.passes.naming import assign_names
from purexport.lowering.core.emitter import Emitter
from tests.harness import check_file, run_ort


@dataclass(frozen=True)
class Call:
    """An operator, its inputs (arrays; a `Known` stays a constant), its attributes, and the opsets without it."""

    op_type: str
    inputs: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opsets: tuple[int, ...] = (9,)
    static: bool = False
    new: int = 20  # an opset with the operator


@dataclass(frozen=True)
class Known:
    """An input whose numbers are known when the graph is written."""

    array: np.ndarray[Any, Any]


def ints(*items: int) -> np.ndarray[Any, Any]:
    return np.array(items, np.int64)


def floats(*items: float) -> np.ndarray[Any, Any]:
    return np.array(items, np.float32)


def scalar(number: float, dtype: type = np.int64) -> np.ndarray[Any, Any]:
    return np.array(number, dtype)


def known(*items: int) -> Known:
    return Known(ints(*items))


GRID = np.arange(24, dtype=np.float32).reshape(2, 3, 4) * 0.5 - 3
LARGE = ints(2**62, -(2**62), 5, 2**40, 2**40 + 1, -(2**53) - 1, -(2**53), 5, 2**32 - 1, -1)
TIES = floats(3, 1, 3, 2, 1)
SPOTS = floats(-1.4, -1, 0.25, 1.25, -0.125, 0.5, 0, 0.75, 1, -0.75, 0.25, -0.25)
MATRICES = np.array([[[2, 1, 0], [4, 2, 2], [0, 3, 1]], [[0, 0, 1], [0, -2, 3], [8, 1, 1]]], np.float32)

FORMS = rows()
CALLS = [
    *(
        Call("Range", tuple(map(scalar, bounds)))
        for bounds in ((0, 5, 1), (2, 11, 3), (5, -4, -2), (3, 3, 1), (4, 0, 1), (0, 3, -1), (-7, 0, 7))
    ),
    Call("Range", tuple(scalar(item, np.float32) for item in (0.5, 2.6, 0.5))),
    Call("Range", tuple(scalar(item, np.float32) for item in (1.0, -1.0, -0.75))),
    *(
        Call("Slice", (GRID, ints(start), ints(end), known(2), ints(step)))
        for start, end, step in (
            (1, 3, 1), (-3, -1, 1), (0, 99, 2), (3, 1, 1), (-99, 2, 1),
            (-1, -99, -1), (3, 0, -2), (99, 1, -3), (1, 3, -1),
        )
    ),
    Call("Slice", (GRID, ints(0, 1), ints(1, 3))),
    Call("Slice", (GRID, ints(0, -2), ints(1, 2**62), known(0, -1))),
    Call("Slice", (GRID, known(1), known(-(2**63)), known(1), known(-1))),
    Call("Slice", (GRID[..., :0], known(-1), known(-99), known(2), known(-1))),  # nothing to begin at
    *(
        Call("Pad", (GRID, ints(0, *before, 0, *after), *constant), {"mode": mode})
        for mode, before, after, constant in (
            ("constant", (1, 0), (0, 2), ()),
            ("constant", (0, 2), (1, 0), (scalar(-math.inf, np.float32),)),
            ("constant", (-1, 1), (1, -2), (scalar(7, np.float32),)),
            ("edge", (2, 1), (0, 5), ()),
            ("reflect", (2, 0), (1, 3), ()),
        )
    ),
    Call("GatherElements", (GRID, np.array([[[0, -1], [1, 0]]], np.int64)), {"axis": 0}),
    Call("GatherElements", (GRID, np.array([[[0, -1], [1, 2]]], np.int64)), {"axis": 1}, static=True),
    Call("ScatterElements", (GRID, np.array([[[0, -1], [1, 2]]], np.int64), GRID[:1, :2, :2]), {"axis": 2}),
    *(
        Call(
            "ScatterElements",
            (GRID, np.array([[[0, 0, 2]], [[1, -1, -1]]], np.int64), GRID[:, 1:2, :3] * 2),
            {"axis": 1, "reduction": reduction},
            opsets=opsets,
        )
        for reduction, opsets in (("add", (9, 15)), ("mul", (9, 15)), ("max", (10, 17)), ("min", (9, 17)))
    ),
    Call("ScatterElements", (ints(1, 2, 3), ints(), ints()), {"reduction": "add"}),
    Call("ScatterElements", (ints(1, 2, 3), known(2, 0), ints(5, 6)), {"reduction": "add"}, opsets=(9, 15)),
    Call("ScatterElements", (floats(1, 2), ints(*[1] * 40), floats(*range(40))), {"reduction": "add"}, static=True),
    *(
        Call("CumSum", (GRID, Known(scalar(axis))), {"exclusive": exclusive, "reverse": reverse}, static=static)
        for axis, exclusive, reverse, static in ((0, 0, 0, True), (1, 1, 0, False), (2, 0, 1, False), (-1, 1, 1, True))
    ),
    Call("CumSum", (floats(1, math.inf, 2, 3), Known(scalar(0)))),
    Call("CumSum", (ints(), Known(scalar(0)))),
    *(
        Call("Einsum", (GRID, GRID[..., :3], floats(1, -2))[: equation.count(",") + 1], {"equation": equation}, new=13)
        for equation in ("abc,abd,a->dc", "a...c,ad...,a->...d", "abc,def->e", "abc->b", "abc,adb", "abc,abd,a->abcd")
    ),
    Call(
        "Einsum",
        (np.diag([math.inf, 1, 2]).astype(np.float32), GRID[:, :1, :3]),
        {"equation": "aa,bca->ba"},
        static=True,
        new=13,
    ),
    Call("Einsum", (ints(2**60, 3, 5), ints(7, 2)), {"equation": "a,b->ba"}, new=13),
    Call("CumSum", (LARGE, Known(scalar(0))), {"exclusive": 1}, static=True),  # no float holds these sums
    Call("CumSum", (np.arange(70, dtype=np.float32), Known(scalar(0))), {"reverse": 1}, static=True),
    *(
        Call("CumProd", (GRID, Known(scalar(1))), {"exclusive": exclusive, "reverse": reverse}, 1, (9, 25), static, 26)
        for exclusive, reverse, static in ((0, 1, True), (1, 0, False))
    ),
    *(
        Call("ScatterND", (GRID, np.array(at, np.int64), GRID[: len(at), 0]), {"reduction": reduction}, opsets=opsets)
        for at, reduction, opsets in (
            ([[0, -1], [1, 2]], "none", (9, 10)),
            ([[0, -1], [1, 1], [0, 2]][:2], "add", (9, 15)),
            ([[1, 1], [1, -2]], "max", (10, 17)),
        )
    ),
    Call("ScatterND", (GRID, np.zeros((0, 1), np.int64), GRID[:0]), {"reduction": "mul"}, opsets=(9, 15)),
    Call("GatherND", (GRID, np.array([[0, -1], [1, 0]], np.int64)), opsets=(9, 10)),
    Call("GatherND", (GRID, np.array([[[1], [0]], [[-1], [2]]], np.int64)), {"batch_dims": 1}, opsets=(9, 11)),
    Call("TopK", (TIES, ints(3)), outputs=2),
    Call("TopK", (TIES, ints(4)), {"largest": 0}, outputs=2, opsets=(9, 10)),
    Call("TopK", (TIES, ints(4)), outputs=2, static=True),
    Call("TopK", (GRID, known(2)), {"axis": 1, "largest": 0}, outputs=2),
    Call("TopK", (LARGE, ints(10)), {"largest": 0}, outputs=2, opsets=(9, 10)),
    Call("TopK", (LARGE, known(4)), outputs=2, static=True),
    Call("TopK", (ints(3, 1, 2).astype(np.int32), known(2)), outputs=2, static=True),
    *(
        Call("Mod", (ints(7, -7, 7, -7, 6, 0), ints(3, 3, -3, -3, 3, -2)), {"fmod": fmod}) for fmod in (0, 1)
    ),
    Call("Round", (floats(0.5, 1.5, -0.5, -2.5, 2.4, -math.inf, math.inf, math.nan, 1e20),)),
    Call("Equal", (floats(1, math.nan, math.inf, -0.0), floats(1, math.nan, math.inf, 0))),
    Call("LessOrEqual", (floats(1, math.nan, 2), floats(1, math.nan, 1)), opsets=(9, 11)),
    Call("GreaterOrEqual", (floats(1, math.nan, 2), floats(1, math.nan, 1)), opsets=(9, 11)),
    Call("Max", (ints(1, 5, -3), ints(2, 2, 2), ints(0)), opsets=(9, 11)),
    Call("Min", (ints(1, 5, -3), ints(2, 2, 2), ints(0)), opsets=(9, 11)),
    Call("Clip", (floats(-3, 0.5, 7), scalar(-1, np.float32), scalar(2, np.float32))),
    Call("Clip", (ints(-3, 1, 7), scalar(-1), scalar(2)), opsets=(9, 11)),
    *(
        Call(op_type, (LARGE, LARGE[::-1].copy()), opsets=(9, 17))
        for op_type in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
    ),
    Call("BitwiseOr", (ints(-2, -10, -16), ints(6)), opsets=(9, 17)),  # sums of bits that no double holds
    *(
        Call("BitwiseXor", (np.array([0, 1, -1, 100, -128], dtype).view(kind), np.array([[7], [-2]], dtype).view(kind)))
        for dtype, kind in (("int8", "int8"), ("int8", "uint8"), ("int32", "uint32"), ("int64", "uint64"))
    ),
    *(
        Call(op_type, (np.array([7, -100, 127], np.int8), np.array([3, 100, 2], np.int8)), opsets=(9, 13))
        for op_type in ("Add", "Sub", "Mul", "Div")
    ),
    *(Call("Gelu", (floats(-1, 0.5, 0, 7),), {"approximate": kind}, opsets=(9, 19)) for kind in ("none", "tanh")),
    Call("Mish", (GRID,), opsets=(9, 17)),
    Call("HardSwish", (GRID,), opsets=(9, 13)),
    Call("Celu", (GRID,), {"alpha": 2.0}, opsets=(9, 11)),
    Call("ThresholdedRelu", (GRID,), {"alpha": 0.5}),
    Call("Relu", (ints(3, -2, 0).astype(np.int32),), opsets=(9, 13)),
    Call("BitwiseNot", (LARGE,), opsets=(9, 17)),
    Call("BitwiseNot", (np.array([0, 3, 255], np.uint8),), opsets=(9, 17)),
    *(
        Call("BitShift", (np.array([1, 7, 200], np.uint8), np.array([3, 9, 1], np.uint8)), {"direction": side})
        for side in ("LEFT", "RIGHT")
    ),
    Call("BitCast", (LARGE,), {"to": 13}, opsets=(9, 25), new=26),
    *(
        Call("IsInf", (floats(1, math.inf, -math.inf, math.nan),), {"detect_positive": one, "detect_negative": other})
        for one, other in ((1, 1), (1, 0), (0, 1), (0, 0))
    ),
    Call("Mul", (np.array([7, 200], np.uint8), np.array([30, 3], np.uint8)), opsets=(9, 13)),
    Call("Split", (GRID,), {"axis": 1, "num_outputs": 2}, outputs=2, opsets=(9, 17)),
    Call("Split", (GRID,), {"axis": 2, "num_outputs": 2}, outputs=2, opsets=(9, 17), static=True),
    Call("Split", (GRID, ints(1, 0, 3)), {"axis": -1}, outputs=3, opsets=(9, 11)),
    Call("Unique", (np.array([[2, 1], [1, 3], [2, 1], [1, 2]], np.float32),), {"axis": 0}, outputs=4),
    Call("Unique", (np.array([[2, 1, 2], [1, 3, 1]], np.int64),), {"axis": 1}, outputs=4),
    Call(
        "MaxPool",
        (GRID[None],),
        {"kernel_shape": [2, 2], "dilations": [1, 2], "strides": [1, 2], "pads": [1, 0, 0, 1]},
    ),
    Call(
        "MaxPool",
        (np.roll(GRID[None], 3, -1),),
        {"kernel_shape": [3, 2], "dilations": [1, 2], "strides": [1, 1], "pads": [2, 1, 1, 0]},
        outputs=2,
    ),
    Call("MaxPool", (GRID * math.inf,), {"kernel_shape": [2], "dilations": [2], "pads": [1, 1]}),
    Call("MaxPool", (GRID.astype(np.int8),), {"kernel_shape": [2]}, outputs=2, opsets=(9, 11)),
    Call("Shape", (GRID,), {"start": 1}, opsets=(9, 14)),
    Call("Shape", (GRID,), {"start": -2, "end": -1}, opsets=(9, 14)),
    Call("DepthToSpace", (GRID.reshape(1, 12, 2, 1),), {"blocksize": 2, "mode": "CRD"}, opsets=(9, 10)),
    Call("Trilu", (GRID, Known(scalar(-1))), {"upper": 0}, opsets=(9, 13)),
    Call("Trilu", (GRID > 0, scalar(2)), opsets=(9, 13)),
    Call("Trilu", (GRID * math.inf,), opsets=(9,), static=True),
    Call("RMSNormalization", (GRID, GRID[0] * 2), {"axis": 1}, opsets=(9, 22), static=True, new=23),
    Call("LayerNormalization", (GRID, GRID[0, 0], GRID[0, 1]), opsets=(9, 16)),
    Call("LayerNormalization", (GRID, GRID[0]), {"axis": 1, "epsilon": 0.5}, opsets=(9, 16), static=True),
    *(
        Call(
            "GroupNormalization",
            (GRID.reshape(2, 4, 3, 1) ** 2, GRID[0, 0], GRID[1, 0] + 20),
            {"num_groups": 2},
            opsets=(9, 20),
            static=static,
            new=21,
        )
        for static in (True, False)
    ),
    Call(
        "BatchNormalization",
        (GRID[None] ** 2, floats(1, 2), floats(0, 1), floats(3, 4), floats(1, 2)),
        {"training_mode": 1, "momentum": 0.75},
        outputs=3,
        opsets=(9, 13),
        static=True,
    ),
    Call("Dropout", (GRID, Known(scalar(0, np.float32)), Known(np.array(True))), outputs=2, opsets=(9, 11)),
    *(Call("Det", (MATRICES,), opsets=(9, 10), static=static) for static in (True, False)),
    Call("Det", (np.eye(10, dtype=np.float32)[:, ::-1].copy() * 2,), opsets=(9,), static=True),
    Call("Det", (np.array([[0, 2.0], [3, 4]], np.float32),), opsets=(9,), static=True),
    Call("Det", (np.ones((2, 2), np.float32),), opsets=(9,)),
    *(
        Call("TensorScatter", (GRID[None], GRID[None, :, :1] + 9, *at), {"mode": mode}, opsets=(9, 23), new=24)
        for mode, at in (("linear", (ints(1),)), ("circular", (ints(5),)), ("linear", ()))
    ),
    *(
        Call(
            "GridSample",
            (GRID.reshape(shape), SPOTS[: 4 * axes].reshape(1, 4, *[1] * (axes - 1), axes)),
            {"mode": mode, "padding_mode": padding, "align_corners": aligned},
            opsets=opsets,
        )
        for shape, axes, mode, padding, aligned, opsets in (
            ((1, 2, 3, 4), 2, "linear", "zeros", 0, (9, 16)),
            ((1, 2, 3, 4), 2, "cubic", "border", 1, (9, 16)),
            ((1, 2, 3, 4), 2, "nearest", "reflection", 0, (9, 19)),
            ((1, 2, 3, 2, 2), 3, "linear", "border", 1, (9, 15)),
        )
    ),
    Call("AffineGrid", (GRID[:, :2, :3], known(2, 1, 3, 2)), {"align_corners": 1}, opsets=(9, 19)),
    Call("AffineGrid", (GRID[:, :2, :3], ints(2, 1, 4, 2)), opsets=(9, 19), static=True),
    Call("AffineGrid", (GRID.reshape(2, 3, 4), known(2, 1, 2, 2, 2)), opsets=(9, 19), static=True),
    *(
        Call(
            "Col2Im",
            (np.arange(108, dtype=np.float32).reshape(1, 12, 9) - 30, shape, known(2, 3)),
            {"pads": [1, 0, 0, 1], "strides": [1, 2], "dilations": [2, 1]},
            opsets=opsets,
            static=static,
        )
        for shape, opsets, static in (
            (known(4, 7), (9, 17), True),
            (known(4, 6), (9,), False),
            (ints(4, 6), (11,), True),
        )
    ),
    Call(
        "DeformConv",
        (GRID[None], GRID.reshape(2, 1, 3, 4)[:, :, :2, :2], np.resize(SPOTS, (1, 16, 2, 3))),
        {"kernel_shape": [2, 2], "group": 2, "offset_group": 2},
        opsets=(9, 18),
        static=True,
    ),
    *(
        Call("AveragePool", (GRID[None],), {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]} | named, 1, opsets, True)
        for named, opsets in (
            ({"dilations": [1, 2], "count_include_pad": 1}, (9, 18)),
            ({"ceil_mode": 1, "strides": [2, 2]}, (9,)),
        )
    ),
    Call("LpPool", (GRID[None],), {"kernel_shape": [2, 2], "dilations": [2, 1], "p": 3}, opsets=(9, 17)),
    Call(
        "NonMaxSuppression",
        (
            np.array([[[0, 0, 1, 1], [1, 1.1, 0, 0.1], [0, 0, 1, 1.05], [2, 2, 3, 3], [2, 2, 2, 2]]], np.float32),
            np.array([[[0.9, 0.8, 0.9, -1, 0.1]]], np.float32),
            ints(3),
            floats(0.5),
        ),
    ),
]  # fmt: skip


def written(call: Call, opset: int, older: Mapping[str, Any] = FORMS) -> bytes:
    """The call as a file of that opset, with older forms where the opset has no other."""
    graph = Graph()
    op = Emitter.of(graph, opset, older=older)
    values = []
    for place, item in enumerate(call.inputs):
        array = item.array if isinstance(item, Known) else item
        dtype = dtypes.onnx_code(getattr(torch, str(array.dtype)))
        if isinstance(item, Known):
            values.append(op.const(array.tolist(), dtype))
            continue
        # the number of bounds is known, the sizes of tensors are not
        keeps = (
            call.static
            or (place > 0 and call.op_type.endswith("ND"))
            or (place > 0 and array.ndim == 1 and call.op_type in ("Slice", "Pad", "Split", "TopK"))
        )
        shape = tuple(size if keeps else Size.symbol(f"n{place}_{axis}") for axis, size in enumerate(array.shape))
        if call.op_type == "NonMaxSuppression":
            shape = array.shape
        values.append(Value(dtype, shape, name=f"x{place}"))
        graph.inputs.append(values[-1])
    found = op.multi(call.op_type, *values, outputs=call.outputs, **call.named)
    graph.outputs += [op.Identity(value) for value in found]
    remove_dead_nodes(graph)
    assign_names(graph)
    return build_model(graph, opset, "call").SerializeToString()


# which take wider integers where an opset's version does not take theirs, or images in an older version
ARITHMETIC = {"Add", "Div", "Mul", "Sub"}
WIDENED = {"GridSample", "MaxPool", "Relu", "TopK", *ARITHMETIC}
# below opset 9, or what ONNX Runtime does not compute: the official cases of the converter have these
CONVERTED = {"IsNaN", "Sign", "SwiGLU", "Swish"}


@pytest.mark.parametrize("place", range(len(CALLS)), ids=[f"{i}-{call.op_type}" for i, call in enumerate(CALLS)])
def test_forms_compute_what_the_operator_computes(place: int) -> None:
    call = CALLS[place]
    feeds = [item for item in call.inputs if not isinstance(item, Known)]
    wanted = run_ort(written(call, call.new, {}), feeds)
    for opset in call.opsets:
        try:
            data = written(call, opset, {})
        except OpsetError:
            pass
        else:  # integers that the opset's version does not take are computed in another type
            assert call.op_type in WIDENED
            for got, want in zip(run_ort(data, feeds), wanted, strict=True):
                np.testing.assert_array_equal(got, want, err_msg=f"at opset {opset}")
        data = written(call, opset)
        check_file(data, opset)
        for got, want in zip(run_ort(data, feeds), wanted, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=f"at opset {opset}")


def test_every_form_has_a_call() -> None:
    assert {call.op_type for call in CALLS} | CONVERTED == set(FORMS) | ARITHMETIC
