"""How many language models with a KV cache export with batch, sequence and past dynamic, and compute the same.

    python benchmarks/decoders.py [--route trace export] [--peer false true] [--only NAME ...] [--part 1/2]

Every class of transformers' MODEL_FOR_CAUSAL_LM_MAPPING with a tiny random config (tests/models/decoders.py says what a
case is, and what it is checked against).  One line is printed for each class and exporter, with the first line of the
error, then a summary.  `--peer` measures the exporters of torch.onnx on the same cases.  Each class runs in a process
forked from this one, with a time limit.  Needs Linux, transformers and onnxruntime.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import logging
import multiprocessing
import os
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.models import decoders  # noqa: E402
from tests.models.decoders import Decoder, LeftOutError  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

SECONDS = 180  # a class and exporter
MEMORY = 10 << 30  # a process
ROUTES = ("trace", "export")
PEERS = ("false", "true")


def exported(decoder: Decoder, exporter: str) -> bytes:
    """The file that an exporter writes for a case: "trace", "export", "peer-false" or "peer-true"."""
    args = decoder.args(**decoders.EXAMPLE)
    names: dict[str, Any] = {"input_names": decoder.input_names, "output_names": decoder.output_names}
    if exporter in ROUTES:
        import purexport

        program = purexport.export(
            decoder.step, args, dynamic_axes=decoder.axes(), capture=exporter, opset_version=decoders.OPSET, **names
        )
        return bytes(program.model_proto.SerializeToString())
    if exporter == "peer-true":
        axes = [decoder.axes()[name] for name in decoder.input_names]
        dims = {label: torch.export.Dim.DYNAMIC for found in axes for label in found.values()}
        shapes = [{axis: dims[label] for axis, label in found.items()} for found in axes]
        written: Any = torch.onnx.export(
            decoder.step,
            args,
            dynamo=True,
            dynamic_shapes=(*shapes[:2], tuple(shapes[2:])),
            opset_version=decoders.OPSET,
            verbose=False,
            **names,
        )
        return bytes(written.model_proto.SerializeToString())
    buffer: Any = io.BytesIO()
    torch.onnx.export(
        decoder.step, args, buffer, dynamo=False, dynamic_axes=decoder.axes(), opset_version=decoders.OPSET, **names
    )
    return bytes(buffer.getvalue())


def runner(data: bytes) -> Callable[[dict[str, Any]], Sequence[Any]]:
    """ONNX Runtime on the file.  Inputs that an exporter left out are not given."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = {item.name for item in session.get_inputs()}
    return lambda feeds: session.run(None, {name: value for name, value in feeds.items() if name in names})


def verdict(name: str, exporter: str) -> tuple[str, str]:
    """("pass" | "left out" | "export" | "load" | "differs" | "runtime", the reason in one line)."""
    try:
        decoder = decoders.made(name)
    except LeftOutError as error:
        return "left out", str(error)
    try:
        data = exported(decoder, exporter)
    except Exception as error:
        return "export", _line(error)
    try:
        run = runner(data)
    except Exception as error:
        return "load", _line(error)
    try:
        decoder.check(run)
    except AssertionError as error:
        return "differs", _line(error)
    except Exception as error:
        return "runtime", _line(error)
    return "pass", ""


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines() or [""]
    first = " ".join(" ".join(text[:3]).split())
    return f"{type(error).__name__}: {first}"[:300]


def _child(pipe: Connection, name: str, exporter: str, loud: bool) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if not loud:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
    pipe.send(verdict(name, exporter))


def run_one(name: str, exporter: str, loud: bool = False) -> dict[str, Any]:
    """One class and exporter in a process of its own."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(theirs, name, exporter, loud))
    since = time.monotonic()
    process.start()
    theirs.close()
    try:
        found = mine.recv() if mine.poll(SECONDS) else ("time", f"more than {SECONDS} s")
    except EOFError:
        process.join()
        found = ("crash", f"the process ended with {process.exitcode}")
    process.kill()
    process.join()
    seconds = round(time.monotonic() - since, 2)
    return {"name": name, "exporter": exporter, "verdict": found[0], "reason": found[1], "seconds": seconds}


def _import_early() -> None:
    """What every process would import, once before they are forked."""
    import onnxruntime  # noqa: F401

    import purexport
    from purexport.lowering.rules import registered

    registered()
    purexport.export(torch.nn.ReLU(), torch.ones(2), dynamic_axes={"input": {0: "n"}}, capture="trace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--route", nargs="*", default=[], choices=ROUTES)
    parser.add_argument("--peer", nargs="*", default=[], choices=PEERS, help="torch.onnx.export with dynamo=...")
    parser.add_argument("--only", nargs="+", help="names of classes")
    parser.add_argument("--part", help="1/3: the first of three parts of the list")
    parser.add_argument("--json", type=Path, help="append one record a line to this file")
    parser.add_argument("--loud", action="store_true", help="let the processes write to the terminal")
    options = parser.parse_args()

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with contextlib.suppress(ImportError):
        torchvision()  # transformers imports it where it is installed
    _import_early()
    importlib.import_module("transformers").logging.set_verbosity_error()
    names = options.only or list(decoders.classes())
    if options.part:
        part, parts = map(int, options.part.split("/"))
        names = names[part - 1 :: parts]
    exporters = [*options.route, *(f"peer-{dynamo}" for dynamo in options.peer)] or ["trace"]
    records = []
    for exporter in exporters:
        for name in names:
            record = run_one(name, exporter, options.loud)
            records.append(record)
            print(f"{exporter:<10} {record['verdict']:<8} {name:<40} {record['seconds']:6.1f} s  {record['reason']}")
            sys.stdout.flush()
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    for exporter in exporters:
        count = Counter(record["verdict"] for record in records if record["exporter"] == exporter)
        cases = sum(count.values()) - count["left out"]
        rest = ", ".join(f"{number} {what}" for what, number in sorted(count.items()) if what != "pass")
        print(f"{exporter}: {count['pass']} of {cases} cases pass ({rest})")


if __name__ == "__main__":
    main()
