"""Records calls into the graph or the current body, and runs them on fake tensors for their types.

The `ScriptState` contains everything that belongs to the current body; a new body is a fork of it.  Everything else
(the fakes of all values, their producers, the model's tensors) only grows, and all bodies use the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from proto_schema.sizes import Size
from purexport.aten import scalars
from purexport.aten.graph import (
    AtenValue,
    Call,
    Input,
    ListType,
    Recording,
    ScalarType,
    SequenceType,
    Source,
    TensorType,
    Type,
    map_values,
    same_bytes,
    tensor_type,
)
from purexport.aten.names import base_of
from purexport.aten.schema import changes_shape, dtype_from_code, signature
from purexport.dtypes import stored_dtype
from purexport.errors import ExportError
from purexport.frontends.script.sequence_aliasing import SequenceAliasing
from purexport.frontends.script.state import ScriptState
from purexport.frontends.script.values import Changeable, FakeSequence, ScriptDict, ScriptList
from purexport.shapes.failures import code_of
from purexport.shapes.fakes import Axes, FakeMachine

_QUANTIZING = ("quantized::", "aten::quantize_per")
_FLOAT_RESULT = re.compile("^quantized::.*_dynamic|^quantized::embedding|^aten::dequantize|^aten::int_repr")


class ScriptRecorder:
    """The graph that is recorded, and the state of the current body."""

    def __init__(self, shapes: FakeMachine) -> None:
        self.shapes = shapes
        self.graph = Recording()
        self.fakes: dict[AtenValue, Any] = {}
        self.sizes: dict[AtenValue, tuple[Any, ...]] = {}  # of tensors with symbolic sizes, when they were made
        self.producers: dict[AtenValue, Call] = {}
        self.owned: dict[tuple[Any, ...], AtenValue] = {}
        self.owners: dict[AtenValue, str] = {}  # the module path of each parameter
        self.quantized: dict[
            AtenValue, Any
        ] = {}  # what may be a quantized tensor, of which the fakes are plain: its dtype
        self.aliasing = SequenceAliasing()
        self.state = ScriptState(calls=self.graph.calls)

    # -- bodies

    @contextmanager
    def body(self, condition: AtenValue | None = None, holds: bool = True) -> Iterator[ScriptState]:
        """Inside, record into the body of a branch or loop, on a fork of the state.

        In the body `condition` is known to be `holds`.  Afterwards the state from before is current again, lists, dicts
        and objects have their former content, and what was learnt of sizes is forgotten: the body may not run.
        """
        outer, knowledge = self.state, self.shapes.knowledge
        self.state = inner = outer.fork(first=len(self.fakes))
        before = knowledge.now()
        if condition is not None:
            inner.assume(condition, holds, self.producers)
            for part, side in inner.assumptions.items():
                knowledge.assume(self.fakes.get(part), side)
        assumed, said = knowledge.now(), self._merged()
        try:
            yield inner
        finally:
            self.state = outer
            inner.put_back()
            inner.merged = [text for text in self._merged() if text not in said]
            inner.learnt = knowledge.leave(before, assumed)

    def _merged(self) -> list[str]:
        return [*self.shapes.merged(), *self.shapes.settled()]

    @contextmanager
    def resumed(self, body: ScriptState) -> Iterator[None]:
        """Inside, record further calls at the end of a body that is already interpreted."""
        outer, self.state = self.state, body
        try:
            yield
        finally:
            self.state = outer

    def adopt(self, body: ScriptState, source: Source) -> None:
        """Make a body part of the body around it, for which what the body learnt holds too."""
        if body.learnt is not None:
            self.shapes.knowledge.take(body.learnt)
        self.state.calls.extend(body.calls)
        self.state.remarks.extend(body.remarks)
        self.state.numbers.update(body.numbers)
        for item in body.made.values():
            self.state.make(item)
        for item, content in body.after.values():
            self.change(item, content, source)

    def touch(self, item: Changeable, source: Source) -> None:
        """Must be called before `item` changes.  Raises ExportError when it must not change."""
        if item.frozen:
            raise ExportError(
                f"the script changes a list or dict at {source} that may or may not be the one of another name, "
                f"because of {item.frozen}; change a copy (list(...)), or assign a new one",
                code="alias-unknown",
            )
        self.state.save(item)

    def change(self, item: Any, content: Any, source: Source) -> None:
        """Give a list, dict or object the content of another.  Raises as `touch`."""
        self.touch(item, source)
        item.become(content)

    def remark(self, *texts: str) -> None:
        """Tell the user something about the file, once, if the current body becomes part of the file."""
        self.state.remarks.extend(texts)

    # -- values

    def value(self, fake: Any) -> AtenValue:
        """A value of the type of `fake`."""
        if isinstance(fake, FakeSequence):
            value = AtenValue(SequenceType(self.shapes.type(fake.element)))
        else:
            value = AtenValue(self.shapes.type(fake))
        self.fakes[value] = fake
        if isinstance(value.type, TensorType) and any(isinstance(size, Size) for size in value.type.shape or ()):
            self.sizes[value] = tuple(fake.shape)  # the fake may be given another shape in place
        return value

    def input(self, name: str, type_: TensorType, axes: Axes) -> AtenValue:
        """A graph input."""
        value = self.value(self.shapes.tensor(type_, axes))
        self.graph.inputs.append(Input(value, name, "user"))
        return value

    def settled_values(self) -> dict[AtenValue, AtenValue]:
        """New values for those whose axes the script has specialized or made equal by now."""
        found = {}
        settled = self.shapes.fixed() or self.shapes.merged()
        for value, sizes in self.sizes.items() if settled else ():
            now = self.shapes.type(torch.empty(sizes, dtype=value.tensor.dtype))
            found[value] = AtenValue(replace(value.tensor, shape=now.shape))
        return found

    def constant(self, tensor: torch.Tensor, name: str = "constant") -> AtenValue:
        """A value for a known tensor."""
        value = self.graph.constant(tensor, name)
        self.fakes[value] = self.shapes.constant(tensor)
        return value

    def model_tensor(self, tensor: torch.Tensor, path: str, kind: str) -> AtenValue:
        """The value of a tensor that the model owns; there is one value for all names of the tensor."""
        key = same_bytes(tensor)
        if key not in self.owned:
            value = AtenValue(tensor_type(tensor))
            self.graph.inputs.append(Input(value, path, kind, tensor))
            if kind == "parameter":
                self.owners[value] = path.rpartition(".")[0]
            self.fakes[value] = self.shapes.tensor(tensor_type(tensor), {})
            self.owned[key] = value
        return self.owned[key]

    def written_tensors(self) -> set[AtenValue]:
        """The tensors of the model that the script has written to in place."""
        return {value for value in self.owned.values() if self.aliasing.is_written(self.fakes[value])}

    def own(self, item: Any) -> Any:
        """Note a list or dict that the script makes in the current body and may therefore change in it."""
        if type(item) is list:
            item = ScriptList(item)
        elif type(item) is dict:
            item = ScriptDict(item)
        if isinstance(item, (ScriptList, ScriptDict)):
            self.state.make(item)
        return item

    def describe(self, item: Any) -> str:
        """A description of a value for error messages: its type, and the line that made it."""
        call = self.producers.get(item) if isinstance(item, AtenValue) else None
        made = f" (made at {call.source})" if call is not None else self._given(item)
        if isinstance(item, AtenValue):
            return (f"a tensor {item.type}" if isinstance(item.type, TensorType) else f"a computed {item.type}") + made
        names = {list: "a list", tuple: "a tuple", dict: "a dict"}
        return next((name for kind, name in names.items() if isinstance(item, kind)), f"{item!r}")

    def _given(self, item: Any) -> str:
        name = next((f" ({given.name!r})" for given in self.graph.inputs if given.value is item), "")
        return name if isinstance(item, AtenValue) else ""

    # -- calls

    def add(self, call: Call) -> None:
        """Put a call into the graph."""
        self.state.calls.append(call)
        for value in call.outputs:
            self.producers[value] = call
        of_quantized = [self.quantized[value] for value in call.inputs() if value in self.quantized]
        if (call.target.startswith(_QUANTIZING) or of_quantized) and not _FLOAT_RESULT.search(call.target):
            code = call.args.get("dtype") if call.target.startswith("aten::quantize_per") else None
            dtype = dtype_from_code(code) if isinstance(code, int) else code
            self.quantized.update(dict.fromkeys(call.outputs, dtype or next(iter(of_quantized), None)))
        self.aliasing.note_writes(call, self.fakes)

    def retarget(self, value: AtenValue, target: str) -> None:
        """Let the call that was recorded last, which makes `value`, be one of another operator."""
        assert self.state.calls[-1].outputs == (value,), "another call was recorded behind it"
        call = self.state.calls[-1] = replace(self.state.calls[-1], target=target)
        self.producers[value] = call

    def emit(self, target: str, args: dict[str, Any], fake: Any, source: Source) -> AtenValue:
        """Record a call whose result has the type of `fake`."""
        value = self.value(fake)
        self.add(Call(target, args, [value], source))
        return value

    def record(self, target: str, args: dict[str, Any], source: Source, kind: Any = None) -> Any:
        """Record a call and run it on fake tensors; a number that needs no data is returned as a plain number.

        `kind` is the type of a result that is a number, where the script declares it.
        """
        args = {name: map_values(arg, lambda value: value) for name, arg in args.items()}  # lists may change later
        type_: Type = ListType()
        if scalars.is_scalar_operator(base_of(target)) and not any(_is_tensor(arg) for arg in args.values()):
            type_ = ScalarType(int)
        if target == "aten::int_repr":
            type_ = TensorType(self._integers_of(args["self"], source), None)
        call = Call(target, args, [AtenValue(type_)], source)
        self._refuse_new_shape(call)
        if kind in (int, float) and self._is_held_fixed(call):
            return self.emit(target, args, self.shapes.unknown(kind), source)
        try:
            results = self.shapes.evaluate(call, self.fakes.__getitem__)
        except ExportError:
            raise
        except Exception as error:
            if kind is not None and not any(_is_tensor(arg) for arg in args.values()):
                return self.emit(target, args, self.shapes.unknown(kind), source)
            reason = self.shapes.named(str(error).strip().partition("\n")[0]) or type(error).__name__
            raise ExportError(
                f"{target} at {source} does not run: {reason}", code=code_of(error, "call-does-not-run")
            ) from error
        result = results[0]
        if isinstance(result, tuple):
            call = replace(call, outputs=[self.value(item) for item in result])
            self.add(call)
            return tuple(call.outputs)
        if isinstance(result, list) and result and isinstance(result[0], torch.Tensor):
            self.add(call)
            self.fakes[call.outputs[0]] = result
            return [self._take(call.outputs[0], index, item, source) for index, item in enumerate(result)]
        if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(call, torch.sym_float(result) if kind is float else result)  # type: ignore[no-untyped-call]
        if result is None and signature(target).writes:  # no result, but a write
            self.add(replace(call, outputs=[]))
        if not isinstance(result, torch.Tensor):
            return result
        made = self.value(result)
        self.add(replace(call, outputs=[made]))
        return made

    def _is_held_fixed(self, call: Call) -> bool:
        """Whether torch would take the example's number of a float that follows from sizes, as `math.exp` does."""
        if scalars.is_scalar_operator(call.base) or any(map(_is_tensor, call.args.values())):
            return False
        return any(
            isinstance(self.fakes[item], torch.SymFloat) for item in call.args.values() if isinstance(item, AtenValue)
        )

    def _integers_of(self, value: AtenValue, source: Source) -> torch.dtype:
        """The dtype of a quantized tensor's integers."""
        dtype = self.quantized.get(value)
        if dtype is None:
            raise ExportError(
                f"the script asks for the integers at {source} of {self.describe(value)}, whose quantized dtype is not "
                "known; export the module itself by trace",
                code="script-hides-effect",
            )
        return stored_dtype(dtype)

    def _refuse_new_shape(self, call: Call) -> None:
        """Refuse a new shape for a tensor from outside a body: the code after the body knows only one shape of it."""
        changed = call.args.get("self")
        if not self.state.is_fork or not isinstance(changed, AtenValue) or not changes_shape(call.target):
            return
        place = next(place for place, value in enumerate(self.fakes) if value is changed)
        # the model's tensors are read at their first use
        if place < self.state.first or any(item.value is changed for item in self.graph.inputs):
            raise ExportError(
                f"{call.target} at {call.source} changes the shape of a tensor in place, inside a branch or loop that "
                "depends on data; use the form that is not in place",
                code="shape-changed-in-place",
            )

    def _number(self, call: Call, result: Any) -> Any:
        """A symbolic number: plain where it is known, else one value for all sizes with equal expressions."""
        known = self.shapes.known(result)
        if known is not None:
            return known
        key = str(result.node.expr)
        if key not in self.state.numbers:
            made = self.state.numbers[key] = self.value(result)
            self.add(replace(call, outputs=[made]))
        return self.state.numbers[key]

    def _take(self, items: AtenValue, index: int, fake: Any, source: Source) -> AtenValue:
        return self.emit("prim::getitem", {"list": items, "index": index}, fake, source)


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg, AtenValue) and isinstance(arg.type, TensorType)
