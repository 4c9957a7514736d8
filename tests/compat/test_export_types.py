"""Operator export types: which calls stay what they are, and in which form; the documents' examples among the rows."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import proto_schema as ps
import purexport
from purexport import OperatorExportTypes as Kind

DOCUMENTS = Path(__file__).parent / "documents"
LIBRARY = torch.library.Library("foo_namespace", "DEF")
LIBRARY.define("bar(Tensor a, Tensor b, int times=2, float[] by=[0.5, 1.0], str mode='x', Tensor? c=None) -> Tensor")
LIBRARY.impl("bar", lambda a, b, times=2, by=(), mode="x", c=None: a * times + b, "CompositeExplicitAutograd")


def divided(x: torch.Tensor) -> torch.Tensor:
    return x / x.exp()


def listed(x: torch.Tensor) -> list[torch.Tensor]:
    return [x / x.exp()]


def drawn(x: torch.Tensor) -> torch.Tensor:
    """`poisson` has no form in ONNX; `triu`, of which the document shows this, has one today."""
    return torch.poisson(x) * x


def custom(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.ops.foo_namespace.bar(x, y) / x


def pieces(x: torch.Tensor) -> torch.Tensor:
    """Lists of tensors, absent arguments, a dtype, a list of sizes."""
    first, second = torch.cat([x, x.triu(1)]).split(2)
    return torch.clamp(first, max=0.5).sum([0], dtype=torch.float64) + second.mean()


def counted(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    for _ in range(int(n)):
        x = x.exp()
    return x


class Scaled(torch.autograd.Function):
    """With a symbolic that refuses texts, so that such a call can only stay what it is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, by: float, mode: str | None, y: torch.Tensor) -> Any:
        return x * by, y.argmax(1)

    @staticmethod
    def symbolic(g: Any, x: Any, by: float, mode: str | None, y: Any) -> Any:
        if mode is not None:
            purexport.symbolic_helper._unimplemented("Scaled", "a mode")
        return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(by))), g.op("ArgMax", y, axis_i=1, keepdims_i=0)


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x / 2


def applied(x: torch.Tensor, y: torch.Tensor) -> Any:
    first, second = Scaled.apply(x, 0.5, "plain", y)  # type: ignore[no-untyped-call]
    return first.exp(), second


EXP = "%1 : Float(2, 3) = "
PIECES_ATEN = """\
  %1 : Long() = onnx::Constant[value={1}]()
  %2 : Float(2, 3) = aten::ATen[operator="triu"](%x, %1)
  %3 : Tensor = prim::ListConstruct(%x, %2)
  %4 : Long() = onnx::Constant[value={0}]()
  %5 : Float(4, 3) = aten::ATen[operator="cat"](%3, %4)
  %6 : Long() = onnx::Constant[value={2}]()
  %7 : Tensor = aten::ATen[operator="split"](%5, %6, %4)
  %8 : Float(2, 3) = aten::ATen[operator="__getitem__"](%7, %4)
  %9 : Float(2, 3) = aten::ATen[operator="__getitem__"](%7, %1)
  %10 : None = prim::Constant()
  %11 : Double() = onnx::Constant[value={0.5}]()
  %12 : Float(2, 3) = aten::ATen[operator="clamp"](%8, %10, %11)
  %13 : Long(1) = onnx::Constant[value={0}]()
  %14 : Bool() = onnx::Constant[value={0}]()
  %15 : Double(3) = aten::ATen[dtype="float64", operator="sum"](%12, %13, %14)
  %16 : Float() = aten::ATen[operator="mean"](%9)
  %output : Double(3) = aten::ATen[operator="add"](%15, %16, %1)
"""
LOOP_RAW = """\
  %2 : Long() = aten::Int(%n)
  %3 : Bool() = onnx::Constant[value={1}]()
  %output : Float(2, 3) = prim::Loop(%2, %3, %x)
    block0(%4 : Long(), %5 : bool, %6 : Float(2, 3)):
      %7 : Float(2, 3) = aten::exp(%6)
      %8 : Bool() = onnx::Identity(%3)
      -> (%8, %7)
"""
APPLIED = "  %2 : Float(2, 3), %output_1 : Long(2) = ^Scaled(0.5, 'plain')(%x, %y)\n"
DIV = "(%x, %1)\n"
ONNX = f"  {EXP}onnx::Exp(%x)\n  %output : Float(2, 3) = onnx::Div{DIV}"
ATEN = f'  {EXP}aten::ATen[operator="exp"](%x)\n  %output : Float(2, 3) = aten::ATen[operator="div"]{DIV}'
RAW = f"  {EXP}aten::exp(%x)\n  %output : Float(2, 3) = aten::div{DIV}"
FALLBACK = f'  {EXP}aten::ATen[operator="poisson"](%x)\n  %output : Float(2, 3) = onnx::Mul(%1, %x)\n'
LISTED = RAW.replace("%output", "%2") + "  %output : Tensor[] = prim::ListConstruct(%2)\n"
FALLTHROUGH = (
    '  %2 : Float(2, 3) = foo_namespace::bar[by=[0.5, 1], mode="x", times=2](%x, %y)\n'
    "  %output : Float(2, 3) = onnx::Div(%2, %x)\n"
)
X, Y = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
ROWS: list[tuple[str, Any, tuple[torch.Tensor, ...], Kind, str]] = [
    ("onnx", divided, (X,), Kind.ONNX, ONNX),
    ("onnx-aten", divided, (X,), Kind.ONNX_ATEN, ATEN),
    ("raw", divided, (X,), Kind.RAW, RAW),
    ("raw-list", listed, (X,), Kind.RAW, LISTED),
    ("fallback-where-there-are-rules", divided, (X,), Kind.ONNX_ATEN_FALLBACK, ONNX),
    ("fallback", drawn, (X,), Kind.ONNX_ATEN_FALLBACK, FALLBACK),
    ("fallthrough-where-there-are-rules", divided, (X,), Kind.ONNX_FALLTHROUGH, ONNX),
    ("fallthrough", custom, (X, Y), Kind.ONNX_FALLTHROUGH, FALLTHROUGH),
    ("arguments", pieces, (X,), Kind.ONNX_ATEN, PIECES_ATEN),
]
FUNCTIONS = [
    # route, kind, the statement after the Function
    ("trace", Kind.RAW, "aten::exp"),
    ("export", Kind.RAW, "aten::exp"),
    ("trace", Kind.ONNX_FALLTHROUGH, "onnx::Exp"),
    ("export", Kind.ONNX_FALLTHROUGH, "onnx::Exp"),
]
LOOP = ("raw-loop", torch.jit.script(counted), (X, torch.tensor(2)), Kind.RAW, LOOP_RAW)


def body(text: str) -> str:
    """The statements, without where they come from."""
    statements = text.partition("):\n")[2].splitlines()[:-1]
    return "".join(line.partition(", scope: ")[0] + "\n" for line in statements)


def checked(model: Any, args: tuple[torch.Tensor, ...], kind: Kind, **options: Any) -> ps.ModelProto:
    """Both checkers take the file, and its domains have a version."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file = io.BytesIO()
        proto = purexport.export(model, args, file, operator_export_type=kind, **options).model_proto
    onnx.checker.check_model(onnx.load_from_string(file.getvalue()), full_check=True)
    ps.checker.check_model(proto)
    imports = {item.domain for item in proto.opset_import}
    assert {node.domain or "" for node in proto.graph.node} <= imports
    return proto


def as_module(function: Any, route: str) -> Any:
    return torch.jit.script(function) if route == "script" else function


# torch.export writes other calls for `pieces`, split_with_sizes and _to_copy, and a script may use other overloads
STATEMENTS = [
    pytest.param(*row[1:], route, id=f"{row[0]}-{route}")
    for row in ROWS
    for route in (("trace",) if row[1] is pieces else ("trace", "script", "export"))
]


@pytest.mark.parametrize(("model", "args", "kind", "text", "route"), STATEMENTS)
def test_statements(model: Any, args: tuple[torch.Tensor, ...], kind: Kind, text: str, route: str) -> None:
    captured = {} if route == "script" else {"capture": route}
    printed = purexport.export_to_pretty_string(as_module(model, route), args, operator_export_type=kind, **captured)
    assert body(printed) == text
    checked(as_module(model, route), args, kind, **captured)


@pytest.mark.parametrize(("route", "kind", "then"), FUNCTIONS)
def test_a_function_stays_one_as_torch_prints_it(route: str, kind: Kind, then: str) -> None:
    text = purexport.export_to_pretty_string(applied, (X, Y), operator_export_type=kind, capture=route)
    assert body(text) == f"{APPLIED}  %output_0 : Float(2, 3) = {then}(%2)\n"
    (function, _) = checked(applied, (X, Y), kind, capture=route).graph.node
    assert (function.domain, function.op_type) == ("prim", "PythonOp")
    held = {item.name: item.s or item.strings for item in function.attribute}
    assert held["module"] == __name__.encode() and held["cconv"] == b"dccd"
    assert held["name"] == b"Scaled" and held["scalar_args"] == [b"0.5", b"'plain'"]


def test_a_script_does_not_apply_functions() -> None:
    def once(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return Halved.apply(x)

    with pytest.raises(purexport.ExportError, match=r"the script applies the autograd Function Halved at .*; export"):
        purexport.export(torch.jit.script(once), (X, Y))


def test_a_loop_stays_one() -> None:
    _, model, args, kind, text = LOOP
    assert body(purexport.export_to_pretty_string(model, args, operator_export_type=kind)) == text
    checked(model, args, kind)


SHOWN = [
    ("type-onnx", ONNX),
    ("type-onnx-aten", ATEN),
    ("type-raw", LISTED),
    ("type-fallback", FALLBACK),
    ("type-fallthrough", FALLTHROUGH),
]


@pytest.mark.parametrize(("document", "text"), [pytest.param(*row, id=row[0]) for row in SHOWN])
def test_the_documents_show_these_operators(document: str, text: str) -> None:
    """Operator by operator; the documents write one colon in one place, and `triu`, which needs no fallback today."""
    shown = (DOCUMENTS / f"{document}.txt").read_text().split("xported as:")[1].replace("onnx:", "onnx::")
    shown = shown.replace("onnx:::", "onnx::").replace('"triu"', '"poisson"')
    for line in text.splitlines():
        operator = line.split(" = ")[1].partition("(")[0].partition("[by=")[0]
        assert f"= {operator}(" in shown


def test_what_stays_is_remarked_and_named_with_its_overload() -> None:
    program = purexport.export(drawn, (X,), operator_export_type=Kind.ONNX_ATEN_FALLBACK)
    assert len(program.report.warnings) == 1
    assert program.report.warnings[0].startswith("aten::poisson at ")
    assert "stays as it is, because it has no rule" in program.report.warnings[0]
    node = checked(divided, (X,), Kind.ONNX_ATEN).graph.node[1]
    assert (node.op_type, node.domain) == ("ATen", "org.pytorch.aten")
    assert {item.name: item.s for item in node.attribute} == {"operator": b"div", "overload_name": b"Tensor"}


def test_custom_domains_have_the_version_that_is_asked() -> None:
    proto = checked(custom, (X, Y), Kind.ONNX_FALLTHROUGH, custom_opsets={"foo_namespace": 3, "unused": 2})
    assert {item.domain: item.version for item in proto.opset_import} == {"": 20, "foo_namespace": 3, "unused": 2}


def test_calls_inside_functions() -> None:
    """Their domain is imported by the function and by the model, which has no such node itself."""
    program = checked(nn.Sequential(nn.Tanh()), (X,), Kind.ONNX_ATEN, export_modules_as_functions={nn.Tanh})
    assert [node.op_type for node in program.graph.node] == ["Tanh"]
    assert "org.pytorch.aten" in {item.domain for item in program.functions[0].opset_import}
    assert "org.pytorch.aten" in {item.domain for item in program.opset_import}


def test_the_name_of_older_years() -> None:
    with pytest.warns(UserWarning, match="aten is an older name: operator_export_type=OperatorExportTypes.ONNX_ATEN"):
        program = purexport.export(divided, (X,), aten=True)
    assert [node.op_type for node in program.model_proto.graph.node] == ["ATen", "ATen"]


REFUSED = [
    ("a-custom-call-is-no-aten-call", custom, (X, Y), Kind.ONNX_ATEN_FALLBACK, "foo_namespace::bar"),
    ("complex-results", torch.linalg.eigvals, (torch.eye(2),), Kind.ONNX_ATEN, "gives complex or quantized tensors"),
    ("complex-fallback", torch.linalg.eigvals, (torch.eye(2),), Kind.ONNX_FALLTHROUGH, "aten::linalg_eigvals"),
]


@pytest.mark.parametrize(("model", "args", "kind", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_what_no_node_can_hold_is_refused(model: Any, args: tuple[torch.Tensor, ...], kind: Kind, message: str) -> None:
    with pytest.raises(purexport.UnsupportedOperatorError, match=message):
        purexport.export(model, args, operator_export_type=kind, capture="trace")


def test_verification_needs_kernels() -> None:
    with pytest.raises(purexport.ExportError, match=r"whose operators of org.pytorch.aten need kernels that"):
        purexport.export(divided, (X,), operator_export_type=Kind.ONNX_ATEN, verify=True)
    purexport.export(divided, (X,), operator_export_type=Kind.ONNX_ATEN_FALLBACK, verify=True)


def test_a_kind_that_is_none() -> None:
    with pytest.raises(ValueError, match="operator_export_type='ONNX' is not an OperatorExportTypes"):
        purexport.export(nn.ReLU(), (X,), operator_export_type="ONNX")
