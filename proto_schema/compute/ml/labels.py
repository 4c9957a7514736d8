"""Rows of ai.onnx.ml that map between labels, categories, maps and tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call, Typed
from proto_schema.compute.costs import TEXT, WIDE, made, pieces
from proto_schema.compute.rows import row
from proto_schema.compute.texts.strings import mapped, texts
from proto_schema.onnx import TensorProto
from proto_schema.tensors.arrays import to_array

_DOMAIN = "ai.onnx.ml"
_NAN = "nan"  # a key that is equal to itself


def _listed_count(call: Call) -> int:
    """The numbers and texts of all attributes, which become tables."""
    return sum(
        len(item) if isinstance(item, list) else prod(item.dims) if isinstance(item, TensorProto) else 1
        for item in call.attributes.values()
    )


def _lookup_cost(call: Call, data: Array) -> Cost:
    known = _listed_count(call)
    return Cost(pieces(data.size + known), 2 * TEXT * data.size, 4 * TEXT * (known + data.size))


def _categories_cost(call: Call, data: Array) -> Cost:
    known = _listed_count(call)
    found = made([data.size, known], 4, times=2)
    return Cost(found.work + pieces(data.size + known), found.results, found.scratch + 4 * TEXT * (known + data.size))


def _map_cost(call: Call, data: dict[Any, Any]) -> Cost:
    known, places = len(data) + _listed_count(call), max(0, call.attribute("max_map", 1) or 0)
    return Cost(pieces(known) + 10 * places, WIDE * (known + places), WIDE * places + 4 * TEXT * known)


def _rows_cost(call: Call, data: Array) -> Cost:
    return Cost(pieces(data.size + _listed_count(call)), 4 * TEXT * data.size, 4 * TEXT * data.size)


def _taken_cost(call: Call, data: Array, places: Array) -> Cost:
    return made([data.size // max(1, data.shape[-1] if data.ndim else 1), places.size], data.itemsize)


def _beside_cost(call: Call, *inputs: Array) -> Cost:
    rows = max([1, *(item.shape[0] for item in inputs if item.ndim > 1)])
    wide = sum(max(0, size) for size in call.attribute("inputdimensions") or ())
    return made([rows, wide + sum(item.size // max(1, rows) + 1 for item in inputs)], 4, times=3)


@row("LabelEncoder", domain=_DOMAIN, cost=_lookup_cost)
def label_encoder(call: Call, data: Array) -> Array:
    """Each element looked up among the keys; opset 1 maps between strings and their places in a list."""
    if call.version == 1:
        names = texts(call.attribute("classes_strings") or ())
        if data.dtype == object:
            table: dict[Any, Any] = {name: place for place, name in reversed(list(enumerate(names)))}
            return _looked_up(table, call.attribute("default_int64", -1), data, np.int64)
        return _looked_up(dict(enumerate(names)), call.text("default_string", "_Unused"), data, object)
    keys, values = _listed(call, "keys")[0], _listed(call, "values")
    if len(keys) != len(values[0]):
        call.fail(f"{len(keys)} keys and {len(values[0])} values: as many are needed")
    default = call.attribute("default_tensor")
    if default is not None:
        held = to_array(default).ravel()
        missing = texts(held.tolist())[0] if held.dtype == object else held[0]
    elif values[1] is object or np.dtype(values[1]) == np.dtype(object):
        missing = call.text("default_string", "_Unused")
    else:
        kind = np.dtype(values[1])
        if kind == np.float64:  # of `values_tensor`: the default is the tensor's, and there is none
            missing = -0.0
        elif kind == np.float32:
            missing = call.attribute("default_float", -0.0)
        else:
            missing = call.attribute("default_int64", -1)
    table = dict(zip([_key(key) for key in keys], values[0], strict=True))
    return _looked_up(table, missing, data, values[1])


def _listed(call: Call, side: str) -> tuple[list[Any], Any]:
    """The keys or the values, and the type of a tensor of them."""
    for name, kind in (("floats", np.float32), ("int64s", np.int64), ("strings", object)):
        found = call.attribute(f"{side}_{name}")
        if found:
            return (texts(found) if kind is object else np.array(found, kind).tolist()), kind
    tensor = call.attribute(f"{side}_tensor")
    if tensor is None:
        call.fail(f"none of the attributes {side}_* is given")
    held = to_array(tensor).ravel()
    return (texts(held.tolist()) if held.dtype == object else held.tolist()), held.dtype


def _key(item: Any) -> Any:
    return _NAN if isinstance(item, float) and math.isnan(item) else item


def _looked_up(table: Mapping[Any, Any], missing: Any, data: Array, dtype: Any) -> Array:
    return mapped(lambda item: table.get(_key(item), missing), data, dtype)


@row("CategoryMapper", domain=_DOMAIN, cost=_lookup_cost)
def category_mapper(call: Call, data: Array) -> Array:
    """Strings to integers, or integers to strings."""
    names, numbers = texts(call.attribute("cats_strings") or ()), call.attribute("cats_int64s") or ()
    if len(names) != len(numbers):
        call.fail(f"cats_strings has {len(names)} items, and cats_int64s {len(numbers)}")
    if data.dtype == object:
        table: dict[Any, Any] = dict(zip(names, numbers, strict=True))
        return _looked_up(table, call.attribute("default_int64", -1), data, np.int64)
    table = dict(zip(numbers, names, strict=True))
    return _looked_up(table, call.text("default_string", "_Unused"), data, object)


@row("OneHotEncoder", domain=_DOMAIN, cost=_categories_cost)
def one_hot_encoder(call: Call, data: Array) -> Array:
    """A new last axis with 1 at the place of the category."""
    names = call.attribute("cats_strings")
    known: Sequence[Any] = texts(names) if names else call.attribute("cats_int64s") or ()
    table = {key: place for place, key in reversed(list(enumerate(known)))}
    values = data if data.dtype == object else data.astype(np.int64)
    places = mapped(lambda item: table.get(item, -1), values, np.int64)
    if not call.attribute("zeros", 1) and (places < 0).any():
        call.fail("an element is none of the categories, and zeros is 0")
    return np.asarray(places[..., None] == np.arange(len(known))).astype(np.float32)


@row("CastMap", domain=_DOMAIN, cost=_map_cost)
def cast_map(call: Call, data: dict[Any, Any]) -> Array | Typed:
    """(1, values) in the order of the keys, or with each at the place of its key."""
    kind = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}.get(call.text("cast_to", "TO_FLOAT"))
    if kind is None:
        call.fail(f"cast_to is {call.text('cast_to')!r}, and may be TO_FLOAT, TO_INT64 or TO_STRING")
    items = sorted(data.items())
    fill: Any = "0" if kind is object else 0  # ONNX Runtime writes "0" for what a sparse map of strings leaves out
    if call.text("map_form", "DENSE") == "SPARSE":
        result = np.full(call.attribute("max_map", 1), fill, kind)
        for key, value in items:
            if not 0 <= key < len(result):
                call.fail(f"the key {key} is outside of max_map, {len(result)}")
            result[key] = _cast(value, kind)
    else:
        result = np.empty(len(items), kind)
        result[:] = [_cast(value, kind) for _, value in items]
    return result.reshape(1, -1)


def _cast(value: Any, kind: Any) -> Any:
    if kind is object:
        return value if isinstance(value, str) else f"{float(value):f}"
    number = float(value)
    return int(number) if kind is np.int64 else number


@row("DictVectorizer", domain=_DOMAIN, cost=_map_cost)
def dict_vectorizer(call: Call, data: dict[Any, Any]) -> Array:
    """(1, vocabulary): the value of each word; zeros, or empty strings, for those that the map lacks."""
    names = call.attribute("string_vocabulary")
    words: Sequence[Any] = texts(names) if names else call.attribute("int64_vocabulary") or ()
    values = [data.get(word) for word in words]
    found = next(iter(data.values()), np.float32(0))
    kind = object if isinstance(found, str) else np.asarray(found).dtype
    result = np.full(len(words), "" if kind is object else 0, kind)
    for place, value in enumerate(values):
        if value is not None:
            result[place] = value
    return result.reshape(1, -1)


@row("ZipMap", domain=_DOMAIN, cost=_rows_cost)
def zip_map(call: Call, data: Array) -> list[Any]:
    """A map for each row: its numbers by class."""
    names = call.attribute("classlabels_strings")
    keys: Sequence[Any] = texts(names) if names else call.attribute("classlabels_int64s") or ()
    rows = data.reshape(1, -1) if data.ndim < 2 else data
    if rows.ndim != 2 or rows.shape[1] != len(keys):
        call.fail(f"data of shape {data.shape} does not have {len(keys)} columns, one a class")
    return [dict(zip(keys, row_, strict=True)) for row_ in rows.astype(np.float32)]


@row("ArrayFeatureExtractor", domain=_DOMAIN, cost=_taken_cost)
def array_feature_extractor(call: Call, data: Array, places: Array) -> Array:
    """The elements of the last axis at these places; a vector becomes one row."""
    chosen = places.ravel()
    if chosen.size and (chosen.min() < 0 or chosen.max() >= data.shape[-1]):
        call.fail(f"an index is outside of the last axis of {data.shape[-1]}")
    found = data.take(chosen, axis=-1)
    return found.reshape(1, -1) if data.ndim == 1 else found


@row("FeatureVectorizer", domain=_DOMAIN, cost=_beside_cost)
def feature_vectorizer(call: Call, *inputs: Array) -> Array:
    """All inputs side by side as float32, each cut or filled with zeros to its size of `inputdimensions`."""
    sizes = call.attribute("inputdimensions") or [item.shape[-1] if item.ndim else 1 for item in inputs]
    if len(sizes) != len(inputs):
        call.fail(f"inputdimensions has {len(sizes)} numbers, and there are {len(inputs)} inputs")
    parts = []
    for item, size in zip(inputs, sizes, strict=True):
        flat = item.reshape(1, -1) if item.ndim < 2 else item.reshape(item.shape[0], -1)
        part = np.zeros((flat.shape[0], size), np.float32)
        part[:, : flat.shape[1]] = flat[:, :size]
        parts.append(part)
    return np.concatenate(parts, axis=1)
