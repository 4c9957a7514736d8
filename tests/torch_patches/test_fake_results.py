"""Results that are known at once, beside those that torch finds in its own way: sizes, strides, types, assumptions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import sympy
import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.export import Dim
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import purexport
from purexport.frontends.export import program
from purexport.torch_patches import fake_results
from purexport.torch_patches.fake_results import known_results, layouts_changed_at_once, quick_implementations
from purexport.torch_patches.sizes import (
    answering,
    examples_asked_first,
    layouts_not_noted,
    sizes_below_two,
    small_sizes_counted,
)
from tests.tiers import dealt

ATEN = torch.ops.aten
C = 6
SIZES = (0, 1, 2, 3, 8, 13, 224)


def image(*shape: int, form: Any = torch.contiguous_format, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.ones(shape or (2, C, 8, 10), dtype=dtype).to(memory_format=form)


def vector(count: int = C, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.ones(count, dtype=dtype)


LAST: Any = torch.channels_last
HALF = torch.float16
INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "row by row": image,
    "channels last": lambda: image(form=LAST),
    "transposed": lambda: image(2, C, 10, 8).mT,
    "every second": lambda: image(2, C, 8, 20)[..., ::2],
    "expanded": lambda: image(2, C, 8, 1).expand(2, C, 8, 10),
    "3 axes": lambda: image(2, C, 9),
    "2 axes": lambda: image(2, C),
    "5 axes": lambda: image(2, C, 4, 5, 6),
    "5 axes, channels last": lambda: image(2, C, 4, 5, 6, form=torch.channels_last_3d),
    "half": lambda: image(form=LAST, dtype=HALF),
    "integers": lambda: image(dtype=torch.int64),
    "complex": lambda: image(dtype=torch.complex64),
    "one channel": lambda: image(2, 1, 8, 10),
    "one channel, last": lambda: image(2, 1, 8, 10, form=LAST),
    "one row": lambda: image(2, C, 1, 10, form=LAST),
}


@dataclass(frozen=True)
class Row:
    """An operator, what follows its input, and of which inputs its result is known at once."""

    name: str
    call: Callable[[torch.Tensor], Any]
    known: Sequence[str]
    static: Sequence[int] = (1,)  # axes of one size
    inputs: Sequence[str] = ()  # only these


PLAIN = ["row by row", "channels last"]
ROW_BY_ROW = [*PLAIN, "transposed", "every second", "expanded"]


def group_norm(x: torch.Tensor, groups: int = 3, weight: Any = vector, bias: Any = vector, inner: Any = None) -> Any:
    count = x.shape[2:].numel() if inner is None else inner
    arguments = (weight and weight(), bias and bias(), x.shape[0], x.shape[1], count, groups, 1e-5)
    return ATEN.native_group_norm.default(x, *arguments)


def batch_norm(x: torch.Tensor, weight: Any = vector, mean: Any = vector) -> Any:
    arguments = (weight and weight(), weight and weight(), mean(), mean(), 0.1, 1e-5)
    return ATEN._native_batch_norm_legit_no_training.default(x, *arguments)


def layer_norm(x: torch.Tensor, shape: Any = (10,), weight: Any = None) -> Any:
    given = weight and weight()
    return ATEN.native_layer_norm.default(x, list(shape), given, given, 1e-5)


def of(dtype: Any, count: int = C) -> Callable[[], torch.Tensor]:
    return lambda: vector(count, dtype)


HALVES = of(HALF)
ONE = ["one channel", "one channel, last", "one row"]
ANY = [*PLAIN, "3 axes", "2 axes", "5 axes", "half", "integers", "complex"]
ROWS = [
    Row("group norm", group_norm, [*PLAIN, "3 axes", "2 axes", "5 axes"]),
    Row("group norm of halves", lambda x: group_norm(x, weight=HALVES, bias=HALVES), ["half"], inputs=["half"]),
    Row("group norm, no weight", lambda x: group_norm(x, weight=None, bias=None), ["row by row"], inputs=PLAIN),
    Row("group norm, no bias", lambda x: group_norm(x, bias=None), PLAIN, inputs=PLAIN),
    Row("groups that do not divide", lambda x: group_norm(x, groups=4), [], inputs=PLAIN),
    Row("no groups", lambda x: group_norm(x, groups=0), [], inputs=PLAIN),
    Row("group norm, long weight", lambda x: group_norm(x, weight=of(torch.float32, 12)), [], inputs=PLAIN),
    Row("group norm, weight of doubles", lambda x: group_norm(x, weight=of(torch.float64)), [], inputs=PLAIN),
    Row("group norm, other inner size", lambda x: group_norm(x, inner=81), [], inputs=PLAIN),
    Row("group norm, open channels", group_norm, [], static=(2,), inputs=PLAIN),
    Row("batch norm", batch_norm, [*PLAIN, "3 axes", "2 axes", "5 axes"]),
    Row("batch norm of halves", lambda x: batch_norm(x, HALVES, HALVES), ["half"], inputs=["half"]),
    Row("batch norm, no weight", lambda x: batch_norm(x, None), PLAIN, inputs=PLAIN),
    Row("batch norm, means of doubles", lambda x: batch_norm(x, mean=of(torch.float64)), [], inputs=PLAIN),
    Row("batch norm, short mean", lambda x: batch_norm(x, mean=of(torch.float32, 5)), [], inputs=PLAIN),
    Row("batch norm, open channels", batch_norm, [], static=(2,), inputs=PLAIN),
    Row("layer norm", layer_norm, ROW_BY_ROW, static=(3,), inputs=ROW_BY_ROW),
    Row("layer norm of halves", lambda x: layer_norm(x, weight=of(HALF, 10)), ["half"], (3,), ["half"]),
    Row("layer norm of 2 axes", lambda x: layer_norm(x, (8, 10)), ROW_BY_ROW, (2, 3), ROW_BY_ROW),
    Row("layer norm of no axis", lambda x: layer_norm(x, ()), [], (3,), PLAIN),
    Row("layer norm, other size", lambda x: layer_norm(x, (11,)), [], (3,), PLAIN),
    Row("layer norm, short weight", lambda x: layer_norm(x, weight=vector), [], (3,), PLAIN),
    Row("layer norm of an open axis", lambda x: layer_norm(x, (x.shape[3],)), [], inputs=PLAIN),
    Row("layer norm of integers", layer_norm, [], (3,), ["integers", "complex"]),
    Row("gelu", ATEN.gelu.default, [*PLAIN, "3 axes", "2 axes", "5 axes", "half"]),
    Row("gelu by tanh", lambda x: ATEN.gelu.default(x, approximate="tanh"), PLAIN, inputs=PLAIN),
    Row("clone", ATEN.clone.default, ANY),
    Row("clone, row by row", lambda x: ATEN.clone.default(x, memory_format=torch.contiguous_format), ANY),
    Row("clone, channels last", lambda x: ATEN.clone.default(x, memory_format=LAST), [], inputs=PLAIN),
    Row("clone, axis of 1", ATEN.clone.default, ONE[:1], static=(1, 2), inputs=ONE),
    Row("gelu, axis of 1", ATEN.gelu.default, ONE[:1], static=(1, 2), inputs=ONE),
]
CASES = [(row, name) for row in ROWS for name in (row.inputs or [name for name in INPUTS if name not in ONE])]


def _tier(row: Row, name: str) -> Any:
    """By default a row runs on the first input that it knows, and on the first that it leaves to torch."""
    names = [other for mine, other in CASES if mine is row and (other in row.known) is (name in row.known)]
    return () if name == names[0] else pytest.mark.full


class Fakes:
    """Fake tensors of symbolic sizes, 0 and 1 counted."""

    def __init__(self) -> None:
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)

    def of(self, tensor: torch.Tensor, static: Sequence[int]) -> torch.Tensor:
        dynamic = [DimDynamic.STATIC if axis in static else DimDynamic.DYNAMIC for axis in range(tensor.ndim)]
        return self.mode.from_tensor(tensor, symbolic_context=StatelessSymbolicContext(dynamic_sizes=dynamic))

    def symbols(self) -> list[Any]:
        return sorted(self.env.var_to_range, key=str)

    def outcome(self, call: Callable[[torch.Tensor], Any], given: torch.Tensor) -> Any:
        """What each result looks like at several sizes, or the kind of error."""
        try:
            with self.mode, torch.no_grad():
                found = call(given)
        except Exception as error:
            return type(error)
        results = [found] if isinstance(found, torch.Tensor) else found
        return [self._looks(tensor, at) for tensor in results for at in self._sizes()]

    def _sizes(self) -> Iterator[Mapping[Any, int]]:
        chosen = random.Random(0)
        for _ in range(12):
            yield {symbol: chosen.choice(SIZES) for symbol in self.symbols()}

    def _looks(self, tensor: torch.Tensor, at: Mapping[Any, int]) -> tuple[Any, ...]:
        shape = [_at(size, at) for size in tensor.shape]
        strides = [_at(stride, at) for stride in tensor.stride()]
        # where an open axis has one element, or the tensor none, strides say nothing
        fixed = [not isinstance(size, torch.SymInt) for size in tensor.shape]
        told = [stride for stride, size, known in zip(strides, shape, fixed, strict=True) if known or size > 1]
        told = [] if 0 in shape else told
        return shape, told, tensor.dtype, tensor.device, tensor.storage_offset(), tensor.requires_grad


def _at(size: Any, at: Mapping[Any, int]) -> int:
    if not isinstance(size, torch.SymInt):
        return int(size)
    return int(size.node.expr.xreplace({symbol: sympy.Integer(number) for symbol, number in at.items()}))


@pytest.fixture(autouse=True)
def small_sizes() -> Iterator[None]:
    with small_sizes_counted():
        yield


@pytest.mark.parametrize(
    ("row", "name"),
    dealt([pytest.param(row, name, id=f"{row.name}-{name}", marks=_tier(row, name)) for row, name in CASES], 4),
)
def test_a_row_is_what_torch_finds(row: Row, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows answer where they should, nothing is assumed then, and the result is torch's."""
    static = () if name == "2 axes" and row.static == (2,) else row.static
    answers: list[bool] = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def result(*args: Any, **kwargs: Any) -> Any:
            guards = len(quick.env.guards)
            found = function(*args, **kwargs)
            answers.append(found is not None)
            assert len(quick.env.guards) == guards, "a row assumes something"
            return found

        return result

    rows = {operator: counted(function) for operator, function in fake_results._rows().items()}
    monkeypatch.setattr(fake_results, "_rows", lambda: rows)
    plain, quick = Fakes(), Fakes()
    wanted = plain.outcome(row.call, plain.of(INPUTS[name](), static))
    with known_results():
        found = quick.outcome(row.call, quick.of(INPUTS[name](), static))
        assert rows.keys() <= quick_implementations().keys(), "a row was not put back"
    assert found == wanted
    assert answers[:1] == [name in row.known]  # further ones are of what torch's own way calls


def test_what_is_plain() -> None:
    fakes = Fakes()
    plain = fakes.of(image(), (1,))
    with fakes.mode:
        sparse = torch.ones(3, 4).to_sparse()
    elsewhere = FakeTensor(fakes.mode, torch.empty(plain.shape, device="meta"), torch.device("cuda"))
    assert fake_results._form(plain) is torch.contiguous_format
    others = (sparse, elsewhere, image())
    assert not any(map(fake_results._is_plain, others))
    assert not any(map(fake_results._form, others))


CONVOLUTION: dict[str, Any] = {
    "bias": None,
    "stride": [1],
    "padding": [1],
    "dilation": [1],
    "transposed": False,
    "output_padding": [0],
    "groups": 1,
}
WEIGHT = torch.ones(4, C, 3, 3)
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {"weight": WEIGHT},
    "weight, channels last": {"weight": WEIGHT.to(memory_format=LAST)},
    "depthwise": {"weight": torch.ones(C, 1, 3, 3), "groups": C},
    "to one channel": {"weight": torch.ones(1, C, 3, 3)},
    "transposed": {"weight": torch.ones(C, 4, 3, 3), "transposed": True, "stride": [2]},
}


@pytest.mark.parametrize("form", PLAIN)
@pytest.mark.parametrize("name", dealt(CONVOLUTIONS, 3))
def test_a_convolution_lies_as_torch_lays_it(form: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    changed = fake_results._changed

    def counted(function: Any, args: Any, kwargs: Any) -> Any:
        asked.extend([function] if function is torch.Tensor.to else [])
        return changed(function, args, kwargs)

    def call(x: torch.Tensor) -> torch.Tensor:
        return torch.convolution(x, **CONVOLUTION | CONVOLUTIONS[name])

    monkeypatch.setattr(fake_results, "_changed", counted)
    plain, quick = Fakes(), Fakes()
    wanted = plain.outcome(call, plain.of(INPUTS[form](), (1,)))
    with layouts_changed_at_once():
        found = quick.outcome(call, quick.of(INPUTS[form](), (1,)))
    assert asked, "nothing changed the layout"
    assert found == wanted
    assert len(quick.env.guards) <= len(plain.env.guards)


class Net(torch.nn.Module):
    """What asks torch many questions about sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, C, 3, stride=2)
        self.batch_norm = torch.nn.BatchNorm2d(C)
        self.group_norm = torch.nn.GroupNorm(3, C)
        self.layer_norm = torch.nn.LayerNorm(C)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.group_norm(torch.nn.functional.gelu(self.batch_norm(self.conv(x))))
        x = torch.cat([x, x[:, :, 1:]], 2).flatten(2).transpose(1, 2)
        x = torch.nn.functional.dropout(self.layer_norm(x), training=False)
        return (x[:, : y.shape[0]] + y.repeat(x.shape[0], 1, 1)).reshape(-1, C // 2)


AXES = {"x": {0: "n", 2: "h", 3: "w"}, "y": {0: "m"}}


COUNTED = pytest.mark.skipif(
    answering() is None or sizes_below_two()[0] is None, reason="this torch has no sizes of 0 and 1 in torch.export"
)


@pytest.mark.full
@COUNTED
@pytest.mark.filterwarnings("ignore:torch.export holds")
def test_an_answer_of_the_example_is_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question that the example's sizes answer has the same answer, or none, for all sizes."""
    questions: dict[bool, int] = {True: 0, False: 0}
    original = symbolic_shapes._guard_or

    def compared(condition: Any, default: bool) -> bool:
        found = original(condition, default)
        if isinstance(condition, torch.SymBool) and condition.node.hint is default:
            questions[default] += 1
            assert found is default, condition
        return bool(found)

    monkeypatch.setattr(symbolic_shapes, "_guard_or", compared)
    monkeypatch.setattr(program, "_QUICKER", ())
    purexport.export(Net().eval(), (torch.ones(2, 3, 21, 22), torch.ones(5, C)), dynamic_axes=AXES, capture="export")
    assert min(questions.values()) > 10


@COUNTED
def test_a_proof_is_searched_for_where_the_example_says_otherwise() -> None:
    fakes = Fakes()
    rows, columns = fakes.of(image(), (1,)).shape[2:]  # 8 and 10
    with examples_asked_first():
        assert not symbolic_shapes.guard_or_false(rows + 1 > columns)
        assert not symbolic_shapes.guard_or_false(rows < columns)
        assert symbolic_shapes.guard_or_true(rows > columns)
        assert symbolic_shapes.guard_or_false(rows + columns >= columns)
        assert not symbolic_shapes.guard_or_true(rows + columns < columns)
    assert not fakes.env.guards


@COUNTED
def test_where_small_sizes_do_not_count_the_answer_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.fx.experimental._config.backed_size_oblivious", False)
    fakes = Fakes()
    rows, columns = fakes.of(image(), (1,)).shape[2:]
    with examples_asked_first():
        assert not symbolic_shapes.guard_or_false(rows > columns)
    assert [str(guard.expr) for guard in fakes.env.guards] == [f"{rows} <= {columns}"]


@pytest.mark.full
def test_a_program_is_the_same() -> None:
    """Its nodes, sizes, strides and all that torch assumes; only notes of layouts are gone."""
    args = (torch.ones(2, 3, 21, 22), torch.ones(5, C))
    given = {"x": {0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}, "y": {0: Dim.AUTO}}
    torch.manual_seed(0)
    model = Net().eval()
    with torch.no_grad():
        wanted = torch.export.export(model, args, dynamic_shapes=given)
        with known_results(), layouts_changed_at_once(), layouts_not_noted(), examples_asked_first():
            found = torch.export.export(model, args, dynamic_shapes=given)
    for one, other in zip(found.graph.nodes, wanted.graph.nodes, strict=True):
        assert (one.op, one.name, str(one.target)) == (other.op, other.name, str(other.target))
        for tensor, as_torch in zip(_tensors(one), _tensors(other), strict=True):
            assert (tensor.dtype, str(tensor.shape)) == (as_torch.dtype, str(as_torch.shape))
            assert str(tensor.stride()).replace("Max(1, ", "(") == str(as_torch.stride()).replace("Max(1, ", "(")
    noted = [node.meta["tensor_meta"].memory_format for node in found.graph.nodes if "tensor_meta" in node.meta]
    assert not any(noted)
    assert str(found.range_constraints) == str(wanted.range_constraints)


def _tensors(node: torch.fx.Node) -> list[torch.Tensor]:
    return [item for item in torch.utils._pytree.tree_leaves(node.meta.get("val")) if isinstance(item, torch.Tensor)]
