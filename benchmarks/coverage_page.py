"""Writes docs/coverage.md from the records of `coverage.py`: a summary, then one row per name, with its verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ROUTES = ("trace", "export", "script")
PEERS = ("torch.onnx dynamo=False", "torch.onnx dynamo=True")
HEADS = {"torch.onnx dynamo=False": "dynamo=False", "torch.onnx dynamo=True": "dynamo=True"}

# names that no operator of ONNX and no composition of operators can express; all other failures are missing rules
INEXPRESSIBLE: dict[str, str] = {
    "as_strided.partial_views": "it reads memory outside its input, and a file sees only the elements of the input",
    "hash_tensor": "it hashes the bits of its input, and ONNX can read bits of numbers only from opset 26 on (BitCast)",
    "tensor_split": "the number of its results depends on the content of a tensor, and a graph's outputs are fixed",
}

Record = Mapping[str, Any]


def page(found: Mapping[tuple[str, str, int], Record], opset: int) -> str:
    """The whole page.  `found` are the records by name, route and opset; the tables by name are of `opset`."""
    records = {(name, route): item for (name, route, at), item in found.items() if at == opset}
    names = list(dict.fromkeys(name for name, _ in records))
    apart = {name: records[name, route]["apart"] for name, route in records if "apart" in records[name, route]}
    measured = [name for name in names if name not in apart]
    operators = [name for name in measured if not _is_module(name)]
    modules = [name for name in measured if _is_module(name)]
    # a route whose sweep is not complete is left out
    swept = [
        (route, at)
        for route in (*ROUTES, *PEERS)
        for at in sorted({at for _, _, at in found})
        if all((name, route, at) in found for name in measured)
    ]
    routes = [route for route, at in swept if at == opset]
    parts = [
        _HEAD,
        *_summary(found, swept, operators, modules),
        *_inexpressible(records, routes, measured),
        "\n## Operators\n",
        *_table(records, routes, operators),
        "\n## Modules\n",
        *_table(records, routes, modules),
        *_other_opsets(found, swept, records, measured),
        "\n## Listed apart\n\nTheir results are random, sparse or complex, or torch itself cannot run them here.\n",
        *_apart(apart),
    ]
    return "\n".join(parts) + "\n"


_HEAD = """# Coverage

`python benchmarks/coverage.py --write` writes this page; do not edit it. It takes every name of torch's operator and
module databases in float32 (else int64, else bool), with up to three samples each. It exports each sample, runs the
file in ONNX Runtime, and compares values (rtol 1e-4, atol 1e-5), dtypes and shapes with torch. A name passes when all
its samples pass. The tables by name are those of opset 20.

Two kinds of results are compared differently. The sign of an eigenvector (`linalg.eigh`) is free, so eigenvectors
are compared by the matrix that they compose. In `matrix_exp` torch's own rounding can be larger than the tolerance, so
a value also passes if it is nearer to torch's float64 result than torch's float32 result is.

In the column `script`, the function is traced first and passed as a `ScriptFunction`. The same code measures the
columns of `torch.onnx`.
"""


def _is_module(name: str) -> bool:
    return name.startswith("nn.") and not name.startswith("nn.functional.")


def _passes(record: Record | None) -> bool:
    return record is not None and not any(record["verdicts"])


def _summary(found: Mapping[Any, Record], swept: Sequence[tuple[str, int]], *groups: Sequence[str]) -> Iterable[str]:
    yield "| route | opset | samples | operators | of those ONNX can express | modules |"
    yield "|---|---|---|---|---|---|"
    for route, opset in swept:
        cells = [str(max(len(item["verdicts"]) for (_, of, at), item in found.items() if (of, at) == (route, opset)))]
        for names in (groups[0], [name for name in groups[0] if name not in INEXPRESSIBLE], groups[1]):
            passed = sum(_passes(found.get((name, route, opset))) for name in names)
            cells.append(f"{passed} of {len(names)} ({100 * passed / max(len(names), 1):.1f} %)")
        yield f"| {route} | {opset} | {' | '.join(cells)} |"


def _inexpressible(records: Mapping[Any, Record], routes: Sequence[str], names: Sequence[str]) -> Iterable[str]:
    yield "\n## What ONNX cannot express\n\n| name | reason |\n|---|---|"
    yield from [f"| {name} | {INEXPRESSIBLE[name]} |" for name in names if name in INEXPRESSIBLE]


def _table(records: Mapping[Any, Record], routes: Sequence[str], names: Sequence[str]) -> Iterable[str]:
    yield f"| name | dtype | {' | '.join(HEADS.get(route, route) for route in routes)} | why not |"
    yield "|---|---|" + "---|" * (len(routes) + 1)
    for name in names:
        found = [records.get((name, route)) for route in routes]
        dtype = next(record["dtype"] for record in found if record is not None)
        cells = ["" if record is None else "yes" if _passes(record) else "no" for record in found]
        yield f"| {name} | {dtype} | {' | '.join(cells)} | {_why(records, name)} |"


def _other_opsets(
    found: Mapping[Any, Record],
    swept: Sequence[tuple[str, int]],
    records: Mapping[Any, Record],
    names: Sequence[str],
) -> Iterable[str]:
    """What fails by our routes at another opset than that of the tables, where it passes."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name in names:
        for route, opset in swept:
            reason = next(filter(None, found[name, route, opset]["verdicts"]), "")
            if route in ROUTES and reason and _passes(records[name, route]):
                rows.setdefault((name, reason), []).append(f"{route} {opset}")
    if rows:
        yield "\n## At other opsets only\n\n| name | where | why not |\n|---|---|---|"
    yield from [f"| {name} | {', '.join(where)} | {short(reason)} |" for (name, reason), where in rows.items()]


def _why(records: Mapping[Any, Record], name: str) -> str:
    """The first reason among our routes, with the names of the routes that fail if some pass."""
    if name in INEXPRESSIBLE:
        return "not expressible"
    failures = {route: records[name, route]["verdicts"] for route in ROUTES if (name, route) in records}
    reasons = {route: next(filter(None, verdicts)) for route, verdicts in failures.items() if any(verdicts)}
    if not reasons:
        return ""
    where = "" if len(reasons) == len(failures) else f"{', '.join(reasons)}: "
    return f"{where}{short(next(iter(reasons.values())))}"


def short(reason: str) -> str:
    text = re.sub(r" at the model \([^)]*\)", "", reason).replace("|", "/").replace("<", "&lt;")
    for prefix in ("export: UnsupportedOperatorError: ", "export: ExportError: ", "export: "):
        text = text.removeprefix(prefix)
    return text if len(text) <= 110 else text[:107] + "..."


def _apart(apart: Mapping[str, str]) -> Iterable[str]:
    groups: dict[str, list[str]] = {}
    for name, why in apart.items():
        groups.setdefault("cannot run" if why.startswith("torch cannot") else why, []).append(name)
    return [f"- {why}: {', '.join(names)}" for why, names in sorted(groups.items())]
