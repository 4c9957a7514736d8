"""Operators that make tensors: constants, ranges, random numbers.

Random numbers come from numpy's Mersenne Twister. With a seed a node gives the same ones in each run; runtimes do not
agree on numbers.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.casting import cast
from proto_schema.compute.costs import WIDE, made, passes, sizes_in
from proto_schema.compute.elementwise import wide
from proto_schema.compute.moving import ints
from proto_schema.compute.rows import row
from proto_schema.onnx import SparseTensorProto, TensorProto
from proto_schema.tensors.arrays import to_array
from proto_schema.tensors.dtypes import DTYPES
from proto_schema.tensors.sparse import dense

_FLOAT, _INT64, _STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
_FORMS = {"value_float": _FLOAT, "value_floats": _FLOAT, "value_int": _INT64, "value_ints": _INT64}


def _constant_cost(call: Call) -> Cost:
    tensor, sparse = call.attribute("value"), call.attribute("sparse_value")
    dims = list(tensor.dims) if isinstance(tensor, TensorProto) else []
    if isinstance(sparse, SparseTensorProto):
        dims = list(sparse.dims)
    lists = sum(len(item) for item in call.attributes.values() if isinstance(item, (list, bytes)))
    return Cost(prod(dims) + lists, 2 * WIDE * (prod(dims) + lists))


@row("Constant", cost=_constant_cost)
def constant(call: Call) -> Any:
    """The value of the one attribute that is there."""
    tensor = call.attribute("value")
    if isinstance(tensor, TensorProto):
        return Typed(to_array(tensor), tensor.data_type or 0)
    sparse = call.attribute("sparse_value")
    if isinstance(sparse, SparseTensorProto):
        return Typed(*dense(sparse))
    for name, code in _FORMS.items():
        held = call.attribute(name)
        if held is not None:
            return Typed(np.array(held, DTYPES[code].numpy), code)
    for name in ("value_string", "value_strings"):
        held = call.attribute(name)
        if held is not None:
            texts = [held] if isinstance(held, (bytes, str)) else list(held)
            array = np.empty(len(texts), object)
            array[:] = [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in texts]
            return Typed(array.reshape(()) if name == "value_string" else array, _STRING)
    return call.fail("none of its attributes has a value")


def _filled_cost(call: Call, shape: Array) -> Cost:
    return made(sizes_in(shape), WIDE, scratch=0)


@row("ConstantOfShape", cost=_filled_cost)
def constant_of_shape(call: Call, shape: Array) -> Any:
    """One value everywhere, 0 of float32 without an attribute."""
    tensor = call.attribute("value")
    sizes = [int(size) for size in shape.reshape(-1)]
    if min(sizes, default=0) < 0:
        call.fail(f"the shape {sizes} has a negative size")
    if not isinstance(tensor, TensorProto):
        return Typed(np.zeros(sizes, np.float32), _FLOAT)
    held = to_array(tensor)
    return Typed(np.full(sizes, held.reshape(-1)[0], held.dtype), tensor.data_type or 0)


def _range_cost(call: Call, start: Array, limit: Array, delta: Array) -> Cost:
    first, last, step = (np.asarray(item).reshape(()).item() for item in (start, limit, delta))
    count = (last - first) / step if step else 0
    return made([int(count) + 1 if 0 <= count < 2.0**62 else 2**62 if count > 0 else 0], WIDE, times=4, scratch=4)


@row("Range", cost=_range_cost)
def range_(call: Call, start: Array, limit: Array, delta: Array) -> Any:
    """From start to limit, in steps of delta."""
    first, last, step = (np.asarray(item).reshape(()) for item in (start, limit, delta))
    if step == 0:
        call.fail("delta is 0")
    if first.dtype.kind in "iu":
        return np.arange(int(first), int(last), int(step)).astype(first.dtype)
    count = max(int(np.ceil((float(last) - float(first)) / float(step))), 0)
    return first + np.arange(count).astype(first.dtype) * step


@row("EyeLike", cost=passes(32))
def eye_like(call: Call, x: Array) -> Any:
    """Ones on a diagonal of a matrix of the input's shape."""
    if x.ndim != 2:
        call.fail(f"its input has rank {x.ndim}, not 2")
    code = call.attribute("dtype") or call.dtype(0)
    return _of(code, np.eye(x.shape[0], x.shape[1], k=call.attribute("k", 0)))


def _of(code: int, numbers: Array) -> Typed:
    source = TensorProto.DOUBLE if numbers.dtype == np.float64 else TensorProto.INT64
    return Typed(cast(numbers, source, code), code)


def _source(call: Call) -> np.random.RandomState:
    """The generator of a node; the bits of its seed, which is a float, seed it."""
    seed = call.attribute("seed")
    return np.random.RandomState(None if seed is None else struct.unpack("<I", struct.pack("<f", seed))[0])


def _uniform(call: Call, shape: tuple[int, ...]) -> Array:
    return _source(call).uniform(call.attribute("low", 0.0), call.attribute("high", 1.0), shape)


def _normal(call: Call, shape: tuple[int, ...]) -> Array:
    return _source(call).normal(call.attribute("mean", 0.0), call.attribute("scale", 1.0), shape)


def _shape_cost(call: Call) -> Cost:
    return made(ints(call, "shape", None) or (), WIDE, times=20, scratch=3)


def _like_cost(call: Call, x: Array) -> Cost:
    return made(x.shape, WIDE, times=20, scratch=4)


def _drawn_cost(call: Call, x: Array) -> Cost:
    drawn = x.shape[0] * max(0, int(call.attribute("sample_size", 1))) if x.ndim else 0
    return Cost(60 * (x.size + drawn), WIDE * drawn, 4 * WIDE * (x.size + drawn))


@row("RandomUniform", cost=_shape_cost)
def random_uniform(call: Call) -> Any:
    """Numbers that are equally likely between low and high."""
    return _of(call.attribute("dtype") or _FLOAT, _uniform(call, tuple(ints(call, "shape", None) or ())))


@row("RandomUniformLike", cost=_like_cost)
def random_uniform_like(call: Call, x: Array) -> Any:
    """As RandomUniform, in the shape and type of the input."""
    return _of(call.attribute("dtype") or call.dtype(0), _uniform(call, x.shape))


@row("RandomNormal", cost=_shape_cost)
def random_normal(call: Call) -> Any:
    """Numbers of a normal distribution."""
    return _of(call.attribute("dtype") or _FLOAT, _normal(call, tuple(ints(call, "shape", None) or ())))


@row("RandomNormalLike", cost=_like_cost)
def random_normal_like(call: Call, x: Array) -> Any:
    """As RandomNormal, in the shape and type of the input."""
    return _of(call.attribute("dtype") or call.dtype(0), _normal(call, x.shape))


@row("Bernoulli", cost=_like_cost)
def bernoulli(call: Call, x: Array) -> Any:
    """1 with the probability that the element says, else 0."""
    found = _source(call).uniform(0, 1, x.shape) < x
    return _of(call.attribute("dtype") or call.dtype(0), found.astype(np.float64))


@row("Multinomial", cost=_drawn_cost)
def multinomial(call: Call, x: Array) -> Any:
    """Samples of classes for each row of logarithms of their probabilities, which need not sum to 1."""
    logits = wide(x).astype(np.float64)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    edges = np.cumsum(weights, axis=1)
    drawn = _source(call).uniform(0, 1, (len(x), int(call.attribute("sample_size", 1)))) * edges[:, -1:]
    found = np.stack([np.searchsorted(edge, at, side="right") for edge, at in zip(edges, drawn, strict=True)])
    return _of(call.attribute("dtype") or TensorProto.INT32, np.minimum(found, x.shape[1] - 1).astype(np.int64))
