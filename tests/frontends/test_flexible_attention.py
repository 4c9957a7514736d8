"""flex_attention and associative_scan: operators of torch whose operands are programs, as plain operators.

The functions of the user become arithmetic on all scores at once; the mask of blocks only says which are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import purexport

DOCUMENTS = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
SLOPES = torch.tensor([0.5, 0.25])
Q, OTHER, LONGER = torch.randn(2, 2, 8, 4), torch.randn(3, 2, 8, 4), torch.randn(1, 2, 11, 4)


def _torch() -> Any:
    return pytest.importorskip("torch.nn.attention.flex_attention", reason="torch has no flex_attention")


def _causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


def _plain(q: Tensor) -> Any:
    return _torch().flex_attention(q, q * 2, q)


def _with_bias(q: Tensor) -> Any:
    def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.tanh(score / 2) * 2 + SLOPES[h] * (j - i)

    return _torch().flex_attention(q, q, q, score_mod=biased, scale=0.3)


def _documents(q: Tensor) -> Any:
    def same(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (DOCUMENTS[i] == DOCUMENTS[j]) & (i > j)  # the first row of each is masked whole

    mask = _torch().create_block_mask(same, None, None, 8, 8, device="cpu")
    return _torch().flex_attention(q, q, q, block_mask=mask)


def _causal_of_its_length(q: Tensor) -> Any:
    mask = _torch().create_block_mask(_causal, None, None, q.shape[2], q.shape[2], device="cpu")
    return _torch().flex_attention(q, q, q, block_mask=mask)


def _groups(q: Tensor) -> Any:
    return _torch().flex_attention(torch.cat([q, q], 1), q, q, enable_gqa=True, return_lse=True)


ROWS = [
    # the model, its dynamic axes and other arguments for the file; torch compiles each, which takes seconds
    pytest.param(_plain, {0: "batch", 2: "length"}, LONGER, id="plain", marks=pytest.mark.sweep),
    pytest.param(_with_bias, {0: "batch", 2: "length"}, LONGER, id="scores"),
    pytest.param(_documents, {0: "batch"}, OTHER, id="mask"),
    pytest.param(
        _causal_of_its_length,
        {2: "length"},
        torch.randn(2, 2, 11, 4),
        id="mask-of-dynamic-length",
        marks=pytest.mark.sweep,
    ),
    pytest.param(_groups, {}, Q, id="groups", marks=pytest.mark.sweep),
]


# by default one by each route
PARAMS = [
    pytest.param(*row.values, route, id=f"{row.id}-{route}", marks=row.marks or (() if usual else pytest.mark.full))
    for row in ROWS
    for route, usual in (("trace", row.id == "mask"), ("export", False))
]


@pytest.mark.parametrize(("model", "axes", "other", "route"), PARAMS)
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention(model: Callable[[Tensor], Any], axes: dict[int, str], other: Tensor, route: str) -> None:
    module = _torch()
    before = dict(vars(module))
    program = purexport.export(model, (Q,), capture=route, dynamic_axes={"q": axes} if axes else None, opset_version=17)
    assert [name for name, value in vars(module).items() if before.get(name, value) is not value] == []
    for given in (Q, other):
        wanted = model(given)
        for mine, theirs in zip(program(given), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("capture", ["trace", "export"])
def test_associative_scan(capture: str) -> None:
    module = pytest.importorskip("torch._higher_order_ops.associative_scan", reason="torch has no associative_scan")

    def joined(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return one[0] * other[0], one[1] * other[0] + other[1]

    def model(x: Tensor, y: Tensor) -> Any:
        return module.associative_scan(joined, (x, y), 1, combine_mode="generic")

    args = torch.rand(2, 5), torch.randn(2, 5)
    for mine, theirs in zip(purexport.export(model, args, capture=capture)(*args), model(*args), strict=True):
        torch.testing.assert_close(mine, theirs)
