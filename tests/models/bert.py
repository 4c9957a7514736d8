"""A BERT-like encoder: token types, padding, pooler (Devlin et al. 2018, arXiv:1810.04805); attention by hand, by
torch's function, and torch's own encoder layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import VOCABULARY, Case, padding, tokens

WIDTH, HEADS = 32, 4


class Embeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(64, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("position_ids", torch.arange(64).expand((1, -1)), persistent=False)

    def forward(self, words: Tensor, types: Tensor) -> Tensor:
        positions = self.position_ids[:, : words.size(1)]
        return self.drop(self.norm(self.words(words) + self.positions(positions) + self.types(types)))


class Attention(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def heads(self, x: Tensor) -> Tensor:
        return x.view((*x.size()[:-1], HEADS, WIDTH // HEADS)).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        if self.fused:
            context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS)
            context = torch.matmul(functional.softmax(scores + mask, dim=-1), value)
        context = context.permute(0, 2, 1, 3).contiguous()
        return self.out(context.view((*context.size()[:-2], WIDTH)))


class Layer(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.attention = Attention(fused)
        self.first, self.second = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.first(x + self.attention(x, mask))
        return self.second(x + self.narrow(functional.gelu(self.wide(x))))


class Bert(nn.Module):
    """Tokens, their types and the padding mask (1: counts), each [batch, length] -> every state, and the pooled one."""

    def __init__(self, fused: bool = False) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.ModuleList(Layer(fused) for _ in range(2))
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, words: Tensor, types: Tensor, mask: Tensor) -> dict[str, Tensor]:
        wide = mask[:, None, None, :].to(self.pooler.weight.dtype)
        hidden = (1.0 - wide) * torch.finfo(wide.dtype).min
        x = self.embeddings(words, types)
        for layer in self.layers:
            x = layer(x, hidden)
        return {"last_hidden_state": x, "pooler_output": torch.tanh(self.pooler(x[:, 0]))}


class MaskedWords(nn.Module):
    """Prediction of hidden words, with the decoder's weight tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = Bert(fused=True)
        self.transform, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.decoder = nn.Linear(WIDTH, VOCABULARY)
        self.decoder.weight = self.bert.embeddings.words.weight

    def forward(self, words: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        x = self.bert(words, types, mask)["last_hidden_state"]
        return self.decoder(self.norm(functional.gelu(self.transform(x), approximate="tanh")))


class TorchEncoder(nn.Module):
    """nn.TransformerEncoder with padding: its fast path in eval mode; what is padded does not reach the result."""

    def __init__(self, norm_first: bool = False, activation: str = "relu", nested: bool = False) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 2 * WIDTH, activation=activation, batch_first=True, norm_first=norm_first
        )
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=nested)
        self.classify = nn.Linear(WIDTH, 5)

    def forward(self, words: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        x = self.encoder(self.embeddings(words, types), src_key_padding_mask=mask == 0)
        counted = mask.unsqueeze(-1).to(x.dtype)
        return self.classify((x * counted).sum(1) / counted.sum(1))


_AXES = {position: {0: "batch", 1: "length"} for position in range(3)}
_SIZES, _OTHERS = {"batch": 2, "length": 7}, [{"batch": 1, "length": 1}, {"batch": 3, "length": 13}]


def _inputs(batch: int, length: int) -> tuple[Tensor, ...]:
    return tokens(batch, length), torch.randint(0, 2, (batch, length)), padding(batch, length)


_FORMS = {
    "by-hand": Bert,
    "sdpa": lambda: Bert(fused=True),
    "tied": MaskedWords,
    "torch-encoder": TorchEncoder,
    "torch-encoder-nested": lambda: TorchEncoder(nested=True),
    "torch-encoder-norm-first": lambda: TorchEncoder(norm_first=True, activation="gelu"),
}
CASES = [Case(f"bert-{name}", make, _inputs, _AXES, _SIZES, _OTHERS) for name, make in _FORMS.items()]
