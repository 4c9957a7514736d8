"""What a number that torch.export takes for data is, where it follows from constants of the model's code alone.

torch.export computes no values: `mask.any().item()` is an unknown number to it, also where the mask is `torch.ones`.
The program that it is recording knows how the number was made.  So what leads to it is computed here, with all that was
written into its memory, in the order of the program.  Where an input, a weight or a random number is part of that,
there is no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import Node, map_arg
from torch.utils._python_dispatch import _disable_current_modes

# results of these hold whatever was in memory
_UNINITIALISED = ("empty", "resize")


def decided_by_constants(condition: Any) -> bool | None:
    """The answer to a symbolic condition on numbers that are constants; None where it depends on anything else."""
    mode = get_proxy_mode()
    if mode is None or condition.free_symbols - free_unbacked_symbols(condition):
        return None
    tracer = mode.tracer
    values = {symbol: _value(symbol, tracer) for symbol in condition.free_symbols}
    if None in values.values():
        return None
    answer = condition.subs(values)
    return bool(answer) if answer.is_Boolean and not answer.free_symbols else None


def _value(symbol: Any, tracer: Any) -> Any:
    """What an unbacked symbol stands for, as an integer or a float; None where it is no constant."""
    nodes = list(tracer.graph.nodes)
    place = next((at for at, node in enumerate(nodes) if symbol in node.meta.get("unbacked_bindings", ())), None)
    if place is None or nodes[place].target is not torch.ops.aten.item.default:
        return None
    needed = _needed(nodes[place], nodes[:place])
    if not all(map(_is_constant, needed)):
        return None
    known: dict[Node, Any] = {}
    with _disable_current_modes(), unset_fake_temporarily(), torch.no_grad():
        for node in (*needed, nodes[place]):
            if node.op == "get_attr":
                known[node] = getattr(tracer.root, str(node.target)).clone()
                continue
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
    found = known[nodes[place]]
    return int(found) if isinstance(found, bool) else found


def _needed(last: Node, before: Sequence[Node]) -> list[Node]:
    """The nodes that one is computed from, in order: its sources, what writes into their memory, and so on."""
    found: set[Node] = set()
    waiting = [last]
    while waiting:
        while waiting:
            for source in waiting.pop().all_input_nodes:
                if source not in found:
                    found.add(source)
                    waiting.append(source)
        memory = {storage for node in found for storage in _storages(node)}
        waiting = [node for node in before if node not in found and not memory.isdisjoint(_written(node))]
        found.update(waiting)
    return [node for node in before if node in found]


def _is_constant(node: Node) -> bool:
    """Whether a node gives the same in each run, where its operands do."""
    target = node.target
    if node.op == "get_attr":  # a tensor that the code makes of numbers
        return True
    return (
        isinstance(target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded not in target.tags
        and not any(word in target._schema.name for word in _UNINITIALISED)
    )


def _written(node: Node) -> set[int]:
    """The memory that a node may write into."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return set()
    return {storage for source in node.all_input_nodes for storage in _storages(source)}


def _storages(node: Node) -> Iterator[int]:
    for value in torch.utils._pytree.tree_leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor):
            yield value.untyped_storage()._cdata
