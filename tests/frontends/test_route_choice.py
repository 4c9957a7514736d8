"""Which routes are tried, in which order, and what the report says of it: `frontends/choose.py` walks rows."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from purexport.aten.graph import AtenGraph
from purexport.errors import ExportError
from purexport.frontends import choose
from purexport.frontends.core.request import Captured, Request
from purexport.frontends.core.route import Route

SOURCES = sorted((Path(__file__).parents[2] / "purexport").rglob("*.py"))
VALUES: Any = ()
NO_VALUES: Any = ("a tensor without values",)


def without_shapes(request: Request) -> Request:
    return replace(request, dynamic_shapes=None, notes=["shapes are axes"])


class Tried:
    """Routes that note that they were tried; those in `refusing` take no model."""

    def __init__(self, refusing: Sequence[str]) -> None:
        self.refusing = refusing
        self.names: list[str] = []

    def route(self, name: str, **row: Any) -> Route:
        def capture(request: Request) -> Captured:
            self.names.append(name)
            assert request.dynamic_shapes is None or name == "look"
            if name in self.refusing:
                raise ExportError(f"{name} says no")
            return Captured(AtenGraph())

        return Route(name, f"the {name}", capture, **row)

    def routes(self) -> tuple[Route, ...]:
        return (
            self.route("words", takes=lambda model: isinstance(model, str), only="the model is a text"),
            self.route("run"),
            self.route("look", options={"dynamic_shapes": without_shapes}),
            self.route("spare", takes=lambda model: isinstance(model, int)),
        )


# (model, asked for, what it has no values of, dynamic_shapes, routes that refuse) -> routes tried, reason or error
ROWS = [
    ("text", "auto", VALUES, None, "", "words", "the model is a text"),
    ("text", "look", VALUES, {}, "", "words", "the model is a text"),
    ("text", "auto", VALUES, None, "words", "words", "words says no"),
    (None, "auto", VALUES, None, "", "run", "the default"),
    (None, "auto", VALUES, None, "run", "run look", "the run failed: run says no"),
    (None, "auto", NO_VALUES, None, "", "run", "the model has no values"),
    (None, "auto", NO_VALUES, None, "run", "run look", "the run failed: run says no"),
    (None, "run", VALUES, None, "", "run", "asked for"),
    (None, "run", NO_VALUES, None, "", "run", "asked for"),
    (None, "run", VALUES, None, "run", "run", "run says no"),
    (None, "auto", VALUES, {}, "", "look", "dynamic_shapes goes with the look"),
    (None, "look", VALUES, {}, "", "look", "asked for"),
    (None, "run", VALUES, {}, "", "run", "asked for"),
    (None, "words", VALUES, None, "", "", "capture='words' is not one of 'auto', 'run', 'look', 'spare'"),
    (7, "auto", VALUES, None, "run look", "run look spare", "the look failed: look says no"),
    (
        None,
        "auto",
        VALUES,
        None,
        "run look",
        "run look",
        "no route took the model.\nby run: run says no\nby look: look says no",
    ),
    (
        None,
        "auto",
        NO_VALUES,
        None,
        "run look",
        "run look",
        "no route took the model, which has no values.\nby run: run says no\nby look: look says no",
    ),
]


@pytest.mark.parametrize(("model", "asked", "valueless", "shapes", "refusing", "tried", "said"), ROWS)
def test_routes_are_tried_in_order(
    model: Any,
    asked: str,
    valueless: Any,
    shapes: Any,
    refusing: str,
    tried: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Tried(refusing.split())
    monkeypatch.setattr(choose, "ROUTES", made.routes())
    monkeypatch.setattr(choose, "CHOICES", ("auto", "run", "look", "spare"))
    request = Request(model, (), {}, asked, dynamic_shapes=shapes, valueless=valueless)
    try:
        found = choose.capture(request)
    except (ExportError, ValueError) as error:
        assert str(error) == said
    else:
        assert (found.route, found.reason) == (made.names[-1], said)
        assert found.notes == (["shapes are axes"] if shapes is not None and found.route != "look" else [])
    assert made.names == tried.split()


def test_the_rows_of_this_package() -> None:
    """The routes that `capture=` names are those of the documentation, and a model that only one route takes has it."""
    assert choose.CHOICES == ("auto", "trace", "export")
    script = torch.jit.script(torch.nn.ReLU())
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(1),))
    for model, name in ((script, "script"), (program, "export")):
        taking = [route for route in choose.ROUTES if route.only and route.takes(model)]
        assert [route.name for route in taking] == [name]
    assert not [route for route in choose.ROUTES if route.only and route.takes(torch.nn.ReLU())]


def compared_names(text: str, names: Sequence[str]) -> list[int]:
    """The lines that compare something with one of `names`."""
    found: list[int] = []
    if not re.search(rf"""["']({"|".join(names)})["']""", text):  # most files name no route, and need no parser
        return found
    for node in ast.walk(ast.parse(text)):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        parts = [part for side in sides for part in (side.elts if isinstance(side, (ast.Tuple, ast.List)) else [side])]
        found += [part.lineno for part in parts if isinstance(part, ast.Constant) and part.value in names]
    return found


def test_no_code_compares_names_of_routes() -> None:
    names = [route.name for route in choose.ROUTES]
    found = [f"{path}:{line}" for path in SOURCES for line in compared_names(path.read_text(), names)]
    assert not found, "what a route found out stands in Captured, and what it is in its row"


@pytest.mark.parametrize(
    "text",
    ['x = route == "trace"', 'x = "export" != captured.route', 'x = route in ("script", "other")'],
)
def test_a_comparison_is_found(text: str) -> None:
    assert compared_names(text, [route.name for route in choose.ROUTES]) == [1]
