"""The examples that torch.export is given: no dynamic axis of size 0 or 1, and sums of axes stay sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

import purexport
from purexport.frontends.export.examples import enlarged
from tests.tolerances import EXACT, assert_near

BATCH, SEQ, PAST, TOTAL = Dim("batch"), Dim("seq"), Dim("past"), Dim("total")
CACHE: list[dict[int, Any]] = [{0: BATCH, 1: SEQ}, {0: BATCH, 1: TOTAL}, {0: BATCH, 1: PAST}]

# (shapes, what is declared of each, the shapes of the proposals in order)
ROWS: dict[str, tuple[list[Any], list[dict[int, Any]], list[list[Any]]]] = {
    "nothing small": ([(2, 3), (2, 8), (2, 5)], CACHE, [[(2, 3), (2, 8), (2, 5)]]),
    "one token": (
        [(2, 1), (2, 6), (2, 5)],
        CACHE,
        [[(2, 2), (2, 7), (2, 5)], [(2, 2), (2, 6), (2, 5)], [(2, 1), (2, 6), (2, 5)]],
    ),
    "empty cache": (
        [(2, 4), (2, 4), (2, 0)],
        CACHE,
        [[(2, 4), (2, 6), (2, 2)], [(2, 6), (2, 8), (2, 2)], [(2, 4), (2, 4), (2, 2)], [(2, 4), (2, 4), (2, 0)]],
    ),
    "without names": ([(1, 3), (1, 3)], [{0: Dim.AUTO}, {0: Dim.AUTO}], [[(2, 3), (2, 3)], [(1, 3), (1, 3)]]),
    "derived": ([(1, 3), (2, 3)], [{0: SEQ}, {0: 2 * SEQ}], [[(2, 3), (4, 3)], [(1, 3), (2, 3)]]),
    "derived alone": ([(2, 3)], [{0: 2 * SEQ}], [[(2, 3)]]),
    "static": ([(1, 3)], [{}], [[(1, 3)]]),
}


@pytest.mark.parametrize("name", ROWS)
def test_proposals(name: str) -> None:
    shapes, declared, proposals = ROWS[name]
    given = [torch.arange(float(torch.Size(shape).numel())).reshape(shape) for shape in shapes]
    found = list(enlarged(given, declared))
    assert [[tuple(tensor.shape) for tensor in tensors] for tensors in found] == proposals
    assert all(one is other for one, other in zip(found[-1], given, strict=True))


class Joined(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x + 1, x])


def test_calls_that_were_put_into_a_program_later() -> None:
    """Other libraries rewrite programs before the export, and leave out what torch records of a call."""
    x = torch.ones(2, 3)
    program = torch.export.export(Joined(), (x,), dynamic_shapes=({0: Dim("rows")},))
    graph = program.graph_module.graph
    (cat,) = [node for node in graph.nodes if node.target is torch.ops.aten.cat.default]
    with graph.inserting_before(cat):
        kept = graph.call_function(torch.ops.aten.neg.default, (cat.args[0][0],))
        kept = graph.call_function(torch.ops.aten.detach.default, (kept,))
    cat.args = ([kept, cat.args[0][1]],)
    file = purexport.export(program)
    other = torch.full((4, 3), 2.0)
    assert_near(file(other)[0], torch.cat([-(other + 1), other]), EXACT)
