"""Models written for the tests: exported with dynamic batch and length, and run at other sizes.

By default one model or two of each family run, by one route.  `pytest -m full` runs every model by each of its routes,
the opsets in turn; `pytest -m sweep` runs all.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import purexport
from tests.harness import check_export
from tests.models import (
    bert,
    diffusion,
    experts,
    gan,
    gpt,
    graphs,
    llama,
    padded,
    speech,
    state_space,
    streams,
    t5,
    unet,
    windows,
    word_language,
)
from tests.models.case import Case
from tests.tolerances import CHAIN, assert_near

OPSETS = (13, 17, 20, 23)
FAMILIES = (
    word_language,
    bert,
    gpt,
    llama,
    t5,
    unet,
    diffusion,
    gan,
    experts,
    state_space,
    speech,
    windows,
    graphs,
    streams,
    padded,
)
CASES = [case for family in FAMILIES for case in family.CASES]
NAMES = [case.name for case in CASES]
# Those that run by default, with the route: kinds of networks, and of what they carry from step to step.
QUICK = {
    "word-lstm": "script",
    "word-transformer": "trace",
    "bert-sdpa": "trace",
    "gpt-step": "trace",
    "llama-step-half-repeat": "trace",
    "t5": "trace",
    "unet-pad": "export",
    "diffusion-ddim": "trace",
    "gan-generator": "export",
    "experts-index-add": "trace",
    "state-space-step": "trace",
    "wav2vec-older": "trace",
    "windows-batch": "trace",
    "graph-mean": "export",
    "stream": "trace",
    "padded-arange": "trace",
}


def _params(cases: list[Case], count: int) -> list[Any]:
    """Every case and route, at so many of the opsets, which take turns."""
    found = []
    for position, case in enumerate(cases):
        for turn, route in enumerate(case.routes):
            first = position + 2 * turn
            opsets = {max(OPSETS[(first + i) % len(OPSETS)], case.min_opset) for i in range(count)}
            mark = () if count > 1 or QUICK.get(case.name) == route else pytest.mark.full
            found += [
                pytest.param(case, route, opset, id=f"{case.name}-{route}-{opset}", marks=mark)
                for opset in sorted(opsets)
            ]
    return found


@pytest.mark.parametrize(("case", "route", "opset"), _params([case for case in CASES if not case.slow], 1))
def test_model(case: Case, route: str, opset: int) -> None:
    check_case(case, route, opset)


@pytest.mark.sweep
@pytest.mark.parametrize(("case", "route", "opset"), _params(CASES, len(OPSETS)))
def test_model_sweep(case: Case, route: str, opset: int) -> None:
    check_case(case, route, opset)


def check_case(case: Case, route: str, opset: int) -> None:
    model = torch.jit.script(case.model()) if route == "script" else case.model()
    check_export(
        model,
        case.example(),
        opset=opset,
        capture="auto" if route == "script" else route,
        dynamic_axes=case.dynamic_axes(),
        other_args=[(other, {}) for other in case.other_examples()],
        bounds=CHAIN,
    )


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_model_says_something(case: Case) -> None:
    """The comparison can fail: other inputs give results that differ by far more than the tolerance."""
    with torch.no_grad():
        first, second = (
            pytree.tree_leaves(copy.deepcopy(case.model())(*case.example(seed=seed)))[0] for seed in (0, 1)
        )
    assert (first - second).abs().max() > 0.01
    assert torch.isfinite(first).sum() > 0


STATEFUL_WAYS = [("export", 13), ("export", 23), ("trace", 13)]


@pytest.mark.parametrize(
    ("route", "opset"), [("trace", 23), *(pytest.param(*way, marks=pytest.mark.full) for way in STATEFUL_WAYS)]
)
@pytest.mark.parametrize("name", streams.STATEFUL)
def test_stream_keeps_its_state(name: str, route: str, opset: int) -> None:
    """Ten pieces one after the other, the state handed on, are the same ten in torch."""
    make, piece = streams.STATEFUL[name]
    torch.manual_seed(0)
    model = make().eval()
    pieces = [piece() for _ in range(10)]
    program = purexport.export(model, (pieces[0],), capture=route, mutated_state="io", opset_version=opset)
    state = list(program.state.values())
    with torch.no_grad():
        for item in pieces:
            expected = model(item.clone())
            got = program(item, *state)
            assert_near(got[0], expected, CHAIN)
            state = got[1:]
