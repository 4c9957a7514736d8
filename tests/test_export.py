"""`purexport.export` as its callers see it: names, axes, nested arguments, state, the report, and files."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import proto_schema as ps
import purexport
from purexport.program import run_in_onnxruntime
from tests.harness import CAPTURES

routes = pytest.mark.parametrize("route", CAPTURES)
Shape = list[Any]


def shapes(values: list[ps.ValueInfoProto]) -> dict[str, Shape]:
    """Name to sizes, ints and axis names."""
    found = {}
    for value in values:
        dims = value.type.tensor_type.shape.dim
        found[value.name] = [dim.dim_param if dim.dim_value is None else dim.dim_value for dim in dims]
    return found


def interface(program: purexport.ONNXProgram) -> tuple[dict[str, Shape], dict[str, Shape]]:
    graph = program.model_proto.graph
    return shapes(graph.input), shapes(graph.output)


class Nested(nn.Module):
    """Tensors in dicts and lists, numbers, a flag, keyword arguments, and a size among the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: dict[str, torch.Tensor], state: list[torch.Tensor], flag: bool = True, *, scale: float = 2.0):
        y = self.layer(x["a"]) * scale + state[0].sum()
        return {"y": y.relu() if flag else y, "pair": (x["b"] + 1, y.shape[0])}


def nested_args(batch: int = 2, width: int = 2) -> tuple[Any, ...]:
    return {"a": torch.ones(batch, 4), "b": torch.arange(3)}, [torch.ones(width)]


class Sizes(nn.Module):
    """Sizes in arithmetic, which a trace would hold fixed if it took what it recorded."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch = x.shape[0]
        rows = x.view(batch, -1).expand(batch, 12) + torch.arange(x.size(0)).unsqueeze(1)
        return rows, x.reshape(x.size(0) * 2, -1).repeat(1, x.size(0))


class Counter(nn.Module):
    """Writes to a buffer and to its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        x.mul_(2)
        return self.total * x


@routes
def test_names_follow_the_signature_and_the_keys(route: str) -> None:
    program = purexport.export(Nested(), nested_args(), kwargs={"scale": 3.0}, capture=route, verify=True)
    inputs, outputs = interface(program)
    numbers = {"scale": []} if route == "trace" else {}  # torch.export takes numbers as constants
    assert inputs == {"x_a": [2, 4], "x_b": [3], "state_0": [2], **numbers}
    assert outputs == {"y": [2, 3], "pair_0": [3], "pair_1": []}
    assert {item.name for item in program.model_proto.graph.initializer} >= {"layer.weight", "layer.bias"}
    assert program.report.route == route


@routes
def test_given_names_and_dynamic_axes(route: str) -> None:
    model = Nested()
    program = purexport.export(
        model,
        nested_args(),
        capture=route,
        input_names=["A", "B", "S", "weight"],
        output_names=["Y"],
        dynamic_axes={"A": {0: "batch"}, "S": [0], "Y": {0: "batch"}},
    )
    inputs, outputs = interface(program)
    assert inputs == {"A": ["batch", 4], "B": [3], "S": ["length"]}
    assert outputs == {"Y": ["batch", 3], "pair_0": [3], "pair_1": []}
    assert "weight" in [item.name for item in program.model_proto.graph.initializer]
    y, pair, size = program(*nested_args(5, 7))
    expected = model(*nested_args(5, 7))
    torch.testing.assert_close(y, expected["y"])
    assert torch.equal(pair, expected["pair"][0])
    assert size.item() == 5


@pytest.mark.parametrize("batch", [1, 2, 3])
@routes
def test_a_dynamic_axis_is_right_for_other_sizes(route: str, batch: int) -> None:
    """Whatever the example's size, 1 included, and for results whose sizes are computed."""
    program = purexport.export(Sizes(), (torch.rand(batch, 3, 4),), capture=route, dynamic_axes={"x": {0: "batch"}})
    assert interface(program)[1] == {"output_0": ["batch", 12], "output_1": ["2*batch", "6*batch"]}
    for other in (1, 2, 5):
        x = torch.rand(other, 3, 4)
        for mine, theirs in zip(program(x), Sizes()(x), strict=True):
            torch.testing.assert_close(mine, theirs)


def test_dynamic_shapes_keep_their_names() -> None:
    shapes = {"input": {0: Dim("rows")}}
    program = purexport.export(nn.Linear(4, 3), (torch.ones(2, 4),), dynamic_shapes=shapes)
    assert interface(program) == ({"input": ["rows", 4]}, {"output": ["rows", 3]})
    assert program.report.route == "export"
    assert "dynamic_shapes" in program.report.reason


def test_an_axis_that_the_model_holds_is_said() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(3)

    with pytest.warns(UserWarning, match=r"axis 'n' was declared dynamic.*test_export\.py"):
        program = purexport.export(model, (torch.ones(3),), capture="trace", dynamic_axes={"x": {0: "n"}})
    assert interface(program)[0] == {"x": [3]}


@pytest.mark.parametrize("share", [torch.broadcast_tensors, torch.meshgrid])
def test_a_write_that_the_tracer_drops_is_refused(share: Any) -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x.clone()
        first = share(z, y)[0]
        z.add_(1)
        return first * 2

    with pytest.raises(purexport.ExportError, match=f"aten::{share.__name__} .* may or may not have copied"):
        purexport.export(model, (torch.ones(4), torch.ones(4)), capture="trace")


def test_a_write_after_an_unsafe_split_is_followed() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        z = x.clone()
        first = torch.unsafe_chunk(z, 2)[0]
        z.add_(1)
        return first * 2

    purexport.export(model, (torch.ones(4),), capture="trace", verify=True)


def test_an_axis_of_size_one_by_chance_is_squeezed_and_never_silently() -> None:
    """The file stops with an error where the axis is longer and an operator needs the rank; torch would keep it."""

    def model(x: torch.Tensor) -> torch.Tensor:
        v = x[::2]
        v.squeeze_()
        return torch.cat([v, v])

    program = purexport.export(model, (torch.ones(2, 3),), capture="trace", dynamic_axes={"x": {0: "n"}})
    assert any("removes an axis whose size is 1 in the example" in remark for remark in program.report.warnings)
    assert program(torch.ones(1, 3))[0].shape == (6,)
    with pytest.raises(Exception, match="Squeeze"):
        program(torch.ones(4, 3))


def test_a_squeeze_in_place_that_leads_to_outputs_is_decided_in_the_file() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        v = x[::2]
        v.squeeze_()
        return v

    program = purexport.export(model, (torch.ones(2, 3),), capture="trace", dynamic_axes={"x": {0: "n"}})
    for rows in (1, 2, 4):
        assert program(torch.ones(rows, 3))[0].shape == model(torch.ones(rows, 3)).shape


def test_what_a_trace_holds_fixed_is_said() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x

    with pytest.warns(UserWarning, match="a truth value at .*test_export.* that the data decides"):
        program = purexport.export(model, (torch.ones(2),), capture="trace")
    assert "script the function or use torch.cond" in program.report.warnings[0]


def test_a_static_model_has_no_shape_arithmetic() -> None:
    program = purexport.export(Sizes(), (torch.rand(2, 3, 4),), capture="trace")
    kinds = {node.op_type for node in program.model_proto.graph.node}
    assert not kinds & {"Shape", "Gather", "Concat", "Unsqueeze", "Mul"}, kinds


@routes
def test_written_state_is_said_and_left_alone(route: str) -> None:
    model, x = Counter(), torch.ones(2, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = purexport.export(model, (x,), capture=route)
    said = [str(item.message) for item in caught if "writes to its" in str(item.message)]
    assert [text.split(" at ")[0] for text in said] == [
        "the model writes to its buffer 'total'",
        "the model writes to its input 'x'",
    ]
    assert "test_export.py" in said[0]
    assert program.report.warnings == said
    assert torch.equal(model.total, torch.zeros(3))
    assert torch.equal(x, torch.ones(2, 3))
    assert torch.equal(program(torch.ones(2, 3))[0], Counter()(torch.ones(2, 3)))


@routes
def test_written_state_can_be_refused(route: str) -> None:
    with pytest.raises(purexport.ExportError, match="buffer 'total'"):
        purexport.export(Counter(), (torch.ones(2, 3),), capture=route, mutated_state="error")


def test_a_write_to_one_of_two_inputs_that_share_memory_is_refused() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    both = torch.ones(4)
    with pytest.raises(purexport.ExportError, match="two of the args share memory"):
        purexport.export(model, (both, both[:]))


def test_a_written_parameter_is_refused() -> None:
    class Writes(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.mul_(2)
            return super().forward(input)

    with pytest.raises(purexport.ExportError, match="writes to its parameters weight"):
        purexport.export(Writes(2, 2), (torch.ones(1, 2),), capture="trace")


@routes
def test_mode_and_random_state_are_put_back(route: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    model.train()
    model[2].eval()
    state = torch.get_rng_state()
    purexport.export(model, (torch.ones(2, 3),), capture=route)
    with pytest.raises(purexport.ExportError):
        purexport.export(model, (torch.ones(2, 5),), capture=route)
    assert [module.training for module in model.modules()] == [True, True, True, False]
    assert torch.equal(state, torch.get_rng_state())
    assert not purexport.is_in_onnx_export()


def test_parameters_as_inputs() -> None:
    program = purexport.export(
        nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), (torch.ones(1, 3),), export_params=False
    )
    assert list(interface(program)[0]) == ["input", "0.weight", "0.bias", "1.weight", "1.bias"]
    assert not program.model_proto.graph.initializer


def test_parameters_as_inputs_are_computed_with() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.scale * 2

    program = purexport.export(Scaled(), (torch.ones(1, 3),), export_params=False)
    assert list(interface(program)[0]) == ["x", "scale"]
    found = run_in_onnxruntime(program.model_proto, [torch.ones(1, 3), torch.full((3,), 5.0)])
    assert torch.equal(found[0], torch.full((1, 3), 11.0))


@routes
def test_tied_weights_are_written_once(route: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(64, 64, bias=False)
            self.second = nn.Linear(64, 64, bias=False)
            self.second.weight = nn.Parameter(self.first.weight.data)  # another parameter, the same storage

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    program = purexport.export(Tied(), (torch.ones(1, 64),), capture=route, verify=True)
    assert [item.name for item in program.model_proto.graph.initializer] == ["first.weight"]


@routes
def test_outputs_that_are_inputs_repeats_and_constants(route: str) -> None:
    def model(a: torch.Tensor, unused: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b = a + 1
        return b, b, a, torch.arange(3)

    program = purexport.export(model, (torch.ones(2), torch.ones(5)), capture=route, verify=True)
    assert list(interface(program)[0]) == ["a", "unused"]
    assert list(interface(program)[1]) == [f"output_{i}" for i in range(4)]


class Halved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 1):
            x = x / 2
        return x


def test_auto_takes_the_second_route_and_says_so() -> None:
    class Data(dict):  # a container that no pytree knows: the trace sees no tensor in it
        pass

    def refused(x: torch.Tensor) -> Any:
        assert not torch.compiler.is_exporting()
        return x, object()

    script = torch.jit.script(Halved())
    program = purexport.export(nn.Sequential(script, nn.ReLU()), (torch.ones(2),))
    assert program.report.route == "trace" and program.report.reason == "the default"
    exported = torch.export.export(nn.ReLU(), (torch.ones(2),))
    program = purexport.export(exported)
    assert (program.report.route, program.report.reason) == ("export", "the model is an ExportedProgram")
    with pytest.raises(purexport.ExportError, match=r"(?s)no route.*by trace: .*by torch.export: "):
        purexport.export(refused, (torch.ones(2),))
    with pytest.raises(purexport.ExportError, match=r"^the model does not run on these args: TypeError: relu"):
        purexport.export(nn.ReLU(), (Data(),))
    with pytest.raises(purexport.ExportError, match=r"^the model returns a object, "):
        purexport.export(lambda x: (x, object()), (torch.ones(2),))


def test_verification_names_the_output_that_differs() -> None:
    class Fickle(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            # what an exporter cannot see: the model computes something else while it is exported
            return x, x * (2 if purexport.is_in_onnx_export() else 3)

    with pytest.raises(
        purexport.VerificationError, match=r"output 'b' differs at 2 of 2 places, first at \(0,\): 2\.0"
    ):
        purexport.export(Fickle(), (torch.ones(2),), output_names=["a", "b"], capture="trace", verify=True)


def test_the_same_export_gives_the_same_bytes(tmp_path: Path) -> None:
    model, stream = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), io.BytesIO()
    purexport.export(model, (torch.ones(1, 3, 8, 8),), tmp_path / "a.onnx")
    purexport.export(model, (torch.ones(1, 3, 8, 8),), stream)
    assert (tmp_path / "a.onnx").read_bytes() == stream.getvalue()


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    model = nn.Linear(64, 64)
    purexport.export(model, (torch.ones(1, 64),), tmp_path / "m.onnx", external_data=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    weight = next(item for item in ps.load(tmp_path / "m.onnx").graph.initializer if item.name == "weight")
    array = ps.numpy_helper.to_array(weight, base_dir=str(tmp_path))
    assert torch.equal(torch.from_numpy(array.copy()), model.weight)


def test_nodes_carry_their_module_path() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Linear(3, 2))
    graph = purexport.export(model, (torch.ones(1, 3),)).model_proto.graph
    assert [node.name for node in graph.node] == ["0.0/Gemm", "0.1/Relu", "1/Gemm"]
    assert graph.node[0].output == ["0.0/Gemm_output"]


@pytest.mark.parametrize("opset", [9, 13, 20, 26, 28])
def test_the_file_says_the_opset_that_was_asked(opset: int) -> None:
    proto = purexport.export(nn.ReLU(), (torch.ones(2),), opset_version=opset).model_proto
    assert [(item.domain, item.version) for item in proto.opset_import] == [("", opset)]
    assert proto.ir_version == ps.helper.find_min_ir_version_for(proto.opset_import)
