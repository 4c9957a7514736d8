"""Operators whose operands are functions: `torch.cond`, `while_loop`, `scan`, `map`, as calls with blocks.

Each function runs once, and what it calls is the body of a block, which takes values from outside as they are.  Results
have no elements that Python could ask for.
Source of the operands' order: the signatures in `torch/_higher_order_ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from purexport.aten.graph import AtenValue as Value
from purexport.aten.graph import Block, Call, ScalarType, TensorType
from purexport.frontends.trace.tensors import Layout, Recorded


def higher_order(recorder: Any, name: str, args: Sequence[Any]) -> Any:
    """The results of such an operator, which is recorded.  Raises ExportError where it has no form."""
    form = _FORMS.get(name)
    if form is not None:
        return form(_Calls(recorder), *args)
    return recorder.refuse(f"calls torch.ops.higher_order.{name}, which a trace does not record")


class _Calls:
    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder

    @contextmanager
    def body(self) -> Iterator[list[Call]]:
        """Inside, calls go to a list of their own."""
        with self.recorder.in_block() as calls:
            yield calls

    def tensors(self, items: Any) -> list[torch.Tensor]:
        """The results of a function, which must be tensors."""
        found = pytree.tree_leaves(items)
        if not all(isinstance(item, torch.Tensor) for item in found):
            self.recorder.refuse("gives a branch or a loop what is no tensor, which a trace does not record")
        return found

    def layout(self, item: torch.Tensor) -> Layout:
        found: Layout = self.recorder.layouts.layout_of(item)
        return found

    def value(self, item: torch.Tensor) -> Value:
        found: Value = item.value if type(item) is Recorded else self.recorder.owned(item).value
        return found

    def values(self, items: Sequence[torch.Tensor]) -> list[Value]:
        return list(map(self.value, items))

    def new(self, layout: Layout, inferred: bool = False) -> Recorded:
        """A tensor without elements.

        Where its sizes can change, and no later stage infers them, its type does not have those of the example.
        """
        recorder = self.recorder
        sizes = tuple([size if isinstance(size, int) else None for size in layout.sizes])
        type_ = layout.type if layout.static or inferred else TensorType(layout.dtype, sizes)
        return Recorded.of(recorder, layout, Value(type_), len(recorder.log), recorder.memory(), True)

    def row(self, item: torch.Tensor) -> Recorded:
        """One row of a tensor."""
        whole = self.layout(item)
        return self.new(self._contiguous(whole.sizes[1:], tuple(whole.example[1:]), whole.dtype))

    def stacked(self, item: torch.Tensor, like: torch.Tensor) -> Recorded:
        """As many such tensors as another one has rows."""
        row, rows = self.layout(item), self.layout(like)
        sizes, example = (rows.sizes[0], *row.sizes), (rows.example[0], *row.example)
        return self.new(self._contiguous(sizes, example, row.dtype), inferred=True)

    def _contiguous(self, sizes: Any, example: tuple[int, ...], dtype: torch.dtype) -> Layout:
        layouts = self.recorder.layouts
        steps = [1]
        for size in reversed(example[1:]):
            steps.insert(0, steps[0] * max(size, 1))
        meta = layouts.meta(example, tuple(steps[: len(example)]), dtype)
        found: Layout = layouts.layout(meta, tuple(sizes), dtype)
        return found

    def require_alike(self, items: Sequence[torch.Tensor], others: Sequence[torch.Tensor], what: str) -> None:
        """Refuse other numbers of results, other dtypes or other sizes."""
        pairs = [(self.layout(one), self.layout(other)) for one, other in zip(items, others, strict=False)]
        if len(items) != len(others) or any(
            one.dtype != other.dtype or one.sizes != other.sizes for one, other in pairs
        ):
            self.recorder.refuse(f"has {what} of other sizes or dtypes, which a trace does not record")

    def emit(self, target: str, args: dict[str, Any], results: Sequence[Recorded], block: Sequence[Block]) -> None:
        outputs = [item.value for item in results]
        self.recorder.graph.calls.append(Call(target, args, outputs, self.recorder.source(), block))


def _cond(
    run: _Calls, condition: Any, then: Callable[..., Any], other: Callable[..., Any], operands: Sequence[Any] = ()
) -> Any:
    if not isinstance(condition, torch.Tensor):
        return (then if condition else other)(*operands)
    blocks, found = [], []
    for function in (then, other):
        with run.body() as calls:
            result = function(*operands)
            tensors = run.tensors(result)
        blocks.append(Block(calls, run.values(tensors)))
        found.append((result, tensors))
    run.require_alike(found[0][1], found[1][1], "branches")
    made = [run.new(run.layout(item)) for item in found[0][1]]
    run.emit("prim::If", {"condition": run.value(condition)}, made, blocks)
    return pytree.tree_unflatten(made, pytree.tree_structure(found[0][0]))


def _while_loop(
    run: _Calls,
    condition: Callable[..., Any],
    step: Callable[..., Any],
    carried: Sequence[Any],
    operands: Sequence[Any] = (),
) -> Any:
    start = run.tensors(list(carried))
    (first,) = run.tensors(condition(*start, *operands))
    inputs = [run.new(run.layout(item)) for item in start]
    with run.body() as calls:
        results = run.tensors(step(*inputs, *operands))
        (again,) = run.tensors(condition(*results, *operands))
    run.require_alike(results, inputs, "steps")
    outputs = run.values([again, *results])
    block = Block(calls, outputs, [Value(ScalarType(int)), *run.values(inputs)])
    made = [run.new(run.layout(item)) for item in start]
    args = {"most": None, "condition": run.value(first), "carried": run.values(start)}
    run.emit("prim::Loop", args, made, [block])
    return tuple(made)


def _scan(
    run: _Calls, combine: Callable[..., Any], init: Sequence[Any], rows: Sequence[Any], operands: Sequence[Any] = ()
) -> Any:
    start, tensors = run.tensors(list(init)), run.tensors(list(rows))
    inputs = [*(run.new(run.layout(item)) for item in start), *map(run.row, tensors)]
    with run.body() as calls:
        results = run.tensors(combine(*inputs, *operands))
    run.require_alike(results[: len(start)], start, "steps")
    block = Block(calls, run.values(results), run.values(inputs))
    made = [run.new(run.layout(item), inferred=True) for item in start]
    made += [run.stacked(item, tensors[0]) for item in results[len(start) :]]
    run.emit("prim::Scan", {"init": run.values(start), "rows": run.values(tensors)}, made, [block])
    return made


def _map(run: _Calls, function: Callable[..., Any], rows: Sequence[Any], operands: Sequence[Any] = ()) -> Any:
    return _scan(run, function, [], rows, operands)


_FORMS: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
}
