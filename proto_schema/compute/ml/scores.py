"""What regressors and classifiers of ai.onnx.ml share: the last transformation of scores, and the labels of classes.

The specification names the transformations and says no more. What they compute, and how one score of two classes
becomes two, is as in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from proto_schema.compute.call import Array, Call
from proto_schema.compute.texts.strings import texts

__all__ = ["TRANSFORMS", "classes", "labelled", "listed", "numbers", "transformed", "two_columns"]

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_PROBIT = 0.147  # of Winitzki's approximation of the inverse error function


def numbers(data: Array) -> Array:
    """The features as floats: double stays double, all else is float32. A vector is one row."""
    values = data if data.dtype == np.float64 else data.astype(np.float32)
    return values.reshape(1, -1) if values.ndim < 2 else values


def classes(call: Call) -> Array:
    """The labels of the classes: strings or int64."""
    names = call.attribute("classlabels_strings")
    if names:
        return np.array(texts(names), object)
    return np.array(call.attribute("classlabels_int64s") or call.attribute("classlabels_ints") or (), np.int64)


def labelled(labels: Array, places: Array) -> Array:
    """The label of each place."""
    return np.asarray(labels[np.clip(places, 0, len(labels) - 1)])


def transformed(call: Call, scores: Array, name: str = "") -> Array:
    """The scores (rows, classes) after `post_transform`, as float32. One score alone stays, but for PROBIT."""
    name = name or call.text("post_transform", "NONE")
    values = scores.astype(np.float32)
    if name == "NONE" or (values.shape[1] == 1 and name in TRANSFORMS and name != "PROBIT"):
        return values
    if name == "LOGISTIC":
        return _logistic(values)
    if name == "SOFTMAX":
        found = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(found / found.sum(axis=1, keepdims=True))
    if name == "SOFTMAX_ZERO":
        found = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
        found = np.where(np.abs(values) > 1e-7, found, np.float32(0))
        total = found.sum(axis=1, keepdims=True)
        return np.asarray(found / np.where(total == 0, np.float32(1), total))
    if name != "PROBIT":
        call.fail(f"post_transform is {name!r}, and may be {', '.join(TRANSFORMS)}")
    centred = 2 * values - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.log((1 - centred) * (1 + centred))
        first = 2 / (np.float32(3.14159) * np.float32(_PROBIT)) + logarithm / 2
        root = np.sqrt(np.sqrt(first * first - logarithm / np.float32(_PROBIT)) - first)
    return np.asarray(np.float32(1.41421356) * np.where(centred < 0, -root, root))


def _logistic(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-values)))


def two_columns(call: Call, score: Array, complement: bool) -> Array:
    """(rows, 2) of one score a row: behind the rest to 1 or, unless `complement`, behind its opposite.

    LOGISTIC makes probabilities of the score and its opposite, and the other transformations change nothing.
    """
    name = call.text("post_transform", "NONE")
    values = score.astype(np.float32).reshape(-1, 1)
    if name == "PROBIT":
        return transformed(call, values)
    if name == "LOGISTIC":
        return np.concatenate([_logistic(-values), _logistic(values)], axis=1)
    return np.concatenate([1 - values if complement else -values, values], axis=1)


def listed(call: Call, name: str) -> Sequence[Any]:
    """A list attribute, empty where the node has none."""
    return call.attribute(name) or ()
