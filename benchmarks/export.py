"""Our export and both of torch.onnx's, side by side: seconds of the whole call, and peak memory over the loaded model.

    python benchmarks/export.py [--models resnet50 ...] [--repeat 3] [--json results.json]

Each measurement is a process of its own: it loads the model, imports the exporter, and then times the call that writes
the file, so what an exporter imports late is part of its first call.  The second call in the same process is reported
too.  Memory is the growth of the resident set during the first call, by the kernel's own high-water mark.  Needs Linux.
The best time and the smallest growth of the repeats count; ratios are to the first exporter named.  Processor time is
given beside the clock's, since a busy machine stretches the latter.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import gc
import io
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OPSET = 18  # the oldest that all four write
MODELS = ("alexnet", "resnet50", "densenet121")

Export = Callable[[Any, tuple[Any, ...], str], Any]


def _ours(route: str) -> Export:
    import purexport

    return lambda model, args, path: purexport.export(model, args, path, opset_version=OPSET, capture=route)


def _torch_onnx(dynamo: bool) -> Export:
    import torch.onnx

    return lambda model, args, path: torch.onnx.export(model, args, path, opset_version=OPSET, dynamo=dynamo)


def _trace_alone() -> Export:
    import torch

    return lambda model, args, path: torch.no_grad()(torch.jit.trace)(model, args, check_trace=False)


def _export_alone() -> Export:
    import torch.export

    return lambda model, args, path: torch.export.export(model, args, strict=False)


EXPORTERS: dict[str, Callable[[], Export]] = {
    "purexport trace": lambda: _ours("trace"),
    "purexport export": lambda: _ours("export"),
    "torch.onnx dynamo=False": lambda: _torch_onnx(False),
    "torch.onnx dynamo=True": lambda: _torch_onnx(True),
    "(torch.jit.trace alone)": _trace_alone,
    "(torch.export alone)": _export_alone,
}


def _image_model(name: str) -> tuple[Any, tuple[Any, ...]]:
    import torch

    from tests.torchvision_shim import torchvision

    return getattr(torchvision().models, name)(weights=None).eval(), (torch.randn(1, 3, 224, 224),)


def _gpt() -> tuple[Any, tuple[Any, ...]]:
    """124 million parameters in float32."""
    import torch

    from tests.models.gpt import Gpt

    model = Gpt("sdpa", width=768, heads=12, layers=12, vocabulary=50257, longest=1024)
    return model.eval(), (torch.randint(0, 50257, (1, 64)),)


def _llama() -> tuple[Any, tuple[Any, ...]]:
    """1.1 billion parameters in bfloat16, 2.2 GB."""
    import torch

    from tests.models.llama import Llama, Shape

    with torch.device("meta"):
        model = Llama(Shape(width=2048, heads=32, groups=8, layers=16, inner=8192, vocabulary=32000))
    model = model.to(torch.bfloat16).to_empty(device="cpu").eval()
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.fill_(0.01)
    return model, (torch.randint(0, 32000, (1, 16)),)


LANGUAGE_MODELS = {"gpt": _gpt, "llama_1b": _llama}


# One measurement, in a process of its own -----------------------------------------------------------------------------


def measure(model_name: str, exporter: str) -> dict[str, float]:
    """Seconds of the first and second call, processor seconds of the first, growth of memory during the first."""
    sys.path.insert(0, str(ROOT))
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch

    torch.manual_seed(0)
    model, args = LANGUAGE_MODELS.get(model_name, functools.partial(_image_model, model_name))()
    with torch.no_grad():
        model(*args)  # the runtime's own buffers are no exporter's
    export = EXPORTERS[exporter]()
    with tempfile.TemporaryDirectory() as folder:
        _return_freed_memory()
        before = _resident_mb("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        first, cpu = _seconds(export, model, args, f"{folder}/first.onnx")
        extra = _resident_mb("VmHWM") - before
        second, _ = _seconds(export, model, args, f"{folder}/second.onnx")
    return {"first": first, "cpu": cpu, "second": second, "extra_mb": max(0.0, extra)}


def _seconds(export: Export, model: Any, args: tuple[Any, ...], path: str) -> tuple[float, float]:
    """(seconds by the clock, seconds of processor time) of one call."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        start, start_cpu = time.perf_counter(), time.process_time()
        result = export(model, args, path)
        seconds = time.perf_counter() - start, time.process_time() - start_cpu
    del result
    return seconds


def _return_freed_memory() -> None:
    """What loading the model has left in the allocator must not hide what the export takes."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _resident_mb(key: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError(f"/proc/self/status has no {key}")


# The comparison -------------------------------------------------------------------------------------------------------


def compare(models: list[str], exporters: list[str], repeat: int) -> list[dict[str, Any]]:
    """A result for each model and exporter.  The exporters take turns, so that a slow minute hits them all."""
    results = []
    for model in models:
        runs: dict[str, list[dict[str, float]]] = {exporter: [] for exporter in exporters}
        for _ in range(repeat):
            for exporter in exporters:
                runs[exporter].append(_measure_in_process(model, exporter))
                print(f"{model}, {exporter}: {runs[exporter][-1]['first']:.2f} s", file=sys.stderr)
        base = _best(runs[exporters[0]])
        for exporter in exporters:
            best = _best(runs[exporter])
            ratios = {f"{key}_ratio": best[key] / base[key] if base[key] else None for key in best}
            spread = statistics.pstdev(run["first"] for run in runs[exporter])
            results.append({"model": model, "exporter": exporter, **best, **ratios, "first_spread": spread})
    return results


def _best(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: min(run[key] for run in runs) for key in runs[0]}


def _measure_in_process(model: str, exporter: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", model, exporter]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{model}, {exporter} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def table(results: list[dict[str, Any]]) -> str:
    """The results for people; a ratio above 1 says how many times more than the first exporter."""
    header = (
        "model",
        "exporter",
        "first call",
        "cpu",
        "second",
        "extra memory",
        "time ratio",
        "cpu ratio",
        "memory ratio",
    )
    rows = [header]
    for result in results:
        ratios = [result["first_ratio"], result["cpu_ratio"], result["extra_mb_ratio"]]
        rows.append(
            (
                result["model"],
                result["exporter"],
                f"{result['first']:.2f} s",
                f"{result['cpu']:.2f} s",
                f"{result['second']:.2f} s",
                f"{result['extra_mb']:.0f} MB",
                *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--models",
        nargs="+",
        default=list(MODELS),
        metavar="NAME",
        help="torchvision models, gpt, llama_1b (which takes 10 GB of memory and as much of the disk)",
    )
    parser.add_argument("--exporters", nargs="+", default=list(EXPORTERS), choices=list(EXPORTERS), metavar="NAME")
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure)))
        return
    results = compare(args.models, args.exporters, args.repeat)
    print(table(results))
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
