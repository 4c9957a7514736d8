"""A T5-like encoder and decoder (Raffel et al. 2019, arXiv:1910.10683): positions enter as a learned bias for buckets
of distances, fine ones nearby and logarithmic ones further off."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import VOCABULARY, Case, padding, tokens

WIDTH, HEADS, EACH, BUCKETS, FURTHEST = 32, 4, 8, 8, 20


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6))


def bucket(distance: Tensor, both_ways: bool) -> Tensor:
    """int64 in [0, BUCKETS) for the distance of a key from a query."""
    count, result = BUCKETS, torch.zeros_like(distance)
    if both_ways:
        count //= 2
        result = result + (distance > 0).to(torch.long) * count
        distance = torch.abs(distance)
    else:
        distance = -torch.min(distance, torch.zeros_like(distance))
    exact = count // 2
    far = exact + (torch.log(distance.float() / exact) / math.log(FURTHEST / exact) * (count - exact)).to(torch.long)
    far = torch.min(far, torch.full_like(far, count - 1))
    return result + torch.where(distance < exact, distance, far)


class Attention(nn.Module):
    def __init__(self, both_ways: bool | None) -> None:
        super().__init__()
        self.both_ways = both_ways
        self.q, self.k = nn.Linear(WIDTH, HEADS * EACH, bias=False), nn.Linear(WIDTH, HEADS * EACH, bias=False)
        self.v, self.o = nn.Linear(WIDTH, HEADS * EACH, bias=False), nn.Linear(HEADS * EACH, WIDTH, bias=False)
        self.bias = nn.Embedding(BUCKETS, HEADS) if both_ways is not None else None

    def heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, HEADS, EACH).transpose(1, 2)

    def position_bias(self, queries: int, keys: int) -> Tensor:
        rows, columns = torch.arange(queries)[:, None], torch.arange(keys)[None, :]
        return self.bias(bucket(columns - rows, bool(self.both_ways))).permute([2, 0, 1]).unsqueeze(0)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.heads(self.q(x)), self.heads(self.k(memory)), self.heads(self.v(memory))
        scores = torch.matmul(query, key.transpose(3, 2))
        if self.bias is not None:
            mask = mask + self.position_bias(x.shape[1], memory.shape[1])
        scores += mask
        weights = functional.softmax(scores.float(), dim=-1).type_as(scores)
        context = torch.matmul(weights, value).transpose(1, 2).contiguous()
        return self.o(context.view(x.shape[0], -1, HEADS * EACH))


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.wide = nn.Linear(WIDTH, 48, bias=False), nn.Linear(WIDTH, 48, bias=False)
        self.out, self.norm = nn.Linear(48, WIDTH, bias=False), Norm()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(x)
        return x + self.out(functional.gelu(self.gate(inner), approximate="tanh") * self.wide(inner))


class T5(nn.Module):
    """Source tokens and their padding mask [batch, source], target tokens [batch, target] -> target logits."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.encode, self.decode, self.cross = Attention(True), Attention(False), Attention(None)
        self.norms = nn.ModuleList(Norm() for _ in range(5))
        self.feeds = nn.ModuleList(Feed() for _ in range(2))

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        lowest = torch.finfo(torch.float32).min
        hidden = (1.0 - mask[:, None, None, :].float()) * lowest
        memory = self.words(source)
        inner = self.norms[0](memory)
        memory = self.feeds[0](memory + self.encode(inner, inner, hidden))
        memory = self.norms[1](memory)

        batch, length = target.shape
        steps = torch.arange(length)
        causal = steps[None, None, :].repeat(batch, length, 1) <= steps[None, :, None]
        later = (1.0 - causal[:, None].float()) * lowest
        x = self.words(target)
        inner = self.norms[2](x)
        x = x + self.decode(inner, inner, later)
        x = x + self.cross(self.norms[3](x), memory, hidden)
        x = self.norms[4](self.feeds[1](x)) * WIDTH**-0.5
        return functional.linear(x, self.words.weight)


CASES = [
    Case(
        "t5",
        T5,
        lambda batch, source, target: (tokens(batch, source), padding(batch, source), tokens(batch, target)),
        {0: {0: "batch", 1: "source"}, 1: {0: "batch", 1: "source"}, 2: {0: "batch", 1: "target"}},
        {"batch": 2, "source": 7, "target": 5},
        [{"batch": 1, "source": 1, "target": 1}, {"batch": 3, "source": 31, "target": 26}],
    )
]
