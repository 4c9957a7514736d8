"""Sizes of a graph that was recorded with the sizes of an example: which of them can change, and as what.

A trace records numbers.  The inputs get the names of the dynamic axes here, and from then on each value has the sizes
that inference gave the nodes which make it.  The example's numbers have three uses:

- A call none of whose operands has a size that can change gives what was recorded, unless its size depends on data.
- Where two sizes must be equal or broadcast, they were so for the example: the model takes them for one size, which is
  learnt as an equation.  An axis for which an equation gives a number is specialized; the call is its place.
- What was inferred for a result must give the recorded sizes at the example's: otherwise the trace holds a size
  fixed.  A size of which nothing is known has the recorded one as its example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from proto_schema.inference.site import Scope
from proto_schema.sizes import ContradictionError, Dim, Size
from purexport import dtypes
from purexport.aten.axes import Axes, Derived, Specialised
from purexport.aten.graph import AtenGraph, AtenValue, Call, Source, TensorType, Type
from purexport.errors import ExportError
from purexport.facts.table import has_data_dependent_size
from purexport.graph.ir import Graph, Shape, Value
from purexport.lowering.arguments import computed_numbers, flat
from purexport.lowering.state import LoweringState
from purexport.lowering.support.pairs import Pair
from purexport.lowering.support.qdq import Quantized


class Example(Scope):
    """What is known of sizes in one lowering: their values at the example, and the equations that the model implies."""

    def __init__(self, axes: Mapping[str, Axes], derived: Derived, state: LoweringState) -> None:
        """`state` is that of the lowering; the types of values that this finds out stand there."""
        super().__init__()
        self.axes = axes
        self.state = state
        self.sizes: dict[str, int] = {}  # of each symbol at the example
        self.places: dict[str, Source] = {}  # where an equation said what a symbol is
        self.source = Source()
        labels = {label for named in axes.values() for label in named.values()}
        self.derived = {label: found for label, found in derived.items() if found[0] in labels}
        self.taken = labels - self.derived.keys()

    # -- inputs

    def name_axes(self, graph: AtenGraph) -> None:
        """Give the dynamic axes of the inputs their symbols."""
        for item in graph.inputs:
            axes = self.axes.get(item.name, {})
            type_ = item.value.type
            if item.kind != "user" or not axes or not isinstance(type_, TensorType):
                continue
            shape = list(type_.shape or ())
            for axis, label in axes.items():
                size = shape[axis]
                if label in self.derived:
                    root, of_root = self.derived[label]
                    shape[axis] = of_root(Size.symbol(root))
                    continue
                if isinstance(size, int):
                    self.sizes.setdefault(label, size)
                shape[axis] = Size.symbol(label)
            self.state.types[item.value] = TensorType(type_.dtype, tuple(shape))

    # -- equations

    def at_example(self, size: Dim) -> int | None:
        """The value of a size at the example; None where a symbol in it has none."""
        found = size.replaced(self.sizes) if isinstance(size, Size) else size
        return found if isinstance(found, int) else None

    def learn(self, one: Dim, other: Dim) -> None:
        """The two sizes are equal from now on; a declared axis stays, where another symbol can be replaced."""
        before = set(self.equations.replacements)
        try:
            self.equations.learn(one, other, self._replaceable)
        except ContradictionError as error:
            raise ExportError(
                f"{self.source}: {error}, and the model takes them for one; declare the dynamic axes in them static",
                code="dynamic-axis-held",
            ) from None
        for name in set(self.equations.replacements) - before:
            self.places[name] = self.source

    def _replaceable(self, name: str) -> int:
        return 1 if self._is_fresh(name) else 0

    def _is_fresh(self, name: str) -> bool:
        return name not in self.taken

    def meet(self, sizes: Sequence[Dim]) -> Dim:
        """The common size of operands that broadcast.

        Sizes of data may be 1 for other data.  The axes of the inputs are what they were in the example: two that were
        equal and not 1 are one size, and one that was 1 beside another is held at 1.
        """
        if any(self._is_fresh(name) for size in sizes if isinstance(size, Size) for name in size.symbols):
            return super().meet(sizes)
        at_example = [self.at_example(size) for size in sizes]
        wide = [size for size, number in zip(sizes, at_example, strict=True) if number != 1] or list(sizes)
        for size, number in zip(sizes, at_example, strict=True):
            if number == 1 and len(wide) < len(sizes):
                self.learn(size, 1)
        for size in wide[1:]:
            self.learn(wide[0], size)
        return next((size for size in wide if isinstance(size, int)), wide[0])

    # -- calls

    def loosened(self, call: Call, arguments: Mapping[str, Any]) -> Call:
        """Take the sizes off the results of a call that may change them, before it is lowered.

        Returns the call that is lowered instead.
        """
        self.source = call.source
        if call.base == "aten::squeeze" and self._shape(call.outputs[0]) is not None:
            call = self._squeeze_as_recorded(call)
        if call.target == "aten::cross" and call.args.get("dim") is None:
            call = self._cross_as_recorded(call)
        if call.base == "aten::unbind":
            self._hold_the_number_of_pieces(call)
        if call.target == "prim::If":
            for value in call.outputs:  # what is written in a branch has the example's sizes
                self._forget_sizes(value)
        if call.target == "prim::Scan":
            self._begin_as_given(call, arguments["init"])
        if "chunks" in arguments:
            self._hold_the_number_of_chunks(arguments["chunks"])
        if call.target == "prim::If" or has_data_dependent_size(call) or _follows_sizes(call, arguments):
            # beside other results, torch leaves one out as a tensor without elements, as lstsq its residuals
            left_out = () if len(call.outputs) == 1 or has_data_dependent_size(call) else (0,)
            for value in call.outputs:
                if self._shape(value) != left_out:
                    self._forget_sizes(value)
        return call

    def _forget_sizes(self, value: AtenValue) -> None:
        type_ = self.state.type(value)
        if isinstance(type_, TensorType) and type_.shape is not None:
            self.state.types[value] = TensorType(type_.dtype, (None,) * len(type_.shape))

    def _shape(self, value: AtenValue) -> Shape:
        """The shape of a neutral tensor."""
        type_ = self.state.type(value)
        return type_.shape if isinstance(type_, TensorType) else None

    def _squeeze_as_recorded(self, call: Call) -> Call:
        """A squeeze that removes a dynamic axis, whose size is 1 in the example, names all axes that it removes.

        So the file has a Squeeze that fails for other sizes.
        """
        shape = self._shape(call.args["self"]) or ()
        dims = call.args.get("dim", range(len(shape)))
        axes = sorted({dim % max(len(shape), 1) for dim in (dims if isinstance(dims, (list, range)) else [dims])})
        axes = [axis for axis in axes if shape and self._is_one(shape[axis])]
        if all(isinstance(shape[axis], int) for axis in axes):
            return call
        return replace(call, target="aten::squeeze.dims", args={"self": call.args["self"], "dim": axes})

    def _cross_as_recorded(self, call: Call) -> Call:
        """A cross product without `dim` is along the first axis that has size 3 in the example, and keeps it."""
        shape = self._shape(call.args["self"]) or ()
        for axis, size in enumerate(shape):
            if size is not None and self.at_example(size) == 3:
                if isinstance(size, Size):
                    self.learn(size, 3)
                return replace(call, args={**call.args, "dim": axis})
        return call

    def _hold_the_number_of_pieces(self, call: Call) -> None:
        """An axis that is unbound has the size of the example: so many pieces were recorded."""
        shape = self._shape(call.args["self"]) or ()
        size = shape[call.args.get("dim", 0)] if shape else None
        number = None if size is None else self.at_example(size)
        if isinstance(size, Size) and number is not None and not any(map(self._is_fresh, size.symbols)):
            self.learn(size, number)

    def _begin_as_given(self, call: Call, init: Sequence[Any]) -> None:
        """The carried values of a loop have the sizes with which they begin, also where these can change."""
        for value, start in zip(call.blocks[0].inputs, init, strict=False):
            shape = _shape_of(start)
            if shape is not None and isinstance(value.type, TensorType):
                self.state.types[value] = TensorType(value.type.dtype, shape)

    def _hold_the_number_of_chunks(self, chunks: Any) -> None:
        """A number of chunks that follows from a size is that of the example: so many pieces were recorded."""
        content = chunks.content if isinstance(chunks, Value) and chunks.const is None else None
        size = content[0] if content else None
        number = self.at_example(size) if isinstance(size, Size) else None
        if isinstance(size, Size) and number is not None:
            self.learn(size, number)

    def _is_one(self, size: Dim | None) -> bool:
        return size is not None and self.at_example(size) == 1

    def settle(self, call: Call, recorded: Sequence[Type]) -> None:
        """Compare what was inferred for the results with what was recorded, and keep it as their types.

        Raises ExportError where they contradict.
        """
        for value, was in zip(call.outputs, recorded, strict=True):
            if self.state.type(value) is was or not isinstance(was, TensorType) or was.shape is None:
                continue
            shape = _shape_of(self.state.env.get(value))
            if shape is None:
                shape = (None,) * len(was.shape)
            shape = tuple([self.fresh() if size is None else size for size in shape])
            type_ = TensorType(was.dtype, shape)
            if len(shape) != len(was.shape) or not all(map(self._fits, shape, was.shape)):
                raise ExportError(
                    f"{call.target} at {call.source} was recorded as {was}, and its nodes give {type_}; "
                    "the trace makes a size static that was declared dynamic",
                    code="dynamic-axis-held",
                )
            self.state.types[value] = type_

    def _fits(self, size: Any, recorded: Any) -> bool:
        if recorded is None:  # inside of a script
            return True
        if isinstance(size, Size) and size.name is not None and self._is_fresh(size.name):
            self.sizes.setdefault(size.name, recorded)
        number = self.at_example(self.equations.resolved(size)) if size is not None else None
        return number is None or number == recorded

    # -- findings

    def specialised(self) -> list[Specialised]:
        """The declared axes for which an equation gives a number."""
        found = []
        for label in sorted(self.taken):
            size = self.equations.replacements.get(label)
            if isinstance(size, int):
                found.append(Specialised(label, size, str(self.places.get(label, Source()))))
        return found

    def merged(self) -> list[str]:
        """The declared axes that the model takes for one size, or for a size that follows from others."""
        found = []
        for label in sorted(self.taken):
            size = self.equations.replacements.get(label)
            if isinstance(size, Size):
                found.append(f"axes {str(size)!r} and {label!r} were declared apart; the model takes them for one size")
        return found

    def resolve(self, graph: Graph) -> None:
        """Write the sizes of all values in the symbols that the equations leave."""
        if not self.equations.replacements:
            return
        for value in (*graph.inputs, *(output for node in graph.nodes for output in node.outputs)):
            if value.shape is not None:
                value.sized = tuple([None if size is None else self.equations.resolved(size) for size in value.shape])
        for node in graph.nodes:
            for body in node.subgraphs():
                self.resolve(body)


def _shape_of(made: Any) -> Shape:
    """The shape of what stands for a result."""
    if isinstance(made, Quantized):
        return made.integers.shape
    return made.shape if isinstance(made, (Value, Pair)) else None


def _follows_sizes(call: Call, arguments: Mapping[str, Any]) -> bool:
    """Whether an operand has a size that can change, or a number of the call is computed in the graph."""
    if computed_numbers(call.target, arguments):
        return True
    return any(map(_can_change, flat(arguments.values())))


def _can_change(item: Any) -> bool:
    """Whether an argument has a size that can change, or is a whole number that the graph computes."""
    if not isinstance(item, (Value, Pair, Quantized)) or (isinstance(item, Value) and item.const is not None):
        return False
    shape = _shape_of(item)
    if shape is None or not all(isinstance(size, int) for size in shape):
        return True
    return isinstance(item, Value) and not shape and item.dtype in (dtypes.INT64, dtypes.INT32)
