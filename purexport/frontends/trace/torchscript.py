"""The trace of a model as TorchScript's graph, with what torch's tracer does not record by itself.

The trace gets the model's parameters and buffers as further inputs, so that each keeps its identity and its
`state_dict` name.  The tracer's own scopes record the module path of every node.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from proto_schema.wire.records import dataclass
from purexport.aten.graph import (
    INSIDE_TORCH,
    AtenGraph,
    AtenValue,
    Input,
    ListType,
)
from purexport.errors import ExportError
from purexport.frontends.core import prepacked, row_loops, single_calls
from purexport.frontends.core.fake_quantization import fake_quantized
from purexport.frontends.core.frames import caller_of, users_line
from purexport.frontends.trace import (
    batched,
    chosen_sizes,
    exact_sizes,
    int_lists,
    onnx_operators,
    plain_forms,
    replay,
    setitem,
    sizes,
)
from purexport.frontends.trace.nodes import inputs_behind, is_size
from purexport.frontends.trace.reader import TraceReader
from purexport.frontends.trace.tracer_warnings import in_our_words
from purexport.torch_patches.batched import batched_calls_handed_to
from purexport.torch_patches.calls import functions_handed_to
from purexport.torch_patches.conversions import Namespace, conversions_recorded
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

# the trace keeps the tensors that these return as constants, and a write would change those
_LITERALS = frozenset([torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy])
# where Python gets a number out of a tensor
_NUMBERS = frozenset(["__bool__", "__int__", "__float__", "__index__", "item"])
_CONVERSIONS = {"__int__": "int", "__float__": "float", "__len__": "len"}
_UNSEEN_SHARING = frozenset(["broadcast_tensors", "meshgrid", "_reshape_from_tensor"])
# these alias without a sign of it, even in torch's count of writes; their safe forms compute the same
_SAFE: dict[str, Callable[..., Any]] = {
    "unsafe_split": torch.split,
    "unsafe_chunk": torch.chunk,
    "unsafe_split_with_sizes": torch.split_with_sizes,
}
_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]
_OTHER_FORMS = (
    plain_forms.FILLING
    | plain_forms.DROPOUTS
    | _UNSEEN_SHARING
    | plain_forms.AT_LEAST.keys()
    | _SAFE.keys()
    | {"__index__", "__setitem__"}
    | (sizes.NAMES | int_lists.NAMES | row_loops.NAMES)
)


class Decision(NamedTuple):
    """A truth value that Python got of sizes: the line, the value, and its place among the numbers of `asked`."""

    line: str
    value: bool
    place: int


@dataclass
class RecordedTrace:
    """A trace: TorchScript's graph, the meaning of its inputs, and the packed weights in it.

    `notes` are the tracer's warnings of numbers that follow from values.  `asks_for_sizes` is True where Python asked
    for a number that follows from sizes alone.  `decisions` are its truth values among those.
    `asked` finds out those numbers at other sizes, where that is possible without running the model.
    `results` are those of the run, `held` the inputs whose very numbers Python took, by position with the line.
    `of_data` says where Python took a number of elements that the data decides, `of_rows` where it asked whether there
    are any, in a loop over all rows.  `calls` is the number of calls of torch, those without an effect too.  In
    `namespaces`, those of modules of the model, Python converted sizes to numbers.
    """

    script: Any
    inputs: list[Input]
    notes: list[str]
    objects: list[Any]
    asks_for_sizes: bool
    decisions: list[Decision]
    asked: replay.Asked | None
    results: list[torch.Tensor]
    held: dict[int, str]
    of_data: list[str]
    of_rows: list[str]
    calls: int
    namespaces: list[Namespace]

    def idle(self, positions: Collection[int]) -> set[int]:
        """Those of the inputs that no result and no write follows from."""
        live = self.script.copy()
        remove_dead(live)
        inputs = list(live.inputs())
        return {position for position in positions if not inputs[position].uses()}

    def read(self) -> AtenGraph:
        """The neutral graph of a trace that calls no scripts."""
        return TraceReader(self.script, self.inputs, self.objects).read()

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
    namespaces: Sequence[Namespace] = (),
) -> RecordedTrace:
    """Trace `function(*tensors)`, which returns a flat tuple of tensors.

    `state` lists the model's tensors as `(kind, name, tensor)`, `modules` its modules by path.  With `dynamic` some
    sizes may change.  Each warning concerns a value that is a constant in the trace.  The tensors at the positions
    `numbers` stand for Python numbers.  A `probe` is only compared, and has no `asked`.  `rows` records
    loops over rows.  In the `namespaces` of modules `int`, `float` and `len` keep sizes.  Raises TooManyCallsError
    where the model makes more than `most` calls of torch.
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
        with (
            functions_handed_to(visible.call),
            batched_calls_handed_to(visible.batched),
            conversions_recorded(namespaces, visible.conversions()),
            module_paths(scopes),
            rounding_recorded(sized),
            range_recorded(sized, visible.exact.of),
        ):

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
    inputs = [Input(AtenValue(_missing), name, "user") for name in names]
    inputs += [Input(AtenValue(_missing), name, kind, tensor) for kind, name, tensor in state]
    # noted for the report, and passed on; a loop over layers repeats them
    once = {(_text(warning), warning.filename, warning.lineno): warning for warning in caught}
    for (text, path, line), warning in once.items():
        warnings.warn_explicit(text if _is_tracers(warning) else warning.message, warning.category, path, line)
    notes = [f"{text} ({path}:{line})" for (text, path, line), warning in once.items() if _is_tracers(warning)]
    asked = replay.split(graph, flat[len(tensors) :], visible.answers) if visible.answers else None
    if visible.has_batched:  # the numbers that such functions got are not among these
        asked = None
    return RecordedTrace(
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
        visible.namespaces,
    )


_missing = ListType()  # replaced by the recorded type as soon as the graph's inputs are read


class _Noted(NamedTuple):
    """A number that Python got: the tensor, the count of writes to it, the answer, its place among all."""

    tensor: torch.Tensor
    version: int
    answer: Any
    place: int


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
        self.packed = prepacked.PrepackedRecorder()
        self.rows = rows
        self.chosen_sizes = chosen_sizes.ChosenSizes()
        self.has_other_form = functools.cache(_has_other_form)  # a model calls the same few functions again and again
        self.dynamic = dynamic
        self.shared: list[tuple[str, torch.Tensor, int]] = []
        self.asks_for_sizes = False
        self.has_batched = False
        self.exact = exact_sizes.ExactSizes()
        self.namespaces: list[Namespace] = []
        self.decisions: list[Decision] = []
        self.numbers: dict[int, int] = {}
        self.held: dict[int, str] = {}
        # numbers that Python got, by value and kind of number
        self.asked: dict[tuple[int, type], _Noted] = {}
        self.answers: list[Any] = []
        self.of_data: dict[str, None] = {}
        self.of_rows: dict[str, None] = {}

    def asked_for(self) -> list[torch.Tensor]:
        """The tensors of sizes whose numbers Python asked for, which are then results of the trace, too."""
        found = list(self.asked.values())
        if any(item.tensor.is_inference() or item.tensor._version != item.version for item in found):
            return []  # one was written to later, and the trace would give what it holds at the end
        self.answers = [item.answer for item in found]
        return [item.tensor for item in found]

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
        if self.has_batched and tracing_state() is None:  # what a batched function calls is recorded later
            return function(*args, **kwargs)
        before = len(self.caught)
        name = getattr(function, "__name__", "")
        args, kwargs = self.exact.given(name, args, kwargs)
        if self.rows.runs:
            self.rows.writes(name, args, kwargs)
        if self.has_other_form(function, name) or prepacked.holds_object((*args, *kwargs.values())):
            result = self._call(function, name, args, kwargs)
        else:  # torch writes down every frame for every operator, so one frame less is a gain
            result = function(*args, **kwargs)
        if name in exact_sizes.NAMES:
            result = self.exact.result(function, name, args, kwargs, result)
        self.calls += len(result) if isinstance(result, (list, tuple)) else 1  # pieces cost as much as calls
        if name == "__format__" and args[0].dim() == 0 and is_size(args[0]):  # the text of a message
            with untraced():
                number = args[0].item()
            self._note(args[0], number)
            self.asks_for_sizes = True
            self._forget(before)
        if name in _NUMBERS and self.numbers:
            self._hold(name, args[0])
        if name in _CONVERSIONS and self.dynamic:
            self._note_namespace(_CONVERSIONS[name], args[0])
        if name in _NUMBERS and is_size(args[0]):
            self.asks_for_sizes = True
            number = self.exact.of(args[0])
            if number is not args[0]:
                with untraced():
                    result = type(result)(number.item())
            if self.chosen_sizes.is_chosen(args[0]):
                answer = self._chosen(name, args[0])
                if answer is not None:
                    self._forget(before)
                    return answer
            place = self._note(number, result)
            if name == "__bool__" and place is not None:  # it is no constant
                self.decisions.append(Decision("{}:{}".format(*users_line()), result, place))
            self._forget(before)
        for warning in self.caught[before:]:  # the tracer takes this function for the user's
            if any(part in warning.filename for part in INSIDE_TORCH):
                warning.filename, warning.lineno = users_line()
        return result

    def batched(self, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function that `torch.vmap` made, which may ask for sizes in a way that nobody sees."""
        self.has_batched = self.asks_for_sizes = True
        return batched.called(original, args, kwargs)

    def conversions(self) -> dict[Any, Any]:
        """What `int`, `float` and `len` give of a size that may change; None of anything else."""
        return {int: self._whole, float: self._fraction, len: self._length}

    def _whole(self, item: Any) -> torch.Tensor | None:
        return self.exact.whole(item) if self._may_convert(item) else None

    def _fraction(self, item: Any) -> torch.Tensor | None:
        return self.exact.fraction(item) if self._may_convert(item) else None

    def _may_convert(self, item: Any) -> bool:
        scalar = isinstance(item, torch.Tensor) and not item.dim() and tracing_state() is not None
        return scalar and self.may_change(item) and not self.chosen_sizes.is_chosen(item)

    def _length(self, item: Any) -> Any:
        has_rows = isinstance(item, torch.Tensor) and item.dim() and tracing_state() is not None
        return item.size(0) if has_rows and self.dynamic else None

    def _note_namespace(self, builtin: str, tensor: torch.Tensor) -> None:
        """Note in which module Python makes a number of a size."""
        if builtin != "len" and not self._may_convert(tensor):
            return
        namespace = caller_of(builtin)
        if namespace is not None and not any(namespace is one for one in self.namespaces):
            self.namespaces.append(namespace)

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
        line = "{}:{}".format(*users_line())
        if answer is None:
            text = f"the model uses a number at {line} that depends on data; the file has the number of the example"
            self.of_data.setdefault(text)
        else:
            text = f"the model tests at {line} whether a result is empty; the file has the branch for a full one"
            self.of_rows.setdefault(text)
        return answer

    def _note(self, tensor: torch.Tensor, answer: Any) -> int | None:
        """Keep a number that Python got, unless it is a constant; its place among them."""
        value = value_of(tensor) if self.dynamic and tracing_state() is not None else None
        if value is None or value.node().kind() == "prim::Constant":
            return None
        version = 0 if tensor.is_inference() else tensor._version
        key = value.unique(), type(answer)
        self.asked.setdefault(key, _Noted(tensor, version, answer, len(self.asked)))
        return self.asked[key].place

    def _hold(self, name: str, tensor: torch.Tensor) -> None:
        """Note the arguments whose numbers Python takes here.  A truth value that follows from one is a choice of the
        path, of which the tracer warns.
        """
        value = value_of(tensor)
        origins = {value.unique()} if name == "__bool__" else inputs_behind(value)
        self.held |= {self.numbers[one]: "{}:{}".format(*users_line()) for one in origins & self.numbers.keys()}

    def _forget(self, since: int) -> None:
        """Take back what the tracer has warned of."""
        self.caught[since:] = [item for item in self.caught[since:] if not _is_tracers(item)]

    def _call(self, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = len(self.caught)
        if prepacked.holds_object((*args, *kwargs.values())):
            return self.packed.call(function, args, kwargs)
        if function is torch.fused_moving_avg_obs_fake_quant and len(args) > 1 and not args[1].any():
            return fake_quantized(*args, **kwargs)
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


def _text(warning: warnings.WarningMessage) -> str:
    text = str(warning.message)
    return in_our_words(text) if _is_tracers(warning) else text


def _is_of_rows(warning: warnings.WarningMessage) -> bool:
    return _is_tracers(warning) and str(warning.message).startswith("Iterating over a tensor")


def _has_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor) or (isinstance(item, (list, tuple)) and any(map(_has_tensor, item)))


def _warn_of_index() -> None:
    text = "a tensor is used as a Python index or a number of steps here; the trace holds the example's number fixed"
    warnings.warn_explicit(text, TracerWarning, *users_line())
