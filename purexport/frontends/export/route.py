"""The rows of two routes: torch.export on a model, and programs that torch.export has already made.

The code behind the rows is imported when a route is used.  It needs torch's symbolic shapes, which load sympy, and a
trace needs neither.
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.frontends.core.request import Captured, Request
from purexport.frontends.core.route import Route


def is_program(model: Any) -> bool:
    return isinstance(model, torch.export.ExportedProgram)


def plain_shapes(shapes: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`dynamic_shapes` with plain containers instead of torch's collections, which refer to the given tensor objects.

    Raises ExportError where such a collection does not fit the arguments.
    """
    if shapes is None:
        return None
    from purexport.frontends.export import program, specs

    return specs.plain_shapes(shapes, program.as_module(model, args), args, kwargs)


def _read(request: Request) -> Captured:
    from purexport.frontends.export import program

    return program.read_program(request)


def _export(request: Request) -> Captured:
    from purexport.frontends.export import program

    captured = program.export_model(request)
    if request.both:
        captured.remarks.append("branches='both' changes nothing by torch.export, whose programs have one way")
    return captured


def _with_dynamic_axes(request: Request) -> Request:
    from purexport.frontends.export import program

    return program.with_dynamic_axes(request)


_OPTIONS = {"dynamic_shapes": _with_dynamic_axes}
PROGRAM = Route(
    "export", "torch.export", _read, takes=is_program, only="the model is an ExportedProgram", options=_OPTIONS
)
EXPORT = Route("export", "torch.export", _export, options=_OPTIONS)
