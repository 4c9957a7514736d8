"""The torch.export route: dynamic axes are translated for torch, and torch's findings are translated for the user.

`dynamic_axes` and `dynamic_shapes` become one table, which says for each tensor what each of its dynamic axes is.  The
model is exported with that table.  Where torch finds that some size is not free, the model is exported again and torch
decides about each axis.  A specialized axis becomes static, and a remark names the axis and the line.  Another remark
says what torch assumed of the other axes.  An assumption that would specialize a computed size but no axis is refused.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.export import AdditionalInputs, Dim, ExportedProgram, ShapesCollection, dynamic_shapes
from torch.utils import _pytree as pytree

from purexport.aten.autograd_functions import single_calls_in_bodies
from purexport.aten.axes import Axes, Specialised
from purexport.aten.graph import Assigned, Source
from purexport.capture.core.attributes import watched
from purexport.capture.core.axes_of_structures import plain_spec
from purexport.capture.core.request import Captured, Flat, Request, flatten, named_axes, output_names
from purexport.capture.core.structures import Path, steps_of
from purexport.capture.export import reader
from purexport.capture.export.refusals import Watch
from purexport.errors import ExportError
from purexport.shapes.guards import open_guards, share_of_sizes
from purexport.shapes.symbols import Symbols
from purexport.torch_patches.quiet import quiet_torch

Spec = dict[int, Any]  # what the dynamic axes of one tensor are: a Dim, or one of torch's hints

_HINTS = (type(Dim.AUTO),)
_DIMS = (Dim, str, int, type(None), *_HINTS)


def export_model(request: Request) -> Captured:
    """Capture a module or function by torch.export.  Raises ExportError where torch.export fails."""
    flat = flatten(request)
    module = request.model
    if not isinstance(module, torch.nn.Module):
        module = _Function(module, len(request.args))
    request = _in_plain_containers(request, flat, module)
    specs = _specs(request, flat, module)
    tensors = _widened(flat.tensors, specs)
    labels = {name: _labels(name, spec) for name, spec in zip(flat.names, specs, strict=True)}
    args, kwargs = flat.rebuild(tensors, plain=True)
    names = dict(zip(map(id, tensors), flat.names, strict=True))
    watch = Watch(module, _signature(module, kwargs), _bound(module, args, kwargs), names, flat.tree)
    remarks: list[str] = []
    with watched(module) as assigned:
        program = _exported(watch, args, kwargs, tensors, specs)
        if isinstance(program, Exception):
            specs = [dict.fromkeys(spec, Dim.AUTO) for spec in specs]
            program = _exported(watch, args, kwargs, tensors, specs)
    if isinstance(program, Exception):
        raise watch.explained(program) from program
    if any(isinstance(dim, _HINTS) for spec in specs for dim in spec.values()):
        remarks = _held(program, flat.names, labels, watch)
    captured = _captured(program, flat.names, labels, watch.results)
    # torch.export records an assignment in the outermost module as a write to its buffer
    inner = [item for item in captured.graph.inputs if item.name in assigned and "." in item.name]
    captured.graph.assigned += [Assigned(item, None) for item in inner]
    captured.remarks += remarks
    captured.notes += [*watch.remarks, *_ranges(request)]
    return captured


def read_program(request: Request) -> Captured:
    """Read an existing ExportedProgram; `dynamic_axes` may give names to its dynamic axes."""
    program: ExportedProgram = request.model
    own = reader.tensor_names(program)
    given = list(request.input_names or ())[: len(own)]
    names = [*given, *own[len(given) :]]
    labels = named_axes(request, names, reader.user_tensors(program))
    return _captured(program, names, labels, _output_paths(program))


def _in_plain_containers(request: Request, flat: Flat, module: torch.nn.Module) -> Request:
    """The request with arguments and `dynamic_shapes` that torch.export knows."""
    args, kwargs = flat.rebuild(flat.tensors, plain=True)
    shapes = request.dynamic_shapes
    if shapes is not None:
        by_name = _bound(module, request.args, request.kwargs)
        shapes = {name: plain_spec(name, spec, by_name[name]) for name, spec in _by_name(shapes, by_name).items()}
    return dataclasses.replace(request, args=args, kwargs=kwargs, dynamic_shapes=shapes)


def _captured(
    program: ExportedProgram, names: Sequence[str] | None, labels: Mapping[str, Axes], results: Sequence[Path]
) -> Captured:
    graph = reader.read(program, names, labels)
    graph.output_names = output_names(results)
    graph.outputs = [output for output in graph.outputs if output is not None]
    spec = program.call_spec.out_spec
    listed = spec is not None and spec.type is list
    return Captured(graph, types_hold_for_all_sizes=True, listed=listed)


def _output_paths(program: ExportedProgram) -> list[Path]:
    spec = program.call_spec.out_spec
    assert spec is not None
    leaves = [output.arg for output in program.graph_signature.output_specs if output.kind.name == "USER_OUTPUT"]
    found, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(leaves, spec))
    return [steps_of(path) for path, leaf in found if getattr(leaf, "value", leaf) is not None]


def _exported(
    watch: Watch,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: Sequence[torch.Tensor],
    specs: Sequence[Spec],
) -> ExportedProgram | Exception:
    """The program, or torch's error about sizes that are not free.  Raises ExportError for any other error."""
    shapes: Any = None
    if any(specs):
        by_tensor = dict(zip(map(id, tensors), specs, strict=True))
        combined = _bound(watch.module, args, kwargs)
        shapes = dynamic_shapes._tree_map_with_path(
            lambda _, leaf: by_tensor.get(id(leaf)) or None, combined, tree_name="args"
        )
    try:
        with quiet_torch(), warnings.catch_warnings(), torch.no_grad(), watch.running(), single_calls_in_bodies():
            warnings.simplefilter("ignore")
            return torch.export.export(watch.module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        if any(specs) and any(words in str(error) for words in ("onstraints violated", "pecializations unexpectedly")):
            return error
        raise watch.explained(error) from error


# What is declared -----------------------------------------------------------------------------------------------------


def _specs(request: Request, flat: Flat, module: torch.nn.Module) -> list[Spec]:
    """What each tensor's dynamic axes are.  Raises ExportError for a specification that does not fit the arguments."""
    if request.dynamic_axes:
        axes = named_axes(request, flat.names, flat.tensors, flat.paths)
        dims: dict[str, Any] = {}
        return [{axis: _dim(label, dims) for axis, label in axes.get(name, {}).items()} for name in flat.names]
    if request.dynamic_shapes is None:
        return [{} for _ in flat.names]
    found: dict[int, Spec] = {}
    strings: dict[str, Any] = {}

    def note(path: Any, leaf: Any, spec: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            items = dict(spec.items() if isinstance(spec, Mapping) else enumerate(spec or ()))
            wrong = [axis for axis, dim in items.items() if not _is_axis(axis, leaf) or not isinstance(dim, _DIMS)]
            if wrong:
                raise ValueError(f"{wrong[0]!r}: {items[wrong[0]]!r} is no axis of a tensor of {leaf.dim()} axes")
            found[id(leaf)] = {
                axis % leaf.dim(): _dim(dim, strings) if isinstance(dim, str) else dim
                for axis, dim in items.items()
                if isinstance(dim, (str, Dim)) or (isinstance(dim, _HINTS) and dim.type.name != "STATIC")
            }
        elif isinstance(spec, _HINTS) and spec.type.name != "STATIC":
            raise ValueError(f"{leaf!r} is a Python number, which the file holds fixed; give it as a tensor")
        return leaf

    from torch._dynamo.exc import UserError  # it brings torch.onnx, which a trace does without

    shapes = request.dynamic_shapes
    combined = _bound(module, request.args, request.kwargs)
    try:
        dynamic_shapes._tree_map_with_path(note, combined, _by_name(shapes, combined), tree_name="inputs")
    except (AttributeError, KeyError, TypeError, ValueError, UserError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ExportError(
            f"dynamic_shapes does not have the form of the args {', '.join(combined)}: {lines[0] if lines else error}",
            code="dynamic-shapes-do-not-fit",
        ) from error
    return [found.get(id(tensor), {}) for tensor in flat.tensors]


def plain_shapes(shapes: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`dynamic_shapes` with plain containers instead of torch's collections, which refer to the given tensor objects.

    Raises ExportError where such a collection does not fit the arguments.
    """
    if not isinstance(shapes, (ShapesCollection, AdditionalInputs)):
        return shapes
    module = model if isinstance(model, torch.nn.Module) else _Function(model, len(args))
    try:
        return shapes.dynamic_shapes(module, args, kwargs)  # type: ignore[no-untyped-call]
    except (AssertionError, TypeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ExportError(
            f"dynamic_shapes does not fit the args: {lines[0] if lines else error}", code="dynamic-shapes-do-not-fit"
        ) from error


def _is_axis(axis: Any, tensor: torch.Tensor) -> bool:
    return isinstance(axis, int) and -tensor.dim() <= axis < tensor.dim()


def _by_name(shapes: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`dynamic_shapes` by argument; arguments that it does not name are static."""
    if isinstance(shapes, Mapping):
        unknown = sorted(set(shapes) - set(arguments))
        if unknown:
            raise ExportError(
                f"dynamic_shapes names {unknown}, and the args are {', '.join(arguments)}",
                code="dynamic-shapes-do-not-fit",
            )
        return {name: shapes.get(name) for name in arguments}
    if len(shapes) != len(arguments):
        raise ExportError(
            f"dynamic_shapes has {len(shapes)} entries, and the args are {', '.join(arguments)}",
            code="dynamic-shapes-do-not-fit",
        )
    return dict(zip(arguments, shapes, strict=True))


def _dim(label: str, dims: dict[str, Any]) -> Any:
    """One `Dim` per name.  torch.export needs Python identifiers as names; the file does not."""
    if label not in dims:
        plain = label.isidentifier() and label.isascii()
        dims[label] = Dim(label if plain else f"axis_{len(dims)}")
        dims[label].label = label
    return dims[label]


def _labels(name: str, spec: Spec) -> Axes:
    """The names of the axes in the file; an axis on which torch decides is named after its input."""
    return {
        axis: getattr(dim, "label", dim.__name__) if isinstance(dim, Dim) else f"{name}_dim_{axis}"
        for axis, dim in spec.items()
    }


def _ranges(request: Request) -> list[str]:
    """The ranges that the user declared for the sizes, which a file cannot express."""
    dims = [dim for dim in pytree.tree_leaves(request.dynamic_shapes) if isinstance(dim, Dim)]
    found = {}
    for dim in dims:
        low, high = str(dim.min), str(dim.max)
        if (low, high) != ("0", "int_oo"):
            found[dim.__name__] = f"axis {dim.__name__!r} was declared from {low} to {high}; the file does not check it"
    return list(found.values())


def _widened(tensors: Sequence[torch.Tensor], specs: Sequence[Spec]) -> list[torch.Tensor]:
    """The tensors with their dynamic axes of size 0 or 1 enlarged, because torch.export would specialize those sizes.

    Axes that are derived from such an axis (`2 * batch`) grow with it.
    """
    small = {
        _root(dim)
        for tensor, spec in zip(tensors, specs, strict=True)
        for axis, dim in spec.items()
        if tensor.shape[axis] < 2
    }
    result = []
    for tensor, spec in zip(tensors, specs, strict=True):
        shape = list(tensor.shape)
        for axis, dim in spec.items():
            if isinstance(dim, Dim) and _root(dim) in small:
                shape[axis] = int(dim.fn(2)) if hasattr(dim, "fn") else 2
        result.append(tensor if shape == list(tensor.shape) else _resized(tensor, shape))
    return result


def _root(dim: Any) -> Any:
    """A key for all axes that have the size of `dim` or derive from it."""
    return getattr(getattr(dim, "root", dim), "__name__", dim)


def _resized(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of that shape with the values of `tensor`, and zeros elsewhere."""
    for axis, size in enumerate(shape):
        if tensor.shape[axis] == 0 and size:
            tensor = tensor.new_zeros([*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]])
        elif size != tensor.shape[axis]:
            tensor = tensor.index_select(axis, torch.arange(size) % tensor.shape[axis])
    return tensor


def _bound(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, the form that torch.export needs for `dynamic_shapes`.

    Raises ExportError when the arguments do not fit the signature.
    """
    try:
        return _signature(module, kwargs).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise ExportError(f"args do not fit the model: {error}", code="args-do-not-fit") from error


def _signature(module: torch.nn.Module, kwargs: Mapping[str, Any]) -> inspect.Signature:
    """The signature of `forward`; it names what `**kwargs` holds, because torch.export does not look into those."""
    signature = inspect.signature(module.forward)
    parameters = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
    known = {item.name for item in parameters}
    rest = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in kwargs if name not in known]
    if len(parameters) == len(signature.parameters):
        return signature
    return signature.replace(parameters=[*parameters, *rest])


class _Function(torch.nn.Module):
    """A plain callable as a module, which torch.export needs."""

    def __init__(self, function: Callable[..., Any], positional: int) -> None:
        super().__init__()
        self.forward = _named_forward(function) or _with_signature(function, positional)


def _named_forward(function: Any) -> Callable[..., Any] | None:
    """A copy of a Python function with the name `forward`, because torch.export keeps only the lines of such frames."""
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__.replace(co_name="forward")
    made = FunctionType(code, function.__globals__, "forward", function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _with_signature(function: Callable[..., Any], positional: int) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    try:
        signature = inspect.signature(function)
    except ValueError:  # torch's own functions have no signature: name the positional arguments
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(f"input_{i}", kind) for i in range(positional)])
    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


# What torch made of it ------------------------------------------------------------------------------------------------


def _held(program: ExportedProgram, names: Sequence[str], labels: Mapping[str, Axes], watch: Watch) -> list[str]:
    """Remarks on the specialized axes (the size of each, and the line), on axes of one size, and on assumptions.

    Raises ExportError where a size that is computed from an axis is specialized and the axis is not.
    """
    inputs = reader.user_tensors(program)
    remarks: dict[str, None] = {}
    seen: dict[str, str] = {}
    for name, tensor in zip(names, inputs, strict=True):
        for axis, label in labels.get(name, {}).items():
            size = tensor.shape[axis]
            place = watch.place(name, axis)
            if isinstance(size, int) or size.node.expr.is_Integer:
                remarks[str(Specialised(label, int(size), str(place)))] = None
                continue
            first = seen.setdefault(str(size.node.expr), label)
            if first != label:
                remarks[f"axes {first!r} and {label!r} were declared apart, and the model takes them for one size"] = (
                    None
                )
    return [*remarks, *_assumed(program, Symbols(reader.axis_names(program, names, labels)))]


def _assumed(program: ExportedProgram, symbols: Symbols) -> list[str]:
    """One remark with torch's assumptions about free sizes, without those that follow from others.

    Raises ExportError for an assumption that hardly any size fulfils.
    """
    said: list[str] = []
    kept: list[Any] = []
    shapes = reader.shape_env(program)
    for guard in open_guards(shapes) if shapes is not None else ():
        share = share_of_sizes(guard.expr, kept)
        if share == 1:
            continue
        text = f"{symbols.text(guard.expr)}{_line(guard)}"
        if share < _RARELY:
            raise ExportError(
                f"torch.export holds a size fixed that follows from a dynamic axis: {text}; "
                "compute it by torch operators from x.shape, or declare the axis static",
                code="dynamic-axis-held",
            )
        kept.append(guard.expr)
        said.append(text)
    if not said:
        return []
    more = f" and {len(said) - _MOST} more" if len(said) > _MOST else ""
    limits = "; ".join(said[:_MOST])
    return [
        f"torch.export holds that {limits}{more}; for sizes where it does not hold, the file may compute something else"
    ]


_MOST = 4
_RARELY = 0.1


def _line(guard: Any) -> str:
    """The line of a guard that comes from the user's own Python code; torch does not keep the line of other guards."""
    frame = guard.sloc.framework_loc
    path = getattr(frame, "filename", "")
    line = Source("", lambda: [(path, frame.lineno)]).line if path and not re.search(r"[/\\]torch[/\\]", path) else ""
    return f" at {line}" if line else ""
