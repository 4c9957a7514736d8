"""float16 of real files, beside onnxconverter-common and ONNX Runtime's tool: valid, runs, difference, time, memory.

    python -m benchmarks.real_files fetch
    python -m benchmarks.half_precision              a table of the files that are there
    python -m benchmarks.half_precision --large      weights of 7B parameters, in a file without blocks

A tool converts a file in a process of its own, inputs and outputs kept; the time is that of loading, converting and
saving, the memory the peak of the process. The result is valid if onnx's checker takes it with shapes, where it takes
the file itself. It runs if ONNX Runtime's CPU provider does, on random inputs of allowed sizes. The difference is the
largest one of any float output, as a part of the output's largest element. The provider computes float16 in float32
between casts, so these numbers are of the weights and of what is cast, not of a device's arithmetic.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

CACHE = Path.home() / ".cache" / "purexport-real-files" / "models"
TOOLS = ("ours", "onnxconverter-common", "onnxruntime")
SECONDS = 120


def convert(tool: str, source: str, target: str) -> dict[str, Any]:
    """Convert a file; seconds and peak memory, of this process."""
    import numpy  # noqa: F401 - loaded before the time is taken, as the packages are

    if tool == "ours":
        import proto_schema as ps
        from proto_schema import checker, precision, shape_inference  # noqa: F401 - as the others are
        from proto_schema.files import models as files  # noqa: F401 - as the others are
        from proto_schema.files import saving  # noqa: F401 - as the others are
        from proto_schema.inference import rows  # noqa: F401

        start = time.perf_counter()
        ps.save(ps.convert_float(source), target, external_data=True if "large" in source else None)
    else:
        import onnx

        name = "onnxruntime.transformers.float16" if tool == "onnxruntime" else "onnxconverter_common.float16"
        convert_float_to_float16 = importlib.import_module(name).convert_float_to_float16
        start = time.perf_counter()
        onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {"seconds": time.perf_counter() - start, "peak": peak}


def judge(source: str, target: str) -> dict[str, Any]:
    """Whether a result is valid and runs, and how far it is off."""
    import numpy as np
    import onnx
    import onnxruntime

    import proto_schema as ps
    from proto_schema.reference.inputs import allowed_shapes, asked, drawn

    onnxruntime.set_default_logger_severity(4)

    def is_valid(path: str) -> bool:
        try:
            onnx.checker.check_model(path, full_check=True)
        except Exception:  # whatever it says
            return False
        return True

    facts: dict[str, Any] = {"valid": is_valid(target) or not is_valid(source)}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    one = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    model, wanted, why, feed = ps.load(source), None, "", {}
    for shapes in islice(allowed_shapes(model), 6):
        draw = np.random.default_rng(0)
        feed = {item.name or "": drawn(item, shapes.get(item.name or ""), draw) for item in asked(model)}
        try:
            wanted = one.run(None, feed)
            break
        except Exception as error:
            why = str(error).replace("\n", " ")
    if wanted is None:
        return facts | {"why": f"the file itself does not run on random inputs: {why[:90]}"}
    try:
        two = onnxruntime.InferenceSession(target, options, providers=["CPUExecutionProvider"])
        found = two.run(None, feed)
    except Exception as error:
        return facts | {"runs": False, "why": str(error).replace("\n", " ")[:150]}
    worst = 0.0
    for mine, theirs in zip(wanted, found, strict=True):
        if isinstance(mine, np.ndarray) and mine.dtype.kind == "f" and mine.size:
            if mine.shape != theirs.shape:
                return facts | {"runs": True, "off": None, "why": f"{mine.shape} became {theirs.shape}"}
            finite = np.isfinite(mine)
            if not np.array_equal(finite, np.isfinite(theirs)):
                return facts | {"runs": True, "off": None, "why": "other numbers are finite"}
            largest = float(np.abs(mine[finite]).max(initial=0.0))
            difference = np.abs(mine[finite].astype(np.float64) - theirs[finite].astype(np.float64))
            worst = max(worst, float(difference.max(initial=0.0)) / largest if largest else 0.0)
    return facts | {"runs": True, "off": worst}


def alone(*arguments: str) -> dict[str, Any]:
    """The answer of a step in a process of its own; `why` where it has none."""
    command = [sys.executable, "-m", "benchmarks.half_precision", "--step", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"why": f"more than {SECONDS} s"}
    if done.returncode:
        return {"why": ((done.stderr.strip() or "ended without a word").splitlines())[-1][:150]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(files: list[Path]) -> None:
    """Print a row for each file, then the sums."""
    print(
        "| file | tool | valid | runs | difference | s | MB | why not |\n|---|---|---|---|---|---|---|---|", flush=True
    )
    sums: dict[str, list[dict[str, Any]]] = {tool: [] for tool in TOOLS}
    for path in files:
        for tool in TOOLS:
            with tempfile.TemporaryDirectory() as folder:
                target = os.path.join(folder, "half.onnx")
                facts = alone("convert", tool, str(path), target)
                if "seconds" in facts:
                    facts |= alone("judge", str(path), target)
            sums[tool].append(facts)
            print(f"| {path.stem} | {tool} | {' | '.join(_cells(facts))} |", flush=True)
    print("\n| tool | converts | valid | runs | same shapes | median difference | s in all | largest MB |")
    print("|---|---|---|---|---|---|---|---|")
    for tool, rows in sums.items():
        off = sorted(row["off"] for row in rows if row.get("off") is not None)
        done = [row for row in rows if "seconds" in row]
        cells = [
            f"{len(done)} of {len(rows)}",
            str(sum(bool(row.get("valid")) for row in rows)),
            str(sum(bool(row.get("runs")) for row in rows)),
            str(len(off)),
            f"{off[len(off) // 2]:.1e}" if off else "",
            f"{sum(row['seconds'] for row in done):.1f}",
            f"{max((row['peak'] for row in done), default=0) / 1e6:.0f}",
        ]
        print(f"| {tool} | {' | '.join(cells)} |")


def _cells(facts: dict[str, Any]) -> list[str]:
    off = facts.get("off")
    return [
        *("" if key not in facts else "yes" if facts[key] else "no" for key in ("valid", "runs")),
        "" if off is None else f"{off:.1e}",
        f"{facts['seconds']:.2f}" if "seconds" in facts else "",
        f"{facts['peak'] / 1e6:.0f}" if "peak" in facts else "",
        facts.get("why", ""),
    ]


def large() -> None:
    """Convert 28 GB of weights that are one hole of a file."""
    import proto_schema as ps

    rows, layers = 8192, 104  # 7.0e9 weights
    with tempfile.TemporaryDirectory(prefix="large-") as folder:
        with open(os.path.join(folder, "w.data"), "wb") as file:
            file.truncate(4 * rows * rows * layers)
        tensors, nodes = [], []
        for layer in range(layers):
            tensor = ps.TensorProto(name=f"w{layer}", data_type=1, dims=[rows, rows])
            tensor.data_location = ps.TensorProto.EXTERNAL
            places = {"location": "w.data", "offset": 4 * rows * rows * layer, "length": 4 * rows * rows}
            tensor.external_data = [ps.StringStringEntryProto(key=key, value=str(at)) for key, at in places.items()]
            tensors.append(tensor)
            nodes.append(ps.helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))
        ends = [ps.helper.make_tensor_value_info(name, 1, ["n", rows]) for name in ("x0", f"x{layers}")]
        graph = ps.helper.make_graph(nodes, "large", ends[:1], ends[1:], tensors)
        path = Path(folder, "large.onnx")
        path.write_bytes(
            ps.helper.make_model(graph, opset_imports=[ps.helper.make_opsetid("", 20)]).SerializeToString()
        )
        command = [sys.executable, "-m", "benchmarks.half_precision", "--step", "convert", "ours", str(path)]
        done = subprocess.run(
            [*command, os.path.join(folder, "half.onnx")], capture_output=True, text=True, check=False
        )
        print(done.stdout or done.stderr)
        print(sum(item.stat().st_size for item in Path(folder).glob("half.onnx*")), "bytes written")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=CACHE)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--step", nargs="+")
    args = parser.parse_args()
    if args.step:
        kind, *more = args.step
        print(json.dumps(convert(*more) if kind == "convert" else judge(*more)))
    elif args.large:
        large()
    else:
        table(sorted(args.models.glob("*.onnx")))


if __name__ == "__main__":
    main()
