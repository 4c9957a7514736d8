"""Complex tensors: places of elements, writes that add up, distances and covariances."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import purexport
from tests.harness import Row, c64, f32, i64, values
from tests.row_plans import Plan, row_params, run_row

BOUNDS: dict[str, Any] = {"opsets": (13,), "routes": ("trace",)}

ROWS = [
    Row("nonzero", torch.nonzero, values([[0, 1j], [2, 0]], torch.complex64), trap="either part counts"),
    Row("argwhere", torch.argwhere, values([[0, 1j], [2, 0]], torch.complex64)),
    Row(
        "scatter-add",
        lambda z, s: z.scatter(0, torch.tensor([[0, 0, 1], [1, 1, 1]]), s, reduce="add"),
        c64(2, 3),
        c64(2, 3),
        opsets=(11, 20),
    ),
    Row("dist", lambda z, w: (torch.dist(z, w), torch.dist(z, w, 1)), c64(2, 3), c64(3)),
    Row("dist-real", torch.dist, c64(2, 3), f32(2, 3)),
    Row("cov", torch.cov, c64(3, 5), **BOUNDS),
    Row("cov-vector", torch.cov, c64(5), **BOUNDS),
    Row("cov-weights", lambda z, w: torch.cov(z, correction=0, fweights=w), c64(2, 3), i64(3, low=1), **BOUNDS),
    Row("corrcoef", torch.corrcoef, c64(3, 5), **BOUNDS),
    Row("corrcoef-vector", torch.corrcoef, c64(5), **BOUNDS),
    Row("logical_xor", torch.logical_xor, values([0, 1j, 2], torch.complex64), values([1, 1j, 0], torch.complex64)),
    Row("ldexp", torch.ldexp, c64(2, 3), i64(3)),
    Row("ldexp-complex", torch.ldexp, f32(3), c64(3, low=-2, high=2)),
    Row("new_ones", lambda z: z.new_ones(()) + z.new_ones((2,)), c64(2)),
    Row(
        "as_strided_copy",
        lambda z: torch.as_strided_copy(z, (2, 2), (2, 1)) + torch.as_strided_copy(z * 2, (2, 2), (1, 1)),
        c64(6),
    ),
    Row("as_strided_scatter", lambda z, w: torch.as_strided_scatter(z * 2, w, (2, 2), (2, 1)), c64(6), c64(2, 2)),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


def test_memory_beside_a_slice_of_a_complex_input_is_refused() -> None:
    with pytest.raises(purexport.UnsupportedOperatorError, match="of a slice of a tensor reads memory outside"):
        purexport.export(lambda z: torch.as_strided_copy(z[1], (2,), (1,)), torch.ones(2, 2) * 1j)


def test_a_product_of_written_elements_is_refused() -> None:
    index = torch.tensor([[0, 0]])
    with pytest.raises(purexport.UnsupportedOperatorError, match="multiplies complex tensors has no rule"):
        purexport.export(
            lambda z, s: z.scatter(1, index, s, reduce="multiply"), (torch.ones(1, 2) * 1j, torch.ones(1, 2) * 1j)
        )
