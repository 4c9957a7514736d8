"""Lists with all elements of a tensor whose length the data decides, where the model joins them again.

`lengths.tolist()` gives Python as many numbers as there are in the example.  Two things that models do with all of them
hold for any number, and the file has them in a form that does not count:

- `torch.tensor([0, *lengths.tolist()])` is the tensor itself behind a zero;
- `cat([attention(q, k, v) for q, k, v in zip(q.split(lengths), k.split(lengths), v.split(lengths))])`, as models do for
  packed sequences, is attention with a mask: each position sees those of its own piece.

Anything else takes as many numbers as there are in the example, of which a remark tells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from purexport.aten.graph import Arg, AtenGraph, Call, ScalarType, Source, TensorType
from purexport.aten.graph import AtenValue as Value
from purexport.aten.schema import signature
from purexport.frontends.core.rolled import used_calls, writes_of

_ATTENTION = "aten::scaled_dot_product_attention"
_SPLITS = ("aten::split_with_sizes", "aten::split.sizes")
_PASSING = ("aten::transpose.int", "aten::contiguous", "aten::reshape")
_LENGTH = object()  # stands for the length of the piece in a shape


def joined(graph: AtenGraph, counts: Mapping[Value, int]) -> AtenGraph:
    """The graph without lists that are joined again; `counts` has the tensors whose elements Python took, and how many.

    Only the first axis of such a tensor is counted.
    """
    if not counts:
        return graph
    search = _PieceSearch(graph.calls, counts)
    calls: list[Call] = []
    for at, call in enumerate(graph.calls):
        calls += search.stacked(at, call) or search.attention(at, call) or [call]
    outputs = [*graph.outputs, *(item.value for item in graph.assigned)]
    return dataclasses.replace(graph, calls=used_calls(calls, outputs))


def counted(graph: AtenGraph, counts: Mapping[Value, int]) -> list[Value]:
    """The tensors of which the graph takes as many elements as there are in the example."""
    taken = {call.args["self"] for call in graph.calls if call.target == "aten::select.int"}
    return [value for value in counts if value in taken]


class _Chain(NamedTuple):
    """An attention on a piece, what its result goes through, and the axis along which it is a piece after that."""

    attention: Call
    passing: list[Call]
    axis: int


class _PieceSearch:
    """Looks for joined lists in the calls of a graph."""

    def __init__(self, calls: Sequence[Call], counts: Mapping[Value, int]) -> None:
        self.calls = calls
        self.counts = counts
        self.places = {value: at for at, call in enumerate(calls) for value in call.outputs}
        self.last_write = [0]  # the number of calls up to the last one that writes, by position
        for at, call in enumerate(calls):
            self.last_write.append(at + 1 if call.blocks or writes_of(call) else self.last_write[-1])

    def maker(self, value: Arg) -> Call | None:
        at = self.places.get(value) if isinstance(value, Value) else None
        return None if at is None else self.calls[at]

    def is_unwritten(self, value: Value, at: int) -> bool:
        """Whether nothing is written between the call that makes a value and this position."""
        return self.last_write[at] <= self.places.get(value, -1) + 1

    def element(self, number: Arg) -> tuple[Value, int] | None:
        """The tensor that a number is an element of, and its position."""
        item = self.maker(number)
        row = self.maker(item.args["self"]) if item is not None and item.target == "aten::item" else None
        if row is None or row.target != "aten::select.int" or row.args["dim"] != 0:
            return None
        whole = row.args["self"]
        return (whole, row.args["index"]) if whole in self.counts else None

    def all_of(self, numbers: Sequence[Arg]) -> Value | None:
        """The tensor that these numbers are all elements of, in order."""
        found = [self.element(number) for number in numbers]
        if not found or found[0] is None:
            return None
        whole = found[0][0]
        return whole if found == [(whole, at) for at in range(self.counts[whole])] else None

    # -- torch.tensor of a list

    def stacked(self, at: int, call: Call) -> list[Call] | None:
        """`stack([first, *elements])` as `cat([stack([first]), whole])`."""
        if call.target != "aten::stack" or call.args["dim"] != 0:
            return None
        items = call.args["tensors"]
        makers = [self.maker(item) for item in items]
        if any(maker is None or maker.target != "aten::scalar_tensor" for maker in makers):
            return None
        numbers = [maker.args["s"] for maker in makers if maker is not None]
        type_ = call.outputs[0].tensor
        made: list[Call] = []
        parts: list[Value] = []
        alone: list[Arg] = []

        def finish() -> None:
            if alone:
                parts.append(_call(made, call.source, "aten::stack", _of(type_, len(alone)), tensors=[*alone], dim=0))
                alone.clear()

        place = 0
        while place < len(items):
            first = self.element(numbers[place])
            count = self.counts[first[0]] if first is not None else 0
            whole = self.all_of(numbers[place : place + count])
            if whole is None or not self.is_unwritten(whole, at):
                alone.append(items[place])
                place += 1
                continue
            finish()
            parts.append(_call(made, call.source, "aten::to.dtype", _of(type_, count), self=whole, dtype=type_.dtype))
            place += count
        if not made:
            return None
        finish()
        made.append(Call("aten::cat", {"tensors": parts, "dim": 0}, call.outputs, call.source))
        return made

    # -- attention on pieces

    def attention(self, at: int, call: Call) -> list[Call] | None:
        """`cat` of the attention on each piece as one attention with a mask."""
        if call.target != "aten::cat":
            return None
        chains = [self._chain(item) for item in call.args["tensors"]]
        first = chains[0] if chains else None
        if first is None or not all(chain is not None and _are_alike(chain, first) for chain in chains):
            return None
        wholes = [self._whole([chain.attention.args[name] for chain in chains if chain]) for name in _OPERANDS]
        if wholes[0] is None or any(whole is None or whole[1:] != wholes[0][1:] for whole in wholes):
            return None
        tensors, (lengths, dim) = [whole[0] for whole in wholes if whole], wholes[0][1:]
        rank = len(tensors[0].tensor.shape or ())
        if dim % rank != rank - 2 or first.axis != call.args["dim"] % rank:
            return None
        if not all(self.is_unwritten(value, at) for value in [lengths, *tensors]):
            return None
        made: list[Call] = []
        length = Value(ScalarType(int))
        made.append(Call("aten::size.int", {"self": tensors[0], "dim": dim}, [length], call.source))
        args = {**first.attention.args, **dict(zip(_OPERANDS, tensors, strict=True))}
        args["attn_mask"] = _mask_of_pieces(made, call.source, length, (tensors[0].tensor.shape or ())[dim], lengths)
        shape = [*(tensors[0].tensor.shape or ())[:-1], (tensors[2].tensor.shape or ())[-1]]
        result = call.outputs[0] if not first.passing else Value(TensorType(call.outputs[0].tensor.dtype, tuple(shape)))
        made.append(Call(_ATTENTION, args, [result], first.attention.source))
        for place, step in enumerate(first.passing):
            args = {**step.args, "self": result}
            if step.target == "aten::transpose.int":
                one, other = args["dim0"], args["dim1"]
                shape[one], shape[other] = shape[other], shape[one]
            elif step.target == "aten::reshape":
                args["shape"] = [length if item is _LENGTH else item for item in args["shape"]]
            is_last = place == len(first.passing) - 1
            result = call.outputs[0] if is_last else Value(TensorType(call.outputs[0].tensor.dtype, tuple(shape)))
            made.append(Call(step.target, args, [result], step.source))
        return made

    def _chain(self, value: Arg) -> _Chain | None:
        passing: list[Call] = []
        call = self.maker(value)
        while call is not None and call.target in _PASSING:
            passing.insert(0, call)
            call = self.maker(call.args["self"])
        if call is None or call.target != _ATTENTION:
            return None
        rank = len(call.outputs[0].tensor.shape or ())
        axis, steps = rank - 2, []
        for step in passing:
            args = dict(step.args)
            if step.target == "aten::transpose.int":
                one, other = args["dim0"] % rank, args["dim1"] % rank
                args |= {"dim0": one, "dim1": other}
                axis = {one: other, other: one}.get(axis, axis)
            elif step.target == "aten::reshape":
                shape = list(args["shape"])
                behind = (args["self"].tensor.shape or ())[axis + 1 :]
                is_as_long = len(shape) == rank and self._is_length_of(shape[axis], call)
                if not is_as_long or tuple(shape[axis + 1 :]) != tuple(behind):
                    return None
                shape[axis] = _LENGTH
                args["shape"] = shape
            steps.append(dataclasses.replace(step, args=args))
        return _Chain(call, steps, axis)

    def _is_length_of(self, number: Arg, attention: Call) -> bool:
        """Whether a number is the length of the piece that an attention is for."""
        size = self.maker(number)
        if size is None or size.target != "aten::size.int":
            return False
        operand, rank = size.args["self"], len(attention.outputs[0].tensor.shape or ())
        return operand in [attention.args[name] for name in _OPERANDS] and size.args["dim"] % rank == rank - 2

    def _whole(self, pieces: Sequence[Arg]) -> tuple[Value, Value, int] | None:
        """The tensor that these are all pieces of, in order; the lengths of its pieces and its axis."""
        makers = [self.maker(piece) for piece in pieces]
        if any(maker is None or maker.target != "prim::getitem" for maker in makers):
            return None
        lists = {maker.args["list"] for maker in makers if maker is not None}
        if len(lists) != 1 or [maker.args["index"] for maker in makers if maker is not None] != [*range(len(pieces))]:
            return None
        split = self.maker(lists.pop())
        if split is None or split.target not in _SPLITS:
            return None
        sizes = split.args["split_sizes" if "split_sizes" in split.args else "split_size"]
        lengths = self.all_of(sizes) if len(sizes) == len(pieces) else None
        return None if lengths is None else (split.args["self"], lengths, split.args["dim"])


_OPERANDS = ("query", "key", "value")


def _are_alike(one: _Chain, other: _Chain) -> bool:
    """Whether both do the same, and neither has a mask or is causal within its piece."""
    args = one.attention.args
    return (
        args["attn_mask"] is None
        and not args["is_causal"]
        and not args["dropout_p"]
        and [*_constants([one.attention, *one.passing])] == [*_constants([other.attention, *other.passing])]
    )


def _constants(calls: Sequence[Call]) -> Iterator[Any]:
    for call in calls:
        yield call.target, {name: item for name, item in call.args.items() if not isinstance(item, Value)}


def _mask_of_pieces(calls: list[Call], source: Source, length: Value, size: Any, lengths: Value) -> Value:
    """Which positions of an axis are in one piece, of pieces of these lengths; `size` is the example's length."""
    count = (lengths.tensor.shape or ())[0]

    def of(*shape: Any, dtype: torch.dtype = torch.int64) -> TensorType:
        return TensorType(dtype, shape)

    ends = _call(calls, source, "aten::cumsum", of(count), self=lengths, dim=0)
    places = _call(calls, source, "aten::arange", of(size), end=length, dtype=torch.int64)
    column = _call(calls, source, "aten::unsqueeze", of(size, 1), self=places, dim=1)
    passed = _call(calls, source, "aten::ge.Tensor", of(size, count, dtype=torch.bool), self=column, other=ends)
    piece = _call(calls, source, "aten::sum.dim_IntList", of(size), self=passed, dim=[1])
    rows = _call(calls, source, "aten::unsqueeze", of(size, 1), self=piece, dim=1)
    return _call(calls, source, "aten::eq.Tensor", of(size, size, dtype=torch.bool), self=rows, other=piece)


def _of(type_: TensorType, count: int) -> TensorType:
    return TensorType(type_.dtype, (count,))


def _call(calls: list[Call], source: Source, target: str, result: TensorType, **args: Arg) -> Value:
    """The result of a new call, with the schema's defaults."""
    value = Value(result)
    bound = {item.name: args.get(item.name, item.default) for item in signature(target).parameters}
    calls.append(Call(target, bound, [value], source))
    return value
