"""What a capture route declares.  A route is one way from a model to the neutral graph.

Each route has a row, in the file `route.py` of its folder; `capture/choose.py` lists the rows and walks them.  Nothing
else compares the names of routes: what a route found out about its graph stands in `Captured`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from purexport.capture.core.request import Captured, Request


class Capture(Protocol):
    """Captures the model of a request.  Raises ExportError where the route does not take the model."""

    def __call__(self, request: Request) -> Captured: ...


class Takes(Protocol):
    """Whether a route may be tried on a model, by what the model is."""

    def __call__(self, model: Any) -> bool: ...


def any_model(model: Any) -> bool:
    """For a route that is tried on every model."""
    return True


@dataclass(frozen=True)
class Route:
    """One route.

    `name` is what `capture=` and the report call it, `title` what sentences call it.  `only` is the reason in the
    report of a route that alone takes its models; such a one is neither asked for nor tried by "auto".  Of the others
    "auto" tries each in the order of the list; for a model without values those that do not look at values come first.
    `options` are those of a `Request` that this route alone understands, each with what others take in its place.
    """

    name: str
    title: str
    capture: Capture
    takes: Takes = any_model
    only: str = ""
    looks_at_values: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
