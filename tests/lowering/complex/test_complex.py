"""Complex tensors as pairs of real ones.  A complex input or output of the file has a last axis of size 2."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import purexport
from tests.harness import Row, boolean, c64, c128, f32, i64, values
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten
Z, W = c64(2, 3, 4), c64(2, 3, 4)
FEW = (9, 13, 20)

FORMS = [
    Row("view_as_complex", lambda x: torch.view_as_complex(x.reshape(-1, 2, 2)) * 2, f32(3, 4), dynamic="batch"),
    Row("view_as_real", torch.view_as_real, c64(2, 3), dynamic="batch"),
    Row("view_as-copies", lambda z: aten.view_as_complex_copy(aten.view_as_real_copy(z)), c64(2, 3)),
    Row("complex", torch.complex, f32(2, 3), f32(3), dynamic={0: {0: "n"}}),
    Row("polar", torch.polar, f32(2, 3, low=0), f32(2, 3)),
    Row("real-imag", lambda z: z.imag - z.real, c64(2, 3), dynamic="batch"),
    Row("real-of-real", lambda x: torch.real(x) + x.conj(), f32(2, 3)),
    Row("conj", lambda z: z.conj() * z, c64(2, 3)),
    Row("conj-output", lambda z: z.conj(), c64(2, 3), trap="torch marks it and computes later"),
    Row("conj-real", lambda x: aten.conj_physical(aten._conj_physical(x)) + x.conj(), f32(3)),
    Row("conj_physical", lambda z: aten.conj(aten._conj_physical(z.conj_physical())).resolve_conj(), c64(2, 3)),
    Row("imag-of-conj", lambda z: z.conj().imag * 2, c64(3), trap="torch marks it as negative"),
    Row("mH", lambda z: z.mH @ z, c64(2, 3)),
    Row("adjoint", lambda z: z.adjoint().resolve_conj(), c64(2, 3, 4), dynamic="batch"),
    Row("is_complex", lambda z: z.abs() * (2.0 if z.is_complex() else 1.0), c64(2, 3)),
    Row("constant", lambda x: x * torch.tensor([1 + 2j, 3j, -1]), f32(2, 3), dynamic="batch"),
    Row("large-constant", lambda x: x + torch.complex(torch.ones(300), torch.arange(300.0)), c64(2, 300)),
    Row("returned-twice", lambda z: (z, z, z + 1), c64(2, 3)),
]

DTYPES = [
    Row("to-real", lambda z: z.to(torch.float32), c64(2, 3)),
    Row("to-double", lambda z: z.to(torch.float64), c64(2, 3)),
    Row("to-bool", lambda z: z.to(torch.bool), values([0, 1j, 2, 0], torch.complex64), trap="either part counts"),
    Row("to-complex", lambda x: x.to(torch.complex64), f32(2, 3), dynamic="batch"),
    Row("to-complex-of-integers", lambda x: x.to(torch.complex64), i64(2, 3)),
    Row("to-wider", lambda z: z.to(torch.complex128), c64(2, 3)),
    Row("to-itself", lambda z, w: z.type_as(w) + aten.to.other(z, w) + z.cpu(), c64(2, 3), c64(2, 3)),
    Row("to-real-like", lambda z, x: z.type_as(x), c64(2, 3), f32(2, 3)),
    Row("_to_copy", lambda z: aten._to_copy(z, dtype=torch.complex128), c64(2)),
    Row("double", lambda z, w: z * w.conj() + z.abs(), c128(2, 3), c128(2, 3)),
    Row("promote-double", lambda z, x: z * x, c64(2, 3), c128(3), trap="complex128"),
    Row("promote-integers", lambda z, i: z * i + i, c64(2, 3), i64(3)),
    Row("promote-number", lambda x: x * 1j, f32(2, 3), trap="a float tensor and a complex number are complex64"),
    Row("promote-integers-number", lambda i: i + 2j, i64(3)),
]

ARITHMETIC = [
    Row("add", torch.add, c64(2, 3), c64(3), dynamic={0: {0: "n"}}),
    Row("add-real", torch.add, c64(3), f32(2, 3), dynamic={1: {0: "n"}}, trap="the imaginary part grows too"),
    Row("add-number", lambda z: (z + 2) + (1 - 3j), c64(2, 3)),
    Row("add-alpha", lambda z, w: torch.add(z, w, alpha=2j), c64(2, 3), c64(2, 3)),
    Row("sub", torch.sub, c64(2, 3), c64(2, 3), dynamic="batch"),
    Row("sub-real", lambda z, x: (z - x) + (x - z * 2), c64(2, 3), f32(3)),
    Row("sub-alpha", lambda z, w: torch.sub(z, w, alpha=0.5), c64(2, 3), c64(2, 3)),
    Row("rsub", lambda z: 1 - z, c64(2, 3)),
    Row("rsub-tensor", lambda z, w: torch.rsub(z, w, alpha=2), c64(2, 3), c64(3)),
    Row("mul", torch.mul, c64(2, 3), c64(3), dynamic={0: {0: "n"}}),
    Row("mul-real", lambda x, z: x * z * x, f32(2, 3), c64(3)),
    Row("mul-number", lambda z: z * 2 * 1j, c64(2, 3)),
    Row("div", torch.div, c64(2, 3), c64(2, 3), dynamic="batch"),
    Row("div-large", lambda z: z / (z * 3e30), c64(2, 3, low=1), trap="squares would overflow"),
    Row("div-real", lambda z, x: z / x + x / z, c64(2, 3), f32(3, low=0.5)),
    Row("div-number", lambda z: z / 2 + z / (1 - 1j), c64(2, 3)),
    Row("synonyms", lambda z: torch.true_divide(torch.multiply(torch.subtract(z, 1), z), z).divide(2), c64(2, 3)),
    Row("synonyms-tensors", lambda z, w: z.subtract(w).multiply(w).divide(z).true_divide(w), c64(2, 3), c64(2, 3)),
    Row("scalar-forms", lambda z: aten.add.Scalar(aten.mul.Scalar(aten.sub.Scalar(z, 1j), 2j), 3), c64(3)),
    Row("scalar-divisions", lambda z: aten.div.Scalar(aten.rsub.Scalar(z, 2j), 1j), c64(3)),
    Row(
        "scalar-synonyms",
        lambda z: aten.divide.Scalar(aten.multiply.Scalar(aten.subtract.Scalar(z, 1j), 2j), 3),
        c64(3),
    ),
    Row("true-divide-scalar", lambda z: aten.true_divide.Scalar(z, 2j), c64(3)),
    Row("neg", lambda z: -z + aten.negative(z) * 2, c64(2, 3)),
    Row("reciprocal", torch.reciprocal, c64(2, 3)),
    Row("square", torch.square, c64(2, 3)),
    Row("positive", torch.positive, c64(2, 3)),
    Row("resolve_neg", lambda z: z.resolve_neg() * 2, c64(3)),
    Row("abs", lambda z: z.abs() + torch.absolute(z), c64(2, 3), dynamic="batch"),
    Row("abs-large", lambda z: (z * 1e30).abs(), c64(2, 3), trap="squares would overflow"),
    Row("angle", torch.angle, c64(2, 3), dynamic="batch"),
    Row("angle-axes", torch.angle, values([1, -1, 1j, -1j, 0, -1 - 0j], torch.complex64)),
    Row("sgn", torch.sgn, values([3 + 4j, 0, -2, 1j], torch.complex64), trap="0 of 0"),
    Row("eq", lambda z: (z == 1j, z != 1j, z == z.real), values([1, 1j, 1 + 1j], torch.complex64)),
    Row("eq-tensor", lambda z, w: (z.eq(w), z.ne(w), z.not_equal(w), z.not_equal(1)), c64(3), c64(3)),
    Row("kinds", lambda z: (z.isnan(), z.isinf(), z.isfinite()), values([1j, math.inf, math.nan], torch.complex64)),
    Row("logical", lambda z, x: (z.logical_and(x), x.logical_or(z)), values([1j, 0, 2], torch.complex64), f32(3)),
    Row("isreal", lambda z: (torch.isreal(z), z.logical_not()), values([1j, 2, 0], torch.complex64)),
]

NAMES = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid"),
    *("sinh", "cosh", "tanh", "sin", "cos", "tan", "asinh", "acosh", "atanh", "asin", "acos", "atan"),
    *("arcsinh", "arccosh", "arctanh", "arcsin", "arccos", "arctan"),
)
POWERS = (0, 1, 2, 3, 7, -1, -2, 0.5, -0.5, 2.5, 1 + 2j)

FUNCTIONS = [
    *(Row(name, getattr(torch, name), c64(2, 3), opsets=FEW) for name in NAMES),
    Row("exp-dynamic", torch.exp, c64(2, 3), dynamic="batch"),
    Row("special", lambda z: torch.special.expit(z) + torch.special.exp2(z), c64(3)),
    Row("logcumsumexp", lambda z: (z * 3).logcumsumexp(1), c64(2, 7, 3), trap="the imaginary part is not wrapped"),
    Row("logcumsumexp-loop", lambda z: z.logcumsumexp(-1), c64(2, 12), dynamic={0: {1: "n"}}),
    Row(
        "logcumsumexp-infinite",
        lambda z: z.logcumsumexp(0),
        values(
            [[complex(-math.inf, 1), complex(-math.inf, 2), 1 + 1j], [math.inf, 3 + 1j, 1j], [1j, math.nan, 1]],
            torch.complex64,
        ),
    ),
    Row("special-1", lambda z: torch.special.expm1(z) + torch.special.log1p(z), c64(3)),
    Row("sqrt-axes", torch.sqrt, values([4, -4, 4j, -4j, 0], torch.complex64), trap="no division by the zero root"),
    Row("tanh-large", torch.tanh, values([90 + 1j, -90 + 1j], torch.complex64), trap="sinh would overflow"),
    *(Row(f"pow-{power}", lambda z, power=power: z**power, c64(2, 3), opsets=FEW) for power in POWERS),
    Row("pow-tensor", torch.pow, c64(2, 3), c64(2, 3), dynamic="batch"),
    Row("pow-real", torch.pow, f32(2, 3), c64(3), trap="the logarithm of a negative number is complex"),
    Row("pow-number", lambda z: 2**z, c64(2, 3)),
    Row(
        "pow-zero",
        torch.pow,
        values([0, 0, 0], torch.complex64),
        values([0, 2, 1 + 1j], torch.complex64),
        trap="0**0 is NaN, though 0**0 of a number is 1",
    ),
]

RIGHT_SOLVE = partial(torch.linalg.solve, left=False)
SQUARE = {0: {0: "n", 1: "n"}, 1: {0: "n"}}

PRODUCTS = [
    Row("matmul", torch.matmul, c64(2, 3), c64(3, 4), dynamic={0: {0: "n"}, 1: {1: "m"}}),
    Row("matmul-batches", torch.matmul, c64(2, 2, 3), c64(3, 4), dynamic={0: {0: "n"}}),
    Row("linalg_matmul", torch.linalg.matmul, c64(2, 3), c64(3)),
    Row("mm", torch.mm, c64(2, 3), c64(3, 4)),
    Row("bmm", torch.bmm, c64(2, 2, 3), c64(2, 3, 4), dynamic="batch"),
    Row("mv", torch.mv, c64(2, 3), c64(3)),
    Row("dot", torch.dot, c64(3), c64(3)),
    Row("vdot", torch.vdot, c64(3), c64(3), trap="the first is conjugated"),
    Row("vecdot", lambda z, w: torch.linalg.vecdot(z, w, dim=0), c64(3, 2), c64(3, 2)),
    Row("outer", torch.outer, c64(2), c64(3)),
    Row("ger", torch.ger, c64(2), c64(3)),
    Row("kron", torch.kron, c64(2, 2), c64(2)),
    Row("linear", nn.functional.linear, c64(2, 3), c64(4, 3), c64(4), dynamic={0: {0: "n"}}),
    Row("linear-layer", lambda z, w: nn.functional.linear(z, w), c64(2, 5, 3), c64(4, 3)),
    Row("einsum", lambda z, w: torch.einsum("bij,kj->bik", z, w), c64(2, 3, 4), c64(5, 4), dynamic={0: {0: "n"}}),
    Row("einsum-one", lambda z: torch.einsum("ij->ji", z), c64(2, 3)),
    Row("einsum-real", lambda z, x: torch.einsum("i,ij->j", z, x.to(z)), c64(2), f32(2, 3)),
    Row("addmm", lambda c, z, w: torch.addmm(c, z, w, beta=0.5, alpha=2j), c64(4), c64(2, 3), c64(3, 4)),
    Row("addmm-beta-0", lambda c, z, w: torch.addmm(c, z, w, beta=0), c64(4), c64(2, 3), c64(3, 4)),
    Row("baddbmm", torch.baddbmm, c64(2, 2, 4), c64(2, 2, 3), c64(2, 3, 4), dynamic="batch"),
    Row("addbmm", torch.addbmm, c64(2, 4), c64(2, 2, 3), c64(2, 3, 4)),
    Row("addmv", torch.addmv, c64(2), c64(2, 3), c64(3)),
    Row("inverse", lambda z: (z.inverse(), torch.linalg.inv(z)), c64(2, 3, 3), opsets=(13, 20)),
    Row("solve", torch.linalg.solve, c64(2, 3, 3), c64(2, 3, 2), opsets=(13, 20)),
    Row("solve-vector", torch.linalg.solve, c64(3, 3), c64(3), opsets=(13, 20)),
    Row("solve-right", RIGHT_SOLVE, c64(3, 3), c64(2, 3), opsets=(13, 20)),
    Row("solve-size", torch.linalg.solve, c64(3, 3), c64(3, 2), dynamic=SQUARE, opsets=(13,)),
    Row("decomposed", lambda z, w, y: torch.addcmul(z, w, y, value=2j), c64(2, 3), c64(2, 3), c64(3)),
]

REDUCTIONS = [
    Row("sum", lambda z: (z.sum(), z.sum(1), z.sum((0, 2), keepdim=True)), Z, dynamic="batch"),
    Row("mean", lambda z: (z.mean(), z.mean(1)), Z),
    Row("mean-dynamic", lambda z: z.mean(-1, keepdim=True), Z, dynamic="batch"),
    Row("cumsum", lambda z: z.cumsum(1), Z),
    Row("prod", lambda z: (z.prod(1), z.prod(-1, keepdim=True)), Z, dynamic="batch"),
    Row("prod-all", lambda z: (z.prod(), z[0, 0, 0].prod()), c64(2, 3, 2)),
    Row("cumprod", lambda z: (z.cumprod(-1), z[0, 0, 0].cumprod(0)), c64(2, 3, 5), dynamic="batch"),
    Row("norm", lambda z: (z.norm(), torch.norm(z, 1, 1)), Z),
    Row("norm-scalar", lambda z: (aten.norm.Scalar(z, 3), aten.norm.ScalarOpt_dim(z, 1, [1])), Z),
    Row("vector_norm", lambda z: (torch.linalg.vector_norm(z), torch.linalg.vector_norm(z, math.inf, 1)), Z),
    Row("var", lambda z: (z.var(), z.var(1), z.std(1), z.std(2, correction=0)), Z),
    Row("var_mean", lambda z: (*torch.var_mean(z), *torch.std_mean(z, 1, keepdim=True)), Z),
    Row("count_nonzero", lambda z: (z.count_nonzero(), z.count_nonzero((0, 1))), Z),
    Row("any-all", lambda z: (z.any(), z.all(), z.any(1), z.all(1)), values([[0, 1j], [0, 0]], torch.complex64)),
    Row("any-all-axes", lambda z: (torch.any(z, (0, 1)), torch.all(z, (0, 1))), c64(2, 3)),
    Row("trace", lambda z: z.trace(), c64(3, 3)),
]


def _written(z: torch.Tensor) -> torch.Tensor:
    made = z.clone()
    made[0] = 1j
    made[:, 1] = made[:, 2] * 2
    made[1, 2].mul_(2)
    return made


PLACES = i64(2, 3, 1, low=0, high=4)

STRUCTURE = [
    Row(name, function, *inputs, opsets=FEW)
    for name, function, *inputs in [
        ("views", lambda z: z.view(6, 4).reshape(4, 6).view_as(z).reshape_as(z), Z),
        ("views-aten", lambda z: aten._reshape_copy(aten.view_copy(aten._unsafe_view(z, [6, 4]), [4, 6]), [24]), Z),
        ("flatten", lambda z: (z.flatten(1), z.ravel(), z.unflatten(2, (2, 2))), Z),
        ("squeeze", lambda z: z.squeeze(0).squeeze((0, 1)).unsqueeze(0).squeeze(), c64(1, 1, 3)),
        ("squeeze-decomposed", lambda z: aten.squeeze.dims(z, [0]), c64(1, 3)),
        ("transpose", lambda z: (z.transpose(0, 1), z.swapdims(0, 2), z.swapaxes(1, 2), z.mT), Z),
        ("t", lambda z: (z.t(), z.T), c64(2, 3)),
        ("permute", lambda z: (z.permute(2, 0, 1), z.movedim(0, 2), z.moveaxis(0, 1)), Z),
        ("movedim", lambda z: (z.movedim((0, 1), (1, 2)), z.moveaxis((0, 1), (2, 0))), Z),
        ("atleast", lambda z: (torch.atleast_1d(z), torch.atleast_2d(z), torch.atleast_3d(z)), c64(3)),
        ("slice", lambda z: (z[1:, ::2], z.narrow(1, 1, 2), z[:, -1]), Z),
        ("index", lambda z, i: (z[i], z[:, i], z.index_select(0, i), z.take(i)), Z, i64(2, low=0, high=2)),
        ("gather", lambda z, i: z.gather(2, i), Z, PLACES),
        ("masked_select", lambda z: z.masked_select(torch.tensor([True, False, True])), c64(2, 3)),
        ("split", lambda z: [p * 2 for p in list(z.split(2, 1)) + list(z.split([1, 3], 2)) + list(z.chunk(2, 1))], Z),
        ("split-sizes", lambda z: aten.split.sizes(z, [1, 3], 2)[1] * 2, Z),
        ("split_with_sizes", lambda z: list(z.split_with_sizes((1, 3), 2)), Z),
        ("unbind", lambda z: torch.stack(z.unbind(1)[::-1], 1), Z),
        ("tensor_split", lambda z: list(z.tensor_split(2, 1)) + list(z.tensor_split((1, 2), 2)), Z),
        ("hsplit", lambda z: list(z.hsplit(3)) + list(z.hsplit((1,))) + list(z.vsplit(2)) + list(z.vsplit((1,))), Z),
        ("dsplit", lambda z: list(z.dsplit(2)) + list(z.dsplit((1,))), Z),
        ("diagonal", lambda z: (z.diagonal(), torch.linalg.diagonal(z), torch.diag_embed(z)), Z),
        ("diag", lambda z: (z.diag(), z.diag().diag(), z.diagflat()), c64(2, 3)),
        ("unfold", lambda z: z.unfold(2, 2, 1), Z),
        ("tril", lambda z: (z.tril(), z.triu(1)), Z),
        ("expand", lambda z, w: (z.expand(2, 3), z.broadcast_to(2, 3), z.expand_as(w)), c64(3), c64(2, 3)),
        ("repeat", lambda z: (z.repeat(2, 1), z.tile(2), z.repeat_interleave(2, 1)), c64(2, 3)),
        ("flip", lambda z: (z.flip(0, 2), z.rot90(1), z.fliplr(), z.flipud(), z.roll(1, 2)), Z),
        ("copies", lambda z: aten.lift_fresh_copy(aten.alias(z.contiguous().clone().detach())), Z),
        ("zeros", lambda z: torch.zeros_like(z) + z.clone().zero_() + z.new_zeros(4), Z),
        ("empty", lambda z: torch.empty_like(z).fill_(1j) + z.new_empty(4).fill_(2) + z, Z),
        ("zeros-constants", lambda x: x + torch.zeros(4, dtype=torch.complex64) + torch.full((4,), 2 + 1j), f32(4)),
        ("empty-constants", lambda x: x + torch.empty(4, dtype=torch.complex64).fill_(1j), f32(4)),
        ("ones", lambda z: torch.ones_like(z) + z.new_ones(4) + torch.ones(4, dtype=torch.complex64), Z),
        ("ones-real", lambda z: torch.ones_like(z, dtype=torch.float32) + torch.zeros_like(z, dtype=torch.int64), Z),
        ("full", lambda z: torch.full_like(z, 1 - 1j) + z.new_full((4,), 3j), Z),
        ("fill", lambda z: z.clone().fill_(2j) + z.clone().fill_(torch.tensor(1j)), Z),
        ("scalar_tensor", lambda x: x * torch.scalar_tensor(1 + 1j, dtype=torch.complex64), f32(3)),
        ("pad", lambda z: nn.functional.pad(z, (1, 2), value=1.5), Z),
        ("pad-reflect", lambda z: nn.functional.pad(z, (1, 1), mode="reflect"), Z),
        ("constant_pad_nd", lambda z: torch.constant_pad_nd(z, (1, 0, 0, 1), 2j), Z),
        ("masked_fill", lambda z, m: z.masked_fill(m, 2j) + z.masked_fill(m, torch.tensor(1j)), Z, boolean(4)),
        ("where", lambda z, w: torch.where(z.real > 0, z, w), Z, W),
        ("where-real", lambda z, x: torch.where(x > 0, z, x), Z, f32(4)),
        ("where-number", lambda z, x: torch.where(x > 0, z, 0) + torch.where(x > 0, 1j, z), Z, f32(4)),
        ("where-numbers", lambda x: torch.where(x > 0, 1j, 2.0), f32(4)),
        ("index_put", lambda z: aten.index_put(z, [torch.tensor([1])], torch.tensor(2j)), Z),
        ("written", _written, Z),
        ("written-diagonal", lambda z: aten.diagonal_scatter(z, torch.zeros(2, dtype=torch.complex64)), c64(2, 3)),
        ("scatter", lambda z, i: z.scatter(2, i, z * 2), Z, PLACES),
        ("index_copy", lambda z: z.index_copy(1, torch.tensor([2]), z[:, :1] * 2), Z),
        ("cat", lambda z, x: torch.cat([z, x, z], 1), c64(2, 3), f32(2, 3)),
        ("cat-synonyms", lambda z: torch.concat([z, torch.concatenate([z, z])]), c64(2, 3)),
        ("stack", lambda z, x: torch.stack([z, x], 1), c64(2, 3), f32(2, 3)),
        ("stacks", lambda z: (torch.hstack([z, z]), torch.vstack([z, z]), torch.dstack([z, z])), c64(2, 3)),
        ("row_stack", lambda z: (torch.row_stack([z, z]), torch.column_stack([z, z])), c64(3)),
        ("meshgrid", lambda z, w: torch.meshgrid(z, w, indexing="xy"), c64(2), c64(3)),
        ("meshgrid-default", lambda z, w: aten.meshgrid([z, w]), c64(2), c64(3)),
        ("broadcast_tensors", lambda z, w: torch.broadcast_tensors(z, w), c64(2, 1), c64(3)),
        ("cartesian_prod", lambda z, w: torch.cartesian_prod(z, w), c64(2), c64(3)),
    ]
]


def _narrowed(z: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    return aten.narrow.Tensor(z, 1, start, 2)


LATER = [
    Row("narrow-computed", _narrowed, Z, values(1, torch.int64), routes=["trace"]),
    Row(
        "moved-copies",
        lambda z: (aten.narrow_copy(z, 1, 1, 2), aten.permute_copy(z, [1, 0, 2]), aten.unbind_copy(z, 0)),
        Z,
        routes=["trace"],
        opsets=(13, 20),
    ),
    Row("put", lambda z: z.put(torch.tensor([1, 5]), z[0, 0, :2]), Z),
    Row("masked_scatter", lambda z, m: z.masked_scatter(m, z * 2), c64(2, 3), boolean(2, 3)),
    Row("take_along_dim", lambda z, i: torch.take_along_dim(z, i, 2), Z, PLACES),
    Row("scatter_add", lambda z, i: z.scatter_add(2, i, z), Z, PLACES),
    Row("index_add", lambda z: z.index_add(1, torch.tensor([2]), z[:, :1]), Z),
]

SIZES = [
    Row("sizes", lambda z: z * z.shape[0] + z.size(1), c64(2, 3), dynamic="batch"),
    Row("numel-static", lambda z: z * z.numel(), c64(2, 3)),
    Row("numel", lambda z: z * z.numel(), c64(2, 3), dynamic="batch", routes=["export"]),
    Row("reshape-dynamic", lambda z: z.reshape(z.shape[0], -1, 2).flatten(0, 1), c64(2, 3, 4), dynamic="batch"),
    Row("cat-dynamic", lambda z: torch.cat([z, z * 2]), c64(2, 3), dynamic="batch"),
    Row("expand-dynamic", lambda z: z[:1].expand(z.shape[0], -1) + z, c64(2, 3), dynamic="batch"),
    Row("full-dynamic", lambda z: torch.ones_like(z) + torch.full_like(z, 2j), c64(2, 3), dynamic="batch"),
]


# As models write them -----------------------------------------------------------------------------------------------


class Rotary(nn.Module):
    """Positions as rotations of pairs of channels, in the complex form of the first Llama."""

    def __init__(self, width: int = 8, length: int = 32) -> None:
        super().__init__()
        rates = 1.0 / (100.0 ** (torch.arange(0, width, 2).float() / width))
        angles = torch.outer(torch.arange(length).float(), rates)
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().reshape(x.shape[0], x.shape[1], x.shape[2], -1, 2))
        turns = self.turns[: x.shape[1]].reshape(1, x.shape[1], 1, -1)
        return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


class Recurrence(nn.Module):
    """A diagonal recurrence whose state is complex, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pole", torch.tensor([0.5 + 0.5j, -0.3j, 0.9]))

    def forward(self, x: torch.Tensor, steps: int) -> torch.Tensor:
        state = torch.zeros(3, dtype=torch.complex64)
        for step in range(x.shape[0]):
            state = state * self.pole + x[step]
        return state.real


class Branches(nn.Module):
    """A branch on data that gives a complex tensor."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        turned = z * 2
        if z.real.sum() > 0:
            turned = z * 1j
        return turned.imag


ALL_ROUTES = ("trace", "export", "script")

MODELS = [
    Row(
        "rotary",
        Rotary,
        f32(2, 5, 3, 8),
        dynamic={0: {0: "batch", 1: "length"}},
        routes=ALL_ROUTES,
    ),
    Row("recurrence", Recurrence, f32(4, 3), 4, routes=ALL_ROUTES),
    Row("recurrence-dynamic", Recurrence, f32(4, 3), 4, dynamic={0: {0: "length"}}, routes=["script"], opsets=(13, 20)),
    Row("branches", Branches, c64(2, 3), routes=["script"], opsets=(13, 20)),
]

ROWS = FORMS + DTYPES + ARITHMETIC + FUNCTIONS + PRODUCTS + REDUCTIONS + STRUCTURE + LATER + SIZES + MODELS


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


# Refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z: torch.linalg.eig(z)[0], r"aten::linalg_eig.* has no rule for complex tensors"),
        (lambda z: torch.einsum("ij,jk,kl->il", z, z, z), r"more than two complex tensors has no rule"),
    ],
)
def test_refused(function: Any, message: str) -> None:
    with pytest.raises(purexport.UnsupportedOperatorError, match=message):
        purexport.export(function, torch.eye(3, dtype=torch.complex64))


def test_a_dynamic_product_is_refused() -> None:
    with pytest.raises(purexport.UnsupportedOperatorError, match="along a dynamic axis of complex tensors has no rule"):
        purexport.export(
            lambda z: z.prod(0), torch.ones(3, dtype=torch.complex64), input_names=["z"], dynamic_axes={"z": {0: "n"}}
        )


def test_a_custom_rule_is_not_given_complex_tensors() -> None:
    rules = {"aten::mul.Tensor": lambda op, self, other: op.Mul(self, other)}
    with pytest.raises(purexport.UnsupportedOperatorError, match="which a custom rule cannot take"):
        purexport.export(lambda z: z * z, torch.ones(3, dtype=torch.complex64), custom_translation_table=rules)


def test_complex_inputs_and_outputs_are_real_in_the_file() -> None:
    """The program takes the model's complex tensors and verifies; the file's own tensors have a last axis of size 2."""
    z = torch.tensor([1 + 2j, 3j])
    program = purexport.export(lambda z: z * 1j, z, input_names=["z"], verify=True)
    (given,), (made,) = program.model_proto.graph.input, program.model_proto.graph.output
    assert [dim.dim_value for dim in given.type.tensor_type.shape.dim] == [2, 2]
    assert [dim.dim_value for dim in made.type.tensor_type.shape.dim] == [2, 2]
    torch.testing.assert_close(program(z)[0], torch.view_as_real(z * 1j))
    assert any("'z' is complex" in remark and "view_as_real" in remark for remark in program.report.warnings)
