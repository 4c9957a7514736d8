"""A selective state-space block (Gu and Dao 2023, arXiv:2312.00752): the scan as a loop over a fixed time, as a
running sum in log space for any length, as a scripted loop, and as one step with its state as input and output."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import Case

WIDTH, INNER, STATES, KERNEL = 12, 16, 4, 4


class Block(nn.Module):
    """States [batch, length, width] -> the same."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(WIDTH, 2 * INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)
        self.conv = nn.Conv1d(INNER, INNER, KERNEL, groups=INNER, padding=KERNEL - 1)
        self.select, self.delta = nn.Linear(INNER, 2 + 2 * STATES, bias=False), nn.Linear(2, INNER)
        self.log_decay = nn.Parameter(torch.log(torch.arange(1, STATES + 1).float()).repeat(INNER, 1))
        self.direct = nn.Parameter(torch.ones(INNER))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        inner, gate = self.enter(self.norm(x)).chunk(2, dim=-1)
        inner = self.conv(inner.transpose(1, 2))[..., :length].transpose(1, 2)
        inner = functional.silu(inner)
        delta, put, get = self.selected(inner)
        y = self.scan(inner, delta, -torch.exp(self.log_decay), put, get)
        return x + self.leave((y + inner * self.direct) * functional.silu(gate))

    def selected(self, inner: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        delta, put, get = torch.split(self.select(inner), [2, STATES, STATES], dim=-1)
        return functional.softplus(self.delta(delta)), put, get

    def scan(self, u: Tensor, delta: Tensor, decay: Tensor, put: Tensor, get: Tensor) -> Tensor:
        """Step by step, written into the result."""
        kept = torch.exp(torch.einsum("bld,dn->bldn", delta, decay))
        added = torch.einsum("bld,bln,bld->bldn", delta, put, u)
        state = torch.zeros(u.shape[0], INNER, STATES)
        result = torch.empty_like(u)
        for step in range(u.shape[1]):
            state = kept[:, step] * state + added[:, step]
            result[:, step] = torch.einsum("bdn,bn->bd", state, get[:, step])
        return result


class Parallel(Block):
    """The scan as sums: a state is what was added, each part decayed by the difference of two running sums."""

    def scan(self, u: Tensor, delta: Tensor, decay: Tensor, put: Tensor, get: Tensor) -> Tensor:
        logs = torch.cumsum(delta.unsqueeze(-1) * decay, dim=1)
        between = logs.unsqueeze(2) - logs.unsqueeze(1)
        steps = torch.arange(u.shape[1])
        past = (steps[:, None] >= steps[None, :])[None, :, :, None, None]
        kept = torch.exp(between.masked_fill(~past, float("-inf")))
        added = (delta * u).unsqueeze(-1) * put.unsqueeze(2)
        return torch.einsum("btsdn,bsdn,btn->btd", kept, added, get)


class LogSpace(Block):
    """The scan in log space (Heinsen 2023, arXiv:2311.06281): logcumsumexp of what is added, its sign apart."""

    def scan(self, u: Tensor, delta: Tensor, decay: Tensor, put: Tensor, get: Tensor) -> Tensor:
        logs = torch.cumsum(delta.unsqueeze(-1) * decay, dim=1)
        added = (delta * u).unsqueeze(-1) * put.unsqueeze(2)
        gain = torch.logcumsumexp(added.clamp(min=1e-8).log() - logs, dim=1)
        loss = torch.logcumsumexp((-added).clamp(min=1e-8).log() - logs, dim=1)
        state = torch.exp(logs + gain) - torch.exp(logs + loss)
        return (state * get.unsqueeze(2)).sum(-1)


@torch.jit.script
def scripted_scan(kept: Tensor, added: Tensor, get: Tensor) -> Tensor:
    state = torch.zeros_like(added[:, 0])
    results: list[Tensor] = []
    for step in range(added.shape[1]):
        state = kept[:, step] * state + added[:, step]
        results.append((state * get[:, step].unsqueeze(1)).sum(-1))
    return torch.stack(results, dim=1)


class Scripted(Block):
    """The loop as a scripted function: it becomes a Loop, for any length."""

    def scan(self, u: Tensor, delta: Tensor, decay: Tensor, put: Tensor, get: Tensor) -> Tensor:
        added = (delta * u).unsqueeze(-1) * put.unsqueeze(2)
        return scripted_scan(torch.exp(delta.unsqueeze(-1) * decay), added, get)


class Step(Block):
    """One step: the input [batch, width], the last inputs of the convolution and the state -> all three anew."""

    def forward(self, x: Tensor, window: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner, gate = self.enter(self.norm(x)).chunk(2, dim=-1)
        window = torch.roll(window, shifts=-1, dims=-1)
        window[:, :, -1] = inner
        inner = functional.silu(torch.sum(window * self.conv.weight[:, 0], dim=-1) + self.conv.bias)
        delta, put, get = self.selected(inner)
        decay = -torch.exp(self.log_decay)
        state = torch.exp(delta.unsqueeze(-1) * decay) * state + (delta * inner).unsqueeze(-1) * put.unsqueeze(1)
        y = torch.einsum("bdn,bn->bd", state, get) + inner * self.direct
        return x + self.leave(y * functional.silu(gate)), window, state


def _inputs(batch: int, length: int = 6) -> tuple[Tensor]:
    return (torch.randn(batch, length, WIDTH),)


_LONG = {"batch": 2, "length": 6}
_OTHERS = [{"batch": 1, "length": 1}, {"batch": 3, "length": 13}]
_AXES = {0: {0: "batch", 1: "length"}}
CASES = [
    Case("state-space-loop", Block, _inputs, {0: {0: "batch"}}, {"batch": 2}, [{"batch": 1}, {"batch": 5}]),
    Case("state-space-parallel", Parallel, _inputs, _AXES, _LONG, _OTHERS),
    Case("state-space-log", LogSpace, _inputs, _AXES, _LONG, _OTHERS),
    Case("state-space-scripted", Scripted, _inputs, _AXES, _LONG, _OTHERS, ("trace",)),
    Case(
        "state-space-step",
        Step,
        lambda batch: (torch.randn(batch, WIDTH), torch.randn(batch, INNER, KERNEL), torch.randn(batch, INNER, STATES)),
        {0: {0: "batch"}, 1: {0: "batch"}, 2: {0: "batch"}},
        {"batch": 2},
        [{"batch": 1}, {"batch": 5}],
    ),
]
