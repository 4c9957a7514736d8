"""Writes docs/coverage-dtypes.md from the records of `coverage.py --dtypes`: how many names pass, and which do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coverage_page import short

Key = tuple[str, str, str, int]
Record = Mapping[str, Any]

# what is no matter of a dtype: see docs/coverage.md
ELSEWHERE = ("as_strided.partial_views", "hash_tensor", "tensor_split")

_HEAD = """# Coverage by dtype

`python benchmarks/coverage.py --dtypes float64 ... --opsets 20 ... --write` writes this page; do not edit it. It takes
the names of torch's operator and module databases that torch computes in a dtype, two samples each. It exports each
sample, runs the file in ONNX Runtime, and compares dtypes, shapes and values with torch in the same dtype. A name
passes when all its samples pass. Where the table says so, only every n-th name was taken (`--every`), with one sample.

Integers and booleans must be equal. The bounds for others are relative and absolute: 1e-9 and 1e-10 for float64, 1e-4
and 1e-5 for the parts of complex64, 2**-8 for float16 and 2**-5 for bfloat16. The last two are four units in the last
place. torch itself rounds many halves by more than that, so such a value also passes if it is not farther than torch's
from what torch computes in float64 for the same inputs. A complex tensor is a pair of real ones in a file. Where
elements are equal, `sort`, `topk` and `kthvalue` may name any of them, so a position is compared by its element.

The last column leaves out what no opset can express and what is no matter of a dtype: see [coverage.md](coverage.md).
bfloat16 came to most operators with opset 13, so it is not measured before.
"""


def page_by_dtype(records: Mapping[Key, Record]) -> str:
    """The whole page.  `records` are by name, route, dtype and opset."""
    measured = {key: item for key, item in records.items() if "apart" not in item}
    parts = [_HEAD, *_summary(measured), "\n## What does not pass\n", *_failures(measured)]
    return "\n".join(parts) + "\n"


def _summary(measured: Mapping[Key, Record]) -> Iterable[str]:
    yield "| dtype | opset | route | pass | of what can be expressed |"
    yield "|---|---|---|---|---|"
    groups: dict[tuple[str, int, str, int], list[tuple[str, bool]]] = {}
    for (name, route, dtype, opset), item in measured.items():
        groups.setdefault((dtype, opset, route, item.get("every", 1)), []).append((name, not any(item["verdicts"])))
    for (dtype, opset, route, every), found in sorted(groups.items()):
        possible = [passes for name, passes in found if name not in ELSEWHERE]
        cells = [_share([passes for _, passes in found]), _share(possible)]
        taken = f"{route}, every {every}th name" if every > 1 else route
        yield f"| {dtype} | {opset} | {taken} | {' | '.join(cells)} |"


def _share(passes: list[bool]) -> str:
    return f"{sum(passes)} of {len(passes)} ({100 * sum(passes) / max(len(passes), 1):.1f} %)"


def _failures(measured: Mapping[Key, Record]) -> Iterable[str]:
    """One row a name and dtype, with the opsets and routes where it fails and the first reason."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for (name, route, dtype, opset), item in measured.items():
        reason = next(filter(None, item["verdicts"]), "")
        if reason and not route.startswith("torch.onnx"):
            found.setdefault((dtype, name), []).append((f"{route} {opset}", reason))
    yield "| dtype | name | where | why not |"
    yield "|---|---|---|---|"
    for (dtype, name), places in sorted(found.items()):
        where = ", ".join(place for place, _ in places)
        yield f"| {dtype} | {name} | {where} | {short(places[0][1])} |"
