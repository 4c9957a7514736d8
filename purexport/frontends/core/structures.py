"""Arguments and results as models have them: nested containers, mappings, dataclasses and caches of keys and values.

`KINDS` is the table of structures, one row a kind.  `apart` takes a tree of them to pieces.  A node can be put together
again with other leaves, as the same kinds of objects (`rebuilt`) or with containers that torch.export knows (`plain`,
`restored`).  Nothing is registered with torch, and no library is imported: a cache is known by what it has.
Invariant: what is put together shares no container with the user's object, because models change their caches in place.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from proto_schema.wire.records import dataclass
from purexport.errors import ExportError


class StructureStep(NamedTuple):
    """One step from a structure to its part; `joint` stands before it in names."""

    text: str
    joint: str = "_"


Path = tuple[StructureStep, ...]
Parts = list[tuple[Path, Any]]


@dataclass(frozen=True)
class StructureKind:
    """One kind of structure.

    `takes` says whether an object is of this kind, `parts` lists what is in it, and `put` makes another object like it
    of other parts.  `changes` is True for objects that models change in place, `plain` for Python's own containers.
    """

    name: str
    takes: Callable[[Any], bool]
    parts: Callable[[Any], Parts]
    put: Callable[[Any, Sequence[Any]], Any]
    changes: bool = False
    plain: bool = False


@dataclass
class StructureNode:
    """An object of a tree with its parts; a leaf has no kind."""

    item: Any
    kind: StructureKind | None = None
    paths: list[Path] = field(default_factory=list)
    parts: list[StructureNode] = field(default_factory=list)

    def leaves(self, path: Path = ()) -> Iterator[tuple[Path, Any]]:
        """The leaves with the paths to them, in order."""
        if self.kind is None:
            yield path, self.item
        for steps, part in zip(self.paths, self.parts, strict=True):
            yield from part.leaves(path + steps)

    def rebuilt(self, leaves: Iterator[Any]) -> Any:
        """An object like this one with other leaves."""
        if self.kind is None:
            return next(leaves)
        return self.kind.put(self.item, [part.rebuilt(leaves) for part in self.parts])

    def plain(self, leaves: Iterator[Any]) -> Any:
        """As `rebuilt`, with a dict in place of each structure that is no container of Python's own."""
        if self.kind is None:
            return next(leaves)
        found = [part.plain(leaves) for part in self.parts]
        return self.kind.put(self.item, found) if self.kind.plain else dict(zip(self.keys, found, strict=True))

    def restored(self, tree: Any) -> Any:
        """What `plain` returned, with the structures in place of the dicts again."""
        if self.kind is None:
            return tree
        if isinstance(tree, dict):  # torch.export may give keyword arguments in another order
            keys = self.keys if not self.kind.plain else list(self.item)
            found = [tree[key] for key in keys]
        else:
            found = [part for _, part in self.kind.parts(tree)]
        return self.kind.put(self.item, [part.restored(other) for part, other in zip(self.parts, found, strict=True)])

    def numbers(self, inside: bool = True) -> Iterator[bool]:
        """For each leaf, in order, whether it is a number with nothing around it but containers of Python's own."""
        if self.kind is None:
            yield inside and is_number(self.item)
        for part in self.parts:
            yield from part.numbers(inside and self.kind is not None and self.kind.plain)

    @property
    def keys(self) -> list[str]:
        """The name of each part in the dict that stands for this structure."""
        return [joined(steps) for steps in self.paths]


def apart(tree: Any, *, results: bool = False) -> StructureNode:
    """A tree taken to pieces.

    An argument without tensors stays whole, unless models change it.  Of results every number is an output.
    Raises ExportError for a cache that holds tensors where the table does not see them.
    """
    kind = next((kind for kind in KINDS if kind.takes(tree)), None)
    if kind is None:
        return StructureNode(tree)
    if kind.changes and not results:
        _refuse_unseen(tree)
    pairs = kind.parts(tree)
    node = StructureNode(tree, kind, [steps for steps, _ in pairs], [apart(part, results=results) for _, part in pairs])
    if results or kind.changes or kind.plain or any(isinstance(leaf, torch.Tensor) for _, leaf in node.leaves()):
        return node
    return StructureNode(tree)


def is_number(item: Any) -> bool:
    """Whether an object is a Python number that a zero-dim tensor can hold."""
    return isinstance(item, (bool, float)) or (isinstance(item, int) and -(2**63) <= item < 2**63)


def number_tensor(number: bool | int | float) -> torch.Tensor:
    """A number as a tensor that becomes an input: int64, float64 or bool, without axes."""
    return torch.tensor(number, dtype=torch.float64 if isinstance(number, float) else None)


def joined(steps: Sequence[StructureStep]) -> str:
    """The name that the steps make together."""
    return "".join(step.text if not place else step.joint + step.text for place, step in enumerate(steps))


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree, in order."""
    return [leaf for _, leaf in apart(tree).leaves() if isinstance(leaf, torch.Tensor)]


def results_in(tree: Any) -> Parts:
    """The results of a model with their paths; None is no result."""
    return [(path, leaf) for path, leaf in apart(tree, results=True).leaves() if leaf is not None]


def mapped(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """The tree with the function's result in place of each tensor; containers are new."""
    node = apart(tree)
    leaves = [function(leaf) if isinstance(leaf, torch.Tensor) else leaf for _, leaf in node.leaves()]
    return node.rebuilt(iter(leaves))


def hides_tensors(item: Any, depth: int = 4) -> bool:
    """Whether an object that is no structure contains tensors, which would silently become constants."""
    if isinstance(item, torch.Tensor):
        return True
    if item is None or isinstance(item, (bool, int, float, complex, str, bytes, torch.nn.Module)) or not depth:
        return False
    inside = item.values() if isinstance(item, Mapping) else item if isinstance(item, (list, tuple, set)) else ()
    fields = [*getattr(item, "__dict__", {}).values(), *inside]
    return any(hides_tensors(leaf, depth - 1) for leaf in pytree.tree_leaves(fields))


# What torch knows -----------------------------------------------------------------------------------------------------


def _by_torch(item: Any) -> tuple[list[Any], pytree.TreeSpec]:
    """The parts that torch finds in an object, one level deep."""
    return pytree.tree_flatten(item, is_leaf=lambda other: other is not item)


def _is_known(item: Any) -> bool:
    return not _by_torch(item)[1].is_leaf()


def paths_of(spec: pytree.TreeSpec) -> list[tuple[Path, pytree.TreeSpec]]:
    """The paths to the leaves of a tree that torch knows, without an object of the classes in it."""
    if spec.is_leaf():
        return [((), spec)]
    children = spec.children()
    found = []
    for key, child in zip(_keys_of(spec, len(children)), children, strict=True):
        found += [((StructureStep(key), *path), leaf) for path, leaf in paths_of(child)]
    return found


def _keys_of(spec: pytree.TreeSpec, count: int) -> list[str]:
    """The keys or fields of a node: what its class keeps of them is a list, or the first or second thing in one."""
    if hasattr(spec.context, "_fields"):  # the class of a named tuple
        return list(spec.context._fields)
    inside = spec.context if isinstance(spec.context, list) else []
    for keys in (inside, *inside[:2]):
        named = isinstance(keys, list) and (spec.type is dict or all(isinstance(key, str) for key in keys))
        if named and len(keys) == count:
            return list(map(str, keys))
    return list(map(str, range(count)))


def _is_container(item: Any) -> bool:
    if type(item) in (tuple, list, dict, OrderedDict, defaultdict, deque):
        return True
    return isinstance(item, tuple) and hasattr(item, "_fields")


def _known_parts(item: Any) -> Parts:
    try:
        pairs, _ = pytree.tree_flatten_with_path(item, is_leaf=lambda other: other is not item)
    except ValueError:  # the class was registered without names for its parts
        return [((StructureStep(str(place)),), part) for place, part in enumerate(_by_torch(item)[0])]
    return [(steps_of(path), part) for path, part in pairs]


def steps_of(path: Sequence[Any]) -> Path:
    """A path as torch gives it."""
    return tuple(StructureStep(_key(entry)) for entry in path)


def _put_by_torch(item: Any, parts: Sequence[Any]) -> Any:
    return pytree.tree_unflatten(list(parts), _by_torch(item)[1])


def _key(entry: Any) -> str:
    for attribute in ("idx", "key", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


# Mappings and dataclasses ---------------------------------------------------------------------------------------------


def _is_mapping(item: Any) -> bool:
    return isinstance(item, Mapping)


def _mapping_parts(item: Any) -> Parts:
    return [((StructureStep(str(key)),), item[key]) for key in item]


def _put_mapping(item: Any, parts: Sequence[Any]) -> Any:
    if not isinstance(item, MutableMapping):
        return type(item)(dict(zip(item, parts, strict=True)))
    made = copy.copy(item)
    for key, part in zip(list(item), parts, strict=True):
        made[key] = part
    return made


def _is_dataclass(item: Any) -> bool:
    return dataclasses.is_dataclass(item) and not isinstance(item, type)


def _field_parts(item: Any) -> Parts:
    names = [field.name for field in dataclasses.fields(item)]
    return [((StructureStep(name),), getattr(item, name)) for name in names if hasattr(item, name)]


def _put_fields(item: Any, parts: Sequence[Any]) -> Any:
    made = copy.copy(item)  # not by the constructor, which may compute fields, or take others
    for (steps, _), part in zip(_field_parts(item), parts, strict=True):
        object.__setattr__(made, steps[0].text, part)
    return made


# Caches ---------------------------------------------------------------------------------------------------------------
# The names are those that runtimes expect: past_key_values.0.key, and with an encoder past_key_values.0.decoder.key.

# the tensors of a layer, or the lists of tensors of a cache without layers, and their names in a file
_STATE = {
    "keys": "key",
    "values": "value",
    "key_cache": "key",
    "value_cache": "value",
    "indexer_keys": "indexer_key",
    "indexer_position_ids": "indexer_position_ids",
    "conv_states": "conv_state",
    "recurrent_states": "recurrent_state",
    "ssm_states": "ssm_state",
}
# what makes an object a layer, or a cache without layers
_LAYERS = ({"keys", "values"}, {"conv_states", "recurrent_states"})
_LISTED = ({"key_cache", "value_cache"}, {"conv_states", "ssm_states"})
# the state besides of a layer whose tensors are as long as they will ever be
_PREALLOCATED = ("cumulative_length",)
# a number that a layer counts, which is the length of its keys until a window is full
_COUNTS = ("cumulative_length", "_seen_tokens")
# tensors of a layer that say what its class says too
_CONSTANTS = ("_sliding_window_tensor",)
_HALVES = {"decoder": "self_attention_cache", "encoder": "cross_attention_cache"}


def _attributes(item: Any) -> dict[str, Any]:
    return getattr(item, "__dict__", {})


def _ours(item: Any) -> bool:
    """A class that its author registered with torch is taken apart by torch; transformers' own go by this table."""
    return bool(_attributes(item)) and (
        not _is_known(item) or type(item).__module__.partition(".")[0] == "transformers"
    )


def _is_layer(item: Any) -> bool:
    return any(names <= _attributes(item).keys() for names in _LAYERS)


def _is_layered(item: Any) -> bool:
    layers = _attributes(item).get("layers")
    return isinstance(layers, list) and _ours(item) and all(map(_is_layer, layers)) and hasattr(item, "update")


def _is_listed(item: Any) -> bool:
    found = {name for name, value in _attributes(item).items() if isinstance(value, (list, torch.Tensor))}
    return any(names <= found for names in _LISTED) and _ours(item)


def _has_halves(item: Any) -> bool:
    return all(_is_cache(_attributes(item).get(name)) for name in _HALVES.values()) and _ours(item)


def _is_cache(item: Any) -> bool:
    return _is_layered(item) or _is_listed(item)


def _dotted(*texts: Any) -> Path:
    return tuple(StructureStep(str(text), ".") for text in texts)


def _layer_slots(layer: Any) -> list[tuple[str, int | None, Path]]:
    """Where the tensors of a layer lie: the attribute, the position in it, and the steps of the name."""
    found: list[tuple[str, int | None, Path]] = []
    for name in (*_STATE, *(_PREALLOCATED if hasattr(layer, "max_cache_len") and layer.is_initialized else ())):
        value, text = _attributes(layer).get(name), _STATE.get(name, name)
        if isinstance(value, torch.Tensor):
            found.append((name, None, _dotted(text)))
        elif isinstance(value, dict):
            several = [key for key, tensor in value.items() if isinstance(tensor, torch.Tensor)]
            found += [(name, key, _dotted(text, key) if len(value) > 1 else _dotted(text)) for key in several]
    return found


def _layered_parts(cache: Any) -> Parts:
    return [
        (_dotted(number) + steps, getattr(layer, name) if key is None else getattr(layer, name)[key])
        for number, layer in enumerate(cache.layers)
        for name, key, steps in _layer_slots(layer)
    ]


def _put_layers(cache: Any, parts: Sequence[Any]) -> Any:
    made, left = _fresh(cache), iter(parts)
    made.layers = [_put_layer(layer, left) for layer in cache.layers]
    known = [(_length(layer), _counts(layer)) for layer in cache.layers]
    holding = {length: layer for (length, _), layer in zip(known, made.layers, strict=True)}
    for (length, counts), layer in zip(known, made.layers, strict=True):
        for name, count in counts.items():
            of = layer if length == count else holding.get(count)
            if of is not None:
                setattr(layer, name, _length(of))
    return made


def _put_layer(layer: Any, parts: Iterator[Any]) -> Any:
    made = _fresh(layer)
    for name, key, _ in _layer_slots(layer):
        if key is None:
            setattr(made, name, next(parts))
        else:
            getattr(made, name)[key] = next(parts)
    return made


def _length(layer: Any) -> Any:
    """The number of tokens whose keys a layer holds."""
    keys = getattr(layer, "keys", None)
    return keys.shape[-2] if isinstance(keys, torch.Tensor) and keys.dim() > 1 else None


def _counts(layer: Any) -> dict[str, int]:
    """The tokens that a layer has counted in Python."""
    found = {name: _attributes(layer).get(name) for name in _COUNTS}
    return {name: count for name, count in found.items() if type(count) is int and _length(layer) is not None}


def counted(tree: Any) -> list[str]:
    """Remarks on counts of tokens in Python that no size tells, so that the file has the example's."""
    node = apart(tree)
    if node.kind is None:
        return []
    if node.kind is not _LAYERED:
        halves = [getattr(tree, name, None) for name in _HALVES.values()] if node.kind.changes else []
        return [remark for part in (*(part.item for part in node.parts), *halves) for remark in counted(part)]
    lengths = {_length(layer) for layer in tree.layers}
    for layer in tree.layers:
        for name, count in _counts(layer).items():
            if count not in lengths:
                return [
                    f"a {type(layer).__name__} has counted {count} tokens in {name!r} and holds {_length(layer)}; no "
                    "size tells the count, and the file has the example's; give positions as an argument, or an "
                    "example that fits into the window"
                ]
    return []


def _listed_parts(cache: Any) -> Parts:
    names = [name for name in _STATE if isinstance(_attributes(cache).get(name), (list, torch.Tensor))]
    lists = {name: _as_list(getattr(cache, name)) for name in names}
    return [
        (_dotted(*((number,) if isinstance(getattr(cache, name), list) else ()), _STATE[name]), tensors[number])
        for number in range(max(map(len, lists.values())))
        for name, tensors in lists.items()
        if number < len(tensors) and isinstance(tensors[number], torch.Tensor)
    ]


def _put_lists(cache: Any, parts: Sequence[Any]) -> Any:
    made = _fresh(cache)
    for (steps, _), part in zip(_listed_parts(cache), parts, strict=True):
        name = next(name for name in _attributes(cache) if _STATE.get(name) == steps[-1].text)
        if len(steps) == 1:
            setattr(made, name, part)
        else:
            getattr(made, name)[int(steps[0].text)] = part
    return made


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _half_parts(cache: Any) -> Parts:
    """Layer by layer: the tensors of the decoder's layer, then those of the encoder's."""
    return [(steps, part) for _, _, steps, part in _in_halves(cache)]


def _in_halves(cache: Any) -> list[tuple[str, int, Path, Any]]:
    found = [
        (half, place, (steps[0], *_dotted(half), *steps[1:]), part)
        for half, name in _HALVES.items()
        for place, (steps, part) in enumerate(_cache_kind(getattr(cache, name)).parts(getattr(cache, name)))
    ]
    return sorted(found, key=lambda item: int(item[2][0].text))


def _put_halves(cache: Any, parts: Sequence[Any]) -> Any:
    made = _fresh(cache)
    places = _in_halves(cache)
    for half, name in _HALVES.items():
        own = sorted((place, part) for (of, place, _, _), part in zip(places, parts, strict=True) if of == half)
        setattr(made, name, _cache_kind(getattr(cache, name)).put(getattr(cache, name), [part for _, part in own]))
    return made


def _cache_kind(cache: Any) -> StructureKind:
    return _LAYERED if _is_layered(cache) else _LISTED_CACHE


def _fresh(item: Any) -> Any:
    """A copy of an object whose lists, dicts, sets and tensors are copies too."""
    made = copy.copy(item)
    for name, value in _attributes(item).items():
        if isinstance(value, (list, dict, set)):
            setattr(made, name, copy.copy(value))
        elif isinstance(value, torch.Tensor) and name not in _STATE:
            setattr(made, name, value.clone())
    return made


def _refuse_unseen(cache: Any) -> None:
    """Raise ExportError for a cache that holds tensors where the table does not see them."""
    known = (*_STATE, *_PREALLOCATED, *_CONSTANTS)
    for item in (cache, *(_attributes(cache).get("layers") or ())):
        for name, value in _attributes(item).items():
            if name not in (*known, "layers", *_HALVES.values()) and hides_tensors(value):
                raise ExportError(
                    f"args hold a {type(item).__name__} with tensors in {name!r}, which cannot become inputs; pass a "
                    "cache of plain keys and values",
                    code="argument-not-a-tensor",
                )


_LAYERED = StructureKind("a cache of layers", _is_layered, _layered_parts, _put_layers, changes=True)
_LISTED_CACHE = StructureKind("a cache of lists", _is_listed, _listed_parts, _put_lists, changes=True)

KINDS: tuple[StructureKind, ...] = (
    StructureKind("a cache of two caches", _has_halves, _half_parts, _put_halves, changes=True),
    _LAYERED,
    _LISTED_CACHE,
    StructureKind("a container", _is_container, _known_parts, _put_by_torch, plain=True),
    StructureKind("a class registered with torch", _is_known, _known_parts, _put_by_torch),
    StructureKind("a mapping", _is_mapping, _mapping_parts, _put_mapping),
    StructureKind("a dataclass", _is_dataclass, _field_parts, _put_fields),
)
