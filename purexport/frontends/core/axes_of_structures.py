"""Dynamic axes of structures: what `dynamic_axes` and `dynamic_shapes` say of an argument, for each tensor in it.

A specification has the form of the argument, as torch's `dynamic_shapes` have: a dict by key or field, a list or tuple
by position.  At any level one entry for a single tensor (axes by number, or one entry per axis) stands for all tensors
below.  For a cache a list has one entry per layer, and torch's own forms are known too: a list of all keys and then all
values, and two lists of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from purexport.errors import ExportError
from purexport.frontends.core.structures import Path, StructureNode, apart, joined

Tensors = Sequence[tuple[Path, torch.Tensor]]


def plain_spec(name: str, spec: Any, argument: Any) -> Any:
    """The `dynamic_shapes` of one argument in the form of the plain containers that torch.export sees.

    Raises ExportError for a specification that does not have the form of the argument.
    """
    return _plain(name, spec, apart(argument))


def _plain(name: str, spec: Any, node: StructureNode) -> Any:
    if spec is None or not _has_own(node):
        return spec
    assert node.kind is not None
    if not node.kind.plain or not isinstance(spec, (Mapping, list, tuple)) or _is_axes(spec):
        leaves = list(node.leaves())
        found = dict(spread(name, spec, tensors_of(leaves)))
        return node.plain(iter([found.get(path) for path, _ in leaves]))
    if isinstance(spec, Mapping):
        parts = {steps[0].text: part for steps, part in zip(node.paths, node.parts, strict=True)}
        return {key: _plain(f"{name}[{key!r}]", entry, parts.get(str(key), _LEAF)) for key, entry in spec.items()}
    parts_or_none = [*node.parts, *[_LEAF] * len(spec)][: len(spec)]
    return [
        _plain(f"{name}[{i}]", entry, part) for i, (entry, part) in enumerate(zip(spec, parts_or_none, strict=True))
    ]


_LEAF = StructureNode(None)


def _has_own(node: StructureNode) -> bool:
    return node.kind is not None and (not node.kind.plain or any(map(_has_own, node.parts)))


def tensors_of(leaves: Sequence[tuple[Path, Any]]) -> Tensors:
    """The tensors among leaves."""
    return [(path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]


def spread(name: str, spec: Any, tensors: Tensors) -> list[tuple[Path, Any]]:
    """The entry of `spec` for each tensor, by the path to it.

    Raises ExportError for a specification that does not have the form of the tensors.
    """
    if len(tensors) == 1 and not tensors[0][0]:
        return [((), spec)]
    if spec is None or not isinstance(spec, (Mapping, list, tuple)) or _is_axes(spec) or _one_per_axis(spec, tensors):
        return [(path, spec) for path, _ in tensors]
    groups: dict[str, list[tuple[Path, torch.Tensor]]] = {}
    for path, tensor in tensors:
        groups.setdefault(path[0].text, []).append((path[1:], tensor))
    # of a cache: the layer, and what it holds
    of_layers = all(len(path) == 2 and path[0].text.isdigit() for path, _ in tensors)
    kinds = list(dict.fromkeys(path[1].text for path, _ in tensors)) if of_layers else []
    if isinstance(spec, Mapping):
        whole = {joined(path): path for path, _ in tensors}
        if set(map(str, spec)) <= set(whole):
            return [(whole[str(key)], entry) for key, entry in spec.items()]
        if set(map(str, spec)) <= set(groups):
            return _within(name, {str(key): entry for key, entry in spec.items()}, tensors, groups)
        for place in range(1, max(len(path) for path, _ in tensors)):
            if set(map(str, spec)) <= {path[place].text for path, _ in tensors if place < len(path)}:
                return [(path, spec.get(path[place].text) if place < len(path) else None) for path, _ in tensors]
        raise _misfit(name, spec, tensors)
    if len(spec) == len(groups):
        return _within(name, dict(zip(groups, spec, strict=True)), tensors, groups)
    by_kind = [path for kind in kinds or (None,) for path, _ in tensors if kind in (None, path[-1].text)]
    if len(spec) == len(tensors):
        return list(zip(by_kind, spec, strict=True))
    if kinds and len(spec) == len(kinds) and all(isinstance(entry, (list, tuple)) for entry in spec):
        flat = [entry for entries in spec for entry in entries]
        if len(flat) == len(tensors):
            return list(zip(by_kind, flat, strict=True))
    raise _misfit(name, spec, tensors)


def _within(
    name: str, entries: Mapping[str, Any], tensors: Tensors, groups: Mapping[str, Tensors]
) -> list[tuple[Path, Any]]:
    first = {path[0].text: path[:1] for path, _ in tensors}
    return [
        (first[key] + path, entry)
        for key, spec in entries.items()
        for path, entry in spread(f"{name}[{key}]", spec, groups[key])
    ]


def _is_axes(spec: Any) -> bool:
    """Whether an entry is one for a single tensor: axes by number."""
    return isinstance(spec, Mapping) and bool(spec) and all(isinstance(key, int) for key in spec)


def _one_per_axis(spec: Any, tensors: Tensors) -> bool:
    """Whether a list is one for a single tensor: an entry per axis, or the numbers of axes."""
    if isinstance(spec, Mapping) or any(isinstance(entry, (Mapping, list, tuple)) for entry in spec):
        return False
    if all(isinstance(entry, int) for entry in spec):
        return True
    return any(entry is not None for entry in spec) and all(len(spec) == tensor.dim() for _, tensor in tensors)


def _misfit(name: str, spec: Any, tensors: Tensors) -> ExportError:
    given = ", ".join(map(str, spec)) if isinstance(spec, Mapping) else f"{len(spec)} entries"
    return ExportError(
        f"the dynamic axes of {name} are given for {given}, and its tensors are "
        f"{', '.join(joined(path) for path, _ in tensors) or 'none'}; give one entry for all of them, or one for each",
        code="dynamic-shapes-do-not-fit",
    )
