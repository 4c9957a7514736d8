"""A model and its arguments to the neutral graph, by the route asked for.

``"auto"`` traces, and takes torch.export where the trace fails; an ExportedProgram is taken as it is.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils import _pytree as pytree

from purexport.aten.axes import Specialised
from purexport.aten.graph import Assigned, AtenGraph, Value, tensor_type
from purexport.capture.core.attributes import Buffers, attributes_kept
from purexport.capture.core.request import (
    Captured,
    Request,
    flatten,
    named_axes,
    output_names,
    refuse_output,
    script_parameters,
)
from purexport.capture.export.program import export_model, read_program
from purexport.capture.script import interpreter
from purexport.capture.trace import torchscript
from purexport.capture.trace.held import held_axes
from purexport.capture.trace.hollow import attributes, on_fakes, paused, refuse_lost
from purexport.errors import ExportError
from purexport.shapes.failures import code_of
from purexport.torch_patches.quiet import quiet_torch

ROUTES = ("auto", "trace", "export")


def capture(request: Request) -> Captured:
    """Capture the model.  Raises ExportError when it does not run on the arguments, ValueError for a bad option."""
    if request.route not in ROUTES:
        raise ValueError(f"capture={request.route!r} is not one of {', '.join(map(repr, ROUTES))}")
    try:
        return _captured(request)
    except ExportError as failure:
        if request.hollow and "different-devices" in failure.codes:
            raise ExportError(f"{failure}\n{_ELSEWHERE}", code="different-devices") from failure
        raise


_ELSEWHERE = (
    "(for the capture, parameters, buffers and attributes without values become CPU tensors, and so do args; what the "
    "model keeps elsewhere, in a list say, stays on the meta device: register it as a buffer)"
)


def _captured(request: Request) -> Captured:
    if isinstance(request.model, torch.export.ExportedProgram):
        return read_program(request)
    if isinstance(request.model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return _script(request)
    if request.route == "export":
        return export_model(request, "asked for")
    if request.dynamic_shapes is not None:
        if request.route == "trace":
            raise ValueError("dynamic_shapes goes with torch.export; with capture='trace' use dynamic_axes")
        return export_model(request, "dynamic_shapes goes with torch.export")
    if request.route == "trace":
        return _trace(request, "asked for")
    return _auto(request)


def _auto(request: Request) -> Captured:
    if request.hollow:
        return _auto_hollow(request)
    try:
        return _trace(request, "the default")
    except ExportError as failure:
        try:
            return export_model(request, f"the trace failed: {failure}")
        except ExportError as second:
            raise ExportError(
                f"neither route took the model.\nby trace: {failure}\nby torch.export: {second}",
                code="neither-route",
                causes=(failure, second),
            ) from (failure.__cause__ or failure)


def _auto_hollow(request: Request) -> Captured:
    """torch.export looks at no values, so that it comes first."""
    try:
        return export_model(request, "the model has no values")
    except ExportError as failure:
        try:
            return _trace(request, f"torch.export failed: {failure}")
        except ExportError as second:
            raise ExportError(
                f"neither route took the model, which has no values.\nby torch.export: {failure}\nby trace: {second}",
                code="neither-route",
                causes=(failure, second),
            ) from (failure.__cause__ or failure)


# Routes -------------------------------------------------------------------------------------------------------------


def _trace(request: Request, reason: str) -> Captured:
    if not request.hollow:
        return _traced(request, reason)
    with quiet_torch(), on_fakes(request.hollow) as fake:
        return _traced(request, reason, fake)


def _traced(request: Request, reason: str, fake: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Captured:
    flat = flatten(request)
    state, modules = _state(request.model)
    state += attributes(request.hollow)
    axes = named_axes(request, flat.names, flat.tensors)
    if any(isinstance(module, torch.jit.ScriptModule) for _, module in modules):
        return _trace_around_scripts(request, reason)
    buffers = Buffers(request.model)
    paths: list[tuple[Any, ...]] = []
    assigned: list[str] = []
    listed: list[bool] = []

    def function(*tensors: torch.Tensor) -> list[Any]:
        args, kwargs = flat.rebuild(tensors)
        result = request.model(*args, **kwargs)
        listed[:] = [isinstance(result, list)]
        found, _ = pytree.tree_flatten_with_path(result)
        # None means "no output here", for torch.export too
        paths[:] = [path for path, leaf in found if leaf is not None]
        changed = buffers.assigned()
        assigned[:] = [path for path, _ in changed]
        return [_as_tensor(leaf) for _, leaf in found if leaf is not None] + [tensor for _, tensor in changed]

    def record(tensors: Sequence[torch.Tensor]) -> torchscript.Recorded:
        with _refusals(), attributes_kept(request.model), paused() if fake else nullcontext():
            # the model may write to what it is given, and each further trace is to see the same
            given = [tensor.detach().clone() for tensor in tensors] if fake is None else list(map(fake, tensors))
            return torchscript.trace(function, given, flat.names, state, modules, bool(axes))

    def again(tensors: Sequence[torch.Tensor]) -> AtenGraph:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return record(tensors).read()

    recorded = record(flat.tensors)
    if not recorded.calls_scripts:
        graph = recorded.read()
        refuse_lost(graph, request.hollow)
        captured = Captured(graph, "trace", reason, axes, recorded.notes, listed=listed[0])
        names = list(paths), list(assigned)
        if recorded.notes and axes:
            _hold(captured, held_axes(graph, again, flat.tensors, flat.names, axes))
        _name_outputs(graph, *names)
        return captured
    types = [tensor_type(tensor) for tensor in (*flat.tensors, *(tensor for _, _, tensor in state))]
    found = interpreter.interpret_trace(recorded.script, recorded.inputs, types, axes)
    found.graph.outputs = list(found.result)
    _name_outputs(found.graph, paths, assigned)
    return Captured(
        found.graph, "trace", reason, notes=recorded.notes, remarks=found.remarks, typed=True, listed=listed[0]
    )


def _hold(captured: Captured, held: Sequence[Specialised]) -> None:
    """Axes of which the trace holds a number are static in the file."""
    labels = {item.axis for item in held}
    captured.axes = {
        name: {axis: label for axis, label in named.items() if label not in labels}
        for name, named in captured.axes.items()
    }
    captured.axes = {name: named for name, named in captured.axes.items() if named}
    captured.remarks += map(str, held)


def _name_outputs(graph: AtenGraph, paths: Sequence[tuple[Any, ...]], assigned: Sequence[str]) -> None:
    """The model's results come first; after them, the buffers that it gives another tensor."""
    graph.output_names = output_names(paths)
    by_name = {item.name: item for item in graph.inputs}
    for path, value in zip(assigned, graph.outputs[len(paths) :], strict=True):
        graph.assigned.append(Assigned(by_name[path], value))
    del graph.outputs[len(paths) :]


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ExportError:
        raise
    except Exception as error:
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
        raise ExportError(
            f"the model does not run on these args: {type(error).__name__}: {error}",
            code=code_of(error, "model-does-not-run"),
        ) from error


def _trace_around_scripts(request: Request, reason: str) -> Captured:
    """A module with scripted modules inside: torch's own trace of it is a script, which is then interpreted."""
    if request.kwargs:
        raise ExportError(
            "a model with scripted modules inside takes its arguments by position only", code="args-do-not-fit"
        )
    with _refusals(), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(request.model, request.args, strict=False, check_trace=False)  # type: ignore[no-untyped-call]
    captured = _script(dataclasses.replace(request, model=traced))
    return dataclasses.replace(captured, route="trace", reason=reason)


def _script(request: Request) -> Captured:
    flat = flatten(request)
    axes = named_axes(request, flat.names, flat.tensors)

    def arguments(values: Sequence[Value]) -> list[Any]:
        args, kwargs = flat.rebuild(values)
        return _positional(request.model, args, kwargs)

    found = interpreter.interpret(request.model, list(zip(flat.names, flat.tensors, strict=True)), arguments, axes)
    leaves, _ = pytree.tree_flatten_with_path(found.result)
    found.graph.outputs = [leaf for _, leaf in leaves if leaf is not None]
    found.graph.output_names = output_names([path for path, leaf in leaves if leaf is not None])
    listed = isinstance(found.result, list)
    return Captured(found.graph, "script", "the model is a script", remarks=found.remarks, typed=True, listed=listed)


def _positional(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Arguments in the order of the script's schema, defaults filled in.  Raises ExportError when they do not fit."""
    parameters = script_parameters(model)
    if len(args) > len(parameters):
        raise ExportError(f"the model takes {len(parameters)} args, {len(args)} were given", code="args-do-not-fit")
    # a trace may give two arguments one name, so that positions count
    open_ = parameters[len(args) :]
    unknown = set(kwargs) - {parameter.name for parameter in open_}
    missing = [item.name for item in open_ if item.name not in kwargs and not item.has_default_value()]
    if unknown or missing:
        raise ExportError(
            f"args do not fit the script: missing {missing}, unknown {sorted(unknown)}", code="args-do-not-fit"
        )
    return [*args, *(kwargs.get(item.name, item.default_value) for item in open_)]


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, (bool, int, float)):
        return torch.tensor(leaf)
    raise refuse_output(leaf)


def _state(model: Any) -> tuple[list[tuple[str, str, torch.Tensor]], list[tuple[str, torch.nn.Module]]]:
    """What the model owns, each tensor once under its first name, and its modules."""
    if not isinstance(model, torch.nn.Module):
        return [], []
    found: dict[int, tuple[str, str, torch.Tensor]] = {}
    for name, parameter in model.named_parameters():
        found.setdefault(id(parameter), ("parameter", name, parameter))
    for name, buffer in model.named_buffers():
        found.setdefault(id(buffer), ("buffer", name, buffer))
    return list(found.values()), [(name or "(root)", module) for name, module in model.named_modules()]
