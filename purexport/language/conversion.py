"""A checkpoint under the names and in the shapes of transformers' model: what `from_pretrained` does, without loading.

Many checkpoints have other names than the parameters of the model, and a tensor for each expert where the model has one
for all.  transformers has rules for that.  They are asked for the names, and are run on tensors without values for the
shapes.  What only lies behind each other is then copied piece by piece; the rest is computed by these rules when it is
written, one parameter at a time.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from proto_schema.derived.joined import JoinedPayload
from proto_schema.external.payload import LazyPayload, Payload
from purexport.dtypes import torch_dtype
from purexport.language.library import library
from purexport.weights.stored import Stored

_Source = tuple[str, Stored]  # the pattern of a rule, and what it found


def converted(model: Any, found: Mapping[str, Stored]) -> dict[str, Stored]:
    """The tensors of a checkpoint by the names of the model's; those that the model does not have stay out."""
    loading = library("core_model_loading")
    rules = library("conversion_mapping").get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, loading.WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, loading.WeightConverter)]
    own = model.state_dict()
    result: dict[str, Stored] = {}
    sources: defaultdict[str, list[_Source]] = defaultdict(list)
    for name in sorted(found, key=loading.dot_natural_key):
        new, pattern = loading.rename_source_key(name, renamings, converters, model.base_model_prefix, own)
        if new not in own and name in own:
            new, pattern = name, None
        if new in own and pattern is None:
            result[new] = found[name]
        elif new in own:
            sources[new].append((pattern, found[name]))
    for name, items in sources.items():
        rule = next(rule for rule in converters if items[0][0] in rule.source_patterns)
        result |= _by_rule(model, rule, name, items)
    return result


def _by_rule(model: Any, rule: Any, name: str, items: Sequence[_Source]) -> dict[str, Stored]:
    """What a rule makes of some tensors, by name."""

    def made(tensor_of: Callable[[Stored], Tensor]) -> dict[str, Tensor]:
        mine = copy.deepcopy(rule)
        for pattern, stored in items:
            mine.add_tensor(name, stored.name, pattern, tensor_of(stored))
        results = mine.convert(name, model=model, config=model.config)
        return {key: item[0] if isinstance(item, list) else item for key, item in results.items()}

    pieces = _joined(rule, items)
    first = items[0][1]
    found = {}
    for key, shape in ((key, tuple(item.shape)) for key, item in made(_empty).items()):
        size = torch.Size(shape).numel() * torch_dtype(first.dtype).itemsize

        def computed(key: str = key) -> Any:
            return made(loaded_tensor)[key].contiguous().reshape(-1).view(torch.uint8).numpy()

        payload: Payload = LazyPayload(size, computed, description=f"the conversion of {key}")
        if pieces is not None:
            payload = JoinedPayload([piece.payload for piece in pieces])
        found[key] = Stored(key, first.dtype, shape, payload, first.origin)
    return found


def _joined(rule: Any, items: Sequence[_Source]) -> list[Stored] | None:
    """The tensors in the order in which the result of a rule has their bytes; None where it does more with them."""
    if len({stored.dtype for _, stored in items}) != 1 or len(rule.target_patterns) != 1:
        return None
    by_pattern = [[stored for at, stored in items if at == pattern] for pattern in rule.source_patterns]
    kinds = [(type(operation).__name__, operation.dim) for operation in rule.operations if hasattr(operation, "dim")]
    if len(kinds) != len(rule.operations):
        return None
    if kinds in ([("MergeModulelist", 0)], [("Concatenate", 0)]):
        return [stored for group in by_pattern for stored in group]
    if kinds == [("MergeModulelist", 0), ("Concatenate", 1)] and len({len(group) for group in by_pattern}) == 1:
        return [stored for group in zip(*by_pattern, strict=True) for stored in group]
    return None


def _empty(stored: Stored) -> Tensor:
    return torch.empty(stored.shape, dtype=torch_dtype(stored.dtype), device="meta")


def loaded_tensor(stored: Stored) -> Tensor:
    """The tensor with its values."""
    data = bytearray(stored.payload.tobytes())
    if not data:  # frombuffer takes no empty buffer
        return torch.empty(stored.shape, dtype=torch_dtype(stored.dtype))
    return torch.frombuffer(data, dtype=torch_dtype(stored.dtype)).reshape(stored.shape)
