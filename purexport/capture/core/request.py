"""The request for a capture and its result; arguments are flattened, and each tensor gets a name.

Arguments and results may be nested in any way that `torch.utils._pytree` knows.  Tensors become inputs, and everything
else becomes a constant.  The name of an input consists of the parameter of `forward` and the keys that lead to the
tensor.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from purexport.aten.axes import Axes
from purexport.aten.graph import AtenGraph
from purexport.aten.unique_names import distinct
from purexport.capture.core.module_tensors import Owned
from purexport.errors import ExportError


@dataclass
class Request:
    """What is to be captured: the model, its arguments, and their dynamic axes.

    `valueless` lists the model's tensors without values; if there are any, the model must not run on values.
    """

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    route: str = "auto"
    input_names: Sequence[str] | None = None
    dynamic_axes: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    valueless: Sequence[Owned] = ()


@dataclass
class Captured:
    """The graph, the dynamic axes by input name, the route that produced the graph, and the reason for that route.

    `notes` are for the report alone: the tracer's own warnings, which were shown already, and comparisons of sizes
    that other sizes did not change.  `remarks` are ours and become warnings.
    `types_hold_for_all_sizes` is False where the types in the graph are those of the example, with numbers as sizes
    also on dynamic axes.  `scripted` is True when a script was interpreted, on its own or called from a trace.
    `listed` is True when the model returns a list and the results are its elements.
    """

    graph: AtenGraph
    axes: dict[str, Axes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    types_hold_for_all_sizes: bool = False
    scripted: bool = False
    listed: bool = False
    route: str = ""
    reason: str = ""


@dataclass
class Flat:
    """Flattened arguments: the tensors, the position of each among the leaves, and how to rebuild the arguments."""

    leaves: list[Any]
    spec: pytree.TreeSpec
    positions: list[int]
    names: list[str]

    def rebuild(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other objects in place of the tensors."""
        leaves = list(self.leaves)
        for position, tensor in zip(self.positions, tensors, strict=True):
            leaves[position] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, in the order of their names."""
        return [self.leaves[position] for position in self.positions]


def flatten(request: Request) -> Flat:
    """Flatten the arguments and name each tensor.  Raises ExportError for an object that hides tensors."""
    with_paths, spec = pytree.tree_flatten_with_path((request.args, request.kwargs))
    leaves = [leaf for _, leaf in with_paths]
    for path, leaf in with_paths:
        if not isinstance(leaf, torch.Tensor) and _hides_tensors(leaf):
            raise ExportError(
                f"args hold {_describe(path, leaf)}, whose tensors torch cannot see; {how_to_register(leaf)}",
                code="argument-not-a-tensor",
            )
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    parameters = parameter_names(request.model)
    given = list(request.input_names or ())[: len(positions)]
    names = [_input_name(with_paths[position][0], parameters) for position in positions]
    names = distinct([*given, *names[len(given) :]])
    return Flat(leaves, spec, positions, names)


def parameter_names(model: Any) -> list[str]:
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return [parameter.name for parameter in script_parameters(model)]
    function = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in plain]


def _input_name(path: tuple[Any, ...], parameters: Sequence[str]) -> str:
    """`x` for the argument x, `state_h` for `state["h"]`, `pair_0` for `pair[0]`."""
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


def output_names(spec_paths: Sequence[tuple[Any, ...]]) -> list[str]:
    """`output` for a single result, else names by position or key: `output_0`, `logits`."""
    if len(spec_paths) == 1 and not spec_paths[0]:
        return ["output"]
    names = []
    for path in spec_paths:
        keys = [_key(entry) for entry in path]
        names.append("_".join(["output", *keys]) if keys[0].isdigit() else "_".join(keys))
    return distinct(names)


def named_axes(request: Request, names: Sequence[str], tensors: Sequence[torch.Tensor]) -> dict[str, Axes]:
    """`dynamic_axes` after a check, with a name for every axis."""
    result: dict[str, Axes] = {}
    ranks = dict(zip(names, (tensor.dim() for tensor in tensors), strict=True))
    for name, axes in (request.dynamic_axes or {}).items():
        if name not in ranks:
            continue  # an output: its axes follow from the inputs; the export checks later that it exists
        items = axes.items() if isinstance(axes, Mapping) else ((axis, f"{name}_dim_{axis}") for axis in axes)
        for axis, label in items:
            if not isinstance(axis, int) or not -ranks[name] <= axis < ranks[name]:
                raise ValueError(f"dynamic_axes[{name!r}] names axis {axis!r}, and {name!r} has {ranks[name]} axes")
            result.setdefault(name, {})[axis % ranks[name]] = str(label)
    return result


def script_parameters(model: Any) -> list[Any]:
    """The parameters in a script's schema, without `self`.  Raises ExportError for a module without a forward."""
    is_function = isinstance(model, torch.jit.ScriptFunction)
    if not is_function and not hasattr(model, "forward"):
        raise ExportError(
            "the script has no method forward of its own; script a module that calls it", code="script-without-forward"
        )
    return list(model.schema.arguments) if is_function else list(model.forward.schema.arguments)[1:]


def refuse_output(leaf: Any) -> ExportError:
    """The error for a result that is neither a tensor nor a number."""
    return ExportError(
        f"the model returns a {type(leaf).__name__}, and ONNX outputs are tensors; {how_to_register(leaf)}",
        code="output-not-a-tensor",
    )


def how_to_register(item: Any) -> str:
    """What to do about an object that is no pytree node."""
    name = type(item).__name__
    if isinstance(item, (str, bytes)):
        return "leave it out of the results"
    if dataclasses.is_dataclass(item):
        return f"call torch.export.register_dataclass({name}) once"
    return f"call torch.utils._pytree.register_pytree_node({name}, flatten, unflatten) once, or pass its tensors"


def _describe(path: tuple[Any, ...], item: Any) -> str:
    return f"a {type(item).__name__} at {pytree.keystr(path[1:])}"


_DEPTH = 4


def _hides_tensors(item: Any, depth: int = _DEPTH) -> bool:
    """Whether an object that is no pytree node contains tensors, which would silently become constants."""
    if isinstance(item, torch.Tensor):
        return True
    if item is None or isinstance(item, (bool, int, float, complex, str, bytes, torch.nn.Module)) or not depth:
        return False
    inside = item.values() if isinstance(item, Mapping) else item if isinstance(item, (list, tuple, set)) else ()
    fields = [*getattr(item, "__dict__", {}).values(), *inside]
    return any(_hides_tensors(leaf, depth - 1) for leaf in pytree.tree_leaves(fields))
