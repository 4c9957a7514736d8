"""Scores that tie before an operator that chooses by their order.

`TopK` (which is also what a sort becomes), `ArgMax` and `ArgMin` choose by order.  Where scores are equal, or closer to
each other than the two sides are, either choice is right, and all that follows from it may differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

import proto_schema as ps
from proto_schema.tensors.attributes import get_attribute_value
from purexport.comparison.contributions import on_reference
from purexport.comparison.evidence import Evidence

_INDICES = {"TopK": 1, "ArgMax": 0, "ArgMin": 0}  # the place of the indices among the outputs


@dataclass(frozen=True)
class Ties:
    """The node that chooses, how many of its choices differ, and one pair of scores: their places and both numbers."""

    place: int
    count: int
    total: int
    at: tuple[int, ...]
    chosen: tuple[int, int]
    scores: tuple[float, float]
    apart: float  # the largest difference between the scores of the two sides

    def text(self, other: str) -> str:
        """In words; `other` is what the file is compared with."""
        one, another = self.scores
        gap = f"{abs(one - another):.1e} apart, where the two sides are {self.apart:.1e} apart"
        where = f" at {self.at}" if self.at else ""
        return (
            f"it chooses among scores that tie: {self.count:,} of {self.total:,} choices differ, only between scores "
            f"that are equal or as close as the two sides are; for example{where} element {self.chosen[0]} in the file "
            f"and element {self.chosen[1]} in {other}, whose scores are {one:.9g} and {another:.9g}, "
            f"{'equal' if one == another else gap}. Either choice is right, and what follows from it differs"
        )


def ties_before(evidence: Evidence, places: Iterable[int], wrong: str) -> Ties | None:
    """The first of these nodes whose choice differs from the reference's by nothing but ties.

    `wrong` is the first wrong value, which is the choice itself where an export writes more than one node for it.
    """
    for place in places:
        node = evidence.file.graph.node[place]
        found = _at(evidence, place, node, wrong) if node.op_type in _INDICES and not node.domain else None
        if found is not None:
            return found
    return None


def _at(evidence: Evidence, place: int, node: ps.NodeProto, wrong: str) -> Ties | None:
    indices = node.output[_INDICES[node.op_type or ""]] if len(node.output) > _INDICES[node.op_type or ""] else ""
    scores = evidence.found.values.get(node.input[0])
    mine = evidence.found.values.get(indices)
    anchor = evidence.anchors.get(indices)
    later = evidence.found.values.get(wrong)
    if anchor is None and mine is not None and later is not None and torch.equal(mine, later):
        anchor = evidence.anchors.get(wrong)
    right = on_reference(evidence, node.input[0])
    if scores is None or mine is None or anchor is None or right is None or scores.shape != right.shape:
        return None
    theirs = anchor.tensor.detach().cpu()
    if mine.shape != theirs.shape or theirs.is_floating_point():
        return None
    axis = _axis(node) % max(right.dim(), 1)
    mine, theirs = _aligned(mine, right, axis, node), _aligned(theirs, right, axis, node)
    wide, own = right.double(), scores.double()
    between = (wide - own).abs()
    between = between[between.isfinite()]
    apart = float(between.max()) if between.numel() else 0.0
    differs = mine != theirs
    if not bool(differs.any()):
        return None
    one, another = wide.gather(axis, mine.long()), wide.gather(axis, theirs.long())
    gaps = (one - another).abs()
    gaps[one == another] = 0.0
    if not bool((gaps[differs] <= 2 * apart).all()):
        return None
    at = tuple(int(item) for item in torch.nonzero(differs)[0])
    return Ties(
        place,
        int(differs.sum()),
        differs.numel(),
        at,
        (int(mine[at]), int(theirs[at])),
        (float(one[at]), float(another[at])),
        apart,
    )


def _axis(node: ps.NodeProto) -> int:
    usual = -1 if node.op_type == "TopK" else 0
    return next((int(get_attribute_value(item)) for item in node.attribute if item.name == "axis"), usual)


def _aligned(indices: torch.Tensor, scores: torch.Tensor, axis: int, node: ps.NodeProto) -> torch.Tensor:
    """The indices with as many axes as the scores: without `keepdims` an ArgMax leaves its axis out."""
    return indices.unsqueeze(axis) if indices.dim() < scores.dim() and node.op_type != "TopK" else indices
