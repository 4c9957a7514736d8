"""Python code that computes with sizes: the file is right, takes one size only, or a remark says where it is not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import purexport
from tests.harness import run_ort
from tests.tiers import dealt
from tests.tolerances import CHAIN, assert_near

X = torch.arange(12.0).reshape(3, 4)


@dataclass(frozen=True)
class Case:
    """A function of one tensor with a dynamic first axis.

    `kind` is "right" where the file is right at all sizes, "static" where it takes the size of the example only, and
    "said" where it is another one at some sizes, of which a remark tells.  `far` are further sizes.
    """

    function: Callable[[Tensor], Any]
    kind: str
    far: tuple[int, ...] = ()


# by other names these give numbers
to_int, to_float = int, float


def steps(x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


def long_or_short(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 4 else x


def checked(x: Tensor) -> Tensor:
    assert x.shape[0] % 1 == 0
    return x.reshape(x.shape[0] * 2, -1)


def attention(x: Tensor) -> Tensor:
    rows = x[None, None]
    causal = torch.as_tensor(x.shape[0] > 1).item()
    return torch.nn.functional.scaled_dot_product_attention(rows, rows, rows, is_causal=bool(causal))[0, 0]


def attention_to_twice_as_many(x: Tensor) -> Tensor:
    rows, keys = x[None, None], torch.cat([x, -x])[None, None]
    causal = torch.as_tensor(x.shape[0] > 1).item()
    return torch.nn.functional.scaled_dot_product_attention(rows, keys, keys, is_causal=bool(causal))[0, 0]


def scaled_unless_empty(x: Tensor) -> Tensor:
    rows = x.shape[0]
    return x * to_float(rows) if rows else x


def written_to(x: Tensor) -> Tensor:
    """The size is the same at the end, whatever it was where Python asked for it."""
    rows = x.shape[0] * 1
    number = to_float(rows)
    rows.clamp_(max=3) if isinstance(rows, Tensor) else rows
    return x * number


def larger_of_a_ratio(x: Tensor) -> Tensor:
    """A single row takes the ratio, which is 1 as well."""
    count = x.shape[0] * x.shape[1]
    ratio = x.shape[1] / count
    return x * max(ratio, 1.0)


def in_pieces(size: int) -> Callable[[Tensor], Tensor]:
    """A loop over pieces of the rows: one step for every example and for every size near to it."""

    def summed(x: Tensor) -> Tensor:
        total = torch.zeros(4)
        for start in range(0, x.shape[0], size):
            total = total * 0.5 + x[start : start + size].sum(0)
        return total

    return summed


def in_padded_pieces(x: Tensor) -> Tensor:
    pieces = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[0] % 256)).reshape(-1, 256, 4)
    total = torch.zeros(4)
    for place in range(pieces.shape[0]):
        total = total * 0.5 + pieces[place].sum(0)
    return total


def up_to_a_table(x: Tensor) -> Tensor:
    """The model runs up to 100 rows only, which is one piece and a half."""
    return in_pieces(64)(x + torch.ones(100, 4)[: x.shape[0]])


def rows_of(x: Tensor) -> int:
    return x.shape[0]


def longer_beyond_a_bound(x: Tensor) -> Tensor:
    """The other path reads the size once more, on the line that the file reads it on, too."""
    pairs = x.reshape(rows_of(x) * 2, 2)
    return pairs + torch.arange(rows_of(x) * 2)[:, None] if rows_of(x) > 512 else pairs


def counted(x: Tensor) -> Tensor:
    place = 0
    while place < x.shape[0]:
        x = x + 1
        place += 1
    return x


def counted_or_not(x: Tensor) -> Tensor:
    return counted(-x if x.shape[0] > 4 else x)


def scaled_or_turned(x: Tensor) -> Tensor:
    """Beyond a bound both another path and another number."""
    scale = 2.0 if x.shape[0] > 4 else 1.0
    if x.shape[0] > 4:
        x = -x
    return x * scale


WEIGHTS = [torch.ones(4), torch.full((4,), 2.0)]


def turned_by_another_weight(x: Tensor) -> Tensor:
    weight = WEIGHTS[1] if x.shape[0] > 4 else WEIGHTS[0]
    if x.shape[0] > 4:
        x = -x
    return x * weight


def turned_or_raised(x: Tensor) -> Tensor:
    """Two lines decide, and the remark names both."""
    if x.shape[0] > 4:
        x = -x
    if x.shape[0] * 2 > 8:
        x = x.exp()
    return x


def turned_elsewhere(x: Tensor) -> Tensor:
    """The same operators on other lines."""
    if x.shape[0] > 4:
        return (-x).exp()
    return -x.exp()


def rolled_or_turned(x: Tensor) -> Tensor:
    return (-x if x.shape[0] > 4 else x).roll(to_int(x.shape[0]) // 2, 0)


def rooted_or_turned(x: Tensor) -> Tensor:
    return (-x if x.shape[0] > 4 else x) * math.sqrt(x.shape[0])


def too_short(x: Tensor) -> Tensor:
    """The path of longer rows does not run on shorter ones."""
    return x[2] + x if x.shape[0] > 2 else x


def tripled(x: Tensor) -> Tensor:
    return x * 3


def tripled_again(x: Tensor) -> Tensor:
    """The other path has one call more of a line, by way of another line."""
    y = tripled(x)
    return tripled(y) if x.shape[0] > 4 else y


def tripled_in_a_loop(x: Tensor) -> Tensor:
    for _ in range(x.shape[0]):
        x = tripled(x)
    return x


def doubled_by_halves(x: Tensor, rows: Any) -> Tensor:
    return doubled_by_halves(x * 2, rows // 2) if rows > 1 else x


@torch.jit.script
def times(x: Tensor, number: int) -> Tensor:
    return x * number


CASES = {
    "a root of the size": Case(lambda x: x * math.sqrt(x.shape[0]), "right"),
    "a whole root, which is that of twice the size, too": Case(lambda x: x * to_int(x.shape[0] ** 0.5), "static"),
    "a root of another size": Case(lambda x: x * math.sqrt(x.shape[1]), "right"),
    "a rest of the size, which is 0 for its multiples, too": Case(lambda x: x * to_float(x.shape[0] % 3 + 1), "static"),
    "a loop over the rows": Case(steps, "right"),
    "a loop over pieces of 64 rows": Case(in_pieces(64), "said", far=(65, 600, 1030)),
    "a loop over pieces of 1024 rows": Case(in_pieces(1024), "said", far=(65, 600, 1030)),
    "a loop over padded pieces": Case(in_padded_pieces, "said", far=(65, 600, 1030)),
    "a loop over pieces, where a table ends the rows": Case(up_to_a_table, "said", far=(65, 600, 1030)),
    "a loop over pieces of a size that is not dynamic": Case(
        lambda x: x + in_pieces(64)(x.T.reshape(4, -1)[:, :1].T), "right", far=(65, 600, 1030)
    ),
    "a number of rows beyond a bound": Case(lambda x: x * (1 if x.shape[0] <= 512 else 2), "said"),
    "a tensor of that length": Case(lambda x: x + torch.arange(to_int(x.shape[0]))[:, None], "static"),
    "a literal of the size": Case(lambda x: x / torch.tensor(to_float(x.shape[0])), "static"),
    "the larger of two sizes": Case(lambda x: x * max(x.shape[0], x.shape[1]), "right"),
    "the larger of a ratio and 1, which may be the ratio": Case(larger_of_a_ratio, "right"),
    "an added loop of the size": Case(lambda x: x + sum(range(int(x.shape[0]))), "static"),
    "one of two numbers": Case(lambda x: x * (2 if x.shape[0] > 4 else 1), "said"),
    "a branch on the size": Case(long_or_short, "said"),
    "a branch for a size of one": Case(lambda x: -x if x.shape[0] == 1 else x, "said"),
    "a branch on a large size": Case(lambda x: x if x.shape[0] <= 512 else x.exp(), "said", far=(600,)),
    "a branch, and the root of the size": Case(rooted_or_turned, "said"),
    "a branch, and a whole number of the size": Case(rolled_or_turned, "static"),
    "two branches": Case(turned_or_raised, "said"),
    "a branch, and another weight": Case(turned_by_another_weight, "said"),
    "a branch, and a number of the same bound": Case(scaled_or_turned, "said"),
    "a loop that decisions end": Case(counted, "static"),
    "a branch, and a loop that decisions end": Case(counted_or_not, "static"),
    "a branch whose other path reads a size again": Case(longer_beyond_a_bound, "said", far=(600,)),
    "a branch that calls a function once more": Case(tripled_again, "said"),
    "a loop that calls a function": Case(tripled_in_a_loop, "static"),
    "a function that calls itself": Case(lambda x: doubled_by_halves(x, x.shape[0]), "said"),
    "a check of the size": Case(checked, "right"),
    "causal but for a single query with a single key": Case(attention, "right"),
    "causal but for a single query with several keys": Case(attention_to_twice_as_many, "said"),
    "a number beside a truth value of the same size": Case(scaled_unless_empty, "static"),
    "a number of a size that is written to": Case(written_to, "static"),
    "a size that a script takes as a number": Case(lambda x: times(x, x.size(0)), "right"),
    "a number of the size beside a script": Case(lambda x: times(x, 2) * float(x.shape[0]), "right"),
    "another size that a script takes": Case(lambda x: times(x, x.size(1)), "right"),
    "a size beside a script": Case(lambda x: times(x, 2).reshape(x.shape[0] * 2, -1), "right"),
    "a number in the text of a message": Case(lambda x: x * float(f"{x.shape[0]}"), "said"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_size_in_python(name: str) -> None:
    """Wherever the file is not right, a remark says so, with the line."""
    case = CASES[name]
    program = purexport.export(case.function, (X,), dynamic_axes={"x": {0: "n"}}, capture="trace")
    static = [
        text for text in program.report.warnings if "'n' was declared dynamic, but the model fixes it at 3" in text
    ]
    said = [text for text in program.report.warnings if any(words in text for words in SAID)]
    assert bool(static) == (case.kind == "static")
    assert all("test_sizes_in_python.py:" in text for text in static + said)
    data = program.model_proto.SerializeToString()
    for rows in (1, 2, 3, 5, 6, *case.far):
        x = torch.rand(rows, 4)
        if case.kind == "static" and rows != 3:
            with pytest.raises(Exception, match="Got invalid dimensions for input: x"):
                run_ort(data, [x.numpy()])
        elif case.kind == "right" or rows == 3:
            assert_near(run_ort(data, [x.numpy()])[0], case.function(x), CHAIN)
    if case.kind == "said":
        assert said


SAID = ("the file goes the way", "elements or more", "into a text")


class Hollow(torch.nn.Module):
    """A function behind a product with a weight that has no values."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(4, device="meta"))
        self.calls = function

    def forward(self, x: Tensor) -> Any:
        return self.calls(x * self.weight)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", dealt([pytest.param(name, id=name) for name in CASES], 4))
def test_a_size_in_python_without_values(name: str) -> None:
    """What is said of sizes does not depend on whether the weights have values."""
    case = CASES[name]
    options: dict[str, Any] = {"dynamic_axes": {"x": {0: "n"}}, "capture": "trace", "input_names": ["x"]}
    program = purexport.export(Hollow(case.function), (X,), weights={"weight": torch.ones(4)}, **options)
    assert any("the model fixes it at 3 at" in text for text in program.report.warnings) == (case.kind == "static")
    if case.kind == "said":
        assert any(words in text for text in program.report.warnings for words in SAID)


def cached(new: Tensor, mask: Tensor, past: Tensor) -> Tensor:
    """A step with a cache: the mask is as long as the cache and the new rows together, and the model compares them."""
    keys = torch.cat([past, new])
    if mask.shape[0] != keys.shape[0]:
        mask = mask[: int(keys.shape[0])]
    positions = torch.arange(past.shape[0], keys.shape[0])
    return (new + positions[:, None]) @ (keys * mask[:, None]).T


def from_the_start(new: Tensor, mask: Tensor, past: Tensor) -> Tensor:
    """An empty cache is another path."""
    if past.numel() == 0:
        return new * mask[:, None]
    return cached(new, mask, past)


def paired(new: Tensor, mask: Tensor, past: Tensor) -> Tensor:
    if new.shape[0] != mask.shape[0]:
        new = new * float(mask.shape[0])
    return new + past.sum(0) * mask[:, None]


def rooted(new: Tensor, mask: Tensor, past: Tensor) -> Tensor:
    return cached(new, mask, past) / math.sqrt(past.shape[0])


def averaged(new: Tensor, mask: Tensor, past: Tensor) -> Tensor:
    return cached(new, mask, past) / math.sqrt(mask.shape[0])


def related(new: int, mask: int, past: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*shape, generator=generator) for shape in ((new, 4), (mask,), (past, 4)))


@dataclass(frozen=True)
class Related:
    """A function of new rows, a mask and past rows, whose sizes must fit each other; which labels are held."""

    function: Callable[..., Tensor]
    labels: tuple[str, str, str]
    example: tuple[int, int, int]
    others: tuple[tuple[int, int, int], ...]
    held: tuple[str, ...] = ()


SUMS = ((4, 4, 0), (1, 3, 2), (7, 16, 9))
RELATED = {
    "a sum": Related(cached, ("seq", "total", "past"), (3, 8, 5), SUMS),
    "a sum as an expression": Related(cached, ("seq", "past + seq", "past"), (3, 8, 5), SUMS),
    "a sum of equal parts": Related(cached, ("seq", "total", "past"), (4, 8, 4), SUMS),
    "an empty past": Related(cached, ("seq", "total", "past"), (4, 4, 0), SUMS),
    "equal sizes": Related(paired, ("new", "mask", "past"), (3, 3, 5), ((4, 4, 1), (1, 1, 7))),
    "equal sizes, all equal": Related(paired, ("new", "mask", "past"), (3, 3, 3), ((4, 4, 1), (1, 1, 7))),
    "a number of one of them": Related(rooted, ("seq", "total", "past"), (3, 8, 5), ((2, 7, 5), (9, 14, 5))),
    "a number of the sum": Related(averaged, ("seq", "total", "past"), (3, 8, 5), ((2, 8, 6), (7, 8, 1))),
}


@pytest.mark.parametrize("name", RELATED)
def test_sizes_that_fit_each_other(name: str) -> None:
    case = RELATED[name]
    new, total, past = case.labels
    axes = {"new": {0: new}, "mask": {0: total}, "past": {0: past}}
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        program = purexport.export(case.function, related(*case.example), dynamic_axes=axes, capture="trace")
    assert [str(item.message) for item in shown] == program.report.warnings
    found = [text.split("'")[1] for text in program.report.warnings if "the model fixes it at" in text]
    assert tuple(found) == case.held, program.report.warnings
    ways = [text for text in program.report.warnings if "the file goes the way" in text]
    assert all("which not total != (past + seq) at" in text for text in ways)
    data = program.model_proto.SerializeToString()
    for sizes in (case.example, *case.others):
        args = related(*sizes)
        assert_near(run_ort(data, [arg.numpy() for arg in args])[0], case.function(*args), CHAIN)


class Growing(torch.nn.Module):
    """A table of positions that is made anew where the text is longer than it, as that of FSMT."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(self.made(12), requires_grad=False)

    def made(self, size: int) -> Tensor:
        return torch.sin(torch.arange(float(size))[:, None] * torch.arange(1.0, 5.0))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > self.table.shape[0]:
            self.table = torch.nn.Parameter(self.made(x.shape[0]), requires_grad=False)
        return x + self.table[: x.shape[0]]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_parameter_that_is_made_anew_at_other_sizes() -> None:
    """The traces at other sizes leave the model as it was, and not with a table of which only the shape is known."""
    model = Growing().eval()
    before, numbers = model.table, model.table.detach().clone()
    purexport.export(model, (X,), dynamic_axes={"x": {0: "n"}}, capture="trace", verify=True)
    assert model.table is before
    assert torch.equal(model.table, numbers)


def both_answers_alike(x: Tensor) -> Tensor:
    return x + 1 if x.shape[0] > 1 or x.shape[1] == 4 else x - 1


def one_answer_only(x: Tensor) -> Tensor:
    return x + 1 if 2 * x.shape[0] - x.shape[0] < x.shape[0] + 1 else x - 1


def another_answer_far_away(x: Tensor) -> Tensor:
    return x - 1 if x.shape[0] > 100_000 else x + 1


NOTED = [(both_answers_alike, False), (one_answer_only, False), (another_answer_far_away, True)]


@pytest.mark.parametrize(("function", "noted"), NOTED, ids=[row[0].__name__ for row in NOTED])
def test_a_comparison_is_noted_where_its_answer_may_change(function: Any, noted: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = purexport.export(function, (X,), dynamic_axes={"x": {0: "n"}}, input_names=["x"], capture="trace")
    assert any("the file goes the way" in text for text in program.report.warnings) is noted


def scaled_but_for_one(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] != 1 else x * 3


def expanded_but_for_one(x: Tensor) -> Tensor:
    """As transformers expands positions where there are several rows: for one the other way gives the same."""
    return x + x[:1].expand(x.shape[0], -1) if x.shape[0] != 1 else x + x


def thrown_but_for_one(x: Tensor) -> Tensor:
    return torch.dropout(x, 0.5, True) if x.shape[0] != 1 else x


@pytest.mark.parametrize(
    ("function", "dynamic"), [(scaled_but_for_one, False), (expanded_but_for_one, True), (thrown_but_for_one, False)]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_example_of_one_row_that_goes_another_way(function: Callable[[Tensor], Tensor], dynamic: bool) -> None:
    program = purexport.export(function, (X[:1],), dynamic_axes={"x": {0: "n"}}, input_names=["x"], capture="trace")
    assert any("the model fixes it at 1" in text for text in program.report.warnings) is not dynamic
    for x in (X, X[:1]) if dynamic else (X[:1],):
        assert_near(run_ort(program.model_proto.SerializeToString(), [x.numpy()])[0], function(x), CHAIN)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_example_of_one_row_without_values() -> None:
    options: dict[str, Any] = {"dynamic_axes": {"x": {0: "n"}}, "capture": "trace", "input_names": ["x"]}
    weights = {"weight": torch.ones(4)}
    program = purexport.export(Hollow(scaled_but_for_one), (X[:1],), weights=weights, **options)
    assert program.report.dynamic == {"x": {0: "n"}}
    assert any("for 1 the model goes another way" in text for text in program.report.warnings)
