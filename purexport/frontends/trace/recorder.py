"""Records the calls of a model that runs on tensors without data, as calls of the neutral graph.

`call` gets each operator before composite operators fall apart.  It binds the arguments to the schema, finds out what
the results are like, and returns new tensors.  What an operator gives for operands of the same layouts is found out
once, so that twelve equal layers cost as much as one.

Invariants: no call of the model reaches a kernel, so nothing is computed and nothing of the user's is written, unless
somebody asks for elements; then the calls that lead to them run on the example (`data`).  A value has the example's
sizes as its type, as in a trace, and a later stage finds out by itself which of them can change.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import torch

from proto_schema.sizes import Dim, Size
from purexport.aten.graph import (
    Arg,
    Call,
    Input,
    ListType,
    Recording,
    ScalarType,
    Source,
    TensorType,
    users_frame,
)
from purexport.aten.graph import (
    AtenValue as Value,
)
from purexport.errors import ExportError
from purexport.frontends.core import row_loops
from purexport.frontends.trace import indices
from purexport.frontends.trace.arguments import numbers_in, tensors_in
from purexport.frontends.trace.builtins import NAMES
from purexport.frontends.trace.data import Elements, Entry
from purexport.frontends.trace.decisions import LEAST, Decisions, arguments_in, sizes_below
from purexport.frontends.trace.higher_order import higher_order
from purexport.frontends.trace.layouts import Layouts, Recipe, UnfollowedError
from purexport.frontends.trace.numbers import ARGUMENT, SYMBOLIC, Number, text_of, wrapped
from purexport.frontends.trace.operators import Operator
from purexport.frontends.trace.owned import Holdings, strides_of_copy
from purexport.frontends.trace.questions import Questions
from purexport.frontends.trace.scripts import Scripts
from purexport.frontends.trace.source_lines import Lines, asking_frame, calls_kept, frames_of
from purexport.frontends.trace.specials import SPECIALS
from purexport.frontends.trace.tensors import Recorded
from purexport.torch_patches.before_composites import below, casting

_UNKNOWN = "unknown"
_NUMBERS = (bool, int, float, complex, str)
_OBJECTS = (torch.dtype, torch.layout, torch.memory_format, torch.device)
_TORCH = os.path.dirname(torch.__file__) + os.sep


class StaticAxesError(Exception):
    """Axes with fewer than two elements in the example, for which the model does something else than for more."""

    def __init__(self, names: Collection[str], line: str) -> None:
        self.names = names
        self.line = line
        super().__init__(f"{sorted(names)} at {line}")


_SQUEEZES = frozenset(
    getattr(packet, name)
    for packet in (torch.ops.aten.squeeze, torch.ops.aten.squeeze_)
    for name in packet.overloads()  # type: ignore[no-untyped-call]
)


class Recorder(Holdings):
    """One capture.

    `modules` gives the paths of the model's modules.  `sizes` are the example's sizes of the declared axes, by name;
    the `enlarged` ones are smaller in the user's example, with these sizes.  `bounds` are the
    smallest and the largest sizes, where they are declared.  `stays_open`, `small` and `turned` are
    those of the decisions.  With `as_many_pieces` an axis that is split stays dynamic, and has as many pieces as in the
    example; `splits` is whether one is split.  `both` and `turned_at` are those of
    the questions.
    """

    part, put = staticmethod(indices.part), staticmethod(indices.put)  # for the tensors, which know no other file

    def __init__(
        self,
        modules: Mapping[torch.nn.Module, str],
        sizes: Mapping[str, int],
        enlarged: Mapping[str, int],
        bounds: Mapping[str, tuple[int, int | None]],
        stays_open: bool = False,
        small: tuple[str, int] | None = None,
        as_many_pieces: bool = False,
        turned: str | None = None,
        loops_carry_lists: bool = True,
        without: set[row_loops.Step] | None = None,
        both: bool = False,
        turned_at: Collection[int] = (),
    ) -> None:
        self.questions = Questions(self, both, turned_at)
        self.depth = 0  # blocks around the calls
        self.enlarged = frozenset(enlarged)
        self.bounds = bounds
        self.as_many_pieces, self.splits = as_many_pieces, False
        self.valueless: frozenset[int] = frozenset()  # the identities of weights that have no values
        self.modules = modules
        self.sizes = dict(sizes)
        self.declared = frozenset(sizes)
        self.decisions = Decisions(self.declared, stays_open, small, sizes_below(sizes, bounds), enlarged, turned)
        self.elements = Elements(self)
        super().__init__(Recording(), Layouts(self))
        self.scripts = Scripts(self)
        self.rows = row_loops.Rows(without)
        self.log: list[Entry] = []
        self.root: FrameType | None = None
        self.namespaces: list[dict[str, Any]] = []
        self.loops_carry_lists = loops_carry_lists
        self.counts: dict[Value, str] = {}  # tensors whose elements Python counts, and where
        self.given: dict[str, Number] = {}  # Python numbers of the arguments
        self._operators: dict[Any, Operator] = {}
        self._known: dict[Any, Any] = {}
        self._sizes_of: dict[tuple[Value, int], Value] = {}
        self._in_block: list[Number] = []  # numbers that were emitted there
        self._fresh: dict[Any, Size] = {}
        self._lines = Lines()

    # -- what there is before the model runs

    def number(self, tensor: Recorded, name: str, example: int | float) -> Any:
        """The number that stands for a Python number of the arguments; `tensor` is the input for it."""
        kind = type(example)
        size = self.fresh(example, name=name) if isinstance(example, int) else None
        number = Number(self, kind, example, size, (ARGUMENT, (name,)))
        number.value = self._emit("aten::item", {"self": tensor.value}, kind)
        self.given[name] = number
        return wrapped(number)

    def input(self, tensor: torch.Tensor, name: str, sizes: Mapping[int, Dim]) -> Recorded:
        """The tensor that stands for an argument; `sizes` are those of its dynamic axes.

        It has the layout of a copy, because the model gets one.
        """
        meta = self.layouts.meta(tuple(tensor.shape), strides_of_copy(tensor), tensor.dtype)
        shape = tuple(sizes.get(axis, size) for axis, size in enumerate(tensor.shape))
        layout = self.layouts.layout(meta, shape, tensor.dtype)
        value = Value(layout.type)
        self.graph.inputs.append(Input(value, name, "user"))
        self.questions.note_sizes(value, layout)
        made = Recorded.of(self, layout, value, -1, self.memory(), True)
        made.elements = tensor
        return made

    # -- calls

    def call(self, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a call, which is recorded."""
        if isinstance(overload, torch._ops.HigherOrderOperator):
            name = overload.name()  # type: ignore[no-untyped-call]
            return higher_order(self, name, [*args, *kwargs.values()])
        if torch.is_autocast_enabled("cpu"):
            cast = casting(overload)
            if cast is not None:
                return cast(*args, **kwargs)
        if torch.is_grad_enabled() and any(item.requires_grad for item in tensors_in(args, kwargs)):
            with below():  # autograd sees the call first, and what it calls is recorded
                return overload(*args, **kwargs)
        return self.leaf(overload, args, kwargs)

    def leaf(self, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a call that autograd and autocast have seen."""
        if self.enlarged and overload in _SQUEEZES:
            self._refuse_squeeze(args)
        special = SPECIALS.get(overload)
        if special is not None:
            found = special(self, overload, args, kwargs)
            if found is not NotImplemented:
                return found
        try:
            return self.recorded(overload, args, kwargs)
        except UnfollowedError:
            with below():
                return overload(*args, **kwargs)

    def _refuse_squeeze(self, args: Sequence[Any]) -> None:
        """Raise StaticAxesError for a squeeze of an axis that has one element in the user's example."""
        sizes = args[0].layout_.sizes if type(args[0]) is Recorded else ()
        given = args[1] if len(args) > 1 else range(len(sizes))
        dims = given if isinstance(given, (list, tuple, range)) else [given]
        squeezed = [sizes[dim] for dim in dims] if sizes else []
        names = {name for size in squeezed if isinstance(size, Size) for name in size.symbols}
        if names & self.enlarged:
            raise StaticAxesError(names & self.enlarged, self.line())

    def operator(self, overload: Any) -> Operator:
        found = self._operators.get(overload)
        if found is None:
            found = self._operators[overload] = Operator(overload)
        return found

    def recorded(self, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """New tensors for the results of a call, and the call in the graph."""
        operator = self.operator(overload)
        operand = self._operand
        key: list[Any] = [overload]
        values = [operand(item, key) for item in args]
        named = {}
        for name, item in kwargs.items():
            key.append(name)
            named[name] = operand(item, key)
        known = tuple(key)
        recipe = self._known.get(known)
        if recipe is None:
            recipe = self._recipe(operator, args, kwargs)
            if recipe.keeps:
                self._known[known] = recipe
        if recipe.plain:
            return recipe.results
        return self._made(operator, args, kwargs, operator.bound(values, named), recipe)

    def _recipe(self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Recipe:
        """What the results are like.  Raises StaticAxesError where torch takes the user's example alone."""
        try:
            found: Recipe = self.layouts.recipe(operator, args, kwargs)
            return found
        except (ExportError, UnfollowedError):
            raise
        except Exception as error:
            given = [item.layout_.sizes for item in tensors_in(args, kwargs) if type(item) is Recorded]
            names = {name for sizes in given for size in sizes if isinstance(size, Size) for name in size.symbols}
            if not names & self.enlarged:
                raise
            raise StaticAxesError(names & self.enlarged, self.line()) from error

    def _operand(self, item: Any, key: list[Any]) -> Arg:
        kind = type(item)
        if kind is Recorded:
            key.append(item.layout_)
            return item.value
        if item is None or kind in _NUMBERS:
            key.append(kind)
            key.append(item)
            return item
        if kind in (list, tuple):
            key.append(len(item))
            return [self._operand(one, key) for one in item]
        if kind in SYMBOLIC:
            number = item.node
            key.append(number.key)
            return self.emitted(number)
        if isinstance(item, torch.Tensor):
            owned = self.owned(item)
            key.append(owned.layout)
            return owned.value
        if isinstance(item, _OBJECTS):
            key.append(item)
            return item
        if kind is torch.ScriptObject:
            return self.packed(item).values
        if not isinstance(item, torch.Generator):
            self.refuse(f"gives an operator a {kind.__name__}, which a trace does not record")
        return None

    def _made(
        self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], bound: dict[str, Any], made: Recipe
    ) -> Any:
        recipe = made.results
        source = self.source()
        place = len(self.log)
        tensors = tensors_in(args, kwargs)
        free = operator.random or bool(numbers_in(args, kwargs))
        free = free or any(item.free if type(item) is Recorded else self.owned(item).free for item in tensors)
        given = [args[at] if at < len(args) else kwargs.get(operator.names[at]) for at in operator.writes]
        written = tensors_in(given, {})
        if self.rows.runs:
            for item in written:
                self.rows.keep(item)
        if operator.changes_layout:
            for item in written:
                self._emit_sizes(item)
        entry = Entry(operator, args, kwargs, written, tensors)
        self.log.append(entry)
        shared = frozenset[int]().union(*map(self.memory_of, tensors)) if made.shares else None
        apart: list[Call] = []

        def result(layout: Any) -> tuple[Value, Any]:
            if layout is None:
                return Value(TensorType(torch.float32)), None
            if isinstance(layout, list):  # a list of tensors is one value, which is taken apart
                whole = Value(ListType(len(layout)))
                pairs = [result(item) for item in layout]
                for index, (value, _) in enumerate(pairs):
                    apart.append(Call("prim::getitem", {"list": whole, "index": index}, [value], source))
                return whole, [item for _, item in pairs]
            value = Value(layout.type)
            self.questions.note_sizes(value, layout)
            return value, Recorded.of(self, layout, value, place, shared or self.memory(), free)

        outputs: list[Value] = []
        results: list[Any] = []
        for index, layout in enumerate(recipe if isinstance(recipe, tuple) else [recipe]):
            same = operator.same[index] if index < len(operator.same) else None
            if same is None or layout is None:
                value, found = result(layout)
            else:
                value = Value(layout.type)
                found = args[same] if same < len(args) else kwargs[operator.names[same]]
                if type(found) is Recorded and found.layout_ is not layout and operator.changes_layout:
                    found.layout_, found.numbers, found.value = layout, None, value
            outputs.append(value)
            results.append(found)
        for item in written:
            target = item if type(item) is Recorded else self.owned(item)
            target.free = target.free or free
            self._refuse_parameter(target.memory)
        entry.made(results)
        if made.elements is not None:
            entry.ran(made.elements)
        self.graph.calls.append(Call(operator.target, bound, outputs if recipe is not None else [], source))
        self.graph.calls += apart
        if isinstance(recipe, tuple):
            return tuple(results)
        if operator.target == "aten::nonzero":
            self.rows.found(results[0], args[0])
        return results[0] if recipe is not None else None

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Inside, what is recorded is forgotten again where an error ends it."""
        sizes, numbers = self._sizes_of, self._in_block
        self._sizes_of, self._in_block = dict(sizes), []
        first, start = len(self.log), len(self.graph.calls)
        asked = self.decisions.kept()
        try:
            yield
        except BaseException:
            self.decisions.forget_since(asked)
            for number in self._in_block:
                number.value = None
            self._sizes_of, self._in_block = sizes, numbers
            ran = any(entry.done and entry.written for entry in self.log[first:])
            del self.log[first:], self.graph.calls[start:]
            if ran:
                self.refuse("writes to a tensor in a script that asks for its elements, which is not captured")
            raise
        self._in_block = [*numbers, *self._in_block]

    @contextmanager
    def in_block(self) -> Iterator[list[Call]]:
        """Inside, calls go to a list of their own, and numbers that they compute are not known afterwards."""
        outer, sizes, numbers = self.graph.calls, self._sizes_of, self._in_block
        calls = self.graph.calls = []
        self._sizes_of, self._in_block = dict(sizes), []
        self.depth += 1
        first, memory = len(self.log), self._memories
        try:
            yield calls
        finally:
            for number in self._in_block:
                number.value = None
            self.graph.calls, self._sizes_of, self._in_block = outer, sizes, numbers
            self.depth -= 1
            inside = self.log[first:]
            del self.log[first:]
        written = (item for entry in inside for item in entry.written)
        if any(place <= memory for item in written for place in self.memory_of(item)):
            self.refuse("writes in a branch or a loop to a tensor from outside")

    def _refuse_parameter(self, memory: frozenset[int]) -> None:
        names = [self._parameters[place] for place in memory if place in self._parameters]
        if names:
            raise ExportError(
                f"the model writes to its parameters {', '.join(names)} at {self.line()}; write to buffers",
                code="parameters-written",
            )

    def _emit_sizes(self, item: Any) -> None:
        """Put the sizes of a tensor into the graph that the model has asked for, before they become others."""
        if type(item) is Recorded:
            for number in item.numbers or ():
                self.emitted(number.node if isinstance(number, SYMBOLIC) else number)

    # -- numbers

    def symbol(self, name: str) -> Dim:
        """A declared axis as a size."""
        low, high = self.bounds.get(name, (0, None))
        return Size.symbol(name, 0 if name in self.enlarged else max(low, LEAST), high)

    def example_of(self, name: str) -> int:
        """The value of a symbol at the example."""
        return self.sizes[name]

    def steps(self, count: int) -> Size | None:
        """The size that Python took as a number of so many steps, which may be a number of others; None elsewhere."""
        decisions = self.decisions
        required = decisions.required if decisions.stays_open and count > LEAST else ()
        return next((size for size in required if size.at(self.sizes) == count), None)

    def fresh(self, example: int, low: int | None = None, name: str | None = None) -> Size:
        """A size of which nothing is known."""
        name = f"u{len(self.sizes)}" if name is None or name in self.sizes else name
        self.sizes[name] = example
        return Size.symbol(name, low)

    def unknown(self, example: int) -> Any:
        """A number of which the graph knows nothing: a stride that depends on sizes.  No operator may take it."""
        return wrapped(Number(self, int, example, self.fresh(example), (_UNKNOWN, ())))

    def computed(self, target: str, operands: Any, kind: type, example: Any, size: Dim | None) -> Number:
        """A number that follows from others."""
        if kind is int and size is None:
            key = (target, *(item.key if isinstance(item, Number) else item for item in operands))
            size = self._fresh.get(key)
            if size is None:
                size = self._fresh[key] = self.fresh(int(example))
                axes = [self.decisions.axes_of(item) for item in operands if isinstance(item, Number)]
                if None not in axes:
                    self.decisions.behind[str(size)] = frozenset().union(*(names for names in axes if names))
        return Number(self, kind, example, size, (target, operands))

    def emitted(self, number: Any) -> Arg:
        """A number as an argument of a call, with the calls that compute it."""
        if not isinstance(number, Number):
            return number
        if number.fixed:
            return number.example
        if number.value is None:
            self._in_block.append(number)
            first, second = number.origin
            if first is _UNKNOWN:
                self.refuse("computes with the strides of a part of a tensor, which depend on its sizes")
            if isinstance(first, Recorded):
                number.value = self._size_of(first, second)
            else:
                args = {"ab"[place]: self.emitted(item) for place, item in enumerate(second)}
                number.value = self._emit(first, args, number.kind)
        return number.value

    def _emit(self, target: str, args: dict[str, Any], kind: type) -> Value:
        value = Value(ScalarType(kind))
        self.graph.calls.append(Call(target, args, [value], self.source()))
        return value

    def _size_of(self, tensor: Recorded, axis: int) -> Value:
        key = (tensor.value, axis)
        found = self._sizes_of.get(key)
        if found is None:
            found = self._sizes_of[key] = self._emit("aten::size.int", {"self": tensor.value, "dim": axis}, int)
        return found

    def number_of(self, tensor: Recorded, target: str, args: dict[str, Any], kind: type, example: Any) -> Any:
        """A Python number that the graph computes of a tensor."""
        number = Number(self, kind, example, self.fresh(example) if kind is int else None, (target, (tensor,)))
        number.value = self._emit(target, args, kind)
        return wrapped(number)

    def numbers_of_sizes(self, tensor: Recorded) -> list[int]:
        """Sizes for code that takes plain numbers only: what depends on them becomes fixed."""
        return [int(size) for size in tensor.shape]

    # -- questions

    def answer(self, number: Number, by_python: bool = False) -> bool:
        if self.decisions.provable(number) is None:
            self._note_namespace()
            self.scripts.note_decision()
            found = self.decisions.of_full_row(number, self.line()) if self.rows.runs else None
            if found is not None:
                return found
            said = text_of(number)
            if by_python and self.questions.is_turned(lambda: self.emitted(number), bool(number.example), said):
                return not number.example
        return self.decisions.answer(number, self.line(), by_python)

    def provable(self, number: Number) -> bool | None:
        return self.decisions.provable(number)

    def assume(self, number: Number) -> bool:
        return self.decisions.assume(number, self.line())

    def may_be_key(self) -> bool:
        """Whether the code that asks for a hash calls a function that keeps its results.

        In any other dict there may be Python's numbers among the keys, which a symbolic one would not find.
        """
        frame = asking_frame()
        return frame is not None and calls_kept(frame)

    def is_asked_by_torch(self) -> bool:
        """Whether code of torch asks, and not that of the model."""
        frame = asking_frame()
        return frame is not None and frame.f_code.co_filename.startswith(_TORCH)

    def _note_namespace(self) -> None:
        """Note the module that calls a builtin which would keep the number, if it had our form there."""
        frame = asking_frame()
        if frame is None or NAMES.isdisjoint(frame.f_code.co_names):
            return
        if not any(frame.f_globals is one for one in self.namespaces):
            self.namespaces.append(frame.f_globals)

    def require(self, number: Number) -> Any:
        if isinstance(number.origin, tuple) and number.origin[0] is _UNKNOWN:
            self.emitted(number)
        self._note_namespace()
        self.scripts.note_decision()
        return self.hold(number)

    def hold(self, number: Number) -> Any:
        """The number of the example, which the model needs as a number."""
        line = self.line()
        text = f"the model takes a number at {line} that the data decides; the file has that of the example"
        self.decisions.require(number, line, text)
        return number.example

    def written(self, number: Number) -> Any:
        """The number of the example, for a text."""
        self.decisions.taken.update(dict.fromkeys(arguments_in(number), self.line()))
        self.decisions.of_data.setdefault(
            f"the model writes the number {text_of(number)} into a text at {self.line()}; the file has the text of the "
            f"example, for which it is {number.example}"
        )
        return number.example

    def note_data(self, tensor: Recorded, what: str) -> str | None:
        """Note that Python takes something that the elements decide; the remark, and None where constants decide."""
        if not tensor.free:
            return None
        self.scripts.note_decision()
        hint = "; script the function or use torch.cond for both" if what == "a truth value" else ""
        said = f"the model takes {what} at {self.line()} that the data decides; the file has that of the example{hint}"
        self.decisions.of_data.setdefault(said)
        return said

    def elements_of(self, tensor: Recorded) -> torch.Tensor:
        """The elements of a tensor, all of which Python takes: so many as there are in the example."""
        self.note_data(tensor, "numbers")
        for name in self._axes_behind(tensor):
            self.decisions.learn(self.symbol(name), self.sizes[name], self.line())
        return self.elements.of(tensor)

    def elements_as_in_example(self, tensor: Recorded) -> list[torch.Tensor]:
        """The elements of a tensor along its first axis: as many as in the example, where the data decides how many."""
        size = tensor.layout_.sizes[0]
        if isinstance(size, Size) and self.declared.issuperset(size.symbols):
            int(tensor.shape[0])
        else:
            self.scripts.note_decision()
            self.counts[tensor.value] = self.line()
        return [tensor.select(0, index) for index in range(tensor.layout_.example[0])]

    def _axes_behind(self, tensor: Recorded) -> list[str]:
        """The declared axes of a tensor whose elements Python takes all of."""
        found = {name for size in tensor.layout_.sizes if isinstance(size, Size) for name in size.symbols}
        return sorted(found & self.declared)

    # -- places

    def line(self) -> str:
        """The line of the model that is running."""
        frames, _ = frames_of(sys._getframe(1), self.root)
        found = users_frame(self._lines.of(frames))
        return f"{found[0]}:{found[1]}" if found else "the model"

    def source(self) -> Source:
        frames, module = frames_of(sys._getframe(1), self.root)
        scope = self.modules.get(module, "") if module is not None else ""
        lines = self._lines
        return Source("" if scope == "(root)" else scope, lambda: lines.of(frames))

    def refuse(self, what: str) -> NoReturn:
        """Raise ExportError for what cannot be recorded exactly."""
        raise ExportError(
            f"the model {what}, at {self.line()}; use capture='export'",
            code="trace-cannot-record",
        )
