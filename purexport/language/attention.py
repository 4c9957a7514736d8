"""transformers' attention layers, recorded as one call of `purexport_llm::attention` each.

transformers asks a registry for the function that computes attention, and another one for the function that makes its
masks.  Ours stand there for the time of a capture.  The mask function makes the whole mask, as any other would, and
says beside it what pattern it has; where a runtime makes the mask itself, nothing of that is left in the file.

Models whose attention is code of their own keep it, and get their masks from ours.  So do layers that hand over more
than our call says: the function of the model's own file names what counts, and computes it then.
Invariant: afterwards the registries and the configs are what they were, also after an error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from purexport.aten import own_operators as own
from purexport.language.library import library
from purexport.torch_patches.before_composites import below

NAME = "purexport"
_CHOICE = "_attn_implementation_internal"  # where a config of transformers keeps the name of the function
_WRITTEN_OUT = "eager_attention_forward"  # the name of the attention function in each file of transformers
_IN_THE_MASK = "sliding_window"  # an argument that the mask says already

Tensor = torch.Tensor


@contextmanager
def attention_recorded(model: torch.nn.Module) -> Iterator[bool]:
    """Inside, the attention layers of `model` are recorded as one call each; False where they have code of their own.

    The masks of the latter are made by our mask function too.
    """
    asks = _asks_registry(model)
    ours: list[tuple[Any, dict[str, Any]]] = [
        (library("modeling_utils").ALL_ATTENTION_FUNCTIONS._global_mapping, {NAME: _attention}),
        (
            library("masking_utils").ALL_MASK_ATTENTION_FUNCTIONS._global_mapping,
            {NAME: _mask, "sdpa": _mask, "eager": _added_mask},
        ),
    ]
    configs = {id(config): config for module in model.modules() for config in _configs(getattr(module, "config", None))}
    choices = [(config, config.__dict__[_CHOICE]) for config in configs.values()]
    before = [(mapping, dict(mapping)) for mapping, _ in ours]
    try:
        for mapping, functions in ours:
            mapping.update(functions)
        for config, _ in choices if asks else ():
            config.__dict__[_CHOICE] = NAME
        yield asks
    finally:
        for config, choice in choices:
            config.__dict__[_CHOICE] = choice
        for mapping, content in before:
            mapping.clear()
            mapping.update(content)


def _asks_registry(model: torch.nn.Module) -> bool:
    """Whether the code of the model asks the registry for its attention function."""
    files = {type(module).__module__ for module in model.modules()}
    return any(hasattr(sys.modules.get(file), "ALL_ATTENTION_FUNCTIONS") for file in files)


def _configs(config: Any) -> Iterator[Any]:
    """A config and those in it, as far as they choose an attention function."""
    if config is None or _CHOICE not in getattr(config, "__dict__", ()):
        return
    yield config
    for name in getattr(config, "sub_configs", ()):
        yield from _configs(getattr(config, name, None))


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function: [batch, heads, queries, size] each; the result has queries before heads."""
    if own_function := _function_for(module, others):
        added = None if attention_mask is None else _added(attention_mask, query.dtype)
        others |= {"dropout": dropout, "scaling": scaling, "position_bias": position_bias, "softcap": softcap}
        found: Tensor = own_function(module, query, key, value, added, s_aux=s_aux, is_causal=is_causal, **others)[0]
        return found, None
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if _is_one(query.shape[0]) and not _is_one(key.shape[0]):  # learned queries, the same for all rows
        query = query.expand(key.shape[0], -1, -1, -1)
    result = own.operator("attention")(
        query,
        key,
        value,
        attention_mask,
        position_bias,
        s_aux,
        scaling if scaling is not None else query.shape[-1] ** -0.5,
        softcap or 0.0,
        bool(causal) and attention_mask is None,
    )
    return result.transpose(1, 2).contiguous(), None


def _is_one(size: Any) -> bool:
    """Whether a size is 1; a symbol is not asked."""
    return isinstance(size, int) and size == 1


def _function_for(module: torch.nn.Module, others: dict[str, Any]) -> Callable[..., Any] | None:
    """The attention function in the file of a layer, where it reads one of these arguments; otherwise None."""
    function: Callable[..., Any] | None = getattr(sys.modules[type(module).__module__], _WRITTEN_OUT, None)
    given = {name for name, item in others.items() if item is not None}
    if function is None or given.isdisjoint(inspect.signature(function).parameters.keys() - {_IN_THE_MASK}):
        return None
    return function


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    **others: Any,
) -> Tensor:
    """The mask function: [batch, 1, queries, keys], true where a key is visible."""
    masks = library("masking_utils")
    function = mask_function or masks.causal_mask_function
    # functions that look into tensors are asked with indices that broadcast: a trace records no vmap
    others |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False, "use_vmap": False}
    found = masks.sdpa_mask(
        batch_size, q_length, kv_length, q_offset, kv_offset, function, attention_mask, local_size, **others
    )
    pattern, width = pattern_of(function, local_size)
    result: Tensor = own.operator("visible")(found, attention_mask, pattern, width)
    return result


def _added_mask(*args: Any, dtype: torch.dtype = torch.float32, **kwargs: Any) -> Tensor:
    """The mask function of attention that is written out: zero where a key is visible, the lowest number elsewhere."""
    return _added(_mask(*args, **kwargs), dtype)


def _added(seen: Tensor, dtype: torch.dtype) -> Tensor:
    zero, least = (torch.tensor(number, dtype=dtype, device=seen.device) for number in (0.0, torch.finfo(dtype).min))
    return torch.where(seen, zero, least)


def pattern_of(function: Callable[..., Any], width: int | None) -> tuple[str, int]:
    """What a mask function of transformers (batch, head, query, key -> visible) hides, found by asking it."""
    with below():
        return _pattern_of(function, width)


def _pattern_of(function: Callable[..., Any], width: int | None) -> tuple[str, int]:
    near = {step + change for step in (0, 4, width or 0, 2 * (width or 0)) for change in (-2, -1, 0, 1, 2)}
    far = {(1 << power) + change for power in range(3, 20) for change in (-1, 0, 1)}
    places = torch.tensor(sorted(place for place in near | far if place >= 0))
    rows, columns = places[:, None], places[None, :]
    zero = torch.tensor(0)
    candidates = {(own.FULL, 0): columns >= 0, (own.CAUSAL, 0): columns <= rows}
    if width:
        candidates[own.WINDOW, width] = (columns <= rows) & (columns > rows - width)
    try:
        seen = torch.as_tensor(function(zero, zero, rows, columns)).expand(len(places), len(places))
        return next(
            (name for name, wanted in candidates.items() if torch.equal(seen, wanted.expand_as(seen))), (own.OTHER, 0)
        )
    except (IndexError, TypeError, ValueError, RuntimeError):  # it looks into tensors of the model
        return own.OTHER, 0
