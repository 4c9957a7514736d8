"""Programs that write in place: dtypes, out=, shapes changed in place, inputs and buffers; reports.

Each program is a row: every route, sampled opsets, judged by torch.  The programs are small on purpose, one trap each.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.functionalize.test_order import collector
from tests.harness import PROGRAM_OPSETS, Row, boolean, check_export, f16, f32, i32, i64, layer
from tests.row_plans import Plan, row_params, run_row

TRACE = ("trace",)


PROGRAMS: list[Row] = []
program = collector(PROGRAMS)


# dtypes ---------------------------------------------------------------------------------------------------------------


@program(i64(3), f32(3))
def integers_stay_integers(x: Tensor, y: Tensor) -> Any:
    z = x.clone()
    z.add_(2).mul_(3)
    z.copy_(y * 4)
    return z


@program(f16(3), f32(3))
def half_stays_half(x: Tensor, y: Tensor) -> Any:
    z = x.clone()
    z.add_(y)
    z.mul_(0.3)
    return z


@program(i32(3), i64(3))
def int32_stays_int32(x: Tensor, y: Tensor) -> Any:
    z = x.clone()
    z.add_(y)
    return z


@program(f32(3), f32(3))
def comparison_in_place_keeps_the_dtype(x: Tensor, y: Tensor) -> Any:
    a, b, c = x.clone(), x.clone(), x.clone()
    return a.gt_(y), b.eq_(b), c.logical_not_()


@program(i64(4, low=0, high=2), i64(4, low=0, high=2))
def logic_in_place_keeps_the_dtype(x: Tensor, y: Tensor) -> Any:
    a, b, c = x.clone(), x.clone(), x.clone()
    return a.logical_and_(y), b.logical_or_(y), c.logical_xor_(y)


@program(i64(3), i64(3), opsets=(18, 20))
def bits_in_place(x: Tensor, y: Tensor) -> Any:
    a, b, c = x.clone(), x.clone(), x.clone()
    a &= y
    b |= y
    c ^= y
    return a, b, c


@program(boolean(4), boolean(4))
def booleans_in_place(x: Tensor, y: Tensor) -> Any:
    z = x.clone()
    z &= y
    z[0] = True
    return z


@program(f32(3), i64(3))
def copy_converts(x: Tensor, y: Tensor) -> Any:
    z = x.clone()
    z[1:].copy_(y[:2])
    return z


@program(f32(2, 3), f32(3))
def copy_broadcasts(x: Tensor, y: Tensor) -> Any:
    z = x.clone()
    z.copy_(y)
    z[:, 1:2] = 5
    return z


@program(f32(2, 3), dynamic="batch")
def number_into_all(x: Tensor) -> Any:
    y = x.clone()
    y.fill_(2)
    z = x.clone()
    z.zero_()
    z[:] = 3
    return y, z


@program(f32(2, 3))
def activations_in_place(x: Tensor) -> Any:
    y = torch.relu_(x + 0)
    z = torch.nn.functional.leaky_relu_(x + 0, 0.2)
    w = torch.nn.functional.hardtanh_(x + 0)
    return y, z, w, torch.dropout_(x + 0, 0.5, False)


# out= -----------------------------------------------------------------------------------------------------------------


@program(f32(3), f32(3))
def out_argument(x: Tensor, y: Tensor) -> Any:
    z = torch.zeros(3)
    w = torch.add(x, y, out=z)
    return z * 2, w


@program(f32(3), f32(3))
def out_argument_is_an_operand(x: Tensor, y: Tensor) -> Any:
    z = x.clone()
    torch.mul(z, y, out=z)
    return z


@program(f32(3), f32(3))
def out_argument_is_a_view(x: Tensor, y: Tensor) -> Any:
    z = torch.zeros(2, 3)
    torch.add(x, y, out=z[1])
    return z


@program(f32(3), f32(3))
def out_argument_that_grows(x: Tensor, y: Tensor) -> Any:
    z = torch.empty(0)
    torch.add(x, y, out=z)
    return z


@program(f32(3), f16(3))
def out_argument_of_another_dtype(x: Tensor, y: Tensor) -> Any:
    z = torch.zeros(3, dtype=torch.float64)
    torch.add(x, y, out=z)
    return z


@program(f32(3))
def out_argument_of_a_range(x: Tensor) -> Any:
    y = torch.empty(0, dtype=torch.int64)
    z = torch.arange(4, out=y)
    return y, z * x.sum().long()


@program(f32(3, 4), dynamic={0: {0: "n"}})
def out_argument_of_a_dynamic_range(x: Tensor) -> Any:
    y, z = torch.empty(0, dtype=torch.int64), torch.empty(0)
    torch.arange(x.size(0), out=y)
    torch.arange(2, 2 * x.size(0) + 2, 3, out=z)
    return y, z + x.sum()


@program(f32(3, 4), dynamic={0: {0: "n"}})
def out_argument_of_what_makes_tensors(x: Tensor) -> Any:
    y, z, w = torch.empty(0), torch.empty(0, dtype=torch.int32), torch.empty(3)
    torch.ones(x.size(0), 2, out=y)
    torch.full((2, 3), 7, out=z)
    torch.eye(3, out=w)
    return y, z, w @ x.sum()[None].expand(3)


@program(f32(3), routes=("trace", "export"))
def out_arguments_of_a_range_with_its_end(x: Tensor) -> Any:
    y = torch.empty(0)
    torch.range(1, 4, 0.5, out=y)
    return y * x.sum()


@program(f32(3, 4), routes=("trace", "export"))
def several_out_arguments(x: Tensor) -> Any:
    values, places = torch.empty(0), torch.empty(0, dtype=torch.int64)
    torch.max(x, 1, out=(values, places))
    values.mul_(2)
    return values, places


@program(f32(2, 3), routes=("trace", "export"))
def out_argument_of_another_name(x: Tensor) -> Any:
    gradient = torch.zeros(2, 3)
    torch.ops.aten.gelu_backward.grad_input(x, x, grad_input=gradient)
    return gradient


# Views by strides -----------------------------------------------------------------------------------------------------

SQUARE: Any = {0: {0: "n", 1: "n"}}


@program(f32(2, 3, 4, 5), dynamic={0: {0: "batch", 1: "n"}}, opsets=(13, 20), every=(5,))
def strided_chunks_that_overlap(x: Tensor) -> Any:
    size, stride = list(x.size()), list(x.stride())
    size[1] = size[1] * 2 - 1
    stride[1] = stride[1] // 2
    return x.as_strided(size=size, stride=stride)


@program(f32(2, 10), dynamic={0: {0: "batch", 1: "n"}}, opsets=(13, 20), every=(5,))
def strided_frames(x: Tensor) -> Any:
    y = x + 1
    return y.as_strided(((x.size(1) - 4) // 2 + 1, x.size(0), 4), (2, y.stride(0), 1))


@program(f32(4, 2, 6), dynamic={0: {0: "n", 1: "batch"}}, opsets=(13, 20), every=(5,), routes=("trace", "export"))
def strided_pairs_of_a_transposed_tensor(x: Tensor) -> Any:
    rows = (x + 1).transpose(0, 1)
    batch, along, _ = rows.stride()
    return rows.as_strided((x.size(1), x.size(0) - 1, 2, 6), (batch, along, along, 1))


@program(f32(4, 4), dynamic=SQUARE, opsets=(13, 20), every=(1, 2))
def write_to_a_strided_diagonal(x: Tensor) -> Any:
    y = x.clone()
    before = y.view(-1)
    diagonal = y.as_strided((x.size(0),), (x.stride(0) + 1,))
    diagonal[1:] = 3
    diagonal.mul_(2)
    return y, before + diagonal.sum()


@program(f32(3, 4), opsets=(13, 20))
def strided_by_static_sizes(x: Tensor) -> Any:
    y = x.clone()
    y.as_strided((x.size(0), 2), (4, 1), 1).mul_(2)
    return y, x.as_strided((2, x.size(1)), (0, 2))


@program(f32(3, 4), dynamic={0: {0: "n"}}, opsets=(13, 20), every=(5,))
def strided_of_another_order(x: Tensor) -> Any:
    y = x.transpose(0, 1).contiguous()
    return y.as_strided((x.size(0), 2), (1, x.size(0)))


# Names that change what they see --------------------------------------------------------------------------------------


@program(f32(2, 3))
def transpose_in_place(x: Tensor) -> Any:
    y = x.clone()
    z = y.transpose_(0, 1)
    y.add_(1)
    y[0] = 5
    return y, z


@program(f32(2, 3))
def unsqueeze_squeeze_in_place(x: Tensor) -> Any:
    y = x.clone()
    y.unsqueeze_(0)
    z = y + 1
    y.squeeze_(0)
    y.t_()
    return y, z


@program(f32(2, 3))
def earlier_view_of_a_tensor_transposed_in_place(x: Tensor) -> Any:
    y = x.clone()
    view = y[0]
    y.t_()
    y.mul_(2)
    return view, y


@program(f32(2, 3))
def swapaxes_in_place(x: Tensor) -> Any:
    y = x.clone()
    y.swapaxes_(0, 1)
    y.swapdims_(0, 1)
    y.swapaxes_(0, 1)
    y.detach_()
    y.add_(1)
    return y


# May copy, may share --------------------------------------------------------------------------------------------------


@program(f32(2, 3))
def reshape_that_copies(x: Tensor) -> Any:
    y = x.clone()
    z = y.t().reshape(6)
    y.add_(1)
    z.mul_(2)
    return y, z


@program(f32(2, 3))
def reshape_that_shares(x: Tensor) -> Any:
    y = x.clone()
    z = y.reshape(6)
    y.add_(1)
    z.mul_(2)
    return y, z


@program(f32(2, 3))
def reshape_to_recorded_sizes(x: Tensor) -> Any:
    y = x.clone()
    z = y.reshape(x.size(0) * x.size(1))
    w = y.t().reshape(x.size(0), x.size(1))
    y.add_(1)
    z.mul_(2)
    return y, z, w


@program(f32(2, 3))
def contiguous_that_copies(x: Tensor) -> Any:
    y = x.clone()
    z = y.t().contiguous()
    w = y.contiguous()
    y.add_(1)
    z.mul_(2)
    return y, z, w


@program(f32(2, 3), dynamic={0: {0: "n"}}, opsets=(13, 20), every=(5,))
def casts_of_unknown_sizes(x: Tensor) -> Any:
    """Another dtype is a copy, the same one is the tensor itself, however it lies in memory."""
    y = x.t() + 1
    z = y.to(torch.float64)
    w = y.to(torch.float32)
    z.mul_(2)
    w.masked_fill_(w > 1, 3)
    return y, z, w.float()


@program(f32(2, 3))
def flatten_of_one_axis(x: Tensor) -> Any:
    y = x.clone()
    z = y.flatten(1)
    w = y.t().flatten()
    z.add_(1)
    return y, z, w


@program(f32(2, 3))
def conversion_that_copies(x: Tensor) -> Any:
    y = x.clone()
    z = y.to(torch.float64)
    w = y.to(torch.float32, copy=True)
    y.add_(1)
    return y, z, w


@program(f32(2, 3), f32(1, 3))
def broadcast_tensors_share(x: Tensor, y: Tensor) -> Any:
    z = y + 0
    a, b = torch.broadcast_tensors(x, z)
    z = z + 1
    return a, b, z


# Expanded tensors are read --------------------------------------------------------------------------------------------


@program(f32(1, 3))
def expanded_view_of_a_written_base(x: Tensor) -> Any:
    y = x.clone()
    wide = y.expand(4, 3)
    y.add_(1)
    return wide * 1


# Inputs and buffers ---------------------------------------------------------------------------------------------------


@program(f32(2, 3))
def write_to_an_input(x: Tensor) -> Any:
    before = x * 1
    x.add_(1)
    return before, x, x[0]


@program(f32(2, 3))
def write_to_a_view_of_an_input(x: Tensor) -> Any:
    x[0] = 7
    view = x.view(-1)
    view[4] = 8
    return x


@program(f32(2, 3))
def copy_of_an_input_is_safe(x: Tensor) -> Any:
    y = x.clone()
    y[0] = 7
    return x, y


class Counter(nn.Module):
    """Writes to its buffer before it reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(2))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Any:
        self.steps[1] += 2
        self.steps.add_(1)
        return x * self.weight + self.steps.sum(), self.steps


class Cache(nn.Module):
    """A key/value cache: a slice of a buffer is replaced, and the whole is read."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 3))

    def forward(self, x: Tensor) -> Any:
        self.cache[1:3] = x
        return self.cache.sum(0), self.cache[1]


class Norms(nn.Module):
    """In training mode the statistics are written; they are read afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Any:
        y = self.norm(x)
        return y + self.norm.running_mean * 2 + self.norm.running_var


STATE_ROWS = [
    Row("counter", layer(Counter), f32(2, 3), opsets=PROGRAM_OPSETS),
    Row("cache", layer(Cache), f32(2, 3), opsets=PROGRAM_OPSETS),
    Row("norm-eval-reads-statistics", layer(Norms), f32(4, 3), opsets=PROGRAM_OPSETS),
    Row(
        "inplace-modules",
        layer(nn.Sequential, nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True)),
        f32(2, 3),
        opsets=PROGRAM_OPSETS,
    ),
]


@pytest.mark.filterwarnings("ignore:the model writes:UserWarning")
@pytest.mark.parametrize(("row", "plan"), row_params(PROGRAMS + STATE_ROWS))
def test_program(row: Row, plan: Plan) -> None:
    run_row(row, plan)


# What is reported -----------------------------------------------------------------------------------------------------


def writes_to_x(x: Tensor) -> Any:
    x.mul_(2)
    return x + 1


def names_x_anew(x: Tensor) -> Any:
    x = x.clone()
    x.mul_(2)
    return x


MUTATIONS = [
    # model, what the warning says; nothing where there is no write
    pytest.param(Counter, ["buffer 'steps'"], id="buffer"),
    pytest.param(Cache, ["buffer 'cache'"], id="slice-of-a-buffer"),
    pytest.param(lambda: writes_to_x, ["input 'x0'"], id="input"),
    pytest.param(lambda: names_x_anew, [], id="copy"),
    pytest.param(lambda: nn.BatchNorm1d(3).eval(), [], id="norm-in-eval-mode"),
    pytest.param(
        lambda: nn.BatchNorm1d(3).train(),
        ["buffer 'num_batches_tracked'", "buffer 'running_mean'", "buffer 'running_var'"],
        id="norm-in-training-mode",
    ),
]


@pytest.mark.parametrize("route", ["trace", "export"])
@pytest.mark.parametrize(("make", "expected"), MUTATIONS)
def test_a_write_to_what_outlives_the_call_is_reported(make: Any, expected: list[str], route: str) -> None:
    options = {"input_names": ["x0"], "capture": route, "training": purexport.TrainingMode.PRESERVE}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = purexport.export(make(), torch.randn(2, 3), **options).report
    said = [str(item.message) for item in caught if "the model writes to its" in str(item.message)]
    assert len(said) == len(expected)
    for text in expected:
        assert any(text in line for line in said), said
    assert [line for line in report.warnings if "writes to its" in line] == said
    if expected:
        with pytest.raises(purexport.ExportError, match="mutated_state='error'"):
            purexport.export(make(), torch.randn(2, 3), mutated_state="error", **options)
    else:
        purexport.export(make(), torch.randn(2, 3), mutated_state="error", **options)


def test_statistics_written_in_training_mode_are_read_afterwards() -> None:
    """BatchNorm's schema does not say that it writes; its running statistics are computed all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for route in ("trace", "export"):
            model = Norms().train()
            check_export(model, (torch.randn(5, 3),), opset=20, capture=route, training=purexport.TrainingMode.PRESERVE)
