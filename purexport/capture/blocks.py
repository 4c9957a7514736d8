"""Graphs with branches and loops that depend on data, and what is not yet possible beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from purexport.capture.aten import AtenGraph, Call
from purexport.capture.bind import signature
from purexport.errors import ExportError


def refuse_writes_beside_blocks(graph: AtenGraph) -> None:
    """Raise ExportError where a graph has a branch or loop that depends on data, and writes in place anywhere.

    Which tensor a write reaches is not followed through blocks yet.
    """
    if not any(call.blocks for call in graph.calls):
        return
    for call in _all(graph.calls):
        if _writes(call):
            raise ExportError(
                f"{call.target} at {call.source} writes in place, in a model with a branch or loop that depends on "
                "data; this is not followed yet: write it as an assignment of a new tensor"
            )


def _all(calls: Sequence[Call]) -> Iterator[Call]:
    for call in calls:
        yield call
        for block in call.blocks:
            yield from _all(block.calls)


def _writes(call: Call) -> bool:
    try:
        return bool(signature(call.target).writes)
    except LookupError:
        return False
