"""The torch.export route: what is declared goes to torch as hints, and what torch found goes to the user in his terms.

torch decides about each dynamic axis, and our watch tells it what the names of the axes say (`specs`, `refusals`).  The
example has no dynamic axis of size 0 or 1 (`examples`).  A specialized axis becomes static, and a remark names the axis
and the line.  Further remarks say what torch assumed of the other axes (`assumptions`).
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from types import FunctionType
from typing import Any

import torch
from torch.export import Dim, ExportedProgram, dynamic_shapes

from purexport.aten.autograd_functions import single_calls_in_bodies
from purexport.aten.graph import Assigned
from purexport.errors import ExportError
from purexport.frontends.core import row_loops
from purexport.frontends.core.attributes import watched
from purexport.frontends.core.axes_of_structures import plain_spec
from purexport.frontends.core.request import Captured, Flat, Request, flatten, named_axes, output_names
from purexport.frontends.core.structures import Path, paths_of
from purexport.frontends.export import conversions, reader, specs
from purexport.frontends.export.assumptions import Assumptions
from purexport.frontends.export.examples import enlarged
from purexport.frontends.export.refusals import Watch
from purexport.frontends.export.specs import Spec
from purexport.shapes.symbols import Symbols
from purexport.torch_patches.fake_results import known_results, layouts_changed_at_once
from purexport.torch_patches.fakes import counts_typed
from purexport.torch_patches.quiet import quiet_torch
from purexport.torch_patches.sizes import (
    examples_asked_first,
    layouts_not_noted,
    results_not_kept,
    small_sizes_counted,
)


def export_model(request: Request) -> Captured:
    """Capture a module or function by torch.export.  Raises ExportError where torch.export fails."""
    flat = flatten(request)
    module = as_module(request.model, request.args)
    request = _in_plain_containers(request, flat, module)
    declared = specs.specs_of(request, flat, lambda: _bound(module, request.args, request.kwargs))
    labels = {name: specs.labels_of(name, spec) for name, spec in zip(flat.names, declared, strict=True)}
    declared = specs.ones_apart(flat.names, flat.tensors, declared)
    specs.refuse_differing(flat.names, flat.tensors, declared)

    def attempt() -> tuple[Captured, Watch]:
        with watched(module) as assigned:
            program, watch = _first_that_runs(module, flat, declared)
        found = Assumptions(program, watch, flat.names, labels)
        # an exported module runs without a call that the watch sees
        captured = _captured(program, flat.names, found.symbols, watch.results or _output_paths(program))
        # torch.export records an assignment in the outermost module as a write to its buffer
        inner = [item for item in captured.graph.inputs if item.name in assigned and "." in item.name]
        written = [*captured.graph.assigned, *(Assigned(item, None) for item in inner)]
        captured.graph = dataclasses.replace(captured.graph, assigned=written)
        captured.remarks += found.remarks()
        captured.notes += [*watch.remarks, *specs.said_of_ranges(request.dynamic_shapes)]
        return captured, watch

    first: tuple[Captured, Watch] | ExportError
    try:
        first = attempt()
    except ExportError as error:
        first = error
    if _holds(first) and not request.valueless:
        with suppress(ExportError):
            with conversions.kept(module):
                captured, watch = attempt()
            fewer = not isinstance(first, tuple) or len(watch.places) < len(first[1].places)
            if fewer and conversions.computes(captured.program, module, request.args, request.kwargs):
                return captured
    if isinstance(first, ExportError):
        raise first
    return first[0]


def _holds(outcome: tuple[Captured, Watch] | ExportError) -> bool:
    """Whether a size is held fixed."""
    return outcome.code == "dynamic-axis-held" if isinstance(outcome, ExportError) else bool(outcome[1].places)


def with_dynamic_axes(request: Request) -> Request:
    """The request with `dynamic_axes` in the place of `dynamic_shapes`, for routes other than torch.export.

    Raises ExportError for a specification that does not fit the arguments.
    """
    flat = flatten(request)
    module = as_module(request.model, request.args)
    plain = _in_plain_containers(request, flat, module)
    declared = specs.specs_of(plain, flat, lambda: _bound(module, plain.args, plain.kwargs))
    specs.refuse_differing(flat.names, flat.tensors, specs.ones_apart(flat.names, flat.tensors, declared))
    return dataclasses.replace(
        request,
        dynamic_shapes=None,
        dynamic_axes={name: specs.labels_of(name, spec) for name, spec in zip(flat.names, declared, strict=True)},
        derived=specs.derived_labels(flat.names, declared),
        bounds=specs.bounds_of(flat.names, declared),
        notes=specs.said_of_ranges(plain.dynamic_shapes),
    )


def read_program(request: Request) -> Captured:
    """Read an existing ExportedProgram; `dynamic_axes` may give names to its dynamic axes."""
    if request.dynamic_shapes is not None:
        raise ExportError(
            "dynamic_shapes says nothing of an ExportedProgram, whose sizes are decided; give it to "
            "torch.export.export",
            code="dynamic-shapes-do-not-fit",
        )
    program: ExportedProgram = request.model
    own = reader.tensor_names(program)
    given = list(request.input_names or ())[: len(own)]
    names = [*given, *own[len(given) :]]
    labels = named_axes(request, names, reader.user_tensors(program))
    return _captured(program, names, reader.symbols_of(program, names, labels), _output_paths(program))


def as_module(model: Any, args: tuple[Any, ...]) -> torch.nn.Module:
    """The model as a module, which torch.export needs."""
    return model if isinstance(model, torch.nn.Module) else _Function(model, len(args))


def _in_plain_containers(request: Request, flat: Flat, module: torch.nn.Module) -> Request:
    """The request with arguments and `dynamic_shapes` in containers that torch.export knows."""
    args, kwargs = flat.rebuild(flat.tensors, plain=True)
    shapes = request.dynamic_shapes
    if shapes is not None:
        arguments = _bound(module, request.args, request.kwargs)
        by_name = specs.by_name(shapes, arguments)
        shapes = {name: plain_spec(name, spec, arguments[name]) for name, spec in by_name.items()}
    return dataclasses.replace(request, args=args, kwargs=kwargs, dynamic_shapes=shapes)


def _captured(
    program: ExportedProgram, names: Sequence[str] | None, symbols: Symbols, results: Sequence[Path]
) -> Captured:
    graph = reader.read(program, names, symbols)
    given = [output for output in graph.outputs if output is not None]
    graph = dataclasses.replace(graph, outputs=given, output_names=output_names(results))
    spec = program.call_spec.out_spec
    listed = spec is not None and spec.type is list
    return Captured(graph, types_hold_for_all_sizes=True, listed=listed, program=program)


def _output_paths(program: ExportedProgram) -> list[Path]:
    spec = program.call_spec.out_spec
    assert spec is not None
    leaves = [output.arg for output in program.graph_signature.output_specs if output.kind.name == "USER_OUTPUT"]
    paths = [steps for steps, _ in paths_of(spec)]
    return [path for path, leaf in zip(paths, leaves, strict=True) if getattr(leaf, "value", leaf) is not None]


def _first_that_runs(module: torch.nn.Module, flat: Flat, declared: Sequence[Spec]) -> tuple[ExportedProgram, Watch]:
    """The program for the first example that the model takes.  Raises the error for the first one where all fail."""
    failures: list[ExportError] = []
    second_best: list[tuple[ExportedProgram, Watch]] = []
    without: set[row_loops.Step] = set()
    given, relations = specs.hints_and_relations(flat.names, declared)
    for tensors in enlarged(flat.tensors, declared):
        args, kwargs = flat.rebuild(tensors, plain=True)
        for hints, small in _attempts(given):
            names = dict(zip(map(id, tensors), flat.names, strict=True))
            signature = _signature(module, kwargs)
            arguments = _bound(module, args, kwargs)
            again = True
            while again:
                watch = Watch(module, signature, arguments, names, flat.tree, relations, small, without)
                program = _exported(watch, args, kwargs, tensors, hints)
                again = isinstance(program, ExportError) and watch.must_run_again(program.__cause__)
            if isinstance(program, ExportError):
                failures.append(program)
                if program.code == "data-dependent":  # other sizes do not help
                    raise program from program.__cause__
            elif _keeps_an_axis_of_one(program, grew=any(map(operator.is_not, tensors, flat.tensors))):
                second_best.append((program, watch))
            else:
                return program, watch
    if second_best:
        return second_best[0]
    raise failures[0] from failures[0].__cause__


def _keeps_an_axis_of_one(program: ExportedProgram, grew: bool) -> bool:
    """Whether a squeeze keeps a dynamic axis that may be 1 in the user's example, which is smaller if this one `grew`.

    torch records that the axis stays, and the file would not even give the example's shape.
    """
    for node in program.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "overloadpacket", None) in _SQUEEZES:
            shape = node.args[0].meta["val"].shape
            dims = node.args[1] if len(node.args) > 1 else range(len(shape))
            sizes = [shape[dim] for dim in (dims if isinstance(dims, (list, tuple, range)) else [dims]) if len(shape)]
            free = [size.node for size in sizes if isinstance(size, torch.SymInt) and size.node.has_hint()]
            if any(grew or size.hint == 1 for size in free):
                return True
    return False


_SQUEEZES = (torch.ops.aten.squeeze, torch.ops.aten.squeeze_)


def _attempts(given: Sequence[Spec]) -> Iterator[tuple[Sequence[Spec], bool]]:
    """What torch is told of each tensor, and whether sizes of 0 and 1 count.

    The first attempt says all that is declared.  Then goes what only torch's own `Dim` can say, and then the small
    sizes, for which torch cannot always tell whether an operator broadcasts.
    """
    yield given, any(given)
    if any(given):
        free = [dict.fromkeys(spec, Dim.AUTO) for spec in given]
        if free != given:
            yield free, True
        yield free, False


_QUICKER = (results_not_kept, known_results, layouts_changed_at_once, layouts_not_noted, examples_asked_first)
"""What torch leaves out where sizes are symbolic, in which it only takes time."""


def _exported(
    watch: Watch,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: Sequence[torch.Tensor],
    hints: Sequence[Spec],
) -> ExportedProgram | ExportError:
    """The program, or torch's error in the user's terms."""
    shapes: Any = None
    if any(hints):
        by_tensor = dict(zip(map(id, tensors), hints, strict=True))
        combined = _bound(watch.module, args, kwargs)
        shapes = dynamic_shapes._tree_map_with_path(
            lambda _, leaf: by_tensor.get(id(leaf)) or None, combined, tree_name="args"
        )
    try:
        counted = small_sizes_counted() if watch.small else nullcontext()
        with (
            quiet_torch(),
            warnings.catch_warnings(),
            torch.no_grad(),
            watch.running(),
            single_calls_in_bodies(),
            counts_typed(),
            counted,
            ExitStack() as quick,
        ):
            for context in _QUICKER if shapes else ():
                quick.enter_context(context())
            warnings.simplefilter("ignore")
            return torch.export.export(watch.module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        explained = watch.explained(error)
        explained.__cause__ = error
        return explained


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
