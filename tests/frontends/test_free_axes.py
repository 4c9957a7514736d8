"""`dynamic=True`: the axes that the model lets vary are found out, named, and the report says why the others are not.

A row is a model, its arguments, and the names of the axes in the file.  Each file also runs at other sizes, one for
each name, and must agree with torch there.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purexport
from purexport import driver
from purexport.frontends.core.structures import mapped, results_in, tensors_in
from tests.frontends.test_structures import Layer, LayeredCache, step
from tests.harness import run_ort

X, Y, Z = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3) - 1, torch.ones(1, 3)
IMAGE = torch.arange(192.0).reshape(1, 3, 8, 8) / 100


def attention(x: Tensor, mask: Tensor, past: Any) -> tuple[Tensor, Any]:
    """Takes a mask that is as long as past and new tokens together, and looks at it where it masks anything."""
    keys, values = past.update(0, x, x)
    weights = (x @ keys.mT).softmax(-1)
    return (weights if bool(mask.all()) else weights * mask[:, None, :]) @ values, past


def masked(x: Tensor, mask: Tensor) -> Tensor:
    """Looks at the mask where it masks anything."""
    return x if bool(mask.all()) else x * mask


def halves(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], 2, x.shape[1] // 2).sum(1)


class Remembering(nn.Module):
    """Makes a mask for the first size that it sees."""

    mask: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = torch.ones_like(x[:, :1])
        return x * self.mask


def either(x: Tensor) -> Tensor:
    assert x.shape[0] == 2 or x.shape[1] == 3, "one of the sizes must stay"
    return x + 1


# name, model, arguments, the names of each input's axes (None where static), a reason of the report
Row = tuple[str, Callable[..., Any], Callable[[], tuple[Any, ...]], dict[str, list[str | None]], str]
ROWS: list[Row] = [
    ("shared", lambda x, y: x + y, lambda: (X, Y), {"x": ["batch", "length"], "y": ["batch", "length"]}, ""),
    (
        "apart",
        lambda x, y: (x + 1, y * 2),
        lambda: (X, Y),
        {"x": ["x_count", "x_length"], "y": ["y_count", "y_length"]},
        "",
    ),
    (
        "of-size-one",
        lambda x, y: x * y,
        lambda: (torch.ones(1, 4), torch.ones(1, 4)),
        {"x": ["batch", "length"], "y": ["batch", "length"]},
        "",
    ),
    (
        "equal-by-chance",
        lambda x, y: x @ y,
        lambda: (torch.ones(4, 4), torch.ones(4, 4)),
        {"x": ["x_count", "x_length"], "y": ["x_length", "y_length"]},
        "",
    ),
    (
        "sum",
        lambda x, y, z: torch.cat([x, y]) + z,
        lambda: (X[:1].expand(3, 3).clone(), torch.ones(4, 3), torch.ones(7, 3)),
        {"x": ["x_count", "length"], "y": ["y_count", "length"], "z": ["x_count + y_count", "length"]},
        "",
    ),
    (
        "one-more",
        lambda x, z: torch.cat([x, x[:1]]) + z,
        lambda: (X, torch.ones(3, 3)),
        {"x": ["x_count", "length"], "z": ["x_count + 1", "length"]},
        "",
    ),
    (
        "convolution",
        nn.Conv2d(3, 2, 3),
        lambda: (IMAGE,),
        {"input": ["batch", None, "height", "width"]},
        "weight of",
    ),
    (
        "mask-of-ones",
        masked,
        lambda: (X, torch.ones(2, 3, dtype=torch.bool)),
        {"x": ["batch", "length"], "mask": ["batch", "length"]},
        "",
    ),
    ("multiples", halves, lambda: (torch.ones(3, 8),), {"x": ["batch", "length"]}, ""),
    ("none", lambda x: x.view(6) + 1, lambda: (X,), {"x": [None, None]}, r"shape '\[6\]' is invalid for input of size"),
    ("scalar", lambda x: x + 1, lambda: (torch.tensor(2.0),), {"x": []}, ""),
    ("remembering", Remembering(), lambda: (X,), {"x": ["batch", "length"]}, ""),
    ("not-both", either, lambda: (X,), {"x": [None, None]}, "3: .*AssertionError: one of the sizes must stay"),
    (
        "held-by-a-number",
        lambda x: x * sum(range(x.shape[0])),
        lambda: (X,),
        {"x": [None, "length"]},
        r"2: the model fixes it at 2 at .*test_free_axes.py:\d+",
    ),
    (
        "other-results",
        lambda x: x.squeeze(0),
        lambda: (Z,),
        {"x": [None, "length"]},
        "1: .*have other numbers of axes",
    ),
    ("more-results", lambda x: x.unbind(0), lambda: (X,), {"x": [None, "length"]}, "2: .*the results are then others"),
    (
        "cache",
        attention,
        lambda: (torch.rand(2, 1, 4), torch.ones(2, 4, dtype=torch.bool), LayeredCache(*_layers())),
        {
            "x": ["batch", "x_dim_1", "x_dim_2"],
            "mask": ["batch", "length"],
            "past.0.key": ["batch", "past_dim_1", "x_dim_2"],
            "past.0.value": ["batch", "past_dim_1", "x_dim_2"],
        },
        "",
    ),
    (
        "cache-alone",
        step,
        lambda: (X, LayeredCache(Layer(X, X))),
        {
            "x": ["x_count", "length"],
            "past_key_values.0.key": ["past_key_values_count", "length"],
            "past_key_values.0.value": ["past_key_values_count", "length"],
        },
        "",
    ),
]


def _layers() -> list[Layer]:
    return [Layer(torch.rand(2, 3, 4), torch.rand(2, 3, 4))]


BY_EXPORT = ("shared", "equal-by-chance", "sum", "convolution", "none", "cache-alone")
PARAMS = [
    pytest.param(row, route, id=f"{row[0]}-{route}")
    for row in ROWS
    for route in ("trace", "export")
    if route == "trace" or row[0] in BY_EXPORT
]


@pytest.mark.parametrize(("row", "route"), PARAMS)
def test_free_axes(row: Row, route: str) -> None:
    _, model, make, expected, reason = row
    args = make()
    program = purexport.export(model, args, dynamic=True, capture=route)
    report = program.report
    found = {
        name: [report.dynamic.get(name, {}).get(axis) for axis in range(len(axes))] for name, axes in expected.items()
    }
    # torch.export takes the sizes to be 1 or more there
    found = {
        name: [label and str(label).replace("min(x_count, 1)", "1") for label in axes] for name, axes in found.items()
    }
    assert found == expected
    told = [text for axes in report.static.values() for text in axes.values()]
    assert len(told) == sum(axes.count(None) for axes in expected.values())
    assert not reason or any(re.search(reason, text) for text in told), told
    names = dict.fromkeys(name for axes in expected.values() for name in axes if name and name.isidentifier())
    sizes = {name: 10 + 2 * place for place, name in enumerate(names)}
    if "past_dim_1" in sizes:
        sizes["length"] = sizes["past_dim_1"] + sizes["x_dim_1"]
    other = iter(_resized(args, list(expected.values()), sizes))
    for given in (args, mapped(lambda _: next(other), args)):
        model = copy.deepcopy(row[1])
        feeds = [tensor.numpy() for tensor in tensors_in(mapped(Tensor.clone, given))]
        results = run_ort(program.model_proto.SerializeToString(), feeds)
        wanted = [leaf for _, leaf in results_in(model(*mapped(Tensor.clone, given)))]
        for mine, theirs in zip(results, wanted, strict=True):
            torch.testing.assert_close(torch.from_numpy(mine), theirs.detach())


def _resized(args: Any, axes: list[list[str | None]], sizes: dict[str, int]) -> list[Tensor]:
    """The tensors at the given sizes; a sum of names is evaluated."""
    found = []
    for tensor, named in zip(tensors_in(args), axes, strict=True):
        shape = [eval(name, dict(sizes)) if name else tensor.shape[axis] for axis, name in enumerate(named)]
        found.append(torch.rand(shape).to(tensor.dtype) if tensor.dtype is not torch.bool else torch.ones(shape) > 0)
    return found


def test_an_axis_that_a_stage_refuses_is_static(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others stay dynamic, and the refusal is the reason."""
    stages = driver.captured_and_lowered

    def refusing(run: Any) -> Any:
        if "y_dim_1" in {label for named in run.options.dynamic_axes.values() for label in named.values()}:
            raise purexport.ExportError("no rule takes it", code="wrong-option")
        return stages(run)

    monkeypatch.setattr(driver, "captured_and_lowered", refusing)
    report = purexport.export(lambda x, y: (x + 1, y * 2), (X, Y), dynamic=True).report
    assert report.dynamic == {"x": {0: "x_count", 1: "length"}, "y": {0: "y_count"}}
    assert report.static == {"y": {1: "3: no rule takes it"}}


def test_names_of_the_user_go_before() -> None:
    program = purexport.export(lambda x, y: x + y, (X, Y), dynamic=True, dynamic_axes={"y": {0: "n"}})
    assert program.report.dynamic == {"x": {0: "n", 1: "length"}, "y": {0: "n", 1: "length"}}
    assert "dynamic: x axis 0 is n" in program.report.as_text(rules=True)
    assert "dynamic: x, y axis 0 is n, axis 1 is length" in program.report.as_text()


def test_a_model_without_values_is_left_to_torch_export() -> None:
    program = purexport.export(nn.Linear(3, 2, device="meta"), (X,), dynamic=True, export_params=False)
    assert program.report.dynamic == {"input": {0: "batch"}}
    assert "3: " in program.report.static["input"][1]


def test_a_program_of_torch_export_has_its_own_axes() -> None:
    captured = torch.export.export(nn.Linear(3, 2), (X,), dynamic_shapes=({0: torch.export.Dim("rows")},), strict=False)
    assert purexport.export(captured, dynamic=True).report.dynamic == {"input": {0: "batch"}}


def test_the_model_is_left_alone() -> None:
    """Runs at other sizes leave no counts, no attributes and no random numbers behind."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls: Tensor
            self.register_buffer("calls", torch.zeros(()))
            self.last = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.last = x.shape[0]
            return x + torch.rand_like(x)

    model = Counting()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    purexport.export(model, (X,), dynamic=True)
    assert (int(model.calls), model.last) == (0, 0)
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynamic": "all"}, "dynamic='all' is neither True nor False"),
        ({"dynamic": True, "dynamic_shapes": {}}, "without"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        purexport.export(lambda x: x, (X,), **options)
