"""Programs of old code that torch.onnx writes and an exporter easily misses: on each route, at old opsets, beside it.

A row has the example, and other arguments for the same file.  `peers` says what becomes of the row with torch.onnx, by
`dynamo=False` and `dynamo=True`: "right", "wrong" (it writes a file that gives other numbers, or that no runtime
takes), or "refused".  The exporters of torch.onnx run with `pytest -m sweep`, because they take seconds a row.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import purexport
from tests.tiers import dealt
from tests.tolerances import CHAIN, assert_near

R, W, F = "right", "wrong", "refused"
TRACED, ALL = ("trace", "export"), ("trace", "export", "script")


class Asked(NamedTuple):
    """`model` is made by a call, so that scripts are of functions with names."""

    name: str
    model: Any
    args: tuple[Any, ...]
    others: tuple[tuple[Any, ...], ...] = ()
    axes: dict[str, dict[int, str]] | None = None
    routes: tuple[str, ...] = ALL
    opsets: tuple[int, ...] = (17,)
    peers: tuple[str, str] = (R, R)


X, Y, MORE = torch.randn(3, 4), torch.randn(3, 4), torch.randn(5, 4)
N = {"x": {0: "n"}}
FIRST = (9, 10)  # without Range and CumSum, the second with Slice of computed bounds
BEFORE = (9, 15)  # without ScatterElements, without its reductions
TWICE = torch.tensor([[2, 2, 1, 2]] * 3)
PLACES = torch.tensor([0, 0, 2])


# Results into a buffer of another shape ------------------------------------------------------------------------------


def arange_out(x: Tensor) -> Tensor:
    t = torch.empty(0, dtype=torch.int64)
    torch.arange(x.shape[0], out=t)
    return t


def arange_from_out(x: Tensor) -> Tensor:
    t = torch.empty(7)
    torch.arange(1, x.shape[0], out=t)
    return t + 1


def add_out(x: Tensor) -> Tensor:
    t = torch.empty(0)
    torch.add(x, x, out=t)
    return t


def cat_out(x: Tensor) -> Tensor:
    t = torch.empty(2, 2)
    r = torch.cat([x, x], out=t)
    return t * r


def matmul_out(x: Tensor, y: Tensor) -> Tensor:
    t = torch.empty(0)
    torch.matmul(x, y.t(), out=t)
    return t


OUT = [
    Asked("arange-out", arange_out, (X,), ((MORE,),), N),
    Asked("arange-from-out", arange_from_out, (X,), ((MORE,),), N, peers=(W, R)),
    Asked("add-out", add_out, (X,), ((MORE,),), N, peers=(F, R)),
    Asked("cat-out", cat_out, (X,), ((MORE,),), N, peers=(F, R)),
    Asked("matmul-out", matmul_out, (X, Y), ((MORE, Y),), N, peers=(F, F)),
]

# Views of memory -----------------------------------------------------------------------------------------------------


def windows(x: Tensor) -> Tensor:
    return x.as_strided((3, 2, 2), (4, 2, 1))


def chunks(x: Tensor) -> Tensor:
    """Overlapping pieces, as in Longformer."""
    x = x.view(x.size(0), x.size(1) // 4, 4, x.size(2))
    return x.as_strided((x.size(0), x.size(1) * 2 - 1, 4, x.size(3)), (x.stride(0), x.stride(1) // 2, x.stride(2), 1))


def write_into_a_view(x: Tensor) -> Tensor:
    y = x.clone()
    y.as_strided((2, 2), (4, 1), 1).mul_(2)
    return y


def write_and_read(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 1
    v = y.as_strided((3, 2), (4, 2))
    v[0] = 9
    return y, v


VIEWS = [
    Asked("as-strided", windows, (X,)),
    Asked("as-strided-chunks", chunks, (torch.randn(2, 8, 3),), ((torch.randn(3, 8, 3),),), N),
    Asked("as-strided-written", write_into_a_view, (X,), peers=(W, F)),
    Asked("as-strided-written-and-read", write_and_read, (X,), peers=(W, F)),
]

# Places that come twice ----------------------------------------------------------------------------------------------


def scatter_add(x: Tensor, i: Tensor, s: Tensor) -> Tensor:
    return x.scatter_add(1, i, s)


def index_add(x: Tensor, i: Tensor, s: Tensor) -> Tensor:
    return x.index_add(0, i, s)


def index_put(x: Tensor, i: Tensor, s: Tensor) -> Tensor:
    return x.index_put((i,), s, accumulate=True)


def index_put_pairs(x: Tensor, i: Tensor, s: Tensor) -> Tensor:
    return x.index_put((i, i), s[:, 0], accumulate=True)


def reduced(kind: str, include: bool) -> Callable[..., Tensor]:
    return lambda x, i, s: x.scatter_reduce(1, i, s, kind, include_self=include)


SAME_PLACE = [
    *(
        Asked(function.__name__.replace("_", "-"), function, (X, i, Y), opsets=BEFORE, peers=(old, R))
        for function, i, old in (
            (scatter_add, TWICE, W),
            (index_add, PLACES, W),
            (index_put, PLACES, F),
            (index_put_pairs, PLACES, F),
        )
    ),
    *(
        Asked(
            f"scatter-reduce-{kind}{'' if include else '-alone'}",
            reduced(kind, include),
            (X, TWICE, Y),
            routes=TRACED,
            opsets=(9, 15),
            peers=(F, W if kind == "mean" else R),
        )
        for kind in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
    ),
]

# Opsets without Range and CumSum -------------------------------------------------------------------------------------


class Packed(nn.Module):
    """Rows of several lengths."""

    def __init__(self, layer: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = layer(3, 4, batch_first=True)

    def forward(self, x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        found, _ = self.layer(pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False))
        padded, lengths = pad_packed_sequence(found, batch_first=True)
        return padded, lengths


def arange_of_a_size(x: Tensor) -> Tensor:
    return torch.arange(x.shape[0]) * 2


def arange_of_tenths(x: Tensor) -> Tensor:
    return torch.arange(0.5, x.shape[0], 0.7)


def cumsum(x: Tensor) -> Tensor:
    return x.cumsum(0)


def repeated(x: Tensor) -> Tensor:
    return x.repeat_interleave(2, 0)


def repeated_by_data(x: Tensor, i: Tensor) -> Tensor:
    return x.repeat_interleave(i, 0)


LENGTHS = (torch.randn(3, 5, 3), torch.tensor([3, 5, 2])), ((torch.randn(3, 5, 3), torch.tensor([5, 1, 2])),)
OPSETS = [
    Asked("arange-of-a-size", arange_of_a_size, (X,), ((MORE,),), N, opsets=FIRST),
    Asked("arange-of-tenths", arange_of_tenths, (X,), ((MORE,),), N, opsets=FIRST),
    Asked("cumsum", cumsum, (X,), ((MORE,),), N, opsets=FIRST, peers=(F, R)),
    Asked("cumsum-int", cumsum, (X.long(),), ((MORE.long(),),), N, opsets=FIRST, peers=(F, R)),
    Asked("repeat-interleave", repeated, (X,), ((MORE,),), N, opsets=FIRST, peers=(F, R)),
    Asked(
        "repeat-interleave-by-data",
        repeated_by_data,
        (X, torch.tensor([1, 0, 2])),
        ((X, torch.tensor([3, 1, 0])),),
        opsets=FIRST,
    ),
    *(
        Asked(
            f"packed-{layer.__name__.lower()}",
            Packed(layer).eval(),
            *LENGTHS,
            routes=("trace", "script"),
            opsets=FIRST,
            peers=(W, F),
        )
        for layer in (nn.LSTM, nn.GRU, nn.RNN)
    ),
]

# Containers, wrappers, dtypes ----------------------------------------------------------------------------------------


class Scores(OrderedDict[str, Any]):
    pass


@dataclasses.dataclass
class Pair:
    first: Tensor
    second: Tensor


def ordered(x: Tensor) -> Any:
    return Scores(a=x + 1, b=x * 2)


def data_class(x: Tensor) -> Any:
    return Pair(x + 1, x * 2)


def elu(x: Tensor) -> Tensor:
    return functional.elu(x, 0.5)


def celu(x: Tensor) -> Tensor:
    return functional.celu(x, 0.5)


def acos(x: Tensor) -> Tensor:
    return torch.acos(x.clamp(-1.0, 1.0))


def atan2(x: Tensor, y: Tensor) -> Tensor:
    return torch.atan2(x, y)


def one_of_bytes(x: Tensor, i: Tensor) -> Tensor:
    return torch.where(i, x, -x)


def from_a_number(x: Tensor) -> Tensor:
    return torch.tensor([float(x)])


def scaled(x: Tensor, scale: float = 2.0, flag: bool = True) -> Tensor:
    return x * scale if flag else x - scale


OTHERS = [
    Asked("an-ordered-dict", ordered, (X,), routes=TRACED, peers=(R, F)),
    Asked("a-dataclass", data_class, (X,), routes=TRACED, peers=(F, F)),
    Asked("data-parallel", nn.DataParallel(nn.Linear(4, 2)), (X,), ((MORE,),), N, routes=TRACED, peers=(F, R)),
    Asked("elu-double", elu, (X.double(),), peers=(W, R)),
    Asked("celu-double", celu, (X.double(),), peers=(W, W)),
    Asked("erf-double", torch.erf, (X.double(),), routes=TRACED, peers=(W, W)),
    Asked("acos-double", acos, (X.double(),), peers=(W, W)),
    Asked("atan2-double", atan2, (X.double(), Y.double()), peers=(W, W)),
    Asked("where-byte", one_of_bytes, (X, (X > 0).byte()), routes=("script",), peers=(R, F)),
    Asked(
        "tensor-of-float",
        from_a_number,
        (torch.tensor([1.5]),),
        ((torch.tensor([2.5]),),),
        routes=("script",),
        peers=(W, R),
    ),
    Asked("defaults", scaled, (X,), routes=ALL),
]

ROWS = [*OUT, *VIEWS, *SAME_PLACE, *OPSETS, *OTHERS]
# by default each row runs by its first route and by another in turn, at its lowest opset
RUNS = [
    pytest.param(
        *(row, route, opset),
        id=f"{row.name}-{route}-{opset}",
        marks=()
        if opset == row.opsets[0] and way in (0, 1 + number % max(1, len(row.routes) - 1))
        else pytest.mark.full,
    )
    for number, row in enumerate(ROWS)
    for way, route in enumerate(row.routes)
    for opset in row.opsets
]


@pytest.mark.parametrize(("row", "route", "opset"), dealt(RUNS, 2))
def test_row(row: Asked, route: str, opset: int) -> None:
    model = torch.jit.script(row.model) if route == "script" else row.model
    capture = "auto" if route == "script" else route
    names = ["x", *"yn"[: len(row.args) - 1]] if row.axes else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of buffers that it makes larger
        program = purexport.export(
            model, row.args, capture=capture, opset_version=opset, input_names=names, dynamic_axes=row.axes
        )
    for args in (row.args, *row.others):
        _compare(program.model_proto.SerializeToString(), row, args)


def _compare(data: bytes, row: Asked, args: tuple[Any, ...]) -> None:
    """Raises what ONNX Runtime raises, and AssertionError for other results than torch's."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feed = {item.name: tensor.numpy() for item, tensor in zip(session.get_inputs(), args, strict=True)}
    found = session.run(None, feed)
    with torch.no_grad():
        result = row.model(*args)
    wanted = list(vars(result).values()) if isinstance(result, Pair) else result
    wanted = list(wanted.values()) if isinstance(wanted, dict) else wanted
    for got, want in zip(found, wanted if isinstance(wanted, (list, tuple)) else [wanted], strict=True):
        assert torch.as_tensor(got).dtype == want.dtype
        assert_near(got, want, CHAIN)


class Called(nn.Module):
    """torch.onnx takes modules."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@pytest.mark.sweep
@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_with_torch_onnx(row: Asked, dynamo: bool) -> None:
    """Whether it is as the row says; the newer exporter begins at opset 18."""
    pytest.importorskip("onnxscript", reason="torch.onnx's newer exporter is written with it")
    assert _outcome(row, dynamo) == row.peers[dynamo]


def _outcome(row: Asked, dynamo: bool) -> str:
    model = row.model if isinstance(row.model, nn.Module) else Called(row.model)
    opset = 18 if dynamo else next(iter(row.opsets), 17)
    axes: dict[str, Any] = {"dynamic_shapes": None}
    if row.axes is not None and dynamo:
        axes = {
            "dynamic_shapes": (
                tuple(dict.fromkeys(row.axes["x"], "n") if not at else None for at in range(len(row.args))),
            )
        }
    elif row.axes is not None:
        axes = {"dynamic_axes": row.axes, "input_names": ["x", *"yn"[: len(row.args) - 1]]}
    file = io.BytesIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                model, row.args, None if dynamo else file, dynamo=dynamo, opset_version=opset, **axes
            )
    except Exception:  # of any kind: it writes no file
        return F
    data = program.model_proto.SerializeToString() if dynamo else file.getvalue()  # type: ignore[union-attr]
    try:
        for args in (row.args, *row.others):
            _compare(data, row, args)
    except Exception:  # ONNX Runtime's have no base of their own
        return W
    return R
