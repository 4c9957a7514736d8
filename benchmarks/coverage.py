"""What of torch's own operator and module databases exports, and computes the same: the sweeps behind docs/coverage.md
and docs/coverage-dtypes.md.

    python benchmarks/coverage.py [--routes trace export script] [--peer] [--names 'linalg.*' ...] [--write]
    python benchmarks/coverage.py --dtypes float64 int32 --opsets 11 20 [--routes trace export] [--write]

A name of the database (float32, else int64, else bool) gives a few samples (`coverage_samples.py`).  Each is exported
(`coverage_exports.py`), run in ONNX Runtime and compared with torch: values within the bounds of their dtype (`BOUNDS`
in `coverage_judge.py`), dtype and shape.  Eigenvectors, of which a sign is free, are compared by what they compose.  A
value that torch itself rounds by more than the bounds (matrix_exp, and whatever it computes in half precision) passes
too where it is nearer to torch's float64 result for the same inputs than torch's own.  A complex tensor is a pair of
real ones in a file.  A name passes when all its samples pass.  Names without a deterministic, dense result are listed
apart.

Names run in processes of their own (`coverage_jobs.py`).  Results are kept in a file of JSON lines, one a name, route,
dtype and opset; a sweep that was stopped goes on where it was (`--fresh` begins again).  `--peer` measures both
exporters of torch.onnx by the same code.  Needs Linux, onnxruntime and expecttest.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from coverage_exports import ROUTES, import_early  # noqa: E402
from coverage_jobs import Run, named, sweep  # noqa: E402
from coverage_samples import database, dtype_of  # noqa: E402

OPSET = 20
BFLOAT16_SINCE = 13  # the opset in which most operators took it
# the opsets that the exporters of torch.onnx write
WRITTEN = {"torch.onnx dynamo=False": range(7, 21), "torch.onnx dynamo=True": range(18, 24)}
RESULTS = ROOT / "build" / "coverage.jsonl"
PAGE = ROOT / "docs" / "coverage.md"
RESULTS_BY_DTYPE = ROOT / "build" / "coverage_dtypes.jsonl"
PAGE_BY_DTYPE = ROOT / "docs" / "coverage-dtypes.md"

Key = tuple[str, str, str, int]


def known_results(results: Path) -> dict[Key, dict[str, Any]]:
    """The last record of each name, route, dtype and opset."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {
        (item["name"], item["route"], item["dtype"], item.get("opset", OPSET)): item for item in map(json.loads, lines)
    }


def _dtypes_of(entry: Any, wanted: Sequence[str] | None) -> list[torch.dtype]:
    """Those of the wanted dtypes that a name takes; its usual one when none are wanted."""
    if wanted is None:
        usual = dtype_of(entry)
        return [] if usual is None else [usual]
    supported = entry.dtypes if hasattr(entry, "dtypes") else entry.supported_dtypes("cpu")
    return [dtype for name in wanted if (dtype := getattr(torch, name)) in supported]


def _planned(entries: Mapping[str, Any], known: Mapping[Key, Any], options: Any) -> list[Run]:
    """The runs that are wanted and not yet known."""
    routes = options.peer if options.peer else options.routes
    runs = []
    for name, entry in entries.items():
        for dtype, route, opset in itertools.product(_dtypes_of(entry, options.dtypes), routes, options.opsets):
            if (dtype is torch.bfloat16 and opset < BFLOAT16_SINCE) or opset not in WRITTEN.get(route, [opset]):
                continue
            before = known.get((name, route, named(dtype), opset))
            wanted = options.fresh or before is None
            if options.failed:
                wanted = before is not None and any(before["verdicts"])
            if wanted:
                runs.append(Run(name, dtype, route, opset))
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", default=["*"], help="names or patterns such as 'linalg.*'")
    parser.add_argument("--routes", nargs="+", default=list(ROUTES), choices=ROUTES)
    parser.add_argument("--peer", nargs="*", choices=("False", "True"), help="measure torch.onnx, by these `dynamo`")
    parser.add_argument("--dtypes", nargs="+", help="these dtypes, such as float64, for the page by dtype")
    parser.add_argument("--opsets", nargs="+", type=int, default=[OPSET])
    parser.add_argument("--every", type=int, default=1, help="every n-th of the names only; the page says so")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--first", nargs="+", type=int, default=[], help="opsets at which the first sample is enough")
    parser.add_argument("--spread", action="store_true", help="samples from all over the list, not the first ones")
    parser.add_argument("--apart", action="store_true", help="capture for each opset anew")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, help="the file of JSON lines")
    parser.add_argument("--fresh", action="store_true", help="measure what is measured already too")
    parser.add_argument("--failed", action="store_true", help="measure only what failed before")
    parser.add_argument("--write", action="store_true", help="write the page from all results")
    options = parser.parse_args()
    if options.peer is not None:
        options.peer = [f"torch.onnx dynamo={dynamo}" for dynamo in options.peer or ("False", "True")]

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = options.results or (RESULTS_BY_DTYPE if options.dtypes else RESULTS)
    results.parent.mkdir(parents=True, exist_ok=True)
    entries = {
        name: entry
        for name, entry in database().items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in options.names)
    }
    entries = dict(itertools.islice(entries.items(), 0, None, options.every))
    if runs := _planned(entries, known_results(results), options):
        import_early(bool(options.peer))
        sweep(entries, runs, options, results)
    known = known_results(results)
    if options.dtypes:
        for key, text in by_dtype(known).items():
            print(*key, text)
        if options.write:
            from coverage_dtypes import page_by_dtype

            PAGE_BY_DTYPE.write_text(page_by_dtype(known))
        return
    found = {(name, route, opset): item for (name, route, _, opset), item in known.items()}
    for route, opset in dict.fromkeys((route, opset) for _, route, opset in found):
        print(f"{route:<26}{opset:<4}{_count(found, route, opset)}")
    if options.write:
        from coverage_page import page

        PAGE.write_text(page(found, OPSET))


def by_dtype(known: Mapping[Key, Any]) -> dict[tuple[str, str, int], str]:
    """How many names pass, by route, dtype and opset."""
    counted: dict[tuple[str, str, int], list[bool]] = {}
    for (_, route, dtype, opset), item in known.items():
        if "apart" not in item:
            counted.setdefault((route, dtype, opset), []).append(not any(item["verdicts"]))
    return {key: f"{sum(passed)} of {len(passed)}" for key, passed in counted.items()}


def _count(known: Mapping[tuple[str, str, int], Any], route: str, opset: int) -> str:
    measured = [item for (_, of, at), item in known.items() if (of, at) == (route, opset) and "apart" not in item]
    operators = [item for item in measured if not item["name"].startswith("nn.") or "functional" in item["name"]]
    modules = [item for item in measured if item not in operators]
    passed = [sum(not any(item["verdicts"]) for item in items) for items in (operators, modules)]
    return f"{passed[0]} of {len(operators)} operators, {passed[1]} of {len(modules)} modules"


if __name__ == "__main__":
    main()
