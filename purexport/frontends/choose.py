"""A model and its arguments become the neutral graph, by the route that the user asks for.

`ROUTES` lists the routes.  A new route is a file with its row, and an entry in that list.  "auto" tries the routes in
this order: it traces the model, and uses torch.export where that fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from purexport.errors import ExportError
from purexport.frontends.core.mode import copied
from purexport.frontends.core.request import Captured, Request
from purexport.frontends.core.route import Route
from purexport.frontends.export.route import EXPORT, PROGRAM
from purexport.frontends.script.route import SCRIPT
from purexport.frontends.trace.route import TRACE

ROUTES: tuple[Route, ...] = (PROGRAM, SCRIPT, TRACE, EXPORT)
CHOICES = ("auto", *(route.name for route in ROUTES if not route.only))

_ELSEWHERE = (
    "(for the capture, parameters, buffers and attributes without values become CPU tensors, and so do args; what the "
    "model keeps elsewhere, in a list say, stays on the meta device: register it as a buffer)"
)


def check_choice(route: str) -> None:
    """Raise ValueError for a value that `capture=` does not take."""
    if route not in CHOICES:
        raise ValueError(f"capture={route!r} is not one of {', '.join(map(repr, CHOICES))}")


def takes_numbers(request: Request) -> bool:
    """Whether a route that is tried takes Python numbers of the arguments as inputs."""
    taking = [route for route in ROUTES if route.takes(request.model)]
    only = [route for route in taking if route.only]
    asked = [route for route in taking if route.name == request.route]
    owners = [route for route in taking for option in route.options if getattr(request, option) is not None]
    return any(route.takes_numbers for route in only or asked or owners or taking)


def next_choice(choice: str, captured: Captured) -> str | None:
    """The route that "auto" tries where a later stage refuses a graph of its first one; None where there is none."""
    rest = [route.name for route in ROUTES if not route.only]
    first, second = rest[:2]
    return second if choice == CHOICES[0] and captured.route == first else None


def capture(request: Request) -> Captured:
    """Capture the model.  Raises ExportError when it does not run on the arguments, ValueError for a bad option."""
    check_choice(request.route)
    try:
        return _captured(request)
    except ExportError as failure:
        if request.valueless and "different-devices" in failure.codes:
            raise ExportError(f"{failure}\n{_ELSEWHERE}", code="different-devices") from failure
        raise


def _captured(request: Request) -> Captured:
    taking = [route for route in ROUTES if route.takes(request.model)]
    if request.numbers:
        taking = [route for route in taking if route.takes_numbers]
    only = next((route for route in taking if route.only), None)
    asked = only or next((route for route in taking if route.name == request.route), None)
    for option in dict.fromkeys(option for route in ROUTES for option in route.options):
        if getattr(request, option) is None or (asked is not None and option in asked.options):
            continue
        owner = next(route for route in (*taking, *ROUTES) if option in route.options)
        if asked is None and owner in taking:
            return _by(owner, request, f"{option} goes with {owner.title}")
        request = owner.options[option](request)
    if only is not None:
        return _by(only, request, only.only)
    if asked is not None:
        return _by(asked, request, "asked for")
    return _first_of(taking, request)


def _first_of(routes: Sequence[Route], request: Request) -> Captured:
    """Capture by the first route that takes the model.  Raises ExportError with all errors when none does."""
    failures: list[tuple[Route, ExportError]] = []
    for route in routes:
        reason = "the model has no values" if request.valueless else "the default"
        if failures:
            failed, failure = failures[-1]
            reason = f"{failed.title} failed: {failure}"
        try:
            return _by(route, request, reason)
        except ExportError as error:
            if error.code == "model-does-not-run" and not request.valueless:
                raise  # torch itself refuses these arguments
            failures.append((route, error))
    if len({str(failure) for _, failure in failures}) == 1:
        raise failures[0][1]
    without = ", which has no values" if request.valueless else ""
    said = "\n".join(f"by {route.title.removeprefix('the ')}: {failure}" for route, failure in failures)
    first = failures[0][1]
    raise ExportError(
        f"no route took the model{without}.\n{said}",
        code="neither-route",
        causes=tuple(failure for _, failure in failures),
    ) from (first.__cause__ or first)


def _by(route: Route, request: Request, reason: str) -> Captured:
    if route.writes_arguments:
        args, kwargs = copied((request.args, request.kwargs))
        request = dataclasses.replace(request, args=args, kwargs=kwargs)
    captured = route.capture(request)
    captured.notes += request.notes
    return dataclasses.replace(captured, route=route.name, reason=reason)
