"""Loops over the length of an axis, which a trace writes out step by step, become one Loop of the file."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.tiers import dealt
from tests.tolerances import CHAIN, assert_near

SIZES = ((2, 5), (1, 3), (3, 9), (2, 1), (1, 70))


class Cell(nn.Module):
    """A hand-written recurrent network: a cell that writes in place, its states stacked, the last one too."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 6)

    def forward(self, x: Tensor) -> Any:
        state = x.new_zeros(x.shape[0], 6)
        states = []
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
            states.append(state)
        return torch.stack(states, 1), state


class Pieces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)

    def forward(self, x: Tensor) -> Any:
        state = torch.zeros(x.shape[0], 6), torch.ones(x.shape[0], 6)
        states = []
        for piece in x.unbind(1):
            state = self.cell(piece, state)
            states.append(state[0])
        return torch.stack(states, 1)


class Backward(nn.Module):
    def forward(self, x: Tensor) -> Any:
        state = torch.zeros(x.shape[0], 4)
        states = []
        for step in reversed(range(x.shape[1])):
            state = torch.tanh(state + x[:, step] * 0.5)
            states.append(state)
        return torch.stack(states[::-1], dim=1)


class FromTheSecond(nn.Module):
    def forward(self, x: Tensor) -> Any:
        state = x[:, 0]
        states = [state]
        for step in range(1, x.shape[1]):
            state = torch.tanh(state * 0.5 + x[:, step])
            states.append(state)
        return torch.stack(states, 1), state


class Selective(nn.Module):
    """The scan of Mamba, with a number that counts the steps beside it."""

    def forward(self, x: Tensor) -> Any:
        decay, input = torch.sigmoid(x).unsqueeze(-1), torch.tanh(x).unsqueeze(-1)
        state = torch.zeros(x.shape[0], 4, 1)
        found = []
        for step in range(x.shape[1]):
            state = decay[:, step] * state + input[:, step, :] * (step + 1)
            found.append(torch.matmul(state.transpose(1, 2), x[:, step : step + 1].transpose(1, 2))[:, :, 0])
        return torch.cat(found, dim=-1)


class Sliced(nn.Module):
    """Two carried values, a slice at each step and a number that counts the steps; the results are concatenated."""

    def forward(self, x: Tensor) -> Any:
        state, other = torch.zeros(x.shape[0], 1, 4), torch.ones(x.shape[0], 1, 4)
        found = []
        for step in range(x.shape[1]):
            state, other = other + x[:, step : step + 1] * (step + 1), state * 0.5
            found.append(state)
        return torch.cat(found, 1), other


class Growing(nn.Module):
    """What is carried has another size at each step."""

    def forward(self, x: Tensor) -> Any:
        state = x[:, :1]
        for step in range(1, x.shape[1]):
            state = torch.cat([state, x[:, step : step + 1] + state.mean(1, keepdim=True)], 1)
        return state


class EverySecond(nn.Module):
    """Two steps are not alike."""

    def forward(self, x: Tensor) -> Any:
        state = torch.zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = state + x[:, step] if step % 2 else state * x[:, step]
        return state


class OtherStep(nn.Module):
    """The third step adds another number."""

    def forward(self, x: Tensor) -> Any:
        state = torch.zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = state * x[:, step] + (3.0 if step == 2 else 1.0)
        return state


class OtherLater(nn.Module):
    """A step that the example does not reach adds another number."""

    def forward(self, x: Tensor) -> Any:
        state = torch.zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = state * x[:, step] + (3.0 if step == 7 else 1.0)
        return state


class Squares(nn.Module):
    """The numbers of the steps do not follow each other evenly."""

    def forward(self, x: Tensor) -> Any:
        state = torch.zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = state + x[:, step] * (step * step)
        return state


class Middle(nn.Module):
    """What a step before the last made is used behind the loop."""

    def forward(self, x: Tensor) -> Any:
        state, states = torch.zeros(x.shape[0], 4), []
        for step in range(x.shape[1]):
            state = torch.tanh(state + x[:, step])
            states.append(state)
        return states[1] + state


class Written(nn.Module):
    """A step writes to a tensor from outside."""

    def forward(self, x: Tensor) -> Any:
        found, state = torch.zeros_like(x), torch.zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = torch.tanh(state + x[:, step])
            found[:, step] = state
        return found


class WrittenLater(nn.Module):
    """What the last step made is written to before it is stacked, so that this step stays outside of the loop."""

    def forward(self, x: Tensor) -> Any:
        state, states = torch.zeros(x.shape[0], 4), []
        for step in range(x.shape[1]):
            state = torch.tanh(state + x[:, step])
            states.append(state)
        state[:1].mul_(2)
        return torch.stack(states, 1)


class NotToTheEnd(nn.Module):
    """How many steps there are follows from the half of an axis."""

    def forward(self, x: Tensor) -> Any:
        state, states = torch.zeros(x.shape[0], 4), []
        for step in range((x.shape[1] + 1) // 2 + 1):
            state = torch.tanh(state + x[:, step])
            states.append(state)
        return torch.stack(states, 1)


@dataclass(frozen=True)
class Row:
    """A model, and whether its loop becomes one of the file."""

    model: type[nn.Module]
    loops: bool = True


ROWS = [
    *map(Row, (Backward, FromTheSecond, Sliced, Written, WrittenLater, Cell, Pieces, Selective)),
    *(Row(model, loops=False) for model in (Growing, EverySecond, OtherStep, OtherLater, Squares, Middle, NotToTheEnd)),
]


SLOW = (Cell, Pieces, Selective)  # many calls at each step, and traces at large sizes have many steps


@pytest.mark.parametrize(
    "row",
    dealt(
        [pytest.param(row, id=row.model.__name__, marks=pytest.mark.full if row.model in SLOW else ()) for row in ROWS],
        2,
    ),
)
def test_loops_over_an_axis(row: Row) -> None:
    torch.manual_seed(0)
    model = row.model().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = purexport.export(
            model,
            (torch.randn(2, 5, 4),),
            capture="trace",
            input_names=["x"],
            dynamic_axes={"x": {0: "batch", 1: "time"}},
        )
    loops = [node for node in exported.model_proto.graph.node if node.op_type == "Loop"]
    assert len(loops) == row.loops
    for value in (
        value for node in loops for item in node.attribute for value in item.g.input
    ):  # no batch of the example
        assert [size.dim_value or 0 for size in value.type.tensor_type.shape.dim[:1]] in (
            [],
            [0],
        )  # no batch of the example
    held = any("the file takes only that size" in text and "'time'" in text for text in exported.report.warnings)
    assert held is not row.loops
    assert any("are a Loop of the file" in text for text in exported.report.warnings) is row.loops
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString())
    for batch, time in SIZES if row.loops else SIZES[:1]:
        x = torch.randn(batch, time, 4)
        wanted = model(x.clone())
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for one, other in zip(session.run(None, {"x": x.numpy()}), wanted, strict=True):
            assert_near(one, other.detach(), CHAIN, f"{batch}, {time}")
