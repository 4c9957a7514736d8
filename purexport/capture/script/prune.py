"""Dead code elimination in the branches and loops of a script: unused outputs of If and carried values of Loop go.

Invariant: in-place writes stay, since the tensor that they write to may be read under another name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils import _pytree as pytree

from purexport.aten.graph import AtenGraph, Block, Call, Value, values_in
from purexport.aten.schema import signature


def prune(graph: AtenGraph, result: Any) -> None:
    """Remove, in place, everything that `result` does not need."""
    if any(call.blocks for call in graph.calls):
        used = {leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Value)}
        graph.calls[:] = _live(graph.calls, used)


def _live(calls: Iterable[Call], used: set[Value]) -> list[Call]:
    """The calls that compute the values in `used`; the values that these calls need are added to `used`."""
    live = []
    for call in reversed(list(calls)):
        if not _writes(call) and not any(value in used for value in call.outputs):
            continue
        if call.target == "prim::If":
            _branch(call, used)
        elif call.target == "prim::Loop":
            _loop(call, used)
        used.update(call.inputs())
        live.append(call)
    return live[::-1]


def _writes(call: Call) -> bool:
    if call.blocks:
        return any(_writes(inner) for block in call.blocks for inner in block.calls)
    try:
        return bool(signature(call.target).writes)
    except LookupError:
        return False


def _branch(call: Call, used: set[Value]) -> None:
    kept = [index for index, value in enumerate(call.outputs) if value in used]
    call.outputs = [call.outputs[index] for index in kept]
    for block in call.blocks:
        block.outputs = [block.outputs[index] for index in kept]
        block.calls[:] = _live(block.calls, set(values_in(block.outputs)))


def _loop(call: Call, used: set[Value]) -> None:
    """Prune a loop: a carried value stays if its final value is read, or if the rest of the body reads it."""
    (block,) = call.blocks
    kept = {index for index, value in enumerate(call.outputs) if value in used}
    while True:
        needed = _needed(block, kept)
        more = {index for index in range(len(call.outputs)) if block.inputs[index + 1] in needed} - kept
        if not more:
            break
        kept |= more
    order = sorted(kept)
    call.outputs = [call.outputs[index] for index in order]
    call.args["carried"] = [call.args["carried"][index] for index in order]
    block.inputs = [block.inputs[0], *(block.inputs[index + 1] for index in order)]
    block.outputs = [block.outputs[0], *(block.outputs[index + 1] for index in order)]
    block.calls[:] = _live(block.calls, set(values_in(block.outputs)))


def _needed(block: Block, kept: set[int]) -> set[Value]:
    """The values that the condition and the kept results of a loop's body need; the body is not changed."""
    needed = set(values_in([block.outputs[0], *(block.outputs[index + 1] for index in sorted(kept))]))
    for call in reversed(block.calls):
        if _writes(call) or any(value in needed for value in call.outputs):
            needed.update(call.inputs())
    return needed
