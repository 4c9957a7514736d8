"""einsum: implicit results, ellipses, diagonals, sums, many operands; and products that are einsums."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.harness import Row, f32, f64, i64, layer
from tests.row_plans import Plan, row_params, run_row


def by(equation: str) -> Callable[..., torch.Tensor]:
    """einsum of an equation; three operands at most, none of them optional for torch.export."""
    count = equation.partition("->")[0].count(",") + 1
    return {
        1: lambda a: torch.einsum(equation, a),
        2: lambda a, b: torch.einsum(equation, a, b),
        3: lambda a, b, c: torch.einsum(equation, a, b, c),
    }[count]


EINSUM = [
    Row("matrices", by("ij,jk->ik"), f32(2, 3), f32(3, 4), dynamic={0: {0: "rows"}}),
    Row("implicit", by("ij,jk"), f32(2, 3), f32(3, 4), trap="letters that appear once, in order"),
    Row("implicit-order", by("ba"), f32(2, 3), trap="no arrow sorts the result's letters"),
    Row("spaces", by(" i j , j k -> i k "), f32(2, 3), f32(3, 4)),
    Row(
        "attention", by("bhqd,bhkd->bhqk"), f32(2, 2, 3, 4), f32(2, 2, 5, 4), dynamic={0: {0: "b", 2: "q"}, 1: {0: "b"}}
    ),
    Row("heads", by("bshd,btd->bhst"), f32(2, 3, 2, 4), f32(2, 5, 4), dynamic={0: {1: "s"}, 1: {1: "t"}}),
    Row("outer", by("i,j->ij"), f32(2), f32(3)),
    Row("outer-wide", by("ab,cd->abcd"), f32(2, 3), f32(2, 2)),
    Row("dot", by("i,i->"), f32(3), f32(3)),
    Row("total", by("ij->"), f32(2, 3)),
    Row("sum-of-axis", by("ijk->ik"), f32(2, 3, 4), dynamic="batch"),
    Row("transpose", by("ijk->kij"), f32(2, 3, 4)),
    Row("diagonal", by("ii->i"), f32(3, 3)),
    Row("trace", by("ii"), f32(3, 3)),
    Row("diagonal-beside", by("bii,ic->bc"), f32(2, 3, 3), f32(3, 4)),
    Row("elementwise", by("ij,ij->ij"), f32(2, 3), f32(2, 3)),
    Row("only-in-one", by("ij,kl->il"), f32(2, 3), f32(4, 5)),
    Row("three", by("ij,jk,kl->il"), f32(2, 3), f32(3, 4), f32(4, 2)),
    Row("three-shared", by("bi,bj,bk->bijk"), f32(2, 3), f32(2, 2), f32(2, 4)),
    Row("ellipsis", by("...ij,...jk->...ik"), f32(2, 2, 2, 3), f32(2, 2, 3, 4), dynamic="batch"),
    Row("ellipsis-of-one", by("...i,ij->...j"), f32(2, 4, 3), f32(3, 2), dynamic={0: {1: "n"}}),
    Row("ellipsis-implicit", by("...ij,jk"), f32(2, 2, 3), f32(3, 4)),
    Row("ellipsis-middle", by("i...j->j...i"), f32(2, 3, 4)),
    Row("ellipsis-ranks", by("...i,...i->..."), f32(2, 3, 4), f32(3, 4)),
    Row("ellipsis-broadcast", by("...i,...i->..."), f32(2, 1, 4), f32(2, 3, 4)),
    Row("capitals", by("aB,Bc->ac"), f32(2, 3), f32(3, 2)),
    Row("double", by("ij,jk->ik"), f64(2, 3), f64(3, 4)),
    Row("integers", by("ij,jk->ik"), i64(2, 3), i64(3, 4)),
]

OTHERS = [
    Row("tensordot", lambda a, b: torch.tensordot(a, b, dims=2), f32(2, 3, 4), f32(3, 4, 5), dynamic={0: {0: "n"}}),
    Row("tensordot-axes", lambda a, b: torch.tensordot(a, b, dims=([1, 0], [0, -1])), f32(2, 3, 4), f32(3, 5, 2)),
    Row("tensordot-none", lambda a, b: torch.tensordot(a, b, dims=0), f32(2), f32(3)),
    Row("inner", lambda a, b: torch.inner(a, b), f32(2, 3), f32(4, 3)),
    Row("inner-zero-dim", lambda a, b: torch.inner(a, b), f32(2, 3), f32()),
    Row("bilinear", layer(nn.Bilinear, 3, 4, 2), f32(5, 3), f32(5, 4), dynamic="batch"),
    Row("bilinear-rank-3", lambda a, b, w: functional.bilinear(a, b, w), f32(2, 5, 3), f32(2, 5, 4), f32(2, 3, 4)),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*EINSUM, *OTHERS]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
