"""`ONNXProgram` as code for torch.onnx's newer exporter uses it, beside torch's own where that is installed."""

from __future__ import annotations

import gc
import inspect
import io
import sys
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
import torch.onnx.verification
from torch import Tensor, nn

import proto_schema as ps
import purexport
from purexport.runtime import sessions
from tests.tolerances import assert_near


class Net(nn.Module):
    """Weights that are large enough to be shared, an intermediate value, a branch over a size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 80), nn.Linear(80, 3)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.first(x).relu()
        return self.last(hidden), torch.cat([y, y * 2])


NET, X, Y = Net().eval(), torch.randn(3, 4), torch.randn(3, 2)
AXES = {"x": {0: "n"}, "y": {0: "n"}}


def exported(route: str = "export", **options: Any) -> purexport.ONNXProgram:
    return purexport.export(NET, (X, Y), capture=route, dynamic_axes=AXES, **options)


def assert_same(found: Any, wanted: Any) -> None:
    assert isinstance(found, tuple) and len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert_near(one, other)


def test_it_has_what_torchs_has() -> None:
    """Every public name, and what each method takes, under the same names and in the same order."""
    ours, theirs = purexport.ONNXProgram, torch.onnx.ONNXProgram
    public = [name for name in dir(theirs) if not name.startswith("_")]
    program = exported()
    assert not [name for name in (*public, "exported_program", "model") if name not in dir(program)]
    for name in public:
        if inspect.isfunction(getattr(theirs, name)):
            wanted = list(inspect.signature(getattr(theirs, name)).parameters)
            taken = list(inspect.signature(getattr(ours, name)).parameters)
            assert taken[: len(wanted)] == wanted or set(wanted) - set(taken) <= {"external_data"}, name


@pytest.mark.parametrize("route", ["trace", "export"])
def test_it_runs(route: str) -> None:
    program = exported(route)
    assert (program.exported_program is not None) == (route == "export")
    for x, y in ((X, Y), (torch.randn(5, 4), torch.randn(5, 2))):
        assert_same(program(x, y), NET(x, y))
        assert_same(program(y=y, x=x), NET(x, y))  # by name, in any order
        assert_same(program.call_reference(x, y=y), NET(x, y))
    if program.exported_program is not None:
        assert_same(program.exported_program.module()(X, Y), NET(X, Y))
    with pytest.raises(ValueError, match="the file takes 2 tensors, x, y, and 1 were given"):
        program(X)


def test_sessions() -> None:
    """One for all calls, another by `initialize_inference_session`; a new one after `release` and after changes."""
    program, made = exported("trace"), []

    def initializer(model: str | bytes) -> Any:
        made.append(model)
        return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    program.initialize_inference_session(initializer)
    assert_same(program(X, Y), NET(X, Y))
    assert len(made) == 1 and isinstance(made[0], bytes)
    program.model_proto.graph.node[-1].op_type = "Nonsense"
    assert_same(program(X, Y), NET(X, Y))
    program.release()
    with pytest.raises(Exception, match="Nonsense"):
        program(X, Y)


def test_a_session_of_a_large_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes through a folder, which ends with the session."""
    monkeypatch.setattr(sessions, "LARGEST_MESSAGE", 100)
    program, made = exported("trace"), []

    def initializer(model: str | bytes) -> Any:
        assert isinstance(model, str) and Path(f"{model}.data").exists()
        made.append(model)
        return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    program.initialize_inference_session(initializer)
    assert_same(program(X, Y), NET(X, Y))
    program.release()
    assert not Path(made[0]).parent.exists()


VALUES = [
    (["first/Gemm_output"], lambda: [NET.first(X)]),
    (["first/Gemm_output", "x", "last.bias", "output_1"], lambda: [NET.first(X), X, NET.last.bias, NET(X, Y)[1]]),
]


@pytest.mark.parametrize(("names", "wanted"), VALUES, ids=["one", "every-kind"])
def test_values_inside(names: list[str], wanted: Any) -> None:
    program = exported("trace")
    assert_same(program.compute_values(names, (X, Y)), wanted())
    assert_same(program.compute_values(names, (X,), {"y": Y}), wanted())
    assert [item.name for item in program.model_proto.graph.output] == ["output_0", "output_1"]
    with pytest.raises(ValueError, match="the file has no value 'first/Gemm'"):
        program.compute_values(["first/Gemm"], (X, Y))


def sizes(program: purexport.ONNXProgram) -> list[Any]:
    graph = program.model_proto.graph
    return [dim.dim_param for item in (*graph.input, *graph.output) for dim in item.type.tensor_type.shape.dim[:1]]


class Bodies(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.cat([x, x]), lambda x: torch.cat([x * 2, x]), (x,))


RENAMED: list[tuple[dict[str, str], list[str]]] = [
    ({"n": "batch"}, ["batch", "batch", "batch", "2*batch"]),
    ({"n": "batch size"}, ["batch size", "batch size", "batch size", "2*'batch size'"]),
    ({"2*n": "twice"}, ["n", "n", "n", "twice"]),
    ({"n": "b", "2*n": "twice"}, ["b", "b", "b", "twice"]),
]


@pytest.mark.parametrize(("names", "wanted"), RENAMED, ids=["name", "quoted", "expression", "both"])
def test_renamed_axes(names: dict[str, str], wanted: list[str]) -> None:
    program = exported("trace")
    program.rename_axes(names)
    assert sizes(program) == wanted
    onnx.checker.check_model(program.model_proto.SerializeToString(), full_check=True)
    left = [info for info in program.model_proto.graph.value_info if "'n'" in repr(info)]
    assert bool(left) == ("n" not in names)


@pytest.mark.full
def test_renamed_axes_everywhere() -> None:
    """In bodies too, and in the report; a name of no axis is a warning."""
    program = purexport.export(Bodies(), (X,), dynamic=True, capture="export")
    name = program.report.dynamic["x"][0]
    with pytest.warns(UserWarning, match="rename_axes: no axis is called 'unknown'"):
        program.rename_axes({name: "rows", "unknown": "x"})
    assert program.report.dynamic["x"][0] == "rows"
    assert name.encode() not in program.model_proto.SerializeToString()
    with pytest.raises(ValueError, match="not 3"):
        program.rename_axes({3: "n"})


@pytest.mark.parametrize("options", [{}, {"export_params": False}, {"external_data": True}], ids=str)
def test_other_weights(options: dict[str, Any]) -> None:
    program, other = exported("trace", **options), Net().eval()
    assert_same(program(X, Y), NET(X, Y))
    program.apply_weights(other.state_dict())
    assert_same(program(X, Y), other(X, Y))
    if options.get("export_params", True):
        assert program.model_proto.graph.initializer[0].raw_data.obj is not None  # type: ignore[union-attr]
    with pytest.warns(UserWarning, match="apply_weights: the file holds no 'middle.weight'"):
        program.apply_weights({"middle.weight": X})
    for wrong in (torch.zeros(4, 80), torch.zeros(80, 4).half()):
        with pytest.raises(ValueError, match=r"apply_weights: 'first\.weight' has dtype and shape"):
            program.apply_weights({"first.weight": wrong})


def test_it_says_what_it_is() -> None:
    program = exported("trace")
    line = "ONNXProgram(x: float32[n, 4], y: float32[n, 2] -> output_0: float32[n, 3], output_1: float32[2*n, 2]; "
    assert repr(program).startswith(line) and "5 nodes, opset 20, " in repr(program)
    many = purexport.export(lambda *xs: xs[0] + 1, tuple(X for _ in range(12)), capture="trace")
    assert "4 more -> " in repr(many)
    page = program._repr_html_()
    assert "output_1: float32[2*n, 2]</td>" in page and "Gemm 2, " in page and "trace (asked for)</td>" in page
    assert "_proto" not in dir(program) and {"save", "report", "model_proto"} <= {*dir(program)}
    graph = program.model_proto.graph
    for message in (program.model_proto, graph, graph.node[0], graph.input[0], graph.initializer[0]):
        page = message._repr_html_()
        assert page.startswith(f"<b>{type(message).__name__}</b>") and page.endswith("</table>")
        assert len(repr(message)) < 1500
    assert str(program.report) == program.report.as_text()


# onnx_ir -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["trace", "export"])
def test_the_model_of_onnx_ir(route: str) -> None:
    """Large weights are views; what is changed in it is changed in the program."""
    ir = pytest.importorskip("onnx_ir", reason="onnx_ir comes with onnxscript")
    program = exported(route)
    model = program.model
    assert isinstance(model, ir.Model) and program.model is model
    weight = model.graph.initializers["first.weight"].const_value
    assert weight.numpy().ctypes.data == NET.first.weight.data_ptr()
    model.graph.inputs[0].name = "renamed"
    model.metadata_props["by"] = "hand"
    proto = program.model_proto
    assert proto.graph.input[0].name == "renamed" and proto.metadata_props[0].value == "hand"
    assert isinstance(proto.graph.initializer[0].raw_data, memoryview)
    assert [item.name for item in proto.graph.initializer][:4] == list(NET.state_dict())
    assert_same(program(X, Y), NET(X, Y))
    program.rename_axes({model.graph.inputs[0].shape[0]: "batch"})
    assert sizes(program) == ["batch", "batch", "batch", "2*batch"]
    assert str(program.model.graph.outputs[1].shape[0]) == "2*batch"
    program.apply_weights({"last.bias": torch.zeros(3)})
    file = io.BytesIO()
    program.save(file)
    held = onnx.load_from_string(file.getvalue())
    assert not onnx.numpy_helper.to_array(held.graph.initializer[3]).any() and held.metadata_props[0].key == "by"
    program.model = ir.serde.deserialize_model(onnx.ModelProto.FromString(ps.dumps(exported("trace").model_proto)))
    assert_same(program(X, Y), NET(X, Y))


WITHOUT = [
    (lambda program: program.model, "onnx_ir", "ONNXProgram.model needs onnx-ir: pip install onnx-ir"),
    (lambda program: program.call_reference(X, Y), "onnx.reference", "call_reference needs onnx: pip install onnx"),
    (
        lambda program: program(X, Y),
        "onnxruntime",
        "running a model needs onnxruntime: pip install 'onnxruntime>=1.17'",
    ),
]


@pytest.mark.parametrize(("use", "package", "message"), WITHOUT, ids=[row[1] for row in WITHOUT])
def test_without_the_package(monkeypatch: pytest.MonkeyPatch, use: Any, package: str, message: str) -> None:
    program = exported("trace")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=message):
        use(program)


# torch.onnx.verification --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the option 'dynamo' has no effect")
def test_dynamo_asks_for_an_exported_program() -> None:
    """By trace there is none; it is recorded for those who read it."""
    program = purexport.export(NET, (X, Y), dynamo=True)
    recorded = program.exported_program
    assert recorded is not None and recorded is program.exported_program and program.report.route == "trace"
    assert_same(recorded.module()(X, Y), NET(X, Y))
    assert purexport.export(NET, (X, Y), dynamo=False).exported_program is None
    with purexport.patch():
        assert torch.onnx.export(NET, (X, Y)).exported_program is not None  # type: ignore[union-attr]
    kept = purexport.export(Net(), (X, Y), dynamo=True)
    gc.collect()
    assert kept.exported_program is not None


verify_onnx_program = getattr(torch.onnx.verification, "verify_onnx_program", None)
needs_verification = pytest.mark.skipif(verify_onnx_program is None, reason="torch has it from 2.7 on")


@needs_verification
@pytest.mark.parametrize("route", ["trace", "export"])
def test_torchs_verification(route: str) -> None:
    """Under `patch` it takes our programs, those of a trace too, and tells a wrong file from a right one."""
    program = exported(route)
    with purexport.patch():
        from torch.onnx.verification import verify_onnx_program as patched

        found = patched(program, (X, Y))
        assert [info.name for info in found] == ["output_0", "output_1"]
        assert max(info.max_abs_diff for info in found) < 1e-5
        if route == "export":
            assert len(patched(program)) == 2  # on the arguments of the export
        else:
            with pytest.raises(ValueError, match="args"):
                patched(program)
        program.apply_weights({"last.bias": NET.last.bias + 1})
        worse = patched(program, (X, Y))
        assert worse[0].max_abs_diff > 0.9 and worse[1].max_abs_diff < 1e-5
    assert torch.onnx.verification.verify_onnx_program is verify_onnx_program


@needs_verification
def test_torchs_own_verification_takes_them() -> None:
    assert verify_onnx_program is not None
    pytest.importorskip("onnx_ir", reason="onnx_ir comes with onnxscript")
    (first, second) = verify_onnx_program(exported("export"), (X, Y))  # type: ignore[arg-type]
    assert first.max_abs_diff < 1e-5 and second.name == "output_1"
