"""The declaration of a capture route.  A route is one way from a model to the neutral graph.

Each route has a row in the file `route.py` of its folder.  `frontends/choose.py` lists the rows and tries them.
Invariant: no other code compares the names of routes.  `Captured` states what a route found out about its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from proto_schema.wire.records import dataclass
from purexport.frontends.core.request import Captured, Request


class Capture(Protocol):
    """Captures the model of a request.  Raises ExportError where the route does not take the model."""

    def __call__(self, request: Request) -> Captured: ...


class Takes(Protocol):
    """Whether a route may be tried on a model, judged by the kind of the model."""

    def __call__(self, model: Any) -> bool: ...


def any_model(model: Any) -> bool:
    """For a route that is tried on every model."""
    return True


@dataclass(frozen=True)
class Route:
    """One route.

    - `name` is its name for `capture=` and in the report, `title` its name in sentences.
    - `only` is set where no other route takes the same models; it is the reason in the report.  Users cannot ask for
      such a route, and "auto" does not try it.  "auto" tries the other routes in the order of the list; for a model
      without values, those that do not look at values come first.
    - `writes_arguments` is False where the model gets no tensors that it could write to, so that they are not copied.
    - `takes_numbers` is True where Python numbers among the arguments are inputs too (`Request.numbers`).
    - `options` are the options of a `Request` that only this route understands, each with a function that gives other
      routes a request without it.
    """

    name: str
    title: str
    capture: Capture
    takes: Takes = any_model
    only: str = ""
    takes_numbers: bool = False
    writes_arguments: bool = True
    options: Mapping[str, Callable[[Request], Request]] = field(default_factory=dict)
