"""Invariant: no small file makes a tool take time or memory out of proportion.

Each demand is a model of a few bytes and a tool that computes what it says. It runs in a child of its own with a limit
on memory and time of the processor, and must end in an answer or a documented error below both.

    python -m fuzz.demands                   all of them; a line for each finding, and how many held
    python -m fuzz.demands --plant folding   breaks one of the bounds: the demands that need it must be found

`fuzz/extremes.py` walks over operators, attributes and shapes.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import proto_schema as ps
from proto_schema.budget import Budget
from proto_schema.helper import (
    make_function,
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor,
    make_tensor_value_info,
)
from proto_schema.numpy_helper import from_array

SECONDS, MEMORY = 5, 1 << 30
"""Time of the processor, and bytes beside what the process has at first."""
EVALUATED = Budget(64 << 20, 10**9)
FLOAT, INT64, BOOL, STRING = (ps.TensorProto.DataType[name] for name in ("FLOAT", "INT64", "BOOL", "STRING"))
_ANSWERS = (ValueError, OSError, NotImplementedError)

Make = Callable[[], ps.ModelProto]


def model(nodes: list[ps.NodeProto], constants: dict[str, Any], inputs: dict[str, list[Any]], **more: Any) -> Any:
    """A model whose last value is its output."""
    output = nodes[-1].output[0]
    tensors = [
        value if isinstance(value, ps.TensorProto) else from_array(np.asarray(value), name)
        for name, value in constants.items()
    ]
    graph = make_graph(
        nodes,
        "demand",
        [make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [make_tensor_value_info(output, more.pop("dtype", FLOAT), None)],
        tensors,
    )
    imports = [make_opsetid("", more.pop("opset", 23)), make_opsetid("c", 1)]
    return make_model(graph, opset_imports=imports, functions=more.pop("functions", []))


# Sizes ----------------------------------------------------------------------------------------------------------------


def chain(step: Callable[[int], list[ps.NodeProto]], count: int, shape: list[Any], start: str = "Gather") -> Make:
    """A size of the input, changed by each step, and a Reshape to the last one."""

    def make() -> Any:
        first = [make_node("Shape", ["x"], ["all"]), make_node("Gather", ["all", "zero"], ["s0"])]
        if start == "Cast":
            first = [*first[:1], make_node("Gather", ["all", "zero"], ["i"]), make_node("Cast", ["i"], ["s0"], to=1)]
        nodes = [*first, *[node for at in range(count) for node in step(at)]]
        nodes += [make_node("Cast", [f"s{count}"], ["last"], to=7), make_node("Reshape", ["x", "last"], ["y"])]
        return model(nodes, {"zero": np.array([0])}, {"x": shape})

    return make


def squares(at: int) -> list[ps.NodeProto]:
    return [make_node("Mul", [f"s{at}"] * 2, [f"s{at + 1}"])]


def joined(at: int) -> list[ps.NodeProto]:
    return [
        make_node("Concat", [f"s{at}"] * 2, [f"c{at}"], axis=0),
        make_node("ReduceProd", [f"c{at}"], [f"s{at + 1}"], keepdims=1),
    ]


def tiled() -> Any:
    nodes = [make_node("Shape", ["x"], ["s0"])]
    for at in range(60):
        nodes.append(make_node("Tile", [f"t{at - 1}" if at else "x", f"s{at}"], [f"t{at}"]))
        nodes.append(make_node("Shape", [f"t{at}"], [f"s{at + 1}"]))
    return model(nodes[:-1], {}, {"x": ["n"]})


def texts_of_sizes() -> Any:
    sizes = ["n", "m", "n*m + 1", "9", "2*n", "n + m"]
    for _ in range(20):
        sizes[2:4] = [f"({text})**16" for text in sizes[2:4]]
    return model([make_node("Relu", ["x"], ["y"])], {}, {"x": sizes})


# Functions and loops --------------------------------------------------------------------------------------------------


def functions(count: int, calls: int, last: list[ps.NodeProto]) -> Make:
    """Functions that call the next so often."""

    def make() -> Any:
        found = []
        for at in range(count):
            names = ["x", *[f"t{call}" for call in range(calls - 1)], "y"]
            nodes = [make_node(f"f{at + 1}", [one], [other], domain="c") for one, other in itertools.pairwise(names)]
            found.append(make_function("c", f"f{at}", ["x"], ["y"], nodes, [make_opsetid("c", 1)]))
        found.append(make_function("c", f"f{count}", ["x"], ["y"], last, [make_opsetid("", 23)]))
        node = make_node("f0", ["x"], ["y"], domain="c")
        return model([node], {"x": np.ones(1, np.float32)}, {}, functions=found)

    return make


def nested(count: int, branches: int) -> Any:
    """Functions that call the next inside of several branches."""
    found = []
    for at in range(count):
        node = make_node(f"f{at + 1}", ["x"], ["y0"], domain="c")
        for branch in range(branches):
            inner = make_graph([node], "then", [], [make_tensor_value_info(f"y{branch}", FLOAT, None)])
            same = make_node("Identity", ["x"], [f"e{branch}"])
            other = make_graph([same], "else", [], [make_tensor_value_info(f"e{branch}", FLOAT, None)])
            node = make_node("If", ["c"], [f"y{branch + 1}"], then_branch=inner, else_branch=other)
        nodes = [make_node("Constant", [], ["k"], value_int=1), make_node("Cast", ["k"], ["c"], to=BOOL), node]
        imports = [make_opsetid("c", 1), make_opsetid("", 23)]
        found.append(make_function("c", f"f{at}", ["x"], [f"y{branches}"], nodes, imports))
    found.append(make_function("c", f"f{count}", ["x"], ["y"], RELU, [make_opsetid("", 23)]))
    return model([make_node("f0", ["x"], ["y"], domain="c")], {"x": np.ones(1, np.float32)}, {}, functions=found)


RELU = [make_node("Relu", ["x"], ["y"])]
SOME = [make_node("Cast", ["x"], ["c"], to=BOOL), make_node("Compress", ["x", "c"], ["y"])]


def body(depth: int, most: int, last: ps.NodeProto) -> ps.GraphProto:
    state, goes = f"s{depth}", f"c{depth}"
    inner = last
    if depth < most:
        inner = make_node("Loop", ["m", "", state], [f"{state}o"], body=body(depth + 1, most, last))
    nodes = [make_node("Identity", [goes], [f"{goes}o"]), inner]
    if inner is last:
        nodes[-1] = make_node(last.op_type or "", [state] * len(last.input), [f"{state}o"])
        nodes[-1].attribute = last.attribute
    return make_graph(
        nodes,
        "body",
        [
            make_tensor_value_info(f"i{depth}", INT64, []),
            make_tensor_value_info(goes, BOOL, []),
            make_tensor_value_info(state, FLOAT, None),
        ],
        [make_tensor_value_info(f"{goes}o", BOOL, []), make_tensor_value_info(f"{state}o", FLOAT, None)],
    )


def loops(depth: int, turns: int, last: ps.NodeProto) -> Make:
    """Loops inside of one another."""
    return lambda: model(
        [make_node("Loop", ["m", "", "x"], ["y"], body=body(0, depth, last))],
        {"m": np.array(turns), "x": np.ones(1, np.float32)},
        {},
    )


# Operators ------------------------------------------------------------------------------------------------------------


def single(operator: str, constants: dict[str, Any], dtype: Any = FLOAT, opset: Any = 23, **attributes: Any) -> Make:
    return lambda: model(
        [make_node(operator, list(constants), ["y"], **attributes)], dict(constants), {}, dtype=dtype, opset=opset
    )


def repeated(operator: str, count: int, value: Any, dtype: int = FLOAT) -> Make:
    """The result of each node, twice, for the next."""
    return lambda: model(
        [make_node(operator, [f"s{at}"] * 2, [f"s{at + 1}"]) for at in range(count)], {"s0": value}, {}, dtype=dtype
    )


def f32(*shape: int) -> Any:
    return np.ones(shape, np.float32)


FAR = 20_000
WIDE: dict[str, Any] = {"pads": [FAR] * 4, "dilations": [2 * FAR] * 2}  # the result is 1 x 1
POOL: dict[str, Any] = {"kernel_shape": [2, 2], **WIDE}
ONE = {"x": f32(1, 1, 1, 1)}
TEXT = make_tensor("s0", STRING, [1], [b"abcdefghijklmnopqrstuvwxyz"])

OPERATORS: dict[str, Make] = {
    "Conv": single("Conv", {**ONE, "w": f32(1, 1, 2, 2)}, **WIDE),
    "MaxPool": single("MaxPool", ONE, opset=22, **POOL),
    "AveragePool": single("AveragePool", ONE, opset=22, count_include_pad=1, **POOL),
    "LpPool": single("LpPool", ONE, opset=22, **POOL),
    "a long MaxPool": single("MaxPool", {"x": f32(1, 1, 1)}, opset=22, kernel_shape=[2**30], pads=[2**30 - 1, 0]),
    "LRN": single("LRN", ONE, size=2**40),
    "Attention": single("Attention", {"q": f32(1, 1, 60_000, 1), "k": f32(1, 1, 60_000, 1), "v": f32(1, 1, 60_000, 1)}),
    "RoiAlign": single(
        "RoiAlign",
        {"x": f32(1, 1, 2, 2), "r": np.array([[0, 0, 1, 1]], np.float32), "b": np.array([0])},
        sampling_ratio=10**8,
    ),
    "TfIdfVectorizer": single(
        "TfIdfVectorizer",
        {"x": np.array([1, 2])},
        mode="TF",
        min_gram_length=2,
        max_gram_length=2**30,
        max_skip_count=2**30,
        ngram_counts=[0, 0],
        ngram_indexes=[2**28],
        pool_int64s=[1, 2],
    ),
    "RegexFullMatch": single(
        "RegexFullMatch", {"x": make_tensor("x", STRING, [1], [b"a" * 40 + b"b"])}, dtype=BOOL, pattern="(a+)+$"
    ),
    "StringConcat": repeated("StringConcat", 45, TEXT, STRING),
    "Expand": single("Expand", {"x": f32(1), "s": np.array([2**31])}),
    "Tile": single("Tile", {"x": f32(1), "r": np.array([2**31])}),
    "Resize": single("Resize", {"x": f32(1, 1), "": f32(0), "s": np.array([2.0**15, 2.0**16], np.float32)}),
    "many products": repeated("MatMul", 4_000, f32(500, 500)),
    "ReduceProd of a sparse tensor": lambda: sparse(2**34),
}


def sparse(size: int) -> Any:
    made = model([make_node("ReduceSum", ["w"], ["y"])], {}, {})
    values = from_array(f32(1), "w")
    made.graph.sparse_initializer = [
        ps.SparseTensorProto(values=values, indices=from_array(np.array([0]), ""), dims=[size])
    ]
    return made


# Tools ----------------------------------------------------------------------------------------------------------------


def run(made: Any) -> None:
    ps.reference.ReferenceEvaluator(made, budget=EVALUATED.fresh()).run(None, {})


def convert(made: Any) -> None:
    ps.version_converter.convert_version(made, 24)


def check(made: Any) -> None:
    ps.checker.check_model(made, full_check=True)


def samples(kind: str) -> Callable[[Any], None]:
    """Samples of a calibration: a pipe, or a header that asks for memory."""

    def read(made: Any) -> None:
        from proto_schema.calibration.samples import Samples

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.npy")
            if kind == "pipe":
                os.mkfifo(path)
            else:
                text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,), }\n"
                path.write_bytes(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text)
            list(Samples(made, path))

    return read


INFERRED: dict[str, Make] = {
    "squares": chain(squares, 60, ["n", "m"]),
    "squares of a number": chain(squares, 60, [3, "m"]),
    "squares in floats": chain(squares, 60, [3, "m"], "Cast"),
    "products of joined sizes": chain(joined, 40, ["n", "m"]),
    "products of joined numbers": chain(joined, 40, [3, "m"]),
    "tiles": tiled,
    "texts of sizes": texts_of_sizes,
    "functions with new sizes": functions(40, 2, SOME),
    "functions in branches": lambda: nested(60, 8),
    "loops in loops": loops(24, 2, make_node("Concat", ["", ""], ["y"], axis=0)),
}
RUN: dict[str, Make] = {
    "functions in branches": lambda: nested(60, 8),
    "functions": functions(40, 2, RELU),
    "a chain of functions": functions(5_000, 1, RELU),
    "turns": loops(0, 2**62, make_node("Identity", [""], ["y"])),
    "a loop that doubles": loops(0, 2**62, make_node("Concat", ["", ""], ["y"], axis=0)),
}
DEMANDS: dict[str, tuple[Callable[[Any], object], Make]] = {
    **{f"infer {name}": (ps.shape_inference.infer_shapes, make) for name, make in INFERRED.items()},
    **{f"check {name}": (check, make) for name, make in INFERRED.items()},
    **{f"convert {name}": (convert, make) for name, make in INFERRED.items()},
    **{f"inline {name}": (ps.inliner.inline_local_functions, make) for name, make in {**INFERRED, **RUN}.items()},
    **{f"simplify {name}": (ps.simplify, make) for name, make in {**INFERRED, **OPERATORS}.items()},
    **{f"run {name}": (run, make) for name, make in {**RUN, **OPERATORS}.items()},
    **{f"calibrate {kind}": (samples(kind), INFERRED["texts of sizes"]) for kind in ("pipe", "header")},
}

# The child ------------------------------------------------------------------------------------------------------------


def plant(name: str) -> None:
    """Break one of the bounds."""
    modules: dict[str, Any] = {
        word: import_module(f"proto_schema.{word}")
        for word in (
            *(
                "budget",
                "tensors.npy",
                "sizes.size",
                "inference.site",
                "inference.walk",
                "compute.texts.regex",
            ),
            *("reference.program", "simplification.engine"),
        )
    }
    if name == "degree":
        modules["sizes.size"].HIGHEST = 2**80
    elif name == "digits":
        modules["inference.site"].FURTHEST = modules["sizes.size"].LARGEST = math.inf
    elif name == "inference":
        modules["inference.walk"].Walk.affords = lambda *_: True
    elif name == "folding":
        modules["simplification.engine"].FOLDING = 1 << 60
    elif name == "evaluator":
        modules["budget"].Budget.charge = modules["budget"].Budget.hold = lambda *_: None
    elif name == "depth":
        modules["reference.program"].DEEPEST = 1 << 60
    elif name == "patterns":
        modules["compute.texts.regex"].Pattern.matches = lambda _, value: re.fullmatch("(a+)+$", value) is not None
    elif name == "samples":
        modules["tensors.npy"].read = lambda path, most: np.load(path)


PLANTS = ("degree", "digits", "inference", "folding", "evaluator", "depth", "patterns", "samples")


def judged(name: str) -> str:
    """What a demand does wrong; "" where it holds."""
    tool, make = DEMANDS[name]
    made = make()
    child = os.fork()
    if not child:
        _limited(tool, made)
    status, used = os.wait4(child, 0)[1:]
    grown = (used.ru_maxrss << 10) - (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
    code = os.waitstatus_to_exitcode(status)
    if code == 3:
        return "an error that is not documented"
    if code == 4:
        return "more memory than it may have"
    if code:
        return f"no end after {SECONDS} seconds"
    return f"{grown >> 20} MiB" if grown > MEMORY else ""


def _limited(tool: Callable[[Any], object], made: Any) -> None:
    """Ends the process: 0 for an answer or a documented error, 3 for another one, 4 without memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(24 * SECONDS)  # for what waits
    code = 0
    program: Any = import_module("proto_schema.reference.program")
    failure = program._failure

    def noted(step: Any, frame: Any, error: Exception) -> Any:
        """What a tool may take for a node that cannot be computed."""
        return os._exit(4) if isinstance(error, MemoryError) else failure(step, frame, error)

    program._failure = noted
    try:
        tool(made)
    except MemoryError:
        code = 4
    except _ANSWERS as error:
        code = 4 if "not enough memory" in str(error) else 0
    except BaseException:
        code = 3
    os._exit(code)


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.demands", description="Small files that ask for much.")
    parser.add_argument("--plant", choices=PLANTS, help="break a bound")
    parser.add_argument("--only", default="", metavar="WORD", help="demands with this word in their names")
    asked = parser.parse_args(arguments)
    if asked.plant:
        plant(asked.plant)
    names = [name for name in DEMANDS if asked.only in name]
    wrong = 0
    for name in names:
        problem = judged(name)
        if problem:
            wrong += 1
            print(f"{name}: {problem}", flush=True)
    print(f"{len(names) - wrong} held, {wrong} asked for too much")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
