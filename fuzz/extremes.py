"""Invariant: no operator takes memory or work past its budget, whatever its attributes and the shapes of its inputs.

The nodes are those of the official cases. Each is run with one attribute, one small input or one axis at an extreme, by
our evaluator, within a small budget. Whatever happens (a result, a refusal, an error), the peak of memory must lie
below the budget and a margin, and so must the time of the process. Inputs of large shapes are views of one element,
so that only what an operator makes counts.

    python -m fuzz.extremes --part 0/20

prints a line for each finding, and how many runs held. `--planted` breaks what holds, for the tests of this.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import proto_schema as ps
from proto_schema.budget import Budget
from proto_schema.compute.costs import free
from proto_schema.operators import schema
from proto_schema.tensors.dtypes import DTYPES

MEMORY, WORK = 32 << 20, 400_000_000
MARGIN = 16 << 20  # what is made around a node
SECONDS = 4.0  # of the process, on any machine, while memory is traced
ADDRESSES = 2 << 30
NUMBERS = (0, -1, -(2**31), 20_000, 2**31 - 1, 2**40, 2**62)
FLOATS = (1e-30, 1e9, 1e30)
AXIS = 60_000
FEW = 8  # elements of an input that may be sizes or counts

PLANTS = (
    *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "LRN", "Attention", "RoiAlign", "TfIdfVectorizer"),
    *("Resize", "Upsample", "Tile", "Pad", "OneHot", "Range", "ConstantOfShape", "MatMul", "Gemm"),
    *("Gather", "GatherND", "DFT", "STFT", "HannWindow", "NonMaxSuppression", "MaxUnpool", "AffineGrid", "Col2Im"),
    *("CenterCropPad", "RandomUniform", "Multinomial", "MelWeightMatrix", "Einsum", "StringSplit"),
)
"""Operators whose cost is forgotten, one after the other: each must be found."""


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.extremes", description="Operators at their extremes.")
    parser.add_argument("--part", default="0/1", metavar="K/M", help="every M-th node, from the K-th on")
    parser.add_argument("--operator", default="", help="this one alone")
    parser.add_argument(
        "--planted", action="store_true", help="forget the cost of each of some operators: all must be found"
    )
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.planted:
        return planted([name for name in PLANTS if asked.operator in ("", name)])
    return _child(asked) if asked.child else _watched(asked, list(sys.argv[1:] if arguments is None else arguments))


def _watched(asked: argparse.Namespace, arguments: list[str]) -> int:
    """Runs children; one that ends early, or never, is a finding, and the next goes on behind it."""
    skip = done = 0
    findings = []
    while True:
        command = [sys.executable, "-m", "fuzz.extremes", *arguments, "--child", "--skip", str(skip)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert child.stdout is not None
        last, whole = "", False
        for text in child.stdout:
            word, _, rest = text.rstrip("\n").partition(" ")
            if word == "run":
                number, _, last = rest.partition(" ")
                skip, done = int(number) + 1, done + 1
            elif word == "finding":
                findings.append(rest)
            elif word == "end":
                whole = True
        if child.wait() or not whole:
            findings.append(f"{last}: the process ended with {child.returncode}, for want of memory or time")
            if last:
                continue
        break
    for item in findings:
        print(item)
    print(f"{done} runs, {len(findings)} past the budget")
    return 1 if findings else 0


def _child(asked: argparse.Namespace) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    part, parts = map(int, asked.part.split("/"))
    for number, (title, model, feed) in enumerate(_runs(part, parts, asked.operator)):
        if number < asked.skip:
            continue
        print(f"run {number} {title}", flush=True)
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        _limit_time()
        problem = _problem(model, feed)
        if problem:
            print(f"finding {title}: {problem}", flush=True)
    print("end", flush=True)
    return 0


def _limit_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + 3 * SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def planted(names: list[str]) -> int:
    """Forget the cost of one operator after the other, each in a process of its own; 1 if one is not found."""
    from proto_schema.compute import rows

    runs = {name: list(_runs(0, 1, name)) for name in names}
    missed = 0
    for name in names:
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
            rows.cost_of("", name)
            rows._COSTS["", name] = free
            tracemalloc.start()
            for title, model, feed in _runs(0, 1, name):
                _limit_time()
                problem = _problem(model, feed)
                if problem:
                    print(f"{title}: {problem}", flush=True)
                    os._exit(1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code < 0:
            print(f"{name}: no end")
        missed += code == 0
        if code == 0:
            print(f"{name} is not found, of {len(runs[name])} runs")
    print(f"{len(names) - missed} of {len(names)} are found")
    return 1 if missed else 0


def _problem(model: ps.ModelProto, feed: dict[str, Any]) -> str:
    tracemalloc.reset_peak()
    before, began = tracemalloc.get_traced_memory()[0], time.thread_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ps.reference.ReferenceEvaluator(model, budget=Budget(MEMORY, WORK)).run(None, feed)
        except (ps.reference.EvaluationError, ps.reference.UnsupportedOperatorError, ValueError, OSError) as error:
            if "not enough memory" in str(error):
                return "the system had not enough memory"
    peak, seconds = tracemalloc.get_traced_memory()[1] - before, time.thread_time() - began
    if peak > MEMORY + MARGIN:
        return f"{peak >> 20} MiB"
    return f"{seconds:.1f} s" if seconds > SECONDS else ""


# What is run ----------------------------------------------------------------------------------------------------------


def _runs(part: int, parts: int, operator: str) -> Iterator[tuple[str, ps.ModelProto, dict[str, Any]]]:
    for number, (name, model, inputs) in enumerate(nodes(operator)):
        if number % parts != part:
            continue
        graph = model.graph
        assert graph is not None
        names = [item.name or "" for item in graph.input]
        feed = dict(zip(names, inputs, strict=False))
        for what, changed in _attributes(graph.node[0], model.opset_import[0].version or 0, feed):
            graph.node[0].attribute, before = changed, graph.node[0].attribute
            yield f"{name} with {what}", model, feed
            graph.node[0].attribute = before
        for what, given in _inputs(feed):
            yield f"{name} with {what}", model, given


def nodes(operator: str = "") -> Iterator[tuple[str, ps.ModelProto, list[Any]]]:
    """One of the official cases of each form of a node: its operator, attributes, and the ranks of its inputs."""
    from tests.compute.cases import node_cases, value

    seen = set()
    for case in node_cases():
        if len(case.operators) != 1 or (operator and operator not in case.operators):
            continue
        model = ps.loads(case.model)
        graph = model.graph
        if graph is None or len(graph.node) != 1 or not case.sets:
            continue
        node = graph.node[0]
        inputs = [value(item) for item in case.sets[0][0]]
        form = (node.op_type, tuple(sorted(item.name or "" for item in node.attribute)), tuple(map(_rank, inputs)))
        if form in seen or any(item.g is not None for item in node.attribute) or not all(map(_native, graph.input)):
            continue
        seen.add(form)
        yield case.name, model, inputs


def _native(item: ps.ValueInfoProto) -> bool:
    """Whether numpy has the type: others are converted before a run."""
    kind = item.type.tensor_type if item.type is not None else None
    return kind is None or DTYPES[kind.elem_type or 1].native or kind.elem_type == ps.TensorProto.STRING


def _rank(given: Any) -> int:
    return given.ndim if isinstance(given, np.ndarray) else 0


def _attributes(node: ps.NodeProto, opset: int, feed: dict[str, Any]) -> Iterator[tuple[str, list[ps.AttributeProto]]]:
    """The attributes with one of them at an extreme; those that the node leaves out, too."""
    kinds = ps.AttributeProto.AttributeType
    given = {item.name or "": item for item in node.attribute}
    declared = schema(node.op_type or "", opset, node.domain or "")
    ranks = set(map(_rank, feed.values()))
    for name, row in (declared.attributes if declared is not None else {}).items():
        others = [item for item in node.attribute if item.name != name]
        if row.type == kinds.INT:
            for number in NUMBERS:
                yield f"{name}={number}", [*others, ps.helper.make_attribute(name, number)]
        elif row.type == kinds.FLOAT:
            for single in FLOATS:
                yield f"{name}={single}", [*others, ps.helper.make_attribute(name, single)]
        elif row.type == kinds.INTS:
            old = list(given[name].ints) if name in given else []
            lengths = (
                {len(old)} if old else {count for rank in ranks for count in (rank - 2, 2 * rank - 4) if count > 0}
            )
            for count in sorted(lengths):
                for number in NUMBERS:
                    yield f"{name}={[number] * count}", [*others, ps.helper.make_attribute(name, [number] * count)]
                    some = [number, *(old or [1] * count)[1:]]
                    yield f"{name}={some}", [*others, ps.helper.make_attribute(name, some)]
        elif row.type == kinds.STRING and name == "pattern":
            yield f"{name}=(a+)+$", [*others, ps.helper.make_attribute(name, "(a+)+$")]


def _inputs(feed: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The inputs with the numbers of a small one at an extreme, or with a long axis, alone or with all others."""
    for name, array in feed.items():
        if not isinstance(array, np.ndarray):
            continue
        if array.dtype == object:
            yield f"long texts in {name}", {**feed, name: np.full(array.shape, "a" * 40_000 + "b", object)}
        if array.size <= FEW and array.dtype.kind in "iu":
            for number in NUMBERS:
                if np.iinfo(array.dtype).min <= number <= np.iinfo(array.dtype).max:
                    yield f"{name} all {number}", {**feed, name: np.full_like(array, number)}
                    if array.size > 1:
                        some = array.copy()
                        some.reshape(-1)[-1] = number
                        yield f"{name} with a {number}", {**feed, name: some}
        if array.size <= FEW and array.dtype.kind == "f":
            for single in FLOATS:
                yield f"{name} all {single}", {**feed, name: np.full_like(array, single)}
        for axis, size in enumerate(array.shape):
            if size:
                yield f"{name} of {AXIS} along {axis}", {**feed, name: _long(array, axis)}
                same = {other: _with(held, size) for other, held in feed.items()}
                yield f"axes of {size} of {AXIS}", same
    yield "all inputs long", {name: _long(held, -1) for name, held in feed.items()}


def _long(array: Any, axis: int) -> Any:
    """A view of one place of an axis, as often as an axis is long."""
    if not isinstance(array, np.ndarray) or not array.ndim or not array.size:
        return array
    shape = list(array.shape)
    shape[axis] = AXIS
    return np.broadcast_to(array.take([0], axis=axis), shape)


def _with(array: Any, size: int) -> Any:
    if not isinstance(array, np.ndarray) or array.dtype == object:
        return array
    for axis, old in enumerate(array.shape):
        if old == size:
            return _long(array, axis)
    return array


if __name__ == "__main__":
    sys.exit(main())
