"""`custom_translation_table` as it is written for torch.onnx: functions of the arguments alone, and onnxscript's."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

import proto_schema as ps
import purexport
from tests.harness import CAPTURES

helper = ps.helper
X, Y = torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([[0.5, 4.0, -1.0]])
library = torch.library.Library("pxtable", "DEF")
library.define("mixed(Tensor x, Tensor y, float a, int n=2, *, bool negative=False) -> Tensor")
library.define("both(Tensor x, Tensor[] more) -> (Tensor, Tensor)")


def mixed(x: Any, y: Any, a: float, n: int = 2, negative: bool = False) -> Any:
    return -(x * a + y * n) if negative else x * a + y * n


def both(x: Any, more: Any) -> Any:
    return x + more[0], x - more[1]


library.impl("mixed", mixed, "CompositeExplicitAutograd")
library.impl("both", both, "CompositeExplicitAutograd")


class Mixed(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.ops.pxtable.mixed(x, y, 0.5, negative=True)


class Both(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.ops.pxtable.both(x, [y, x * 2])


class Halved(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.reshape(x.shape[1] // 2, -1)


def arithmetic(x: Any, y: Any, a: float, n: int = 2, *, negative: bool = False) -> Any:
    return -(x * a + n * y) if negative else x


def without_defaults(x: Any, y: Any, a: float, **options: Any) -> Any:
    return (2 * y + x * a) * (-1.0 if options["negative"] else 1.0)


def compared(x: Any, more: Any) -> Any:
    assert (x.dtype, x.rank, x.shape) == (ps.TensorProto.FLOAT, 2, (1, 3))
    return x + more[0], x - more[1]


def fails(*_: Any) -> Any:
    raise ValueError("no")


class Compiled:
    """What an onnxscript function is to us: it gives a message."""

    def __call__(self, *_: Any) -> Any:
        raise NotImplementedError

    def to_function_proto(self) -> Any:
        sign = helper.make_node("Constant", [], ["sign"], value_float=-1.0)
        scale = helper.make_node("Constant", [], ["a"])
        scale.attribute.append(ps.AttributeProto(name="value_float", ref_attr_name="a", type=ps.AttributeProto.FLOAT))
        nodes = [
            sign,
            scale,
            helper.make_node("Mul", ["x", "a"], ["scaled"]),
            helper.make_node("Add", ["y", "y"], ["twice"]),
            helper.make_node("Add", ["scaled", "twice"], ["sum"]),
            helper.make_node("Mul", ["sum", "sign"], ["result"]),
        ]
        imports = [helper.make_opsetid("", 18)]
        return helper.make_function(
            "this", "mixed", ["x", "y"], ["result"], nodes, imports, attributes=["a", "n", "negative"]
        )


MIXED = torch.ops.pxtable.mixed.default
TABLES = [
    ("arithmetic", Mixed, {MIXED: arithmetic}),
    ("keywords", Mixed, {MIXED: without_defaults}),
    ("list", Mixed, {MIXED: [fails, arithmetic]}),
    ("ours-in-a-list", Mixed, {MIXED: (lambda op, x, y, *_: op.Neg(op.Add(op.Mul(x, 0.5), op.Mul(y, 2.0))),)}),
    ("compiled", Mixed, {MIXED: Compiled()}),
    ("lists-of-tensors", Both, {"pxtable::both": compared}),
]


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize(("model", "table"), [row[1:] for row in TABLES], ids=[row[0] for row in TABLES])
def test_a_table_of_torch(model: Any, table: Any, capture: str) -> None:
    program = purexport.export(model(), (X, Y), custom_translation_table=table, capture=capture)
    wanted = model()(X, Y)
    for mine, theirs in zip(program(X, Y), wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        torch.testing.assert_close(torch.as_tensor(mine), theirs)


def halved(op: Any, a: Any, b: Any) -> Any:
    return op.Div(op.Mul(a, 2), op.const(2 * b))


def test_a_python_operator_as_a_key() -> None:
    """By torch.export, as in torch.onnx: in a trace sizes are tensors."""
    options: Any = {"dynamic_axes": {"x": {1: "n"}}, "capture": "export"}
    table = {operator.floordiv: halved}
    program = purexport.export(Halved(), (torch.ones(3, 4), Y), custom_translation_table=table, **options)
    assert [node.op_type for node in program.model_proto.graph.node].count("Mul") == 1
    assert program(torch.ones(3, 6), Y)[0].shape == (3, 6)


def test_a_custom_op_as_a_key() -> None:
    @torch.library.custom_op("pxtable::tripled", mutates_args=())
    def tripled(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    tripled.register_fake(torch.empty_like)
    table = {tripled: lambda x: x * 3.0}
    program = purexport.export(lambda x: tripled(x), (X,), custom_translation_table=table)
    torch.testing.assert_close(torch.as_tensor(program(X)[0]), X * 3)


REFUSED = [
    (lambda x, y: x, "it takes 2 arguments, and the call has a=0.5 beside them"),
    (lambda x, y, a, n: x, "it takes 4 arguments, and the call has negative=True beside them"),
    ([fails, fails], "ValueError: no"),
]


@pytest.mark.parametrize(("function", "text"), REFUSED, ids=[row[1][:20] for row in REFUSED])
def test_refused(function: Any, text: str) -> None:
    with pytest.raises(purexport.ExportError, match=text):
        purexport.export(Mixed(), (X, Y), custom_translation_table={MIXED: function})


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("name", ["plain", "scripted", "branches", "called", "in_a_domain"])
def test_functions_of_onnxscript(name: str, capture: str) -> None:
    pytest.importorskip("onnxscript", reason="functions of onnxscript need it")
    from tests.compat import onnxscript_functions

    function = getattr(onnxscript_functions, name)
    program = purexport.export(Mixed(), (X, Y), custom_translation_table={MIXED: function}, capture=capture)
    if name == "in_a_domain":
        (node,) = program.model_proto.graph.node
        assert (node.domain, node.op_type, len(node.input)) == ("my.domain", "Mixed", 2)
        assert {item.name for item in node.attribute} == {"a", "negative"}
        return
    torch.testing.assert_close(torch.as_tensor(program(X, Y)[0]), Mixed()(X, Y))
