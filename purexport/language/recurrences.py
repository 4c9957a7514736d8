"""transformers' recurrent layers, recorded as one call of `purexport_llm::recurrence` each.

A file of transformers has a function for each kernel that a package may have: the gated delta rule, and two kinds of
selective state spaces. It loops over tokens or over chunks of them, which a trace writes out for one length. For the
time of a capture ours stand there.

Which function is which is read from its parameters, and what it computes is found by trying: it is run on random
numbers, and stays where ours computes something else.
A scan whose function takes no state begins with the one that its layer asked the cache for last.
Invariant: afterwards the files are what they were, also after an error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from purexport.aten import own_operators as own
from purexport.language.library import library
from purexport.torch_patches.before_composites import below

Tensor = torch.Tensor

_NEAR = 1e-4
_TINY = 1e-6  # what a norm of queries and keys adds to the sum of squares
_TOKENS, _HEADS, _SIZE, _WIDTH = 5, 4, 3, 2  # of what functions are tried on


@dataclass
class _LastState:
    """The state that a layer asked its cache for last."""

    state: Tensor | None = None


@contextmanager
def recurrences_recorded(model: torch.nn.Module) -> Iterator[None]:
    """Inside, the recurrent layers of `model` are recorded as one call each, as far as the call can say them."""
    asked = _LastState()
    files = [sys.modules[name] for name in sorted({type(module).__module__ for module in model.modules()})]
    ours = {(file, name): made for file in files for name, made in _replacements(vars(file).items(), asked)}
    cache = library("cache_utils").Cache
    answer = getattr(cache, "get_recurrent_state", None)  # older releases have none, and no such functions
    if answer is not None:
        ours[cache, answer.__name__] = _heard(answer, asked)
    before = {(holder, name): vars(holder)[name] for holder, name in ours}
    try:
        for (holder, name), made in ours.items():
            setattr(holder, name, made)
        yield
    finally:
        for (holder, name), function in before.items():
            setattr(holder, name, function)


def _heard(answer: Callable[..., Any], asked: _LastState) -> Callable[..., Any]:
    def get_recurrent_state(*args: Any, **kwargs: Any) -> Any:
        asked.state = answer(*args, **kwargs)
        return asked.state

    return get_recurrent_state


def _replacements(items: Iterable[tuple[str, Any]], asked: _LastState) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, item in items:
        if not inspect.isfunction(item):
            continue
        taken = inspect.signature(item).parameters.keys()
        for wanted, ours, example in _KINDS:
            if wanted <= taken and _is_same(item, ours, example()):
                yield name, ours if "asked" not in inspect.signature(ours).parameters else _with_state(ours, asked)


def _with_state(ours: Callable[..., Any], asked: _LastState) -> Callable[..., Any]:
    def scan(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, asked=asked.state, **kwargs)

    return scan


def _is_same(function: Callable[..., Any], ours: Callable[..., Any], example: dict[str, Any]) -> bool:
    """Whether both give the same results, of the same types, for an example."""
    with below(), torch.no_grad():
        try:
            wanted = function(**example)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
            return False
        found = ours(**example)
        return isinstance(wanted, tuple) and all(
            isinstance(one, Tensor)
            and (one.shape, one.dtype) == (other.shape, other.dtype)
            and torch.allclose(one, other, rtol=_NEAR, atol=_NEAR)
            for one, other in zip(found, wanted, strict=True)
        )


def _in_heads(item: Tensor) -> Tensor:
    """The same, with heads and their size as numbers: models leave one of them to be computed from the others."""
    heads, size = item.shape[2:]
    return item.reshape(item.shape[0], item.shape[1], heads, size)


def _delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """[batch, tokens, heads, size] each; `g` decays the state, and `beta` says how much of a value is learnt."""
    kind = query.dtype
    query, key, value = (_in_heads(item.float()) for item in (query, key, value))
    g, beta = g.float(), beta.float()
    if use_qk_l2norm_in_kernel:
        query, key = (item * torch.rsqrt((item * item).sum(-1, keepdim=True) + _TINY) for item in (query, key))
    state = initial_state
    if state is None:
        state = value.new_zeros(value.shape[0], value.shape[2], key.shape[3], value.shape[3])
    found, last = own.operator("recurrence")(query, key, value, state.float(), g, None, beta, 0.0)
    return found.to(kind), last if output_final_state else None


def _chunk_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    **others: Any,
) -> Any:
    """State spaces with one decay for each head: [batch, tokens, heads, size], and a state of transposed matrices."""
    dt = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
    dt = torch.clamp(functional.softplus(dt) if dt_softplus else dt, *dt_limit).float()
    x = hidden_states.float()
    state = x.new_zeros(*x.shape[:1], *x.shape[2:], B.shape[3]) if initial_states is None else initial_states.float()
    rows = [_in_heads(item) for item in (C.float(), B.float(), x * dt[..., None])]
    found, last = own.operator("recurrence")(*rows, state.transpose(2, 3), A.float() * dt, None, None, 1.0)
    found = found if D is None else found + D[..., None] * x
    return (found, last.transpose(2, 3)) if return_final_states else found


def _selective_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    asked: Tensor | None = None,
    **others: Any,
) -> Any:
    """State spaces of channels: [batch, channels, tokens], and a state of numbers for each channel."""
    dt = dt if delta_bias is None else dt + delta_bias.to(dt.dtype)[..., None]
    dt = functional.softplus(dt) if delta_softplus else dt
    x = hidden_states.float()
    state = x.new_zeros(*x.shape[:2], A.shape[1]) if asked is None else asked.float()
    steps, rows = dt.float().transpose(1, 2), [item.float().transpose(1, 2).unsqueeze(2) for item in (C, B)]
    values = (steps * x.transpose(1, 2)).unsqueeze(-1)
    found, last = own.operator("recurrence")(*rows, values, state.unsqueeze(-1), steps, A.float(), None, 1.0)
    found = found.squeeze(-1).transpose(1, 2)
    found = found if D is None else found + x * D[None, :, None]
    found = found if z is None else found * functional.silu(z)
    return (found, last.squeeze(-1)) if return_last_state else found


def _numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


def _delta_example(*sizes: int) -> dict[str, Any]:
    rows = [_numbers(2, _TOKENS, _HEADS, size) for size in (_SIZE, _SIZE, _WIDTH)]
    given = dict(zip(("query", "key", "value"), rows, strict=True))
    given |= {"g": -_numbers(2, _TOKENS, _HEADS, *sizes).abs(), "beta": _numbers(2, _TOKENS, _HEADS).sigmoid()}
    given["initial_state"] = _numbers(2, _HEADS, _SIZE, _WIDTH)
    return given | {"output_final_state": True, "use_qk_l2norm_in_kernel": True}


def _chunk_example() -> dict[str, Any]:
    rows = [_numbers(2, _TOKENS, _HEADS // 2, _SIZE) + place for place in range(2)]
    given = {"hidden_states": _numbers(2, _TOKENS, _HEADS, _WIDTH), "dt": _numbers(2, _TOKENS, _HEADS)}
    given |= {"A": -_numbers(_HEADS).abs(), "B": rows[0], "C": rows[1], "D": _numbers(_HEADS)}
    given |= {"dt_bias": _numbers(_HEADS), "initial_states": _numbers(2, _HEADS, _WIDTH, _SIZE)}
    return given | {"chunk_size": 2, "dt_softplus": True, "dt_limit": (0.1, 2.0), "return_final_states": True}


def _selective_example() -> dict[str, Any]:
    given = {"hidden_states": _numbers(2, _HEADS, _TOKENS), "dt": _numbers(2, _HEADS, _TOKENS) / 2}
    given |= {"A": -_numbers(_HEADS, _SIZE).abs(), "B": _numbers(2, _SIZE, _TOKENS), "C": _numbers(2, _SIZE, _TOKENS)}
    given |= {"D": _numbers(_HEADS), "z": _numbers(2, _HEADS, _TOKENS), "delta_bias": _numbers(_HEADS)}
    return given | {"delta_softplus": True, "return_last_state": True}


# the parameters that say what a function is, ours, and an example
_KINDS: tuple[tuple[set[str], Callable[..., Any], Callable[[], dict[str, Any]]], ...] = (
    ({"query", "key", "value", "g", "beta", "initial_state", "output_final_state"}, _delta_rule, _delta_example),
    (
        {"query", "key", "value", "g", "beta", "initial_state", "output_final_state"},
        _delta_rule,
        lambda: _delta_example(_SIZE),
    ),
    ({"hidden_states", "dt", "A", "B", "C", "initial_states", "return_final_states"}, _chunk_scan, _chunk_example),
    ({"hidden_states", "dt", "A", "B", "C", "delta_bias", "return_last_state"}, _selective_scan, _selective_example),
)
