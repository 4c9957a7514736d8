"""How many language models with a KV cache export with batch, sequence and past dynamic, and compute the same.

    python benchmarks/decoders.py [--route trace export] [--form own] [--peer false true] [--only NAME ...] [--part 1/2]

Every class of transformers' MODEL_FOR_CAUSAL_LM_MAPPING with a tiny random config (tests/models/decoders.py says what a
case is, and what it is checked against).  `--form wrapped` exports a module with tensors in and out, `--form own` the
model itself with a DynamicCache.  `--form first step with-cache` exports the classes of MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM
and SPEECH_SEQ_2_SEQ instead (tests/models/encoder_decoders.py).  One line is printed for each class and exporter, with
the first line of the error, then a summary.  `--peer` measures the exporters of torch.onnx on the wrapped cases.  Each
class runs in a process forked from this one, with a time limit.  Needs Linux, transformers and onnxruntime.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import json
import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.models import decoders, encoder_decoders  # noqa: E402
from tests.models.decoders import LeftOutError, Run, Task  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

SECONDS = 180  # of the processor, for a class and exporter
WAIT = 20 * SECONDS  # on a machine that does other things
MEMORY = 10 << 30  # a process
ROUTES = ("trace", "export")
PEERS = ("false", "true")
OF_DECODERS = ("wrapped", "own")
FORMS = (*OF_DECODERS, "first", "step", "with-cache")


def task(name: str, form: str) -> Task:
    """What is exported of a class.  Raises LeftOutError with the reason where it is no case."""
    if form in OF_DECODERS:
        decoder = decoders.made(name)
        return decoder.own() if form == "own" else decoder.wrapped()
    return encoder_decoders.made(name).tasks()[form]


def exported(item: Task, exporter: str) -> bytes:
    """The file that an exporter writes for a case: "trace", "export", "peer-false" or "peer-true"."""
    given: dict[str, Any] = {"opset_version": decoders.OPSET, **item.names}
    if exporter in ROUTES:
        import purexport

        program = purexport.export(
            item.model, item.args, kwargs=item.kwargs, dynamic_axes=item.axes, capture=exporter, **given
        )
        return bytes(program.model_proto.SerializeToString())
    if exporter == "peer-true":
        axes = [item.axes[name] for name in item.names["input_names"]]
        dims = {label: torch.export.Dim.DYNAMIC for found in axes for label in found.values()}
        shapes = [{axis: dims[label] for axis, label in found.items()} for found in axes]
        written: Any = torch.onnx.export(
            item.model, item.args, dynamo=True, dynamic_shapes=_nested(item.model, shapes), verbose=False, **given
        )
        return bytes(written.model_proto.SerializeToString())
    buffer: Any = io.BytesIO()
    torch.onnx.export(item.model, item.args, buffer, dynamo=False, dynamic_axes=item.axes, **given)
    return bytes(buffer.getvalue())


def _nested(model: torch.nn.Module, shapes: list[Any]) -> tuple[Any, ...]:
    """The shapes as torch.export wants them: those of `*past` are one tuple."""
    named = len(inspect.signature(model.forward).parameters) - 1
    return (*shapes[:named], tuple(shapes[named:]))


def runner(data: bytes) -> Run:
    """ONNX Runtime on the file.  Inputs that an exporter left out are not given."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = {item.name for item in session.get_inputs()}
    outputs = [item.name for item in session.get_outputs()]

    def run(feeds: dict[str, Any]) -> dict[str, Any]:
        found = session.run(None, {name: value for name, value in feeds.items() if name in names})
        return dict(zip(outputs, found, strict=True))

    return run


def verdict(name: str, exporter: str, form: str) -> tuple[str, str]:
    """("pass" | "left out" | "export" | "load" | "differs" | "runtime", the reason in one line)."""
    try:
        item = task(name, form)
    except LeftOutError as error:
        return "left out", str(error)
    try:
        data = exported(item, exporter)
    except Exception as error:
        return "export", _line(error)
    try:
        run = runner(data)
    except Exception as error:
        return "load", _line(error)
    try:
        item.check(run)
    except AssertionError as error:
        return "differs", _line(error)
    except Exception as error:
        return "runtime", _line(error)
    return "pass", ""


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines() or [""]
    first = " ".join(" ".join(text[:3]).split())
    return f"{type(error).__name__}: {first}"[:300]


def _child(pipe: Connection, name: str, exporter: str, form: str, loud: bool) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    if not loud:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
    pipe.send(verdict(name, exporter, form))


def run_one(name: str, exporter: str, form: str, loud: bool = False) -> dict[str, Any]:
    """One class and exporter in a process of its own."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(theirs, name, exporter, form, loud))
    since = time.monotonic()
    process.start()
    theirs.close()
    try:
        found = mine.recv() if mine.poll(WAIT) else ("time", f"more than {WAIT} s")
    except EOFError:
        process.join()
        found = ("crash", f"the process ended with {process.exitcode}")
        if process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
            found = ("time", f"more than {SECONDS} s of the processor")
    process.kill()
    process.join()
    seconds = round(time.monotonic() - since, 2)
    record = {"name": name, "exporter": exporter, "form": form}
    return {**record, "verdict": found[0], "reason": found[1], "seconds": seconds}


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
    parser.add_argument("--form", nargs="*", default=["wrapped"], choices=FORMS)
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
    exporters = [*options.route, *(f"peer-{dynamo}" for dynamo in options.peer)] or ["trace"]
    for form in options.form:
        of_decoders = form in OF_DECODERS
        names = options.only or (decoders if of_decoders else encoder_decoders).classes()
        if options.part:
            part, parts = map(int, options.part.split("/"))
            names = names[part - 1 :: parts]
        for exporter in exporters:
            _sweep(names, exporter, form, options)


def _sweep(names: Sequence[str], exporter: str, form: str, options: argparse.Namespace) -> None:
    """Print a line for each class, and how many pass."""
    count: Counter[str] = Counter()
    for name in names:
        record = run_one(name, exporter, form, options.loud)
        count[record["verdict"]] += 1
        print(f"{exporter:<10} {record['verdict']:<8} {name:<40} {record['seconds']:6.1f} s  {record['reason']}")
        sys.stdout.flush()
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(record) + "\n")
    cases = sum(count.values()) - count["left out"]
    rest = ", ".join(f"{number} {what}" for what, number in sorted(count.items()) if what != "pass")
    print(f"{exporter}, {form}: {count['pass']} of {cases} cases pass ({rest})")


if __name__ == "__main__":
    main()
