"""Dead code elimination in the branches and loops of a script: unused outputs of If and carried values of Loop go.

Invariant: in-place writes stay, since the tensor that they write to may be read under another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torch.utils import _pytree as pytree

from purexport.aten.graph import AtenValue, Block, Call, values_in
from purexport.aten.schema import signature


def pruned(calls: Sequence[Call], result: Any) -> Sequence[Call]:
    """The calls without everything that `result` does not need; all of them where none has a block."""
    if not any(call.blocks for call in calls):
        return calls
    return _live(calls, {leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, AtenValue)})


def _live(calls: Iterable[Call], used: set[AtenValue]) -> list[Call]:
    """The calls that compute the values in `used`; the values that these calls need are added to `used`."""
    live = []
    for call in reversed(list(calls)):
        if not _writes(call) and not any(value in used for value in call.outputs):
            continue
        smaller = {"prim::If": _branch, "prim::Loop": _loop}.get(call.target)
        kept = call if smaller is None else smaller(call, used)
        used.update(kept.inputs())
        live.append(kept)
    return live[::-1]


def _writes(call: Call) -> bool:
    if call.blocks:
        return any(_writes(inner) for block in call.blocks for inner in block.calls)
    try:
        return bool(signature(call.target).writes)
    except LookupError:
        return False


def _branch(call: Call, used: set[AtenValue]) -> Call:
    """The branch without the outputs that are not read."""
    kept = [index for index, value in enumerate(call.outputs) if value in used]
    blocks = [_with_outputs(block, [block.outputs[index] for index in kept]) for block in call.blocks]
    return replace(call, outputs=[call.outputs[index] for index in kept], blocks=blocks)


def _with_outputs(block: Block, outputs: Sequence[Any]) -> Block:
    return replace(block, calls=_live(block.calls, set(values_in(outputs))), outputs=outputs)


def _loop(call: Call, used: set[AtenValue]) -> Call:
    """The loop without carried values whose final value is not read, and which the rest of the body does not read."""
    (block,) = call.blocks
    kept = {index for index, value in enumerate(call.outputs) if value in used}
    while True:
        needed = _needed(block, kept)
        more = {index for index in range(len(call.outputs)) if block.inputs[index + 1] in needed} - kept
        if not more:
            break
        kept |= more
    order = sorted(kept)
    inputs = [block.inputs[0], *(block.inputs[index + 1] for index in order)]
    ends = [block.outputs[0], *(block.outputs[index + 1] for index in order)]
    carried = [call.args["carried"][index] for index in order]
    body = replace(_with_outputs(block, ends), inputs=inputs)
    outputs = [call.outputs[index] for index in order]
    return replace(call, args={**call.args, "carried": carried}, outputs=outputs, blocks=[body])


def _needed(block: Block, kept: set[int]) -> set[AtenValue]:
    """The values that the condition and the kept results of a loop's body need; the body is not changed."""
    needed = set(values_in([block.outputs[0], *(block.outputs[index + 1] for index in sorted(kept))]))
    for call in reversed(block.calls):
        if _writes(call) or any(value in needed for value in call.outputs):
            needed.update(call.inputs())
    return needed
