"""Shape inference beside the official one: on every node case, and on every model that the official package ships.

A dimension may be better known here, never different; the data of the node cases must fit what is inferred.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import proto_schema as ps
from proto_schema import operators
from proto_schema.inference import rows
from proto_schema.shape_inference import infer_shapes

CHUNKS = 4
SHIPPED = sorted((Path(onnx.__file__).parent / "backend/test/data").rglob("*.onnx"))
# these declare a sequence of scalars, and insert vectors
LYING = {"test_loop13_seq", "test_loop16_seq_none"}


def form(value: onnx.ValueInfoProto) -> tuple[Any, ...]:
    """The type as plain values: kind, dtype and sizes of a tensor (None for unknown ones), or kind and inner type."""
    kind = value.type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(value.type, kind)
        if not tensor.HasField("shape"):
            return kind, tensor.elem_type, None
        sizes = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim]
        return kind, tensor.elem_type, sizes
    if kind in ("sequence_type", "optional_type"):
        inner = onnx.ValueInfoProto()
        inner.type.CopyFrom(getattr(value.type, kind).elem_type)
        return kind, form(inner)
    return (kind,)


def worse(theirs: tuple[Any, ...], ours: tuple[Any, ...]) -> bool:
    """Whether ours is less known, or different."""
    if theirs[0] is None:
        return False
    if theirs[0] != ours[0]:
        return True
    if theirs[0] in ("sequence_type", "optional_type"):
        return worse(theirs[1], ours[1])
    if len(theirs) == 1:
        return False
    if theirs[1] and theirs[1] != ours[1]:
        return True
    if theirs[2] is None:
        return False
    if ours[2] is None or len(theirs[2]) != len(ours[2]):
        return True
    return any(isinstance(one, int) and one != other for one, other in zip(theirs[2], ours[2], strict=True))


def values(graph: onnx.GraphProto) -> dict[str, tuple[Any, ...]]:
    return {item.name: form(item) for item in (*graph.value_info, *graph.output)}


def compared(model: onnx.ModelProto) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
    """What we infer, and where that is worse than what the official package infers."""
    made = infer_shapes(model.SerializeToString(), strict_mode=True, check_type=True)
    ours = values(onnx.ModelProto.FromString(made.SerializeToString()).graph)
    theirs = values(onnx.shape_inference.infer_shapes(model, data_prop=True).graph)
    return ours, [
        f"{name}: {theirs[name]}, ours {ours.get(name)}"
        for name in theirs
        if worse(theirs[name], ours.get(name, ("",)))
    ]


@cache
def cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(collect_testcases(None))


def fits(form: tuple[Any, ...], data: Any) -> bool:
    """Whether data is of an inferred type; each unknown size fits."""
    if form[0] == "sequence_type":
        return isinstance(data, list) and all(fits(form[1], item) for item in data)
    if form[0] == "optional_type":
        return data is None or fits(form[1], data)
    if form[2:] == (None,):
        return True
    if isinstance(data, onnx.TensorProto):
        dtype, shape = data.data_type, tuple(data.dims)
    else:
        dtype, shape = onnx.helper.np_dtype_to_tensor_dtype(np.asarray(data).dtype), np.shape(data)
    if form[0] != "tensor_type" or form[1] != dtype or len(form[2]) != len(shape):
        return False
    return all(isinstance(size, str) or size == there for size, there in zip(form[2], shape, strict=True))


def test_there_are_enough() -> None:
    assert len(cases()) >= 1884
    assert len(SHIPPED) >= 80


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_node_cases(chunk: int) -> None:
    wrong = []
    for case in cases()[chunk::CHUNKS]:
        model = onnx.ModelProto.FromString(case.model.SerializeToString())
        for output in model.graph.output:
            output.ClearField("type")
        if case.name in LYING:
            continue
        ours, different = compared(model)
        wrong += [f"{case.name}: {text}" for text in different]
        for _, results in case.data_sets or []:
            for output, data in zip(model.graph.output, results, strict=False):
                if not fits(ours[output.name], data):
                    wrong.append(f"{case.name}: {output.name} is {ours[output.name]}, and the data is another")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", SHIPPED, ids=[path.parent.name + "/" + path.stem for path in SHIPPED])
def test_shipped_models(path: Path) -> None:
    model = onnx.load(path)
    _, different = compared(model)
    assert not different, "\n".join(different)
    for output in model.graph.output:
        output.ClearField("type")
    _, different = compared(model)
    assert not different, "\n".join(different)


def all_operators() -> Iterator[tuple[str, str]]:
    for domain in operators.domains():
        for name in operators.operators(operators.newest_opset(domain), domain):
            yield domain, name


def test_each_operator_has_a_row() -> None:
    assert [key for key in all_operators() if key not in rows.table()] == []


def test_a_row_is_of_an_operator() -> None:
    assert [f"{domain} {name}" for domain, name in rows.table() if not operators.versions(name, domain)] == []


@pytest.mark.parametrize(
    ("theirs", "ours", "verdict"),
    [
        (("tensor_type", 1, [2, 3]), ("tensor_type", 1, [2, 3]), False),
        (("tensor_type", 1, ["n", 3]), ("tensor_type", 1, [2, 3]), False),
        (("tensor_type", 1, None), ("tensor_type", 1, [2]), False),
        (("tensor_type", 1, [2, 3]), ("tensor_type", 1, [2, 4]), True),
        (("tensor_type", 1, [2, 3]), ("tensor_type", 1, ["n", 3]), True),
        (("tensor_type", 1, [2]), ("tensor_type", 1, None), True),
        (("tensor_type", 1, [2]), ("tensor_type", 7, [2]), True),
        (("sequence_type", ("tensor_type", 1, [2])), ("sequence_type", ("tensor_type", 1, [3])), True),
    ],
)
def test_the_comparison_sees(theirs: tuple[Any, ...], ours: tuple[Any, ...], verdict: bool) -> None:
    assert worse(theirs, ours) is verdict


def test_ps_names_it() -> None:
    assert ps.shape_inference.infer_shapes is infer_shapes
