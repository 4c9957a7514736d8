"""Special functions, from their poles to their tails."""

from __future__ import annotations

import math

import pytest
import torch
from torch import special

from tests.harness import Row, f32, f64, i64, values
from tests.row_plans import Plan, row_params, run_row

INF, NAN = math.inf, math.nan
FEW = (9, 20)
LINE = values([-30.0, -9.5, -3.3, -1.0, -0.4, -1e-3, 0.0, 1e-3, 0.3, 0.5, 0.99, 1.0, 2.0, 3.7, 7.99, 8.01, 15.2, 90.0])
RIGHT = values([1e-3, 0.1, 0.3, 0.5, 0.99, 1.0, 1.99, 2.01, 3.7, 7.99, 8.01, 15.2, 50.0])
EDGES = values([-INF, INF, NAN])
SHARES = values([1e-30, 1e-8, 1e-3, 0.2, 0.5, 0.8, 0.999, 0.9999999])
OPEN = values([-0.9999999, -0.99, -0.5, -1e-6, 0.0, 1e-6, 0.3, 0.9, 0.9999999, 1.0, -1.0])


def each(function, *inputs, atol=1e-30, rtol=1e-5):
    """Rows of one function, to the relative accuracy of float however small the result."""
    name = function.__name__
    return [
        Row(f"{name}-{number}", function, item, opsets=FEW, atol=atol, rtol=rtol) for number, item in enumerate(inputs)
    ]


ROWS = [
    Row("erf", torch.erf, LINE),
    Row("special-erf", special.erf, f32(3, 4), opsets=FEW),
    Row("erf-int", torch.erf, i64(4), opsets=FEW),
    *each(torch.erfc, values([-30.0, -1.0, 0.0, 0.5, 2.0, 5.0, 9.0]), EDGES),
    *each(special.erfc, f32(3, 4)),
    *each(special.erfcx, values([-5.0, -1.0, 0.0, 0.5, 2.0, 50.0, 1e6]), EDGES),
    *each(torch.erfinv, OPEN, values([NAN, 1.5])),
    *each(special.erfinv, f32(3, 4, low=-1, high=1)),
    *each(special.ndtri, SHARES, values([0.0, 1.0, NAN])),
    *each(special.ndtr, values([-3.0, 0.0, 1.0, 5.0]), EDGES),
    *each(special.log_ndtr, values([-30.0, -3.0, -1.0, 0.0, 1.0, 5.0])),
    Row("erfc-dynamic", torch.erfc, f32(2, 3), dynamic={0: {0: "a", 1: "b"}}, opsets=FEW),
    Row("erfc-zero-dim", torch.erfc, f32(), opsets=FEW),
    Row("erfc-double", torch.erfc, f64(5), opsets=FEW),
    *each(torch.lgamma, RIGHT, values([-0.5, -1.5, -7.3, 1e5]), values([0.0, -2.0, INF]), atol=1e-6),
    *each(special.gammaln, RIGHT, atol=1e-6),
    *each(torch.digamma, RIGHT, values([-0.5, -1.5, -7.3, 1e5]), values([0.0, -2.0, INF]), atol=1e-6),
    *each(special.digamma, RIGHT, atol=1e-6),
    *each(special.psi, RIGHT, atol=1e-6),
    *[
        Row(f"polygamma-{n}", lambda x, n=n: torch.polygamma(n, x), values([0.3, 1.0, 5.5, 50.0, -0.5]), opsets=FEW)
        for n in range(5)
    ],
    Row("special-polygamma", lambda x: special.polygamma(1, x), RIGHT, opsets=FEW),
    Row(
        "zeta",
        special.zeta,
        values([2.0, 1.5, 3.0, 1.0, 0.5, 2.0]),
        values([1.0, 0.3, 9.0, 2.0, 2.0, -2.0]),
        opsets=FEW,
    ),
    Row("zeta-of-number", lambda q: special.zeta(3, q), RIGHT, opsets=FEW),
    Row("zeta-at-number", lambda s: special.zeta(s, 2.5), values([1.5, 2.0, 9.0]), opsets=FEW),
    *each(torch.i0, values([-5.0, 0.0, 0.5, 7.99, 8.01, 30.0])),
    *each(special.i0, f32(5)),
    *each(special.modified_bessel_i0, f32(5)),
    *each(special.i0e, LINE, values([INF])),
    *each(special.i1, values([-5.0, 0.0, 0.5, 7.99, 8.01, 30.0])),
    *each(special.modified_bessel_i1, f32(5)),
    *each(special.i1e, LINE),
    *each(special.modified_bessel_k0, RIGHT, values([0.0, -1.0])),
    *each(special.modified_bessel_k1, RIGHT, values([0.0, -1.0])),
    *each(special.scaled_modified_bessel_k0, RIGHT),
    *each(special.scaled_modified_bessel_k1, RIGHT),
    *each(special.bessel_j0, LINE, atol=1e-6),
    *each(special.bessel_j1, LINE, atol=1e-6),
    *each(special.bessel_y0, RIGHT, values([0.0, -1.0]), atol=1e-6),
    *each(special.bessel_y1, RIGHT, values([0.0, -1.0]), atol=1e-6),
    *each(special.spherical_bessel_j0, LINE, values([INF]), atol=1e-6),
    *each(special.airy_ai, LINE, atol=1e-6),
    Row(
        "airy-far",
        special.airy_ai,
        values([NAN, INF, -INF, 8.0, -8.0, 103.0, 200.0, -300.0], torch.float64),
        opsets=FEW,
    ),
    *each(torch.sinc, LINE, atol=1e-6),
    *each(special.sinc, f32(5), atol=1e-6),
    Row("xlogy", torch.xlogy, values([0.0, 0.0, 2.0, 0.0]), values([0.0, NAN, 3.0, INF])),
    Row("xlogy-number", lambda x: torch.xlogy(x, 2.0), f32(4), opsets=FEW),
    Row("xlogy-of-number", lambda x: torch.xlogy(2.0, x), f32(4, low=0.1, high=3), opsets=FEW),
    Row("special-xlogy", special.xlogy, f32(4), f32(4, low=0.1, high=3), opsets=FEW),
    Row("special-xlogy-number", lambda x: special.xlogy(x, 2.0), f32(4), opsets=FEW),
    Row("special-xlogy-of-number", lambda x: special.xlogy(2, x), f32(4, low=0.1, high=3), opsets=FEW),
    Row("xlog1py", special.xlog1py, values([0.0, 0.0, 2.0]), values([-1.0, NAN, 3.0]), opsets=FEW),
    Row("xlog1py-number", lambda x: special.xlog1py(x, 2.0), f32(4), opsets=FEW),
    Row("xlog1py-of-number", lambda x: special.xlog1py(2.0, x), f32(4, low=0.1, high=3), opsets=FEW),
    Row("entr", special.entr, values([-1.0, 0.0, 0.5, 2.0, NAN])),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
