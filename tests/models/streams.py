"""A stream in pieces: a causal convolution and attention over a sliding window, with what they remember as input and
output, or in buffers that the model assigns or writes to."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import Case

WIDTH, HEADS, KERNEL, WINDOW = 16, 2, 4, 6


class Stream(nn.Module):
    """A piece [batch, steps, width], the last inputs of the convolution, and keys and values of the window's steps.

    A step sees itself and the WINDOW - 1 steps before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, KERNEL, groups=4)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, piece: Tensor, last: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        wide = torch.cat([last, piece.transpose(1, 2)], dim=2)
        x = piece + functional.gelu(self.conv(wide)).transpose(1, 2)
        query, key, value = self.qkv(self.norm(x)).chunk(3, dim=-1)
        keys, values = torch.cat([keys, key], dim=1), torch.cat([values, value], dim=1)
        context = self.attend(query, keys, values)
        return x + self.out(context), wide[:, :, -(KERNEL - 1) :], keys[:, -(WINDOW - 1) :], values[:, -(WINDOW - 1) :]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        new = query.shape[1]
        behind = keys.shape[1] - new
        distance = (torch.arange(new) + behind).unsqueeze(1) - torch.arange(keys.shape[1]).unsqueeze(0)
        mask = (distance >= 0) & (distance < WINDOW)
        query, keys, values = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (query, keys, values))
        return functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask).transpose(1, 2).flatten(2)


class Remembering(Stream):
    """The same with one stream's memory in buffers: the convolution's is assigned, the window's is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(1, WIDTH, KERNEL - 1))
        self.register_buffer("window", torch.zeros(2, 1, WINDOW - 1, WIDTH))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, piece: Tensor) -> Tensor:
        result, self.last, keys, values = super().forward(piece, self.last, self.window[0], self.window[1])
        self.window[0] = keys
        self.window[1].copy_(values)
        self.seen += piece.shape[1]
        return result * (self.seen > 2)


class Ring(nn.Module):
    """The last WINDOW inputs in a ring: one place is overwritten, by an index that is state too."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(WIDTH, 1)
        self.register_buffer("ring", torch.zeros(WINDOW, WIDTH))
        self.register_buffer("next", torch.zeros(1, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.ring.index_copy_(0, self.next, x.unsqueeze(0))
        self.next.add_(1).remainder_(WINDOW)
        return self.score(self.ring).softmax(dim=0).mul(self.ring).sum(0)


def _inputs(batch: int, steps: int, past: int) -> tuple[Tensor, ...]:
    return (
        torch.randn(batch, steps, WIDTH),
        torch.randn(batch, WIDTH, KERNEL - 1),
        torch.randn(batch, past, WIDTH),
        torch.randn(batch, past, WIDTH),
    )


CASES = [
    Case(
        "stream",
        Stream,
        _inputs,
        {0: {0: "batch", 1: "steps"}, 1: {0: "batch"}, 2: {0: "batch", 1: "past"}, 3: {0: "batch", 1: "past"}},
        {"batch": 2, "steps": 3, "past": 5},
        [{"batch": 1, "steps": 1, "past": 2}, {"batch": 3, "steps": 9, "past": 5}, {"steps": 4, "past": 0}],
        ("trace", "export"),
    )
]
STATEFUL = {
    "remembering": (Remembering, lambda: torch.randn(1, 3, WIDTH)),
    "ring": (Ring, lambda: torch.randn(WIDTH)),
}
