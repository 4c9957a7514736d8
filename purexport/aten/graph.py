"""The neutral graph: what a model computes, as calls of ATen operators, whichever front end recorded it.

A `Call` names its operator as ATen does (`aten::sum.dim_IntList`; the default overload has no suffix) and holds
its arguments by name with the schema's defaults filled in.  An argument is a `AtenValue`, a Python constant, or a list
of those.  Invariants: a value has one producer (a call or a graph input); calls are in execution order; no object of a
front end (TorchScript node, fx node) appears here, except behind `Source`, which only makes text of it.

A graph is a value: calls, values, inputs and the graph itself are frozen when they are made.  A front end writes into a
`Recording`; a later stage makes new calls, and what it learns of a value stands in a table of its own.  So a graph is
captured once and lowered any number of times.

Dimensions are `int` where they cannot change, otherwise a `Size`: an expression of the declared axis names (`batch`,
`2*batch`).  Two expressions are equal when the sizes are equal.  `None` is an unknown dimension.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, field, replace
from types import MappingProxyType
from typing import Any

import torch

from proto_schema.external.payload import Payload
from proto_schema.sizes import Size
from proto_schema.wire.records import dataclass
from purexport.aten.names import base_of

Dim = int | Size | None

# Namespace of our own operators.  Each has exactly the schema of `aten::name`, and a reader renames it to that.
OWN_NAMESPACE = "purexport"


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor's dtype and, where known, shape and strides (strides only where the front end recorded them)."""

    dtype: torch.dtype
    shape: tuple[Dim, ...] | None = None
    strides: tuple[Dim, ...] | None = None

    @property
    def rank(self) -> int | None:
        """The number of dimensions, None when unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def known_strides(self) -> tuple[int, ...] | None:
        """The strides, where all of them are numbers."""
        found = tuple([stride for stride in self.strides or () if isinstance(stride, int)])
        return found if self.strides is not None and len(found) == len(self.strides) else None

    def __str__(self) -> str:
        dims = "*" if self.shape is None else ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{str(self.dtype).removeprefix('torch.')}[{dims}]"


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A Python number (`int`, `float`, `bool`) that the graph computes, such as a size."""

    kind: type

    def __str__(self) -> str:
        return self.kind.__name__


@dataclass(frozen=True, slots=True)
class ListType:
    """A Python list or tuple whose elements are taken out by `prim::getitem` calls.

    `count` is how many there were when it was recorded; None where that is not known.
    """

    count: int | None = None

    def __str__(self) -> str:
        return "list"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of tensors whose length is known only at run time: an ONNX sequence.

    A dimension in which the elements may differ is None.
    """

    element: TensorType

    def __str__(self) -> str:
        return f"list of {self.element}"


Type = TensorType | ScalarType | ListType | SequenceType


class AtenValue:
    """One result in the graph.  Values compare by identity: two are the same only if they are one object.

    This is no dataclass, because those are containers of results (`frontends/core/structures.py`).
    """

    __slots__ = ("type",)

    type: Type

    def __init__(self, type: Type) -> None:
        object.__setattr__(self, "type", type)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    @property
    def tensor(self) -> TensorType:
        """The type, for a value that must be a tensor.  Raises TypeError when it is not."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"a tensor is needed here, and this is a value of type {self.type}")
        return self.type


Arg = Any  # Value | None | bool | int | float | complex | str | torch.dtype | ... | list["Arg"]

Frame = tuple[str, int]  # file and line

# The folders of this package whose functions are on the stack between the user's line and torch during a capture.
_ROOMS = ("aten", "frontends", "compat", "stages", "torch_patches")
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_ENTRY = os.path.join(_PACKAGE, "driver.py")
_OURS = (*(os.path.join(_PACKAGE, room, "") for room in _ROOMS), _ENTRY, "<eval_with_key>")
_TORCHS = ("/torch/", "\\torch\\")
INSIDE_TORCH = (*_TORCHS, *_OURS)


def users_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost line of the model, of frames that begin with the innermost; None where there is none.

    It is torch's own for a model of torch's modules alone, and that of the export for one without lines of Python.
    """
    torchs: Frame | None = None
    for frame in frames:
        if frame[0] == _ENTRY and torchs is not None:
            break
        if any(part in frame[0] for part in _OURS):
            continue
        if not any(part in frame[0] for part in _TORCHS):
            return frame
        torchs = torchs or frame
    return torchs


class Source:
    """Where a call comes from: the user's line and the module path.  The frames are parsed when first asked for."""

    __slots__ = ("_frames", "_line", "scope")

    def __init__(self, scope: str = "", frames: Callable[[], Iterable[Frame]] | None = None) -> None:
        self.scope = scope
        self._frames = frames
        self._line: str | None = None

    @property
    def line(self) -> str:
        """`model.py:42`: the model's line as `users_frame` finds it; empty when nothing was recorded."""
        if self._line is None:
            found = users_frame(self._frames()) if self._frames else None
            self._line = f"{found[0]}:{found[1]}" if found else ""
        return self._line

    @property
    def stack(self) -> tuple[Frame, ...]:
        """The lines outside of this package, innermost first, each once however deep a function calls itself."""
        frames = dict.fromkeys(self._frames()) if self._frames else ()
        return tuple(frame for frame in frames if not any(part in frame[0] for part in _OURS))

    def within(self, path: str) -> Source:
        """The same place, as the module at `path` sees it."""
        return Source(self.scope.removeprefix(path).removeprefix("."), self._frames)

    def __str__(self) -> str:
        line = self.line
        scope = self.scope or "the model"
        return f"{scope} ({line})" if line else scope


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The body of a branch or a loop.  It can use values from outside; the body of a loop also has its own inputs."""

    calls: Sequence[Call]
    outputs: Sequence[Arg]
    inputs: Sequence[AtenValue] = ()

    def __post_init__(self) -> None:
        _fix(self, "calls", "outputs", "inputs")

    def outer(self) -> Iterator[AtenValue]:
        """The values from outside that the body uses."""
        own = set(self.inputs)
        for call in self.calls:
            yield from (value for value in call.inputs() if value not in own)
            own.update(call.outputs)
        yield from (value for value in values_in(self.outputs) if value not in own)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One operator call: `outputs = target(**args)`.

    `prim::If` has two blocks and the argument `condition`.
    `prim::Loop` has one block.  Its inputs are the step and the carried values, its outputs are the condition and the
    carried values.  The arguments of the call are `most` (None: no bound), `condition` and `carried`.
    `prim::Scan` has one block, which runs on the rows of the tensors `rows`, one after the other.  Its inputs are the
    carried values (`init` at first) and one row of each tensor.  Its outputs are the carried values and the values that
    are stacked.  Without rows, `count` says how many steps there are, and the last input is the number of the step.
    """

    target: str
    args: Mapping[str, Arg]
    outputs: Sequence[AtenValue]
    source: Source = field(default_factory=Source)
    blocks: Sequence[Block] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", MappingProxyType(dict(self.args)))
        _fix(self, "outputs", "blocks")

    def inputs(self) -> Iterator[AtenValue]:
        """Every value among the arguments, lists included, and every outer value that the blocks use."""
        yield from values_in(self.args.values())
        for block in self.blocks:
            yield from block.outer()

    @property
    def base(self) -> str:
        """The target without its overload: `aten::sum` of `aten::sum.dim_IntList`."""
        return base_of(self.target)


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """A graph input: what the user passes, or what the model owns.

    What the model owns is a `tensor`.  Where only the file needs the values and no rule sees them, it is the bytes in
    `stored`.
    """

    value: AtenValue
    name: str
    kind: str  # "user" | "parameter" | "buffer" | "constant"
    tensor: torch.Tensor | None = None
    stored: Payload | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """A buffer that the model replaces (`self.state = new`), and the new tensor; None when that is unknown."""

    input: Input
    value: Arg
    place: str = "the model"


@dataclass(frozen=True, slots=True, eq=False)
class AtenGraph:
    """Inputs, calls and outputs; `outputs` holds one argument per flat output, named in `output_names`."""

    inputs: Sequence[Input] = ()
    calls: Sequence[Call] = ()
    outputs: Sequence[Arg] = ()
    output_names: Sequence[str] = ()
    assigned: Sequence[Assigned] = ()

    def __post_init__(self) -> None:
        _fix(self, "inputs", "calls", "outputs", "output_names", "assigned")

    def with_inputs(self, inputs: Iterable[Input]) -> AtenGraph:
        """The graph with other inputs of the same values, in any order, also where something refers to an input."""
        found = {item.value: item for item in inputs}
        assigned = [replace(item, input=found[item.input.value]) for item in self.assigned]
        return replace(self, inputs=tuple(found.values()), assigned=assigned)

    def __str__(self) -> str:
        return format_graph(self)


@dataclass(slots=True, eq=False)
class Recording:
    """A graph that a front end is still writing."""

    inputs: list[Input] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def constant(self, tensor: torch.Tensor, name: str = "constant") -> AtenValue:
        """A value that holds `tensor`.  The tensor is referenced, not copied."""
        value = AtenValue(tensor_type(tensor))
        self.inputs.append(Input(value, name, "constant", tensor))
        return value

    def graph(self, outputs: Sequence[Arg]) -> AtenGraph:
        """What is recorded by now, as a graph."""
        return AtenGraph(self.inputs, self.calls, outputs)


def _fix(item: Any, *names: str) -> None:
    """Let the fields of a frozen object be tuples."""
    for name in names:
        object.__setattr__(item, name, tuple(getattr(item, name)))


def every_call(calls: Iterable[Call]) -> Iterator[Call]:
    """The calls, each followed by those of its blocks."""
    for call in calls:
        yield call
        for block in call.blocks:
            yield from every_call(block.calls)


def values_in(args: Iterable[Arg]) -> Iterator[AtenValue]:
    """Every value in `args`, nested lists included, in order."""
    for arg in args:
        if isinstance(arg, AtenValue):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from values_in(arg)


def map_values(arg: Arg, function: Callable[[AtenValue], Arg]) -> Arg:
    """`arg` with `function` applied to each value in it, nested lists included."""
    if isinstance(arg, AtenValue):
        return function(arg)
    if isinstance(arg, (list, tuple)):
        return [map_values(item, function) for item in arg]
    return arg


def with_values(
    call: Call, function: Callable[[AtenValue], AtenValue], results: Callable[[AtenValue], AtenValue] | None = None
) -> Call:
    """The call on other values, those of its blocks too; `results` maps what it and its blocks make."""
    made = results or _same

    def block(item: Block) -> Block:
        calls = [with_values(inner, function, results) for inner in item.calls]
        return Block(calls, map_values(item.outputs, function), [made(value) for value in item.inputs])

    args = {name: map_values(arg, function) for name, arg in call.args.items()}
    outputs = [made(value) for value in call.outputs]
    return Call(call.target, args, outputs, call.source, [block(item) for item in call.blocks])


def _same(value: AtenValue) -> AtenValue:
    return value


def tensor_type(tensor: torch.Tensor) -> TensorType:
    """The type of a real tensor."""
    strides = tuple(tensor.stride()) if tensor.layout == torch.strided else None
    return TensorType(tensor.dtype, tuple(tensor.shape), strides)


def same_bytes(tensor: torch.Tensor) -> tuple[Any, ...]:
    """A key that is equal for two tensors with the same memory, dtype, shape and strides, such as tied weights."""
    if tensor.numel() == 0 or tensor.is_meta:
        return (id(tensor),)
    storage = tensor.untyped_storage().data_ptr()
    return (storage or id(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def format_graph(graph: AtenGraph) -> str:
    """The graph as text, one line per call, for logs and for people who debug a rule."""
    names: dict[AtenValue, str] = {item.value: f"%{item.name}" for item in graph.inputs}

    def show(arg: Arg) -> str:
        if isinstance(arg, AtenValue):
            return names.setdefault(arg, f"%{len(names)}")
        if isinstance(arg, (list, tuple)):
            return "[" + ", ".join(map(show, arg)) + "]"
        return repr(arg)

    lines = []
    for call in graph.calls:
        args = ", ".join(f"{name}={show(arg)}" for name, arg in call.args.items())
        outputs = ", ".join(f"{show(value)}: {value.type}" for value in call.outputs)
        lines.append(f"{outputs} = {call.target}({args})  # {call.source}")
    lines.append("return " + ", ".join(map(show, graph.outputs)))
    return "\n".join(lines)
