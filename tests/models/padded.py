"""A transformer on a padded batch whose masks are built in place, in the ways that people write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import VOCABULARY, Case, lengths, tokens

WIDTH, HEADS = 16, 2


class Padded(nn.Module):
    """Tokens [batch, length] and the length of each sequence -> states, zero where padded, and their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def hidden(self, words: Tensor, count: Tensor) -> Tensor:
        """[batch, length] bool: True for padding."""
        raise NotImplementedError

    def forward(self, words: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = words.shape
        hidden = self.hidden(words, count)
        bias = torch.zeros(batch, 1, length, length)
        bias.masked_fill_(hidden[:, None, None, :], float("-inf"))
        x = self.words(words)
        x[hidden] = 0.0
        query, key, value = self.qkv(self.norm(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        scores += bias
        x = x + self.out((scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, WIDTH))
        x.masked_fill_(hidden.unsqueeze(-1), 0)
        return x, x.sum(1).div_(count.unsqueeze(-1))


class ByArange(Padded):
    def hidden(self, words: Tensor, count: Tensor) -> Tensor:
        mask = torch.ones(words.shape, dtype=torch.bool)
        mask[torch.arange(words.size(1)).expand_as(words) < count.unsqueeze(1)] = False
        return mask


class ByComparison(Padded):
    def hidden(self, words: Tensor, count: Tensor) -> Tensor:
        mask = torch.zeros_like(words, dtype=torch.bool)
        mask |= torch.arange(words.size(1)) >= count[:, None]
        return mask


class BySlices(Padded):
    """Row by row, with the batch as it is in the example: mask[i, n:] = True."""

    def hidden(self, words: Tensor, count: Tensor) -> Tensor:
        mask = torch.zeros(words.size(0), words.size(1), dtype=torch.bool)
        for row in range(words.size(0)):
            mask[row, count[row] :] = True
        return mask


class ByScriptedSlices(Padded):
    """The same as a scripted function: any number of rows."""

    def hidden(self, words: Tensor, count: Tensor) -> Tensor:
        return scripted_mask(words, count)


@torch.jit.script
def scripted_mask(words: Tensor, count: Tensor) -> Tensor:
    mask = torch.zeros(words.size(0), words.size(1), dtype=torch.bool)
    for row in range(words.size(0)):
        mask[row, int(count[row]) :] = True
    return mask


class ByLastPlace(Padded):
    """A one at each end, summed up from the right."""

    def hidden(self, words: Tensor, count: Tensor) -> Tensor:
        ends = torch.zeros(words.shape, dtype=torch.long)
        ends[torch.arange(words.size(0)), count - 1] = 1
        return ends.flip(1).cumsum(1).flip(1) == 0


class ByTokens(Padded):
    """From the tokens themselves, with the first place always counted."""

    def hidden(self, words: Tensor, count: Tensor) -> Tensor:
        mask = functional.pad(words[:, 1:] % 3 == 0, (1, 0), value=False)
        mask[:, 0] = False
        return mask & (count > 0).unsqueeze(1)


def _inputs(batch: int = 3, length: int = 7) -> tuple[Tensor, Tensor]:
    return tokens(batch, length), lengths(batch, length)


_AXES = {0: {0: "batch", 1: "length"}, 1: {0: "batch"}}
_SIZES, _OTHERS = {"batch": 3, "length": 7}, [{"batch": 1, "length": 1}, {"batch": 4, "length": 11}]
CASES = [
    Case("padded-arange", ByArange, _inputs, _AXES, _SIZES, _OTHERS),
    Case("padded-comparison", ByComparison, _inputs, _AXES, _SIZES, _OTHERS),
    Case(
        "padded-slices",
        BySlices,
        _inputs,
        {0: {1: "length"}},
        {"length": 7},
        [{"length": 2}, {"length": 11}],
        ("trace",),
    ),
    Case("padded-scripted-slices", ByScriptedSlices, _inputs, _AXES, _SIZES, _OTHERS, ("trace",)),
    Case("padded-last-place", ByLastPlace, _inputs, _AXES, _SIZES, _OTHERS),
    Case("padded-tokens", ByTokens, _inputs, _AXES, _SIZES, _OTHERS),
]
