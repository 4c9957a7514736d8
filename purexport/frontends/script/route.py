"""The script route: a TorchScript module or function is interpreted once, with the facts that are known at export.

The interpreter is imported only when there is a script: it uses fake tensors with symbolic sizes, which load sympy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from purexport.aten.graph import AtenValue
from purexport.errors import ExportError
from purexport.frontends.core.request import (
    Captured,
    Request,
    flatten,
    named_axes,
    output_names,
    script_parameters,
)
from purexport.frontends.core.route import Route
from purexport.frontends.core.structures import results_in
from purexport.torch_patches.fakes import counts_typed
from purexport.torch_patches.torch_jit import is_script


def interpret_script(request: Request) -> Captured:
    """Capture a script.  Raises ExportError with the script's own line where it cannot be interpreted."""
    from purexport.frontends.script import interpreter

    flat = flatten(request)
    axes = named_axes(request, flat.names, flat.tensors, flat.paths)

    def arguments(values: Sequence[AtenValue]) -> list[Any]:
        args, kwargs = flat.rebuild(values, plain=True)
        return positional(request.model, args, kwargs)

    inputs = list(zip(flat.names, flat.tensors, strict=True))
    with counts_typed():
        found = interpreter.interpret(request.model, inputs, arguments, axes, lists=request.loops_carry_lists)
    results = results_in(found.result)
    graph = dataclasses.replace(
        found.graph, outputs=[leaf for _, leaf in results], output_names=output_names([path for path, _ in results])
    )
    listed = isinstance(found.result, list)
    return Captured(
        graph,
        remarks=[*_fixed(found.fixed), *found.remarks],
        types_hold_for_all_sizes=True,
        scripted=True,
        listed=listed,
    )


def _fixed(sizes: Mapping[str, int]) -> list[str]:
    return [
        f"axis {axis!r} was declared dynamic, but the script fixes it at {size}; the file takes only that size"
        for axis, size in sizes.items()
    ]


def positional(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Arguments in the order of the script's schema, defaults filled in.  Raises ExportError when they do not fit."""
    parameters = script_parameters(model)
    if len(args) > len(parameters):
        raise ExportError(f"the model takes {len(parameters)} args, {len(args)} were given", code="args-do-not-fit")
    # a trace may give two arguments the same name, so arguments are matched by position
    open_ = parameters[len(args) :]
    unknown = set(kwargs) - {parameter.name for parameter in open_}
    missing = [item.name for item in open_ if item.name not in kwargs and not item.has_default_value()]
    if unknown or missing:
        raise ExportError(
            f"args do not fit the script: missing {missing}, unknown {sorted(unknown)}", code="args-do-not-fit"
        )
    return [*args, *(kwargs.get(item.name, item.default_value) for item in open_)]


SCRIPT = Route("script", "the script", interpret_script, takes=is_script, only="the model is a script")
