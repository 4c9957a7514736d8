"""Autograd Functions with a static `symbolic`: one call on every route, written by `g` as the documents say."""

from __future__ import annotations

import threading
import warnings
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch.autograd import function as autograd

import proto_schema as ps
import purexport
from purexport import symbolic_helper
from purexport.compat.symbolic.values import SymbolicValue
from purexport.graph.ir import Value as Tensor
from tests.tiers import dealt

ROUTES = ("trace", "export")


class Scaled(torch.autograd.Function):
    """`relu(x) + y * alpha`, written with operators of ONNX."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
        return x.relu() + y[: x.shape[1]] * alpha

    @staticmethod
    def symbolic(g: Any, x: Any, y: Any, alpha: float) -> Any:
        # not what forward's operators would give: LeakyRelu of slope 0 shows that the symbolic was asked
        return g.op(
            "Add", g.op("LeakyRelu", x, alpha_f=0.0), g.op("Mul", y, g.op("Constant", value_t=torch.tensor(alpha)))
        )


class Halves(torch.autograd.Function):
    """Two results of two dtypes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, count: int) -> Any:
        return x[:, :count], x.argmax(1)

    @staticmethod
    def symbolic(g: Any, x: Any, count: int) -> Any:
        first, _ = g.op("Split", x, split_i=[count, x.type().varyingSizes()[1] - count], axis_i=1, outputs=2)
        return first, g.op("ArgMax", x, axis_i=1, keepdims_i=0)


class Same(torch.autograd.Function):
    """Gives its argument back, which is a copy in the graph."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Identity", x)


class Sized(torch.autograd.Function):
    """Takes a size, which a dynamic axis makes a value, and a list of tensors."""

    @staticmethod
    def forward(ctx: Any, count: int, tensors: Any) -> torch.Tensor:
        return torch.cat(list(tensors)) * count

    @staticmethod
    def symbolic(g: Any, count: Any, tensors: Any) -> Any:
        joined = g.op("Concat", *tensors, axis_i=0)
        return g.op("Mul", joined, g.op("Cast", count, to_i=1))


class Outer(torch.autograd.Function):
    """Applies another Function, which is then part of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return Same.apply(x) * 2

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Add", x, x)


class Separate(torch.autograd.Function):
    """Has its context in a method of its own, and an argument with a default."""

    @staticmethod
    def forward(x: torch.Tensor, count: int = 2) -> torch.Tensor:
        return x * count

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.count = inputs[1]

    @staticmethod
    def symbolic(g: Any, x: Any, count: int) -> Any:
        return g.op("Sum", *[x] * count)


class Heir(Same):
    """Has its forward from another Function."""

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Neg", g.op("Neg", x))


class Borrowing(torch.autograd.Function):
    """Without a symbolic. It calls the forward of a Function that has one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return Scaled.forward(ctx, x, y, 2.0)


class Inlined(torch.autograd.Function):
    """Without a symbolic: what forward computes is in the graph."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0) * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


BOUND = Scaled.apply  # taken before any export, as most models do
OTHERS = [function.apply for function in (Separate, Heir, Halves, Outer, Borrowing)]


class Model(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, self.weight)


X = torch.tensor([[1.0, -2.0, 3.0, -4.0], [0.5, 0.25, -0.125, 8.0], [0.0, -1.0, 1.0, 2.0]])

# name, function of x and a parameter, operators that only the symbolic writes, and those that only forward would
RUN = [
    ("number", lambda x, w: Scaled.apply(x, w, 2.5), {"LeakyRelu"}, {"Relu"}),
    ("bound", lambda x, w: BOUND(x, w, 0.5) + 1, {"LeakyRelu"}, {"Relu"}),
    ("twice", lambda x, w: BOUND(BOUND(x, w, 0.5), w, 2.0), {"LeakyRelu"}, {"Relu"}),
    ("two-results", lambda x, w: Halves.apply(x, 3), {"Split", "ArgMax"}, {"Slice"}),
    ("one-of-two", lambda x, w: Halves.apply(x, 1)[0] * w[0], {"Split"}, {"Slice", "ArgMax"}),
    ("argument-back", lambda x, w: Same.apply(x) + w, {"Identity"}, set()),
    ("list", lambda x, w: Sized.apply(3, [x, x + w]), {"Concat"}, set()),
    ("nested", lambda x, w: Outer.apply(x), {"Add"}, {"Identity", "Mul"}),
    ("bound-of-setup", lambda x, w: OTHERS[0](x) + OTHERS[0](w, 3), {"Sum"}, {"Mul"}),
    ("bound-heir", lambda x, w: OTHERS[1](x) + w, {"Neg"}, {"Identity"}),
    ("bound-results", lambda x, w: OTHERS[2](x, 3), {"Split", "ArgMax"}, {"Slice"}),
    ("bound-nested", lambda x, w: OTHERS[3](x), {"Add"}, {"Identity", "Mul"}),
    ("bound-borrowing", lambda x, w: OTHERS[4](x, w), {"Relu"}, {"LeakyRelu"}),
    ("inlined", lambda x, w: Inlined.apply(x + w), {"Mul"}, set()),
]


def operators_of(program: purexport.ONNXProgram) -> list[str]:
    graph = program.model_proto.graph
    assert graph is not None
    return [node.op_type or "" for node in graph.node]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("function", "has", "lacks"), [row[1:] for row in RUN], ids=[row[0] for row in RUN])
def test_functions_run(function: Any, has: set[str], lacks: set[str], route: str, dynamic: bool) -> None:
    axes = {"x": {0: "batch"}} if dynamic else None
    program = purexport.export(Model(function), (X,), input_names=["x"], dynamic_axes=axes, capture=route, verify=True)
    found = set(operators_of(program))
    assert has <= found
    assert not lacks & found
    if dynamic:
        other = torch.cat([X, X.flip(0)])[:5]
        expected = Model(function)(other)
        for mine, theirs in zip(program(other), [expected] if torch.is_tensor(expected) else expected, strict=True):
            torch.testing.assert_close(mine, theirs.detach())


@pytest.mark.parametrize("route", ROUTES)
def test_a_dynamic_size_is_a_value(route: str) -> None:
    model = Model(lambda x, w: Sized.apply(x.shape[0], [x, x + w]))
    program = purexport.export(model, (X,), input_names=["x"], dynamic_axes={"x": {0: "n"}}, capture=route)
    torch.testing.assert_close(program(X[:2])[0], model(X[:2]).detach())


SEEN: dict[str, Any] = {}


class Asked(Scaled):
    @staticmethod
    def symbolic(g: Any, x: Any, y: Any, alpha: float) -> Any:
        type_ = x.type()
        SEEN.update(sizes=type_.sizes(), rank=type_.dim(), dtype=type_.scalarType(), torch=type_.dtype(), alpha=alpha)
        SEEN.update(varying=type_.varyingSizes(), kind=x.node().kind(), weight=y.node().kind(), opset=g.opset)
        made = g.op("my::Made", x, y, alpha_f=alpha, shape_i=(1, 2), name_s="n", value_t=torch.ones(2), on_i=True)
        SEEN.update(made=made.node().kind(), shape=made.node()["shape"], inputs=len(list(made.node().inputs())))
        return made.setType(type_.with_sizes([None, 4]))


@pytest.mark.parametrize("route", ROUTES)
def test_what_a_symbolic_sees_and_writes(route: str) -> None:
    model = Model(lambda x, w: Asked.apply(x.t(), w, 3))
    program = purexport.export(model, (X,), opset_version=17, custom_opsets={"other": 4}, capture=route)
    assert {
        "sizes": [4, 3],
        "rank": 2,
        "dtype": "Float",
        "torch": torch.float32,
        "alpha": 3,
        "varying": [4, 3],
        "kind": "onnx::Transpose",
        "weight": "prim::Param",
        "opset": 17,
        "made": "my::Made",
        "shape": [1, 2],
        "inputs": 2,
    } == SEEN
    graph = program.model_proto.graph
    assert graph is not None
    node = graph.node[-1]
    kinds = {item.name: ps.AttributeProto.AttributeType(item.type or 0).name for item in node.attribute}
    assert (node.domain, node.op_type) == ("my", "Made")
    assert kinds == {"alpha": "FLOAT", "shape": "INTS", "name": "STRING", "value": "TENSOR", "on": "INT"}
    imports = {item.domain: item.version for item in program.model_proto.opset_import}
    assert imports == {"": 17, "my": 1, "other": 4}


class Branching(Same):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        with g.block() as one:
            one.outputs(g.op("Neg", x))
        with g.block() as other:
            other.outputs(g.op("Abs", x))
        condition = g.op("Constant", value_t=torch.tensor(False))
        return g.op("If", condition, then_branch_g=one.graph, else_branch_g=other.graph)


def test_a_symbolic_writes_branches() -> None:
    program = purexport.export(lambda x: Branching.apply(x), (X,))
    torch.testing.assert_close(program(X)[0], X.abs())


def failing(text: str, symbolic: Any) -> Any:
    made = type("Failing", (Scaled,), {"symbolic": staticmethod(symbolic), "__qualname__": "Failing"})
    return pytest.param(made, text, id=text[:30])


def computed(g: Any, x: Any, y: Any, alpha: Any) -> Any:
    return symbolic_helper.parse_args("v", "i", "v")(lambda g, x, y, alpha: x)(g, x, g.op("Abs", x), alpha)


REFUSED = [
    failing(
        "Failing at the model (FILE) failed: RuntimeError: boom", lambda *_: (_ for _ in ()).throw(RuntimeError("boom"))
    ),
    failing(
        "KeyError: 'no_such_name'",
        lambda g, x, y, a: import_module("torch.onnx.symbolic_opset9").softmax(g, x, {}["no_such_name"]),
    ),
    failing("gives 2 results, and its forward gives 1", lambda g, x, y, a: (x, y)),
    failing(
        "gives tensor(int64) where torch gives tensor(float); cast the result in it",
        lambda g, x, y, a: g.op("Cast", x, to_i=7),
    ),
    failing("the attribute 'alpha' has no suffix", lambda g, x, y, a: g.op("Elu", x, alpha=1.0)),
    failing("the attribute 'alpha_f' does not take 'one'", lambda g, x, y, a: g.op("Elu", x, alpha_f="one")),
    failing(
        "the attribute 'axis_i' does not take 1.5: it is not an integer",
        lambda g, x, y, a: g.op("Flatten", x, axis_i=1.5),
    ),
    failing("the attribute 'to_s' does not take 7: it is not text", lambda g, x, y, a: g.op("my::A", x, to_s=7)),
    failing("the attribute 'b_g' is a graph", lambda g, x, y, a: g.op("my::A", x, b_g=7)),
    failing("the attribute 'alpha_f' is a value that the graph computes", lambda g, x, y, a: g.op("Elu", x, alpha_f=y)),
    failing("Elu takes one value as 'alpha', not [1.0]", lambda g, x, y, a: g.op("Elu", x, alpha_f=[1.0])),
    failing("Transpose takes a list as 'perm', not 1", lambda g, x, y, a: g.op("Transpose", x, perm_i=1)),
    failing("a node takes values and numbers, not str", lambda g, x, y, a: g.op("my::A", x, "text")),
    failing("_unpack_list", lambda g, x, y, a: g.op("my::A", g.op("prim::ListConstruct", x, y))),
    failing("writes prim::Loop, which is not an operator of a file", lambda g, x, y, a: g.op("prim::Loop", x)),
    failing("gives a str where it should give a value of g", lambda g, x, y, a: "text"),
    failing("Constant takes one value, and got none", lambda g, x, y, a: g.op("Constant")),
    failing("no opset has it", lambda g, x, y, a: g.op("Upsample", x, scales_f=[1.0, 1.0])),
    failing("wants 'y' known at the export, by parse_args 'i', and the model computes it", computed),
    failing(
        "is refused by the symbolic function of foo: only floats",
        lambda g, *_: symbolic_helper._unimplemented("foo", "only floats"),
    ),
    failing("takes a result that a symbolic function leaves out (None)", lambda g, x, y, a: None),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("function", "text"), REFUSED)
def test_a_wrong_symbolic_is_named(function: Any, text: str, route: str) -> None:
    model = Model(lambda x, w: function.apply(x, w, 1.0) + 1)
    with pytest.raises(purexport.ExportError) as caught:
        purexport.export(model, (X,), capture=route)
    for piece in text.split("FILE"):
        assert piece in str(caught.value)
    assert "test_symbolic.py:" in str(caught.value)
    assert "please report it" not in str(caught.value)


class Writing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Abs", x)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Sum", x, x)


TWICE = Twice.apply


class Unused(torch.autograd.Function):
    """Was told to torch's compiler by the user; that stays."""

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return x


def in_cond(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: Twice.apply(x), lambda x: x - 1, (x,))


def in_cond_stored(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: TWICE(x), lambda x: x - 1, (x,))


def in_loop(x: torch.Tensor, w: torch.Tensor) -> Any:
    def step(i: torch.Tensor, x: torch.Tensor) -> Any:
        return i + 1, Twice.apply(x)

    return torch._higher_order_ops.while_loop(lambda i, x: i < 3, step, (torch.tensor(0), x))


def in_scan(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch._higher_order_ops.scan(lambda c, row: (c + Twice.apply(row), c * 2), torch.zeros(4), x)


def in_map(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch._higher_order_ops.map(lambda row: Twice.apply(row) + 1, x)


def in_checkpoint(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch.utils.checkpoint.checkpoint(lambda x: Twice.apply(x) + 1, x, use_reentrant=False)


BODIES = [in_cond, in_cond_stored, in_loop, in_scan, in_map, in_checkpoint]


@pytest.mark.parametrize("function", dealt(BODIES, 3, [item.__name__ for item in BODIES]))
def test_functions_inside_bodies(function: Any) -> None:
    """torch compiles these bodies, and would take the Function apart."""
    from torch._dynamo import trace_rules

    allowed: Any = trace_rules._allowed_callable_ids
    torch.compiler.allow_in_graph(Unused)
    before = set(allowed())
    program = purexport.export(Model(function), (X,), capture="export", verify=True)
    assert allowed() == before and id(Unused) in before
    text = ps.dumps(program.model_proto)
    assert text.count(b"Sum") > text.count(b"ReduceSum"), "the symbolic was asked"


@pytest.mark.parametrize("route", ROUTES)
def test_a_function_that_writes_is_refused(route: str) -> None:
    with pytest.raises(purexport.ExportError, match="Function Writing writes to its argument"):
        purexport.export(lambda x: Writing.apply(x * 2), (X,), capture=route)


def test_nothing_stays_behind() -> None:
    model = Model(lambda x, w: REFUSED[0].values[0].apply(x, w + torch.rand(()), 1.0))  # type: ignore[attr-defined]
    before = torch.get_rng_state()
    for _ in range(2):
        with pytest.raises(purexport.ExportError, match="boom"):
            purexport.export(model, (X,))
    assert model.training
    assert "apply" not in vars(autograd._SingleLevelFunction)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(Scaled.apply(X, X, 1.0), X.relu() + X)
    assert "forward" not in vars(Heir) and Heir.forward is Same.forward
    with pytest.raises(RuntimeError, match="during an export only"):
        torch.ops.purexport_autograd.function([X], [], 0)


LINEAR = torch.nn.Linear(4, 4)


def test_two_threads_at_once() -> None:
    found: dict[int, Any] = {}
    start = threading.Barrier(2)

    def work(number: int) -> None:
        start.wait()
        try:
            for round_ in range(3):
                route = ROUTES[(number + round_) % 2]
                model = torch.nn.Sequential(LINEAR, Model(lambda x, w: Scaled.apply(x, w, float(number + 1))))
                found[number] = purexport.export(model, (X,), capture=route, verify=True)
                assert model.training
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            # a model that runs meanwhile sees plain Functions
            assert torch.equal(BOUND(X, X, 1.0), X.relu() + X)
        for thread in threads:
            thread.join()
    for number in range(2):
        assert isinstance(found[number], purexport.ONNXProgram), found[number]
        names = [item.name for item in found[number].model_proto.graph.initializer]
        assert "0.weight" in names
        expected = Scaled.apply(LINEAR(X), torch.linspace(-1, 1, 4), float(number + 1)).detach()
        torch.testing.assert_close(found[number](X)[0], expected)
    assert torch.jit._trace._trace_module_map is None


# parse_args and its friends: descriptor, what is known, what comes out (or the error's words)
PARSED = [
    ("i", 3, 3),
    ("i", 3.0, 3),
    ("i", torch.tensor(4), 4),
    ("i", 3.5, "3.5 is not an integer"),
    ("f", 3, 3.0),
    ("b", 1, True),
    ("s", "text", "text"),
    ("s", 1, "1 is not text"),
    ("is", [1, 2], [1, 2]),
    ("is", torch.tensor([1, 2]), [1, 2]),
    ("fs", [1, 2], [1.0, 2.0]),
    ("none", None, None),
    ("i", None, None),
    ("none", 1, "takes None only"),
]


@pytest.mark.parametrize(("kind", "known", "expected"), PARSED, ids=[f"{row[0]}-{row[1]}" for row in PARSED])
def test_parse_args(kind: str, known: Any, expected: Any) -> None:
    @symbolic_helper.parse_args("v", kind)
    def function(g: Any, x: Any, number: Any) -> Any:
        return number

    value = SymbolicValue(known=known)
    if isinstance(expected, str) and expected != known:
        with pytest.raises(ValueError, match=expected):
            function(None, value, value)
        return
    got = function(None, value, value)
    assert got == expected
    assert type(got) is type(expected)
    assert function(None, value, number=value) == expected
    assert function(None, value, known) is known  # what is no value passes as it is


def test_parse_args_misused() -> None:
    with pytest.raises(ValueError, match="'x' is not a descriptor"):
        symbolic_helper.parse_args("x")
    with pytest.raises(TypeError, match="has 1 descriptors in parse_args, and got 2"):
        symbolic_helper.parse_args("v")(lambda g, *args: None)(None, 1, 2)


# helper, arguments, result
KNOWN, OPEN = SymbolicValue(known=torch.tensor(2.0)), SymbolicValue(Tensor(1, (2, None)))
HELPED = [
    ("_is_constant", (KNOWN,), True),
    ("_is_constant", (OPEN,), False),
    ("_is_none", (SymbolicValue(known=None),), True),
    ("_is_value", (OPEN,), True),
    ("_is_tensor", (KNOWN,), False),
    ("_maybe_get_const", (KNOWN, "f"), 2.0),
    ("_maybe_get_const", (OPEN, "f"), OPEN),
    ("_maybe_get_scalar", (KNOWN,), torch.tensor(2.0)),
    ("_scalar", (KNOWN,), 2.0),
    ("_scalar", (OPEN,), None),
    ("_get_const", (KNOWN, "i", "n"), 2),
    ("_get_tensor_rank", (OPEN,), 2),
    ("_get_tensor_sizes", (OPEN,), [2, None]),
    ("_get_tensor_sizes", (OPEN, False), None),
    ("_get_tensor_dim_size", (OPEN, 0), 2),
    ("_try_get_scalar_type", (KNOWN, OPEN), "Float"),
    ("_is_fp", (OPEN,), True),
    ("_is_bool", (OPEN,), False),
    ("_is_packed_list", (SymbolicValue(items=[OPEN]),), True),
    ("_unpack_list", (SymbolicValue(items=[OPEN]),), [OPEN]),
]


@pytest.mark.parametrize(("name", "args", "expected"), HELPED, ids=[f"{row[0]}-{i}" for i, row in enumerate(HELPED)])
def test_helpers(name: str, args: Any, expected: Any) -> None:
    assert getattr(symbolic_helper, name)(*args) == expected


REFUSALS = [
    ("_get_const", (OPEN, "i", "dim"), "wants 'dim' known"),
    ("_unpack_list", (KNOWN,), "its length is not known"),
    ("_unimplemented", ("foo", "why"), "symbolic function of foo: why"),
    ("_onnx_unsupported", ("foo",), "foo has no form in ONNX"),
    ("_onnx_opset_unsupported", ("foo", 9, 11), "needs opset 11 or later"),
]


@pytest.mark.parametrize(("name", "args", "text"), REFUSALS, ids=[row[0] for row in REFUSALS])
def test_helpers_refuse(name: str, args: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        getattr(symbolic_helper, name)(*args)
