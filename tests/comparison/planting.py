"""Faults planted into exported files: one change of one node or tensor each, drawn by a seed.

A fault is a copy of the file with a changed attribute, axis, constant, dtype, or with two inputs exchanged.  Whether it
matters is judged by ONNX Runtime alone: the outputs leave the bounds of `verify`, or the file does not run any more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

import proto_schema as ps
from proto_schema.graphs.names import free_names

AttributeProto = ps.AttributeProto
AXES = ("axis", "axes", "perm")
DIVISORS = ("group", "strides", "dilations")  # ONNX Runtime divides by them: a zero ends the process
DTYPES = (1, 6, 7, 9, 10, 11)


@dataclass(frozen=True)
class Fault:
    """A file with one fault, and the names of the nodes that a search may name: one, or all that take the tensor."""

    kind: str
    data: bytes
    nodes: frozenset[str]
    said: str


def faults(data: bytes, seed: int) -> Iterator[Fault]:
    """Endless faults of one file, of all kinds in turn."""
    draw = random.Random(seed)
    while True:
        for kind, plant in _KINDS.items():
            model = ps.loads(data)
            found = plant(model, draw)
            if found is not None:
                names, said = found
                yield Fault(kind, model.SerializeToString(), frozenset(names), said)


def matters(before: bytes, after: bytes, feed: Mapping[str, Any], rtol: float = 1e-3, atol: float = 1e-5) -> bool:
    """Whether the outputs of two files are further apart than the bounds, or the second does not run."""
    wanted = outputs(before, feed)
    found = outputs(after, feed)
    if wanted is None:
        raise AssertionError("the export itself does not run")
    if found is None:
        return True
    return not all(
        one.dtype == other.dtype and one.shape == other.shape and np.allclose(one, other, rtol, atol, equal_nan=True)
        for one, other in zip(found, wanted, strict=True)
    )


def outputs(data: bytes, feed: Mapping[str, Any]) -> list[Any] | None:
    """The outputs in ONNX Runtime; None where it refuses the file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        running = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return [np.asarray(item) for item in running.run(None, dict(feed))]
    except Exception:  # what it raises has no common base
        return None


def _name(node: ps.NodeProto) -> str:
    return node.name or node.output[0]


def _attribute(model: ps.ModelProto, draw: random.Random, axes: bool) -> tuple[list[str], str] | None:
    rows = [
        (node, item)
        for node in model.graph.node
        for item in node.attribute
        if (item.name in AXES) == axes and item.name not in ("to", "dtype") and _changes(item, draw) is not None
    ]
    if not rows:
        return None
    node, item = draw.choice(rows)
    change = _changes(item, draw)
    assert change is not None
    change()
    return [_name(node)], f"{item.name} of {_name(node)}"


def _changes(item: ps.AttributeProto, draw: random.Random) -> Callable[[], None] | None:
    def set_to(field: str, value: Any) -> Callable[[], None]:
        return lambda: setattr(item, field, value)

    if item.f is not None:
        return set_to("f", item.f * draw.choice([0.5, 3.0]) + draw.choice([0.0, 0.25]))
    if item.i is not None:
        return set_to("i", item.i + draw.choice([1] if item.name in DIVISORS else [-1, 1]))
    if item.ints:
        values, place = list(item.ints), draw.randrange(len(item.ints))
        if item.name == "perm" and len(values) > 1:
            other = (place + 1) % len(values)
            values[place], values[other] = values[other], values[place]
        else:
            values[place] += draw.choice([1] if item.name in DIVISORS else [-1, 1])
        return set_to("ints", values)
    return None


def _constant(model: ps.ModelProto, draw: random.Random) -> tuple[list[str], str] | None:
    tensors = [item for item in model.graph.initializer if (item.data_type or 0) in (1, 6, 7, 11) and _size(item)]
    if not tensors:
        return None
    tensor = draw.choice(tensors)
    array = np.array(ps.numpy_helper.to_array(tensor))
    flat = array.reshape(-1)
    if draw.random() < 0.5:
        flat[draw.randrange(flat.size)] += 1 if array.dtype.kind == "i" else 10
    else:
        flat += 1 if array.dtype.kind == "i" else array.std() + 0.5
    tensor.CopyFrom(ps.numpy_helper.from_array(array, tensor.name))
    users = [_name(node) for node in model.graph.node if tensor.name in set(free_names(node))]
    return (users, f"tensor {tensor.name}") if users else None


def _size(tensor: ps.TensorProto) -> int:
    return int(np.prod(tensor.dims))


def _dtype(model: ps.ModelProto, draw: random.Random) -> tuple[list[str], str] | None:
    rows = [
        (node, item) for node in model.graph.node for item in node.attribute if item.name == "to" and item.i is not None
    ]
    if rows and draw.random() < 0.7:
        node, item = draw.choice(rows)
        item.i = draw.choice([code for code in DTYPES if code != item.i])
        return [_name(node)], f"to of {_name(node)}"
    floats = [item for item in model.graph.initializer if item.data_type == 1 and _size(item)]
    if not floats:
        return None
    tensor = draw.choice(floats)
    array = ps.numpy_helper.to_array(tensor).astype(draw.choice([np.float64, np.float16]))
    tensor.CopyFrom(ps.numpy_helper.from_array(array, tensor.name))
    users = [_name(node) for node in model.graph.node if tensor.name in set(free_names(node))]
    return (users, f"dtype of tensor {tensor.name}") if users else None


def _swapped(model: ps.ModelProto, draw: random.Random) -> tuple[list[str], str] | None:
    rows = [node for node in model.graph.node if len(node.input) > 1 and len(set(node.input)) > 1]
    if not rows:
        return None
    node = draw.choice(rows)
    place = draw.randrange(len(node.input) - 1)
    inputs = list(node.input)
    inputs[place], inputs[place + 1] = inputs[place + 1], inputs[place]
    node.input[:] = inputs
    return [_name(node)], f"inputs {place} and {place + 1} of {_name(node)}"


_KINDS: Mapping[str, Callable[[ps.ModelProto, random.Random], tuple[list[str], str] | None]] = {
    "attribute": lambda model, draw: _attribute(model, draw, axes=False),
    "axis": lambda model, draw: _attribute(model, draw, axes=True),
    "constant": _constant,
    "dtype": _dtype,
    "swapped inputs": _swapped,
}
