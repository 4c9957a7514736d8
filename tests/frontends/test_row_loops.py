"""Loops over the rows that the data chose: the file does what the loop does, also for rows that the example lacks.

The example is one token, so it goes to two experts of four, and other inputs go to all of them.
"""

from __future__ import annotations

import dis
import warnings
from collections.abc import Callable
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purexport
from purexport.errors import ExportError
from purexport.frontends.core.row_loops import leaves_only_writes
from tests.harness import compare_with_torch, version_of
from tests.tiers import in_turn
from tests.tolerances import CHAIN

EXPERTS = 4
# without a row ONNX Runtime 1.23 ends the process: it divides by zero
SIZES = (1, 3, 17, 0) if version_of(onnxruntime.__version__) >= (1, 24) else (1, 3, 17)
Body = Callable[[Any, Tensor, Tensor, Tensor], Tensor]


def compare(program: Any, model: Any, args: tuple[Tensor, ...]) -> None:
    compare_with_torch(model, program.model_proto.SerializeToString(), args, {}, CHAIN)


class Mixture(nn.Module):
    """A mixture of experts around a loop; `spare` more rows are searched than there are experts."""

    def __init__(self, body: Body, spare: int = 0) -> None:
        super().__init__()
        self.body, self.spare = body, spare
        self.gate = nn.Linear(8, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.topk(torch.softmax(self.gate(x), -1), 2, -1)
        mask = functional.one_hot(chosen, EXPERTS + self.spare).permute(2, 1, 0)
        return self.body(self, x, weights, mask)


def plain(self: Any, x: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for expert in torch.greater(mask.sum((-1, -2)), 0).nonzero():
        place, token = torch.where(mask[expert].squeeze(0))
        out.index_add_(0, token, self.experts[expert](x[token]) * weights[token, place, None])
    return out


def asking(self: Any, x: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for row in torch.greater(mask.sum((-1, -2)), 0).nonzero():
        expert = int(row.item())
        place, token = torch.where(mask[expert])
        if token.numel() == 0:
            continue
        states = x[token] if expert > 2 else self.experts[expert](x[token])
        out[token] += states * weights[token, place, None]
    return out


def counting(self: Any, x: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """What a step does where nothing was chosen would be seen."""
    out, steps = torch.zeros_like(x), torch.zeros(1)
    for _ in (mask.sum((-1, -2)) > 0).nonzero():
        steps.add_(1.0)
    return out + steps


ROWS: dict[str, tuple[Body, int]] = {
    "asks_for_elements": (asking, 0),
    "counts_steps": (counting, 0),
    "more_rows_than_experts": (plain, 1),
}


@pytest.mark.parametrize(("row", "route"), in_turn(ROWS, ["trace", "export"]))
def test_loop(row: str, route: str) -> None:
    torch.manual_seed(0)
    model = Mixture(*ROWS[row]).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = purexport.export(model, (torch.randn(1, 8),), dynamic_axes={"x": {0: "n"}}, capture=route)
    for size in SIZES:
        compare(program, model, (torch.randn(size, 8),))


def hidden(self: Any, x: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    out = x - 1.0
    for _ in (mask.sum((-1, -2)) > 0).nonzero():
        functional.relu(out, inplace=True)
    return out


def test_a_write_that_is_not_seen_is_refused() -> None:
    with pytest.raises(
        ExportError, match=r"writes to 'out' in a way that the capture does not see, at .*test_row_loops"
    ):
        purexport.export(Mixture(hidden).eval(), (torch.randn(1, 8),), capture="export")


def carried(hit: Tensor, x: Tensor) -> Tensor:
    total = x
    for row in hit:
        total = total + row
    return total


def behind(hit: Tensor, x: Tensor) -> Tensor:
    last = x
    for row in hit:
        last = row * 2
    return last


def sometimes(hit: Tensor, x: Tensor, first: bool) -> None:
    for row in hit:
        if first:
            kept = row
        x.add_(kept)


def ending(hit: Tensor, x: Tensor) -> None:
    for row in hit:
        if row.sum() > 3:
            break
        x.add_(row)


def returning(hit: Tensor, x: Tensor) -> Tensor:
    for row in hit:
        return row
    return x


def growing(hit: Tensor, x: Tensor) -> list[Tensor]:
    found: list[Tensor] = []
    for row in hit:
        found.append(row * x)
    return found


def keeping(hit: Tensor, owner: Any) -> None:
    for row in hit:
        owner.last = row


def yielding(hit: Tensor) -> Any:
    for row in hit:
        yield row * 2


def listing(hit: Tensor, places: Any) -> None:
    for row in hit:
        places[0] = row


def writing(hit: Tensor, x: Tensor, mask: Tensor) -> Tensor:
    for row in hit:
        expert = row[0]
        with torch.no_grad():
            place, token = torch.where(mask[expert])
        if token.numel() == 0:
            continue
        x[place] += token
    return x


LEAVES = [carried, behind, sometimes, ending, returning, growing, keeping, yielding, listing]


@pytest.mark.parametrize("function", [*LEAVES, writing], ids=lambda function: function.__name__)
def test_what_leaves_a_step(function: Callable[..., Any]) -> None:
    code = function.__code__
    at = next(step.offset for step in dis.get_instructions(code) if step.opname == "GET_ITER")
    assert leaves_only_writes(code, at, has_containers=function is listing) == (function is writing)


class Pieces(nn.Module):
    """Sizes that the data decides, as a list."""

    def forward(self, x: Tensor, owner: Tensor) -> Tensor:
        order = owner.argsort(stable=True)
        sizes = functional.one_hot(owner, 3).sum(0).tolist()
        parts = x[order].split(sizes)
        return torch.cat([part * (place + 1) for place, part in enumerate(parts)])


@pytest.mark.filterwarnings("ignore")
def test_pieces_of_sizes_that_the_data_decides() -> None:
    args = torch.randn(4, 2), torch.tensor([1, 1, 2, 1])
    program = purexport.export(Pieces(), args, dynamic_axes={"x": {0: "n"}, "owner": {0: "n"}}, capture="trace")
    others = (torch.randn(6, 2), torch.tensor([2, 0, 0, 0, 1, 0])), (torch.randn(1, 2), torch.tensor([0]))
    for given in (args, *others):
        compare(program, Pieces(), given)


class Empty(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        kept = torch.where(x.sum(1) > 0)[0]
        return x * 2 if kept.numel() == 0 else x[kept].sum(0, keepdim=True) + x


def test_a_question_that_the_data_decides_is_told() -> None:
    with pytest.warns(UserWarning, match=r"for which not u\d+ == 0 at .*test_row_loops"):
        purexport.export(Empty(), (torch.ones(3, 4),), dynamic_axes={"x": {0: "n"}}, capture="trace")
