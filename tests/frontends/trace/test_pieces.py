"""Lists of all elements of a tensor, as many as the data decides: joined for any number, else as in the example."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn import functional

import purexport


def lengths_of(counts: torch.Tensor) -> torch.Tensor:
    """Lengths of sequences of which each row has one, and how often it comes."""
    return counts[:, 0].repeat_interleave(counts[:, 1])


def packed(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    lengths = lengths_of(counts)
    q, k, v = (item[None].split(lengths.tolist(), 2) for item in (x, x * 2, x + 1))
    found = [functional.scaled_dot_product_attention(*items) for items in zip(q, k, v, strict=True)]
    return torch.cat([item.transpose(1, 2).contiguous() for item in found], 1)


def reshaped(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """As libraries undo what grouped queries may need."""
    pieces = x[None].split(lengths_of(counts).tolist(), 2)
    found = [functional.scaled_dot_product_attention(item, item, item, scale=0.3) for item in pieces]
    found = [item.reshape(1, -1, piece.shape[2], 4) for item, piece in zip(found, pieces, strict=True)]
    return torch.cat(found, 2)


def causal(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    pieces = x.split(lengths_of(counts).tolist(), 1)
    return torch.cat([functional.scaled_dot_product_attention(y, y, y, is_causal=True) for y in pieces], 1)


def shuffled(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    pieces = x.split(lengths_of(counts).tolist(), 1)
    return torch.cat([functional.scaled_dot_product_attention(y, y, y) for y in pieces[::-1]], 1)


def joined_otherwise(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    pieces = x.split(lengths_of(counts).tolist(), 1)
    return torch.cat([functional.scaled_dot_product_attention(y, y, y).transpose(1, 2) for y in pieces], 1)


def written(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    pieces = x.split(lengths_of(counts).tolist(), 1)
    found = [functional.scaled_dot_product_attention(y, y, y) for y in pieces]
    x.add_(1)
    return torch.cat(found, 1)


def listed(x: torch.Tensor, counts: torch.Tensor) -> Any:
    numbers = lengths_of(counts)
    found = torch.tensor([0, *numbers.tolist(), 7, *(numbers + 1).tolist()], dtype=torch.int32)
    return found, torch.tensor(numbers.tolist())


def first_of(x: torch.Tensor, counts: torch.Tensor) -> Any:
    return x[:, : lengths_of(counts).tolist()[0]]


def of_two_axes(x: torch.Tensor, counts: torch.Tensor) -> Any:
    """The columns of a table whose height the data decides."""
    return sum(x[:, :row] for _, row in torch.stack([lengths_of(counts), lengths_of(counts) * 0 + 2], 1).tolist())


@dataclass(frozen=True)
class Pieces:
    """`model` takes a tensor and lengths with their counts; `others` are further ones, with other numbers of pieces."""

    model: Callable[..., Any]
    counts: Sequence[Sequence[int]] = ((6, 2),)
    others: Sequence[Sequence[Sequence[int]]] = (((3, 3),), ((9, 1),), ((5, 2),))
    remark: str = ""

    def args(self, counts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        length = sum(length * count for length, count in counts)
        x = torch.randn(2, length, 4, generator=torch.Generator().manual_seed(length))
        return x, torch.tensor(counts)


COUNTED = r"elements of a tensor one by one at .*test_pieces.py:\d+, as many as the data decides"
SAME = (((5, 2),), ((3, 2),))
ROWS = [
    Pieces(packed),
    Pieces(packed, ((8, 1),)),
    Pieces(packed, ((3, 2), (2, 2)), (((5, 1), (2, 3)),)),
    Pieces(reshaped),
    Pieces(listed),
    Pieces(causal, others=SAME, remark=COUNTED),
    Pieces(shuffled, others=SAME, remark=COUNTED),
    Pieces(joined_otherwise, others=SAME, remark=COUNTED),
    Pieces(written, others=SAME, remark=COUNTED),
    Pieces(first_of, remark=COUNTED),
    Pieces(of_two_axes, others=SAME, remark=COUNTED),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.model.__name__}-{len(row.counts)}-{row.counts[0][1]}")
def test_pieces(row: Pieces) -> None:
    args = row.args(row.counts)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        captured = purexport.capture(row.model, args, capture="trace", dynamic_axes={"x": {1: "n"}})
        captured.to_onnx(verify=[args, *map(row.args, row.others)])
    said = [str(item.message) for item in caught if item.category is UserWarning]
    assert len(said) == bool(row.remark), said
    assert re.search(row.remark, said[0] if said else "")


def test_files_for_as_many_pieces_do_not_take_others() -> None:
    """What the remark says: with another number of pieces, this file stops."""
    row = Pieces(causal)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = purexport.export(causal, row.args(((6, 2),)), capture="trace", dynamic_axes={"x": {1: "n"}})
    with pytest.raises(Exception, match=r"[Ss]plit"):
        program(*row.args(((4, 3),)))
