"""Operators of torch.export whose operands are programs: `torch.cond`, `while_loop`, `scan`, `map`.

They become calls with blocks, the same that the script route gives: `prim::If`, `prim::Loop`, and `prim::Scan` for
operators that run over the rows of a tensor.  A subprogram sees nothing from outside but its operands, so its
placeholders simply stand for these values.  Wrappers that only concern gradients are read inline.  An If may return
None or a number; `node.meta["val"]` says what each output is.
Source of the operands' order: the signatures in `torch/_higher_order_ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch

from purexport.aten.graph import AtenValue, Block, Call, Recording, ScalarType, Source
from purexport.errors import ExportError
from purexport.shapes.symbols import Symbols


class Reader(Protocol):
    """What reads the programs that are operands."""

    graph: Recording
    symbols: Symbols

    def body(self, module: torch.fx.GraphModule, env: dict[torch.fx.Node, Any]) -> list[Any]:
        """The outputs of a program whose placeholders have these values."""
        ...

    def source(self, node: torch.fx.Node) -> Source:
        """The user's line."""
        ...


# The position of the body among the operands, and the position of the body's first operand.
_WRAPPERS = {
    "wrap_with_set_grad_enabled": (1, 2),
    "wrap": (0, 1),
    "wrap_activation_checkpoint": (0, 1),
    "tag_activation_checkpoint": (0, 1),
    "invoke_subgraph": (0, 2),
}


def read_higher_order(run: Reader, node: torch.fx.Node, args: list[Any]) -> Any:
    """The results of `node` in the neutral graph: a list with one item per output.

    Raises ExportError for an operator that has no form as calls and blocks.
    """
    name = str(node.target)
    if name in _WRAPPERS:
        body, first = _WRAPPERS[name]
        return run.body(args[body], _bound(args[body], args[first:]))
    form = _FORMS.get(name)
    if form is None:
        raise ExportError(
            f"torch.ops.higher_order.{name} at {run.source(node)} has no form in ONNX; write the operation without it",
            code="no-onnx-form",
        )
    return form(run, node, *args)


def _cond(
    run: Reader,
    node: torch.fx.Node,
    condition: Any,
    then: torch.fx.GraphModule,
    other: torch.fx.GraphModule,
    operands: Sequence[Any],
) -> list[Any]:
    if not isinstance(condition, AtenValue):
        taken = then if condition else other
        return run.body(taken, _bound(taken, operands))
    blocks = [_block(run, module, operands) for module in (then, other)]
    return _emit(run, node, "prim::If", {"condition": condition}, blocks)


def _while_loop(
    run: Reader,
    node: torch.fx.Node,
    condition: torch.fx.GraphModule,
    step: torch.fx.GraphModule,
    carried: Sequence[Any],
    operands: Sequence[Any],
) -> list[Any]:
    (first,) = run.body(condition, _bound(condition, [*carried, *operands]))
    inputs = _inputs(run, step, len(carried))
    with _recording(run) as calls:
        results = run.body(step, _bound(step, [*inputs, *operands]))
        (again,) = run.body(condition, _bound(condition, [*results, *operands]))
    block = Block(calls, [again, *results], [AtenValue(ScalarType(int)), *inputs])
    args = {"most": None, "condition": first, "carried": list(carried)}
    return _emit(run, node, "prim::Loop", args, [block])


def _scan(
    run: Reader,
    node: torch.fx.Node,
    combine: torch.fx.GraphModule,
    init: Sequence[Any],
    rows: Sequence[Any],
    *rest: Any,
) -> list[Any]:
    *older, operands = rest  # torch 2.6 has the axis and the direction before, which later releases apply outside
    if any(older):
        raise ExportError(
            f"torch.ops.higher_order.scan at {run.source(node)} goes backwards or along another axis than 0; torch 2.6 "
            "leaves that to the operator, which has no form for it: flip or move the axis before, or use a newer torch",
            code="no-onnx-form",
        )
    inputs = _inputs(run, combine, len(init) + len(rows))
    block = replace(_block(run, combine, [*inputs, *operands]), inputs=inputs)
    return _emit(run, node, "prim::Scan", {"init": list(init), "rows": list(rows)}, [block])


def _map(
    run: Reader, node: torch.fx.Node, function: torch.fx.GraphModule, rows: Sequence[Any], operands: Sequence[Any]
) -> list[Any]:
    return _scan(run, node, function, [], rows, operands)


_FORMS: dict[str, Callable[..., list[Any]]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
}


def _bound(module: torch.fx.GraphModule, operands: Sequence[Any]) -> dict[torch.fx.Node, Any]:
    """What the placeholders of a subprogram stand for."""
    return dict(zip(_placeholders(module), operands, strict=True))


def _placeholders(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _inputs(run: Reader, module: torch.fx.GraphModule, count: int) -> list[AtenValue]:
    """New values for the first `count` placeholders, which change from one step to the next."""
    return [AtenValue(run.symbols.type(node.meta["val"])) for node in _placeholders(module)[:count]]


def _block(run: Reader, module: torch.fx.GraphModule, operands: Sequence[Any]) -> Block:
    with _recording(run) as calls:
        outputs = run.body(module, _bound(module, operands))
    return Block(calls, outputs)


@contextmanager
def _recording(run: Reader) -> Iterator[list[Call]]:
    """Inside, the calls that are read go to a list of their own."""
    outer = run.graph.calls
    run.graph.calls = []
    try:
        yield run.graph.calls
    finally:
        run.graph.calls = outer


def _emit(run: Reader, node: torch.fx.Node, target: str, args: dict[str, Any], blocks: list[Block]) -> list[Any]:
    """Emit the call and return its results; where torch gives None, the outputs of the blocks are dropped."""
    recorded = list(node.meta["val"])
    kept = [place for place, item in enumerate(recorded) if item is not None]
    for index, block in enumerate(blocks):
        extra = len(block.outputs) - len(recorded)  # a loop's condition comes first
        outer = block.outputs[:extra]
        blocks[index] = replace(block, outputs=[*outer, *(block.outputs[extra + place] for place in kept)])
    outputs = {place: AtenValue(run.symbols.type(recorded[place])) for place in kept}
    run.graph.calls.append(Call(target, args, list(outputs.values()), run.source(node), blocks))
    return [outputs.get(place) for place in range(len(recorded))]
