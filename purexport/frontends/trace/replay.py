"""A recorded trace, run again at other sizes to see which numbers Python would get there.

All that Python learns of sizes under the tracer are the numbers that it asks for.  Where it gets the same numbers at
other sizes, the model makes the same calls with the same constants there, and need not be traced again.  Only what the
numbers follow from is run, by torch's interpreter, and mostly without computing: a costly operator gives a tensor of
its shape whose elements nobody has written.  An operator whose result has a shape, or is a number, that follows from
such elements ends the run.  So does a write to what the model owns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport.frontends.core.shape_functions import UnfitError
from purexport.frontends.trace.shape_plan import ShapePlan, plan_of
from purexport.torch_patches.calls import operators_handed_to
from purexport.torch_patches.torch_jit import remove_dead, run_graph

# elements of all operands, from which on an operator is costly
COSTLY = 1 << 14
# multiplications, from which on a product is large
LARGE_PRODUCT = 1 << 24
# numbers that are found out before all others: most models look at their sizes first
HEAD = 8
_FOLLOWS_VALUES = frozenset([torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output])
# of which the interpreter knows nothing, or which run the user's code
_UNKNOWN = ("prim::PythonOp", "prim::CallFunction")


Costly = Callable[[Any, Sequence[torch.Tensor]], bool]


@dataclass(frozen=True, eq=False)
class Asked:
    """The numbers that Python asked for in a trace, and the part of the graph that they follow from."""

    graph: Any
    state: Sequence[torch.Tensor]
    numbers: list[Any]

    def at(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """The numbers for other tensors, in order; after the first one that differs they mean nothing.

        Raises UnfitError where they are not known without running the model.
        """
        used = (bool(value.uses()) for value in self.graph.inputs())
        # what the run may write to is a copy
        given = [tensor.detach().clone() if needed else tensor for tensor, needed in zip(tensors, used, strict=False)]
        kernels = Kernels(self.state)
        try:
            with torch.no_grad(), operators_handed_to(kernels.run):
                found = run_graph(self.graph, (*given, *self.state))
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise UnfitError(kernels.refused or str(error)) from error  # the interpreter may lose the words
        return [type(was)(tensor.item()) for tensor, was in zip(found, self.numbers, strict=True)]

    @functools.cached_property
    def plan(self) -> ShapePlan | None:
        """What finds out the numbers without running anything; None where they do not follow from shapes alone."""
        return plan_of(self.graph, self.state, self.numbers)

    @functools.cached_property
    def half(self) -> Asked | None:
        """The first half of the numbers, rounded down; None where that is none."""
        return self._first(len(self.numbers) // 2)

    @functools.cached_property
    def head(self) -> Asked | None:
        """The first few numbers, which cost little to find out; None where that is not much less than all."""
        return self._first(HEAD) if len(self.numbers) >= 4 * HEAD else None

    def up_to(self, place: int) -> Asked | None:
        """The numbers up to one of them; None where that is not much less than all."""
        return self._first(place + 1) if len(self.numbers) >= 4 * (place + 1) else None

    def _first(self, count: int) -> Asked | None:
        return Asked(_of_results(self.graph.copy(), range(count)), self.state, self.numbers[:count]) if count else None


def split(graph: Any, state: Sequence[torch.Tensor], numbers: Sequence[Any]) -> Asked | None:
    """Take the numbers, which are the last results of a trace, off its graph; None where it cannot be run."""
    first = _count(graph) - len(numbers)
    alone = _of_results(graph.copy(), range(first, first + len(numbers)))
    _of_results(graph, range(first))
    if any(alone.findNode(kind) is not None for kind in _UNKNOWN):
        return None
    return Asked(alone, state, list(numbers))


def _of_results(graph: Any, kept: range) -> Any:
    """The graph, changed to have some of its results only, and the nodes that these need."""
    results = next(graph.outputs()).node()  # the tuple
    for position in reversed(range(_count(graph))):
        if position not in kept:
            results.removeInput(position)
    remove_dead(graph)
    return graph


def _count(graph: Any) -> int:
    return sum(1 for _ in next(graph.outputs()).node().inputs())


class Kernels:
    """Runs operators, the costly ones for their shapes alone."""

    def __init__(self, state: Sequence[torch.Tensor], costly: Costly | None = None) -> None:
        self.costly = costly or _is_costly
        self.state = {tensor.untyped_storage()._cdata for tensor in state}
        self.refused = ""
        self.unwritten: dict[int, Any] = {}  # storages whose elements mean nothing; kept, so that no other gets the key
        self.shapes: dict[Any, Any] = {}  # results on the meta device, by operator and arguments: layers are alike

    def run(self, overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operator."""
        follows_values, writes, makes = _traits(overload)
        tensors = list(_tensors((args, tuple(kwargs.values()))))
        storages = {tensor.untyped_storage()._cdata for tensor in tensors}
        unknown = not self.unwritten.keys().isdisjoint(storages)
        if (unknown and follows_values) or (writes and not self.state.isdisjoint(storages)):
            self.refused = f"{overload} takes what is not known"
            raise UnfitError(self.refused)
        # what is computed of elements that nobody has written means as little as they do
        costly = self.costly(overload, tensors) or (unknown and _is_costly(overload, tensors))
        if makes and costly and "device" not in kwargs:
            result = self._of_shapes(overload, args, kwargs)
            unknown = True
        else:
            result = overload(*args, **kwargs)
        if unknown:
            written = (storage for tensor in _tensors(result) for storage in [tensor.untyped_storage()])
            self.unwritten |= {storage._cdata: storage for storage in written}
        return result

    def _of_shapes(self, overload: Any, args: Any, kwargs: Any) -> Any:
        key = overload, _described(args), *((name, _described(item)) for name, item in kwargs.items())
        if key not in self.shapes:
            shape = SHAPES.get(overload) if not kwargs and _is_plain(args) else None
            others = {name: _placed(item, "meta") for name, item in kwargs.items()}
            self.shapes[key] = (shape or overload)(*_placed(args, "meta"), **others)
        return _placed(self.shapes[key], "cpu")


def _of_group_norm(input: torch.Tensor, *others: Any) -> Any:
    _, _, batch, _, _, groups, _ = others
    return torch.empty_like(input), input.new_empty(batch, groups), input.new_empty(batch, groups)


def _of_layer_norm(input: torch.Tensor, normalized: Sequence[int], *_: Any) -> Any:
    rows = [*input.shape[: -len(normalized)], *[1] * len(normalized)]
    return torch.empty_like(input), input.new_empty(rows), input.new_empty(rows)


def _of_addmm(_: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> Any:
    return one.new_empty(one.shape[0], other.shape[1])


SHAPES: dict[Any, Any] = {
    torch.ops.aten.native_group_norm.default: _of_group_norm,
    torch.ops.aten.native_layer_norm.default: _of_layer_norm,
    torch.ops.aten.addmm.default: _of_addmm,
    torch.ops.aten.gelu.default: torch.empty_like,
}
"""The shapes of what is frequent and what torch itself finds out by a decomposition in Python, of plain operands."""


def _is_plain(args: Any) -> bool:
    """Whether the tensors lie in memory in the order of their elements, and have one dtype.

    A matrix that is transposed, as the weights of a linear layer are, is plain, too.
    """
    tensors = [item for item in args if isinstance(item, torch.Tensor)]
    plain = all(item.is_contiguous() or (item.dim() == 2 and item.t().is_contiguous()) for item in tensors)
    return plain and len({item.dtype for item in tensors}) == 1


@functools.cache
def _traits(overload: Any) -> tuple[bool, bool, bool]:
    """Whether what an operator gives follows from elements; whether it writes; whether it gives new tensors only."""
    schema = overload._schema
    follows_values = not _FOLLOWS_VALUES.isdisjoint(overload.tags)
    shares = any(item.alias_info is not None for item in schema.returns)
    return follows_values, schema.is_mutable, not (follows_values or schema.is_mutable or shares)


def _is_costly(_: Any, tensors: Sequence[torch.Tensor]) -> bool:
    return bool(tensors) and tensors[0].is_floating_point() and sum(tensor.numel() for tensor in tensors) >= COSTLY


def is_large_product(overload: Any, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an operator multiplies large matrices: what a model computes of its inputs, and keeps in no table."""
    place = _FACTORS.get(overload._schema.name)
    if place is None or len(tensors) < place + 2 or not tensors[0].is_floating_point():
        return False
    one, other = tensors[place], tensors[place + 1]
    if "convolution" in overload._schema.name:
        return one.numel() * other[0].numel() >= LARGE_PRODUCT
    width = other.shape[-2] if "attention" in overload._schema.name else other.shape[-1]
    return one.numel() * width >= LARGE_PRODUCT


# operators that multiply, and the place of the first factor among their tensors
_FACTORS = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul", "aten::_grouped_mm"), 0),
    **dict.fromkeys(("aten::convolution", "aten::_convolution"), 0),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm"), 1),
    **dict.fromkeys(("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention_for_cpu"), 0),
}


def _tensors(item: Any) -> Iterator[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        yield item
    elif isinstance(item, (list, tuple)):
        for part in item:
            yield from _tensors(part)


def _described(item: Any) -> Any:
    """What the shape of a result may follow from: the tensors without elements, and numbers with their types."""
    if isinstance(item, torch.Tensor):
        return item.size(), item.stride(), item.dtype, item.requires_grad
    if isinstance(item, (list, tuple)):
        return tuple(map(_described, item))
    return type(item), item


def _placed(item: Any, device: str) -> Any:
    """The tensors in `item` as tensors on another device whose elements nobody has written."""
    if isinstance(item, torch.Tensor):
        return torch.empty_strided(item.size(), item.stride(), dtype=item.dtype, device=device)
    if isinstance(item, (list, tuple)):
        return type(item)([_placed(part, device) for part in item])
    return item
