"""Export with dynamic axes: ours by trace and by torch.export, beside both of torch.onnx's.

    python benchmarks/dynamic.py [--only NAME] [--route ROUTE] [--repeat 3] [--json results.json]
    python benchmarks/dynamic.py --only NAME --route "ours trace" --profile
    python benchmarks/dynamic.py --captures [--only NAME] [--repeat 3]

Each measurement is the first call of a fresh process, on one thread: it loads the model, runs it once, imports the
exporter, and times the call that writes the file. Processor time is what is compared, because a busy machine stretches
the clock's; both are shown, the best of the repeats. The file is then run in ONNX Runtime on the example and on two
other sizes, and compared with the model. A cell without a time is an export that was refused or took too long. A second
table has the stages of ours.

With `--captures`, our trace with all axes dynamic is compared with torch.jit.trace with fixed ones, in
turns in one process where both have run before.

The aims: our trace takes no longer than dynamo=False and a quarter of dynamo=True, our export a third of dynamo=True,
and every file of ours is right. The exit status is 1 if one is missed.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import cProfile
import io
import json
import logging
import os
import pstats
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

OPSET = 18  # the oldest that all four write
CLOSE: Any = {"rtol": 1e-3, "atol": 1e-4}
AIMS = [
    ("ours trace", "dynamo=False", 1.0),
    ("ours trace", "dynamo=True", 1 / 4),
    ("ours export", "dynamo=True", 1 / 3),
]
"""Route, the one that it is compared with, the largest ratio of their times."""

Export = Callable[[Any, str], Any]  # of a case, to a path


# The routes -----------------------------------------------------------------------------------------------------------


def _ours(capture: str) -> Export:
    """Fills `case.marks` with (stage, processor time when it began)."""
    import purexport

    return lambda case, path: purexport.export(
        case.model,
        case.args,
        path,
        input_names=case.inputs,
        output_names=case.outputs,
        dynamic_axes=case.axes,
        opset_version=OPSET,
        capture=capture,
        progress=lambda stage, number, count: case.marks.append((stage, time.process_time())),
    )


def _of_torch(dynamo: bool) -> Export:
    import torch.onnx

    def export(case: Any, path: str) -> Any:
        axes = {"dynamic_shapes": case.shapes()} if dynamo else {"dynamic_axes": case.axes}
        names = {"input_names": case.inputs, "output_names": case.outputs}
        return torch.onnx.export(case.model, case.args, path, opset_version=OPSET, dynamo=dynamo, **names, **axes)

    return export


def _trace_alone() -> Export:
    import torch

    return lambda case, path: torch.no_grad()(torch.jit.trace)(case.model, case.args, check_trace=False)


def _export_alone() -> Export:
    import torch.export

    options: dict[str, Any] = {
        "strict": False,
        "prefer_deferred_runtime_asserts_over_guards": True,
    }  # as dynamo=True has them
    return lambda case, path: torch.export.export(case.model, case.args, dynamic_shapes=case.shapes(), **options)


ROUTES: dict[str, Callable[[], Export]] = {
    "ours trace": lambda: _ours("trace"),
    "ours export": lambda: _ours("export"),
    "dynamo=False": lambda: _of_torch(False),
    "dynamo=True": lambda: _of_torch(True),
    "(torch.jit.trace)": _trace_alone,
    "(torch.export)": _export_alone,
}
"""By name; those in parentheses write no file, and say what the capture alone takes."""


# The captures alone ---------------------------------------------------------------------------------------------------


def captures(name: str, repeat: int) -> str:
    """Processor milliseconds of our trace and of torch.jit.trace, their ratio, and microseconds for each call."""
    import torch

    from benchmarks.dynamic_models import MODELS
    from purexport.frontends.core.request import Request
    from purexport.frontends.trace.route import capture_by_trace

    torch.manual_seed(0)
    case = MODELS[name]()
    case.model.eval()
    trace = _trace_alone()
    axes = {name: case.axes[name] for name in case.inputs}
    request = Request(case.model, case.args, {}, "trace", case.inputs, axes, output_names=case.outputs)
    calls = len(capture_by_trace(request).graph.calls)
    trace(case, "")
    ours, theirs = [], []
    for _ in range(repeat):
        start = time.process_time()
        capture_by_trace(request)
        ours.append(time.process_time() - start)
        start = time.process_time()
        trace(case, "")
        theirs.append(time.process_time() - start)
    took, other = min(ours), min(theirs)
    each = f"{1e6 * took / calls:.0f} us a call of {calls}"
    return f"{name:24} ours {1e3 * took:7.1f} ms  torch.jit.trace {1e3 * other:7.1f} ms  {took / other:.2f}  {each}"


# One measurement, in a process of its own -----------------------------------------------------------------------------


def measure(name: str, route: str, profile: bool = False) -> dict[str, Any]:
    """Seconds by the clock and of the processor, and whether the file is right; or why there is none."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch

    from benchmarks.dynamic_models import MODELS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    case = MODELS[name]()
    case.model.eval()  # the outermost module too: an exporter may set all modules back to its mode
    with torch.no_grad():
        case.model(*case.args)
    export = ROUTES[route]()
    profiler = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/m.onnx"
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            wall, cpu = time.perf_counter(), time.process_time()
            case.marks.append(("imports", cpu))
            try:
                profiler.runcall(export, case, path) if profile else export(case, path)
            except Exception as error:
                return {"verdict": f"refused: {_one_line(error)}"}
            case.marks.append(("", time.process_time()))
            wall, cpu = time.perf_counter() - wall, case.marks[-1][1] - cpu
        if profile:
            pstats.Stats(profiler, stream=sys.stderr).sort_stats("cumulative").print_stats("purexport|sympy|torch", 60)
        stages = {one: after - before for (one, before), (_, after) in pairwise(case.marks)}
        verdict = _verdict(case, path) if Path(path).exists() else ""
        return {"wall": wall, "cpu": cpu, "stages": stages, "verdict": verdict}


def _verdict(case: Any, path: str) -> str:
    """`right`, or what is wrong at which sizes."""
    import numpy as np
    import onnxruntime
    import torch
    from torch.utils import _pytree as pytree

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for args in (case.args, *case.others):
        tensors = pytree.tree_leaves(args)
        sizes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors[:2])
        given = dict(zip(case.inputs, (tensor.numpy() for tensor in tensors), strict=True))
        with torch.no_grad():
            wanted = pytree.tree_leaves(case.model(*args))
        try:
            found = session.run(None, {item.name: given[item.name] for item in session.get_inputs()})
        except Exception as error:
            return f"fails for {sizes}: {_one_line(error)}"
        for expected, got in zip(wanted, found, strict=True):
            if got.shape != tuple(expected.shape):
                return f"wrong shape for {sizes}: {got.shape}, not {tuple(expected.shape)}"
            if not np.allclose(expected.numpy(), got, **CLOSE):
                return f"wrong for {sizes}: differs by up to {float(np.abs(expected.numpy() - got).max()):.2g}"
    return "right"


def _one_line(error: BaseException) -> str:
    """The innermost cause in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:160]}"


# The comparison -------------------------------------------------------------------------------------------------------


def compare(names: Sequence[str], routes: Sequence[str], repeat: int, limit: int) -> dict[str, dict[str, Any]]:
    """By model and route: the best times and the verdict. The routes take turns, so that a slow minute hits all."""
    for package in ("purexport", "proto_schema", "benchmarks", "tests"):  # as pip does for what it installs
        compileall.compile_dir(ROOT / package, quiet=2)
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        best: dict[str, Any] = {}
        for _ in range(repeat):
            for route in routes:
                if "cpu" in best.get(route, {"cpu": 0}):  # what was refused once is refused again
                    best[route] = _better(best.get(route), _measured(name, route, limit))
                    sys.stderr.write(f"{name}, {route}: {_cell(best[route])}, {best[route]['verdict']}\n")
        results[name] = best
    return results


def _better(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    if old is None or "cpu" not in new:
        return new
    return {**min(old, new, key=lambda run: run["cpu"]), "wall": min(old["wall"], new["wall"])}


def _measured(name: str, route: str, limit: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", name, route]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=limit, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return {"verdict": f"not done after {limit} s"}
    if done.returncode != 0:
        return {"verdict": f"the process ended with {done.returncode}: {' '.join(done.stderr.split()[-30:])}"}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def ratio(row: dict[str, Any], first: str, second: str) -> float | None:
    """How many times the processor time of the second route the first one takes; None without both."""
    times = [row.get(route, {}).get("cpu") for route in (first, second)]
    return times[0] / times[1] if all(times) else None


def missed(results: dict[str, dict[str, Any]]) -> list[str]:
    """A line for each aim that is missed, and for each file of ours that is not right."""
    lines = []
    for name, row in results.items():
        for route, other, most in AIMS:
            found = ratio(row, route, other)
            if found is not None and found > most:
                lines.append(f"{name}: {route} takes {found:.2f} of {other}, more than {most:.2f}")
        for route, cell in row.items():
            if route.startswith("ours") and cell["verdict"] != "right":
                lines.append(f"{name}: {route} is {cell['verdict']}")
    return lines


def table(results: dict[str, dict[str, Any]], routes: Sequence[str]) -> str:
    """The times, as processor seconds and those of the clock, and the ratios; then what is not right."""
    ratios = [("ours_trace/dynamo_false", *AIMS[0][:2])]
    ratios += [(f"dynamo_true/{ours.replace(' ', '_')}", other, ours) for ours, other, _ in AIMS[1:]]
    rows = [("model", *routes, *(title for title, _, _ in ratios))]
    for name, row in results.items():
        times = (ratio(row, first, second) for _, first, second in ratios)
        rows.append(
            (
                name,
                *(_cell(row[route]) + _mark(row[route]) for route in routes),
                *("-" if found is None else f"{found:.2f}" for found in times),
            )
        )
    lines = _columns(rows)
    wrong = [(name, route, cell["verdict"]) for name, row in results.items() for route, cell in row.items()]
    lines += ["", *(f"{name}, {route}: {verdict}" for name, route, verdict in wrong if verdict not in ("right", ""))]
    return "\n".join(lines)


def stage_table(results: dict[str, dict[str, Any]]) -> str:
    """Processor seconds of ours by stage."""
    found = [
        (name, route, cell["stages"])
        for name, row in results.items()
        for route, cell in row.items()
        if route.startswith("ours") and "cpu" in cell
    ]
    titles = list(dict.fromkeys(stage for *_, stages in found for stage in stages))
    rows = [("model", "route", *titles)]
    rows += [(name, route, *(f"{stages.get(title, 0):.2f}" for title in titles)) for name, route, stages in found]
    return "\n".join(_columns(rows))


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(result: dict[str, Any]) -> str:
    return f"{result['cpu']:.2f} ({result['wall']:.2f}) s" if "cpu" in result else "-"


def _mark(result: dict[str, Any]) -> str:
    """A word beside a time whose file is not right."""
    known = result["verdict"] in ("right", "") or "cpu" not in result
    return "" if known else f" {result['verdict'].split()[0]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The table; 1 if an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="only this model (may be given again)")
    parser.add_argument("--route", action="append", choices=ROUTES, help="only this one (may be given again)")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each, of which the best counts")
    parser.add_argument("--limit", type=int, default=300, help="seconds after which an export is given up")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--profile", action="store_true", help="print where the time of one export goes")
    parser.add_argument("--captures", action="store_true", help="only captures, ours and by torch.jit.trace")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.measure:
        print(json.dumps(measure(*asked.measure)))
        return 0
    from benchmarks.dynamic_models import MODELS

    names, routes = asked.only or list(MODELS), asked.route or list(ROUTES)
    if unknown := sorted(set(names) - set(MODELS)):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    if asked.captures:
        warnings.simplefilter("ignore")
        for name in names:
            print(captures(name, asked.repeat), flush=True)
        return 0
    if asked.profile:
        print(json.dumps([measure(name, route, profile=True) for name in names for route in routes]))
        return 0
    results = compare(names, routes, asked.repeat, asked.limit)
    print(f"{table(results, routes)}\n\n{stage_table(results)}\n")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=2) + "\n")
    for line in (lines := missed(results)):
        print(f"MISSED {line}")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
