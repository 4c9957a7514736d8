"""Inference rows on symbolic sizes: what they say, and that ONNX Runtime says the same wherever the node runs.

The sizes of each row are replaced by numbers, 0 and 1 among them, and the node runs on tensors of these shapes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as errors

import proto_schema as ps
from proto_schema import operators
from proto_schema.inference import rows
from proto_schema.inference.site import ABSENT, Misfit, Scope, Site
from proto_schema.inference.types import OptionalOf, SequenceOf, Tensor, Type
from proto_schema.sizes import Size, parse
from tests.proto_schema.inference_rows import BACK, FAR, REFUSED, THEMES, Row

OPSET = 21
ROWS = [(theme, row) for theme, found in THEMES.items() for row in found]
NUMBERS = (0, 1, 2, 3, 5, 8)
AT_NONE = {"Einsum", "ReduceSum", "ReduceL2", "ReduceMean", "ArgMax", "ArgMin"}
"""Operators whose kernels end the process, or give the shape of the input, where an axis has size 0."""
REFUSALS = (errors.Fail, errors.InvalidArgument, errors.RuntimeException)
QUIET = 4  # ONNX Runtime's severity at which only what is fatal is logged


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split("|")] if text.strip() else []


def _size(text: str) -> Any:
    if text in ("_", "?"):
        return None
    return float(text) if "." in text else parse(text)


def _type(text: str) -> Any:
    """The type that an input's text says."""
    if text == "-":
        return ABSENT
    if text == "*":
        return Tensor(onnx.TensorProto.FLOAT)
    head, mark, content = text.partition("=")
    if text.startswith("#"):
        return Tensor(onnx.TensorProto.INT64, (), (_size(text[1:].strip()),))
    if mark:
        found = tuple(map(_size, _items(content)))
        return Tensor(_dtype(head.strip() or "int64"), (len(found),), found)
    name, colon, shape = text.removeprefix("unknown ").rpartition(":")
    return Tensor(_dtype(name if colon else "float"), tuple(map(parse, _items(shape))))


def _dtype(name: str) -> int:
    return int(onnx.TensorProto.DataType.Value(name.upper()))


def _inferred(op: str, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int, outputs: int) -> list[Any]:
    values = {name: _attribute(value) for name, value in attributes.items()}
    schema = operators.schema(op, opset)
    assert schema is not None and schema.name == op
    return rows.infer(Site(schema, inputs, values, outputs, Scope()))


def _attribute(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, np.ndarray):
        return ps.TensorProto.FromString(numpy_helper.from_array(value).SerializeToString())
    return value


def _written(found: Tensor) -> str:
    """A type as the rows write it."""
    name = onnx.TensorProto.DataType.Name(found.dtype).lower()
    shape = "*" if found.shape is None else "|".join(map(_shown, found.shape))
    text = shape if name == "float" else f"{name}:{shape}"
    return text if found.content is None else f"{text} = {'|'.join(map(_shown, found.content))}"


def _shown(item: Any) -> str:
    if item is None:
        return "_"
    return "?" if isinstance(item, Size) and item.name is not None and item.name.startswith("unk__") else str(item)


def _unpacked(row: Row) -> tuple[str, list[str], list[str], dict[str, Any], int]:
    return (*row[:4], row[4] if len(row) > 4 else OPSET)  # type: ignore[return-value,misc]


@pytest.mark.parametrize(("theme", "row"), ROWS, ids=[f"{theme}-{row[0]}" for theme, row in ROWS])
def test_symbolic(theme: str, row: Row) -> None:
    op, inputs, outputs, attributes, opset = _unpacked(row)
    types = [_type(text) for text in inputs]
    found = _inferred(op, types, attributes, opset, len(outputs))
    assert [_written(item) for item in found] == outputs
    if not any(mark in text for text in inputs for mark in ("_", "*", "unknown")):
        ran = [_agrees(run, types, found) for run in _runs(op, types, attributes, opset, len(outputs))]
        assert sum(ran) >= (2 if len(ran) > 1 else 1)


# The same in numbers -------------------------------------------------------------------------------------------------

Run = tuple[dict[str, int], list["np.ndarray[Any, Any]"]]


def _runs(
    op: str, types: Sequence[Any], attributes: Mapping[str, Any], opset: int, outputs: int
) -> Iterator[Run | None]:
    """The results of the node for some values of the symbols; None where it does not run."""
    model = _model(op, types, attributes, opset, outputs)
    session = _session(model)
    at_none = ReferenceEvaluator(model) if op in AT_NONE else session
    symbols = sorted({name for type_ in types if type_ is not ABSENT for name in _symbols(type_)})
    draw = random.Random(len(symbols))
    for values in _assignments(symbols, draw):
        feeds = {f"x{place}": _tensor(type_, values) for place, type_ in enumerate(types) if type_ is not ABSENT}
        if any(array is None for array in feeds.values()):
            yield None
            continue
        try:
            yield values, (at_none if 0 in values.values() else session).run(None, feeds)
        except REFUSALS:
            yield None


def _assignments(symbols: Sequence[str], draw: random.Random) -> Iterator[dict[str, int]]:
    if not symbols:
        yield {}
        return
    for number in NUMBERS:
        yield dict.fromkeys(symbols, number)
    for _ in range(8):
        yield {name: draw.choice(NUMBERS) for name in symbols}


def _symbols(type_: Tensor) -> set[str]:
    sizes = [*(type_.shape or ()), *(type_.content or ())]
    return {name for size in sizes if isinstance(size, Size) for name in size.symbols}


def _tensor(type_: Tensor, values: Mapping[str, int]) -> Any:
    """Zeros, or the content; None where a size is negative."""
    shape = [_at(size, values) for size in type_.shape or ()]
    if any(size < 0 for size in shape):
        return None
    if type_.dtype == onnx.TensorProto.STRING:
        return np.full(shape, "a", dtype=object)
    dtype = helper.tensor_dtype_to_np_dtype(type_.dtype)
    if type_.content is None:
        return np.ones(shape, dtype) if type_.dtype == onnx.TensorProto.FLOAT else np.zeros(shape, dtype)
    return np.array([_at(item, values) for item in type_.content], dtype).reshape(shape)


def _at(item: Any, values: Mapping[str, int]) -> Any:
    return item.at(values) if isinstance(item, Size) else item


def _model(op: str, types: Sequence[Any], attributes: Mapping[str, Any], opset: int, outputs: int) -> onnx.ModelProto:
    made = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attributes.items()}
    names = ["" if type_ is ABSENT else f"x{place}" for place, type_ in enumerate(types)]
    node = helper.make_node(op, names, [f"y{place}" for place in range(outputs)], **made)
    inputs = [
        helper.make_tensor_value_info(
            name, type_.dtype, [size if isinstance(size, int) else None for size in type_.shape]
        )
        for name, type_ in zip(names, types, strict=True)
        if name
    ]
    results = [onnx.ValueInfoProto(name=f"y{place}") for place in range(outputs)]
    return helper.make_model(
        helper.make_graph([node], "graph", inputs, results),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _agrees(run: Run | None, types: Sequence[Any], found: Sequence[Tensor]) -> bool:
    """Whether the node ran.  What it gave must be what was inferred."""
    if run is None:
        return False
    values, results = run
    for type_, array in zip(found, results, strict=True):
        assert type_.shape is not None and len(type_.shape) == array.ndim
        known = [(size, number) for size, number in zip(type_.shape, array.shape, strict=True) if _shown(size) != "?"]
        assert [_at(size, values) for size, _ in known] == [number for _, number in known], (values, array.shape)
        if type_.content is not None:
            items = [item if item is None else _at(item, values) for item in type_.content]
            assert [number if item is None else item for item, number in zip(items, array.flat, strict=True)] == [
                *array.flat
            ], values
    return True


def test_random_slices_take_what_onnx_runtime_takes() -> None:
    """Bounds of unknown sign, beyond either end, and counted from either end; steps in both directions."""
    draw = random.Random(7)
    bounds = [
        "0",
        "1",
        "-1",
        "-2",
        "4",
        str(FAR),
        str(BACK),
        "s",
        "-s",
        "s - 1",
        "t - s",
        "-s - 1",
        "s//2",
        "p + s - 1",
    ]
    types = [_type("s"), *[_type("= 0")] * 4]
    session = _session(_model("Slice", types, {}, OPSET, 1))
    for _ in range(400):
        # the runtime takes the far end for "all" with steps in both directions, the specification only forwards
        size, step = draw.choice(["s", "t", "p + s", "3", "0", "1"]), draw.choice([1, 1, 1, 2, 3, -1, -2])
        texts = [size, f"= {draw.choice(bounds)}", f"= {draw.choice(bounds)}", "= 0", f"= {step}"]
        if step < 0 and texts[2] == f"= {FAR}":
            continue
        given = [_type(text) for text in texts]
        found = _inferred("Slice", given, {}, OPSET, 1)
        for _ in range(4):
            values = {name: draw.choice((0, 1, 2, 3, 5)) for name in "pst"}
            (result,) = session.run(None, {f"x{place}": _tensor(item, values) for place, item in enumerate(given)})
            assert tuple(_at(size, values) for size in found[0].shape) == result.shape, (texts, values)


@pytest.mark.parametrize(("op", "inputs", "attributes", "error"), REFUSED)
def test_refused(op: str, inputs: list[str], attributes: dict[str, Any], error: str) -> None:
    with pytest.raises(Misfit) as caught:
        _inferred(op, [_type(text) for text in inputs], attributes, OPSET, 2 if op in ("Split", "TopK") else 1)
    assert error in str(caught.value)


@pytest.mark.parametrize(("theme", "row"), ROWS, ids=[f"{theme}-{row[0]}" for theme, row in ROWS])
def test_nothing_known_is_no_error(theme: str, row: Row) -> None:
    op, inputs, outputs, attributes, opset = _unpacked(row)
    unknown: list[Any] = [ABSENT if text == "-" else None for text in inputs]
    assert len(_inferred(op, unknown, attributes, opset, len(outputs))) == len(outputs)
    ranked = [ABSENT if item is ABSENT else Tensor(item.dtype) for item in map(_type, inputs)]
    assert len(_inferred(op, ranked, attributes, opset, len(outputs))) == len(outputs)


# Sequences and optionals ---------------------------------------------------------------------------------------------


def _tensors(*texts: str) -> list[Type | None]:
    return [_type(text) for text in texts]


# operator, inputs, attributes, what it makes
SEQUENCES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("SequenceEmpty", [], {"dtype": 7}, "seq(int64:*)"),
    ("SequenceConstruct", _tensors("b|3", "b|s"), {}, "seq(b|?)"),
    ("SequenceConstruct", _tensors("b|3", "b"), {}, "seq(*)"),
    ("SequenceAt", [SequenceOf(_type("b|s")), _type("# 0")], {}, "b|s"),
    ("SequenceInsert", [SequenceOf(_type("b|s")), _type("b|4")], {}, "seq(b|?)"),
    ("SequenceErase", [SequenceOf(_type("b|s"))], {}, "seq(b|s)"),
    ("SequenceLength", [SequenceOf(_type("b|s"))], {}, "int64:"),
    ("ConcatFromSequence", [SequenceOf(_type("b|s"))], {"axis": 1}, "b|?"),
    ("ConcatFromSequence", [SequenceOf(_type("b|s"))], {"axis": -1, "new_axis": 1}, "b|s|?"),
    ("SplitToSequence", _tensors("b|s"), {"axis": 1}, "seq(b|1)"),
    ("SplitToSequence", _tensors("b|s"), {"axis": 1, "keepdims": 0}, "seq(b)"),
    ("SplitToSequence", _tensors("b|2*s", "# 2"), {"axis": 1}, "seq(b|2)"),
    ("SplitToSequence", _tensors("b|s", "# 2"), {"axis": 1}, "seq(b|?)"),
    ("SplitToSequence", _tensors("b|5", "= 2|3"), {"axis": 1}, "seq(b|?)"),
    ("Optional", _tensors("b|s"), {}, "optional(b|s)"),
    ("OptionalGetElement", [OptionalOf(_type("b|s"))], {}, "b|s"),
    ("OptionalGetElement", _tensors("b|s"), {}, "b|s"),
    ("OptionalHasElement", [OptionalOf(_type("b|s"))], {}, "bool:"),
    ("OptionalHasElement", _tensors("b|s"), {}, "bool: = True"),
    ("OptionalHasElement", [], {}, "bool: = False"),
    ("TfIdfVectorizer", _tensors("int64:b|s"), {"ngram_indexes": [0, 6, 2]}, "b|7"),
    ("ImageDecoder", _tensors("uint8:s"), {"pixel_format": "Grayscale"}, "uint8:?|?|1"),
    (
        "QLinearMatMul",
        _tensors("uint8:b|s|4", "", "uint8:", "uint8:4|d", "", "uint8:", "", "uint8:"),
        {},
        "uint8:b|s|d",
    ),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "made"), SEQUENCES)
def test_not_run(op: str, inputs: list[Any], attributes: dict[str, Any], made: str) -> None:
    (found,) = _inferred(op, inputs, attributes, OPSET, 1)
    assert _whole(found) == made


def _whole(found: Type | None) -> str:
    if isinstance(found, SequenceOf):
        return f"seq({_whole(found.element)})"
    if isinstance(found, OptionalOf):
        return f"optional({_whole(found.element)})"
    assert isinstance(found, Tensor)
    return _written(found)
