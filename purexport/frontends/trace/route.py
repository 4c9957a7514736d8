"""The trace route: the model runs once under torch's tracer, with the example's values.

A model without values runs on fake tensors.  For a model that calls scripts, the trace contains their code, and it is
interpreted.  A module that contains scripted modules is traced to a script, which the script route captures.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch

from purexport.aten.axes import Axes
from purexport.aten.graph import Assigned, AtenGraph, tensor_type
from purexport.errors import ExportError, is_out_of_memory
from purexport.frontends.core import row_loops
from purexport.frontends.core.attributes import Buffers, attributes_kept
from purexport.frontends.core.request import (
    Captured,
    Flat,
    NumbersHeldError,
    Request,
    flatten,
    is_same,
    named_axes,
    output_names,
    refuse_output,
)
from purexport.frontends.core.rolled import rolled
from purexport.frontends.core.route import Route
from purexport.frontends.core.structures import Path, results_in
from purexport.frontends.script.route import interpret_script
from purexport.frontends.trace import agreement, torchscript
from purexport.frontends.trace.fake_tensors import attributes, for_shapes, on_fakes, paused, refuse_lost
from purexport.frontends.trace.specialized_axes import Again, Found, Runs, Taken, specialized_axes
from purexport.shapes.failures import code_of
from purexport.torch_patches.conversions import Namespace
from purexport.torch_patches.quiet import quiet_torch
from purexport.torch_patches.torch_jit import ScriptModule, required, trace
from purexport.torch_patches.tracer import after_failure

# calls that a probe far from the example makes in a few seconds
FAR_CALLS = 4000


def trace_model(request: Request) -> Captured:
    """Capture the model by a trace.  Raises ExportError when the model does not run on the arguments."""
    required()
    if not request.valueless:
        return _traced(request)
    with quiet_torch(), on_fakes(request.valueless) as fake:
        return _traced(request, fake)


def _traced(request: Request, fake: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Captured:
    flat = flatten(request)
    state, modules = _state(request.model)
    state += attributes(request.valueless)
    axes = named_axes(request, flat.names, flat.tensors, flat.paths)
    if any(isinstance(module, ScriptModule) for _, module in modules):
        return _trace_around_scripts(request)
    buffers = Buffers(request.model)
    paths: list[Path] = []
    assigned: list[str] = []
    listed: list[bool] = []

    def function(*tensors: torch.Tensor) -> list[Any]:
        args, kwargs = flat.rebuild(tensors)
        result = request.model(*args, **kwargs)
        listed[:] = [isinstance(result, list)]
        found = results_in(result)
        paths[:] = [path for path, _ in found]
        changed = buffers.assigned()
        assigned[:] = [path for path, _ in changed]
        return [_as_tensor(leaf) for _, leaf in found] + [tensor for _, tensor in changed]

    without: set[row_loops.Step] = set()
    namespaces: list[Namespace] = []

    def record(
        tensors: Sequence[torch.Tensor], probe: bool = False, shapes_alone: bool = False, most: int | None = None
    ) -> torchscript.RecordedTrace:
        rows = row_loops.Rows(without)
        try:
            return recorded_with(rows, tensors, probe, shapes_alone, most)
        except ExportError as error:
            after_failure()
            if not rows.must_leave_out(error.__cause__):
                raise
        return record(tensors, probe, shapes_alone, most)

    def recorded_with(
        rows: row_loops.Rows, tensors: Sequence[torch.Tensor], probe: bool, shapes_alone: bool, most: int | None
    ) -> torchscript.RecordedTrace:
        kernels = paused() if fake else for_shapes() if shapes_alone else nullcontext()
        runs = None if probe or fake is not None else functools.partial(_runs, request, flat)
        with _refusals(runs), attributes_kept(request.model), kernels:
            # the model may write to its arguments, and each further trace must get the original ones
            given = [tensor.detach().clone() for tensor in tensors] if fake is None else list(map(fake, tensors))
            return torchscript.trace(
                function, given, flat.names, state, modules, bool(axes), request.numbers, probe, rows, most, namespaces
            )

    def again(tensors: Sequence[torch.Tensor], shapes_alone: bool) -> Taken:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = record(tensors, True, shapes_alone, _most(recorded, shapes_alone))
        return Taken(other.read(), other.decisions)

    def beside(tensors: Sequence[torch.Tensor]) -> agreement.Compared:
        with warnings.catch_warnings(), attributes_kept(request.model), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            return agreement.compared(recorded.script, function, tensors, [tensor for _, _, tensor in state])

    def lines() -> agreement.Lines | None:
        with warnings.catch_warnings(), attributes_kept(request.model), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            return agreement.lines_of(function, flat.tensors, [tensor for _, _, tensor in state])

    def record_with_conversions(first: torchscript.RecordedTrace) -> torchscript.RecordedTrace:
        """The trace in which `int` and `float` keep sizes; `first` where the model takes no tensors for numbers."""
        namespaces.extend(first.namespaces)
        with suppress(ExportError), warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            torch.set_rng_state(random)
            found = record(flat.tensors)
            if len(found.results) == len(first.results) and all(map(is_same, found.results, first.results)):
                return found
        return first

    def captured_with_axes() -> tuple[Captured, Found | None]:
        graph = recorded.read()
        refuse_lost(graph, request.valueless)
        notes = [*recorded.notes, *recorded.of_rows]
        captured = Captured(
            graph, axes, notes, remarks=list(recorded.of_data), listed=listed[0], derived=request.derived
        )
        names, found = (list(paths), list(assigned)), None
        asks = recorded.notes or recorded.asks_for_sizes
        if axes and (asks or any(call.target == "aten::unbind.int" for call in graph.calls)):
            # what the tracer warns of is no size, and only the model itself shows what follows from it
            asked = None if recorded.notes else recorded.asked
            runs = Runs(beside, lines) if fake is None else None
            taken = Taken(graph, recorded.decisions, asked, runs)
            given = flat.tensors, flat.names, axes, request.derived
            # the pieces of an axis that is taken apart are as many as in the example
            found = specialized_axes(taken, again, *given) if asks else Found([], [], [])
            loops = rolled(graph) if found.held or not asks else None
            if loops is not None:
                with suppress(_StepsDifferError):
                    in_loops = _in_loops(again, graph, loops)
                    other = specialized_axes(Taken(loops, recorded.decisions), in_loops, *given)
                    if len(other.held) < max(len(found.held), 1):
                        captured.graph = graph = loops
                        found = other
                        found.notes += _loops_of(graph)
            _hold(captured, found)
        captured.graph = _with_named_outputs(graph, *names)
        return captured, found

    random = torch.get_rng_state()
    recorded = record(flat.tensors)
    if request.numbers:
        _hold_numbers(request, flat, recorded, random)
    if not recorded.calls_scripts:
        captured, found = captured_with_axes()
        if found and found.held and recorded.namespaces and fake is None:
            first = recorded
            recorded = record_with_conversions(first)
            other, others = captured_with_axes() if recorded is not first else (captured, found)
            if others is None or len(others.held) < len(found.held):
                return other
        return captured
    captured = _interpreted(request, flat, recorded, record, axes)
    captured.listed = listed[0]
    captured.graph = _with_named_outputs(captured.graph, paths, assigned)
    return captured


class _StepsDifferError(Exception):
    """At other sizes the steps of a loop are no longer the same."""


def _in_loops(again: Again, graph: AtenGraph, loops: AtenGraph) -> Again:
    """The traces at other sizes with their steps as loops; `graph` is that of the example, with `loops` in it.

    A single step shows no loop, and nothing is said of it.  Raises _StepsDifferError where more steps than those of the
    example are not the same loops.
    """
    targets = [call.target for call in loops.calls]

    def taken(tensors: list[torch.Tensor], shapes_alone: bool) -> Taken:
        try:
            other = again(tensors, shapes_alone)
        except ExportError as error:  # of too many calls, too: there are as many as steps, which need not be seen all
            raise ExportError(str(error), code=error.code) from None
        found = rolled(other.graph, least=2)
        if len(other.graph.calls) > len(graph.calls):
            if found is None or [call.target for call in found.calls] != targets:
                raise _StepsDifferError
        elif found is None:
            raise ExportError("one step shows no loop", code="trace-cannot-record")
        return Taken(found, other.decisions)

    return taken


def _loops_of(graph: AtenGraph) -> list[str]:
    loops = [call for call in graph.calls if call.target == "prim::Scan"]
    return [f"the steps at {call.source} are a Loop of the file, as many as the axis is long" for call in loops]


def _interpreted(
    request: Request,
    flat: Flat,
    recorded: torchscript.RecordedTrace,
    record: Callable[..., torchscript.RecordedTrace],
    axes: dict[str, Axes],
) -> Captured:
    """The graph of a trace that calls scripts, which are interpreted.

    A script may take a number that follows from a size, and the tracer says nothing of that.  So the model is traced
    at other sizes whenever axes are dynamic.
    """
    from purexport.frontends.script import interpreter  # it loads sympy, and most traces call no scripts

    tensors = [tensor for item in recorded.inputs if (tensor := item.tensor) is not None]

    def interpret(trace: torchscript.RecordedTrace, given: Sequence[torch.Tensor], named: dict[str, Axes]) -> Any:
        types = [tensor_type(tensor) for tensor in (*given, *tensors)]
        script = trace.script.copy()
        found = interpreter.interpret_trace(script, trace.inputs, types, named, lists=request.loops_carry_lists)
        found.graph = dataclasses.replace(found.graph, outputs=list(found.result))
        return found

    def again(given: Sequence[torch.Tensor], shapes_alone: bool) -> Taken:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = record(given, True, shapes_alone, _most(recorded, shapes_alone))
        return Taken(interpret(other, given, axes).graph, other.decisions)

    found = interpret(recorded, flat.tensors, axes)
    captured = Captured(
        found.graph,
        axes,
        notes=[*recorded.notes, *recorded.of_rows],
        remarks=[*recorded.of_data, *found.remarks],
        types_hold_for_all_sizes=True,
        scripted=True,
    )
    if axes:
        taken = Taken(found.graph, recorded.decisions)
        _hold(captured, specialized_axes(taken, again, flat.tensors, flat.names, axes, request.derived))
        if captured.axes != axes:
            captured.graph = interpret(recorded, flat.tensors, captured.axes).graph
    captured.axes = {}  # the inputs of the graph have them
    return captured


def _most(example: torchscript.RecordedTrace, far: bool) -> int | None:
    """The calls of torch that a probe may make: far from the example a loop over an axis would take minutes."""
    return 2 * example.calls + FAR_CALLS if far else None


def _hold_numbers(request: Request, flat: Flat, recorded: torchscript.RecordedTrace, random: torch.Tensor) -> None:
    """Raise NumbersHeldError for numbers of the arguments that must not, or need not, be inputs of the file.

    A number without an effect is no input.  Others stay constants where Python takes the number itself, and where the
    model computes something else from a tensor than from a number.
    """
    idle = recorded.idle(request.numbers)
    if idle:
        raise NumbersHeldError(idle, idle=True)
    if recorded.held:
        said = [f"{flat.names[place]!r} at {line}" for place, line in recorded.held.items()]
        raise NumbersHeldError(
            recorded.held,
            f"the model takes numbers among its arguments as Python numbers ({', '.join(said)}); the file has the "
            "numbers of the example",
        )
    args, kwargs = flat.rebuild([request.numbers.get(place, tensor) for place, tensor in enumerate(_copies(flat))])
    with attributes_kept(request.model), torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_rng_state(random)
        expected = [leaf for _, leaf in results_in(request.model(*args, **kwargs))]
    if not all(map(is_same, recorded.results, expected)):  # after the results come the buffers that were assigned
        raise NumbersHeldError(
            request.numbers,
            "the model computes something else where numbers among its arguments are tensors "
            f"({', '.join(repr(flat.names[place]) for place in request.numbers)}); the file has the numbers of "
            "the example",
        )


def _copies(flat: Flat) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in flat.tensors]


def _hold(captured: Captured, found: Found) -> None:
    """Make the axes that the trace specialized static in the file."""
    labels = {item.axis for item in found.held}
    captured.axes = {
        name: {axis: label for axis, label in named.items() if label not in labels}
        for name, named in captured.axes.items()
    }
    captured.axes = {name: named for name, named in captured.axes.items() if named}
    captured.remarks += [*map(str, found.held), *found.remarks]
    captured.notes += found.notes


def _with_named_outputs(graph: AtenGraph, paths: Sequence[Path], assigned: Sequence[str]) -> AtenGraph:
    """The graph with names for the model's results; the outputs after them are the buffers that the model assigned."""
    by_name = {item.name: item for item in graph.inputs}
    results, buffers = graph.outputs[: len(paths)], graph.outputs[len(paths) :]
    written = [Assigned(by_name[path], value) for path, value in zip(assigned, buffers, strict=True)]
    named = output_names(paths)
    return dataclasses.replace(graph, outputs=results, output_names=named, assigned=[*graph.assigned, *written])


@contextmanager
def _refusals(runs: Callable[[], bool] | None = None) -> Iterator[None]:
    """Errors of a trace as ours; `runs` says whether the model runs without the tracer."""
    try:
        yield
    except (ExportError, NumbersHeldError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise MemoryError(f"there is too little memory to run the model: {error}") from error
        if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
            raise ExportError(
                f"a trace without values cannot follow what depends on them ({error}); use capture='export', or a "
                "model with values",
                code="trace-without-values",
            ) from error
        if "torch.jit.trace a dynamo-optimized function" in str(error):
            raise ExportError(
                "a trace cannot record torch.cond, while_loop, scan and other operators that torch compiles first; "
                "use capture='export'",
                code="trace-cannot-record",
            ) from error
        text = str(error).partition("\nException raised from ")[0]  # a list of addresses in torch's libraries follows
        if runs is not None and runs():
            raise ExportError(
                f"torch's tracer does not take the model, which runs without it: {type(error).__name__}: {text}",
                code=code_of(error, "trace-cannot-record"),
            ) from error
        raise ExportError(
            f"the model does not run on these args: {type(error).__name__}: {text}",
            code=code_of(error, "model-does-not-run"),
        ) from error


def _runs(request: Request, flat: Flat) -> bool:
    """Whether the model runs on its arguments without the tracer."""
    args, kwargs = flat.rebuild([request.numbers.get(place, tensor) for place, tensor in enumerate(_copies(flat))])
    with attributes_kept(request.model), torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            request.model(*args, **kwargs)
        except Exception:  # the error of the trace says which
            return False
    return True


def _trace_around_scripts(request: Request) -> Captured:
    """Capture a module that contains scripted modules: torch's own trace of it is a script, which is interpreted."""
    if request.numbers:
        raise NumbersHeldError(request.numbers, idle=True)  # what scripts take as numbers is declared in them
    if request.kwargs:
        raise ExportError(
            "a model with scripted modules inside takes its arguments by position only", code="args-do-not-fit"
        )
    with _refusals(functools.partial(_runs, request, flatten(request))), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = trace(request.model, request.args)
    return interpret_script(dataclasses.replace(request, model=traced))


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, (bool, int, float)):
        return torch.tensor(leaf)
    raise refuse_output(leaf)


def _state(model: Any) -> tuple[list[tuple[str, str, torch.Tensor]], list[tuple[str, torch.nn.Module]]]:
    """The model's tensors, each once under its first name, and its modules."""
    if not isinstance(model, torch.nn.Module):
        return [], []
    found: dict[int, tuple[str, str, torch.Tensor]] = {}
    for name, parameter in model.named_parameters():
        found.setdefault(id(parameter), ("parameter", name, parameter))
    for name, buffer in model.named_buffers():
        found.setdefault(id(buffer), ("buffer", name, buffer))
    return list(found.values()), [(name or "(root)", module) for name, module in model.named_modules()]


TRACE = Route("trace", "the trace", trace_model, takes_numbers=True)
