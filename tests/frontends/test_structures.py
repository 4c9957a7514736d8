"""Arguments and results as models have them, which nobody registered with torch: caches, mappings, dataclasses.

A row is a model, its arguments and the names in the file.  The classes stand in for those of transformers, which have
rows of their own at the end; they run where transformers is installed.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.utils import _pytree as pytree

import purexport
from purexport.frontends.core.axes_of_structures import spread
from purexport.frontends.core.structures import apart, joined, mapped, paths_of, results_in, tensors_in
from tests.harness import run_ort

ROUTES = ("trace", "export")


class Layer:
    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        self.keys, self.values = keys, values
        self.is_initialized = keys is not None

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], -2)
        self.values = values if self.values is None else torch.cat([self.values, values], -2)
        self.is_initialized = True
        return self.keys, self.values


class WindowLayer(Layer):
    """Counts its tokens in Python, as sliding windows do."""

    def __init__(self, keys: Tensor, values: Tensor, length: int | None = None) -> None:
        super().__init__(keys, values)
        self.cumulative_length = keys.shape[-2] if length is None else length
        self._sliding_window_tensor = torch.tensor(4)

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.cumulative_length += keys.shape[-2]
        return super().update(keys, values)


class StaticLayer(Layer):
    """Writes into tensors of full length, at a position that is a tensor."""

    def __init__(self, keys: Tensor, values: Tensor, length: int) -> None:
        super().__init__(keys, values)
        self.max_cache_len = keys.shape[-2]
        self.cumulative_length = torch.tensor(length)

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        at = torch.arange(keys.shape[-2]) + self.cumulative_length
        self.cumulative_length.add_(keys.shape[-2])
        self.keys.index_copy_(0, at, keys)
        self.values.index_copy_(0, at, values)
        return self.keys, self.values


class StateLayer:
    """A layer with states of convolutions instead of keys."""

    def __init__(self, conv: Tensor) -> None:
        self.conv_states, self.recurrent_states = {0: conv}, {0: None}


class LayeredCache:
    def __init__(self, *layers: Any) -> None:
        self.layers = list(layers)
        self.seen: dict[int, int] = {}

    def update(self, number: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        while len(self.layers) <= number:
            self.layers.append(Layer())
        self.seen[number] = 1
        found: tuple[Tensor, Tensor] = self.layers[number].update(keys, values)
        return found


class ListedCache:
    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        self.key_cache, self.value_cache = keys, values

    def update(self, number: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.key_cache[number] = torch.cat([self.key_cache[number], keys], -2)
        self.value_cache[number] = torch.cat([self.value_cache[number], values], -2)
        return self.key_cache[number], self.value_cache[number]


class TwoCaches:
    def __init__(self, own: LayeredCache, cross: LayeredCache) -> None:
        self.self_attention_cache, self.cross_attention_cache = own, cross
        self.is_updated = {0: True}


class Output(collections.OrderedDict[str, Any]):
    """A dict that is read by attribute too, as transformers returns it."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class ReadOnly(Mapping[str, Tensor]):
    def __init__(self, items: Mapping[str, Tensor]) -> None:
        self._items = types.MappingProxyType(dict(items))

    def __getitem__(self, key: str) -> Tensor:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


@dataclasses.dataclass(frozen=True)
class State:
    hidden: Tensor
    past: Any = None
    steps: int = 2
    double: int = dataclasses.field(init=False, default=4)

    def __post_init__(self) -> None:
        object.__setattr__(self, "double", self.steps * 2)


class Pair(NamedTuple):
    left: Tensor
    right: Any


class Registered:
    """Registered with torch by its author, without names for its parts."""

    def __init__(self, one: Tensor, two: Tensor) -> None:
        self.one, self.two = one, two


pytree.register_pytree_node(Registered, lambda item: ([item.one, item.two], None), lambda parts, _: Registered(*parts))

X = torch.arange(6.0).reshape(2, 3) / 3
Y = torch.arange(3.0) - 1
Z = torch.ones(3, 3)


def step(x: Tensor, past_key_values: Any) -> Output:
    keys, values = past_key_values.update(0, x * 2, x + 1)
    return Output(logits=(keys * values).sum(0), past_key_values=past_key_values, attentions=None)


def window(x: Tensor, past: Any) -> tuple[Tensor, Any]:
    keys, _ = past.update(0, x, x + 1)
    return keys + past.layers[0].cumulative_length, past


def two_caches(x: Tensor, cache: Any) -> Output:
    own = cache.self_attention_cache.update(0, x, x)
    cache.is_updated[0] = False
    return Output(logits=own[0].sum() + cache.cross_attention_cache.layers[0].keys, past_key_values=cache)


def states(x: Tensor, cache_params: Any) -> tuple[Tensor, Any]:
    layer = cache_params.layers[0]
    layer.conv_states[0].copy_(layer.conv_states[0] + x)
    return layer.conv_states[0] * 2, cache_params


def fields(state: State) -> State:
    return State(state.hidden * state.double, None, state.steps)


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    model: Callable[..., Any]
    args: Callable[[], tuple[Any, ...]]
    inputs: list[str]
    outputs: list[str]
    axes: Any = None


PAST = ["past_key_values.0.key", "past_key_values.0.value"]
PRESENT = ["present.0.key", "present.0.value"]
ROWS = [
    Row("layers", step, lambda: (X, LayeredCache(Layer(X, X + 2))), ["x", *PAST], ["logits", *PRESENT], {0: "past"}),
    Row("empty-cache", step, lambda: (X, LayeredCache()), ["x"], ["logits", *PRESENT]),
    Row(
        "lists", step, lambda: (X, ListedCache([X], [X + 2])), ["x", *PAST], ["logits", *PRESENT], [({0: "past"},) * 2]
    ),
    Row(
        "window",
        window,
        lambda: (X, LayeredCache(WindowLayer(X, X + 2))),
        ["x", "past.0.key", "past.0.value"],
        ["output_0", *PRESENT],
        {0: "past"},
    ),
    Row(
        "full-window",
        window,
        lambda: (X, LayeredCache(WindowLayer(Z, Z + 2, 5), Layer(torch.ones(5, 3), torch.ones(5, 3)))),
        ["x", *(f"past.{number}.{kind}" for number in (0, 1) for kind in ("key", "value"))],
        ["output_0", *PRESENT, "present.1.key", "present.1.value"],
        [None, {0: "past"}],
    ),
    Row(
        "static",
        lambda x, past: (past.update(0, x, x + 1)[0] + x.sum(), past),
        lambda: (X, LayeredCache(StaticLayer(torch.zeros(3, 3), torch.ones(3, 3), 1))),
        ["x", "past.0.key", "past.0.value", "past.0.cumulative_length"],
        ["output_0", *PRESENT, "present.0.cumulative_length"],
    ),
    Row(
        "two-caches",
        two_caches,
        lambda: (X, TwoCaches(LayeredCache(Layer(X, X + 2)), LayeredCache(Layer(Y, Y + 2)))),
        ["x", *(f"cache.0.{half}.{kind}" for half in ("decoder", "encoder") for kind in ("key", "value"))],
        ["logits", *(f"present.0.{half}.{kind}" for half in ("decoder", "encoder") for kind in ("key", "value"))],
        {"decoder": {0: "past"}},
    ),
    Row(
        "states",
        states,
        lambda: (X, LayeredCache(StateLayer(X + 1))),
        ["x", "cache_params.0.conv_state"],
        ["output_0", "present.0.conv_state"],
    ),
    Row(
        "mappings",
        lambda d, e: Output(b=d["u"] + e["v"].left, a=collections.UserDict(c=d["u"], n=3)),
        lambda: (Output(u=X), {"v": Pair(Y, None), "w": ReadOnly({"z": Y})}),
        ["d_u", "e_v_left", "e_w_z"],
        ["b", "a_c", "a_n"],
    ),
    Row("dataclass", fields, lambda: (State(X),), ["state_hidden"], ["hidden", "steps", "double"]),
    Row(
        "dataclass-of-cache",
        lambda s: Pair(s.past.update(0, s.hidden, s.hidden)[0], s.past),
        lambda: (State(X, LayeredCache(Layer(X, X))),),
        ["s_hidden", "s_past.0.key", "s_past.0.value"],
        ["left", *PRESENT],
        {"past": {0: "past"}},
    ),
    Row(
        "registered-without-names",
        lambda r: Registered(r.one + r.two, r.two),
        lambda: (Registered(X, Y),),
        ["r_0", "r_1"],
        ["output_0", "output_1"],
    ),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_structures(row: Row, route: str) -> None:
    """The file has the names, computes what torch computes at other sizes too, and the user's objects are unchanged."""
    args = row.args()
    before = [(tensor, tensor.clone()) for tensor in tensors_in(args)]
    axes = None if row.axes is None else {_argument(row, args): row.axes}
    program = purexport.export(row.model, args, dynamic_axes=axes, capture=route)
    graph = program.model_proto.graph
    assert graph is not None
    assert [item.name for item in graph.input] == row.inputs
    assert [item.name for item in graph.output] == row.outputs
    assert not {LayeredCache, ListedCache, TwoCaches, Output, ReadOnly, State} & pytree.SUPPORTED_NODES.keys()
    after = tensors_in(args)
    assert len(after) == len(before)
    for mine, (tensor, content) in zip(after, before, strict=True):
        assert mine is tensor
        assert torch.equal(mine, content)
    others = [args]
    if row.axes is not None:
        labelled = {item.name for item in graph.input if _is_dynamic(item)}
        longer = iter([torch.cat([t, t + 1]) if n in labelled else t for n, t in zip(row.inputs, after, strict=True)])
        others.append(mapped(lambda _: next(longer), args))
    for given in others:
        tensors = [tensor.clone() for tensor in tensors_in(given)]
        expected = [torch.as_tensor(leaf) for _, leaf in results_in(row.model(*mapped(Tensor.clone, given)))]
        found = run_ort(program.model_proto.SerializeToString(), [tensor.numpy() for tensor in tensors])
        assert len(found) == len(expected)
        for array, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(array), theirs)


def _argument(row: Row, args: tuple[Any, ...]) -> str:
    """The name of the last argument."""
    return row.model.__code__.co_varnames[len(args) - 1]


def _is_dynamic(item: Any) -> bool:
    return any(dim.HasField("dim_param") for dim in item.type.tensor_type.shape.dim)


A, B = {0: "a"}, {0: "b"}
LAYERS = LayeredCache(Layer(X, X), Layer(X, X))
# the argument, what is said of it, and what that means for each tensor
SPREAD: list[tuple[str, Any, Any, list[Any]]] = [
    ("one-for-all", LAYERS, A, [A, A, A, A]),
    ("hint-for-all", LAYERS, Dim.AUTO, [Dim.AUTO] * 4),
    ("per-axis", LAYERS, ("a", None), [("a", None)] * 4),
    ("axes-without-names", LAYERS, [0, 1], [[0, 1]] * 4),
    ("per-layer", LAYERS, [A, B], [A, A, B, B]),
    ("per-layer-pairs", LAYERS, [(A, B), (B, A)], [A, B, B, A]),
    ("per-layer-dicts", LAYERS, [{"key": A, "value": B}, None], [A, B, None, None]),
    ("keys-then-values", LAYERS, [A, A, B, B], [A, B, A, B]),
    ("lists-of-keys-and-of-values", LayeredCache(*[Layer(X, X)] * 3), [[A] * 3, [B] * 3], [A, B] * 3),
    ("by-kind", LAYERS, {"key": A, "value": B}, [A, B, A, B]),
    ("by-layer", LAYERS, {"1": A}, [None, None, A, A]),
    ("by-name", LAYERS, {"0.key": A, "1.value": B}, [A, None, None, B]),
    ("dict", {"x": X, "y": [X, X]}, {"y": [A, B]}, [None, A, B]),
    ("dataclass", State(X, Pair(X, X)), {"past": (A, B)}, [None, A, B]),
    ("named-tuple", Pair(X, {"z": X}), {"right": A}, [None, A]),
]


@pytest.mark.parametrize(("argument", "spec", "expected"), [row[1:] for row in SPREAD], ids=[row[0] for row in SPREAD])
def test_axes_have_the_form_of_the_argument(argument: Any, spec: Any, expected: list[Any]) -> None:
    leaves = [(path, leaf) for path, leaf in apart(argument).leaves() if isinstance(leaf, Tensor)]
    found = dict(spread("past", spec, leaves))
    assert [found.get(path) for path, _ in leaves] == expected


MISFITS = [
    (
        "too-few",
        [A, B, A],
        "axes of past are given for 3 entries, and its tensors are 0.key, 0.value, 1.key",
    ),
    ("unknown", {"keys": A}, "given for keys, and its tensors are 0.key"),
]


@pytest.mark.parametrize(("spec", "message"), [row[1:] for row in MISFITS], ids=[row[0] for row in MISFITS])
def test_axes_of_another_form_are_refused(spec: Any, message: str) -> None:
    both: list[dict[str, Any]] = [{"dynamic_axes": {"past": spec}}, {"dynamic_shapes": {"past": spec}}]
    for options in both:
        with pytest.raises(purexport.ExportError, match=message):
            purexport.export(lambda past: past.layers[0].keys + 1, (LAYERS,), **options)


def test_a_count_that_no_size_tells_is_said() -> None:
    with pytest.warns(UserWarning, match="a WindowLayer has counted 5 tokens in 'cumulative_length' and holds 2"):
        purexport.export(window, (X, LayeredCache(WindowLayer(X, X, 5))))


@pytest.mark.parametrize("route", ROUTES)
def test_a_count_follows_the_layer_that_holds_the_tokens(route: str) -> None:
    """Of a window that is full the count is that of another layer."""

    def past(length: int) -> LayeredCache:
        keys = torch.ones(length, 3)
        return LayeredCache(WindowLayer(Z, Z + 2, length), WindowLayer(keys, keys))

    def both(x: Tensor, past: Any) -> list[Tensor]:
        return [x * past.layers[0].cumulative_length, x * past.layers[1].cumulative_length]

    program = purexport.export(both, (X, past(5)), dynamic_axes={"past": [None, {0: "past"}]}, capture=route)
    for length in (5, 8):
        for mine in program(X, past(length)):
            torch.testing.assert_close(mine, X * length)


@pytest.mark.parametrize("route", ROUTES)
def test_a_layer_that_is_empty_still_stays_empty(route: str) -> None:
    """Its position is a tensor that the model writes to, and no input."""

    class Lazy(StaticLayer):
        def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            self.keys, self.values, self.is_initialized = torch.zeros(4, 3), torch.zeros(4, 3), True
            return super().update(keys, values)

    layer = Lazy(torch.zeros(4, 3), torch.zeros(4, 3), 0)
    layer.keys, layer.values, layer.is_initialized = None, None, False
    program = purexport.export(
        lambda x, past: (past.update(0, x, x + 1)[1] * 2, past), (X, LayeredCache(layer)), capture=route
    )
    assert (int(layer.cumulative_length), layer.keys, layer.is_initialized) == (0, None, False)
    result, keys, _, length = program(X)
    torch.testing.assert_close(result, torch.cat([X + 1, torch.zeros(2, 3)]) * 2)
    torch.testing.assert_close(keys, torch.cat([X, torch.zeros(2, 3)]))
    assert int(length) == 2


OF_TORCH: list[tuple[str, Any]] = [
    ("nested", [1, {"a": 2, "b": [3]}, ((), [1])]),
    ("named-tuple", Pair(X, (X,))),
    ("dicts", collections.OrderedDict(u={3: X}, v=collections.defaultdict(int, q=1))),
    ("registered", Registered(X, X)),
    ("leaf", X),
]


@pytest.mark.parametrize("tree", [row[1] for row in OF_TORCH], ids=[row[0] for row in OF_TORCH])
def test_paths_are_known_without_the_objects(tree: Any) -> None:
    """The results of a program of torch.export are named by its specification alone."""
    found = [joined(path) for path, _ in paths_of(pytree.tree_structure(tree))]
    assert found == [joined(path) for path, _ in apart(tree, results=True).leaves()]


def test_several_caches_have_names_of_their_own() -> None:
    paths = [path for path, _ in results_in({"past_key_values": LAYERS, "mems": LayeredCache(Layer(X, X))})]
    from purexport.frontends.core.request import output_names

    assert output_names(paths)[0] == "present.0.key"
    assert output_names(paths)[-1] == "present_mems.0.value"
    assert [joined(path) for path in paths][-1] == "mems.0.value"


def test_tensors_that_no_input_can_stand_for_are_refused() -> None:
    layer = Layer(X, X)
    layer.packed = X  # type: ignore[attr-defined]
    with pytest.raises(purexport.ExportError, match="a Layer with tensors in 'packed'"):
        purexport.export(step, (X, LayeredCache(layer)))


def test_a_program_says_how_many_tensors_it_takes() -> None:
    program = purexport.export(lambda x: x + 1, (X,))
    with pytest.raises(ValueError, match="takes 1 tensors, x, and 2 were given"):
        program(X, X)


# transformers' own ----------------------------------------------------------------------------------------------------


def _llama() -> Any:
    transformers = pytest.importorskip("transformers")
    from tests.torchvision_shim import torchvision

    torchvision()
    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=11,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("kind", ["DynamicCache", "StaticCache"])
def test_a_model_of_transformers_with_its_cache(kind: str, route: str) -> None:
    """The cache goes in and comes out, and the user's own is what it was."""
    model = _llama()
    import transformers

    more = {"max_cache_len": 6} if kind == "StaticCache" else {}
    cache = getattr(transformers, kind)(config=model.config, **more)
    for number in range(2):
        cache.update(torch.randn(1, 1, 3, 8), torch.randn(1, 1, 3, 8), number)
    kept = copy.deepcopy(cache)
    given = {"input_ids": torch.tensor([[1, 2]]), "past_key_values": cache}
    program = purexport.export(model, kwargs=given, capture=route)
    graph = program.model_proto.graph
    assert graph is not None
    of_layer = ["key", "value", *(["cumulative_length"] if more else [])]
    past = [f"{number}.{name}" for number in range(2) for name in of_layer]
    assert [item.name for item in graph.input] == ["input_ids", *(f"past_key_values.{name}" for name in past)]
    assert [item.name for item in graph.output] == ["logits", *(f"present.{name}" for name in past)]
    for mine, theirs in zip(tensors_in(cache), tensors_in(kept), strict=True):
        assert torch.equal(mine, theirs)
    for mine, (_, theirs) in zip(program(**given), results_in(model(**given)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
