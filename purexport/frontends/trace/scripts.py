"""Scripts that the model calls: torch runs them, and what they call is recorded, unless they decide something.

A script that decides by sizes or elements is interpreted: its loops and branches are calls with blocks, as where the
model is a script.  What it was recorded to do until it decided is forgotten.  The sizes of its arguments are axes of
the interpretation, each under a name of its own, and the sizes of its results are read back in their terms.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from proto_schema.sizes import Size
from purexport.aten.graph import AtenValue as Value
from purexport.aten.graph import Call, ScalarType, SequenceType, TensorType, Type, with_values
from purexport.aten.schema import signature
from purexport.frontends.trace.data import Entry
from purexport.frontends.trace.numbers import SYMBOLIC, Number, wrapped
from purexport.frontends.trace.tensors import Layout, Recorded
from purexport.torch_patches.before_composites import below
from purexport.torch_patches.fakes import counts_typed
from purexport.torch_patches.torch_jit import script_of_traces


class DecidesError(Exception):
    """A script decides by sizes or elements."""


class ScriptOfTracesError(Exception):
    """A function decides that torch's tracer would have as a script; the model runs again, in which it is one."""

    def __init__(self, function: Any) -> None:
        self.function = function
        super().__init__(str(function))


class Scripts:
    """The scripts of one capture that are running; `owner` is the recorder."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._running = 0
        self._decides = False
        self.interpreted = False
        self.remarks: list[str] = []

    def run(self, script: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[..., Any]) -> Any:
        """What a script gives."""
        if self._running:
            return run(*args, **kwargs)
        self._decides = False
        self._running += 1
        try:
            with self.owner.attempt():
                return run(*args, **kwargs)
        except Exception:
            if not self._decides:  # torch has made another error of it
                raise
        finally:
            self._running -= 1
        self.interpreted = True
        call = _Interpreted(self.owner, script, run)
        result = call.result(args, kwargs)
        self.remarks += call.remarks
        return result

    def note_decision(self) -> None:
        """End the script that makes a decision by sizes or elements, if one is running."""
        if self._running:
            self._decides = True
            raise DecidesError
        function = script_of_traces(sys._getframe(1), self.owner.root)
        if function is not None:
            raise ScriptOfTracesError(function)


class _Kernel:
    """A script as what the recorder knows of an operator."""

    target, random, changes_layout = "script", False, False

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self.kernel = kernel


class _Interpreted:
    """One call of a script."""

    def __init__(self, recorder: Any, script: Any, run: Callable[..., Any]) -> None:
        self.recorder = recorder
        self.script = script
        self.kernel = _Kernel(run)
        self.labels: dict[Size, str] = {}  # the names of sizes in the interpretation
        self.tensors: list[torch.Tensor] = []  # the arguments, in order
        self.remarks: list[str] = []
        self.numbers: dict[Value, Value] = {}  # those of the interpretation, and ours

    def result(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorder = self.recorder
        found = self._interpreted(args, kwargs)
        if found.graph.assigned:
            recorder.refuse("assigns to an attribute in a script, which is not captured there")
        given = [item.value for item in found.graph.inputs if item.tensor is None]
        same = dict(zip(given, self.tensors, strict=True))
        outside = {value: recorder.value_of(tensor) for value, tensor in same.items()} | self.numbers
        outside |= {
            item.value: recorder.owned(item.tensor).value for item in found.graph.inputs if item.tensor is not None
        }
        made: dict[Value, Value] = {}

        def ours(value: Value) -> Value:
            if value in outside:
                return outside[value]  # type: ignore[no-any-return]
            if value not in made:
                made[value] = Value(_for_all_sizes(value.type))
            return made[value]

        for size, label in self.labels.items():
            if label in found.fixed:
                recorder.hold(Number(recorder, int, size.at(recorder.sizes), size, None))
        calls = [with_values(call, ours, ours) for call in found.graph.calls]
        recorder.graph.calls += calls
        leaves, spec = pytree.tree_flatten(found.result)
        written = self.tensors if any(map(_writes, calls)) else []
        entry = Entry(self.kernel, args, kwargs, written, self.tensors)  # type: ignore[arg-type]
        real: list[Any] = []

        def example(place: int) -> Any:
            if not real:
                real.extend(pytree.tree_leaves(recorder.elements.result_of(self.kernel, args, kwargs)))
            return real[place]

        memory = frozenset[int]().union(*map(recorder.memory_of, self.tensors)) | recorder.memory()
        results = []
        for place, item in enumerate(leaves):
            if item in same:
                results.append(same[item])
            elif not isinstance(item, Value):
                results.append(item)
            elif isinstance(item.type, TensorType):
                layout = self._layout(item.type, functools.partial(example, place))
                results.append(Recorded.of(recorder, layout, ours(item), len(recorder.log), memory, True))
            elif isinstance(item.type, ScalarType):
                results.append(self._number(item.type.kind, ours(item), example(place)))
            else:
                recorder.refuse("takes a list of tensors from a script that is as long as the data decides")
        entry.made(results)
        recorder.log.append(entry)
        self.remarks = found.remarks
        return pytree.tree_unflatten(results, spec)

    def _interpreted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from purexport.frontends.script import interpreter  # it loads sympy, and few scripts decide
        from purexport.frontends.script.route import positional

        leaves, spec = pytree.tree_flatten((list(args), dict(kwargs)))

        def given(machine: Any) -> list[Any]:
            self.tensors, self.numbers = [], {}
            return positional(
                self.script, *pytree.tree_unflatten([self._given(machine, item) for item in leaves], spec)
            )

        path = self.recorder.modules.get(self.script, "") if isinstance(self.script, torch.nn.Module) else ""
        lists = self.recorder.loops_carry_lists
        with below(), torch._C.DisableTorchFunction(), counts_typed():
            return interpreter.interpret_call(self.script, path, given, lists=lists)

    def _given(self, machine: Any, item: Any) -> Any:
        """An argument as the interpretation has it."""
        recorder = self.recorder
        if isinstance(item, torch.Tensor):
            layout = recorder.layouts.layout_of(item)
            axes = {axis: self._label(size) for axis, size in enumerate(layout.sizes) if isinstance(size, Size)}
            self.tensors.append(item)
            return machine.input(f"argument{len(self.tensors)}", layout.type, axes)
        if not isinstance(item, SYMBOLIC):
            return item
        number = item.node
        if number.fixed:
            return number.example
        symbolic = isinstance(number.size, Size)
        fake = (
            machine.shapes.symbol(self._label(number.size), number.example)
            if symbolic
            else machine.shapes.unknown(number.kind)
        )
        found = machine.value(fake)
        self.numbers[found] = recorder.emitted(number)
        return found

    def _label(self, size: Size) -> str:
        return self.labels.setdefault(size, str(size))

    def _layout(self, type_: TensorType, example: Callable[[], torch.Tensor]) -> Layout:
        """The layout of a result; the script runs for the example where its sizes do not say it."""
        recorder = self.recorder
        names = {label: size for size, label in self.labels.items()}
        sizes = [size.replaced(names) if isinstance(size, Size) else size for size in type_.shape or ()]
        shape = [size.at(recorder.sizes) if isinstance(size, Size) else size for size in sizes if self._is_known(size)]
        if type_.shape is None or len(shape) < len(sizes):
            shape = list(example().shape)
            pairs = zip(sizes or [None] * len(shape), shape, strict=True)
            sizes = [size if self._is_known(size) else recorder.fresh(of) for size, of in pairs]
        with below():
            strides = tuple(torch.empty([size or 0 for size in shape], device="meta").stride())
        meta = recorder.layouts.meta(tuple(shape), strides, type_.dtype)
        found: Layout = recorder.layouts.layout(meta, tuple(sizes), type_.dtype)
        return found

    def _is_known(self, size: Any) -> bool:
        return isinstance(size, int) or (isinstance(size, Size) and size.symbols <= self.recorder.sizes.keys())

    def _number(self, kind: type, value: Value, example: Any) -> Any:
        recorder = self.recorder
        number = Number(recorder, kind, example, recorder.fresh(example) if kind is int else None, ("script", ()))
        number.value = value
        return wrapped(number)


def _for_all_sizes(type_: Type) -> Type:
    """The type without the names of sizes, which are those of the interpretation."""
    if isinstance(type_, SequenceType):
        element = _for_all_sizes(type_.element)
        assert isinstance(element, TensorType)
        return replace(type_, element=element)
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    shape = tuple([size if isinstance(size, int) else None for size in type_.shape])
    return TensorType(type_.dtype, shape, type_.strides if None not in shape else None)


def _writes(call: Call) -> bool:
    """Whether a call, or one of its blocks, writes to a tensor."""
    inside = any(_writes(item) for block in call.blocks for item in block.calls)
    return inside or (not call.target.startswith(_WITHOUT_SCHEMA) and bool(signature(call.target).writes))


_WITHOUT_SCHEMA = ("prim::", "sequence::")
