"""The request for a capture and its result; arguments are flattened, and each tensor gets a name.

Arguments and results may be nested in any way that `structures` knows.  Tensors become inputs, and everything else
becomes a constant.  The name of an input consists of the parameter of `forward` and the keys that lead to the tensor.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.axes import Axes, Derived, own_name
from purexport.aten.graph import AtenGraph
from purexport.aten.unique_names import distinct
from purexport.errors import ExportError
from purexport.frontends.core.axes_of_structures import spread
from purexport.frontends.core.module_tensors import ModuleTensor
from purexport.frontends.core.structures import Path, StructureNode, StructureStep, apart, hides_tensors, joined
from purexport.torch_patches.torch_jit import ScriptFunction, is_script


@dataclass
class Request:
    """What is to be captured: the model, its arguments, and their dynamic axes.

    `valueless` lists the model's tensors without values; if there are any, the model must not run on values.
    `numbers` are Python numbers of the user's arguments, for which `args` and `kwargs` have zero-dim tensors, by their
    positions among the tensors.
    `loops_carry_lists` is False where no Loop of the file can carry a list of tensors.
    `derived` says which labels of `dynamic_axes` are sizes that follow from another label, and how; `bounds` are the
    smallest and the largest size of labels, where they are declared; `notes` are for the report.  With `both` the
    graph has both ways of decisions where they come together again.
    """

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    route: str = "auto"
    input_names: Sequence[str] | None = None
    dynamic_axes: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    valueless: Sequence[ModuleTensor] = ()
    output_names: Sequence[str] = ()
    numbers: Mapping[int, Any] = field(default_factory=dict)
    loops_carry_lists: bool = True
    derived: Derived = field(default_factory=dict)
    bounds: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    both: bool = False


class NumbersHeldError(Exception):
    """A trace cannot take some numbers as tensors: the request is made again, with these as the constants they were.

    `positions` are among the tensors of the request.  `remark` is for the user, and None where nothing is lost; `idle`
    is whether the result is the same for other numbers.
    """

    def __init__(self, positions: Collection[int], remark: str | None = None, idle: bool = False) -> None:
        self.positions = frozenset(positions)
        self.remark = remark
        self.idle = idle
        super().__init__(remark)


@dataclass
class Captured:
    """The graph, the dynamic axes by input name, the route that produced the graph, and the reason for that route.

    `notes` are for the report alone.  `remarks` are ours and become warnings.
    `types_hold_for_all_sizes` is False where the types in the graph are those of the example, with numbers as sizes
    also on dynamic axes.  `scripted` is True when a script was interpreted, on its own or called from a trace.
    `enlarged` is True when axes of the example have fewer than two elements, and more in the types of the graph.
    `listed` is True when the model returns a list and the results are its elements.
    `program` is the program of torch.export that the graph was read from.
    `derived` is that of the request, where the types are those of the example.
    """

    graph: AtenGraph
    axes: dict[str, Axes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    types_hold_for_all_sizes: bool = False
    scripted: bool = False
    enlarged: bool = False
    listed: bool = False
    program: torch.export.ExportedProgram | None = None
    derived: Derived = field(default_factory=dict)
    route: str = ""
    reason: str = ""


@dataclass
class Flat:
    """Flattened arguments: the tree, its leaves, the positions of the tensors among the leaves, and their names."""

    tree: StructureNode
    leaves: list[Any]
    positions: list[int]
    names: list[str]

    def rebuild(self, tensors: Sequence[Any], *, plain: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other objects in place of the tensors.

        With `plain` dicts stand for the structures that torch does not know.
        """
        leaves = list(self.leaves)
        for position, tensor in zip(self.positions, tensors, strict=True):
            leaves[position] = tensor
        args, kwargs = self.tree.plain(iter(leaves)) if plain else self.tree.rebuilt(iter(leaves))
        return args, kwargs

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, in the order of their names."""
        return [self.leaves[position] for position in self.positions]

    @property
    def paths(self) -> list[Path]:
        """The path of each tensor: 0 or 1 for args or kwargs, the argument, and the steps in it."""
        paths = [path for path, _ in self.tree.leaves()]
        return [paths[position] for position in self.positions]


def flatten(request: Request) -> Flat:
    """Flatten the arguments and name each tensor.  Raises ExportError for an object that hides tensors."""
    tree = apart((request.args, request.kwargs))
    pairs = list(tree.leaves())
    for path, leaf in pairs:
        if not isinstance(leaf, torch.Tensor) and hides_tensors(leaf):
            place = "".join(f"[{step.text if step.text.isdigit() else repr(step.text)}]" for step in path[1:])
            raise ExportError(
                f"args hold a {type(leaf).__name__} at {place}, whose tensors purexport cannot see; "
                f"{how_to_register(leaf)}",
                code="argument-not-a-tensor",
            )
    positions = [i for i, (_, leaf) in enumerate(pairs) if isinstance(leaf, torch.Tensor)]
    parameters = parameter_names(request.model)
    given = list(request.input_names or ())[: len(positions)]
    names = [_input_name(pairs[position][0], parameters) for position in positions]
    names = distinct([*given, *names[len(given) :]])
    return Flat(tree, [leaf for _, leaf in pairs], positions, names)


def parameter_names(model: Any) -> list[str]:
    if is_script(model):
        return [parameter.name for parameter in script_parameters(model)]
    while isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        model = model.module  # it hands on all arguments
    function = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in plain]


def _input_name(path: Path, parameters: Sequence[str]) -> str:
    """`x` for the argument x, `state_h` for `state["h"]`, `pair_0` for `pair[0]`, `past.0.key` for a cache."""
    return joined((StructureStep(argument_name(path, parameters)), *path[2:]))


def argument_name(path: Path, parameters: Sequence[str]) -> str:
    """The name of the argument that a path leads to."""
    kind, argument = path[0].text, path[1].text
    if kind == "0":  # positional
        position = int(argument)
        return parameters[position] if position < len(parameters) else f"input_{position}"
    return argument


def output_names(paths: Sequence[Path]) -> list[str]:
    """`output` for a single result, else names by position or key: `output_0`, `logits`.

    A cache among the results is called `present` (`present.0.key`), because its own name is that of an input.
    """
    if len(paths) == 1 and not paths[0]:
        return ["output"]
    places = [_before_cache(path) for path in paths]
    caches = {joined(place) for place, path in zip(places, paths, strict=True) if len(place) < len(path)}
    names = []
    for place, path in zip(places, paths, strict=True):
        if len(place) < len(path):
            own = joined(place)
            cache = "present" if len(caches) == 1 or own == "past_key_values" else f"present_{own}"
            names.append(joined((StructureStep(cache), *path[len(place) :])))
        else:
            names.append(joined((StructureStep("output"), *path) if path[0].text.isdigit() else path))
    return distinct(names)


def _before_cache(path: Path) -> Path:
    """The steps before those in a cache."""
    return path[: next((place for place, step in enumerate(path) if step.joint == "."), len(path))]


def named_axes(
    request: Request, names: Sequence[str], tensors: Sequence[torch.Tensor], paths: Sequence[Path] = ()
) -> dict[str, Axes]:
    """`dynamic_axes` after a check, with a name for every axis.

    An entry may also name an argument; then it says what the axes of all tensors in the argument are.
    """
    result: dict[str, Axes] = {}
    ranks = dict(zip(names, (tensor.dim() for tensor in tensors), strict=True))
    for name, axes in _by_input(request, names, tensors, paths):
        if name not in ranks:
            continue  # an output: its axes follow from the inputs; the export checks later that it exists
        items = axes.items() if isinstance(axes, Mapping) else ((axis, own_name(name, axis)) for axis in axes)
        for axis, label in items:
            if not isinstance(axis, int) or not -ranks[name] <= axis < ranks[name]:
                own = (
                    ""
                    if name in (request.dynamic_axes or {})
                    else "; give the tensors of an argument entries of their own"
                )
                raise ValueError(
                    f"dynamic_axes[{name!r}] names axis {axis!r}, and {name!r} has {ranks[name]} axes{own}"
                )
            result.setdefault(name, {})[axis % ranks[name]] = str(label)
    return result


def _by_input(
    request: Request, names: Sequence[str], tensors: Sequence[torch.Tensor], paths: Sequence[Path]
) -> list[tuple[str, Any]]:
    """The entries of `dynamic_axes` by input: an entry for an argument becomes one for each tensor in it."""
    parameters = parameter_names(request.model)
    inside: dict[str, list[tuple[Path, torch.Tensor]]] = {}
    named: dict[tuple[str, Path], str] = {}
    for name, tensor, path in zip(names, tensors, paths, strict=False):
        argument = argument_name(path, parameters)
        inside.setdefault(argument, []).append((path[2:], tensor))
        named[argument, path[2:]] = name
    found = []
    for name, axes in (request.dynamic_axes or {}).items():
        if name in names or name not in inside or name in request.output_names:
            found.append((name, axes))
            continue
        entries = spread(name, axes, inside[name])
        found += [(named[name, path], entry) for path, entry in entries if entry is not None]
    return found


def argument_names(model: Any, arguments: tuple[tuple[Any, ...], Mapping[str, Any]]) -> list[str]:
    """The names of the arguments of a call, by which `dynamic_axes` may speak of all tensors in one."""
    args, kwargs = arguments
    parameters = parameter_names(model)
    return [
        argument_name((StructureStep("0"), StructureStep(str(place))), parameters) for place in range(len(args))
    ] + list(kwargs)


def script_parameters(model: Any) -> list[Any]:
    """The parameters in a script's schema, without `self`.  Raises ExportError for a module without a forward."""
    is_function = isinstance(model, ScriptFunction)
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
    """What to do about an object that is no structure that we know."""
    name = type(item).__name__
    if isinstance(item, (str, bytes)):
        return "leave it out of the results"
    return (
        "use a dict, list, tuple, named tuple, dataclass or mapping, or call "
        f"torch.utils._pytree.register_pytree_node({name}, flatten, unflatten) once"
    )


def is_same(result: torch.Tensor, expected: Any) -> bool:
    """Whether a result of tensors is that of Python numbers, up to rounding.  A number has no dtype of torch's."""
    if not isinstance(expected, torch.Tensor):
        expected = torch.as_tensor(expected).to(result.dtype)
    if (result.dtype, result.shape) != (expected.dtype, expected.shape):
        return False
    return torch.allclose(result, expected, rtol=1e-3, atol=1e-5, equal_nan=True)
