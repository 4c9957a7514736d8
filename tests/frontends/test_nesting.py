"""Arguments and results nested in any way that torch knows: which become inputs and outputs, and what they are called.

A row is a model, its arguments and the names that the file must show; all run on each route and must agree with torch.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import purexport
from tests.harness import run_ort, tensors_in

ROUTES = ("trace", "export")
OPSETS = (11, 13, 17, 20, 23)


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


@dataclasses.dataclass
class State:
    hidden: Tensor
    cell: Tensor
    steps: int = 2


class ModelOutput(collections.OrderedDict):  # type: ignore[type-arg]
    """A dict that is read by attribute too, as libraries of language models return it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Cache:
    """Keys and values of attention, one pair a layer."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]]) -> None:
        self.layers = layers

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        old_key, old_value = self.layers[layer]
        self.layers[layer] = (torch.cat([old_key, key], 1), torch.cat([old_value, value], 1))
        return self.layers[layer]


class Opaque:
    """An object that torch does not look into."""

    def __init__(self, tensor: Tensor) -> None:
        self.items = {"tensor": [tensor]}


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"


def _flatten_cache(cache: Cache) -> tuple[list[Any], Any]:
    return [list(pair) for pair in cache.layers], None


def _unflatten_cache(children: Any, context: Any) -> Cache:
    return Cache([tuple(pair) for pair in children])


def _flatten_output(output: ModelOutput) -> tuple[list[Any], Any]:
    return list(output.values()), list(output)


def _unflatten_output(children: Any, keys: Any) -> ModelOutput:
    return ModelOutput(zip(keys, children, strict=True))


def _cache_with_keys(cache: Cache) -> tuple[list[Any], Any]:
    return [(pytree.SequenceKey(i), list(pair)) for i, pair in enumerate(cache.layers)], None


def _output_with_keys(output: ModelOutput) -> tuple[list[Any], Any]:
    return [(pytree.MappingKey(key), value) for key, value in output.items()], list(output)


torch.export.register_dataclass(State)
pytree.register_pytree_node(
    Cache, _flatten_cache, _unflatten_cache, serialized_type_name="tests.Cache", flatten_with_keys_fn=_cache_with_keys
)
pytree.register_pytree_node(
    ModelOutput,
    _flatten_output,
    _unflatten_output,
    serialized_type_name="tests.ModelOutput",
    flatten_with_keys_fn=_output_with_keys,
)

X = torch.arange(6.0).reshape(2, 3) / 3
Y = torch.arange(3.0) - 1


def state_step(state: State, x: Tensor) -> State:
    for _ in range(state.steps):
        state = State(torch.tanh(state.hidden + x), state.cell * 0.5 + state.hidden, state.steps)
    return state


def cached(x: Tensor, past: Cache) -> ModelOutput:
    key, value = past.update(0, x * 2, x + 1)
    return ModelOutput(logits=(key * value).sum(1), past=past)


def with_mode(x: Tensor, mode: Mode = Mode.SUM, name: str = "", scale: float = 2.0) -> Tensor:
    y = x.sum() if mode is Mode.SUM else x.mean()
    return y * scale + len(name)


def optional(x: Tensor, mask: Tensor | None = None, *, bias: Tensor | None = None) -> tuple[Tensor, Tensor | None, int]:
    return (x if mask is None else x * mask) + (0 if bias is None else bias), mask, 3


@dataclasses.dataclass(frozen=True)
class Nested:
    """`inputs` and `outputs` are the names in the file; `kwargs` of the model."""

    name: str
    model: Callable[..., Any]
    args: tuple[Any, ...]
    inputs: list[str]
    outputs: list[str]
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _model(function: Callable[..., Any]) -> Any:
    return function


ROWS = [
    Nested(
        "dict",
        lambda d: {"sum": d["a"] + d["b"], "difference": d["a"] - d["b"]},
        ({"a": X, "b": Y},),
        ["d_a", "d_b"],
        ["sum", "difference"],
    ),
    Nested("dict-order", lambda d: {"z": d["b"], "a": d["a"] * 2}, ({"b": X, "a": Y},), ["d_b", "d_a"], ["z", "a"]),
    Nested(
        "list",
        lambda xs: [x * 2 for x in xs],
        ([X, Y, X + 1],),
        ["xs_0", "xs_1", "xs_2"],
        ["output_0", "output_1", "output_2"],
    ),
    Nested(
        "tuple-of-dicts",
        lambda p: ({"a": p[0]["u"]}, (p[1]["v"] + 1, p[0]["u"] * 2)),
        (({"u": X}, {"v": Y}),),
        ["p_0_u", "p_1_v"],
        ["output_0_a", "output_1_0", "output_1_1"],
    ),
    Nested(
        "deep",
        lambda t: {"out": [[t["x"][0][0] + t["x"][1][0]], {"y": t["x"][0][0]}]},
        ({"x": [[X], (Y, None)]},),
        ["t_x_0_0", "t_x_1_0"],
        ["out_0_0", "out_1_y"],
    ),
    Nested(
        "named-tuple",
        lambda p: Pair(p.left + p.right, p.right * 2),
        (Pair(X, Y),),
        ["p_left", "p_right"],
        ["left", "right"],
    ),
    Nested(
        "dataclass", state_step, (State(X, X + 1), Y), ["state_hidden", "state_cell", "x"], ["hidden", "cell", "steps"]
    ),
    Nested(
        "cache",
        cached,
        (X, Cache([(X, X * 2), (X, X)])),
        ["x", "past_0_0", "past_0_1", "past_1_0", "past_1_1"],
        ["logits", "past_0_0_1", "past_0_1_1", "past_1_0_1", "past_1_1_1"],
    ),
    Nested(
        "ordered-dict",
        lambda d: collections.OrderedDict(b=d["x"] + 1, a=d["x"]),
        (collections.OrderedDict(x=X),),
        ["d_x"],
        ["b", "a"],
    ),
    Nested("none", optional, (X, None), ["x"], ["output_0", "output_2"]),
    Nested("optional-given", optional, (X, Y > 0), ["x", "mask"], ["output_0", "output_1", "output_2"]),
    Nested("keyword", optional, (X,), ["x", "bias"], ["output_0", "output_2"], {"bias": Y}),
    Nested(
        "keyword-order",
        lambda a, b, c: (a - b, c * 2),
        (X,),
        ["a", "c", "b"],
        ["output_0", "output_1"],
        {"c": X + 1, "b": Y},
    ),
    Nested("kwargs", lambda x, **rest: x + rest["u"] - rest["v"], (X,), ["x", "v", "u"], ["output"], {"v": Y, "u": X}),
    Nested("varargs", lambda *xs: xs[0] + xs[1] * xs[2], (X, Y, X), ["input_0", "input_1", "input_2"], ["output"]),
    Nested("constants", with_mode, (X, Mode.MEAN, "abc"), ["x"], ["output"]),
    Nested("same-tensor-twice", lambda a, b: (a + 1, b * 2), (X, X), ["a", "b"], ["output_0", "output_1"]),
    Nested("same-in-dict", lambda d: d["a"] - d["b"], ({"a": X, "b": X},), ["d_a", "d_b"], ["output"]),
    Nested("same-name-twice", lambda d, d_a: d["a"] + d_a, ({"a": X}, Y), ["d_a", "d_a_1"], ["output"]),
    Nested(
        "input-returned",
        lambda d: (d["x"], d["x"], {"x": d["x"]}),
        ({"x": X},),
        ["d_x"],
        ["output_0", "output_1", "output_2_x"],
    ),
    Nested(
        "odd-keys", lambda d: {"a b": d["x/y"], 3: d[7]}, ({"x/y": X, 7: Y},), ["d_x/y", "d_7"], ["a b", "output_3"]
    ),
    Nested("numbers-out", lambda x: {"x": x, "n": 3, "f": 0.5, "b": True}, (X,), ["x"], ["x_1", "n", "f", "b"]),
    Nested("empty-containers", lambda x, xs, d: (x + len(xs), [], {}), (X, [], {}), ["x"], ["output_0"]),
]


def _params() -> list[Any]:
    return [
        pytest.param(row, route, OPSETS[(number + step) % len(OPSETS)], id=f"{row.name}-{route}")
        for number, row in enumerate(ROWS)
        for step, route in enumerate(ROUTES)
    ]


def _names(values: Any) -> list[str]:
    return [value.name for value in values]


@pytest.mark.parametrize(("row", "route", "opset"), _params())
def test_nested(row: Nested, route: str, opset: int) -> None:
    """The file takes the tensors and gives the results in torch's order, under readable names."""
    program = purexport.export(row.model, row.args, kwargs=row.kwargs, capture=route, opset_version=opset)
    graph = program.model_proto.graph
    assert _names(graph.input) == row.inputs
    assert _names(graph.output) == row.outputs
    other = pytree.tree_map_only(Tensor, _changed, (row.args, dict(row.kwargs)))
    for args, kwargs in ((row.args, dict(row.kwargs)), other):
        feeds = [tensor.numpy() for tensor in tensors_in((args, kwargs))]
        found = run_ort(program.model_proto.SerializeToString(), feeds)
        copies, keywords = pytree.tree_map_only(Tensor, torch.clone, (args, kwargs))
        expected = [
            torch.as_tensor(leaf) for leaf in pytree.tree_leaves(row.model(*copies, **keywords)) if leaf is not None
        ]
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(mine), theirs)


def _changed(tensor: Tensor) -> Tensor:
    """Other values, another tensor for each place."""
    return ~tensor if tensor.dtype is torch.bool else torch.rand(tensor.shape) + 0.5


REFUSED = [
    (
        "hidden",
        lambda item: item.items["tensor"][0] + 1,
        (Opaque(X),),
        r"args hold a Opaque at \[0\].*register_pytree_node\(Opaque",
    ),
    (
        "in-list",
        lambda items: items[1].items["tensor"][0],
        ([1, Opaque(X)],),
        r"a Opaque at \[0\]\[1\].*use a dict, list, tuple, named tuple, dataclass or mapping",
    ),
    ("returned", lambda x: {"a": Opaque(x)}, (X,), "returns a Opaque.*register_pytree_node"),
    ("text", lambda x: (x, "label"), (X,), "returns a str, and ONNX outputs are tensors"),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("name", "model", "args", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(name: str, model: Any, args: Any, message: str, route: str) -> None:
    with pytest.raises(purexport.ExportError, match=message):
        purexport.export(model, args, capture=route)


def test_a_script_names_its_nested_inputs() -> None:
    @torch.jit.script
    def model(xs: list[Tensor], scale: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sum": xs[0] + xs[1] * scale["a"]}

    program = purexport.export(model, ([X, Y], {"a": Y}))
    assert _names(program.model_proto.graph.input) == ["xs_0", "xs_1", "scale_a"]
    assert _names(program.model_proto.graph.output) == ["sum"]
    (found,) = run_ort(program.model_proto.SerializeToString(), [X.numpy(), Y.numpy(), Y.numpy()])
    torch.testing.assert_close(torch.from_numpy(found), X + Y * Y)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor, past: Cache | None = None, use: bool = True) -> ModelOutput:
        if past is None or not use:
            return ModelOutput(logits=self.layer(x))
        key, value = past.update(0, self.layer(x), x)
        return ModelOutput(logits=(key.mT @ value).softmax(-1), past=past)


@pytest.mark.parametrize("route", ROUTES)
def test_a_cache_grows_in_a_dynamic_axis(route: str) -> None:
    """The cache of one step is the input of the next, under names of the user's own."""
    torch.manual_seed(0)
    model = Decoder().eval()
    start = Cache([(torch.randn(1, 2, 3), torch.randn(1, 2, 3))])
    names = ["x", "key", "value"]
    axes = {"key": {1: "past"}, "value": {1: "past"}}
    x = torch.randn(1, 1, 3)
    program = purexport.export(
        model,
        (x, start),
        input_names=names,
        output_names=["logits", "new_key", "new_value"],
        dynamic_axes=axes,
        capture=route,
    )
    dims = [dim.dim_param or dim.dim_value for dim in program.model_proto.graph.output[1].type.tensor_type.shape.dim]
    assert dims == [1, "past + 1", 3]
    cache = Cache([(torch.randn(1, 0, 3), torch.randn(1, 0, 3))])
    data = program.model_proto.SerializeToString()
    for _ in range(3):
        step = torch.randn(1, 1, 3)
        feeds = [step.numpy(), *(tensor.numpy() for tensor in cache.layers[0])]
        found = run_ort(data, feeds)
        with torch.no_grad():
            expected = tensors_in(model(step, cache))
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(mine), theirs)
