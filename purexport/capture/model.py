"""A model and its arguments to the neutral graph, by the route asked for.

Arguments and results may be nested in any way that ``torch.utils._pytree`` knows: tensors become inputs, everything
else is baked in.  Input names come from the signature of ``forward`` and the keys on the way to the tensor.
``"auto"`` traces, and takes torch.export where the trace fails; an ExportedProgram is taken as it is.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import dynamic_shapes
from torch.utils import _pytree as pytree

from purexport.capture import exported, script, torchscript
from purexport.capture.assigned import Buffers, watched
from purexport.capture.aten import Assigned, AtenGraph, Value, tensor_type
from purexport.capture.quiet import quiet_torch
from purexport.errors import ExportError

Axes = dict[int, str]

ROUTES = ("auto", "trace", "export")


@dataclass
class Request:
    """What is to be captured: the model, its arguments, and which of their axes are dynamic."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    route: str = "auto"
    input_names: Sequence[str] | None = None
    dynamic_axes: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None


@dataclass
class Captured:
    """The graph, the route that gave it and why, and the dynamic axes by input name.

    ``notes`` are the tracer's own warnings, said already; ``remarks`` are ours, to be said as warnings.  ``typed`` says
    that the graph's types hold for all sizes already.
    """

    graph: AtenGraph
    route: str
    reason: str
    axes: dict[str, Axes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    typed: bool = False


def capture(request: Request) -> Captured:
    """Capture the model.  Raises ExportError when it does not run on the arguments, ValueError for a bad option."""
    if request.route not in ROUTES:
        raise ValueError(f"capture={request.route!r} is not one of {', '.join(map(repr, ROUTES))}")
    if isinstance(request.model, torch.export.ExportedProgram):
        return _program(request.model, "the model is an ExportedProgram", request.input_names, {})
    if isinstance(request.model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return _script(request)
    if request.route == "export":
        return _export(request, "asked for")
    if request.dynamic_shapes is not None:
        if request.route == "trace":
            raise ValueError("dynamic_shapes goes with torch.export; with capture='trace' use dynamic_axes")
        return _export(request, "dynamic_shapes goes with torch.export")
    if request.route == "trace":
        return _trace(request, "asked for")
    return _auto(request)


def _auto(request: Request) -> Captured:
    try:
        return _trace(request, "the default")
    except ExportError as failure:
        try:
            return _export(request, f"the trace failed: {failure}")
        except ExportError as second:
            raise ExportError(f"neither route took the model.\nby trace: {failure}\nby torch.export: {second}") from (
                failure.__cause__ or failure
            )


# Inputs -------------------------------------------------------------------------------------------------------------


@dataclass
class _Flat:
    """Arguments flattened: the tensors, where each stands among the leaves, and how to put them back."""

    leaves: list[Any]
    spec: pytree.TreeSpec
    positions: list[int]
    names: list[str]

    def rebuild(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        leaves = list(self.leaves)
        for position, tensor in zip(self.positions, tensors, strict=True):
            leaves[position] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [self.leaves[position] for position in self.positions]


def _flatten(request: Request) -> _Flat:
    with_paths, spec = pytree.tree_flatten_with_path((request.args, request.kwargs))
    leaves = [leaf for _, leaf in with_paths]
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    parameters = _parameter_names(request.model)
    given = list(request.input_names or ())[: len(positions)]
    names = [_input_name(with_paths[position][0], parameters) for position in positions]
    names = _distinct([*given, *names[len(given) :]])
    return _Flat(leaves, spec, positions, names)


def _parameter_names(model: Any) -> list[str]:
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return [parameter.name for parameter in _script_parameters(model)]
    function = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in plain]


def _input_name(path: tuple[Any, ...], parameters: Sequence[str]) -> str:
    """``x`` for the argument x, ``state_h`` for ``state["h"]``, ``pair_0`` for ``pair[0]``."""
    keys = [_key(entry) for entry in path]
    if keys[0] == "0":  # positional
        position = int(keys[1])
        keys[1] = parameters[position] if position < len(parameters) else f"input_{position}"
    return "_".join(keys[1:])


def _key(entry: Any) -> str:
    for attribute in ("idx", "key", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _distinct(names: Iterable[str]) -> list[str]:
    taken: set[str] = set()
    result = []
    for name in names:
        unique, count = name, 0
        while unique in taken:
            count += 1
            unique = f"{name}_{count}"
        taken.add(unique)
        result.append(unique)
    return result


def _output_names(spec_paths: Sequence[tuple[Any, ...]]) -> list[str]:
    """``output`` for a single one, else by position or key: ``output_0``, ``logits``."""
    if len(spec_paths) == 1 and not spec_paths[0]:
        return ["output"]
    names = []
    for path in spec_paths:
        keys = [_key(entry) for entry in path]
        names.append("_".join(["output", *keys]) if keys[0].isdigit() else "_".join(keys))
    return _distinct(names)


def _axes(request: Request, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> dict[str, Axes]:
    """``dynamic_axes`` checked and with every axis named."""
    result: dict[str, Axes] = {}
    ranks = dict(zip(names, (tensor.dim() for tensor in tensors), strict=True))
    for name, axes in (request.dynamic_axes or {}).items():
        if name not in ranks:
            continue  # an output, whose axes follow from the inputs'; the export checks that there is one
        items = axes.items() if isinstance(axes, Mapping) else ((axis, f"{name}_dim_{axis}") for axis in axes)
        for axis, label in items:
            if not isinstance(axis, int) or not -ranks[name] <= axis < ranks[name]:
                raise ValueError(f"dynamic_axes[{name!r}] names axis {axis!r}, and {name!r} has {ranks[name]} axes")
            result.setdefault(name, {})[axis % ranks[name]] = str(label)
    return result


# Routes -------------------------------------------------------------------------------------------------------------


def _trace(request: Request, reason: str) -> Captured:
    flat = _flatten(request)
    model = request.model
    state, modules = _state(model)
    paths: list[tuple[Any, ...]] = []
    buffers = Buffers(model)
    assigned: list[str] = []

    def function(*tensors: torch.Tensor) -> list[Any]:
        args, kwargs = flat.rebuild(tensors)
        found, _ = pytree.tree_flatten_with_path(model(*args, **kwargs))
        # None means "no output here", for torch.export too
        paths[:] = [path for path, leaf in found if leaf is not None]
        changed = buffers.assigned()
        assigned[:] = [path for path, _ in changed]
        return [_as_tensor(leaf) for _, leaf in found if leaf is not None] + [tensor for _, tensor in changed]

    axes = _axes(request, flat.names, flat.tensors)
    if any(isinstance(module, torch.jit.ScriptModule) for _, module in modules):
        return _trace_around_scripts(request, reason)
    with _refusals():
        recorded = torchscript.trace(function, flat.tensors, flat.names, state, modules)
    if not recorded.calls_scripts:
        graph = recorded.read()
        _name_outputs(graph, paths, assigned)
        return Captured(graph, "trace", reason, axes, recorded.notes)
    types = [tensor_type(tensor) for tensor in (*flat.tensors, *(tensor for _, _, tensor in state))]
    found = script.interpret_trace(recorded.script, recorded.inputs, types, axes)
    found.graph.outputs = list(found.result)
    _name_outputs(found.graph, paths, assigned)
    return Captured(found.graph, "trace", reason, notes=recorded.notes, remarks=found.remarks, typed=True)


def _name_outputs(graph: AtenGraph, paths: Sequence[tuple[Any, ...]], assigned: Sequence[str]) -> None:
    """The model's results come first; after them, the buffers that it gives another tensor."""
    graph.output_names = _output_names(paths)
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
        if "torch.jit.trace a dynamo-optimized function" in str(error):
            raise ExportError(
                "a trace cannot record torch.cond, while_loop, scan and other operators that torch compiles first; "
                "use capture='export'"
            ) from error
        raise ExportError(f"the model does not run on these args: {type(error).__name__}: {error}") from error


def _trace_around_scripts(request: Request, reason: str) -> Captured:
    """A module with scripted modules inside: torch's own trace of it is a script, which is then interpreted."""
    if request.kwargs:
        raise ExportError("a model with scripted modules inside takes its arguments by position only")
    with _refusals(), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(request.model, request.args, strict=False, check_trace=False)  # type: ignore[no-untyped-call]
    captured = _script(dataclasses.replace(request, model=traced))
    return dataclasses.replace(captured, route="trace", reason=reason)


def _script(request: Request) -> Captured:
    flat = _flatten(request)
    axes = _axes(request, flat.names, flat.tensors)

    def arguments(values: Sequence[Value]) -> list[Any]:
        args, kwargs = flat.rebuild(values)
        return _positional(request.model, args, kwargs)

    found = script.interpret(request.model, list(zip(flat.names, flat.tensors, strict=True)), arguments, axes)
    leaves, _ = pytree.tree_flatten_with_path(found.result)
    found.graph.outputs = [leaf for _, leaf in leaves if leaf is not None]
    found.graph.output_names = _output_names([path for path, leaf in leaves if leaf is not None])
    return Captured(found.graph, "script", "the model is a script", remarks=found.remarks, typed=True)


def _positional(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Arguments in the order of the script's schema, defaults filled in.  Raises ExportError when they do not fit."""
    parameters = _script_parameters(model)
    if len(args) > len(parameters):
        raise ExportError(f"the model takes {len(parameters)} args, {len(args)} were given")
    values = dict(zip((parameter.name for parameter in parameters), args, strict=False)) | dict(kwargs)
    unknown = set(values) - {parameter.name for parameter in parameters}
    missing = [item.name for item in parameters if item.name not in values and not item.has_default_value()]
    if unknown or missing:
        raise ExportError(f"args do not fit the script: missing {missing}, unknown {sorted(unknown)}")
    return [values.get(item.name, item.default_value) for item in parameters]


def _script_parameters(model: Any) -> list[Any]:
    is_function = isinstance(model, torch.jit.ScriptFunction)
    return list(model.schema.arguments) if is_function else list(model.forward.schema.arguments)[1:]


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, (bool, int, float)):
        return torch.tensor(leaf)
    raise ExportError(f"the model returns a {type(leaf).__name__}, and ONNX outputs are tensors")


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


def _export(request: Request, reason: str) -> Captured:
    flat = _flatten(request)
    axes = _axes(request, flat.names, flat.tensors)
    module = request.model
    if not isinstance(module, torch.nn.Module):
        module = _Function(module, len(request.args))
    shapes = request.dynamic_shapes
    args, kwargs = request.args, request.kwargs
    if axes:
        args, kwargs = flat.rebuild(_widened(flat, axes))
        shapes = _dynamic_shapes(request, flat, axes)
    elif shapes is not None:
        axes = _declared_names(args, kwargs, module, shapes, flat)
    limits: list[str] = []
    try:
        with quiet_torch(), warnings.catch_warnings(), torch.no_grad(), watched(module) as assigned:
            warnings.simplefilter("ignore")
            try:
                program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
            except Exception as error:
                limits = _LIMIT.findall(str(error)) if request.dynamic_shapes is None else []
                if not limits or any("==" in limit for limit in limits):
                    raise  # an equality means that a size computed in Python was held fixed
                # sizes that a convolution or a pooling does not take are no reason to refuse all others
                shapes = pytree.tree_map_only(torch.export.Dim, lambda _: torch.export.Dim.DYNAMIC, shapes)
                program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        text = str(error).partition("\n\nThe error above occurred")[0].strip()
        raise ExportError(f"torch.export does not take the model: {type(error).__name__}: {text}") from error
    captured = _program(program, reason, flat.names, axes)
    # torch.export records what the outermost module assigns, as a write to its buffer
    inner = [item for item in captured.graph.inputs if item.name in assigned and "." in item.name]
    captured.graph.assigned += [Assigned(item, None) for item in inner]
    captured.remarks += [
        f"torch.export holds that {limit}; for sizes where it does not hold, the file may compute something else"
        for limit in limits
    ]
    return captured


# torch.export's words for what it assumed of a size
_LIMIT = re.compile(r"satisfy the generated guard (.+?)\.?$", re.MULTILINE)


def _program(
    program: torch.export.ExportedProgram, reason: str, names: Sequence[str] | None, axes: Mapping[str, Axes]
) -> Captured:
    graph = exported.read(program, names, axes)
    graph.output_names = _output_names(_program_output_paths(program))
    graph.outputs = [output for output in graph.outputs if output is not None]
    return Captured(graph, "export", reason)


def _program_output_paths(program: torch.export.ExportedProgram) -> list[tuple[Any, ...]]:
    spec = program.call_spec.out_spec
    assert spec is not None
    leaves = [output.arg for output in program.graph_signature.output_specs if output.kind.name == "USER_OUTPUT"]
    found, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(leaves, spec))
    return [path for path, leaf in found if getattr(leaf, "value", leaf) is not None]


def _declared_names(
    args: tuple[Any, ...], kwargs: dict[str, Any], module: torch.nn.Module, shapes: Any, flat: _Flat
) -> dict[str, Axes]:
    """The names of the user's ``Dim`` objects by input and axis; ``Dim.AUTO`` and numbers have none."""
    found: dict[int, Axes] = {}

    def note(path: Any, tensor: Any, spec: Any) -> Any:
        items = spec.items() if isinstance(spec, dict) else enumerate(spec or ())
        named = {axis: dim.__name__ for axis, dim in items if isinstance(dim, torch.export.Dim)}
        found[id(tensor)] = named
        return tensor

    combined = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    try:
        dynamic_shapes._tree_map_with_path(note, combined, _by_name(shapes, combined), tree_name="inputs")
    except Exception:  # a malformed specification: torch.export explains it better than we could
        return {}
    return {name: found.get(id(tensor), {}) for name, tensor in zip(flat.names, flat.tensors, strict=True)}


def _by_name(shapes: Any, combined: Mapping[str, Any]) -> dict[str, Any]:
    return dict(shapes) if isinstance(shapes, Mapping) else dict(zip(combined, shapes, strict=True))


class _Function(torch.nn.Module):
    """A plain callable as the module that torch.export wants."""

    def __init__(self, function: Callable[..., Any], positional: int) -> None:
        super().__init__()
        self.function = function
        self.forward = _with_signature(function, positional)


def _with_signature(function: Callable[..., Any], positional: int) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    try:
        signature = inspect.signature(function)
    except ValueError:  # torch's own functions have none: so many positional arguments
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(f"input_{i}", kind) for i in range(positional)])
    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


def _widened(flat: _Flat, axes: Mapping[str, Axes]) -> list[torch.Tensor]:
    """The tensors with dynamic axes of size 0 or 1 repeated to 2: torch.export would hold those sizes fixed."""
    result = []
    for name, tensor in zip(flat.names, flat.tensors, strict=True):
        wide = tensor
        for axis in axes.get(name, {}):
            if wide.shape[axis] < 2:
                shape = list(wide.shape)
                shape[axis] = 2
                wide = wide.expand(shape).clone() if wide.shape[axis] == 1 else wide.new_zeros(shape)
        result.append(wide)
    return result


def _dynamic_shapes(request: Request, flat: _Flat, axes: Mapping[str, Axes]) -> Any:
    """``dynamic_axes`` in the nested form that torch.export wants; one name is one dimension."""
    dims: dict[str, Any] = {}
    leaves: list[Any] = [None] * len(flat.leaves)
    for name, position in zip(flat.names, flat.positions, strict=True):
        if name in axes:
            leaves[position] = {
                axis: dims.setdefault(label, torch.export.Dim(_identifier(label, len(dims))))
                for axis, label in axes[name].items()
            }
    args, kwargs = pytree.tree_unflatten(leaves, flat.spec)
    if not kwargs:
        return tuple(args)
    function = request.model.forward if isinstance(request.model, torch.nn.Module) else request.model
    return inspect.signature(function).bind(*args, **kwargs).arguments


def _identifier(label: str, index: int) -> str:
    """torch.export wants Python identifiers as names of dimensions."""
    return label if label.isidentifier() and label.isascii() else f"axis_{index}"
