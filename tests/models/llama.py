"""A Llama-like decoder (Touvron et al. 2023, arXiv:2302.13971): rotary positions in both forms, grouped queries in
both forms, RMSNorm by hand and torch's, SwiGLU, and the cache of keys and values as input and output."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import VOCABULARY, Case, tokens

Cache = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Shape:
    """Sizes and the forms of the parts: `rotary` is "half" or "complex"; a query looks back at `window` tokens."""

    width: int = 32
    heads: int = 4
    groups: int = 2
    layers: int = 2
    inner: int = 48
    vocabulary: int = VOCABULARY
    rotary: str = "half"
    repeat: bool = True
    own_norm: bool = True
    window: int = 0


class OwnNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        kind = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(kind)


def rotate_half(x: Tensor) -> Tensor:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def by_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [batch, heads, length, width]; cos and sin [batch, length, width]."""
    return x * cos.unsqueeze(1) + rotate_half(x) * sin.unsqueeze(1)


def by_complex(x: Tensor, turns: Tensor) -> Tensor:
    """x [batch, heads, length, width]; turns: complex [length, width / 2]."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.each = shape, shape.width // shape.heads
        narrow = self.each * shape.groups
        self.q, self.o = (
            nn.Linear(shape.width, shape.width, bias=False),
            nn.Linear(shape.width, shape.width, bias=False),
        )
        self.k, self.v = nn.Linear(shape.width, narrow, bias=False), nn.Linear(shape.width, narrow, bias=False)

    def forward(
        self, x: Tensor, turns: tuple[Tensor, ...], mask: Tensor | None, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, _ = x.shape
        query = self.q(x).view(batch, length, -1, self.each).transpose(1, 2)
        key = self.k(x).view(batch, length, -1, self.each).transpose(1, 2)
        value = self.v(x).view(batch, length, -1, self.each).transpose(1, 2)
        turn = by_halves if self.shape.rotary == "half" else by_complex
        query, key = turn(query, *turns), turn(key, *turns)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        present = (key, value)
        if self.shape.repeat:
            times = self.shape.heads // self.shape.groups
            key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
        out = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=not self.shape.repeat
        )
        return self.o(out.transpose(1, 2).reshape(batch, length, -1)), present


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        norm = OwnNorm if shape.own_norm else nn.RMSNorm
        self.norm_1, self.norm_2 = norm(shape.width, eps=1e-6), norm(shape.width, eps=1e-6)
        self.attention = Attention(shape)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(
        self, x: Tensor, turns: tuple[Tensor, ...], mask: Tensor | None, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        attended, present = self.attention(self.norm_1(x), turns, mask, past)
        x = x + attended
        inner = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner)), present


class Llama(nn.Module):
    """Tokens [batch, length] -> logits."""

    def __init__(self, shape: Shape = Shape()) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = OwnNorm(shape.width) if shape.own_norm else nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        each = shape.width // shape.heads
        rates = 1.0 / (10000.0 ** (torch.arange(0, each, 2).float() / each))
        self.register_buffer("rates", rates, persistent=False)
        angles = torch.outer(torch.arange(128).float(), rates)
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def rotation(self, positions: Tensor, start: int, length: int) -> tuple[Tensor, ...]:
        """What turns queries and keys: cosines and sines of positions [batch, length], or complex numbers."""
        if self.shape.rotary == "complex":
            return (self.turns[start : start + length],)
        rates = self.rates[None, :, None].float().expand(positions.shape[0], -1, 1)
        angles = (rates @ positions[:, None, :].float()).transpose(1, 2)
        both = torch.cat((angles, angles), dim=-1)
        kind = self.words.weight.dtype
        return both.cos().to(kind), both.sin().to(kind)

    def forward(self, words: Tensor) -> Tensor:
        length = words.shape[1]
        turns = self.rotation(torch.arange(length)[None], 0, length)
        x = self.words(words)
        for layer in self.layers:
            x, _ = layer(x, turns, None, None)
        return self.head(self.norm(x))


class LlamaStep(Llama):
    """New tokens, their positions and the cache -> logits and the longer cache."""

    def forward(self, words: Tensor, positions: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        length, past = words.shape[1], cache[0][0].shape[2]
        turns = self.rotation(positions, past, length)
        mask = torch.ones(length, past + length, dtype=torch.bool).tril(diagonal=past)
        x, new = self.words(words), []
        for layer, pair in zip(self.layers, cache, strict=True):
            x, present = layer(x, turns, mask, pair)
            new.append(present)
        return self.head(self.norm(x)), new


class LlamaCached(Llama):
    """New tokens, the mask of all tokens and the cache -> logits and the longer cache.

    Sizes are compared in Python, as libraries do: the mask is cut to the keys, and is built only where it is needed.
    """

    def forward(self, words: Tensor, mask: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        length, past = words.shape[1], cache[0][0].shape[2]
        total = past + length
        if mask.shape[1] > total:
            mask = mask[:, :total]
        queries, keys = torch.arange(length) + past, torch.arange(total)
        seen = keys[None, :] <= queries[:, None]
        if self.shape.window:
            seen = seen & (keys[None, :] > queries[:, None] - self.shape.window)
        allowed = seen & mask.bool()[:, None, None, :]
        if not torch.jit.is_tracing() and total == length and bool(mask.all()) and not self.shape.window:
            allowed = None  # plain causal attention
        turns = self.rotation(queries[None], past, length)
        x, new = self.words(words), []
        for layer, pair in zip(self.layers, cache, strict=True):
            x, present = layer(x, turns, allowed, pair)
            new.append(present)
        return self.head(self.norm(x)), new


def _cache(batch: int, past: int) -> Cache:
    shape = Shape()
    return [
        (torch.randn(batch, shape.groups, past, 8), torch.randn(batch, shape.groups, past, 8))
        for _ in range(shape.layers)
    ]


def _step(batch: int, length: int, past: int) -> tuple[Tensor, Tensor, Cache]:
    positions = torch.arange(past, past + length).expand(batch, -1).contiguous()
    return tokens(batch, length), positions, _cache(batch, past)


def _masked(batch: int, length: int, past: int, total: int) -> tuple[Tensor, Tensor, Cache]:
    mask = torch.ones(batch, total, dtype=torch.int64)
    mask[1:2, 1] = 0
    return tokens(batch, length), mask, _cache(batch, past)


_FORMS = {
    "half-repeat": Shape(),
    "half-gqa-torch-norm": Shape(repeat=False, own_norm=False),
    "complex-repeat": Shape(rotary="complex"),
    "complex-gqa": Shape(rotary="complex", repeat=False),
}
CASES = [
    *(
        Case(
            f"llama-{name}",
            lambda shape=shape: Llama(shape),
            lambda batch, length: (tokens(batch, length),),
            {0: {0: "batch", 1: "length"}},
            {"batch": 2, "length": 6},
            [{"batch": 1, "length": 1}, {"batch": 3, "length": 17}],
        )
        for name, shape in _FORMS.items()
    ),
    *(
        Case(
            f"llama-step-{name}",
            lambda shape=shape: LlamaStep(shape),
            _step,
            {
                0: {0: "batch", 1: "length"},
                1: {0: "batch", 1: "length"},
                **{position: {0: "batch", 2: "past"} for position in range(2, 6)},
            },
            {"batch": 2, "length": 3, "past": 4},
            [{"batch": 1, "length": 1, "past": 1}, {"batch": 3, "length": 5, "past": 9}, {"length": 4, "past": 0}],
        )
        for name, shape in _FORMS.items()
    ),
    *(
        Case(
            f"llama-cached-{name}",
            lambda shape=shape: LlamaCached(shape),
            _masked,
            {
                0: {0: "batch", 1: "length"},
                1: {0: "batch", 1: "total"},
                **{position: {0: "batch", 2: "past"} for position in range(2, 6)},
            },
            {"batch": 2, "length": 3, "past": 5, "total": 8},
            [
                {"batch": 3, "length": 7, "past": 0, "total": 7},
                {"batch": 1, "length": 1, "past": 7, "total": 8},
                {"batch": 3, "length": 1, "past": 12, "total": 13},
            ],
            slow=bool(shape.window),
        )
        for name, shape in {"all": Shape(), "window-gqa": Shape(repeat=False, window=4)}.items()
    ),
]
