"""Invariant: on a model of any bytes each tool of `proto_schema` that changes models gives a model, or says why not.

The first bytes of an input choose the tool and its arguments, the rest is the file. What holds of a result: the given
model is as it was; the result is encoded and decoded again as the same; where the given model is valid, so is the
result; it is at the version that was asked for; its text is read back as the same model; what was reported as done was
done. The verbs of the command line have words of their own for whatever is wrong with the file.
"""

from __future__ import annotations

import copy
import json
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

import proto_schema as ps
from fuzz.bounds import bounded, folder
from fuzz.build import Choices
from fuzz.harness import Harness, Violation
from fuzz.readers import Files, Reader, UnexpectedError, verb, words_missing
from fuzz.seeds import models
from proto_schema.graphs.names import as_text
from proto_schema.printer import to_text
from proto_schema.quantization import TYPES, Scheme, planned, quantize
from proto_schema.shape_inference import infer_with_problems
from proto_schema.simplification import simplified
from purexport.inspect.scan import sarif, scan

HEAD = 4
Tool = Callable[[ps.ModelProto, Choices], tuple[str, ps.ModelProto | None]]


def _expect(holds: bool, broken: str) -> None:
    if not holds:
        raise Violation(broken)


def _operators(model: ps.ModelProto) -> int:
    return len(model.graph.node) if model.graph is not None else 0


def _infer(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    made, problems = infer_with_problems(model, check_type=bool(choices.below(2)), strict_mode=bool(choices.below(2)))
    _expect(_operators(made) == _operators(model), "inference changes the nodes")
    return f"{len(problems)} {len(made.graph.value_info if made.graph is not None else ())}", made


def _convert(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    target = 7 + choices.below(22)
    made = ps.version_converter.convert_version(model, target)
    found = {entry.version for entry in made.opset_import if entry.domain in (None, "", "ai.onnx")}
    _expect(found <= {target}, "the result is at another opset")
    return f"{target}", made


def _convert_ir(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    target = 3 + choices.below(11)
    made = ps.version_converter.convert_ir(model, target)
    _expect(made.ir_version == target, "the result is at another IR version")
    return f"{target}", made


def _simplify(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    found = simplified(model, fold_bytes=1 << choices.below(12))
    return " ".join(sorted(found.done)), found.model


def _merge(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    graph = model.graph or ps.GraphProto()
    ends, begins = ([as_text(item.name) for item in side] for side in (graph.output, graph.input))
    pairs = list(zip(ends, begins, strict=False))[: choices.below(3)]
    prefixes = (None, "b_") if choices.below(4) else ("a_", None)
    made = ps.compose.merge_models(model, model, pairs, prefix1=prefixes[0], prefix2=prefixes[1])
    _expect(_operators(made) == 2 * _operators(model), "nodes are lost")
    return f"{len(pairs)}", made


def _prefix(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    return "", ps.compose.add_prefix(model, "p/" if choices.below(2) else "")


def _inline(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    made = ps.inliner.inline_local_functions(model, convert_version=bool(choices.below(2)))
    return f"{len(made.functions)}", made


def _extract(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    graph = model.graph or ps.GraphProto()
    values = [as_text(name) for node in graph.node for name in node.output if name] or ["none"]
    begins = [choices.one_of(values)] if choices.below(2) else [as_text(item.name) for item in graph.input]
    return "", ps.utils.Extractor(model).extract_model(begins, [choices.one_of(values)])


def _quantize(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    scheme = Scheme(
        choices.one_of(tuple(TYPES)),
        (None, 16, 32)[choices.below(3)],
        (None, True, False)[choices.below(3)],
        smallest=1,
        threads=1,
    )
    target = ("onnx", "onnxruntime")[choices.below(2)]
    report = planned(model, scheme, target=target)
    return f"{scheme.type} {len(list(report.lines())).bit_length()}", quantize(model, scheme, target=target)


def _text(model: ps.ModelProto, _: Choices) -> tuple[str, ps.ModelProto | None]:
    text = to_text(model)
    made = ps.parser.parse_model(text)
    _expect(to_text(made) == text, "the text is read back as another model")
    return "", made


def _scan(model: ps.ModelProto, _: Choices) -> tuple[str, ps.ModelProto | None]:
    path = _place() / "m.onnx"
    path.write_bytes(ps.dumps(model))
    found = scan(path)
    _expect(json.dumps(sarif(found, "0")).isascii(), "the report is not ASCII")
    return " ".join(sorted({risk.rule for risk in found.risks})), None


def _command(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    """A verb, with its own way of reading options and files, and of saying what is wrong."""
    files = Files(_place())
    files.write(ps.dumps(model))
    number = choices.below(len(COMMANDS))
    try:
        COMMANDS[number](files)
    except UnexpectedError as error:
        raise words_missing(error) from error
    return f"{number}", None


def _fed(model: ps.ModelProto, choices: Choices) -> tuple[str, ps.ModelProto | None]:
    """What the evaluator says of the operators, and of inputs of each type; no node runs."""
    with suppress(ps.reference.UnsupportedOperatorError):
        ps.reference.ReferenceEvaluator(model)
    bare = copy.deepcopy(model)
    if bare.graph is not None:
        bare.graph.node, bare.graph.output = [], []
    fed = choices.one_of((np.zeros((1, 2), np.float32), np.zeros(1, np.int64), 1, [1.5], "text", None))
    evaluator = ps.reference.ReferenceEvaluator(bare)
    evaluator.run([], dict.fromkeys(evaluator.input_names, fed))
    return f"{len(evaluator.input_names)}", None


COMMANDS: tuple[Reader, ...] = (
    *(verb("convert", "{model}", "--opset", opset, "-o", "{out}") for opset in ("9", "13", "17", "20", "22")),
    verb("infer", "{model}", "--strict", "-o", "{out}"),
    verb("check", "{model}", "--full"),
    verb("scan", "{model}", "--json"),
    verb("quantize", "{model}", "--type", "int8", "--dry-run"),
    verb("merge", "{model}", "{model}", "--prefix", "a/", "-o", "{out}"),
    verb("edit", "{model}", "--opset", "my=2", "-o", "{out}"),
)
TOOLS: tuple[Tool, ...] = (
    _infer,
    _convert,
    _convert,
    _convert,
    _convert_ir,
    _simplify,
    _simplify,
    _merge,
    _prefix,
    _inline,
    _extract,
    _quantize,
    _quantize,
    _text,
    _scan,
    _command,
    _fed,
)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return folder("tools")


def _place() -> Path:
    return Path(_folder().name)


@cache
def _ready() -> None:
    """After each tool has run: what it imports is no memory of its own."""
    for tool in TOOLS:
        with suppress(ValueError):
            tool(ps.loads(models()[1]), Choices(b""))
    one = ps.numpy_helper.from_array(np.ones(1, np.float32))
    folded = ps.helper.make_graph([ps.helper.make_node("Constant", [], ["y"], value=one)], "g", [], [])
    ps.reference.ReferenceEvaluator(folded).run([], {})  # by which `simplify` folds constants


def _is_valid(model: ps.ModelProto) -> bool:
    try:
        ps.checker.check_model(model)
    except ps.CheckError:
        return False
    return True


def check(data: bytes) -> str:
    _ready()
    choices, content = Choices(data[:HEAD]), data[HEAD:]
    number = choices.below(len(TOOLS))
    try:
        model = ps.loads(content)
    except ps.DecodeError:
        return "no model"
    with bounded(data, len(content)):
        try:
            word, made = TOOLS[number](model, choices)
        except ValueError as error:
            word, made = re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "", f"{type(error).__name__} {error}")[:80], None
    _expect(ps.dumps(model) == ps.dumps(ps.loads(content)), "the given model was changed")
    if made is not None:
        written = ps.dumps(made)
        _expect(ps.dumps(ps.loads(written)) == written, "the result is not what is written")
        _expect(_is_valid(made) or not _is_valid(model), "of a valid model an invalid one is made")
    return f"{number} {word}"


def _experts() -> bytes:
    """A mixture of experts whose weights nodes lay out."""
    make = ps.helper.make_tensor_value_info
    nodes = [
        ps.helper.make_node("Reshape", ["a", "four"], ["b"]),
        ps.helper.make_node("Transpose", ["b"], ["c"], perm=[0, 2, 1, 3]),
        ps.helper.make_node("Reshape", ["c", "three"], ["up"]),
        ps.helper.make_node("MatMul", ["x", "gate"], ["router"]),
        ps.helper.make_node(
            *("MoE", ["x", "router", "up", "", "down"], ["y"]),
            domain="com.microsoft",
            k=1,
            activation_type="swiglu",
            swiglu_fusion=1,
        ),
    ]
    floats = {"a": (2, 4, 4), "down": (2, 4, 2), "gate": (4, 2)}
    held = [ps.numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in floats.items()]
    held += [ps.numpy_helper.from_array(np.array([2, 2, 2, 4]), "four")]
    held += [ps.numpy_helper.from_array(np.array([2, 4, 4]), "three")]
    graph = ps.helper.make_graph(nodes, "g", [make("x", 1, ["n", 4])], [make("y", 1, ["n", 4])], held)
    opsets = [ps.helper.make_opsetid("", 21), ps.helper.make_opsetid("com.microsoft", 1)]
    return ps.dumps(ps.helper.make_model(graph, opset_imports=opsets, ir_version=10))


def _of_no_type(op_type: str, code: int) -> bytes:
    """A node whose inputs are declared to be of a type that does not exist."""
    make, count = ps.helper.make_tensor_value_info, 3 if op_type == "Attention" else 1
    names = list("qkv")[:count]
    inputs = [make(name, code, [1, 2, 3, 4]) for name in names]
    graph = ps.helper.make_graph([ps.helper.make_node(op_type, names, ["y"])], "g", inputs, [make("y", code, None)])
    return ps.dumps(ps.helper.make_model(graph, opset_imports=[ps.helper.make_opsetid("", 23)], ir_version=10))


def seeds() -> list[bytes]:
    """A model for each tool with several arguments, each bundled one for several tools, and experts to quantize."""
    place = TOOLS.index(_quantize)
    experts = [bytes([place, kind, kind % 3, kind % 2]) + _experts() for kind in range(len(TYPES))]
    small = [bytes([tool, way, way, 0]) + models()[1] for tool in range(len(TOOLS)) for way in range(4)]
    odd = [_of_no_type(op_type, code) for op_type in ("Attention", "Relu") for code in (-2, 2147483647)]
    for data in odd:
        small += [bytes([tool, 6, 0, 0]) + data for tool in range(len(TOOLS))]
        small += [bytes([TOOLS.index(_command), way, 0, 0]) + data for way in range(len(COMMANDS))]
        small += [bytes([TOOLS.index(_fed), way, 0, 0]) + data for way in range(6)]
    others = [data for data in models() if data and data != models()[1]]
    return (
        small
        + experts
        + [
            bytes([(at + turn * 4) % len(TOOLS), at % 7, turn, 0]) + data
            for at, data in enumerate(others)
            for turn in (0, 1)
        ]
    )


HARNESS = Harness(
    "tools",
    "each tool that changes models gives a model that holds, or a documented error, whatever the model is",
    ValueError,
    check,
    seeds,
    head=HEAD,
)
