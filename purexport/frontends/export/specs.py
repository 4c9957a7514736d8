"""What is declared of the dynamic axes: each tensor's own table, in torch's terms, whatever form the user gave it.

`dynamic_axes` and `dynamic_shapes` become one table per tensor, from axis to a `Dim` or a hint of torch's.  Axes of one
name share one `Dim`.  torch.export itself gets hints only, because it refuses a named `Dim` whose size follows from
other sizes.  What the names say is a relation between sizes, which is checked as soon as the model runs.  A `Dim` that
is derived from one that no axis has (`2 * Dim("half")` alone) stays as it is, because only torch knows its root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim, dynamic_shapes
from torch.utils import _pytree as pytree

from purexport.aten.axes import Axes, Derived, own_name
from purexport.errors import ExportError
from purexport.frontends.core.request import Flat, Request, named_axes

Spec = dict[int, Any]  # what the dynamic axes of one tensor are: a Dim, or one of torch's hints
Place = tuple[str, int]  # the name of an input and one of its axes

_HINTS = (type(Dim.AUTO),)
# torch's collections of shapes; AdditionalInputs came with torch 2.7
_COLLECTIONS = tuple(
    getattr(torch.export, name) for name in ("ShapesCollection", "AdditionalInputs") if hasattr(torch.export, name)
)


@dataclass(frozen=True)
class Relation:
    """What a name says of the size at `place`: it is `size` of the one at `root`, and lies between the bounds."""

    place: Place
    root: Place
    size: Callable[[Any], Any] | None = None
    low: int = 0
    high: int | None = None


def specs_of(request: Request, flat: Flat, arguments: Callable[[], Mapping[str, Any]]) -> list[Spec]:
    """What each tensor's dynamic axes are; `arguments` gives the example's arguments by parameter name.

    Raises ExportError for a specification that does not fit the arguments.
    """
    if request.dynamic_axes:
        axes = named_axes(request, flat.names, flat.tensors, flat.paths)
        dims: dict[str, Any] = {}
        return [{axis: _dim(label, dims) for axis, label in axes.get(name, {}).items()} for name in flat.names]
    if request.dynamic_shapes is None:
        return [{} for _ in flat.names]
    return _from_shapes(request.dynamic_shapes, flat, arguments())


def _from_shapes(shapes: Any, flat: Flat, arguments: Mapping[str, Any]) -> list[Spec]:
    found: dict[int, Spec] = {}
    strings: dict[str, Any] = {}

    def note(path: Any, leaf: Any, spec: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            found[id(leaf)] = dict(_axes_of(leaf, spec, strings))
        elif _is_hint(spec) and _kind(spec) != "STATIC":
            raise ValueError(f"{leaf!r} is a Python number, which the file holds fixed; give it as a tensor")
        return leaf

    from torch._dynamo.exc import UserError  # it brings torch.onnx, which a trace does without

    try:
        dynamic_shapes._tree_map_with_path(note, dict(arguments), by_name(shapes, arguments), tree_name="inputs")
    except (AttributeError, KeyError, TypeError, ValueError, UserError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ExportError(
            f"dynamic_shapes does not have the form of the args {', '.join(arguments)}: {lines[0] if lines else error}",
            code="dynamic-shapes-do-not-fit",
        ) from error
    return [found.get(id(tensor), {}) for tensor in flat.tensors]


def _axes_of(tensor: torch.Tensor, spec: Any, strings: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """The dynamic axes that `spec` gives to a tensor.  Raises ValueError for what is no axis or no size of one."""
    items = spec.items() if isinstance(spec, Mapping) else enumerate(spec or ())
    for axis, dim in items:
        fits = isinstance(axis, int) and -tensor.dim() <= axis < tensor.dim()
        if not fits or not (dim is None or isinstance(dim, (str, int)) or _is_hint(dim) or _is_dim(dim)):
            raise ValueError(f"{axis!r}: {dim!r} is not an axis of a tensor of {tensor.dim()} axes")
        if isinstance(dim, int) and dim != tensor.shape[axis]:
            raise ValueError(f"{axis!r}: {dim!r} is not the size of an axis of a tensor of shape {list(tensor.shape)}")
        if isinstance(dim, str):
            yield axis % tensor.dim(), _dim(dim, strings)
        elif _is_dim(dim) or (_is_hint(dim) and _kind(dim) != "STATIC"):
            yield axis % tensor.dim(), dim


def plain_shapes(shapes: Any, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`dynamic_shapes` with plain containers instead of torch's collections, which refer to the given tensor objects.

    Raises ExportError where such a collection does not fit the arguments.
    """
    if not isinstance(shapes, _COLLECTIONS):
        return shapes
    try:
        return shapes.dynamic_shapes(module, args, kwargs)
    except (AssertionError, TypeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ExportError(
            f"dynamic_shapes does not fit the args: {lines[0] if lines else error}", code="dynamic-shapes-do-not-fit"
        ) from error


def by_name(shapes: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
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
    """One `Dim` per name.  torch needs Python identifiers as names; the file does not."""
    if label not in dims:
        plain = label.isidentifier() and label.isascii()
        dims[label] = Dim(label if plain else f"axis_{len(dims)}")
        dims[label].label = label
    return dims[label]


# torch's hints and dimensions have had several classes, so they are known by what they have


def _is_hint(item: Any) -> bool:
    return isinstance(item, _HINTS)


def _kind(hint: Any) -> str:
    return str(getattr(hint, "type", hint).name)


def _is_dim(item: Any) -> bool:
    return hasattr(item, "min") and hasattr(item, "max") and hasattr(item, "__name__")


# What follows from the tables -----------------------------------------------------------------------------------------


def labels_of(name: str, spec: Spec) -> Axes:
    """The names of the axes in the file; an axis on which torch decides is named after its input."""
    return {
        axis: getattr(dim, "label", dim.__name__) if _is_dim(dim) else own_name(name, axis)
        for axis, dim in spec.items()
    }


def derived_labels(names: Sequence[str], specs: Sequence[Spec]) -> Derived:
    """The labels whose sizes follow from that of another axis."""
    labels = {name: labels_of(name, spec) for name, spec in zip(names, specs, strict=True)}
    found = {}
    for relation in hints_and_relations(names, specs)[1]:
        (name, axis), (root, other) = relation.place, relation.root
        if relation.size is not None:
            found[labels[name][axis]] = labels[root][other], relation.size
    return found


def bounds_of(names: Sequence[str], specs: Sequence[Spec]) -> dict[str, tuple[int, int | None]]:
    """The smallest and the largest size of the labels that follow from no other."""
    found = {}
    for name, spec in zip(names, specs, strict=True):
        for axis, label in labels_of(name, spec).items():
            if _is_dim(spec[axis]) and not hasattr(spec[axis], "root"):
                found[label] = _bounds(spec[axis])
    return found


def root_of(dim: Any) -> Any:
    """A key for all axes that have the size of `dim` or derive from it; a hint is a key of its own."""
    return getattr(getattr(dim, "root", dim), "__name__", None)


def hints_and_relations(names: Sequence[str], specs: Sequence[Spec]) -> tuple[list[Spec], list[Relation]]:
    """What torch.export is given for each tensor, and what the names say beside it."""
    roots: dict[str, Place] = {}
    for name, spec in zip(names, specs, strict=True):
        for axis, dim in spec.items():
            if _is_dim(dim) and not hasattr(dim, "root"):
                roots.setdefault(dim.__name__, (name, axis))
    hints: list[Spec] = []
    relations: list[Relation] = []
    for name, spec in zip(names, specs, strict=True):
        given: Spec = {}
        for axis, dim in spec.items():
            root = roots.get(root_of(dim))
            given[axis] = dim if _is_dim(dim) and root is None else Dim.AUTO
            if root is not None:
                relations.append(Relation((name, axis), root, getattr(dim, "fn", None), *_bounds(dim)))
            elif _is_hint(dim):
                low, high = getattr(dim, "min", None), getattr(dim, "max", None)
                relations.append(Relation((name, axis), (name, axis), None, low or 0, high))
        hints.append(given)
    return hints, relations


def ones_apart(names: Sequence[str], tensors: Sequence[torch.Tensor], specs: Sequence[Spec]) -> list[Spec]:
    """The specifications, where an axis that is 1 in the example beside others of its name is said nothing of.

    Such an axis broadcasts; torch finds out whether it has the size of the others.
    """
    sizes = dict(zip(names, (tensor.shape for tensor in tensors), strict=True))
    apart = {
        place
        for relation in hints_and_relations(names, specs)[1]
        if relation.size is None
        for place, other in ((relation.place, relation.root), (relation.root, relation.place))
        if sizes[place[0]][place[1]] == 1 != sizes[other[0]][other[1]]
    }
    return [
        {axis: Dim.AUTO if (name, axis) in apart else dim for axis, dim in spec.items()}
        for name, spec in zip(names, specs, strict=True)
    ]


def refuse_differing(names: Sequence[str], tensors: Sequence[torch.Tensor], specs: Sequence[Spec]) -> None:
    """Raise ExportError where the example's sizes are not what the names of the axes say."""
    sizes = dict(zip(names, (tensor.shape for tensor in tensors), strict=True))
    for relation in hints_and_relations(names, specs)[1]:
        (name, axis), (first, other) = relation.place, relation.root
        size, root = sizes[name][axis], sizes[first][other]
        wanted = root if relation.size is None else relation.size(root)
        if size != wanted:
            raise ExportError(
                f"axis {axis} of {name!r} must have the size {wanted}, because axis {other} of {first!r} has {root}, "
                f"and the example has {size}; give axes of other sizes other names",
                code="dynamic-shapes-do-not-fit",
            )
        if size < relation.low or (relation.high is not None and size > relation.high):
            raise ExportError(
                f"axis {axis} of {name!r} was declared from {relation.low} {_until(relation.high)}, "
                f"and the example has {size}",
                code="dynamic-shapes-do-not-fit",
            )


def _until(high: int | None) -> str:
    return "on" if high is None else f"to {high}"


def _bounds(dim: Any) -> tuple[int, int | None]:
    low, high = dim.min, dim.max
    return int(low), None if str(high) == "int_oo" or int(high) >= _UNBOUNDED else int(high)


_UNBOUNDED = 2**62  # earlier versions of torch have a number for no bound


def said_of_ranges(shapes: Any) -> list[str]:
    """The ranges that the user declared for the sizes, which a file cannot express."""
    found = {}
    for dim in pytree.tree_leaves(shapes):
        if _is_dim(dim) and not isinstance(dim, torch.Tensor):
            low, high = _bounds(dim)
            if low > 0 or high is not None:
                found[dim.__name__] = (
                    f"axis {dim.__name__!r} was declared from {low} {_until(high)}; the file does not check it"
                )
    return list(found.values())
