"""A GPT-like decoder (Radford et al. 2019): fused projections, causal masks in three forms, tied embeddings, and a
step that takes and gives the cache of keys and values."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import VOCABULARY, Case, tokens

WIDTH, HEADS, LAYERS, LONGEST = 32, 4, 2, 64
Cache = list[tuple[Tensor, Tensor]]


class Attention(nn.Module):
    """The mask is a `buffer` cut to the length, a triangle made on the spot (`triu`), or torch's own (`sdpa`)."""

    def __init__(self, form: str, width: int = WIDTH, heads: int = HEADS, longest: int = LONGEST) -> None:
        super().__init__()
        self.form, self.heads = form, heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        ones = torch.ones(longest, longest) if form == "buffer" else torch.ones(1, 1)
        self.register_buffer("triangle", torch.tril(ones).view(1, 1, *ones.shape), persistent=False)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.size()
        query, key, value = self.qkv(x).split(width, dim=2)
        query = query.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        key = key.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        value = value.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        return query, key, value

    def join(self, x: Tensor) -> Tensor:
        batch, heads, length, width = x.size()
        return self.out(x.transpose(1, 2).contiguous().view(batch, length, heads * width))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.split(x)
        if self.form == "sdpa":
            return self.join(functional.scaled_dot_product_attention(query, key, value, is_causal=True))
        scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(key.size(-1)))
        length = x.size(1)
        if self.form == "buffer":
            scores = scores.masked_fill(self.triangle[:, :, :length, :length] == 0, float("-inf"))
        else:
            later = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
            scores = scores.masked_fill(later, float("-inf"))
        return self.join(functional.softmax(scores, dim=-1) @ value)

    def step(self, x: Tensor, past: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        query, key, value = self.split(x)
        key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        new, all_ = query.size(2), key.size(2)
        position = torch.arange(all_ - new, all_)
        mask = torch.arange(all_)[None, :] <= position[:, None]
        return self.join(functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)), (key, value)


class Block(nn.Module):
    def __init__(self, form: str, width: int = WIDTH, heads: int = HEADS, longest: int = LONGEST) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(form, width, heads, longest)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def mlp(self, x: Tensor) -> Tensor:
        return self.narrow(functional.gelu(self.wide(self.ln_2(x)), approximate="tanh"))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(x)

    def step(self, x: Tensor, past: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        attended, present = self.attention.step(self.ln_1(x), past)
        x = x + attended
        return x + self.mlp(x), present


class Gpt(nn.Module):
    """Tokens [batch, length] -> logits [batch, length, vocabulary]."""

    def __init__(
        self,
        form: str = "sdpa",
        width: int = WIDTH,
        heads: int = HEADS,
        layers: int = LAYERS,
        vocabulary: int = VOCABULARY,
        longest: int = LONGEST,
    ) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(form, width, heads, longest) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.positions(torch.arange(words.size(1), device=words.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class GptStep(Gpt):
    """New tokens and the cache, a pair [batch, heads, past, width] a layer -> the last logits and the longer cache."""

    def forward(self, words: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        past = cache[0][0].size(2)
        x = self.words(words) + self.positions(torch.arange(past, past + words.size(1)).unsqueeze(0))
        new: Cache = []
        for block, pair in zip(self.blocks, cache, strict=True):
            x, present = block.step(x, pair)
            new.append(present)
        return self.head(self.norm(x[:, -1:])), new


def cache(batch: int, past: int, heads: int = HEADS, width: int = WIDTH // HEADS) -> Cache:
    return [(torch.randn(batch, heads, past, width), torch.randn(batch, heads, past, width)) for _ in range(LAYERS)]


_CACHE_AXES = {position: {0: "batch", 2: "past"} for position in range(1, 1 + 2 * LAYERS)}
CASES = [
    *(
        Case(
            f"gpt-{form}",
            lambda form=form: Gpt(form),
            lambda batch, length: (tokens(batch, length),),
            {0: {0: "batch", 1: "length"}},
            {"batch": 2, "length": 6},
            [{"batch": 1, "length": 1}, {"batch": 3, "length": 17}],
            ("trace", "export", "script"),
        )
        for form in ("sdpa", "buffer", "triu")
    ),
    Case(
        "gpt-step",
        GptStep,
        lambda batch, past: (tokens(batch, 1), cache(batch, past)),
        {0: {0: "batch"}, **_CACHE_AXES},
        {"batch": 2, "past": 4},
        [{"batch": 1, "past": 1}, {"batch": 3, "past": 9}, {"past": 0}],
    ),
    Case(
        "gpt-chunk",
        GptStep,
        lambda batch, length, past: (tokens(batch, length), cache(batch, past)),
        {0: {0: "batch", 1: "length"}, **_CACHE_AXES},
        {"batch": 2, "length": 3, "past": 4},
        [{"batch": 1, "length": 1, "past": 1}, {"batch": 3, "length": 5, "past": 9}, {"length": 4, "past": 0}],
    ),
]
