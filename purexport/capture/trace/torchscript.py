"""TorchScript graphs to the neutral graph, and the trace that makes one.

The trace gets the model's parameters and buffers as further inputs, so that each keeps its identity and its
`state_dict` name.  The tracer's own scopes record the module path of every node.  The trace wraps numbers in tensors:
`x.size(0)` becomes `prim::NumToTensor`, and a literal becomes a zero-dim constant.  They are unwrapped here, because
type promotion and constant folding must know that they are numbers.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch.nn import functional

from proto_schema.records import dataclass
from purexport.aten import scalars
from purexport.aten.graph import (
    INSIDE_TORCH,
    AtenGraph,
    Call,
    Frame,
    Input,
    ListType,
    ScalarType,
    Source,
    TensorType,
    Type,
    Value,
    users_frame,
)
from purexport.aten.names import base_of
from purexport.aten.schema import bind, is_wrapped_number, target_of
from purexport.capture.core import prepacked, row_loops, single_calls
from purexport.capture.core.frames import traced_frames
from purexport.capture.trace import chosen_sizes, int_lists, onnx_operators, plain_forms, replay, setitem, sizes
from purexport.capture.trace.nodes import inputs_behind, inputs_of, is_size, outputs_of
from purexport.errors import ExportError
from purexport.torch_patches.calls import functions_handed_to
from purexport.torch_patches.ranges import range_recorded
from purexport.torch_patches.rounding import rounding_recorded
from purexport.torch_patches.torch_jit import (
    TracerWarning,
    create_graph,
    inline_forks,
    remove_dead,
    tracing_state,
    value_of,
)
from purexport.torch_patches.tracer import module_paths, untraced

_SCALARS = {"IntType": int, "FloatType": float, "BoolType": bool, "NumberType": float}
_CASTS = {"aten::Int": int, "aten::Float": float, "aten::Bool": bool, "aten::IntImplicit": int}
# the trace keeps the tensors that these return as constants, and a write would change those
_LITERALS = frozenset([torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy])
# where Python gets a number out of a tensor
_NUMBERS = frozenset(["__bool__", "__int__", "__float__", "__index__", "item"])
_UNSEEN_SHARING = frozenset(["broadcast_tensors", "meshgrid", "_reshape_from_tensor"])
# these alias without a sign of it, even in torch's count of writes; their safe forms compute the same
_SAFE: dict[str, Callable[..., Any]] = {
    "unsafe_split": torch.split,
    "unsafe_chunk": torch.chunk,
    "unsafe_split_with_sizes": torch.split_with_sizes,
}
_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]
_CASTS |= {"aten::FloatImplicit": float}
_OTHER_FORMS = (
    plain_forms.FILLING
    | plain_forms.DROPOUTS
    | _UNSEEN_SHARING
    | plain_forms.AT_LEAST.keys()
    | _SAFE.keys()
    | {"__index__", "__setitem__"}
)
_OTHER_FORMS |= sizes.NAMES | int_lists.NAMES | row_loops.NAMES


@dataclass
class Recorded:
    """A trace: TorchScript's graph, the meaning of its inputs, and the packed weights in it.

    `notes` are the tracer's warnings of numbers that follow from values.  `asks_for_sizes` is True where Python asked
    for a number that follows from sizes alone.  `decisions` are its truth values among those, as (line, result).
    `asked` finds out those numbers at other sizes, where that is possible without running the model.
    `results` are those of the run, `held` the inputs whose very numbers Python took, by position with the line.
    `of_data` says where Python took a number of elements that the data decides, `of_rows` where it asked whether there
    are any, in a loop over all rows.  `calls` is the number of calls of torch, those without an effect too.
    """

    script: Any
    inputs: list[Input]
    notes: list[str]
    objects: list[Any]
    asks_for_sizes: bool
    decisions: list[tuple[str, bool]]
    asked: replay.Asked | None
    results: list[torch.Tensor]
    held: dict[int, str]
    of_data: list[str]
    of_rows: list[str]
    calls: int

    def idle(self, positions: Collection[int]) -> set[int]:
        """Those of the inputs that no result and no write follows from."""
        live = self.script.copy()
        remove_dead(live)
        inputs = list(live.inputs())
        return {position for position in positions if not inputs[position].uses()}

    def read(self) -> AtenGraph:
        """The neutral graph of a trace that calls no scripts."""
        return Reader(self.script, self.inputs, self.objects).read()

    @property
    def calls_scripts(self) -> bool:
        """True when the model called scripted functions, whose code is in the graph."""
        return any(node.kind() == "prim::CallFunction" for node in self.script.nodes())


def trace(
    function: Callable[..., Sequence[Any]],
    tensors: Sequence[torch.Tensor],
    names: Sequence[str],
    state: Sequence[tuple[str, str, torch.Tensor]],
    modules: Sequence[tuple[str, torch.nn.Module]],
    dynamic: bool = False,
    numbers: Collection[int] = (),
    probe: bool = False,
    rows: row_loops.Rows | None = None,
    most: int | None = None,
) -> Recorded:
    """Trace `function(*tensors)`, which returns a flat tuple of tensors.

    `state` lists the model's tensors as `(kind, name, tensor)`, `modules` its modules by path.  With `dynamic` some
    sizes may change.  Each warning concerns a value that is a constant in the trace.  The tensors at the positions
    `numbers` stand for Python numbers.  A `probe` is only compared, and has no `asked`.  `rows` records
    loops over rows.  Raises TooManyCallsError where the model makes more than `most` calls of torch.
    """
    scopes: dict[torch.nn.Module, str] = {}
    for path, module in modules:
        scopes.setdefault(module, path)
    flat = [*tensors, *(tensor for _, _, tensor in state)]
    results: list[torch.Tensor] = []
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always", category=TracerWarning)
        visible = _Visible(dynamic, caught, rows or row_loops.Rows(), most)
        sized = visible.may_change
        with functions_handed_to(visible.call), module_paths(scopes), rounding_recorded(sized), range_recorded(sized):

            def recorded(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
                visible.takes({position: values[position] for position in numbers})
                results.extend(function(*values[: len(tensors)]))
                return (*results, *(() if probe else visible.asked_for()))

            graph, _ = create_graph(
                recorded,
                tuple(flat),
                lambda tensor: "",
                True,  # strict: containers of tensors are refused as outputs; ours are flat
                False,  # force_outplace: in-place operators stay, the functionalization handles them
                None,
                [],
            )
    inline_forks(graph)  # a file has no other threads
    visible.refuse_unseen_writes()
    inputs = [Input(Value(_missing), name, "user") for name in names]
    inputs += [Input(Value(_missing), name, kind, tensor) for kind, name, tensor in state]
    # noted for the report, and passed on; a loop over layers repeats them
    once = {(str(warning.message), warning.filename, warning.lineno): warning for warning in caught}
    for warning in once.values():
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    notes = [f"{text} ({path}:{line})" for (text, path, line), warning in once.items() if _is_tracers(warning)]
    asked = replay.split(graph, flat[len(tensors) :], visible.answers) if visible.answers else None
    return Recorded(
        graph,
        inputs,
        notes,
        visible.packed.objects,
        visible.asks_for_sizes,
        visible.decisions,
        asked,
        results,
        visible.held,
        list(visible.of_data),
        list(visible.of_rows),
        visible.calls,
    )


class TooManyCallsError(RuntimeError):
    """A probe of a model takes too long."""


class _Visible:
    """Makes visible what the tracer misses: a write to a literal, and aliasing, such as that of `x.data` and `x`.

    Dropout in eval mode returns its input, and `atleast_1d` returns a view, but their schemas do not say so.  The
    tracer would treat writes after them as dead code.  Some functions alias in a way that the tracer cannot represent,
    and a write after one of them is refused.  Where Python uses the number in a tensor as an index (`range(n)`), the
    tracer does not warn; we do, unless the number is a size that cannot change.  Where it is the number of an argument,
    that argument is `held`.
    """

    def __init__(
        self, dynamic: bool, caught: list[warnings.WarningMessage], rows: row_loops.Rows, most: int | None
    ) -> None:
        self.caught = caught
        self.calls = 0
        self.most = most
        self.packed = prepacked.Recorder()
        self.rows = rows
        self.chosen_sizes = chosen_sizes.ChosenSizes()
        self.has_other_form = functools.cache(_has_other_form)  # a model calls the same few functions again and again
        self.dynamic = dynamic
        self.shared: list[tuple[str, torch.Tensor, int]] = []
        self.asks_for_sizes = False
        self.decisions: list[tuple[str, bool]] = []
        self.numbers: dict[int, int] = {}
        self.held: dict[int, str] = {}
        # numbers that Python got, by value and kind of number: the tensor, the count of writes to it, the answer
        self.asked: dict[tuple[int, type], tuple[torch.Tensor, int, Any]] = {}
        self.answers: list[Any] = []
        self.of_data: dict[str, None] = {}
        self.of_rows: dict[str, None] = {}

    def asked_for(self) -> list[torch.Tensor]:
        """The tensors of sizes whose numbers Python asked for, which are then results of the trace, too."""
        found = list(self.asked.values())
        if any(tensor.is_inference() or tensor._version != version for tensor, version, _ in found):
            return []  # one was written to later, and the trace would give what it holds at the end
        self.answers = [answer for *_, answer in found]
        return [tensor for tensor, *_ in found]

    def takes(self, numbers: Mapping[int, torch.Tensor]) -> None:
        """Learn which tensors of the run stand for Python numbers, by the positions of the inputs."""
        found = {position: value_of(tensor) for position, tensor in numbers.items()}
        self.numbers = {value.unique(): position for position, value in found.items()}

    def refuse_unseen_writes(self) -> None:
        """Raise ExportError for a write to memory with aliasing that the tracer did not see."""
        for name, tensor, version in self.shared:
            if tensor._version != version:
                raise ExportError(
                    f"the model writes to memory that a result of {name} shares, and the tracer drops such writes; "
                    "call .clone() on the results, or export with capture='export'",
                    code="trace-drops-write",
                )

    def may_change(self, tensor: torch.Tensor) -> bool:
        """Whether a number follows from sizes, of which some are dynamic."""
        return self.dynamic and is_size(tensor)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of `function`, recorded in a form that shows its writes and its aliasing."""
        if self.most is not None and self.calls >= self.most:
            raise TooManyCallsError(f"the model makes {self.most} calls and more")
        before = len(self.caught)
        name = getattr(function, "__name__", "")
        if self.rows.runs:
            self.rows.writes(name, args, kwargs)
        if self.has_other_form(function, name) or prepacked.holds_object((*args, *kwargs.values())):
            result = self._call(function, name, args, kwargs)
        else:  # torch writes down every frame for every operator, so one frame less is a gain
            result = function(*args, **kwargs)
        self.calls += len(result) if isinstance(result, (list, tuple)) else 1  # pieces cost as much as calls
        if name == "__format__" and args[0].dim() == 0 and is_size(args[0]):  # the text of a message
            with untraced():
                number = args[0].item()
            self._note(args[0], number)
            self.asks_for_sizes = True
            self._forget(before)
        if name in _NUMBERS and self.numbers:
            self._hold(name, args[0])
        if name in _NUMBERS and is_size(args[0]):
            self.asks_for_sizes = True
            if self.chosen_sizes.is_chosen(args[0]):
                answer = self._chosen(name, args[0])
                if answer is not None:
                    self._forget(before)
                    return answer
            self._note(args[0], result)
            if name == "__bool__":
                self.decisions.append(("{}:{}".format(*_users_line()), result))
            self._forget(before)
        for warning in self.caught[before:]:  # the tracer takes this function for the user's
            if any(part in warning.filename for part in INSIDE_TORCH):
                warning.filename, warning.lineno = _users_line()
        return result

    def _rows(self, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = self.rows.call(function, name, args, kwargs)
        if isinstance(found, Iterator):  # all rows are there, and the last warning was of those of the example
            last = next((place for place in reversed(range(len(self.caught))) if _is_of_rows(self.caught[place])), None)
            if last is not None:
                del self.caught[last]
        return found

    def _chosen(self, name: str, tensor: torch.Tensor) -> bool | None:
        """Note a number that the data decides.

        A loop over all rows that there may be has steps in which nothing was chosen, and they must do what the others
        do: the answer for those.  None where Python gets that of the example.
        """
        answer = chosen_sizes.answer_with_elements(tensor) if name == "__bool__" and self.rows.runs else None
        line = "{}:{}".format(*_users_line())
        if answer is None:
            text = f"the model takes a number at {line} that the data decides; the file has that of the example"
            self.of_data.setdefault(text)
        else:
            text = f"the model asks at {line} whether the data chose anything; the file goes the way of some elements"
            self.of_rows.setdefault(text)
        return answer

    def _note(self, tensor: torch.Tensor, answer: Any) -> None:
        """Keep a number that Python got, unless it is a constant."""
        value = value_of(tensor) if self.dynamic and tracing_state() is not None else None
        if value is not None and value.node().kind() != "prim::Constant":
            version = 0 if tensor.is_inference() else tensor._version
            self.asked.setdefault((value.unique(), type(answer)), (tensor, version, answer))

    def _hold(self, name: str, tensor: torch.Tensor) -> None:
        """Note the arguments whose numbers Python takes here.  A truth value that follows from one is a choice of the
        path, of which the tracer warns.
        """
        value = value_of(tensor)
        origins = {value.unique()} if name == "__bool__" else inputs_behind(value)
        self.held |= {self.numbers[one]: "{}:{}".format(*_users_line()) for one in origins & self.numbers.keys()}

    def _forget(self, since: int) -> None:
        """Take back what the tracer has warned of."""
        self.caught[since:] = [item for item in self.caught[since:] if not _is_tracers(item)]

    def _call(self, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = len(self.caught)
        if prepacked.holds_object((*args, *kwargs.values())):
            return self.packed.call(function, args, kwargs)
        if function is torch.fused_moving_avg_obs_fake_quant and len(args) > 1 and not args[1].any():
            return plain_forms.fake_quantized(*args, **kwargs)
        if function == _DATA:
            return args[0].detach()
        if onnx_operators.is_symbolic(function):
            return onnx_operators.called(function, args, kwargs)
        if function in single_calls.VERDICTS:  # a Python bool would be the example's, and the tracer would not warn
            return single_calls.VERDICTS[function](*args, **kwargs)
        if name in row_loops.NAMES:
            return self._rows(function, name, args, kwargs)
        if name in plain_forms.FILLING:
            args, kwargs = plain_forms.bools_as_numbers(name, args, kwargs)
        if function is torch.fill:
            return plain_forms.filled(*args, **kwargs)
        if name == "__index__" and (self.dynamic or not is_size(args[0])):
            _warn_of_index()
        if name in plain_forms.DROPOUTS and args and not plain_forms.drops(args, kwargs):
            return args[0]
        if name in plain_forms.AT_LEAST and len(args) == 1 and isinstance(args[0], torch.Tensor):
            return plain_forms.with_axes(args[0], plain_forms.AT_LEAST[name])
        if name == "__setitem__" and self.dynamic and setitem.written(*args):
            return None
        if self.dynamic:
            found = sizes.recorded(function, args, kwargs, is_size)
            if found is not None:
                return found
            args, kwargs = int_lists.listed(function, name, args, kwargs)
        if function is functional.group_norm:
            return sizes.group_norm(*args, **kwargs)
        result = _SAFE.get(name, function)(*args, **kwargs)
        if name in _UNSEEN_SHARING:
            several = [result] if isinstance(result, torch.Tensor) else result
            found = [item for item in several if not item.is_inference()]
            self.shared += [(name, item, item._version) for item in found]
        if function in _LITERALS and not isinstance(args[0] if args else None, torch.Tensor):
            if not _has_tensor(args):  # a constant whatever the model is given, or a number was asked for before
                self._forget(before)
            return result.clone()
        return result


def _has_other_form(function: Any, name: str) -> bool:
    """Whether a function may be recorded in another way than torch does it: those that `_Visible._call` asks for."""
    return (
        name in _OTHER_FORMS
        or function in (torch.fused_moving_avg_obs_fake_quant, _DATA, functional.group_norm, *_LITERALS)
        or function in single_calls.VERDICTS
        or onnx_operators.is_symbolic(function)
    )


def _is_tracers(warning: warnings.WarningMessage) -> bool:
    return issubclass(warning.category, TracerWarning)


def _is_of_rows(warning: warnings.WarningMessage) -> bool:
    return _is_tracers(warning) and str(warning.message).startswith("Iterating over a tensor")


def _has_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor) or (isinstance(item, (list, tuple)) and any(map(_has_tensor, item)))


def _users_line() -> Frame:
    """The line of the model that is running."""
    return users_frame(_frames(sys._getframe(1))) or ("", 0)


def _frames(frame: FrameType | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _warn_of_index() -> None:
    text = "a tensor is used as a Python index or a number of steps here; the trace holds the example's number fixed"
    warnings.warn_explicit(text, TracerWarning, *_users_line())


_missing = ListType()  # replaced by the recorded type as soon as the graph's inputs are read


class Reader:
    """Reads one TorchScript graph.  It keeps the graph alive, because sources are made on demand from its nodes."""

    def __init__(self, graph: Any, inputs: list[Input], objects: Sequence[Any] = ()) -> None:
        self.script = graph
        self.objects = objects
        self.unpacked: dict[int, list[Any]] = {}
        self.graph = AtenGraph(inputs=inputs)
        self.env: dict[int, Any] = {}

    def read(self) -> AtenGraph:
        """The neutral graph."""
        for item, value in zip(list(self.graph.inputs), self.script.inputs(), strict=True):
            item.value.type = _type(value.type())
            self.env[value.unique()] = item.value
        self._block(self.script)
        for output in self.script.outputs():
            result = self.env[output.unique()]
            self.graph.outputs += result if isinstance(result, list) else [result]
        return self.graph

    def _block(self, block: Any) -> None:
        for node in block.nodes():
            handler = _PRIM.get(node.kind())
            if handler is not None:
                handler(self, node)
            else:
                self._call(node)

    def _args(self, node: Any) -> list[Any]:
        return [self.env[value.unique()] for value in inputs_of(node)]

    def _source(self, node: Any) -> Source:
        # "(root)/l/l.0": the last element is the module's whole path
        scope = node.scopeName().rpartition("/")[2]
        graph = self.script  # the node belongs to it

        def frames() -> Iterator[Frame]:
            assert graph is not None
            return traced_frames(node.sourceRange())

        return Source("" if scope == "(root)" else scope, frames)

    def _emit(self, node: Any, target: str, args: dict[str, Any]) -> None:
        outputs = []
        for output in outputs_of(node):
            value = Value(_type(output.type()))
            self.env[output.unique()] = value
            outputs.append(value)
        self.graph.calls.append(Call(target, args, outputs, self._source(node)))

    def _call(self, node: Any) -> None:
        schema = node.schema()
        args = self._args(node)
        kind = node.kind()
        if schema == "(no schema)":
            self._emit(node, kind, {str(position): arg for position, arg in enumerate(args)})
            return
        if kind in _CASTS and self._is_number(args[0]):
            cast = _CASTS[kind]
            number = args[0]
            same = isinstance(number, Value) and number.type == ScalarType(cast)
            if same or not isinstance(number, Value):
                self.env[node.output().unique()] = number if same else cast(number)
                return
        target = target_of(schema)
        if args and self._is_number(args[0]) and args[0] is not None:
            target = scalars.without_write(target)
            kind = base_of(target)
        bound = bind(target, args, {})
        if target == "aten::to.dtype" and bound["dtype"] is torch.int64 and self._is_number(args[0]):
            # a size that Python rounds (`purexport.torch_patches.rounding`)
            target, kind, bound = "aten::Int.Scalar", "aten::Int", {"a": args[0]}
            args = args[:1]
        self._emit(node, target, bound)
        if scalars.is_scalar_operator(kind) and all(self._is_number(arg) for arg in args):
            output = self.graph.calls[-1].outputs[0]
            output.type = _as_scalar(output.type)
        elif kind == "aten::ScalarImplicit":  # a tensor where a number is declared: a number of the tensor's kind
            self.graph.calls[-1].outputs[0].type = _as_scalar(args[0].type)

    @staticmethod
    def _is_number(arg: Any) -> bool:
        if isinstance(arg, Value):
            return isinstance(arg.type, ScalarType)
        return arg is None or isinstance(arg, (bool, int, float, str))

    def _constant(self, node: Any) -> None:
        output = node.output()
        if output.type().kind() == "TensorType" and node.hasAttribute("value"):
            tensor = node.t("value")
            number = is_wrapped_number(tensor)
            self.env[output.unique()] = tensor.item() if number else self.graph.constant(tensor)
        else:
            self.env[output.unique()] = output.toIValue()

    def _object(self, node: Any) -> None:
        """Packed weights.  They are unpacked once, however often they are used."""
        found = self.objects[node.i(prepacked.ATTRIBUTE)]
        if id(found) not in self.unpacked:
            scope = self._source(node).scope
            self.unpacked[id(found)] = prepacked.unpacked(found, scope, self.graph.constant)
        self.env[node.output().unique()] = self.unpacked[id(found)]

    def _list(self, node: Any) -> None:
        self.env[node.output().unique()] = self._args(node)

    def _unpack(self, node: Any) -> None:
        container = self.env[node.inputsAt(0).unique()]
        if isinstance(container, Value):
            container.type = ListType(len(outputs_of(node)))
        for index, output in enumerate(outputs_of(node)):
            if isinstance(container, list):
                self.env[output.unique()] = container[index]
                continue
            value = Value(_type(output.type()))
            self.env[output.unique()] = value
            args = {"list": container, "index": index}
            self.graph.calls.append(Call("prim::getitem", args, [value], self._source(node)))

    def _alias(self, node: Any) -> None:
        self.env[node.output().unique()] = self.env[node.inputsAt(0).unique()]

    def _python(self, node: Any) -> None:
        """An autograd Function is replaced by its recorded inner graph."""
        if not node.hasAttribute("Subgraph"):
            self._emit(node, "prim::PythonOp", {str(i): arg for i, arg in enumerate(self._args(node))})
            return
        inner, outer = node.g("Subgraph"), self.env
        # its values are numbered on their own
        self.env = {value.unique(): arg for value, arg in zip(inner.inputs(), self._args(node), strict=True)}
        self._block(inner)
        results = [self.env[value.unique()] for value in inner.outputs()]
        self.env = outer
        outputs = outputs_of(node)
        if len(outputs) == 1 and len(results) > 1:  # a tuple, which the next node takes apart
            results = [results]
        self.env |= {output.unique(): result for output, result in zip(outputs, results, strict=True)}


_PRIM: dict[str, Callable[[Reader, Any], None]] = {
    "prim::Constant": Reader._constant,
    prepacked.NODE: Reader._object,
    "prim::ListConstruct": Reader._list,
    "prim::TupleConstruct": Reader._list,
    "prim::ListUnpack": Reader._unpack,
    "prim::TupleUnpack": Reader._unpack,
    "prim::NumToTensor": Reader._alias,
    "prim::PythonOp": Reader._python,
}


def _type(type_: Any) -> Type:
    kind = type_.kind()
    if kind == "TensorType":
        sizes, strides, dtype = type_.sizes(), type_.strides(), type_.dtype()
        shape = None if sizes is None else tuple(sizes)
        # a tensor without a recorded type (an undefined one) is never read; float32 stands for its dtype
        return TensorType(dtype or torch.float32, shape, tuple(strides) if strides else () if shape == () else None)
    if kind in _SCALARS:
        return ScalarType(_SCALARS[kind])
    return ListType()


def _as_scalar(type_: Type) -> Type:
    if not isinstance(type_, TensorType):
        return type_
    if type_.dtype is torch.bool:
        return ScalarType(bool)
    if type_.dtype.is_complex:
        return ScalarType(complex)
    return ScalarType(float if type_.dtype.is_floating_point else int)
