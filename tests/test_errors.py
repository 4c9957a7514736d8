"""The codes of the errors: all that are raised are in the table, all of the table are raised, and the page shows it.

Each check is a function of the sources, so that the rows of `PLANTED` can show that it finds what it is for.
"""

from __future__ import annotations

import ast
import functools
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import proto_schema.errors
import purexport
import purexport.errors
from proto_schema.budget import Budget
from proto_schema.checker import check_model
from proto_schema.helper import make_graph, make_model, make_node, make_tensor_value_info
from proto_schema.numpy_helper import to_array
from proto_schema.onnx import ModelProto, NodeProto, StringStringEntryProto, TensorProto
from proto_schema.parser import parse_node
from proto_schema.reference import ReferenceEvaluator
from proto_schema.shape_inference import infer_shapes
from proto_schema.version_converter import convert_version
from purexport.errors import DistributedError, ExportError, Gap, UnsupportedForm, UnsupportedOperatorError, WeightsError
from purexport.errors.codes import CODES, FAMILIES
from tests import imports
from tools.error_codes import PAGE, page

ROOT = Path(__file__).parent.parent
TEXTS = imports.sources(ROOT, ("proto_schema", "purexport"))
TABLES = ("purexport.errors.codes_of_capture", "purexport.errors.codes_of_files")

# errors of which each that is made must say its code; the others have one code a class
TOLD = ("ExportError", "UnsupportedForm")
# what an error has that is made without one
DEFAULTS = {
    "DistributedError": ("other-process-failed",),
    "UnsupportedDtypeError": ("no-dtype",),
    "VerificationError": ("output-differs",),
    "WeightsError": ("weights-unreadable",),
    "UnknownInverse": ("view-without-inverse",),
    "OpsetError": ("opset-too-low", "no-opset"),
    "__init__": (),
}
# functions that take a code by position: (name, which argument)
TAKERS = {"Gap": 3, "_gap": 3, "note": 3, "code_of": 1}


WORDS = re.compile(rf"\b({'|'.join(['code', *TOLD, *DEFAULTS, *TAKERS])})\b")


@functools.cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    """The parts of a source that may say a code; the others are not kept, as they would take gigabytes."""
    return tuple(filter(_may_say_a_code, ast.walk(ast.parse(text)))) if WORDS.search(text) else ()


def _may_say_a_code(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        named = name_of(node) in (*TOLD, *DEFAULTS, *TAKERS)
        return named or any(keyword.arg == "code" for keyword in node.keywords)
    if isinstance(node, ast.Tuple):
        return len(node.elts) == 2 and any(map(literals, node.elts[1:]))
    return isinstance(node, (ast.Assign, ast.FunctionDef))


def calls(texts: imports.Sources) -> Iterator[tuple[str, ast.Call]]:
    """(place, call) of each call of a name or attribute."""
    for module, text in texts.items():
        for node in nodes(text):
            if isinstance(node, ast.Call):
                yield f"{module}:{node.lineno}", node


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def code_argument(call: ast.Call) -> ast.expr | None:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    place = TAKERS.get(name_of(call))
    if place is not None and len(call.args) > place:
        return call.args[place]
    return given.get("code")


def literals(node: ast.AST | None) -> list[str]:
    """The codes that an expression may be: a text, or the last argument of `code_of`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.Call) and name_of(node) == "code_of":
        return literals(node.args[1])
    return []


def used(texts: imports.Sources) -> Iterator[tuple[str, str]]:
    """(place, code) wherever a code is written: given to an error, the default of a class, a row of `failures`."""
    for place, call in calls(texts):
        yield from ((place, code) for code in literals(code_argument(call)))
    for module, text in texts.items():
        for node in nodes(text):
            if isinstance(node, ast.Assign) and "code" in {
                getattr(target, "id", getattr(target, "attr", "")) for target in node.targets
            }:
                parts = (node.value.body, node.value.orelse) if isinstance(node.value, ast.IfExp) else (node.value,)
                yield from ((module, code) for part in parts for code in literals(part))
            if isinstance(node, ast.FunctionDef) and node.args.kwonlyargs:
                for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                    if argument.arg == "code":
                        yield from ((module, code) for code in literals(default) if code)
            if module == "purexport.shapes.failures" and isinstance(node, ast.Tuple) and len(node.elts) == 2:
                yield from ((module, code) for code in literals(node.elts[1]))


def is_code(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", text) is not None


def errors_without_code(texts: imports.Sources) -> list[str]:
    return [
        f"{place}: {name_of(call)} says no code"
        for place, call in calls(texts)
        if name_of(call) in TOLD and code_argument(call) is None
    ]


def unknown_codes(texts: imports.Sources) -> list[str]:
    return [f"{place}: {code!r} is not in the table" for place, code in used(texts) if code and code not in CODES]


def idle_codes(texts: imports.Sources) -> list[str]:
    named = {code for _, code in used({name: text for name, text in texts.items() if name not in TABLES})}
    return [f"nothing raises {code!r}" for code in CODES if code not in named]


CHECKS: dict[str, Callable[[imports.Sources], list[str]]] = {
    check.__name__: check for check in (errors_without_code, unknown_codes, idle_codes)
}


@pytest.mark.full
@pytest.mark.parametrize("check", CHECKS)
def test_codes(check: str) -> None:
    found = CHECKS[check](TEXTS)
    assert not found, "\n".join(found)


# (a module, what is replaced in it, by what, the check that finds it)
PLANTED = [
    ("purexport.lowering.nn.grid", ', code="no-onnx-form"', "", "errors_without_code"),
    ("purexport.functionalize.out_of_place", ', code="no-pure-form"', "", "errors_without_code"),
    ("purexport.lowering.nn.grid", "no-onnx-form", "no-onnx-fomr", "unknown_codes"),
    ("purexport.lowering.lower", '"no-rule"', '"norule"', "unknown_codes"),
    ("purexport.shapes.failures", "different-devices", "differing-devices", "unknown_codes"),
    ("purexport.facts.fact", "view-without-inverse", "view-of-no-kind", "unknown_codes"),
    ("proto_schema.errors", "malformed", "misformed", "unknown_codes"),
    ("proto_schema.errors", "not-encodable", "malformed", "idle_codes"),
]


@pytest.mark.parametrize(
    ("module", "old", "new", "check"),
    [pytest.param(*row, marks=pytest.mark.full if row[-1] == "idle_codes" else ()) for row in PLANTED],
)
def test_planted_faults_are_found(module: str, old: str, new: str, check: str) -> None:
    """A code that is idle is seen in all modules, every other fault in its own."""
    assert old in TEXTS[module]
    others = TEXTS if check == "idle_codes" else {}
    assert CHECKS[check]({**others, module: TEXTS[module].replace(old, new)})


def pattern(node: ast.expr) -> str:
    """A pattern of the texts that a message may be; what is computed may be anything."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(pattern(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return pattern(node.left) + pattern(node.right)
    return ".*"


@functools.cache
def messages() -> dict[str, list[str]]:
    """Patterns of the messages of each code, where a raise site says one."""
    found: dict[str, list[str]] = {}
    for _, call in calls(TEXTS):
        if name_of(call) in (*TOLD, *DEFAULTS) and call.args:
            for code in literals(code_argument(call)) or DEFAULTS.get(name_of(call), ()):
                found.setdefault(code, []).append(pattern(call.args[0]))
    return found


@pytest.mark.full  # reads all modules
@pytest.mark.parametrize("code", CODES)
def test_the_example_is_a_message_of_the_code(code: str) -> None:
    example = CODES[code].example
    told = [text for text in messages().get(code, ()) if len(text.replace(".*", "")) > 5]
    assert not told or any(re.search(text, example, re.DOTALL) for text in told), (example, told)


def model_of(node: NodeProto, **initializer: Any) -> ModelProto:
    outputs = [make_tensor_value_info("y", TensorProto.FLOAT, [2])]
    graph = make_graph([node], "g", [make_tensor_value_info("x", TensorProto.FLOAT, [2])], outputs)
    graph.initializer = [TensorProto(**initializer)] if initializer else []
    return make_model(graph)


# of the toolkit, whose errors put a path before their words
TOOLKIT: dict[str, Callable[[], Any]] = {
    "malformed": lambda: ModelProto.FromString(b"\x3a\x02\x0f\x00"),
    "not-encodable": lambda: model_of(NodeProto(op_type="Relu", name=3)).SerializeToString(),  # type: ignore[arg-type]
    "invalid-model": lambda: check_model(model_of(make_node("Relu", ["x", "x"], ["y"]))),
    "shapes-contradict": lambda: infer_shapes(
        model_of(make_node("LpNormalization", ["x"], ["y"], name="unit", axis=9)), strict_mode=True
    ),
    "not-computable": lambda: ReferenceEvaluator(
        model_of(make_node("LpNormalization", ["x"], ["y"], name="unit", axis=9))
    ).run(None, {"x": np.ones(3, np.float32)}),
    "budget-spent": lambda: ReferenceEvaluator(model_of(make_node("Softmax", ["x"], ["y"], name="unit"))).run(
        None, {"x": np.ones(64, np.float32)}, budget=Budget(256, 10**9)
    ),
    "operator-unknown": lambda: ReferenceEvaluator(model_of(make_node("Unit", ["x"], ["y"], name="unit"))),
    "not-the-syntax": lambda: parse_node("y = MatMul[X, W]"),
    "cannot-convert": lambda: convert_version(model_of(make_node("StringConcat", ["x", "x"], ["y"], name="join")), 13),
    "external-data": lambda: to_array(
        TensorProto(
            name="w",
            dims=[2],
            data_type=TensorProto.FLOAT,
            data_location=TensorProto.EXTERNAL,
            external_data=[StringStringEntryProto(key="location", value="weights.bin")],
        )
    ),
}


@pytest.mark.parametrize("code", TOOLKIT)
def test_the_example_is_a_message_of_the_toolkit(code: str) -> None:
    with pytest.raises((ValueError, NotImplementedError)) as caught:
        TOOLKIT[code]()
    assert str(caught.value).replace(f"{Path.cwd()}/", "") == CODES[code].example
    assert caught.value.code == code  # type: ignore[attr-defined]


@pytest.mark.full  # reads all modules
def test_the_others_are_known() -> None:
    """Of these no raise site says the words: what users raise, what sums up others, and what torch says."""
    silent = {"not-exported", "several-causes", "no-rule", "data-dependent-size", "torch-internal-error"}
    assert set(CODES) - set(messages()) - set(TOOLKIT) == silent


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text() == page(), "python -m tools.error_codes --write"


def test_rows() -> None:
    names = [row.name for _, rows in FAMILIES for row in rows]
    assert len(names) == len(set(names))
    assert all(map(is_code, names))
    for row in CODES.values():
        assert row.meaning.endswith(".") and row.remedy.endswith((".", ".)"))
        assert (row.meaning + row.remedy + row.example).isascii()


ERRORS = [
    kind
    for module in (purexport.errors, proto_schema.errors)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Exception)
]


@pytest.mark.parametrize("kind", ERRORS)
def test_each_class_has_a_code(kind: Any) -> None:
    """A default in the table; the two that the lowering catches have none, and must be told theirs."""
    if kind.__name__ == "UnsupportedForm":
        assert UnsupportedForm("x", code="no-onnx-form").code in CODES
    elif kind.__name__ == "OpsetError":
        assert (kind("x", 16).code, kind("x", None).code) == ("opset-too-low", "no-opset")
    else:
        assert kind.code in CODES


def gap(code: str) -> Gap:
    return Gap("aten::a", "m", "why", code)


# error, its code, its codes
SUMS = [
    (ExportError("x"), "not-exported", ("not-exported",)),
    (ExportError("x", code="no-dtype"), "no-dtype", ("no-dtype",)),
    (DistributedError("x"), "other-process-failed", ("other-process-failed",)),
    (UnsupportedOperatorError(9, [gap("no-rule")]), "no-rule", ("no-rule",)),
    (UnsupportedOperatorError(9, [gap("no-rule")] * 2), "no-rule", ("no-rule",) * 2),
    (UnsupportedOperatorError(9, [gap("no-rule"), gap("no-opset")]), "several-causes", ("no-rule", "no-opset")),
    (
        ExportError(
            "x", code="neither-route", causes=[ExportError("y"), UnsupportedOperatorError(9, [gap("no-rule")])]
        ),
        "neither-route",
        ("not-exported", "no-rule"),
    ),
]


@pytest.mark.parametrize(("error", "code", "codes"), SUMS)
def test_code_and_codes(error: ExportError, code: str, codes: tuple[str, ...]) -> None:
    assert (error.code, error.codes) == (code, codes)


@pytest.mark.parametrize("error", [ExportError("x", code="no-dtype"), WeightsError("x", code="weights-spread")])
def test_errors_travel_with_their_code(error: Any) -> None:
    """Between the processes of a group, for example."""
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), other.code) == (type(error), "x", error.code)


class Branch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Strings(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, str]:
        return x, "text"


# model, options, code, codes
EXPORTS: list[tuple[Any, dict[str, Any], str, tuple[str, ...]]] = [
    (Branch(), {"capture": "export"}, "data-dependent", ("data-dependent",)),
    (lambda x: x @ x, {}, "model-does-not-run", ("model-does-not-run",)),
    (lambda x: torch.poisson(x.abs()), {}, "no-rule", ("no-rule",)),
    (lambda x: x.bfloat16(), {"opset_version": 9}, "opset-too-low", ("opset-too-low",)),
    (Strings(), {"capture": "trace"}, "output-not-a-tensor", ("output-not-a-tensor",)),
]


@pytest.mark.parametrize(("model", "options", "code", "codes"), EXPORTS, ids=[row[2] for row in EXPORTS])
def test_exports_say_their_code(model: Any, options: dict[str, Any], code: str, codes: tuple[str, ...]) -> None:
    with pytest.raises(ExportError) as caught:
        purexport.export(model, (torch.ones(2, 3),), **options)
    assert (caught.value.code, caught.value.codes) == (code, codes)
    assert code not in str(caught.value)
