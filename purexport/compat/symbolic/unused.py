"""What a user's rules did not do: rules that never ran although the user expects it, as texts for warnings.

A function that is registered for an operator that torch knows may be for another model, so it is not mentioned.  Nor is
one for a library that is not loaded, because who registers functions for a library registers them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from purexport.aten.graph import Call
from purexport.aten.names import base_of, overloads_of, parsed
from purexport.compat.symbolic.registry import REGISTRY
from purexport.compat.symbolic.translations import operator_name


def unused(table: Mapping[Any, Any] | None, opset: int, calls: Iterable[Call], ran: Collection[str]) -> list[str]:
    """A text for each rule that did not run; `calls` are those of the model, `ran` the names whose rules ran."""
    called = sorted({call.target for call in _all(calls)})
    spaces = {"aten", *(parsed(target).namespace for target in called)}
    done = {*ran, *map(base_of, ran)}
    found = []
    for name in map(operator_name, table or {}):
        if name not in done:
            found.append(f"custom_translation_table has {name}, which the model does not call{_near(name, called)}")
    for name in REGISTRY.at(opset):
        near = _near(name, called)
        if name not in done and not _is_known(name) and (near or parsed(name).namespace in spaces):
            found.append(f"the symbolic function of {name} did not run, because torch has no such operator{near}")
    bases = {*called, *map(base_of, called)}
    for name, first in REGISTRY.above(opset).items():
        if name in bases:
            found.append(
                f"the symbolic function of {name} did not run, because it is registered from opset {first} on, and "
                f"the file has opset {opset}"
            )
    return found


def _all(calls: Iterable[Call]) -> Iterator[Call]:
    for call in calls:
        yield call
        for block in call.blocks:
            yield from _all(block.calls)


def _near(name: str, called: Collection[str]) -> str:
    close = get_close_matches(name, sorted({*called, *map(base_of, called)}), n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""


def _is_known(name: str) -> bool:
    return parsed(name).namespace in ("prim", "onnx") or bool(overloads_of(base_of(name)))
