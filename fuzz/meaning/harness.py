"""Invariant: every tool that makes a model of a model keeps what it computes, to the bit or to rounding.

An input is a stream of choices: a random graph (`graphs`), then tools (`tools`), each of which gets the graph as it is.
Our evaluator runs what a tool made at two sizes of the dynamic axis, and compares it with the values that the graph had
when it was made, node by node; what a tool made is valid. Of every `SAMPLE` graphs one is run by ONNX Runtime, too, and
of every `THOROUGH` results one is checked. Most inputs take one tool, so that the time goes into other graphs.
"""

from __future__ import annotations

import faulthandler
import io
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from random import Random
from typing import Any
from zlib import crc32

import numpy as np

import proto_schema as ps
from fuzz.build import Choices
from fuzz.harness import Harness, Violation
from fuzz.meaning.graphs import SIZES, Made, make
from fuzz.meaning.tools import EXACT, TOOLS, Result
from proto_schema.graphs.names import bodies
from proto_schema.reference import EvaluationError, ReferenceEvaluator
from proto_schema.sizes import parse

SAMPLE = 50
THOROUGH = 3
ALL = 32  # of so many graphs that are drawn, one goes through all tools
TOLERANCE = {"float16": 2e-2, "float32": 2e-4, "float64": 2e-4}  # some constants of operators are float32
Array = Any
_graphs = [0]


def graphs_done() -> int:
    """The graphs that went through tools in this process."""
    return _graphs[0]


def check(data: bytes) -> str:
    """The tools that an input went through. Raises Violation."""
    choices = Choices(data)
    first = choices.below(len(TOOLS))
    count = 1 + choices.below(len(TOOLS))
    made = make(choices)
    if made is None:
        return "nothing"
    sampled = crc32(data) % SAMPLE == 0
    if sampled and not _is_valid(made):
        return "nothing"
    before = ps.dumps(made.model)
    names = list(TOOLS)
    words = []
    for at in range(count):
        name = names[(first + at) % len(names)]
        try:
            words.append(f"{name} {_through(name, made, choices, before, sampled, crc32(data, at) % THOROUGH == 0)}")
        except Violation:
            if _is_valid(made):
                raise
            return "nothing"
    if ps.dumps(made.model) != before:
        raise Violation(f"{' or '.join(word.split()[0] for word in words)}: the given model changes")
    _graphs[0] += 1
    return ", ".join(words)


def _is_valid(made: Made) -> bool:
    """Whether the graph is one. Where it is not, a branch of a function that did not run does not fit a call.

    Only samples are asked, and what seems to be a finding: it takes as long as a tool.
    """
    try:
        ps.checker.check_model(made.model, full_check=not made.sparse)
    except ps.CheckError:
        if any(list(bodies(node)) for function in made.model.functions for node in function.node):
            return False
        raise
    return True


def _through(name: str, made: Made, choices: Choices, before: bytes, sampled: bool, thorough: bool) -> str:
    with ExitStack() as stack:
        try:
            result = TOOLS[name](made, choices, stack)
        except (ps.version_converter.ConversionError, ValueError) as error:
            if name in REFUSES and not isinstance(error, (ps.CheckError, EvaluationError)):
                return "refused"
            raise Violation(f"{name}: refused by {type(error).__name__}: {_words(error)}") from error
        if result is None:
            return "none"
        if name == "infer":
            _true(made, result.model)
        if name in UNCHANGED and not sampled and _inline(result.model) == before:
            return result.word
        try:
            if thorough:
                ps.checker.check_model(result.model, full_check=not made.sparse)
        except ps.CheckError as error:
            raise Violation(f"{name}: the result is not valid: {_words(error)}") from error
        _compared(name, made, result)
        if sampled:
            _by_runtime(name, made, result)
    return result.word


REFUSES = ("convert", "convert and back", "quantize", "inline standard")
"""Tools that may say that they cannot: an opset without the operator, a type that the opset lacks."""


UNCHANGED = ("simplify", "inline", "text", "infer", "save")
"""Tools that may find nothing to do: a model of the same bytes, with all data inside, computes the same."""


def _inline(model: ps.ModelProto) -> bytes:
    made = io.BytesIO()
    ps.save(model, made, external_data=False)
    return made.getvalue()


def _words(error: Exception) -> str:
    """The message without names and numbers, so that findings of one kind look the same."""
    text = "".join(" " if letter.isdigit() else letter for letter in str(error))
    return " ".join(text.split())[:160]


def _compared(name: str, made: Made, result: Result) -> None:
    evaluator = ReferenceEvaluator(result.model)
    outputs = [item.name or "" for item in made.model.graph.output]
    # what was rounded to a half stays that far off, in whatever type it goes on
    half = any(value.arrays[0].dtype == np.float16 and not value.exact for value in made.values.values())
    asked = [result.outputs.get(output, output) for output in outputs]
    if not result.outputs and evaluator.output_names != outputs:
        raise Violation(f"{name}: other outputs")
    for at, feed in enumerate(made.feeds):
        try:
            found = evaluator.run(asked, _feed(feed, result, evaluator.input_names))
        except EvaluationError as error:
            raise Violation(f"{name}: the result does not run: {_words(error)}") from error
        for output, mine in zip(outputs, found, strict=True):
            theirs = made.values[output].arrays[at]
            broken = difference(mine, theirs, result.promise == EXACT and made.exact[output], half)
            if broken:
                raise Violation(f"{name}: {broken}")


def _feed(feed: Mapping[str, Array], result: Result, inputs: Sequence[str]) -> dict[str, Array]:
    found = {new: array for name, array in feed.items() for new in result.inputs.get(name, [name])}
    return {name: array for name, array in found.items() if name in inputs}


def difference(mine: Array, theirs: Array, exact: bool, half: bool = False) -> str:
    """How two results differ, or "": to the bit of a zero's sign where they are to be exact.

    `half`: they may come from float16.
    """
    if mine.dtype != theirs.dtype:
        return f"another type: {mine.dtype} and {theirs.dtype}"
    if mine.shape != theirs.shape:
        return "another shape"
    if mine.dtype.kind != "f":
        return "" if np.array_equal(mine, theirs) else "other numbers"
    if exact:
        same = np.array_equal(mine, theirs, equal_nan=True)
        return "" if same and np.array_equal(np.signbit(mine), np.signbit(theirs)) else "other numbers, of exact ones"
    most = TOLERANCE["float16" if half else str(mine.dtype)]
    largest = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=1.0))
    close = np.allclose(mine.astype(np.float64), theirs.astype(np.float64), most, most * largest, equal_nan=True)
    return "" if close else "other numbers"


def _true(made: Made, model: ps.ModelProto) -> None:
    """What inference says of a value is so, at each size."""
    for item in (*model.graph.value_info, *model.graph.output):
        value, kind = made.values.get(item.name or ""), item.type.tensor_type if item.type is not None else None
        if value is None or kind is None or kind.shape is None:
            continue
        if len(kind.shape.dim) != value.rank:
            raise Violation("infer: another rank")
        for n, array in zip(SIZES, value.arrays, strict=True):
            for dim, size in zip(kind.shape.dim, array.shape, strict=True):
                said = _size(dim, n)
                if said is not None and said != size:
                    raise Violation("infer: another size")


def _size(dim: ps.TensorShapeProto.Dimension, n: int) -> int | None:
    if dim.dim_value is not None:
        return dim.dim_value if dim.dim_value >= 0 else None
    said = parse(str(dim.dim_param), frozenset({"n"})) if dim.dim_param else None
    if said is None or isinstance(said, int):
        return said
    number = said.replaced({"n": n})
    return number if isinstance(number, int) else None


def _by_runtime(name: str, made: Made, result: Result) -> None:
    """ONNX Runtime computes the same of both, where it takes the model as it was.

    In a process of its own: it divides the least integer by -1, say, which ends the process.
    """
    if _runtime() is None:
        return
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        told = b""
        faulthandler.disable()
        try:
            _run_both(name, made, result, lambda: os.write(writing, _AS_IT_WAS))
        except Violation as error:
            told = str(error).encode()
        except BaseException as error:
            told = f"{name}: {type(error).__name__}: {error}".encode()
        finally:
            os.write(writing, told[:4096])
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        said = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and said:
        raise Violation(f"{name}: ONNX Runtime computes the model as it was, and ends by a signal as it is")
    if said.removeprefix(_AS_IT_WAS):
        raise Violation(said.removeprefix(_AS_IT_WAS).decode())


_AS_IT_WAS = b"."  # said when the model as it was has run


def _run_both(name: str, made: Made, result: Result, ran: Callable[[], object]) -> None:
    first = session(ps.dumps(made.model))
    if first is None:
        return
    second = session(_inline(result.model))  # the runtime takes no shapes from external data
    if second is None:
        if name in ("convert", "convert and back", "inline standard", "quantize"):
            return  # to an opset or a type that the runtime has no kernel of
        raise Violation(f"{name}: ONNX Runtime takes the model as it was, and not as it is")
    outputs = [item.name or "" for item in made.model.graph.output]
    given = {item.name for item in first.get_inputs()}
    try:
        theirs = [first.run(outputs, {key: feed[key] for key in given & feed.keys()}) for feed in made.feeds]
    except _failures():
        return
    ran()
    names = [item.name for item in second.get_inputs()]
    for feed, wanted in zip(made.feeds, theirs, strict=True):
        mine = second.run([result.outputs.get(output, output) for output in outputs], _feed(feed, result, names))
        for one, other in zip(mine, wanted, strict=True):
            broken = difference(np.asarray(one), np.asarray(other), False)
            if broken:
                raise Violation(f"{name}: in ONNX Runtime {broken}")


def session(model: bytes) -> Any:
    """A session without optimizations; None where the runtime does not take the model, or is not there."""
    runtime = _runtime()
    if runtime is None:
        return None
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except _failures():
        return None


def _failures() -> tuple[type[Exception], ...]:
    """How ONNX Runtime says that it has no kernel, or that one does not take the numbers."""
    found = _runtime().capi.onnxruntime_pybind11_state
    return found.NotImplemented, found.Fail, found.InvalidGraph, found.RuntimeException, found.InvalidArgument


@cache
def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        return None
    return onnxruntime


def seeds() -> list[bytes]:
    """Streams that choose at random."""
    rng = Random(38)
    return [bytes([at % len(TOOLS), 255]) + rng.randbytes(1200) for at in range(200)]


def drawn(rng: Random) -> bytes:
    """A stream for one tool, or for all of them."""
    return bytes([rng.randrange(256), 0 if rng.randrange(ALL) else len(TOOLS) - 1]) + rng.randbytes(1200)


def told(data: bytes) -> list[str]:
    """The graph of an input, as text."""
    from proto_schema.printer import to_text

    choices = Choices(data)
    choices.bytes(2)
    made = make(choices)
    return [] if made is None else to_text(made.model).splitlines()


HARNESS = Harness(
    "meaning",
    "a tool that makes a model of a model keeps what it computes",
    Violation,
    check,
    seeds,
    longest=2400,
    head=2,
    told=told,
    done=graphs_done,
    unit="graphs",
    drawn=drawn,
)
