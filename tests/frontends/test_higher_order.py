"""Operators whose operands are programs: torch.cond, while_loop, scan and map, by torch.export; vmap by a trace, too.

A row is a program, an example and other arguments: other conditions, other numbers of steps, other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch.export import Dim
from torch.utils.checkpoint import checkpoint

import purexport
from tests.harness import check_export
from tests.tiers import dealt
from tests.tolerances import TABLE, USUAL, Bounds

IN_HALF = Bounds(*TABLE["float16"], loose="autocast multiplies in float16")

OPSETS = (11, 13, 17, 20, 23)


@dataclass(frozen=True)
class Program:
    """A function of a small model and tensors; `nodes` must be among the operators of the file."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    others: Sequence[tuple[Any, ...]] = ()
    shapes: Any = None
    nodes: Sequence[str] = ()
    opsets: Sequence[int] = OPSETS
    bounds: Bounds = USUAL

    def make(self) -> nn.Module:
        torch.manual_seed(0)
        return _Model(self.function).eval()


class _Model(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.register_buffer("state", torch.ones(3))
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(self, *tensors)


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


X = _random(4, 3)
ROWS_X = ({0: Dim("rows")},)
SIZES = [(_random(n, 3),) for n in (1, 2, 7)]
SIGNS = [(X.abs(),), (-X.abs(),)]


def cond_dict(m: Any, x: Tensor) -> Any:
    def then(x: Tensor) -> Any:
        return {"value": m.first(x), "total": (x.sum(), x.max())}

    def other(x: Tensor) -> Any:
        return {"value": m.second(x), "total": (x.min(), x.mean())}

    return torch.cond(x.sum() > 0, then, other, (x,))


def cond_nested(m: Any, x: Tensor) -> Tensor:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x.max() > 1, lambda x: x * 2, lambda x: m.second(x), (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: -x, (x,))


def cond_chain(m: Any, x: Tensor) -> Tensor:
    for layer in (m.first, m.second):
        x = torch.cond(x.mean() > 0, layer, lambda x: x + 1, (x,))
    return x


def cond_operand_unused(m: Any, x: Tensor, y: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x, y: x + 1, lambda x, y: y * 2, (x, y))


def cond_of_input(m: Any, x: Tensor, flag: Tensor) -> Tensor:
    return torch.cond(flag, lambda x: x.sin(), lambda x: x.cos(), (x,))


def cond_size_in_branch(m: Any, x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x / x.shape[0], lambda x: x.reshape(-1).view(x.shape) * 2, (x,))


def cond_result_sizes(m: Any, x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x[:2].clone(), lambda x: x[1:].clone(), (x,)) + 1


def cond_integers(m: Any, x: Tensor) -> Any:
    def then(x: Tensor) -> Any:
        return x.argmax(), x > 0

    def other(x: Tensor) -> Any:
        return x.argmin(), x < 0

    return torch.cond(x.sum() > 0, then, other, (x,))


def while_steps(m: Any, x: Tensor, steps: Tensor) -> Any:
    def go(i: Tensor, x: Tensor) -> Tensor:
        return i < steps

    def body(i: Tensor, x: Tensor) -> Any:
        return i + 1, m.first(x)

    return while_loop(go, body, (torch.tensor(0), x))


def while_converges(m: Any, x: Tensor) -> Any:
    """Newton's square root, as many steps as the data needs."""

    def go(y: Tensor) -> Tensor:
        return (y * y - x.abs() - 1).abs().max() > 1e-3

    def body(y: Tensor) -> Any:
        return ((y + (x.abs() + 1) / y) / 2,)

    return while_loop(go, body, (torch.ones_like(x),))


def while_counts_in_python(m: Any, x: Tensor) -> Any:
    return while_loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 1, m.first(x).tanh()), (0, x))


def while_tree(m: Any, x: Tensor) -> Any:
    def go(state: Any, n: Tensor) -> Tensor:
        return n.sum() < 6

    def body(state: Any, n: Tensor) -> Any:
        return {"h": torch.tanh(m.first(state["h"])), "c": (state["c"][0] + state["h"],)}, n + 1

    return while_loop(go, body, ({"h": x, "c": (x * 0,)}, torch.zeros(2)))


def while_in_while(m: Any, x: Tensor) -> Any:
    def body(i: Tensor, x: Tensor) -> Any:
        _, x = while_loop(lambda j, x: j < i, lambda j, x: (j + 1, x + 1), (torch.zeros_like(i), x))
        return i + 1, x

    return while_loop(lambda i, x: i < 4, body, (torch.tensor(0), x))


def while_with_cond(m: Any, x: Tensor) -> Any:
    def body(i: Tensor, x: Tensor) -> Any:
        return i + 1, torch.cond(x.sum() > 0, lambda x: x - 1.5, lambda x: m.first(x), (x,))

    return while_loop(lambda i, x: i < 5, body, (torch.tensor(0), x))


def cond_with_while(m: Any, x: Tensor) -> Any:
    def then(x: Tensor) -> Tensor:
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 0.5), (torch.tensor(0), x))[1]

    return torch.cond(x.sum() > 0, then, lambda x: x.clone(), (x,))


def while_table(m: Any, x: Tensor) -> Any:
    """Writes a row of a table at each step."""

    def body(i: Tensor, table: Tensor) -> Any:
        row = torch.index_select(x, 0, i.reshape(1)) * 2
        return i + 1, torch.index_copy(table, 0, i.reshape(1), row)

    return while_loop(lambda i, table: i < x.shape[0], body, (torch.tensor(0), torch.zeros_like(x)))


def scan_sum(m: Any, x: Tensor) -> Any:
    return scan(lambda carry, row: (carry + row, carry * row), torch.zeros(3), x)


def scan_recurrent(m: Any, x: Tensor) -> Any:
    def step(h: Tensor, row: Tensor) -> Any:
        h = torch.tanh(m.first(row) + m.second(h))
        return h, h * 2

    return scan(step, torch.zeros(3), x)


def scan_tree(m: Any, x: Tensor) -> Any:
    def step(carry: Any, row: Any) -> Any:
        new = {"h": carry["h"] * 0.5 + row["a"], "n": carry["n"] + 1}
        return new, (carry["h"] + row["b"], {"last": row["a"] * 2})

    return scan(step, {"h": x[0] * 1, "n": torch.tensor(0)}, {"a": x, "b": x + 1})


def scan_reverse(m: Any, x: Tensor) -> Any:
    return scan(lambda carry, row: (carry * 0.5 + row, carry + 1), torch.zeros(3), x, reverse=True)


def scan_columns(m: Any, x: Tensor) -> Any:
    return scan(lambda carry, column: (carry + column.sum(), column * carry), torch.ones(()), x, dim=1)


def scan_attention(m: Any, x: Tensor) -> Any:
    """What is closed over has the dynamic size too."""
    return scan(lambda carry, row: (carry + (x @ row).softmax(0) @ x, x @ row), torch.zeros(3), x)


def map_simple(m: Any, x: Tensor) -> Any:
    return map_rows(lambda row: m.first(row).relu(), x)


def map_operands(m: Any, x: Tensor, y: Tensor) -> Any:
    return map_rows(lambda row, y: (row.outer(y), row.sum() + y.sum()), x, y)


def map_tree(m: Any, x: Tensor) -> Any:
    rows = {"u": x, "v": x.reshape(-1, 3, 1) + 1}
    return map_rows(lambda row: {"a": row["u"] + row["v"].sum(), "b": row["u"] > 0}, rows)


def map_cond(m: Any, x: Tensor) -> Any:
    return map_rows(lambda row: torch.cond(row.sum() > 0, lambda r: r * 2, lambda r: m.first(r), (row,)), x)


def associative(m: Any, x: Tensor) -> Any:
    return associative_scan(lambda a, b: a * b + b, x, 0, combine_mode="generic")


def vmapped(m: Any, x: Tensor) -> Any:
    return torch.vmap(lambda row: m.first(row) * row.sum())(x)


def vmapped_twice(m: Any, x: Tensor) -> Any:
    return torch.vmap(lambda a: torch.vmap(lambda b: (a * b).sum())(x))(x)


def vmap_writes(m: Any, x: Tensor) -> Any:
    y = torch.vmap(lambda row: row * 2)(x)
    y[:, 0] = 7
    return y


def vmapped_mask(m: Any, x: Tensor) -> Tensor:
    """As transformers makes masks: one vmap an axis, around a function of positions that looks into a tensor."""
    places = torch.arange(x.shape[0]), torch.arange(1), torch.arange(x.shape[1]), torch.arange(x.shape[1])
    positive = x > 0

    def seen(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key < 2) & positive[row, key]

    for axis in reversed(range(4)):
        seen = torch.vmap(seen, in_dims=tuple(0 if one == axis else None for one in range(4)))
    with TransformGetItemToIndex():
        return seen(*places)


def vmap_slices(m: Any, x: Tensor) -> Tensor:
    return torch.vmap(lambda row: row[: row.shape[0] - 1] * row.sum() / row.shape[0])(x)


def vmap_decides(m: Any, x: Tensor) -> Tensor:
    """One row goes another way; torch notes none of it."""
    return torch.vmap(lambda column: column * 2 if column.shape[0] == 1 else column - 1, in_dims=1, out_dims=1)(x)


def vmap_gradients(m: Any, x: Tensor) -> Tensor:
    return torch.vmap(torch.func.grad(lambda row: (m.first(row) ** 2).sum()))(x)


def vmap_counts(m: Any, x: Tensor) -> Tensor:
    if x.shape[1] != 3:  # a number that Python gets, and that does not change
        raise ValueError
    return torch.vmap(lambda row: sum(row * step for step in range(x.shape[0])))(x)


def vmap_writes_outside(m: Any, x: Tensor) -> Tensor:
    total = torch.zeros(3)
    torch.vmap(lambda row: total.add_(1) + row)(x)
    return total


def autocast(m: Any, x: Tensor) -> Any:
    """Under autocast a matrix product casts its operands, which the program does not show."""
    with torch.autocast("cpu", dtype=torch.float16):
        y = x @ x.t()
    return y.float(), m.second(x)


def gradients(m: Any, x: Tensor) -> Any:
    with torch.no_grad():
        y = m.first(x)
    with torch.enable_grad():
        return y * 2 + checkpoint(m.second, x, use_reentrant=False)


PROGRAMS = [
    Program("cond", lambda m, x: torch.cond(x.sum() > 0, m.first, m.second, (x,)), (X,), SIGNS, nodes=["If"]),
    Program("cond-dict", cond_dict, (X,), [*SIGNS, *SIZES], ROWS_X, ["If"]),
    Program("cond-nested", cond_nested, (X,), [*SIGNS, *SIZES, (X * 0 + 0.1,)], ROWS_X, ["If"]),
    Program("cond-chain", cond_chain, (X,), [*SIGNS, *SIZES], ROWS_X, ["If"]),
    Program("cond-unused", cond_operand_unused, (X, X + 1), [(-X.abs(), X), (X.abs(), X)], nodes=["If"]),
    Program("cond-input", cond_of_input, (X, torch.tensor(True)), [(X, torch.tensor(False))], nodes=["If"]),
    Program(
        "cond-size",
        lambda m, x: torch.cond(x.shape[0] > 4, m.first, m.second, (x,)),
        (X,),
        [*SIZES, (_random(5, 3),)],
        ROWS_X,
        ["If"],
    ),
    Program("cond-size-known", lambda m, x: torch.cond(x.shape[0] > 3, m.first, m.second, (x,)), (X,)),
    Program("cond-size-in-branch", cond_size_in_branch, (X,), [*SIGNS, *SIZES], ROWS_X, ["If"]),
    Program("cond-result-sizes", cond_result_sizes, (X,), SIGNS, nodes=["If"]),
    Program("cond-integers", cond_integers, (X,), [*SIGNS, *SIZES], ROWS_X, ["If"]),
    Program("while", while_steps, (X, torch.tensor(3)), [(X, torch.tensor(n)) for n in (0, 1, 6)], nodes=["Loop"]),
    Program(
        "while-sizes",
        while_steps,
        (X, torch.tensor(2)),
        [(*s, torch.tensor(3)) for s in SIZES],
        ({0: Dim("rows")}, None),
        ["Loop"],
    ),
    Program("while-converges", while_converges, (X,), [(X * 100,), *SIZES], ROWS_X, ["Loop"]),
    Program("while-python-count", while_counts_in_python, (X,), SIZES, ROWS_X, ["Loop"]),
    Program("while-tree", while_tree, (X,), SIZES, ROWS_X, ["Loop"]),
    Program("while-in-while", while_in_while, (X,), SIZES, ROWS_X, ["Loop"]),
    Program("while-with-cond", while_with_cond, (X,), [*SIGNS, *SIZES], ROWS_X, ["Loop"]),
    Program("cond-with-while", cond_with_while, (X,), SIGNS, nodes=["If"]),
    Program("while-table", while_table, (X,), SIZES, ROWS_X, ["Loop"]),
    Program("scan", scan_sum, (X,), SIZES, ROWS_X, ["Scan"]),
    Program("scan-recurrent", scan_recurrent, (X,), SIZES, ROWS_X, ["Scan"]),
    Program("scan-tree", scan_tree, (X,), SIZES, ROWS_X, ["Scan"]),
    Program("scan-reverse", scan_reverse, (X,), SIZES, ROWS_X, ["Scan"]),
    Program("scan-columns", scan_columns, (X,), SIGNS, nodes=["Scan"]),
    Program("scan-closure", scan_attention, (X,), SIGNS, nodes=["Scan"]),
    Program("map", map_simple, (X,), SIZES, ROWS_X, ["Scan"]),
    Program(
        "map-operands",
        map_operands,
        (X, torch.ones(2)),
        [(*s, torch.ones(2)) for s in SIZES],
        ({0: Dim("rows")}, None),
        ["Scan"],
    ),
    Program("map-tree", map_tree, (X,), SIZES, ROWS_X, ["Scan"]),
    Program("map-cond", map_cond, (X,), [*SIGNS, *SIZES], ROWS_X, ["Scan"]),
    Program("associative-scan", associative, (X,), SIGNS),
    Program("vmap", vmapped, (X,), SIZES, ROWS_X),
    Program("vmap-twice", vmapped_twice, (X,), SIZES, ROWS_X),
    Program("vmap-then-write", vmap_writes, (X,), SIZES, ROWS_X),
    Program("autocast", autocast, (X,), SIZES, ROWS_X, bounds=IN_HALF),
    Program("gradients", gradients, (X,), SIZES, ROWS_X),
]


def _params(programs: Sequence[Program]) -> list[Any]:
    """Two opsets a program, another two for the next: all opsets over the table.  By default the first one runs."""
    return [
        pytest.param(program, opset, id=f"{program.name}-{opset}", marks=marks)
        for number, program in enumerate(programs)
        for step, marks in ((0, ()), (2, pytest.mark.full))
        for opset in (program.opsets[(number + step) % len(program.opsets)],)
    ]


@pytest.mark.parametrize(("program", "opset"), dealt(_params(PROGRAMS), 20))
def test_program(program: Program, opset: int) -> None:
    """Also under capture='auto', whose trace must refuse what it cannot record."""
    options = {"dynamic_shapes": (program.shapes,)} if program.shapes else {}
    capture = "export" if opset % 2 else "auto"
    made = check_export(
        program.make(),
        program.args,
        opset=opset,
        capture=capture,
        other_args=program.others,
        bounds=program.bounds,
        **options,
    )
    found = {node.op_type for node in made.model_proto.graph.node}
    assert set(program.nodes) <= found, f"{program.nodes} expected, the file has {sorted(found)}"


BOTH_X = ({0: "rows", 1: "columns"},)
OTHERS = [(_random(n, k),) for n, k in ((1, 4), (2, 3), (7, 5))]
BATCHED = [
    *(program for program in PROGRAMS if program.name.startswith("vmap")),
    Program("vmap-mask", vmapped_mask, (X,), OTHERS, BOTH_X),
    Program("vmap-mask-of-one", vmapped_mask, (X[:1],), OTHERS, BOTH_X),
    Program("vmap-slices", vmap_slices, (X,), OTHERS, BOTH_X),
    Program("vmap-gradients", vmap_gradients, (X,), SIZES, ROWS_X),
    Program("vmap-static", vmapped_twice, (X,), SIGNS),
    Program("vmap-decides", vmap_decides, (X[:1],)),
]


@pytest.mark.parametrize("program", dealt(BATCHED, 3, [program.name for program in BATCHED]))
def test_batched_functions_by_a_trace(program: Program) -> None:
    options: dict[str, Any] = {"dynamic_shapes": (program.shapes,)} if program.shapes else {}
    check_export(program.make(), program.args, capture="trace", opset=17, other_args=program.others, **options)


def test_sizes_that_batched_functions_ask_for_are_held() -> None:
    with pytest.warns(UserWarning, match=r"(?s)'rows'.*test_higher_order\.py"):
        made = purexport.export(
            _Model(vmap_counts).eval(), (X,), input_names=["x"], dynamic_axes={"x": {0: "rows"}}, capture="trace"
        )
    assert made.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value == len(X)


def test_a_write_of_a_batched_function_to_a_tensor_from_outside() -> None:
    model = _Model(vmap_writes_outside).eval()
    program = purexport.export(model, (X,), capture="trace", dynamic_axes={"x": {0: "n"}}, input_names=["x"])
    for x in (X, torch.randn(len(X) + 3, X.shape[1])):
        torch.testing.assert_close(program(x)[0], model(x))


class _Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(x[0])
        return x + self.count


def test_writes_of_a_decomposed_program_are_said() -> None:
    program = torch.export.export(_Counter(), (X,)).run_decompositions({})
    with pytest.warns(UserWarning, match="writes to its buffer 'count'"):
        purexport.export(program)
