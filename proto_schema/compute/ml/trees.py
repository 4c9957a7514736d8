"""Rows of tree ensembles.

All forms become one: arrays over the nodes of all trees, where leaves lead to themselves. Every row of the data walks
through all trees at once, one level a step. What the leaves say is added tree by tree
in the type of their weights, as ONNX Runtime does it: ties between classes depend on the rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import WIDE, pieces
from proto_schema.compute.ml.scores import TRANSFORMS, classes, labelled, listed, numbers, transformed, two_columns
from proto_schema.compute.rows import row
from proto_schema.onnx import TensorProto
from proto_schema.tensors.arrays import to_array

_DOMAIN = "ai.onnx.ml"
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
_MEMBER, _LEAF = 6, 7
_ROUNDS = ("AVERAGE", "SUM", "MIN", "MAX")
_STATES = 1 << 20
"""The most places in trees that are followed at a time."""


@dataclass(frozen=True, slots=True)
class _Trees:
    """Nodes of all trees. `members` are the values that a node of mode BRANCH_MEMBER takes."""

    roots: Array
    features: Array
    values: Array
    modes: Array
    true: Array
    false: Array
    missing_is_true: Array
    members: dict[int, Array]

    def leaves(self, call: Call, data: Array) -> Array:
        """(rows, trees): the leaf of each tree. How many levels that takes is seen on the way."""
        at: Array = np.broadcast_to(self.roots, (len(data), len(self.roots))).copy()
        rows = np.arange(len(data))[:, None]
        for _ in range(len(self.modes) + 1):
            call.spend(100 * at.size)
            inner = self.modes[at] != _LEAF
            if not inner.any():
                break
            features = data[rows, self.features[at]]
            taken = self._taken(at, features)
            at = np.where(inner, np.where(taken, self.true[at], self.false[at]), at)
        return at

    def _taken(self, at: Array, features: Array) -> Array:
        values, modes = self.values[at], self.modes[at]
        found = np.zeros(at.shape, np.bool_)
        compare = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
        for mode in np.unique(modes):
            if mode < len(compare):
                found = np.where(modes == mode, compare[mode](features, values), found)
            elif mode == _MEMBER:
                for node, members in self.members.items():
                    here = at == node
                    found[here] = np.isin(features[here], members)
        missing = np.isnan(features)
        return np.where(missing, self.missing_is_true[at], found) if missing.any() else found


@dataclass(frozen=True, slots=True)
class _Votes:
    """What leaves say: for each of them a run of (target, weight)."""

    starts: Array
    counts: Array
    targets: Array
    weights: Array

    def gathered(self, call: Call, leaves: Array, targets: int, how: str) -> tuple[Array, Array]:
        """(rows, targets) of all trees together, and whether any leaf said something."""
        start = {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0)
        scores = np.full((len(leaves), targets), start, self.weights.dtype)
        said = np.zeros(scores.shape, np.bool_)
        add = {"MIN": np.minimum, "MAX": np.maximum}.get(how, np.add)
        rows = np.broadcast_to(np.arange(len(leaves))[:, None], leaves.shape)
        for place in range(int(self.counts.max(initial=0))):
            call.spend(40 * leaves.size)
            some = self.counts[leaves] > place
            votes = self.starts[leaves[some]] + place
            add.at(scores, (rows[some], self.targets[votes]), self.weights[votes])
            said[rows[some], self.targets[votes]] = True
        scores = np.where(said, scores, scores.dtype.type(0))
        return (scores / max(1, leaves.shape[1]) if how == "AVERAGE" else scores), said


def _votes(nodes: Array, targets: Sequence[int], weights: Array, count: int) -> _Votes:
    """Votes sorted by leaf."""
    order = np.argsort(nodes, kind="stable")
    counts = np.bincount(nodes, minlength=count)
    return _Votes(np.cumsum(counts) - counts, counts, np.array(targets, np.int64)[order], weights[order])


def _tensor_or_list(call: Call, name: str) -> Array:
    """A list of float32, or the tensor that opset 3 has for doubles."""
    tensor = call.attribute(f"{name}_as_tensor")
    return np.array(listed(call, name), np.float32) if tensor is None else to_array(tensor).ravel()


def _older(call: Call, prefix: str) -> tuple[_Trees, _Votes]:
    """The trees of TreeEnsembleClassifier and TreeEnsembleRegressor, whose nodes are named by tree and node."""
    trees = np.array(listed(call, "nodes_treeids"), np.int64)
    ids = np.array(listed(call, "nodes_nodeids"), np.int64)
    place = {key: at for at, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    names = {name.encode(): code for code, name in enumerate(_MODES)}
    try:
        modes = np.array([names[bytes(name)] for name in listed(call, "nodes_modes")], np.int64)
    except KeyError as error:
        call.fail(f"nodes_modes has {error}, and may have {', '.join(_MODES)}")
    here = np.arange(len(modes))

    def linked(name: str) -> Array:
        keys = zip(trees.tolist(), listed(call, name), strict=True)
        try:
            found = [at if mode == _LEAF else place[key] for at, mode, key in zip(here, modes, keys, strict=True)]
        except KeyError as error:
            call.fail(f"{name} leads to {error}, a tree and a node that is not there")
        return np.array(found, np.int64)

    true, false = linked("nodes_truenodeids"), linked("nodes_falsenodeids")
    inner = modes != _LEAF
    below = np.zeros(len(modes), np.bool_)
    below[true[inner]] = below[false[inner]] = True
    # the root of a tree is its first node that none leads to
    tops = np.flatnonzero(~below)
    roots = tops[np.unique(trees[tops], return_index=True)[1]]
    tracks = listed(call, "nodes_missing_value_tracks_true") or [0] * len(modes)
    values = _tensor_or_list(call, "nodes_values")
    made = _Trees(
        roots,
        np.array(listed(call, "nodes_featureids"), np.int64),
        values,
        modes,
        true,
        false,
        np.array(tracks, np.bool_),
        {},
    )
    keys = zip(listed(call, f"{prefix}_treeids"), listed(call, f"{prefix}_nodeids"), strict=True)
    nodes = np.array([place[key] for key in keys], np.int64)
    return made, _votes(nodes, listed(call, f"{prefix}_ids"), _tensor_or_list(call, f"{prefix}_weights"), len(modes))


def _scored(call: Call, data: Array, trees: _Trees, votes: _Votes, targets: int, how: str) -> tuple[Array, Array]:
    values = numbers(data)
    if trees.features.size and trees.features.max() >= values.shape[1]:
        call.fail(f"a node asks for feature {trees.features.max()}, and the data has {values.shape[1]}")
    step = max(1, _STATES // max(1, len(trees.roots)))
    parts = [
        votes.gathered(call, trees.leaves(call, values[start : start + step]), targets, how)
        for start in range(0, max(len(values), 1), step)
    ]
    return np.concatenate([scores for scores, _ in parts]), np.concatenate([said for _, said in parts])


def _cost(call: Call, data: Array) -> Cost:
    """What the attributes become, and the scores. The levels of the trees count when they are walked."""
    held = sum(
        len(item) if isinstance(item, list) else prod(item.dims) if isinstance(item, TensorProto) else 0
        for item in call.attributes.values()
    )
    rows = data.size // max(1, data.shape[-1]) if data.ndim else 1
    roots = len(call.attribute("tree_roots") or ()) or min(held, len(set(listed(call, "nodes_treeids"))))
    labels = [len(call.attribute(f"classlabels_{kind}") or ()) for kind in ("strings", "int64s")]
    targets = max(1, call.attribute("n_targets", 1) or 1, *labels)
    part = 40 * min(rows * roots, _STATES + roots)
    return Cost(
        pieces(held) + 20 * rows * targets, WIDE * rows * targets, WIDE * (6 * rows * targets + 30 * held + part)
    )


@row("TreeEnsembleRegressor", domain=_DOMAIN, cost=_cost)
def tree_ensemble_regressor(call: Call, data: Array) -> Array:
    """(rows, targets): the votes of all leaves by `aggregate_function`, plus the base values."""
    trees, votes = _older(call, "target")
    how = call.text("aggregate_function", "SUM")
    if how not in _ROUNDS:
        call.fail(f"aggregate_function is {how!r}, and may be {', '.join(_ROUNDS)}")
    scores = _scored(call, data, trees, votes, call.attribute("n_targets", 1), how)[0]
    base = _tensor_or_list(call, "base_values")
    return transformed(call, scores + base if len(base) else scores)


@row("TreeEnsembleClassifier", domain=_DOMAIN, cost=_cost)
def tree_ensemble_classifier(call: Call, data: Array) -> tuple[Array, Array]:
    """The label of the best score among the classes with votes, and the scores of all classes.

    Where all leaves vote for one of two classes, its score decides: above 0.5 if no weight is negative, else above 0,
    the second class is meant. If it is the first that has the votes, its score is taken for that of the second, and
    the first gets the rest to 1, or the opposite.
    """
    labels, (trees, votes) = classes(call), _older(call, "class")
    count = max(1, len(labels))
    scores, said = _scored(call, data, trees, votes, count, "SUM")
    base, voted = _tensor_or_list(call, "base_values"), np.unique(votes.targets)
    if count != 2 or len(voted) != 1 or len(base) == count:
        if len(base) == count:
            scores, said = scores + base, np.ones_like(said)
        best = np.where(said, scores, -np.inf).argmax(axis=1)
        return labelled(labels, best), transformed(call, scores)
    score = scores[:, int(voted[0])]
    if len(base) and voted[0] == 0:
        score = score + float(base[0])
    positive = bool((votes.weights >= 0).all())
    best = labelled(labels, (score > (0.5 if positive else 0)).astype(np.int64))
    return best, transformed(call, scores) if voted[0] == 1 else two_columns(call, score, positive)


@row("TreeEnsemble", domain=_DOMAIN, cost=_cost)
def tree_ensemble(call: Call, data: Array) -> Array:
    """(rows, targets). Nodes and leaves are two lists; leaves come behind the nodes here."""
    kinds = to_array(call.attribute("nodes_modes")).astype(np.int64)
    splits = to_array(call.attribute("nodes_splits"))
    weights = to_array(call.attribute("leaf_weights"))
    nodes, leaves = len(kinds), len(weights)

    def linked(side: str) -> Array:
        places = np.array(listed(call, f"nodes_{side}nodeids"), np.int64)
        places = places + np.where(np.array(listed(call, f"nodes_{side}leafs"), np.bool_), nodes, 0)
        return np.concatenate([places, np.arange(nodes, nodes + leaves)])

    def filled(values: Any, kind: Any) -> Array:
        return np.concatenate([np.array(values, kind), np.zeros(leaves, kind)])

    tracks = listed(call, "nodes_missing_value_tracks_true") or [0] * nodes
    trees = _Trees(
        np.array(listed(call, "tree_roots"), np.int64),
        filled(listed(call, "nodes_featureids"), np.int64),
        filled(splits, splits.dtype),
        np.concatenate([kinds, np.full(leaves, _LEAF)]),
        linked("true"),
        linked("false"),
        filled(tracks, np.bool_),
        _members(call, kinds),
    )
    votes = _votes(np.arange(nodes, nodes + leaves), listed(call, "leaf_targetids"), weights, nodes + leaves)
    how = _ROUNDS[call.attribute("aggregate_function", 1)]
    scores, _ = _scored(call, data, trees, votes, call.attribute("n_targets"), how)
    name = TRANSFORMS[call.attribute("post_transform", 0)]
    return scores.astype(data.dtype) if name == "NONE" else transformed(call, scores, name)


def _members(call: Call, modes: Array) -> dict[int, Array]:
    """The values of each node of mode BRANCH_MEMBER; NaN ends those of a node."""
    tensor = call.attribute("membership_values")
    if tensor is None:
        return {}
    values = to_array(tensor).ravel()
    ends = np.flatnonzero(np.isnan(values))
    nodes = np.flatnonzero(modes == _MEMBER)
    starts = np.concatenate([[0], ends + 1])
    return {int(node): values[start:end] for node, start, end in zip(nodes, starts, [*ends, len(values)], strict=False)}
