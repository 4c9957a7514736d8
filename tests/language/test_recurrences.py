"""Which functions of a file are recorded as recurrences: those with the parameters, that compute the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from purexport.language import recurrences


def delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor,
    output_final_state: bool,
    use_qk_l2norm_in_kernel: bool,
) -> tuple[Tensor, Tensor]:
    """The recurrence token by token, as models write it."""
    query, key = (item / item.square().sum(-1, keepdim=True).add(1e-6).sqrt() for item in (query, key))
    state, found = initial_state, []
    for at in range(query.shape[1]):
        state = state * g[:, at].exp().reshape(*g[:, at].shape, *[1] * (4 - g[:, at].dim()))
        fresh = (value[:, at] - torch.einsum("bhk,bhkv->bhv", key[:, at], state)) * beta[:, at, :, None]
        state = state + key[:, at, :, :, None] * fresh[:, :, None]
        found.append(torch.einsum("bhk,bhkv->bhv", query[:, at], state) * query.shape[-1] ** -0.5)
    return torch.stack(found, 1), state


def of_channels(hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, **given: Any) -> Any:  # noqa: N803
    dt = torch.nn.functional.softplus(dt + given["delta_bias"][:, None])
    state, found = hidden_states.new_zeros(*hidden_states.shape[:2], A.shape[1]), []
    for at in range(hidden_states.shape[2]):
        step = dt[:, :, at, None]
        state = state * (step * A).exp() + step * B[:, None, :, at] * hidden_states[:, :, at, None]
        found.append((state * C[:, None, :, at]).sum(-1))
    result = torch.stack(found, -1) + hidden_states * given["D"][:, None]
    return result * torch.nn.functional.silu(given["z"]), state


def scan(
    hidden_states: Any, dt: Any, A: Any, B: Any, C: Any, D: Any, z: Any, delta_bias: Any,  # noqa: N803
    delta_softplus: bool, return_last_state: bool,
) -> Any:  # fmt: skip
    return of_channels(hidden_states, dt, A, B, C, D=D, z=z, delta_bias=delta_bias)


def other_scan(
    hidden_states: Any, dt: Any, A: Any, B: Any, C: Any, D: Any, z: Any, delta_bias: Any,  # noqa: N803
    delta_softplus: bool, return_last_state: bool,
) -> Any:  # fmt: skip
    return of_channels(hidden_states, dt, A, B, C, D=2 * D, z=z, delta_bias=delta_bias)


def other_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor,
    output_final_state: bool, use_qk_l2norm_in_kernel: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    found, state = delta_rule(query, key, value, g, beta, initial_state, True, True)
    return found / 2, state


def failing(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor,
    output_final_state: bool, use_qk_l2norm_in_kernel: bool,
) -> None:  # fmt: skip
    raise RuntimeError("a kernel that is not installed")


ROWS = [(delta_rule, True), (other_delta_rule, False), (failing, False), (scan, True), (other_scan, False)]


@pytest.mark.parametrize(("function", "recorded"), ROWS, ids=[row[0].__name__ for row in ROWS])
def test_functions(function: Any, recorded: bool) -> None:
    found = dict(recurrences._replacements([("theirs", function), ("number", 3)], recurrences._LastState()))
    assert bool(found) == recorded


def test_a_scan_begins_with_the_state_that_its_layer_asked_for() -> None:
    asked = recurrences._LastState()
    (replaced,) = dict(recurrences._replacements([("theirs", scan)], asked)).values()
    given = recurrences._selective_example()
    whole, last = replaced(**given)
    parts, behind = ("hidden_states", "dt", "B", "C", "z"), []
    for piece in (slice(2), slice(2, None)):
        found, asked.state = replaced(**given | {name: given[name][..., piece] for name in parts})
        behind.append(found)
    torch.testing.assert_close(torch.cat(behind, -1), whole)
    torch.testing.assert_close(asked.state, last)
