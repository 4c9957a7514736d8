"""Writes in place that cannot be followed: each is refused, with the line that writes and the reason."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from torch import Tensor, nn

import purexport


class Plain(nn.Module):
    """A tensor that is an attribute, not a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.state = torch.zeros(3)

    def forward(self, x: Tensor) -> Any:
        self.state.add_(1)
        return x + self.state


class PlainStatistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.var = torch.zeros(3), torch.ones(3)

    def forward(self, x: Tensor) -> Any:
        return torch.ops.aten._batch_norm_with_update(x, None, None, self.mean, self.var, 0.1, 1e-5)[0]


class Tied(nn.Module):
    """Two buffers in one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("whole", torch.zeros(2, 3))
        self.register_buffer("part", self.whole[0])

    def forward(self, x: Tensor) -> Any:
        self.whole.add_(x)
        return self.part + 1


def _resized(x: Tensor) -> Any:
    y = x.clone()
    y.resize_(2)
    return y


def _list_of_writes(x: Tensor) -> Any:
    y = x.clone()
    torch._foreach_add_([y], 1.0)
    return y


def _no_pure_form(x: Tensor) -> Any:
    quasi = torch.zeros(1, dtype=torch.int64)
    torch._sobol_engine_ff_(quasi, 1, torch.ones(1, 30, dtype=torch.int64), 1, 0)
    return x + quasi


def _overlapping_windows(x: Tensor) -> Any:
    y = x.clone()
    y.unfold(1, 2, 1).add_(1)
    return y


def _bits(x: Tensor) -> Any:
    y = x.clone()
    y.view(torch.int32).add_(1)
    return y


def _hidden_views(x: Tensor) -> Any:
    y = x.clone()
    wide, _ = torch.broadcast_tensors(y, torch.zeros(4, 2, 3))
    y.add_(1)
    return wide


def _hidden_grids(x: Tensor) -> Any:
    y = x[0].clone()
    grid, _ = torch.meshgrid(y, y, indexing="ij")
    y.add_(1)
    return grid


def _out_with_views(x: Tensor) -> Any:
    y = torch.zeros(3)
    view = y[:2]
    torch.add(x[0, :1], 1, out=y)
    return y, view


def _wrapped_diagonal(x: Tensor) -> Any:
    return torch.cat((x, x)).fill_diagonal_(1, wrap=True)


def _part_of_complex(take: Any) -> Any:
    def run(x: Tensor) -> Any:
        z = torch.complex(x, x * 2)
        take(z)[0].fill_(1)
        return torch.view_as_real(z)

    return run


def _same_object(x: Tensor) -> Any:
    y = x.clone()
    z = torch.dropout(y, 0.5, False)
    z.unsqueeze_(0)
    return y


def _reshaped(x: Tensor) -> Any:
    y = x + 0
    z = y.t().reshape(-1)
    z.add_(1)
    return y, z


def _shaped_by_tensor(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 1
    z = torch._reshape_from_tensor(y, torch._shape_as_tensor(x.t()))
    z.add_(1)
    return y, z


SHAPED = torch.jit.script(_shaped_by_tensor)

REFUSED = [
    # model, routes, what the error says
    pytest.param(_resized, ("export",), "resize_ at .* writes in a way that cannot be followed", id="resize"),
    pytest.param(_list_of_writes, ("export",), "writes in a way that cannot be followed", id="foreach"),
    pytest.param(_no_pure_form, ("trace",), "writes in place, and torch has no pure form of it", id="sobol"),
    pytest.param(_overlapping_windows, ("trace", "export"), r"writes through aten::unfold", id="unfold"),
    pytest.param(_bits, ("export",), r"writes through aten::view.dtype", id="view-dtype"),
    pytest.param(_hidden_views, ("export",), r"broadcast_tensors.* may or may not have copied", id="broadcast"),
    pytest.param(_hidden_grids, ("export",), r"meshgrid.* may or may not have copied", id="meshgrid"),
    pytest.param(
        _shaped_by_tensor, ("trace",), r"_reshape_from_tensor.* may or may not have copied", id="shape-in-a-tensor"
    ),
    pytest.param(SHAPED, ("auto",), r"_reshape_from_tensor.* may or may not have copied", id="scripted-shape"),
    pytest.param(_out_with_views, ("trace",), r"resizes its out= tensor, of which there are views", id="out-resized"),
    pytest.param(_wrapped_diagonal, ("trace", "export"), r"on matrices without wrap", id="wrapped-diagonal"),
    *[
        pytest.param(
            _part_of_complex(take),
            ("trace", "export"),
            r"a part or a conjugate is not written through",
            id=f"through-{name}",
        )
        for name, take in {
            "mH": lambda z: z.mH,
            "adjoint": lambda z: z.adjoint(),
            "conj": lambda z: z.conj(),
            "real": lambda z: z.real,
            "imag-windows": lambda z: z.imag.unfold(0, 2, 1),
        }.items()
    ],
    pytest.param(_same_object, ("export",), r"changes the shape of a tensor that aten::dropout", id="same-object"),
    pytest.param(Plain(), ("trace", "export"), r"not an input, parameter or buffer.*register_buffer", id="attribute"),
    pytest.param(PlainStatistics(), ("trace",), r"not an input, parameter or buffer.*register_buffer", id="statistics"),
    pytest.param(Tied(), ("trace",), r"'whole' and 'part' share memory; make one of them a copy", id="tied-buffers"),
]


def test_a_strided_view_holds_its_sizes() -> None:
    """What as_strided shows of a tensor of another size would be something else."""
    with pytest.warns(UserWarning, match=r"axis 'n' was declared dynamic, but the model fixes it at 2 at .*\.py:\d+"):
        purexport.export(
            lambda x: x[1:].as_strided((2,), (1,)), (torch.ones(2, 3),), dynamic_axes={"x": {0: "n"}}, capture="trace"
        )


@pytest.mark.parametrize(("model", "routes", "message"), REFUSED)
def test_a_write_that_cannot_be_followed_is_refused(model: Any, routes: tuple[str, ...], message: str) -> None:
    for route in routes:
        with warnings.catch_warnings(), pytest.raises(purexport.ExportError, match=message):
            warnings.simplefilter("ignore")
            purexport.export(model, torch.randn(2, 3), capture=route)


def test_a_reshape_whose_strides_are_unknown_is_refused_only_when_it_matters() -> None:
    """Whether z shares y's memory depends on a size that is not known."""
    options: dict[str, Any] = {"dynamic_axes": {"x": {0: "batch"}}, "input_names": ["x"], "capture": "export"}
    with pytest.raises(purexport.ExportError, match=r"may or may not have copied; call .clone\(\) there"):
        purexport.export(_reshaped, torch.randn(3, 2), **options)
    purexport.export(lambda x: _reshaped(x)[1], torch.randn(3, 2), **options)


@pytest.mark.parametrize("capture", ["trace", "export"])
def test_a_write_to_one_of_the_pieces_counts_while_there_are_as_many(capture: str) -> None:
    def first_of_pieces(x: Tensor) -> Any:
        y = x.clone()
        y.chunk(2)[0].add_(1)
        return y

    options: dict[str, Any] = {"dynamic_axes": {"x": {0: "batch"}}, "input_names": ["x"], "capture": capture}
    program = purexport.export(first_of_pieces, torch.randn(4, 3), **options)
    for size in (4, 2, 5, 8):
        x = torch.randn(size, 3)
        assert torch.equal(program(x)[0], first_of_pieces(x))
    with pytest.raises(Fail, match="Split"):
        program(torch.randn(1, 3))
