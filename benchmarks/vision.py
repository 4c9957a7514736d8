"""Vision models with dynamic batch, height and width: each file runs at three other sizes than the example's.

    python benchmarks/vision.py [--only resnet swin ...] [--route trace export] [--peers] [--limit 120] [--json FILE]

A line for each model of tests/models/vision_families.py and each exporter: `right` (equal to torch at all sizes),
`WRONG` (numbers or shapes differ), `stops` (ONNX Runtime refuses the file or a size), `refused` (no file), `slow` (no
file within the limit), with the processor seconds of the export, the nodes of the file, and what was said first.
Each pair runs in a forked process, so that nothing is shared and a slow one can be ended.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import onnx  # noqa: E402
import torch  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from tests.harness import run_ort  # noqa: E402
from tests.models.vision_families import FAMILIES, Family, share_off  # noqa: E402

OPSET = 18  # the oldest that all exporters write
SHARE = 1e-3  # of the largest number: how far a result may be off


def _ours(route: str) -> Callable[[Family, Any], bytes]:
    def export(family: Family, model: Any) -> bytes:
        import purexport

        program = purexport.export(
            model,
            family.inputs(family.example),
            input_names=family.input_names(),
            dynamic_axes=family.dynamic_axes(),
            opset_version=OPSET,
            capture=route,
        )
        return program.model_proto.SerializeToString()

    return export


def _peer(dynamo: bool) -> Callable[[Family, Any], bytes]:
    def export(family: Family, model: Any) -> bytes:
        import torch.onnx

        if dynamo:
            shapes = [dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in family.dynamic_axes().values()]
            program: Any = torch.onnx.export(
                model,
                family.inputs(family.example),
                input_names=family.input_names(),
                dynamic_shapes=(*shapes, *(None for _ in family.more)),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
            data: bytes = program.model_proto.SerializeToString()
            return data
        file = io.BytesIO()
        torch.onnx.export(
            model,
            family.inputs(family.example),
            file,
            input_names=family.input_names(),
            dynamic_axes=family.dynamic_axes(),
            opset_version=OPSET,
            dynamo=False,
        )
        return file.getvalue()

    return export


EXPORTERS = {
    "trace": _ours("trace"),
    "export": _ours("export"),
    "dynamo=False": _peer(False),
    "dynamo=True": _peer(True),
}


def outcome(family: Family, exporter: str) -> dict[str, Any]:
    """The verdict, the first line of what was said, seconds and nodes."""
    model = family.model()
    start = time.process_time()
    try:
        data = EXPORTERS[exporter](family, model)
    except Exception as error:
        return {"verdict": "refused", "said": _line(error), "seconds": time.process_time() - start, "nodes": 0}
    seconds = time.process_time() - start
    verdict, said = judge(family, model, data)
    nodes = len(onnx.load_from_string(data).graph.node)
    return {"verdict": verdict, "said": said, "seconds": seconds, "nodes": nodes}


def judge(family: Family, model: Any, data: bytes) -> tuple[str, str]:
    """The verdict on a file, and what is wrong with it."""
    for size in (family.example, *family.others):
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*family.inputs(size, seed=1)))
        try:
            found = run_ort(data, [tensor.numpy() for tensor in family.tensors(size, seed=1)])
        except Exception as error:
            return "stops", f"at {size}: {_line(error)}"
        for position, (got, want) in enumerate(zip(found, expected, strict=True)):
            if got.shape != tuple(want.shape):
                return "WRONG", f"at {size}: output {position} has shape {got.shape}, torch gives {tuple(want.shape)}"
            off = share_off(got, want.numpy())
            if not off < SHARE:
                return "WRONG", f"at {size}: output {position} is off by {off:.2g} of the largest number"
    return "right", ""


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _in_child(family: Family, exporter: str, pipe: Connection) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # what exporters and ONNX Runtime print
        os.dup2(silent, stream)
    pipe.send(outcome(family, exporter))


def measure(family: Family, exporter: str, limit: float) -> dict[str, Any]:
    """`outcome` in a process of its own, which is ended after `limit` seconds."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(family, exporter, sender))
    child.start()
    sender.close()
    found: dict[str, Any] = {"verdict": "slow", "said": "", "seconds": limit, "nodes": 0}
    if receiver.poll(limit):
        try:
            found = receiver.recv()
        except EOFError:
            found = {"verdict": "crashed", "said": "the process ended", "seconds": 0.0, "nodes": 0}
    if child.is_alive():
        child.kill()
    child.join()
    return {"family": family.name, "exporter": exporter, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    names = [family.name for family in FAMILIES]
    parser.add_argument("--only", nargs="+", default=names, choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--route", nargs="+", default=["trace", "export"], choices=["trace", "export"])
    parser.add_argument("--peers", action="store_true", help="torch.onnx too, dynamo=False and dynamo=True")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one model and exporter (default: 120)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    exporters = [*args.route, *(["dynamo=False", "dynamo=True"] if args.peers else [])]
    results = []
    for family in [family for family in FAMILIES if family.name in args.only]:
        for exporter in exporters:
            results.append(measure(family, exporter, args.limit))
            print("{family:20} {exporter:13} {verdict:8} {seconds:6.2f} s {nodes:5}  {said}".format(**results[-1]))
            sys.stdout.flush()
    for exporter in exporters:
        counts = Counter(item["verdict"] for item in results if item["exporter"] == exporter)
        print(f"{exporter}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
