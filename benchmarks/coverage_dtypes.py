"""Writes docs/coverage-dtypes.md from the records of `coverage.py --dtypes`: how many names pass, and which do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coverage_page import short

Key = tuple[str, str, str, int]
Record = Mapping[str, Any]

OURS = ("trace", "export")
PEERS = ("torch.onnx dynamo=False", "torch.onnx dynamo=True")
# what is no matter of a dtype: see docs/coverage.md
ELSEWHERE = ("as_strided.partial_views", "hash_tensor", "tensor_split")

_HEAD = """# Coverage by dtype

`python benchmarks/coverage.py --dtypes float64 ... --opsets 11 17 20 23 ... --write` writes this page; do not edit it.
It takes the names of torch's operator and module databases that torch computes in a dtype, and the first sample of
each. It exports the sample, runs the file in ONNX Runtime, and compares dtypes, shapes and values with torch in the
same dtype. The same code measures both exporters of `torch.onnx`: `dynamo=False`, which writes opsets up to 20, and
`dynamo=True` at 20. If a cell says so, only 1 name in n was tested (`--every`).

Integers and booleans must be equal. The bounds for others are relative and absolute: 1e-9 and 1e-10 for float64, 1e-4
and 1e-5 for the parts of complex64, 2**-8 for float16 and 2**-5 for bfloat16. The last two are four units in the last
place. torch itself rounds many results in these types by more than that. So such a value also passes if it is at least
as close to torch's float64 result as torch's own value. In a file, a complex tensor is a pair of real ones. If elements
are equal, `sort`, `topk` and `kthvalue` may return the position of any of them. So not the positions are compared, but
the elements there.

The counts leave out names that no opset can express in any dtype: see
[coverage.md](coverage.md). Most operators take bfloat16 only from opset 13 on, so it is not measured below.
"""


def page_by_dtype(records: Mapping[Key, Record]) -> str:
    """The whole page.  `records` are by name, route, dtype and opset."""
    measured = {key: item for key, item in records.items() if "apart" not in item and key[0] not in ELSEWHERE}
    parts = [_HEAD, *_summary(measured), "\n## What does not pass\n", *_failures(measured)]
    return "\n".join(parts) + "\n"


def _summary(measured: Mapping[Key, Record]) -> Iterable[str]:
    """A row a dtype and opset, with what passes by each exporter."""
    routes = [route for route in (*OURS, *PEERS) if any(route == of for _, of, _, _ in measured)]
    yield f"| dtype | opset | {' | '.join(routes)} |"
    yield "|---|---|" + "---|" * len(routes)
    groups: dict[tuple[str, int], dict[str, list[Record]]] = {}
    for (_, route, dtype, opset), item in measured.items():
        groups.setdefault((dtype, opset), {}).setdefault(route, []).append(item)
    for (dtype, opset), by_route in sorted(groups.items()):
        yield f"| {dtype} | {opset} | {' | '.join(_share(by_route.get(route, [])) for route in routes)} |"


def _share(found: list[Record]) -> str:
    if not found:
        return ""
    passed = sum(not any(item["verdicts"]) for item in found)
    every = min(item.get("every", 1) for item in found)
    sampled = f", 1 name in {every}" if every > 1 else ""
    return f"{passed} of {len(found)} ({100 * passed / len(found):.1f} %){sampled}"


def _failures(measured: Mapping[Key, Record]) -> Iterable[str]:
    """A row for dtypes in which a name fails in the same places, with the first reason."""
    found: dict[tuple[str, str], list[tuple[str, int, str]]] = {}
    for (name, route, dtype, opset), item in measured.items():
        reason = next(filter(None, item["verdicts"]), "")
        if reason and route in OURS:
            found.setdefault((name, dtype), []).append((route, opset, reason))
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (name, dtype), places in sorted(found.items()):
        taken = {(route, opset) for of, route, in_dtype, opset in measured if (of, in_dtype) == (name, dtype)}
        where = _where(places, {place for place in taken if place[0] in OURS})
        rows.setdefault((name, where, places[0][2]), []).append(dtype)
    yield "| name | dtypes | where | why not |"
    yield "|---|---|---|---|"
    for (name, where, reason), in_dtypes in rows.items():
        yield f"| {name} | {', '.join(in_dtypes)} | {where} | {short(reason)} |"


def _where(places: list[tuple[str, int, str]], taken: set[tuple[str, int]]) -> str:
    """`everywhere`, or the routes with their opsets."""
    if {(route, opset) for route, opset, _ in places} == taken:
        return "everywhere"
    by_opsets: dict[str, list[str]] = {}
    for route in OURS:
        if opsets := sorted(opset for of, opset, _ in places if of == route):
            by_opsets.setdefault(", ".join(map(str, opsets)), []).append(route)
    return "; ".join(f"{' and '.join(routes)} at {opsets}" for opsets, routes in by_opsets.items())
