"""Rules for numbers that a graph computes, each on a graph made by hand: scripts hold them, traces hardly do.

The truth is Python itself, whose operators TorchScript's numbers follow.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from purexport.aten.graph import AtenGraph, AtenValue, Call, Input, ScalarType, TensorType
from purexport.aten.schema import signature
from purexport.graph.build import build_model
from purexport.graph.passes.naming import assign_names
from purexport.lowering.lower import lower_graph
from tests.harness import run_ort

INTEGERS = [(7, 2), (-7, 2), (7, -2), (3, 3), (0, 5)]
FLOATS = [(7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (3.0, 3.0)]
MIXED = [(7, 2.5), (-7, 2.5), (2, 2.0)]
MIXED_BACK = [(second, first) for first, second in MIXED]
POSITIVE = [(7, 2), (2, 0), (3, 5)]
TRUTHS = [(True, True), (True, False), (False, False)]

# the operators of two numbers, and what Python calls them
PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "aten::add": operator.add,
    "aten::sub": operator.sub,
    "aten::mul": operator.mul,
    "aten::floordiv": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::gt": operator.gt,
    "aten::le": operator.le,
    "aten::ge": operator.ge,
    "prim::max": max,
    "prim::min": min,
}
FORMS: dict[str, list[tuple[Any, ...]]] = {
    "int": INTEGERS,
    "float": FLOATS,
    "int_float": MIXED,
    "float_int": MIXED_BACK,
    "": INTEGERS,
}

KINDS = {"int": int, "float": float, "bool": bool}

Case = tuple[str, Callable[..., Any], list[tuple[Any, ...]]]
ONE_INTEGER: list[tuple[Any, ...]] = [(7,), (-7,), (0,)]
ONE_FLOAT: list[tuple[Any, ...]] = [(7.5,), (-7.5,), (2.5,), (0.0,)]

CASES: list[Case] = [
    *[
        (f"{base}.{form}" if form else base, function, numbers)
        for base, function in PAIRS.items()
        for form, numbers in FORMS.items()
    ],
    ("aten::div", operator.truediv, FLOATS),
    ("aten::div.int", operator.truediv, INTEGERS),
    ("aten::div.float", operator.truediv, FLOATS),
    ("aten::pow.int", operator.pow, POSITIVE),
    ("aten::pow.float", operator.pow, [(7.5, 2.0), (2.0, 0.5)]),
    ("aten::pow.int_float", operator.pow, [(7, 0.5), (3, -0.5)]),
    ("aten::pow.float_int", operator.pow, [(7.5, 2), (2.0, -1)]),
    ("aten::pow.Scalar_Scalar", operator.pow, [(7.5, 2.0)]),
    ("aten::pow.int_to_int", operator.pow, POSITIVE),
    ("aten::__and__.bool", operator.and_, TRUTHS),
    ("aten::__or__.bool", operator.or_, TRUTHS),
    ("aten::__not__", operator.not_, [(True,), (False,)]),
    ("aten::neg.int", operator.neg, ONE_INTEGER),
    ("aten::neg.float", operator.neg, ONE_FLOAT),
    ("prim::abs.int", abs, ONE_INTEGER),
    ("prim::abs.float", abs, ONE_FLOAT),
    ("prim::abs.Scalar", abs, ONE_FLOAT),
    ("aten::sqrt.int", math.sqrt, [(4,), (7,)]),
    ("aten::sqrt.float", math.sqrt, [(2.5,)]),
    ("aten::sqrt.Scalar", math.sqrt, [(2.5,)]),
    ("aten::exp.int", math.exp, [(2,)]),
    ("aten::exp.float", math.exp, [(-2.5,)]),
    ("aten::exp.Scalar", math.exp, [(2.5,)]),
    ("aten::log.int", math.log, [(7,)]),
    ("aten::log.float", math.log, [(2.5,)]),
    ("aten::log.Scalar", math.log, [(2.5,)]),
    ("aten::fabs.int", math.fabs, [(-7,)]),
    ("aten::fabs.float", math.fabs, ONE_FLOAT),
    ("aten::fabs.Scalar", math.fabs, ONE_FLOAT),
    ("aten::floor.int", math.floor, ONE_INTEGER),
    ("aten::floor.float", math.floor, ONE_FLOAT),
    ("aten::floor.Scalar", math.floor, ONE_FLOAT),
    ("aten::ceil.int", math.ceil, ONE_INTEGER),
    ("aten::ceil.float", math.ceil, ONE_FLOAT),
    ("aten::ceil.Scalar", math.ceil, ONE_FLOAT),
    ("aten::round.int", float, ONE_INTEGER),
    ("aten::round.float", lambda a: float(round(a)), ONE_FLOAT),
    ("aten::round.Scalar", lambda a: float(round(a)), ONE_FLOAT),
    ("aten::Int.Scalar", int, ONE_FLOAT),
    ("aten::Int.Tensor", int, ONE_FLOAT),
    ("aten::IntImplicit", int, ONE_INTEGER),
    ("aten::Float.Scalar", float, ONE_INTEGER),
    ("aten::Float.Tensor", float, ONE_FLOAT),
    ("aten::FloatImplicit", float, ONE_FLOAT),
    ("aten::ScalarImplicit", float, ONE_FLOAT),
    ("aten::item", lambda a: a, ONE_INTEGER + ONE_FLOAT),
    ("aten::_local_scalar_dense", lambda a: a, ONE_INTEGER + ONE_FLOAT),
    ("aten::Bool.int", bool, ONE_INTEGER),
    ("aten::Bool.float", bool, ONE_FLOAT),
    ("aten::Bool.Tensor", bool, ONE_FLOAT),
]
CASTS = ("aten::to.prim_Device", "aten::to.prim_dtype")
TARGETS = (*(target for target, _, _ in CASES), *CASTS)


@pytest.mark.parametrize("opset", [9, 20])
@pytest.mark.parametrize(("target", "function", "numbers"), CASES, ids=TARGETS[: len(CASES)])
def test_number(target: str, function: Callable[..., Any], numbers: list[tuple[Any, ...]], opset: int) -> None:
    for operands in numbers:
        expected = function(*operands)
        expected = KINDS.get(returned(target), type(expected))(expected)
        found = run(target, operands, type(expected), opset)
        assert found == pytest.approx(expected, rel=1e-6), f"{target}{operands}"


def returned(target: str) -> str:
    """What the operator's schema says that it returns."""
    base, _, overload = target.partition(".")
    schemas = torch._C._jit_get_schemas_for_operator(base)
    return next(str(schema.returns[0].type) for schema in schemas if schema.overload_name == overload)


def run(target: str, operands: tuple[Any, ...], kind: type, opset: int) -> Any:
    """The call on `operands` as run-time inputs, lowered and computed by ONNX Runtime."""
    tensors = [torch.tensor(number) for number in operands]
    names = [parameter.name for parameter in signature(target).parameters]
    found = computed(target, dict(zip(names, tensors, strict=True)), ScalarType(kind), opset)
    assert found.shape == () and found.dtype.kind == {bool: "b", int: "i", float: "f"}[kind]
    return found.item()


@pytest.mark.parametrize("target", CASTS)
def test_cast_of_scripts(target: str) -> None:
    """The forms of `Tensor.to` that only scripts have."""
    found = computed(target, {"self": torch.tensor([1.5, -2.5])}, TensorType(torch.int32, (2,)), 13)
    assert found.tolist() == [1, -2] and found.dtype == "int32"


def computed(target: str, arguments: dict[str, torch.Tensor], type_: Any, opset: int) -> Any:
    """The call's result by ONNX Runtime; its operands are inputs of the graph."""
    tensors = list(arguments.values())
    inputs = [
        Input(AtenValue(TensorType(tensor.dtype, tuple(tensor.shape))), f"x{i}", "user")
        for i, tensor in enumerate(tensors)
    ]
    result = AtenValue(type_)
    call = Call(target, dict(zip(arguments, [item.value for item in inputs], strict=True)), [result])
    graph = AtenGraph(inputs, [call], [result], ["y"])
    lowered = lower_graph(graph, opset).graph
    assign_names(lowered)
    model = build_model(lowered, opset, "number")
    (found,) = run_ort(model.SerializeToString(), [tensor.numpy() for tensor in tensors])
    return found
