"""`Size`: canonical form, text, comparison, evaluation; and equations between sizes."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

import proto_schema as ps
from proto_schema.sizes import ContradictionError, Equations, Size, evaluated, maximum, minimum, parse, symbol
from proto_schema.sizes.atoms import degree
from proto_schema.sizes.size import DEEPEST, HIGHEST, LARGEST, MOST_TERMS
from tests.tiers import dealt

B, S, P, H = map(symbol, ("batch", "seq", "past", "h"))
ODD = symbol("batch-size")

# expression, its text, its bounds
FORMS = [
    (2 * B, "2*batch", (0, None)),
    (B + 1 - 2, "batch - 1", (-1, None)),
    (-(-H // 2), "(h + 1)//2", (0, None)),
    (-(H // 2), "-(h//2)", (None, 0)),
    ((5 * S + 3) // 2, "2*seq + (seq + 1)//2 + 1", (1, None)),
    (((H - 1) // 2 + 1 - 1) // 2 + 1, "(h + 3)//4", (0, None)),
    ((H // 2) // 3, "h//6", (0, None)),
    ((4 * H + 2) // 8, "h//2", (0, None)),
    (H % 4, "h % 4", (0, 3)),
    (2 * (H % 4) + 1, "2*(h % 4) + 1", (1, 7)),
    ((H + 3) // 4 * 4, "4*((h + 3)//4)", (0, None)),
    ((H + 3) // 4 * 4 - H, "4*((h + 3)//4) - h", (0, 3)),
    (((H + 3) // 4 * 4) // 4, "(h + 3)//4", (0, None)),
    (B * S * 64 // (B * 8), "8*seq", (0, None)),
    ((B * (S + 1)) // (S + 1), "batch", (0, None)),
    (B * S // (2 * S), "batch//2", (0, None)),
    ((P + S) * (P - S), "past*past - seq*seq", (None, None)),
    (minimum(P + S, P + 3), "past + min(seq, 3)", (0, None)),
    (minimum(S - 1, 4), "min(seq, 5) - 1", (-1, 4)),
    (minimum(S, 5) - 1, "min(seq, 5) - 1", (-1, 4)),
    (maximum(2 * P, 4), "2*max(past, 2)", (4, None)),
    (minimum(2 * B, minimum(S, 10)), "min(2*batch, seq, 10)", (0, 10)),
    (2 * ODD, "2*'batch-size'", (0, None)),
    (ODD, "batch-size", (0, None)),
    (symbol("n+1") * symbol("n"), "n*'n+1'", (0, None)),
    (symbol("lambda") + 1, "'lambda' + 1", (1, None)),
    (H - H // 2, "h - h//2", (0, None)),
    (S - minimum(S, 3), "seq - min(seq, 3)", (0, None)),
    (minimum(S, P) - S, "min(past, seq) - seq", (None, 0)),
    (maximum(S, 3) - S, "max(seq, 3) - seq", (0, 3)),
    (maximum(minimum(S, 3), S), "seq", (0, None)),
    (H // 3 - H + 2, "h//3 - h + 2", (None, 2)),
    (maximum(minimum(H, H // 2), 0), "h//2", (0, None)),
]

# expressions in which no symbol is left
NUMBERS = [
    (B - B, 0),
    ((B + 3) - B, 3),
    (0 * B, 0),
    ((2 * B) // B, 2),
    ((4 * B + 1) % 4, 1),
    (minimum(maximum(S, 0), -1), -1),
    ((H % 4) // 4, 0),
]

# one, other, equal, less
COMPARED = [
    (B, B, True, False),
    (B, S, None, None),
    (B + 1, B, False, False),
    (B, B + S + 1, False, True),
    (2 * B, 7, False, None),
    (B, -1, False, False),
    (H % 4, 4, False, True),
    (minimum(S, 5), 6, False, True),
    (3, symbol("n", 4), False, True),
    (symbol("n", 1, 3), 2, None, None),
]

READ = [
    ("Max(2, past)", maximum(P, 2)),
    ("past + seq", P + S),
    ("floor(h/2) + 1", H // 2 + 1),
    ("ceiling(h/2)", -(-H // 2)),
    ("h**2", H * H),
    ("FloorDiv(h, 2)", H // 2),
    ("Mod(h, 4)", H % 4),
    ("7", 7),
    ("batch-", symbol("batch-")),
    ("?", symbol("?")),
    ("a.b", symbol("a.b")),
    ("f(x)", symbol("f(x)")),
    ("h//0", symbol("h//0")),
    ("1.5*h", symbol("1.5*h")),
    ("h**99", symbol("h**99")),
    ("(" * 200 + "h" + ")" * 200, H),
    ("-" * 2000 + "h", symbol("-" * 2000 + "h")),
]


@pytest.mark.parametrize(("size", "text", "bounds"), FORMS)
def test_forms(size: Size, text: str, bounds: tuple[int | None, int | None]) -> None:
    assert (str(size), (size.low, size.high)) == (text, bounds)
    if size.name is None:
        assert parse(text) == size and hash(parse(text)) == hash(size)


@pytest.mark.parametrize(("found", "number"), NUMBERS)
def test_numbers(found: Any, number: int) -> None:
    assert type(found) is int and found == number


@pytest.mark.parametrize(("one", "other", "equal", "less"), COMPARED)
def test_comparison(one: Any, other: Any, equal: bool | None, less: bool | None) -> None:
    one = one if isinstance(one, Size) else symbol("zero", 0, 0) + one
    assert (one.equals(other), one.less(other)) == (equal, less)


@pytest.mark.parametrize(("text", "size"), READ)
def test_reading(text: str, size: Any) -> None:
    assert parse(text) == size


def test_names_decide_what_is_an_expression() -> None:
    assert parse("n+1", ["n"]) == symbol("n") + 1
    assert parse("n+1", ["m"]) == symbol("n+1")
    assert parse("n+1", ["n", "n+1"]) == symbol("n+1")


def test_a_size_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="whether the size batch is 0 is not known"):
        bool(B)
    with pytest.raises(TypeError):
        B < S  # type: ignore[operator]  # noqa: B015
    with pytest.raises(ZeroDivisionError, match="size batch is divided by 0"):
        B // 0


def test_evaluation() -> None:
    size = B * S // 2 + P
    assert isinstance(size, ps.Size)
    assert size.at({"batch": 3, "seq": 5, "past": 1}) == 8
    assert size.replaced({"batch": 2}) == S + P
    with pytest.raises(KeyError, match="past"):
        size.at({"batch": 3, "seq": 5})


def test_a_sum_is_better_than_a_difference() -> None:
    known = Equations()
    known.learn(symbol("n_total"), P + symbol("zeq"), preferred=lambda _: 0)
    assert known.replacements == {"n_total": P + symbol("zeq")}


def test_equations() -> None:
    known = Equations()
    total = symbol("total")
    known.learn(total, P + S)
    assert known.resolved(2 * total) == 2 * P + 2 * S
    assert known.equals(total - S, P) is True and known.less(P, total + 1) is True
    known.learn(B * S, 12)
    assert known.equals(B * S + 1, 13) is True
    known.learn(2 * B, 4)
    assert known.resolved(B) == 2 and known.equals(S, 6) is True
    with pytest.raises(ContradictionError):
        known.learn(S, 7)
    with pytest.raises(ContradictionError):
        known.learn(2 * H, 7)
    other = known.copy()
    other.learn(H, 3)
    assert known.resolved(H) == H and other.resolved(H) == 3


def _random(draw: random.Random, depth: int) -> Any:
    if not depth:
        return draw.choice([draw.randint(-3, 9), symbol(draw.choice("ab")), symbol("c d")])
    return draw.choice("++-*/%mM"), _random(draw, depth - 1), _random(draw, depth - 1)


def _made(tree: Any, leaf: Any) -> Any:
    if not isinstance(tree, tuple):
        return leaf(tree)
    kind, one, other = tree[0], _made(tree[1], leaf), _made(tree[2], leaf)
    if kind in "mM":
        numbers = isinstance(one, int) and isinstance(other, int)
        return (
            (min if kind == "m" else max)(one, other) if numbers else (minimum if kind == "m" else maximum)(one, other)
        )
    arithmetic = {"+": lambda: one + other, "-": lambda: one - other, "*": lambda: one * other}
    return {**arithmetic, "/": lambda: one // other, "%": lambda: one % other}[kind]()


def _at(values: dict[str, int], leaf: Any) -> int:
    return leaf if isinstance(leaf, int) else values[leaf.name]


def test_random_expressions_are_what_python_computes() -> None:
    draw = random.Random(5)
    tried = 0
    while tried < 1500:
        tree = _random(draw, draw.randint(1, 3))
        try:
            size = _made(tree, lambda leaf: leaf)
        except ZeroDivisionError:
            continue
        if isinstance(size, Size):
            assert parse(str(size)) == size or str(size).startswith("size_")
        for _ in range(3):
            values = {name: draw.randint(0, 12) for name in ("a", "b", "c d")}
            try:
                wanted = _made(tree, functools.partial(_at, values))
            except ZeroDivisionError:
                continue
            assert (size.at(values) if isinstance(size, Size) else size) == wanted
            if isinstance(size, Size):
                assert size.low is None or size.low <= wanted
                assert size.high is None or size.high >= wanted
        tried += 1


def _nested(levels: int) -> Any:
    """Each level holds the one before three times, so that it has `3**levels` symbols as a text."""
    size: Any = H
    for level in range(levels):
        size = minimum(size + size // (level + 2) + level, B * S) // (level + 3) + size
    return size


def test_shared_parts_are_met_once() -> None:
    began = time.process_time()
    size, again = _nested(20), _nested(20)
    values = {"h": 11, "batch": 3, "seq": 4}
    wanted = 11
    for level in range(20):
        wanted = min(wanted + wanted // (level + 2) + level, 12) // (level + 3) + wanted
    assert size == again and hash(size) == hash(again) and str(size) == str(again)
    assert size.symbols == {"h", "batch", "seq"}
    assert size.at(values) == evaluated(size, values.__getitem__, min, max) == wanted
    assert size.replaced({"batch": 3}) != size == again.replaced({"other": 1})
    assert size != _nested(19) and str(size) != str(_nested(19))
    assert time.process_time() - began < 5


def test_a_minimum_of_many_sums_of_minima_stays_small() -> None:
    """Ten choices between two have 1,024 outcomes, which are not written out."""
    total: Any = 0
    for place in range(10):
        total += minimum(symbol(f"a{place}"), symbol(f"b{place}"))
    assert str(minimum(total, P)).count("min(") == 11


def test_sums_stay_short() -> None:
    """A product of many sums, and a sum of many symbols: short, exact, and equal where they are made alike."""
    many = [symbol(f"s{at}") for at in range(400)]
    values = {f"s{at}": at % 5 for at in range(400)}

    def product() -> Any:
        return functools.reduce(lambda total, size: total * (size + 1), many[:60], 1)

    whole = sum(at % 5 for at in range(400))
    total: Any = sum(many)
    rows = [
        (product(), functools.reduce(lambda found, at: found * (at % 5 + 1), range(60), 1)),
        (total, whole),
        (3 - total, 3 - whole),
        (total // 7, whole // 7),
        (total * total, whole * whole),
        (sum(many[:200]) - sum(many[200:]), sum(at % 5 for at in range(200)) - sum(at % 5 for at in range(200, 400))),
    ]
    for size, number in rows:
        assert len(size.terms) <= MOST_TERMS
        assert size.at(values) == size.replaced(values) == number
    assert product() == product()
    assert total - total == 0
    assert sum(many[:200]) - sum(many[:200]) == 0


def test_a_sum_of_very_many_symbols_has_bounds() -> None:
    """Factors in factors, hundreds deep: a look at the bounds of one must not look into all of them again."""
    total: Any = 0
    for place in range(20_000):
        total = total + symbol(f"s{place}")
    assert total.less(0) is False and total.less(5) is None


# what a chain of nodes may do to a size, and how often
CHAINS: list[tuple[str, Callable[[Any], Any], int]] = [
    ("squares", lambda size: size * size, 400),
    ("squares of sums", lambda size: (size + 1) * (size + 1), 200),
    ("multiples", lambda size: size * 2**63, 400),
    ("sums of itself", lambda size: size + size, 400),
    ("quotients", lambda size: (2 * size + 1) // 3, 400),
    ("remainders", lambda size: (size * size + S) % (B + 1), 100),
    ("minima", lambda size: minimum(size * 2, B * S) // 3 + size, 60),
    ("maxima of products", lambda size: maximum(size * size, S) * B, 200),
]


@pytest.mark.parametrize(("name", "step", "count"), dealt(CHAINS, 2, [row[0] for row in CHAINS]))
def test_sizes_stay_small(name: str, step: Callable[[Any], Any], count: int) -> None:
    """Beyond the limits a size is a symbol, the same one where it is made alike, and its range still holds."""
    size, again = B, symbol("batch")
    for _ in range(count):
        size, again = step(size), step(again)
        assert len(size.terms) <= MOST_TERMS + 1 and len(str(size)) < 3_000
        for product, times in size.terms.items():
            assert abs(times) < LARGEST and degree(product) <= HIGHEST
            assert all(atom.depth <= DEEPEST for atom in product)
    assert size == again and str(size) == str(again)
    assert size.low is None if name == "remainders" else size.low >= 0
    assert isinstance(size.replaced({"batch": 2**63, "seq": 2**62}), (int, Size))


def test_a_division_stops() -> None:
    """`z**40` by a sum of 30 symbols has as many products as there are ways to choose 39 of them."""
    many: Any = sum(symbol(f"s{at}") for at in range(30))
    size = functools.reduce(lambda total, _: total * P, range(40), 1) // (many + P)
    assert isinstance(size, Size) and len(size.terms) == 1


@pytest.mark.parametrize("text", ["9", "n*m+1"])
def test_powers_of_powers_are_read_in_bounds(text: str) -> None:
    for _ in range(20):
        text = f"({text})**16"
    size = parse(text)
    assert isinstance(size, Size) and len(size.terms) == 1
