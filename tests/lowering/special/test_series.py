"""Orthogonal polynomials, incomplete gamma functions, exponents and neighbours of floats."""

from __future__ import annotations

import math

import pytest
import torch

from tests.harness import Row, f32, f64, i64, values
from tests.row_plans import Plan, row_params, run_row

INF, NAN = math.inf, math.nan
FEW = (9, 13, 20)
ONE = (20,)
DEGREES = values([0.0, 1.0, 2.0, 5.0, -1.0, 3.7])
PLACES = values([[-1.0], [0.3], [1.0], [2.5], [-4.0]])
KINDS = [
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
]

ROWS = [
    *(Row(kind, getattr(torch.special, kind), PLACES, DEGREES, opsets=FEW, trap="a degree for each") for kind in KINDS),
    *(
        Row(f"{kind}-number", lambda x, kind=kind: getattr(torch.special, kind)(x, 4), f32(3), opsets=ONE)
        for kind in KINDS
    ),
    *(
        Row(f"{kind}-of-number", lambda n, kind=kind: getattr(torch.special, kind)(0.7, n), i64(4, low=0), opsets=ONE)
        for kind in KINDS
    ),
    Row("polynomial-dynamic", torch.special.legendre_polynomial_p, f32(3), i64(3, low=0), dynamic="batch", opsets=FEW),
    Row("igamma", torch.igamma, f32(40, low=0, high=9), f32(40, low=0, high=9), opsets=FEW),
    Row("igamma-broadcast", torch.igamma, f32(4, 1, low=0.1, high=30), f32(5, low=0, high=60), opsets=FEW),
    Row("igamma-large", torch.igamma, values([100.0, 900.0, 900.0, 0.01]), values([90.0, 910.0, 1000.0, 1e-6])),
    Row(
        "igamma-borders",
        torch.igamma,
        values([[0.0], [1.0], [INF], [-1.0], [NAN]]),
        values([0.0, 1.0, INF, -1.0, NAN]),
        opsets=FEW,
    ),
    Row("igammac", torch.igammac, f32(40, low=0, high=9), f32(40, low=0, high=30), opsets=FEW),
    Row("igammac-borders", torch.igammac, values([[0.0], [1.0], [INF]]), values([0.0, 1.0, INF]), opsets=ONE),
    Row("gammainc", torch.special.gammainc, f32(4, low=0), f32(4, low=0), opsets=ONE, dynamic="batch"),
    Row("gammaincc", torch.special.gammaincc, f32(4, low=0), f32(4, low=0), opsets=ONE),
    Row("frexp", torch.frexp, values([0.0, 1.0, 0.5, -3.0, 1e-42, 3e38, 0.99999994, 1024.0, 1023.99]), opsets=FEW),
    Row("frexp-double", torch.frexp, f64(5), opsets=ONE),
    Row("frexp-dynamic", torch.frexp, f32(5), opsets=ONE, dynamic="batch"),
    Row(
        "nextafter",
        lambda x, y: torch.nextafter(x, y).double() - x.double(),
        values([1.0, 1.0, -1.0, 0.0, 0.0, 3.0, 2.0, 1e-42, 1.17549435e-38]),
        values([2.0, 0.0, 0.0, 1.0, -1.0, 3.0, 1.0, 0.0, 0.0]),
        opsets=FEW,
        rtol=1e-12,
        atol=0.0,
        trap="below a power of two the gap is half",
    ),
    Row(
        "nextafter-borders", torch.nextafter, values([INF, 3.4028235e38, NAN, 1.0, INF]), values([0, INF, 1, NAN, INF])
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
