"""Operators of `torch.library` and of C++, and ATen operators with rules of the user's own, on every route."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch

import purexport
from purexport.compat.symbolic.registry import RECORDED_AS, REGISTRY
from purexport.symbolic_helper import (
    _if_scalar_type_as,
    _scalar,
    _squeeze_helper,
    _unpack_list,
    _unsqueeze_helper,
    parse_args,
)
from tests.tiers import in_turn
from tests.tolerances import EXACT, assert_near

ROUTES = ("trace", "export", "script")
X = torch.tensor([[1.0, -2.0, 3.0], [-0.5, 0.25, 4.0]])


def write_double(x: torch.Tensor) -> None:
    x.mul_(2)


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    """Operators built at run time, with shape functions; `composite` is made of others, `write` writes."""
    made: Any = torch.library.Library("pxtest", "DEF")
    made.define("foo(Tensor x, Tensor y, float a=1.0, int[] shape=[1, 2], str mode='plain', int? n=None) -> Tensor")
    made.define("parts(Tensor x, int count) -> (Tensor, Tensor)")
    made.define("many(Tensor[] xs) -> Tensor[]")
    made.define("composite(Tensor x) -> Tensor")
    made.define("write(Tensor(a!) x) -> ()")
    kernels: dict[str, Callable[..., Any]] = {
        "foo": lambda x, y, a=1.0, shape=(), mode="plain", n=None: x * a + y,
        "parts": lambda x, count: (x[:count].clone(), x.abs().to(torch.int64)),
        "many": lambda xs: [x + 1 for x in xs],
        "write": write_double,
    }
    for name, kernel in kernels.items():
        made.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"pxtest::{name}", kernel, lib=made)
    made.impl("composite", lambda x: (x * 2).relu(), "CompositeImplicitAutograd")
    yield
    made._destroy()


@contextmanager
def registered(name: str, function: Callable[..., Any], opset: int = 9) -> Iterator[None]:
    purexport.register_custom_op_symbolic(name, function, opset)
    try:
        yield
    finally:
        purexport.unregister_custom_op_symbolic(name, opset)


class Foo(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.pxtest.foo(x, x + 1, 2.0, [3, 4]) * 2


class Parts(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = torch.ops.pxtest.parts(x, 1)
        return a + 1, b


class Many(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.ops.pxtest.many([x, x * 2])
        return found[0] - found[1]


class Composite(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.pxtest.composite(x) + 1


class Elu(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.elu(x, 0.5)


class Write(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch.ops.pxtest.write(x)
        return x


def export(module: torch.nn.Module, route: str, **options: Any) -> purexport.ONNXProgram:
    model = torch.jit.script(module) if route == "script" else module
    return purexport.export(model, (X,), capture="auto" if route == "script" else route, input_names=["x"], **options)


def nodes(program: purexport.ONNXProgram) -> list[str]:
    graph = program.model_proto.graph
    assert graph is not None
    return [f"{node.domain}::{node.op_type}" if node.domain else node.op_type or "" for node in graph.node]


@parse_args("v", "v", "f", "is", "s", "none")
def real_foo(g: Any, x: Any, y: Any, a: float, shape: list[int], mode: str, n: None) -> Any:
    return g.op("Sum", g.op("Mul", x, g.op("Constant", value_t=torch.tensor(a))), y)


@parse_args("v", "v", "f", "is", "s", "i")
def custom_foo(g: Any, x: Any, y: Any, a: float, shape: list[int], mode: str, n: int | None) -> Any:
    return g.op("my::Foo", x, y, a_f=a, shape_i=shape, mode_s=mode, n_i=n)


@parse_args("v", "i")
def real_parts(g: Any, x: Any, count: int) -> Any:
    rest = x.type().varyingSizes()[0] - count
    first, _ = g.op("Split", x, split_i=[count, rest], axis_i=0, outputs=2)
    return first, g.op("Cast", g.op("Abs", x), to_i=7)


def real_many(g: Any, xs: Any) -> Any:
    return [g.op("Add", x, 1.0) for x in _unpack_list(xs)]


def documents_elu(g: Any, input: Any, alpha: Any, inplace: Any = False) -> Any:
    return g.op("Elu", input, alpha_f=_scalar(alpha))


def summed_elu(g: Any, x: Any, alpha: Any) -> Any:
    return g.op("Sum", g.op("Elu", x, alpha_f=alpha), _if_scalar_type_as(0, x))


def squeezed_elu(g: Any, x: Any, alpha: Any) -> Any:
    wider = _unsqueeze_helper(g, x, [0])
    return _squeeze_helper(g, g.op("Elu", wider, alpha_f=alpha), [0])


# module, its operator, the symbolic function, an operator that shows that it ran; every route, against torch
RUN = [
    ("attributes", Foo, "pxtest::foo", real_foo, "Sum"),
    ("several-results", Parts, "pxtest::parts", real_parts, "Split"),
    ("lists", Many, "pxtest::many", real_many, "Add"),
    ("composite", Composite, "pxtest::composite", lambda g, x: g.op("Relu", g.op("Sum", x, x)), "Sum"),
    ("aten", Elu, "aten::elu", documents_elu, "Elu"),
    ("varargs", Elu, "aten::elu", lambda g, *args: g.op("Max", g.op("Elu", args[0], alpha_f=args[1])), "Max"),
    ("number-as-tensor", Elu, "aten::elu", summed_elu, "Sum"),
    ("helper-nodes", Elu, "aten::elu", squeezed_elu, "Squeeze"),
]  # fmt: skip


@pytest.mark.parametrize(("route", "opset"), in_turn(ROUTES, [9, 13, 20]))
@pytest.mark.parametrize(("module", "name", "symbolic", "shows"), [r[1:] for r in RUN], ids=[r[0] for r in RUN])
def test_symbolics_run(module: Any, name: str, symbolic: Any, shows: str, route: str, opset: int) -> None:
    with registered(name, symbolic):
        program = export(module(), route, opset_version=opset)
    assert shows in nodes(program)
    expected = module()(X)
    for mine, theirs in zip(program(X), [expected] if torch.is_tensor(expected) else expected, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("route", ROUTES)
def test_dynamic_axes(route: str) -> None:
    with registered("pxtest::foo", real_foo):
        program = export(Foo(), route, dynamic_axes={"x": {0: "n"}})
    other = torch.cat([X, X])
    torch.testing.assert_close(program(other)[0], Foo()(other))


@pytest.mark.parametrize("route", ROUTES)
def test_a_custom_node(route: str) -> None:
    with registered("pxtest::foo", custom_foo):
        program = export(Foo(), route)
        chosen = export(Foo(), route, custom_opsets={"my": 3})
    assert nodes(program) == ["Add", "my::Foo", "Mul"]
    node = program.model_proto.graph.node[1]  # type: ignore[union-attr]
    assert {item.name: item.f or item.ints or item.s for item in node.attribute} == {
        "a": 2.0,
        "shape": [3, 4],
        "mode": b"plain",
    }
    assert [(item.domain, item.version) for item in program.model_proto.opset_import] == [("", 20), ("my", 1)]
    assert [(item.domain, item.version) for item in chosen.model_proto.opset_import] == [("", 20), ("my", 3)]


def test_nodes_without_a_domain_and_of_aten() -> None:
    warned = pytest.warns(UserWarning, match="Foo is not an operator of ONNX; name its domain")
    with registered("pxtest::foo", lambda g, x, y, *_: g.op("Foo", x, g.at("cumsum", y, dim_i=0))), warned:
        program = export(Foo(), "trace")
    assert nodes(program) == ["Add", "org.pytorch.aten::ATen", "Foo", "Mul"]


def test_custom_nodes_are_never_merged() -> None:
    with registered("pxtest::foo", lambda g, x, *_: g.op("Add", g.op("Noise", x), g.op("Noise", x))):
        assert nodes(export(Foo(), "trace")).count("Noise") == 2


# what stands in the table, by what key
def table_rule(op: Any, x: Any, y: Any, a: float, *rest: Any) -> Any:
    return op.Sum(op.Mul(x, a), y)


TABLES = [
    ("name", lambda: {"pxtest::foo": table_rule}),
    ("packet", lambda: {torch.ops.pxtest.foo: table_rule}),
    ("overload", lambda: {torch.ops.pxtest.foo.default: table_rule}),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("table", [row[1] for row in TABLES], ids=[row[0] for row in TABLES])
def test_the_translation_table(table: Any, route: str) -> None:
    with registered("pxtest::foo", custom_foo):  # the table goes first
        program = export(Foo(), route, custom_translation_table=table())
    assert "Sum" in nodes(program)
    torch.testing.assert_close(program(X)[0], Foo()(X))


# table, error, its words
WRONG_TABLES = [
    ({3: table_rule}, TypeError, "has the key 3; give 'ns::op'"),
    ({"pxtest::foo": []}, TypeError, "gives pxtest::foo a list; give a function of"),
    ({"pxtest::foo": [table_rule, "a"]}, TypeError, "gives pxtest::foo a str; give a function of"),
    ({float: table_rule}, TypeError, "has the key <class 'float'>; give 'ns::op'"),
    ({"pxtest::foo": 3}, TypeError, "gives pxtest::foo a int; give a function of"),
    ({"pxtest::foo": lambda op, *_: 1 / 0}, purexport.ExportError, "gives pxtest::foo at .* failed: ZeroDivisionError"),
    ({"pxtest::foo": lambda op, x: x}, purexport.ExportError, r"gives pxtest::foo at .* failed: TypeError"),
]


@pytest.mark.parametrize(("table", "kind", "text"), WRONG_TABLES, ids=[row[2][:20] for row in WRONG_TABLES])
def test_a_wrong_table(table: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        export(Foo(), "trace", custom_translation_table=table)


def said_by(symbolics: Mapping[str, int], asked: int, **options: Any) -> list[str]:
    """The warnings of an export of Foo, with symbolic functions that are registered at these opsets."""
    with ExitStack() as stack, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name, opset in symbolics.items():
            stack.enter_context(registered(name, lambda g, x, y, *_: g.op("Mull", x, y), opset))
        export(Foo(), "trace", opset_version=asked, **options)
    return [str(item.message) for item in caught]


# registered at, asked opset, the table, words of the only warning
IDLE: list[tuple[dict[str, int], int, dict[str, Any], str]] = [
    ({"pxtest::foo": 9, "aten::no_such": 9, "pxelsewhere::bar": 9}, 20, {"pxtest::foo": table_rule}, "no_such did not"),
    ({"pxtest::foo": 9}, 20, {}, r"Mull is not an operator of ONNX; did you mean Mul\? If not, name its domain"),
    ({"pxtest::fooo": 9}, 20, {"pxtest::foo": table_rule}, "pxtest::fooo did not run.*; did you mean pxtest::foo"),
    ({"aten::add": 18}, 17, {"pxtest::foo": table_rule}, "aten::add did not run.* registered from opset 18 on, and"),
    ({}, 20, {"pxtest::foo": table_rule, "aten::mull": table_rule}, "has aten::mull, which .* mean aten::mul"),
]


@pytest.mark.parametrize(("symbolics", "asked", "table", "text"), IDLE, ids=[row[3][:20] for row in IDLE])
def test_what_did_not_run_is_a_warning(symbolics: dict[str, int], asked: int, table: dict[str, Any], text: str) -> None:
    (said,) = said_by(symbolics, asked, custom_translation_table=table)
    assert re.search(text, said)


def test_functions_for_other_models_are_no_warning() -> None:
    assert said_by({"aten::hardswish": 9}, 20, custom_translation_table={"pxtest::foo": table_rule}) == []


def test_an_empty_namespace_is_that_of_aten() -> None:
    with registered("::elu", lambda g, x, *_: g.op("my::Elu", x)):
        assert nodes(export(Elu(), "trace")) == ["my::Elu"]
    assert nodes(export(Elu(), "trace")) == ["Elu"]


SECOND_NAMES: list[tuple[str, Callable[..., Any], tuple[str, ...]]] = [
    # what is registered, a model that calls it by that name, the routes that record it by another or this one
    ("::inverse", torch.inverse, ("trace", "export")),
    ("aten::det", torch.det, ("trace", "export")),
    ("aten::clip", lambda x: torch.clip(x, 0, 1), ("trace", "export")),
    ("aten::true_divide", lambda x: torch.true_divide(x, 2), ("trace", "export")),
    ("aten::__and_", lambda x: (x > 0) & (x < 1), ("trace",)),  # as torch.onnx has it
]


@pytest.mark.parametrize(("name", "model", "routes"), SECOND_NAMES, ids=[row[0] for row in SECOND_NAMES])
def test_an_operator_with_two_names(name: str, model: Callable[..., Any], routes: tuple[str, ...]) -> None:
    with registered(name, lambda g, x, *_: g.op("my::Hit", x)):
        for route in routes:
            program = purexport.export(lambda x: model(x), (torch.eye(3),), capture=route)
            assert nodes(program)[-1] == "my::Hit"


def test_what_is_registered_for_the_recorded_name_goes_first() -> None:
    with (
        registered("::inverse", lambda g, x: g.op("my::A", x)),
        registered("::linalg_inv", lambda g, x: g.op("my::B", x)),
    ):
        for route, kind in (("trace", "my::A"), ("export", "my::A")):
            assert nodes(purexport.export(lambda x: torch.inverse(x), (torch.eye(3),), capture=route)) == [kind]


@pytest.mark.parametrize("name", RECORDED_AS)
def test_second_names_have_the_arguments_of_the_first(name: str) -> None:
    def arguments(base: str) -> list[list[str]]:
        packet = getattr(torch.ops.aten, base.removeprefix("aten::"))
        schemas = [getattr(packet, overload)._schema for overload in packet.overloads() if "out" not in overload]
        return [[str(item.type) for item in schema.arguments] for schema in schemas]

    assert [found for found in arguments(name) if found not in arguments(RECORDED_AS[name])] == []
    if ["Tensor"] in arguments(name):
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
        trace = torch.jit.trace(lambda x: packet(x), torch.eye(3) * 0.5, check_trace=False)
        assert RECORDED_AS[name] in [node.kind() for node in trace.graph.nodes()]


NUMBERS = [
    # the model's dtype, a constant of the symbolic function, whether it takes the model's dtype as in torch.onnx
    (torch.float32, torch.tensor(0.5, dtype=torch.float64), True),
    (torch.float16, torch.tensor(0.5), True),
    (torch.float64, torch.tensor(2), True),
    (torch.int32, torch.tensor(2), True),
    (torch.int64, torch.tensor(0.5), False),  # torch promotes, and the operator has one type
    (torch.float64, torch.tensor([0.5]), False),  # a tensor, no number
]


@pytest.mark.parametrize(("dtype", "number", "fits"), NUMBERS)
def test_numbers_take_the_dtype_of_the_tensor(dtype: torch.dtype, number: torch.Tensor, fits: bool) -> None:
    def doubled(g: Any, x: Any) -> Any:
        return g.op("Mul", x, g.op("Constant", value_t=number))

    model: Any = lambda x: torch.ops.pxtest.composite(x)  # noqa: E731
    with registered("pxtest::composite", doubled):
        if not fits:
            with pytest.raises(purexport.ExportError, match=r"ONNX Mul .* wants one type for T, and got"):
                purexport.export(model, (X.to(dtype),))
            return
        program = purexport.export(model, (X.to(dtype),))
    (got,) = program(X.to(dtype))
    assert_near(got, X.to(dtype) * number, EXACT)


@pytest.mark.parametrize("route", ROUTES)
def test_a_composite_is_taken_apart(route: str) -> None:
    program = export(Composite(), route)
    assert nodes(program) == ["Mul", "Relu", "Add"]
    torch.testing.assert_close(program(X)[0], Composite()(X))


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_rule_the_ways_out_are_named(route: str) -> None:
    with pytest.raises(purexport.UnsupportedOperatorError) as caught:
        export(torch.nn.Sequential(Foo()), route)
    for words in (
        "pxtest::foo",
        "test_custom_operators.py:",
        "register_custom_op_symbolic",
        "custom_translation_table",
        "ONNX_FALLTHROUGH",
    ):
        assert words in str(caught.value)


def test_the_python_decorator() -> None:
    @torch.library.custom_op("pxdecorated::twice", mutates_args=())
    def twice(x: torch.Tensor, times: int = 2) -> torch.Tensor:
        return x * times

    twice.register_fake(lambda x, times=2: torch.empty_like(x))

    def double(g: Any, x: Any, times: Any) -> Any:
        return g.op("Mul", x, g.op("Cast", times, to_i=1))

    try:
        with registered("pxdecorated::twice", double):
            for route in ("trace", "export"):
                program = purexport.export(lambda x: twice(x, 3), (X,), capture=route)
                torch.testing.assert_close(program(X)[0], X * 3)
    finally:
        twice._lib._destroy()


# symbolic function, the words of the refusal
REFUSED = [
    (lambda g, x, y: x, "with a=<onnx::Constant: FloatType> has a symbolic function that takes only 2 arguments"),
    (lambda g, x, y, a, shape, mode, n: g.op("Elu", x, alpha_f=y), "an attribute must be known"),
    (lambda g, x, y, a, shape, mode, n: g.op("my::A", mode), "a node takes values and numbers, not str"),
    (lambda g, *_: 1 / 0, "failed: ZeroDivisionError: division by zero"),
    (lambda g, x, *_: (x, x), "gives 2 results, and the operator gives one"),
    (lambda g, x, *_: g.op("Shape", x), "gives tensor(int64) where torch gives tensor(float)"),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("symbolic", "text"), REFUSED, ids=[row[1][:25] for row in REFUSED])
def test_a_wrong_symbolic_is_named(symbolic: Any, text: str, route: str) -> None:
    with registered("pxtest::foo", symbolic), pytest.raises(purexport.ExportError) as caught:
        export(Foo(), route)
    assert text in str(caught.value)
    assert "pxtest::foo" in str(caught.value)
    assert "test_custom_operators.py:" in str(caught.value)


@pytest.mark.parametrize("route", ["trace", "script"])
def test_an_operator_that_writes_is_refused(route: str) -> None:
    with registered("pxtest::write", lambda g, x: None), pytest.raises(purexport.ExportError, match="pxtest::write"):
        export(Write(), route)


# Registries -----------------------------------------------------------------------------------------------------------

# registered at, asked opset, which one applies (None: our own rule)
VERSIONS = [((9,), 9, 9), ((9,), 20, 9), ((9, 13), 12, 9), ((9, 13), 13, 13), ((13,), 12, None)]


@pytest.mark.parametrize(("registered_at", "asked", "applies"), VERSIONS)
def test_versions(registered_at: tuple[int, ...], asked: int, applies: int | None) -> None:
    for opset in registered_at:
        purexport.register_custom_op_symbolic("aten::elu", lambda g, x, *_, v=opset: g.op(f"my::V{v}", x), opset)
    try:
        assert nodes(export(Elu(), "trace", opset_version=asked)) == (
            ["Elu"] if applies is None else [f"my::V{applies}"]
        )
    finally:
        for opset in registered_at:
            purexport.unregister_custom_op_symbolic("aten::elu", opset)
    assert nodes(export(Elu(), "trace", opset_version=asked)) == ["Elu"]


MISUSED = [
    (("foo", print, 9), ValueError, "'foo' is not an operator name"),
    (("a b::foo", print, 9), ValueError, "is not an operator name"),
    (("my::foo", print, 0), ValueError, "opset_version=0 is not an opset"),
    (("my::foo", print, "9"), ValueError, "opset_version='9' is not an opset"),
    (("my::foo", 3, 9), TypeError, "is a int, no function"),
]


@pytest.mark.parametrize(("args", "kind", "text"), MISUSED, ids=[row[2] for row in MISUSED])
def test_registering_wrongly(args: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        purexport.register_custom_op_symbolic(*args)
    assert "my::foo" not in REGISTRY.at(20)


def test_unregistering_what_is_not_there() -> None:
    with pytest.warns(UserWarning, match="no symbolic function is registered for my::foo at opset 9"):
        purexport.unregister_custom_op_symbolic("my::foo", 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with registered("my::foo", print):
            assert REGISTRY.at(9)["my::foo"] is print
    assert REGISTRY.at(20) == {}


def test_a_failed_export_leaves_everything() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(), Foo()).train()
    before, hooks = torch.get_rng_state(), len(model._forward_hooks)
    with registered("pxtest::foo", lambda g, *_: 1 / 0):
        known = REGISTRY.at(20)
        for route in ("trace", "export"):
            with pytest.raises(purexport.ExportError, match="division by zero"):
                export(model, route)
        assert REGISTRY.at(20) == known
    assert all(module.training for module in model.modules())
    assert len(model._forward_hooks) == hooks
    assert torch.equal(before, torch.get_rng_state())
    assert not purexport.is_in_onnx_export()


# purexport.operators --------------------------------------------------------------------------------------------------


class Shapes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = purexport.operators.shape_as_tensor(x)
        return purexport.operators.reshape_from_tensor_shape(x.t() + shape.sum(), shape)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("route", ROUTES)
def test_shapes_as_tensors(route: str, dynamic: bool) -> None:
    program = export(Shapes(), route, dynamic_axes={"x": {0: "n", 1: "m"}} if dynamic else None)
    inputs = [X, torch.ones(5, 7)] if dynamic else [X]
    for x in inputs:
        torch.testing.assert_close(program(x)[0], Shapes()(x))


class Written(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = purexport.operators.shape_as_tensor(x)
        shape[0] = shape[0] * shape[1]
        shape[1] = 1
        return purexport.operators.reshape_from_tensor_shape(x, shape) + 1


class Given(torch.nn.Module):
    def forward(self, x: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
        return purexport.operators.reshape_from_tensor_shape(x, shape) * 2


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_shape_that_is_written_to(route: str, dynamic: bool) -> None:
    program = export(Written(), route, dynamic_axes={"x": {0: "n"}} if dynamic else None)
    x = torch.ones(5, 3) if dynamic else X
    torch.testing.assert_close(program(x)[0], Written()(x))


@pytest.mark.parametrize("route", ROUTES)
def test_a_shape_that_is_given(route: str) -> None:
    model: Any = torch.jit.script(Given()) if route == "script" else Given()
    capture = "auto" if route == "script" else route
    program = purexport.export(model, (X, torch.tensor([3, 2])), capture=capture)
    for shape in (torch.tensor([3, 2]), torch.tensor([1, 6])):
        torch.testing.assert_close(program(X, shape)[0], Given()(X, shape))


@pytest.mark.parametrize("route", ROUTES)
def test_a_shape_is_int64(route: str) -> None:
    class Shape(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return purexport.operators.shape_as_tensor(x)

    program = export(Shape(), route, dynamic_axes={"x": {0: "n"}})
    assert torch.equal(program(torch.ones(5, 3))[0], torch.tensor([5, 3]))


# The documents' C++ operator ------------------------------------------------------------------------------------------

SOURCE = """
#include <torch/library.h>
#include <ATen/ATen.h>
at::Tensor foo_forward(const at::Tensor& x, const at::Tensor& y, double a, int64_t b) { return x * a + y * b; }
TORCH_LIBRARY(custom_ops, m) { m.def("foo_forward(Tensor x, Tensor y, float a, int b) -> Tensor", foo_forward); }
"""


@pytest.mark.sweep
@pytest.mark.skipif(shutil.which("g++") is None, reason="a C++ compiler is needed, and this machine has none")
def test_the_operator_in_cpp(tmp_path: Any) -> None:
    from torch.utils import cpp_extension

    source = tmp_path / "foo.cpp"
    source.write_text(SOURCE)
    cpp_extension.load("pxtest_foo", [str(source)], build_directory=str(tmp_path), is_python_module=False)

    class FooModel(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.ops.custom_ops.foo_forward(x, y, 0.5, 3)

    @parse_args("v", "v", "f", "i")
    def symbolic_foo_forward(g: Any, x: Any, y: Any, attr1: float, attr2: int) -> Any:
        return g.op("custom_domain::Foo", x, y, attr1_f=attr1, attr2_i=attr2)

    with registered("custom_ops::foo_forward", symbolic_foo_forward):
        for route in ("trace", "export"):
            program = purexport.export(FooModel(), (X, X), capture=route, custom_opsets={"custom_domain": 2})
            assert nodes(program) == ["custom_domain::Foo"]
