"""Grouped matrix products: all forms that torch has, and the routing of a mixture of experts around them."""

from __future__ import annotations

import pytest
import torch

from tests.harness import (
    CAPTURES,
    PROGRAM_OPSETS,
    Input,
    Row,
    check_file,
    compare_with_torch,
    export,
    f16,
    f32,
    i64,
    values,
)
from tests.row_plans import Plan, row_params, run_row
from tests.transformers_shim import grouped_mm_fallback

FEW, MANY = 3, 11  # groups: so few are written out, so many are a Loop


def ends(*numbers: int) -> Input:
    """The end of each segment; the last may be behind the example's rows, where the axis is dynamic."""
    return values(numbers, torch.int32)


def grouped(self: torch.Tensor, mat2: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(self, mat2, offs=offs)


def of_weights(self: torch.Tensor, mat2: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """The weights of linear layers, which are the transposed matrices."""
    return torch._grouped_mm(self, mat2.transpose(-2, -1), offs=offs)


def behind(self: torch.Tensor, mat2: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """torch leaves the rows behind the last segment uninitialized."""
    return torch._grouped_mm(self, mat2, offs=offs)[: offs[-1]]


def routed(states: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Each row goes to the experts that it chose and back, as in transformers."""
    numbers, order = torch.sort(chosen.reshape(-1))
    counts = torch.histc(numbers.float(), bins=weights.shape[0], min=0, max=weights.shape[0] - 1)
    offs = torch.cumsum(counts, 0, dtype=torch.int32)
    product = grouped_mm_fallback(states[order // chosen.shape[1]], weights, offs)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.size(0))
    return product[back].view(states.shape[0], chosen.shape[1], -1).sum(1)


def counted(states: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The same with bincount, argsort and index_add."""
    return _by_counts(states, chosen, weights, torch.bincount(chosen.reshape(-1), minlength=weights.shape[0]))


def counted_by_adding(states: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The same with as many counts as there are experts, whatever the data says."""
    flat = chosen.reshape(-1)
    zeros = torch.zeros(weights.shape[0], dtype=torch.int64)
    return _by_counts(states, chosen, weights, zeros.scatter_add(0, flat, torch.ones_like(flat)))


def _by_counts(states: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    order = torch.argsort(chosen.reshape(-1), stable=True)
    offs = counts.cumsum(0).to(torch.int32)
    rows = order // chosen.shape[1]
    product = grouped_mm_fallback(states[rows], weights, offs)
    return torch.zeros(states.shape[0], weights.shape[2]).index_add(0, rows, product)


ROWS = [
    Row("grouped_mm", grouped, f32(7, 4), f32(FEW, 4, 8), ends(2, 2, 7)),
    Row("grouped_mm-half", of_weights, f16(7, 8), f16(FEW, 8, 8), ends(0, 5, 7), opsets=PROGRAM_OPSETS),
    Row("grouped_mm-behind", behind, f32(7, 4), f32(FEW, 4, 8), ends(0, 2, 4), opsets=PROGRAM_OPSETS),
    Row(
        "grouped_mm-loop",
        of_weights,
        f32(14, 4),
        f32(MANY, 4, 4),
        ends(*[0] * 4, *range(2, 16, 2)),
    ),
    Row("grouped_mm-columns", grouped, f32(FEW, 5, 4), f32(4, 8), ends(2, 2, 8), opsets=PROGRAM_OPSETS),
    Row(
        "grouped_mm-columns-loop",
        grouped,
        f32(MANY, 5, 4),
        f32(4, 12),
        ends(*[2] * 10, 12),
        opsets=PROGRAM_OPSETS,
    ),
    Row("grouped_mm-terms", grouped, f32(5, 8), f32(8, 4), ends(2, 2, 8), opsets=PROGRAM_OPSETS),
    Row(
        "grouped_mm-terms-loop",
        grouped,
        f32(5, 8),
        f32(8, 4),
        ends(*[2] * 10, 8),
        opsets=PROGRAM_OPSETS,
    ),
    Row(
        "grouped_mm-batches",
        lambda a, b: torch._grouped_mm(a, b),
        f32(2, 3, 4),
        f32(2, 4, 8),
        opsets=PROGRAM_OPSETS,
    ),
    Row(
        "grouped_mm_fallback",
        grouped_mm_fallback,
        f32(7, 3),
        f32(FEW, 3, 5),
        ends(2, 2, 5),
        dynamic={0: {0: "rows"}},
        opsets=PROGRAM_OPSETS,
    ),
    Row(
        "grouped_mm_fallback-loop",
        grouped_mm_fallback,
        f32(7, 3),
        f32(MANY, 3, 5),
        ends(*[0] * 10, 5),
        dynamic={0: {0: "rows"}},
        opsets=PROGRAM_OPSETS,
    ),
    Row(
        "grouped_mm_fallback-none",
        grouped_mm_fallback,
        f32(7, 3),
        f32(MANY, 3, 5),
        ends(*[0] * 11),
        opsets=PROGRAM_OPSETS,
        trap="no group has rows",
    ),
    Row(
        "grouped_mm_fallback-any",
        lambda x, w, n: grouped_mm_fallback(x, w, torch.cumsum(n, 0, dtype=torch.int32)),
        f32(7, 3),
        f32(FEW, 3, 5),
        values([1, 0, 2], torch.int32),
        dynamic={1: {0: "groups"}, 2: {0: "groups"}},
    ),
    Row(
        "routed",
        routed,
        f32(5, 3),
        i64(5, 2, low=0, high=2),
        f32(FEW, 3, 4),
        dynamic={0: {0: "rows"}, 1: {0: "rows"}},
        sizes={"rows": 12},
        every=(1,),
        opsets=PROGRAM_OPSETS,
        trap="an expert without rows",
    ),
    Row(
        "routed-many",
        routed,
        f32(5, 3),
        i64(5, 2, low=1, high=9),
        f32(MANY, 3, 4),
        dynamic={0: {0: "rows"}, 1: {0: "rows"}},
        sizes={"rows": 12},
        every=(1,),
        opsets=PROGRAM_OPSETS,
    ),
    Row(
        "routed-counted",
        counted,
        f32(5, 3),
        i64(5, 2, low=0, high=2),
        f32(FEW, 3, 4),
        dynamic={0: {0: "rows"}, 1: {0: "rows"}},
        sizes={"rows": 12},
        every=(1,),
        routes=("trace",),  # elsewhere transformers refuses counts whose number the data may change
    ),
    Row(
        "routed-counted-by-adding",
        counted_by_adding,
        f32(5, 3),
        i64(5, 2, low=0, high=2),
        f32(FEW, 3, 4),
        dynamic={0: {0: "rows"}, 1: {0: "rows"}},
        sizes={"rows": 12},
        every=(1,),
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)


@pytest.mark.parametrize("route", CAPTURES)
@pytest.mark.parametrize("groups", [FEW, MANY])
def test_bfloat16(groups: int, route: str) -> None:
    """The reference evaluator computes, because ONNX Runtime has no kernel on CPU."""
    row = Row("bfloat16", of_weights, f32(12, 8), f32(groups, 8, 8), ends(*[0] * (groups - 2), 5, 12))
    args = [item.bfloat16() if item.is_floating_point() else item for item in row.make_inputs()[0]]
    data = export(of_weights, tuple(args), {}, opset=20, capture=route).model_proto.SerializeToString()
    check_file(data, 20)
    compare_with_torch(of_weights, data, tuple(args), {}, reference=True)
