"""Programs that write in place and through views: the order of reads and writes, every kind of view, pieces.

Each program is a row: every route, sampled opsets, judged by torch.  The programs are small on purpose, one trap each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.harness import PROGRAM_OPSETS, Row, f32, i64
from tests.row_plans import Plan, row_params, run_row

NO_EXPORT = ("trace", "script")  # torch.export refuses these


def collector(rows: list[Row]) -> Callable[..., Any]:
    """A decorator that adds a function of its inputs to `rows`, under its own name."""

    def program(*inputs: Any, **options: Any) -> Callable[[Callable[..., Any]], Row]:
        options = {"opsets": PROGRAM_OPSETS, "every": (0, 1, 2), **options}

        def make(function: Callable[..., Any]) -> Row:
            row = Row(function.__name__.strip("_").replace("_", "-"), function, *inputs, **options)
            rows.append(row)
            return row

        return make

    return program


PROGRAMS: list[Row] = []
program = collector(PROGRAMS)


# Order of reads and writes --------------------------------------------------------------------------------------------


@program(f32(2, 3), dynamic="batch", opsets=(9, 13, 20, 23))
def read_before_and_after(x: Tensor) -> Any:
    y = x + 1
    before = y * 2
    y.mul_(3)
    return before, y


@program(f32(3, 4), opsets=(9, 13, 20, 23))
def write_through_view_is_seen_by_base(x: Tensor) -> Any:
    y = x.clone()
    y[1].add_(10)
    return y


@program(f32(3, 4))
def write_to_base_is_seen_by_view(x: Tensor) -> Any:
    y = x.clone()
    view = y[1]
    y.mul_(2)
    return view


@program(f32(3, 4))
def siblings_see_each_other(x: Tensor) -> Any:
    y = x.clone()
    row, column, flat = y[1], y[:, 2], y.view(-1)
    row.add_(10)
    column.mul_(2)
    return row, column, flat, y


@program(f32(3, 4))
def write_to_base_then_through_stale_view(x: Tensor) -> Any:
    y = x.clone()
    view = y[1]
    y.mul_(2)
    view.add_(1)
    return y, view


@program(f32(3, 4))
def stale_view_of_stale_view(x: Tensor) -> Any:
    y = x.clone()
    rows = y[1:]
    corner = rows[:, 1:3]
    y.add_(5)
    rows.mul_(2)
    y.sub_(1)
    corner.fill_(7)
    return y, rows, corner


@program(f32(3, 4))
def view_taken_after_a_write(x: Tensor) -> Any:
    y = x.clone()
    y.add_(1)
    view = y[0]
    y.add_(1)
    return view


@program(f32(3, 4))
def clone_is_no_view(x: Tensor) -> Any:
    y = x + 0
    saved = y.clone()
    y.add_(1)
    saved.mul_(2)
    return y, saved


@program(f32(3, 4))
def a_value_written_into_two_places(x: Tensor) -> Any:
    y = torch.zeros(2, 3, 4)
    y[0] = x
    y[1] = x * 2
    x = x + 1
    y[0] += x
    return y


@program(f32(3, 4))
def operand_is_a_view_of_the_target(x: Tensor) -> Any:
    y = x.clone()
    y[0] += y[1]
    y[1].mul_(y[0])
    return y


@program(f32(3))
def operand_is_the_target(x: Tensor) -> Any:
    y = x.clone()
    y.add_(y)
    y.mul_(y)
    return y


@program(f32(3, 3))
def copy_from_own_transpose(x: Tensor) -> Any:
    y = x.clone()
    y.copy_(y.t().clone())
    return y


@program(f32(3, 4))
def swap_rows(x: Tensor) -> Any:
    y = x.clone()
    saved = y[0].clone()
    y[0] = y[1]
    y[1] = saved
    return y


@program(f32(3, 4))
def swap_rows_without_clone(x: Tensor) -> Any:
    y = x.clone()
    saved = y[0]
    y[0] = y[1]
    y[1] = saved
    return y


@program(f32(4))
def loop_of_writes(x: Tensor) -> Any:
    y = torch.zeros(4)
    for i in range(4):
        y[i] = y[i - 1] + x[i]
    return y


@program(f32(3, 4))
def the_same_view_twice(x: Tensor) -> Any:
    y = x.clone()
    one, other = y[1], y[1]
    one.add_(1)
    other.add_(1)
    return one, other, y


@program(f32(3, 4))
def alias_returned_twice(x: Tensor) -> Any:
    y = x.clone()
    view = y.view(12)
    y.add_(1)
    return y, view, y


@program(f32(3, 4))
def result_of_the_write_is_the_target(x: Tensor) -> Any:
    y = x.clone()
    z = y.add_(1)
    z.mul_(2)
    return y, z


@program(f32(3, 4))
def write_in_a_chain_of_calls(x: Tensor) -> Any:
    return x.clone().add_(1).mul_(2).view(-1).sub_(3)


@program(f32(3, 4))
def floor_of_a_quotient_in_place(x: Tensor) -> Any:
    y = x * 10
    y.floor_divide_(x.abs() + 1)
    return y


@program(f32(3, 4))
def write_after_last_read_of_base(x: Tensor) -> Any:
    y = x * 2
    view = y.t()
    view.add_(1)
    return view


@program(f32(3, 4))
def detached_shares(x: Tensor) -> Any:
    y = x.clone()
    d = y.detach()
    d.add_(1)
    return y, d


@program(f32(3, 4))
def windows_see_what_is_written_through_one(x: Tensor) -> Any:
    y = x.clone()
    windows = y.unfold(1, 2, 1)
    first = windows[0]
    first[1].add_(10)
    return windows, first, y


@program(f32(3, 4), routes=NO_EXPORT)
def data_shares(x: Tensor) -> Any:
    y = x.clone()
    y.data.add_(1)
    return y


@program(f32(3))
def literal_that_is_written(x: Tensor) -> Any:
    y = torch.tensor([1.0, 2.0, 3.0])
    y.add_(x)
    y[0] += 1
    z = torch.as_tensor([1.0, 2.0])
    z += 1
    w = torch.arange(3.0)
    w *= x
    return y, z, w


@program(f32(3, 4))
def write_after_a_dropout_that_is_off(x: Tensor) -> Any:
    y = x.clone()
    view = y.view(-1)
    torch.dropout(y, 0.5, False)
    y.add_(1)
    torch.atleast_2d(y)
    y.mul_(2)
    return view


@program(f32(3, 4))
def write_to_what_a_dropout_that_is_off_returned(x: Tensor) -> Any:
    y = x.clone()
    z = torch.nn.functional.dropout(y, 0.5, training=False)
    z.add_(1)
    return y


# Every kind of view ---------------------------------------------------------------------------------------------------

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda y: y.view(4, 6),
    "view-as": lambda y: y.view_as(torch.zeros(6, 4)),
    "reshape": lambda y: y.reshape(-1, 2),
    "reshape-as": lambda y: y.reshape_as(torch.zeros(6, 4)),
    "flatten": lambda y: y.flatten(1),
    "unflatten": lambda y: y.unflatten(2, (2, 2)),
    "ravel": lambda y: y.ravel(),
    "squeeze": lambda y: y.view(1, 24, 1).squeeze(),
    "squeeze-dim": lambda y: y.view(1, 24, 1).squeeze(0),
    "squeeze-dims": lambda y: y.view(1, 24, 1).squeeze((0, 2)),
    "unsqueeze": lambda y: y.unsqueeze(-1),
    "alias": lambda y: torch.ops.aten.alias(y),
    "detach": lambda y: y.detach(),
    "contiguous": lambda y: y.contiguous(),
    "to-same": lambda y: y.to(torch.float32),
    "to-same-device": lambda y: y.to("cpu"),
    "float": lambda y: y.float(),
    "type-as": lambda y: y.type_as(torch.zeros(1)),
    "positive": lambda y: torch.positive(y),
    "real": lambda y: torch.real(y),
    "resolve-conj": lambda y: y.resolve_conj().resolve_neg(),
    "dropout-eval": lambda y: torch.dropout(y, 0.5, False),
    "feature-dropout-eval": lambda y: torch.feature_dropout(y, 0.5, False),
    "alpha-dropout-eval": lambda y: torch.alpha_dropout(y, 0.5, False),
    "feature-alpha-dropout-eval": lambda y: torch.feature_alpha_dropout(y, 0.5, False),
    "transpose": lambda y: y.transpose(0, -1),
    "swapaxes": lambda y: y.swapaxes(0, 1),
    "swapdims": lambda y: y.swapdims(1, 2),
    "t": lambda y: y[0].t(),
    "numpy-t": lambda y: y[0].T,
    "mt": lambda y: y.mT,
    "mh": lambda y: y.mH,
    "adjoint": lambda y: torch.adjoint(y),
    "permute": lambda y: y.permute(2, 0, 1),
    "permute-negative": lambda y: y.permute(-1, 0, -2),
    "movedim": lambda y: y.movedim(0, 2),
    "movedim-several": lambda y: y.movedim((0, 1), (-1, 0)),
    "moveaxis": lambda y: y.moveaxis(-1, 0),
    "slice": lambda y: y[:, 1:],
    "slice-negative": lambda y: y[:, -2:-1],
    "slice-step": lambda y: y[:, :, 1::2],
    "slice-out-of-range": lambda y: y[:, -100:100, 2:100],
    "slice-empty": lambda y: y[:, 3:1],
    "narrow": lambda y: y.narrow(2, 1, 2),
    "narrow-one": lambda y: y.narrow(2, 1, 1),
    "narrow-nothing": lambda y: y.narrow(2, 0, 0),
    "narrow-to-the-end": lambda y: y.narrow(2, -2, 2),
    "select": lambda y: y[1],
    "select-negative": lambda y: y[:, -1],
    "select-all": lambda y: y[1, 2, 3],
    "diagonal": lambda y: y.diagonal(0, 1, 2),
    "diagonal-offset": lambda y: y.diagonal(-1, 2, 0),
    "diagonal-method": lambda y: torch.linalg.diagonal(y),
    "unfold": lambda y: y.unfold(2, 2, 2),
    "unfold-select": lambda y: y.unfold(1, 2, 1)[0, 1],
    "unfold-diagonal": lambda y: y.unfold(2, 3, 3).diagonal(0, 1, 3),
    "as-strided": lambda y: y.as_strided((2, 3), (12, 5)),
    "as-strided-of-a-view": lambda y: y[1].t().as_strided((2, 2), (1, 4)),
    "as-strided-at": lambda y: y[:1].as_strided((3,), (2,), 13),
    "expand-nothing": lambda y: y.expand(2, 3, 4),
    "expand-new-axis": lambda y: y.expand(1, 2, 3, 4),
    "expand-as": lambda y: y.expand_as(torch.zeros(2, 3, 4)),
    "broadcast-to": lambda y: y.broadcast_to(2, 3, 4),
    "atleast": lambda y: torch.atleast_3d(y[0]),
    "unbind": lambda y: y.unbind(1)[2],
    "split": lambda y: y.split(3, 2)[1],
    "split-first": lambda y: y.split(3, 2)[0],
    "split-sizes": lambda y: y.split([1, 2], 1)[1],
    "split-with-sizes": lambda y: torch.ops.aten.split_with_sizes(y, [1, 3], 2)[0],
    "chunk": lambda y: y.chunk(3, 2)[1],
    "chunk-negative-axis": lambda y: y.chunk(2, -1)[-1],
    "tensor-split": lambda y: y.tensor_split(3, 2)[0],
    "tensor-split-indices": lambda y: y.tensor_split((1, 3), 2)[1],
    "hsplit": lambda y: y.hsplit(3)[1],
    "vsplit": lambda y: y.vsplit(2)[1],
    "dsplit": lambda y: y.dsplit(2)[0],
    "split-into-one": lambda y: y.split(4, 2)[0],
    "unbind-one": lambda y: y[:, :1].unbind(1)[0],
    "unfold-of-a-piece": lambda y: y.split(2, 2)[1].unfold(1, 1, 2),
    "view-of-view": lambda y: y[1].t()[1:, ::2].unsqueeze(0),
    "split-of-a-view": lambda y: y.transpose(0, 2).split(2)[1][0],
}


def _through(take: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    def run(x: Tensor) -> Any:
        y = x.clone()
        view = take(y)
        before = view * 1
        view.mul_(2).sub_(1)
        y.add_(100)
        return before, view, y

    return run


VIEW_ROWS = [
    Row(f"through-{name}", _through(take), f32(2, 3, 4), opsets=PROGRAM_OPSETS) for name, take in VIEWS.items()
]


# Pieces ---------------------------------------------------------------------------------------------------------------


@program(f32(2, 6), dynamic="batch")
def pieces_of_a_split(x: Tensor) -> Any:
    y = x + 0
    a, b, c = y.split(2, 1)
    a.add_(b)
    c.mul_(a)
    return y, b


@program(f32(2, 6))
def pieces_taken_after_a_write(x: Tensor) -> Any:
    y = x + 0
    pieces = y.chunk(3, 1)
    y.add_(1)
    pieces[0].mul_(2)
    return pieces[0], pieces[1], y


@program(f32(2, 6))
def unsafe_split_shares_all_the_same(x: Tensor) -> Any:
    y = x + 0
    a, b, c = torch.unsafe_split(y, 2, 1)
    y.add_(1)
    return y, a, b, c


@program(f32(3, 3))
def fill_the_diagonal(x: Tensor) -> Any:
    y = x.clone()
    y.fill_diagonal_(5)
    z = torch.zeros(2, 3)
    z.fill_diagonal_(1)
    return y, z * x[0]


@program(f32(5))
def pieces_that_overlap(x: Tensor) -> Any:
    y = x.clone()
    a, b, c = y.tensor_split((3, 1))
    c.mul_(2)
    a.add_(1)
    return y, a, b, c


@program(f32(3, 2))
def unbound_rows(x: Tensor) -> Any:
    y = x + 0
    for i, row in enumerate(y.unbind(0)):
        row.add_(i)
    return y


@program(f32(3, 4), i64(), routes=NO_EXPORT)
def select_at_a_computed_place(x: Tensor, unused: Tensor) -> Any:
    y = x.clone()
    y.select(0, 1).fill_(2.5)
    return y + unused * 0


@program(f32(3, 4), dynamic="batch", opsets=(11, 13, 20), every=(1, 2))
def last_row_of_a_dynamic_axis(x: Tensor) -> Any:
    y = x.clone()
    y[-1] = 0
    y[0] += 1
    return y


@program(f32(5, 4), dynamic="batch", opsets=(11, 13, 20), routes=NO_EXPORT)
def inner_slice_of_a_dynamic_axis(x: Tensor) -> Any:
    y = x.clone()
    y[1:-1] = 0
    y[:2] += 1
    y[-2:] *= 2
    return y


@program(f32(6, 4), dynamic="batch", opsets=(11, 13, 20), routes=NO_EXPORT)
def slice_up_to_a_computed_end(x: Tensor) -> Any:
    y = x.clone()
    half = x.shape[0] // 2
    y[:half] = 0
    y[half:, 1:3] += 1
    return y


@program(f32(6, 4), dynamic="batch", opsets=(11, 13, 20), routes=NO_EXPORT)
def strided_slice_of_a_dynamic_axis(x: Tensor) -> Any:
    y = x.clone()
    y[::2] = 0
    y[1::3] += 1
    return y


@pytest.mark.parametrize(("row", "plan"), row_params(PROGRAMS + VIEW_ROWS))
def test_program(row: Row, plan: Plan) -> None:
    run_row(row, plan)
