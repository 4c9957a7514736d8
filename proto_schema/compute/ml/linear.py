"""Rows of linear models and support vector machines."""

from __future__ import annotations

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE, pieces
from proto_schema.compute.ml.scores import classes, labelled, listed, numbers, transformed, two_columns
from proto_schema.compute.rows import row

_DOMAIN = "ai.onnx.ml"
_SOFTENED = 1e-7  # how far pairwise probabilities stay from 0 and 1
_ENOUGH = 0.005  # divided by the number of classes: the accuracy of probabilities


def _cost(call: Call, data: Array) -> Cost:
    """A product of the features with what the attributes hold, and for pairs of classes a pass for each."""
    features = data.shape[-1] if data.ndim else 1
    rows = data.size // max(1, features)
    held = sum(len(item) for item in call.attributes.values() if isinstance(item, list))
    per_class = listed(call, "vectors_per_class")
    kinds, vectors = len(per_class), max(0, sum(per_class), call.attribute("n_supports", 0) or 0)
    pairs = kinds * kinds
    spread = vectors * features if call.text("kernel_type", "LINEAR") == "RBF" else 0
    targets = held // max(1, features) + 2 + vectors
    work = rows * (4 * held + 4 * spread + 40 * targets + 200 * pairs) + pieces(held + 10 * pairs)
    scratch = rows * (2 * spread + 8 * targets + 10 * pairs + 4 * kinds) + 8 * held + 4 * data.size
    return Cost(work, WIDE * rows * (targets + pairs), WIDE * scratch)


@row("LinearRegressor", domain=_DOMAIN, cost=_cost)
def linear_regressor(call: Call, data: Array) -> Array:
    """(rows, targets): the features times the coefficients, plus the intercepts."""
    return transformed(call, _linear(call, data, call.attribute("targets", 1)))


def _linear(call: Call, data: Array, targets: int) -> Array:
    values = numbers(data).astype(np.float32)
    coefficients = np.array(listed(call, "coefficients"), np.float32)
    if targets < 1 or len(coefficients) != targets * values.shape[1]:
        call.fail(f"{len(coefficients)} coefficients do not fit {targets} x {values.shape[1]} features")
    found = values @ coefficients.reshape(targets, -1).T
    intercepts = listed(call, "intercepts")
    return np.asarray(found + np.array(intercepts, np.float32) if intercepts else found)


@row("LinearClassifier", domain=_DOMAIN, cost=_cost)
def linear_classifier(call: Call, data: Array) -> tuple[Array, Array]:
    """The label of the best score, and the scores. One score serves two classes, by its sign."""
    labels = classes(call)
    targets = len(listed(call, "intercepts")) or len(listed(call, "coefficients")) // max(1, numbers(data).shape[1])
    scores = _linear(call, data, targets)
    if targets == 1 and len(labels) == 2:
        return labelled(labels, (scores[:, 0] > 0).astype(np.int64)), two_columns(call, scores, True)
    return labelled(labels, scores.argmax(axis=1)), transformed(call, scores)


# Support vector machines ---------------------------------------------------------------------------------------------


def _kernel(call: Call, values: Array, others: Array) -> Array:
    """(rows, vectors)."""
    kind, parameters = call.text("kernel_type", "LINEAR"), [*listed(call, "kernel_params"), 0.0, 0.0, 0.0]
    gamma, shift, degree = (np.float32(item) for item in parameters[:3])
    if kind == "RBF":
        squares = np.square(values[:, None].astype(np.float64) - others).sum(axis=-1)
        return np.asarray(np.exp(-gamma * squares).astype(np.float32))
    products = values @ others.T
    if kind == "LINEAR":
        return np.asarray(products)
    if kind == "POLY":
        return np.asarray((gamma * products + shift) ** degree)
    if kind == "SIGMOID":
        return np.asarray(np.tanh(gamma * products + shift))
    return call.fail(f"kernel_type is {kind!r}, and may be LINEAR, POLY, RBF or SIGMOID")


def _vectors(call: Call, count: int, features: int) -> Array:
    vectors = np.array(listed(call, "support_vectors"), np.float32)
    if count < 1 or len(vectors) != count * features:
        call.fail(f"{len(vectors)} numbers of support vectors do not fit {count} x {features}")
    return vectors.reshape(count, features)


@row("SVMRegressor", domain=_DOMAIN, cost=_cost)
def svm_regressor(call: Call, data: Array) -> Array:
    """(rows, 1); with `one_class` its sign."""
    values, count = numbers(data).astype(np.float32), call.attribute("n_supports", 0)
    coefficients = np.array(listed(call, "coefficients"), np.float32)
    others = _vectors(call, count, values.shape[1]) if count > 0 else coefficients.reshape(1, -1)
    found = _kernel(call, values, others) @ coefficients[:, None] if count > 0 else values @ others.T
    found = found + np.float32((*listed(call, "rho"), 0.0)[0])
    if call.attribute("one_class", 0):
        return np.asarray(np.where(found > 0, np.float32(1), np.float32(-1)))
    return transformed(call, found)


@row("SVMClassifier", domain=_DOMAIN, cost=_cost)
def svm_classifier(call: Call, data: Array) -> tuple[Array, Array]:
    """The label with the most votes of pairs of classes, and the pairs' scores or the classes' probabilities."""
    labels, values = classes(call), numbers(data).astype(np.float32)
    per_class, rho = listed(call, "vectors_per_class"), np.array(listed(call, "rho") or [0.0], np.float32)
    coefficients = np.array(listed(call, "coefficients"), np.float32)
    proba, probb = (np.array(listed(call, name), np.float32) for name in ("prob_a", "prob_b"))
    if not per_class:
        scores = values @ coefficients.reshape(-1, values.shape[1]).T + rho[0]
        best = scores.argmax(axis=1)
        if len(labels) == 2 and len(rho) == 1:
            best = np.where(scores.max(axis=1) > _between(coefficients), 1, best)
        return labelled(labels, best), transformed(call, scores)
    count, kinds = sum(per_class), len(per_class)
    kernel = _kernel(call, values, _vectors(call, count, values.shape[1]))
    shares = coefficients.reshape(kinds - 1, count)
    ends = np.cumsum(per_class)
    parts = [slice(end - size, end) for end, size in zip(ends.tolist(), per_class, strict=True)]
    scores, votes = [], np.zeros((len(values), kinds), np.int64)
    for one in range(kinds):
        for other in range(one + 1, kinds):
            found = kernel[:, parts[one]] @ shares[other - 1, parts[one]]
            found = found + kernel[:, parts[other]] @ shares[one, parts[other]] + rho[len(scores)]
            votes[np.arange(len(values)), np.where(found > 0, one, other)] += 1
            scores.append(found)
    pairs, best = np.stack(scores, axis=1), labelled(labels, votes.argmax(axis=1))
    if len(proba):
        return best, transformed(call, _chances(pairs, proba, probb, kinds))
    if pairs.shape[1] > 1:
        return best, transformed(call, pairs)
    return best, two_columns(call, pairs, call.text("post_transform", "NONE") != "NONE")


def _between(coefficients: Array) -> float:
    """The score between two classes: 0.5 if no coefficient is negative, so that scores are probabilities."""
    return 0.5 if (coefficients >= 0).all() else 0.0


def _chances(pairs: Array, proba: Array, probb: Array, kinds: int) -> Array:
    """Probabilities of classes from those of pairs (Wu, Lin, Weng 2004, second approach, as in libsvm)."""
    with np.errstate(over="ignore"):
        paired = 1 / (1 + np.exp(pairs * proba + probb))
    paired = np.clip(paired, _SOFTENED, 1 - _SOFTENED)
    table = np.zeros((len(pairs), kinds, kinds))
    place = 0
    for one in range(kinds):
        for other in range(one + 1, kinds):
            table[:, one, other], table[:, other, one] = paired[:, place], 1 - paired[:, place]
            place += 1
    matrix = -table.swapaxes(1, 2) * table
    matrix[:, range(kinds), range(kinds)] = np.square(table).sum(axis=1)
    chances = np.full((len(pairs), kinds), 1 / kinds)
    for _ in range(max(100, kinds)):
        products = np.einsum("nij,nj->ni", matrix, chances)
        total = (chances * products).sum(axis=1)
        going = np.abs(products - total[:, None]).max(axis=1) >= _ENOUGH / kinds
        if not going.any():
            break
        before = chances.copy()
        for kind in range(kinds):
            diagonal = matrix[:, kind, kind]
            change = (total - products[:, kind]) / diagonal
            chances[:, kind] += change
            total = (total + change * (change * diagonal + 2 * products[:, kind])) / (1 + change) ** 2
            products = (products + change[:, None] * matrix[:, kind]) / (1 + change)[:, None]
            chances /= (1 + change)[:, None]
        chances = np.where(going[:, None], chances, before)
    return chances.astype(np.float32)
