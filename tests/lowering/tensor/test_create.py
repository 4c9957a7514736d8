"""Tensors made from nothing, and copies in another dtype."""

from __future__ import annotations

import pytest
import torch

from tests.harness import CAPTURES, Row, f16, f32, f64, i32, i64, values
from tests.row_plans import Plan, row_params, run_row

FEW = (9, 13, 20)
BOTH = {0: {0: "rows", 1: "columns"}}

FILLED = [
    Row("zeros", lambda x: x + torch.zeros(3, 4), f32(3, 4), opsets=FEW),
    Row("zeros-dynamic", lambda x: torch.zeros(x.shape[0], 2, x.shape[1]), f32(3, 4), dynamic=BOTH),
    Row("zeros-large", lambda x: x + torch.zeros(30, 40), f32(30, 40), opsets=FEW),
    Row("zeros-int", lambda x: torch.zeros(x.shape, dtype=torch.int32), f32(3, 4), dynamic=BOTH, opsets=FEW),
    Row("zeros-empty", lambda x: torch.zeros(0, 3), f32(1), opsets=FEW),
    Row("empty", lambda x: torch.where(x < 99, x, torch.empty(x.shape)), f32(3, 4), dynamic=BOTH, opsets=FEW),
    Row("empty-strided", lambda x: torch.where(x < 99, x, torch.empty_strided((3, 4), (4, 1))), f32(3, 4), opsets=FEW),
    Row(
        "empty-permuted", lambda x: torch.where(x < 99, x, torch.empty_permuted((3, 4), (1, 0))), f32(3, 4), opsets=FEW
    ),
    Row(
        "new-empty-strided",
        lambda x: torch.where(x < 99, x, x.new_empty_strided((3, 4), (4, 1))),
        f32(3, 4),
        opsets=FEW,
    ),
    Row("ones", lambda x: torch.ones(x.shape), f32(3, 4), dynamic=BOTH),
    Row("ones-bool", lambda x: torch.ones(x.shape[0], dtype=torch.bool), f32(3, 4), dynamic=BOTH, opsets=FEW),
    Row("full", lambda x: torch.full(x.shape, 2.5), f32(3, 4), dynamic=BOTH),
    Row("full-int", lambda x: torch.full((x.shape[0], 3), 7), f32(3, 4), dynamic=BOTH),
    Row("full-half", lambda x: torch.full(x.shape, 0.1, dtype=torch.float16), f32(3, 4), opsets=FEW),
    Row("new-zeros", lambda x: x.new_zeros(x.shape[1], 3), f32(3, 4), dynamic=BOTH),
    Row("new-zeros-dtype", lambda x: x.new_zeros((2,), dtype=torch.int64), f32(3), opsets=FEW),
    Row("new-empty", lambda x: torch.where(x < 99, x, x.new_empty((2, 3))), f32(3), opsets=FEW),
    Row("new-ones", lambda x: x.new_ones(x.shape), i64(3, 4), dynamic=BOTH),
    Row("new-full", lambda x: x.new_full((x.shape[0],), 5), f32(3, 4), dynamic=BOTH),
    Row("zeros-like", torch.zeros_like, f32(3, 4), dynamic=BOTH),
    Row("zeros-like-dtype", lambda x: torch.zeros_like(x, dtype=torch.bool), f32(3, 4), opsets=FEW),
    Row("empty-like", lambda x: torch.where(x < 99, x, torch.empty_like(x)), f32(3, 4), dynamic=BOTH, opsets=FEW),
    Row("zero-in-place", lambda x: x.clone().zero_(), f32(3, 4), opsets=FEW),
    Row("ones-like", torch.ones_like, i32(3, 4), dynamic=BOTH),
    Row("ones-like-zero-dim", torch.ones_like, f32(), opsets=FEW),
    Row("full-like", lambda x: torch.full_like(x, 3), f32(3, 4), dynamic=BOTH),
    Row("full-like-dtype", lambda x: torch.full_like(x, 2.5, dtype=torch.float64), i64(3, 4), opsets=FEW),
    Row("fill", lambda x: torch.fill(x, 2.0), f32(3, 4), dynamic=BOTH, routes=("trace", "export")),
    Row("fill-tensor", torch.fill, f32(3, 4), f32(), dynamic={0: {0: "rows"}}, routes=("trace", "export")),
    Row("fill-size", lambda x: torch.fill(x, value=x.shape[0]), f32(3, 4), dynamic=BOTH, routes=("trace",)),
    Row("fill-bool", lambda x: torch.fill(x, True), i64(3, 4), routes=("trace",), opsets=FEW),
    Row("fill-in-place", lambda x: x.clone().fill_(2), i64(3, 4), opsets=FEW),
    Row("scalar-tensor", lambda x: x + torch.scalar_tensor(3.0), f32(3), opsets=FEW),
    Row("constant", lambda x: x + torch.tensor([1.0, 2.0, 3.0]), f32(3), opsets=FEW),
]

HELD = ("trace", "script")  # of torch.range, torch.export holds the size
POSITIONS = [
    Row("arange", lambda x: torch.arange(5) + x, i64(5)),
    Row("arange-dynamic", lambda x: torch.arange(x.shape[0]), f32(3, 4), dynamic=BOTH),
    # torch.export itself holds the axis
    Row("dim-arange", lambda x: torch._dim_arange(x, 0), f32(3, 4), dynamic=BOTH, routes=("trace", "script")),
    Row("arange-float", lambda x: torch.arange(x.shape[0], dtype=torch.float32), f32(3, 4), dynamic=BOTH),
    Row("arange-start", lambda x: torch.arange(1, x.shape[0]), f32(3, 4), dynamic=BOTH),
    Row("arange-step", lambda x: torch.arange(1, x.shape[0], 2), f32(7, 4), dynamic=BOTH),
    Row("arange-down", lambda x: torch.arange(x.shape[0], 0, -2), f32(7, 4), dynamic=BOTH),
    Row("arange-half-steps", lambda x: torch.arange(0, x.shape[0], 0.5), f32(3, 4), dynamic=BOTH),
    Row("range", lambda x: torch.range(1, 4) + x, f32(4), opsets=FEW),
    Row("range-default", lambda x: torch.ops.aten.range.default(1, 4) + x, f32(4), opsets=FEW, routes=CAPTURES),
    Row("range-step", lambda x: torch.range(0.5, 2, 0.5) + x, f32(4), opsets=FEW),
    Row("range-of-a-size", lambda x: x * torch.range(1, x.shape[0])[:, None], f32(3, 4), dynamic=BOTH, routes=HELD),
    Row("range-down-a-size", lambda x: torch.range(x.shape[0], 0, -0.75), f32(3, 4), dynamic=BOTH, routes=HELD),
    Row("range-of-type", lambda x: torch.range(0, x.shape[1], dtype=torch.int64), f32(3, 4), dynamic=BOTH, routes=HELD),
    Row("convert-element-type", lambda x: torch.ops.prims.convert_element_type(x, torch.float64), f32(3)),
    Row("arange-known-start", lambda x: torch.arange(2, 7) + x, i64(5), opsets=FEW),
    Row("arange-tenths", lambda x: torch.arange(0, 1, 0.1) + x, f32(10), trap="counted in double"),
    Row("arange-large", lambda x: torch.arange(1000) + x, i64(1000)),
    Row("arange-large-float", lambda x: torch.arange(0.0, 500.0) + x, f32(500), opsets=FEW),
    Row("arange-int32", lambda x: torch.arange(400, dtype=torch.int32) + x, i32(400), opsets=FEW),
    Row("linspace", lambda x: torch.linspace(-1, 1, 5) + x, f32(5), opsets=FEW),
    Row("linspace-one", lambda x: torch.linspace(3, 4, 1) + x, f32(1), opsets=FEW),
    Row(
        "linspace-any",
        lambda x: torch.linspace(-1, x.shape[0], x.shape[0]) + x,
        f32(5),
        dynamic={0: {0: "n"}},
        every=(1, 2),
        opsets=FEW,
        routes=CAPTURES,
    ),
    Row(
        "logspace-any",
        lambda x: torch.logspace(0, 1, x.shape[0]) + x,
        f32(5),
        dynamic={0: {0: "n"}},
        opsets=FEW,
        routes=CAPTURES,
    ),
    Row(
        "arange-of-a-part",
        lambda x: torch.arange(0, 1, 1 / x.shape[0]) + x.sum(),
        f32(4),
        dynamic={0: {0: "n"}},
        sizes={"n": 8},
        opsets=FEW,
        routes=("trace",),
        trap="the step is a float that follows from a size",
    ),
    *(
        Row(
            f"{function.__name__}-any-{offset}",
            lambda x, function=function, offset=offset: x.take(
                function(x.shape[0], x.shape[1], offset)[0] + function(x.shape[0], x.shape[1], offset)[1]
            ),
            f32(4, 4),
            dynamic={0: {0: "n", 1: "n"}},
            opsets=FEW,
            routes=CAPTURES,
        )
        for function, offset in ((torch.tril_indices, 1), (torch.tril_indices, -1), (torch.triu_indices, 1))
    ),
    Row(
        "triu_indices-any-shape",
        lambda x: torch.triu_indices(x.shape[0], x.shape[1], -1),
        f32(4, 3),
        dynamic={0: {0: "n", 1: "m"}},
        sizes={"n": 2, "m": 5},
        opsets=FEW,
        routes=CAPTURES,
    ),
    Row("linspace-tensor", lambda x: torch.linspace(x, 2.0, 5), f32(), opsets=FEW),
    Row("linspace-to-tensor", lambda x: torch.linspace(2.0, x, 4), f32(), opsets=FEW),
    Row("linspace-tensors", lambda x, y: torch.linspace(x, y, 5), f32(), f32()),
    Row("logspace", lambda x: torch.logspace(-1, 1, 5) + x, f32(5), opsets=FEW),
    Row("logspace-tensor", lambda x: torch.logspace(x, 1.0, 5, base=2), f32(), opsets=FEW, traced="found type 'float'"),
    Row(
        "logspace-to-tensor",
        lambda x: torch.logspace(1.0, x, 5, base=2),
        f32(),
        opsets=FEW,
        traced="found type 'float'",
    ),
    Row("logspace-tensors", lambda x, y: torch.logspace(x, y, 5), f32(), f32(), opsets=FEW),
    Row("eye", lambda x: torch.eye(3) + x, f32(3, 3), opsets=FEW),
    Row("eye-dynamic", lambda x: torch.eye(x.shape[0], x.shape[1]), f32(3, 4), dynamic=BOTH),
    Row("tril-indices", lambda x: torch.tril_indices(3, 4, 1) + x, i64(1), opsets=FEW),
    Row("triu-indices", lambda x: torch.triu_indices(3, 4) + x, i64(1), opsets=FEW),
]

COPIES = [
    Row("to-dtype", lambda x: x.to(torch.int32), values([-1.7, 1.7, 0.5]), trap="towards zero"),
    Row("to-bool", lambda x: x.bool(), values([0.0, 0.5, -1.0]), traced="no attribute or method 'bool'"),
    Row("to-half", lambda x: x.half(), f32(3)),
    Row("to-int8-wraps", lambda x: x.to(torch.int8), values([300, -200, 5], torch.int64)),
    Row("to-device", lambda x: x.to("cpu") * 2, f32(3), opsets=FEW),
    Row("to-device-dtype", lambda x: x.to("cpu", torch.float64), f32(3), opsets=FEW),
    Row("to-other", torch.ops.aten.to.other, f32(3), f64(3), opsets=FEW),
    Row("type-as", lambda x, y: x.type_as(y), i64(3), f16(3), opsets=FEW),
    Row(
        "to-layout",
        lambda x: torch.ops.aten.to.dtype_layout(x, dtype=torch.float64),
        f32(3),
        opsets=FEW,
        traced="another overload",
    ),
    Row("to-copy", lambda x: torch.ops.aten._to_copy(x, dtype=torch.float64), f32(3), opsets=FEW),
    Row("contiguous", lambda x: x.t().contiguous(), f32(3, 4), opsets=FEW),
    Row("clone", lambda x: x.clone() + 1, f32(3), opsets=FEW),
    Row("detach", lambda x: x.detach() + 1, f32(3), opsets=FEW),
    Row("detach-copy", lambda x: torch.detach_copy(x) + 1, f32(3), opsets=FEW),
    Row("alias", lambda x: torch.ops.aten.alias(x) + 1, f32(3), opsets=FEW),
    Row("positive", lambda x: +x + 1, f32(3), opsets=FEW, traced="'UnaryOp'"),
    Row("resolve-conj", lambda x: x.resolve_conj() + 1, f32(3), opsets=FEW),
    Row("resolve-neg", lambda x: x.resolve_neg() + 1, f32(3), opsets=FEW),
    Row("lift-fresh", lambda x: x + torch.ops.aten.lift_fresh(x), f32(3), opsets=FEW),
    Row("lift-fresh-copy", lambda x: x + torch.ops.aten.lift_fresh_copy(x), f32(3), opsets=FEW),
    Row("copy", lambda x, y: torch.ops.aten.copy(x, y), f32(3, 4), i64(4), dynamic={0: {0: "rows"}}),
    Row("copy-in-place", lambda x, y: x.clone().copy_(y), f32(3, 4), f32(3, 4), opsets=FEW),
]

# numbers that follow from a size, made into the dtype of the result
ANY = {0: {0: "n"}}
COMPUTED = [
    *(
        Row(
            f"fill-to-{dtype}".replace("torch.", ""),
            lambda x, dtype=dtype: (
                torch.full([2, x.size(0)], x.size(0) * 2 + 0.5, dtype=dtype),
                torch.full_like(x, x.size(0) / 3, dtype=dtype),
                x.new_full([2], x.size(0) * 1.5, dtype=dtype),
                x.to(dtype).fill_(x.size(0) * 0.5),
                torch.full([2], 0.5 - x.size(0) * 0.5, dtype=torch.int32),
            ),
            f32(4),
            dynamic=ANY,
            sizes={"n": 1},
            every=(3, 7),
        )
        for dtype in (torch.int64, torch.uint8, torch.float16, torch.float64, torch.bool)
    ),
    *(
        Row(
            f"arange-to-{dtype}".replace("torch.", ""),
            lambda x, dtype=dtype: (
                torch.arange(x.size(0) * 0.5, dtype=dtype),
                torch.arange(2, x.size(0) * 2 + 0.5, 1.5, dtype=dtype),
                torch.arange(20.5, x.size(0) / 3, -1.5, dtype=dtype),
                torch.arange(20.5 - x.size(0) * 1.5, 29.5, 2.5, dtype=dtype),
                torch.arange(0.5, 30.5, x.size(0) + 0.5, dtype=dtype),
            ),
            f32(4),
            dynamic=ANY,
            sizes={"n": 1},
            every=(3, 7),
            trap="for int64 the bounds and the step are truncated before the steps are counted",
        )
        for dtype in (torch.int64, torch.int32, torch.uint8, torch.float16, torch.float32, torch.float64)
    ),
    *(
        Row(
            f"range-{dtype}".replace("torch.", ""),
            lambda x, dtype=dtype: (
                torch.range(0.5, x.size(0) * 2 + 0.5, 1.5, dtype=dtype),
                torch.range(-x.size(0) * 1.5, 20, 2.5, dtype=dtype),
            ),
            f32(4),
            dynamic=ANY,
            sizes={"n": 1},
            every=(3, 7),
            routes=HELD,
            trap="for integers the bounds and the step are truncated first",
        )
        for dtype in (torch.int64, torch.int32, torch.float64)
    ),
    *(
        Row(
            f"spaced-{dtype}".replace("torch.", ""),
            lambda x, dtype=dtype: (
                torch.linspace(-x.size(0) * 1.5, 20.5, 5, dtype=dtype),
                torch.linspace(0.5, x.size(0) * 2 + 0.5, 5, dtype=dtype),
                torch.logspace(0.5, x.size(0) * 0.5, 4, 2.0, dtype=dtype),
            ),
            f32(4),
            dynamic=ANY,
            sizes={"n": 1},
            every=(3, 7),
            opsets=FEW,
        )
        for dtype in (torch.int64, torch.int32, torch.float64)
    ),
    Row(
        "numbers-of-data",
        lambda x: (
            torch.arange(-3.5, x.sum().item(), 1.5, dtype=torch.int64),
            torch.full([2], x.sum().item(), dtype=torch.int64),
            torch.full_like(x, x.sum().item(), dtype=torch.float64),
        ),
        values([2.5, 1.25, -0.5, 4.5]),
        dynamic=ANY,
        sizes={"n": 7},
        opsets=FEW,
        routes=("export", "script"),
    ),
    Row(
        "less-than-in-float32",
        lambda x: (
            torch.full([2], x.size(0) * 0.29, dtype=torch.int64),
            torch.full([2], x.size(0) * 0.29, dtype=torch.float64),
            torch.full_like(x, x.size(0) * 0.29),
            x.new_full([2], x.size(0) * 0.29),
            x.clone().fill_(x.size(0) * 0.29),
            torch.arange(x.size(0) * 0.29, dtype=torch.int64),
            torch.linspace(0, x.size(0) * 0.29, 2, dtype=torch.int64),
            torch.tensor([x.size(0) * 0.29, 1.0], dtype=torch.int64),
        ),
        i64(4),
        dynamic=ANY,
        sizes={"n": 100},
        trap="0.29 of 100 is 28.999999999999996, and in float32 it is 29",
    ),
    Row(
        "range-less-than-in-float32",
        lambda x: (torch.range(0, x.size(0) * 0.29, dtype=torch.int64), torch.range(1, 4).sum() + x),
        i64(4),
        dynamic=ANY,
        sizes={"n": 100},
        routes=HELD,
    ),
    Row(
        "range-in-double",
        lambda x: torch.range(x.size(0) / 3, 9.5, dtype=torch.float64),
        i64(4),
        dynamic=ANY,
        opsets=FEW,
        routes=HELD,
    ),
]

ROWS = [*FILLED, *POSITIONS, *COMPUTED, *COPIES]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
