"""Given names stand; a derived name that is given to another value makes way for it."""

from __future__ import annotations

import io
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import proto_schema as ps
import purexport
from tests.harness import CAPTURES

X, Y = torch.randn(2, 3), torch.randn(2, 3)
PARAMETERS = ["l.weight", "l.bias", "buf"]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(3, 3)
        self.register_buffer("buf", torch.ones(3))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * self.buf).relu(), self.l(x) + y


ROWS: list[tuple[dict[str, Any], list[str], list[str], set[str]]] = [
    # options, inputs and outputs of the file, its other names; the outputs' own names are output_0 and output_1
    ({}, ["x", "y"], ["output_0", "output_1"], {*PARAMETERS}),
    ({"output_names": ["x"]}, ["x_1", "y"], ["x", "output_1"], {*PARAMETERS}),
    ({"output_names": ["p", "x"], "input_names": ["y"]}, ["y", "y_1"], ["p", "x"], {*PARAMETERS}),
    ({"output_names": ["output_1"]}, ["x", "y"], ["output_1", "output_1_1"], {*PARAMETERS}),
    ({"output_names": ["output_1", "output_0"]}, ["x", "y"], ["output_1", "output_0"], {*PARAMETERS}),
    ({"output_names": ["l.weight"]}, ["x", "y"], ["l.weight", "output_1"], {"l.weight_1", "l.bias", "buf"}),
    ({"output_names": ["buf"]}, ["x", "y"], ["buf", "output_1"], {"l.weight", "l.bias", "buf_1"}),
    ({"output_names": ["Mul_output"]}, ["x", "y"], ["Mul_output", "output_1"], {"Mul_output_1", *PARAMETERS}),
    ({"input_names": ["l.bias"]}, ["l.bias", "y"], ["output_0", "output_1"], {"l.weight", "l.bias_1", "buf"}),
    ({"input_names": ["output_0"]}, ["output_0", "y"], ["output_0_1", "output_1"], {*PARAMETERS}),
    ({"input_names": ["Mul_output"]}, ["Mul_output", "y"], ["output_0", "output_1"], {"Mul_output_1", *PARAMETERS}),
    # the third name is that of the first entry of state_dict, which is the buffer
    ({"input_names": ["a", "b", "l.bias"]}, ["a", "b"], ["output_0", "output_1"], {"l.bias", "l.bias_1", "l.weight"}),
    ({"input_names": ["a", "b", "l.weight"]}, ["a", "b"], ["output_0", "output_1"], {"l.weight", "l.weight_1"}),
    ({"input_names": ["a", "b", "output_1"]}, ["a", "b"], ["output_0", "output_1_1"], {"output_1", "l.bias"}),
    (
        {"input_names": ["a", "b", "l.bias", "w"], "export_params": False},
        ["a", "b", "l.bias", "w", "l.bias_1"],
        ["output_0", "output_1"],
        set(),
    ),
    (
        {"output_names": ["l.weight"], "export_params": False},
        ["x", "y", "buf", "l.weight_1", "l.bias"],
        ["l.weight", "output_1"],
        set(),
    ),
    (
        {"output_names": ["x"], "dynamic_axes": {"y": {0: "n"}}, "input_names": ["a", "y"]},
        ["a", "y"],
        ["x", "output_1"],
        {*PARAMETERS},
    ),
]


@pytest.mark.parametrize("route", ["trace", "export"])
@pytest.mark.parametrize(("options", "inputs", "outputs", "others"), ROWS, ids=[str(row[0]) for row in ROWS])
def test_names(options: dict[str, Any], inputs: list[str], outputs: list[str], others: set[str], route: str) -> None:
    """The program is run too, with the parameters that it takes from outside where it does."""
    program = purexport.export(Two(), (X, Y), capture=route, verify=True, **options)
    model = onnx.load_from_string(ps.dumps(program.model_proto))
    onnx.checker.check_model(model, full_check=True)
    assert [item.name for item in model.graph.input] == inputs
    assert [item.name for item in model.graph.output] == outputs
    held = {tensor.name for tensor in model.graph.initializer}
    assert others <= held | {name for node in model.graph.node for name in node.output}
    if others:
        assert len(held) == len(PARAMETERS)


def normalized() -> nn.Module:
    """A buffer between parameters, one that nothing reads, and one that state_dict does not list."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    model.register_buffer("unlisted", torch.ones(3), persistent=False)
    return model.eval()


@pytest.mark.parametrize("route", ["trace", "export"])
@pytest.mark.parametrize("count", [0, 1, 4, 7, 8, 9, 10])
def test_what_the_model_owns_is_named_in_the_order_of_its_state_dict(count: int, route: str) -> None:
    """As in torch.onnx's own files, buffers among it."""
    options: dict[str, Any] = {"input_names": [f"n{place}" for place in range(count)], "do_constant_folding": False}
    options["keep_initializers_as_inputs"] = True
    model = normalized()
    file = io.BytesIO()
    torch.onnx.export(model, (X,), file, dynamo=False, **options)
    theirs = [item.name for item in onnx.load_from_string(file.getvalue()).graph.input]
    program = purexport.export(model, (X,), capture=route, **options)
    assert [item.name for item in program.model_proto.graph.input][1:] == theirs[1:]
    outside = purexport.export(model, (X,), capture=route, export_params=False, **options).model_proto.graph
    assert [item.name for item in outside.input][1:] == theirs[1:] and not outside.initializer


def test_what_a_script_reads_is_in_the_order_of_its_state_dict() -> None:
    """torch.onnx goes by the place of the first use there."""
    program = purexport.export(torch.jit.script(normalized()), (X,), export_params=False)
    read = [name for name in normalized().state_dict() if not name.endswith("num_batches_tracked")]
    assert program.model_proto.graph is not None
    assert [item.name for item in program.model_proto.graph.input] == ["input", *read]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input_names": ["a", "b"], "output_names": ["a"]}, "input_names and output_names both give 'a'"),
    ({"input_names": ["a", "a"]}, "names must differ from each other"),
    ({"output_names": "ab"}, "are lists of names, not the string 'ab'"),
    ({"output_names": ["a", "b", "c"]}, "output_names names 3 values, and the model has 2"),
    ({"output_names": ["x"], "dynamic_axes": {"x": {0: "n"}}}, "dynamic_axes names 'x', which is an input's own name"),
    ({"input_names": list("abcdef")}, "input_names names 6 values, and the model has 5 inputs, parameters and buffers"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[row[1][:30] for row in REFUSED])
def test_names_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        purexport.export(Two(), (X, Y), **options)


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [("z", "x"), ("outputs_1", "output_1"), ("X", "x")],
    ids=["input", "output", "case"],
)
@pytest.mark.parametrize("route", CAPTURES)
def test_an_unknown_name_in_dynamic_axes_is_a_warning(route: str, unknown: str, nearest: str) -> None:
    """As in torch.onnx; the other entries hold."""
    axes = {unknown: {0: "m"}, "x": {0: "n"}, "y": {0: "n"}}
    with pytest.warns(UserWarning, match=f"dynamic_axes names '{unknown}', which is left out.*nearest is '{nearest}'"):
        program = purexport.export(Two(), (X, Y), capture=route, dynamic_axes=axes)
    assert program.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert any(unknown in remark for remark in program.report.warnings)


class Grows(nn.Module):
    """Sizes that are expressions, that data decides, and that are fixed."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.cat([x, y]), torch.cat([x, y]) * 2, x[x > 0], x * 2, x.sum(0, keepdim=True)


NAMED_OUTPUTS: list[tuple[dict[str, Any], list[list[Any]]]] = [
    # the axes of outputs, what the file says
    ({}, [["m + n", 3], ["m + n", 3], [None], ["n", 3], [1, 3]]),
    ({"a": {0: "sum"}, "b": {-2: "sum"}}, [["sum", 3], ["sum", 3], [None], ["n", 3], [1, 3]]),
    ({"c": {0: "count"}, "d": {0: "rows"}}, [["m + n", 3], ["m + n", 3], ["count"], ["rows", 3], [1, 3]]),
    ({"a": {0: "k"}, "c": {0: "k"}}, [["k", 3], ["m + n", 3], ["k"], ["n", 3], [1, 3]]),
    # not what the size is: a label of an input, one for two sizes, one of a fixed size or of no axis
    ({"a": {0: "n"}, "d": {0: "m"}}, [["m + n", 3], ["m + n", 3], [None], ["n", 3], [1, 3]]),
    ({"a": {0: "k"}, "d": {0: "k"}}, [["m + n", 3], ["m + n", 3], [None], ["n", 3], [1, 3]]),
    ({"a": {1: "w", 5: "v"}, "e": {0: "one"}, "b": [0]}, [["m + n", 3], ["m + n", 3], [None], ["n", 3], [1, 3]]),
]


@pytest.mark.parametrize(("named", "wanted"), NAMED_OUTPUTS, ids=[str(row[0])[:40] for row in NAMED_OUTPUTS])
@pytest.mark.parametrize("route", CAPTURES)
def test_labels_of_outputs(route: str, named: dict[str, Any], wanted: list[list[Any]]) -> None:
    """A label names the size of an output's axis where the inputs have no label for it."""
    axes = {"x": {0: "n"}, "y": {0: "m"}} | named
    outputs = list("abcde")
    args = torch.randn(2, 3), torch.randn(4, 3)
    program = purexport.export(Grows(), args, capture=route, output_names=outputs, dynamic_axes=axes, verify=True)
    onnx.checker.check_model(program.model_proto.SerializeToString(), full_check=True)
    found = [
        [dim.dim_value if dim.dim_param is None else dim.dim_param for dim in item.type.tensor_type.shape.dim]
        for item in program.model_proto.graph.output
    ]
    given = {label for axes in named.values() if isinstance(axes, dict) for label in axes.values()} | {
        "n",
        "m",
        "m + n",
    }
    named_only = [[size if isinstance(size, int) or size in given else None for size in sizes] for sizes in found]
    assert named_only == wanted


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.count


def test_a_buffer_that_goes_in_and_out_keeps_its_name() -> None:
    with pytest.raises(ValueError, match="'count' is the input of a buffer, by mutated_state='io'"):
        purexport.export(Counts(), (X,), output_names=["count"], mutated_state="io")
    program = purexport.export(Counts(), (X,), output_names=["x"], mutated_state="io", verify=True)
    assert program.model_proto.graph is not None
    assert [item.name for item in program.model_proto.graph.input] == ["x_1", "count"]
    assert [item.name for item in program.model_proto.graph.output] == ["x", "count_out"]
