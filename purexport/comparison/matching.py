"""Which value of the file is which value of torch.

An export gives the same names to the same model, so a file of ours is paired with a new export by name.  A file of
another exporter is paired by content: a value of torch and a value of the file are the same where shape, dtype and
numbers agree, in the order of both.  A pair that is found by content is right by the way it was found; what has no
partner may be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

import proto_schema as ps
from proto_schema.graphs.names import free_names
from purexport.comparison.closeness import difference
from purexport.comparison.torch_values import Anchor
from purexport.runtime.verification import Tolerance

LEAST_ALIKE = 0.5  # of the nodes of a new export, to pair the two by names


def alike(file: ps.ModelProto, fresh: ps.ModelProto) -> float:
    """Which part of the nodes of `fresh` the file has under the same name: operator and first result."""
    mine = {_identity(node) for node in file.graph.node}
    theirs = [_identity(node) for node in fresh.graph.node]
    return sum(item in mine for item in theirs) / max(len(theirs), len(mine), 1)


def shared(file: ps.ModelProto, fresh: ps.ModelProto, quantizing: frozenset[int]) -> float:
    """Which part of the nodes of `fresh` the file has under the same name, whatever else it has.

    A node in fewer bits, as a `MatMulNBits`, counts as the one whose result it makes.
    """
    mine = {_identity(node) for node in file.graph.node}
    coded = {next(iter(file.graph.node[place].output), "") for place in quantizing}
    theirs = [_identity(node) for node in fresh.graph.node]
    return sum(item in mine or item[1] in coded for item in theirs) / max(len(theirs), 1)


def _identity(node: ps.NodeProto) -> tuple[str, str]:
    return node.op_type or "", next(iter(node.output), "")


def by_content(
    file: ps.ModelProto, values: Mapping[str, torch.Tensor], anchors: Sequence[Anchor], bounds: Tolerance
) -> dict[str, Anchor]:
    """The values of the file that are equal to one of torch, with that one: the first in the order of both."""
    waiting: dict[tuple[int, ...], list[str]] = {}
    for node in file.graph.node:
        for name in node.output:
            if name in values:
                waiting.setdefault(tuple(values[name].shape), []).append(name)
    found: dict[str, Anchor] = {}
    for anchor in anchors:
        if anchor.tensor.numel() < 2:  # a number is equal to too many others
            continue
        for name in waiting.get(tuple(anchor.tensor.shape), ()):
            if name not in found and difference(values[name], anchor.tensor, bounds, inside=True).close:
                found[name] = anchor
                break
    return found


def first_without_partner(
    fresh: ps.ModelProto, anchors: Sequence[Anchor], partners: Mapping[str, Anchor]
) -> Anchor | None:
    """The first value of torch that the file does not have, and on which nothing depends that the file has.

    What the file computes in another way (a fused operator) has no partner either, but what follows from it has one.
    """
    found = {anchor.name for anchor in partners.values()}
    fine = set(found)
    for node in reversed(fresh.graph.node):
        if not fine.isdisjoint(node.output):
            fine.update(free_names(node))
    return next((anchor for anchor in anchors if anchor.name not in fine and anchor.tensor.numel() > 1), None)
