"""`purexport.patch()`: code of others that knows torch.onnx only exports with us, and afterwards all is as it was."""

from __future__ import annotations

import gc
import importlib
import io
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
import torch.onnx.operators
import torch.onnx.utils
from onnxruntime.tools import pytorch_export_contrib_ops as contrib
from onnxruntime.transformers import torch_onnx_export_helper
from torch import nn

import purexport
from purexport.compat import torch_onnx
from tests.compat import foreign_library as foreign
from tests.tolerances import assert_near
from tests.torchvision_shim import torchvision

pytestmark = pytest.mark.filterwarnings("ignore:.*legacy TorchScript-based:DeprecationWarning")

X = torch.randn(2, 3)
TORCH_EXPORT = torch.onnx.export
NAMES: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
WAYS = [
    (foreign.by_attribute, {}),
    (foreign.by_attribute, {"dynamo": True, "optimize": True, "external_data": False, "report": False}),
    (foreign.by_attribute, {"dynamo": False, "opset_version": 17, "dynamic_axes": {"x": {0: "n"}}}),
    (foreign.by_keywords, {"training": foreign.TrainingMode.EVAL, "autograd_inlining": True}),
    (foreign.by_own_name, {"opset_version": 13}),
    (foreign.by_own_name, {"dynamic_axes": {"x": [0]}, "operator_export_type": foreign.OperatorExportTypes.ONNX}),
    (foreign.by_own_name_today, {"external_data": False}),
    (foreign.by_own_name_today, {"dynamic_shapes": ({0: "n"},), "opset_version": 18, "external_data": False}),
    (foreign.by_utils, {"opset_version": 11}),
    (foreign.in_the_manner_of_torch_1, {"opset_version": 12, "example_outputs": X}),
    (torch_onnx_export_helper.torch_onnx_export, {"opset_version": 16}),
]


@pytest.fixture
def registered() -> Iterator[None]:
    foreign.register()
    foreign.SEEN.clear()
    yield
    foreign.unregister()


def written(way: Callable[..., Any], model: nn.Module, **options: Any) -> onnx.ModelProto:
    """The file, checked and run in ONNX Runtime against the model."""
    file = io.BytesIO()
    way(model, (X,), file, **NAMES, **options)
    proto = onnx.load_from_string(file.getvalue())
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": X.numpy()})
    assert_near(got, model(X))
    return proto


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("way", "options"), WAYS, ids=[f"{way.__name__}-{len(given)}" for way, given in WAYS])
def test_code_of_others_exports_with_us(way: Callable[..., Any], options: dict[str, Any]) -> None:
    """Nothing is said of options that it gives: who calls cannot change them."""
    with purexport.patch(), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*legacy TorchScript-based", DeprecationWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
        proto = written(way, foreign.Net(), **options)
    assert proto.producer_name == "purexport"
    (seen,) = foreign.SEEN
    assert seen == (0.5, [1, 2], torch.float32, 2), "the registered function was asked"
    assert [node.op_type for node in proto.graph.node][-2:] == ["Mul", "Tanh"]
    if "opset_version" in options:
        assert proto.opset_import[0].version == options["opset_version"]


def test_the_functions_that_stand_there() -> None:
    with purexport.patch():
        assert torch.onnx.export is purexport.export
        assert torch.onnx.ONNXProgram is purexport.ONNXProgram
        assert torch.onnx.utils.export is purexport.export
        assert torch.onnx.operators.shape_as_tensor is purexport.operators.shape_as_tensor
        assert torch.onnx.TrainingMode is foreign.TrainingMode, "who took it before holds the same"
        anything: Any = torch.onnx
        assert "onnx::Gemm" in anything.export_to_pretty_string(nn.Linear(3, 2), X, "unused.onnx")
        raw = anything.OperatorExportTypes.RAW
        assert "aten::linear" in anything.utils.export_to_pretty_string(nn.Linear(3, 2), X, operator_export_type=raw)
        model = nn.Sequential(nn.Linear(3, 3), nn.Dropout())
        with anything.select_model_mode_for_export(model, foreign.TrainingMode.TRAINING):
            assert model[1].training
        with anything.select_model_mode_for_export(model.eval(), False):
            assert not model[1].training
        program = torch.onnx.export(model, (X,), dynamo=True)
        onnx.checker.check_model(program.model_proto)  # type: ignore[union-attr]


SAVED = [
    # include_initializers, keep_initializers_as_inputs, inputs and initializers of the file
    (True, False, ["input"], ["weight", "bias"]),
    (True, True, ["input", "weight", "bias"], ["weight", "bias"]),
    (False, True, ["input", "weight", "bias"], []),
    (False, False, ["input"], []),
]


@pytest.mark.parametrize(("included", "as_inputs", "inputs", "initializers"), SAVED)
def test_programs_are_saved_as_torch_saves_them(
    included: bool, as_inputs: bool, inputs: list[str], initializers: list[str]
) -> None:
    file = io.BytesIO()
    program = purexport.export(nn.Linear(3, 2), (X,))
    program.optimize()
    program.save(file, include_initializers=included, keep_initializers_as_inputs=as_inputs)
    graph = onnx.load_from_string(file.getvalue()).graph
    assert [item.name for item in graph.input] == inputs
    assert [item.name for item in graph.initializer] == initializers
    assert [item.name for item in program.model_proto.graph.input] == ["input"], "the program stays as it was"


# Undone ---------------------------------------------------------------------------------------------------------------


def surface() -> dict[tuple[str, str], Any]:
    """Everything that the modules of torch.onnx hold, but for modules."""
    loaded = {name: module for name, module in sys.modules.items() if f"{name}.".startswith("torch.onnx.")}
    found = {(key, name): value for key, module in loaded.items() for name, value in vars(module).items()}
    own = {("OperatorExportTypes", name): value for name, value in vars(torch.onnx.OperatorExportTypes).items()}
    own["JitScalarType", "from_value"] = vars(torch.onnx.JitScalarType)["from_value"]
    return {key: value for key, value in {**found, **own}.items() if not isinstance(value, types.ModuleType)}


@contextmanager
def unchanged() -> Iterator[None]:
    before = surface()
    yield
    after = surface()
    assert not [key for key in before if after.get(key) is not before[key]]
    loaded = {module for module, _ in before}
    assert not [key for key in after.keys() - before.keys() if key[0] in loaded]
    assert not torch_onnx.patched() and torch.onnx.export is TORCH_EXPORT


def leave() -> None:
    with purexport.patch():
        assert torch.onnx.export is purexport.export


def fail() -> None:
    with pytest.raises(KeyError), purexport.patch():
        raise KeyError


def fail_in_an_export() -> None:
    with pytest.raises(purexport.ExportError), purexport.patch():
        torch.onnx.export(nn.Linear(2, 2), X)


def nest() -> None:
    with purexport.patch():
        with purexport.patch():
            pass
        assert torch.onnx.export is purexport.export


def decorate() -> None:
    @purexport.patch()
    def run(depth: int) -> None:
        assert torch.onnx.export is purexport.export
        if depth:
            run(depth - 1)

    run(2)


def cross() -> None:
    """Who opened it first leaves first."""
    first, second = purexport.patch(), purexport.patch()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.onnx.export is purexport.export
    second.__exit__(None, None, None)


def stand() -> None:
    """A call alone takes effect at once, and may be repeated."""
    held = purexport.patch()
    assert torch.onnx.export is purexport.export and "until .undo()" in repr(held)
    purexport.patch()
    with purexport.patch():
        pass
    gc.collect(1)  # all that this test made; the rest of the process would take seconds
    assert torch.onnx.export is purexport.export
    held.undo()
    assert torch.onnx.export is TORCH_EXPORT and "torch's own" in repr(held)
    held.undo()


def undo_by_another() -> None:
    purexport.patch()
    purexport.patch().undo()


def undo_beside_a_block() -> None:
    with purexport.patch():
        purexport.patch()
        purexport.patch().undo()
        assert torch.onnx.export is purexport.export


def undo_inside() -> None:
    with purexport.patch() as held:
        held.undo()
        assert torch.onnx.export is TORCH_EXPORT


def enter_again() -> None:
    held = purexport.patch()
    with held:
        with held:
            pass
        assert torch.onnx.export is purexport.export
    assert torch.onnx.export is TORCH_EXPORT
    with held:
        assert torch.onnx.export is purexport.export


def only_decorate() -> None:
    """A function that is decorated and never called changes nothing."""
    purexport.patch()(leave)
    assert torch.onnx.export is TORCH_EXPORT


WAYS_OUT = [
    *(leave, fail, fail_in_an_export, nest, decorate, cross),
    *(stand, undo_by_another, undo_beside_a_block, undo_inside, enter_again, only_decorate),
]


@pytest.mark.parametrize("run", WAYS_OUT, ids=lambda run: run.__name__)
def test_it_is_undone(run: Callable[[], None]) -> None:
    with unchanged():
        run()


def test_a_module_that_is_loaded_inside_keeps_nothing_of_ours() -> None:
    """torch.onnx.utils copies its names from another module when it is loaded."""
    before = sys.modules.pop("torch.onnx.utils")
    try:
        with purexport.patch():
            copied = importlib.import_module("torch.onnx.utils")
            assert copied.export is purexport.export
        assert copied.export is vars(before)["export"]
        assert copied.register_custom_op_symbolic is torch.onnx.register_custom_op_symbolic
    finally:
        sys.modules["torch.onnx.utils"] = torch.onnx.utils = before


def test_what_somebody_else_put_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.onnx, "export", TORCH_EXPORT)
    with purexport.patch():
        torch.onnx.export = theirs = lambda: None  # type: ignore[assignment]
    assert torch.onnx.export is theirs


def test_torch_exports_as_before_afterwards() -> None:
    with purexport.patch():
        assert written(foreign.by_attribute, nn.Linear(3, 3)).producer_name == "purexport"
    assert written(foreign.by_own_name, nn.Linear(3, 3)).producer_name == "pytorch"


def test_the_exporter_of_torch_works_beside_it() -> None:
    """Its helpers are ours for our values only."""
    inner = vars(sys.modules[torch.onnx.register_custom_op_symbolic.__module__])["_export"]
    file = io.BytesIO()
    model = nn.Sequential(nn.Linear(3, 3), nn.GELU("tanh"), nn.Flatten(0, 1))
    with purexport.patch():
        inner(model.eval(), (X,), file)
    assert onnx.load_from_string(file.getvalue()).producer_name == "pytorch"


# Threads --------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("registered")
def test_two_threads_that_overlap() -> None:
    """The second opens while the first is inside, and is still inside when the first has left."""
    inside, left = threading.Event(), threading.Event()
    seen: dict[str, str] = {}

    def first() -> None:
        with purexport.patch():
            inside.wait(20)
            seen["first"] = written(foreign.by_attribute, foreign.Net()).producer_name
        left.set()

    def second() -> None:
        with purexport.patch():
            inside.set()
            left.wait(20)
            seen["second"] = written(foreign.by_own_name, foreign.Net(), opset_version=15).producer_name

    with unchanged():
        threads = [threading.Thread(target=item) for item in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert seen == {"first": "purexport", "second": "purexport"}


def words_of_a_hub(model: nn.Module, args: Any, file: io.BytesIO) -> Any:
    """Named arguments as one dict, outputs as a dict, axes of both, and what is asked by names imported inside."""
    from torch.onnx import export

    axes = {name: {0: "batch", 1: "length"} for name in ("ids", "mask", "hidden")} | {"pooled": {0: "batch"}}
    options: Any = {"input_names": ["ids", "mask"], "output_names": ["hidden", "pooled"], "dynamic_axes": axes}
    return export(model, args, file, do_constant_folding=True, opset_version=14, **options)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids: Any = None, mask: Any = None, labels: Any = None) -> dict[str, torch.Tensor]:
        hidden = self.table(ids) * mask[..., None]
        return {"hidden": hidden, "pooled": hidden.mean(1)}


def test_a_model_hub() -> None:
    file, ids = io.BytesIO(), torch.randint(0, 10, (2, 5))
    model = Words()
    with purexport.patch():
        words_of_a_hub(model, ({"ids": ids, "mask": torch.ones(2, 5)},), file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    assert [item.shape for item in session.get_outputs()] == [["batch", "length", 4], ["batch", 4]]
    more, mask = torch.randint(0, 10, (3, 2)), torch.rand(3, 2)
    results = session.run(None, {"ids": more.numpy(), "mask": mask.numpy()})
    for got, want in zip(results, model(more, mask).values(), strict=True):
        assert_near(got, want)


# What libraries ask for -----------------------------------------------------------------------------------------------


class Unknown(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.foreign.scaled(x, 0.5, [1])


ERRORS = [
    # what the export raises, caught as
    (Unknown(), "OnnxExporterError", purexport.UnsupportedOperatorError, "foreign::scaled"),
    (nn.Linear(2, 2), "OnnxExporterError", purexport.ExportError, "does not run on these args"),
]


@pytest.mark.parametrize(("model", "theirs", "ours", "message"), ERRORS, ids=["operator", "model"])
def test_errors_are_those_of_both(model: nn.Module, theirs: str, ours: type[Exception], message: str) -> None:
    with purexport.patch():
        with pytest.raises(getattr(torch.onnx, theirs), match=message) as caught:
            torch.onnx.export(model, (X,))
        assert isinstance(caught.value, ours)
        if ours is purexport.UnsupportedOperatorError:
            assert isinstance(caught.value, torch.onnx.errors.UnsupportedOperatorError)
            assert caught.value.gaps[0].target == message  # type: ignore[attr-defined]
    with pytest.raises(ours) as alone:
        purexport.export(model, (X,))
    assert not isinstance(alone.value, torch.onnx.OnnxExporterError)


def test_refused_options_are_errors_of_both() -> None:
    """A RuntimeError in torch.onnx, by which code turns to an older opset; a ValueError with us."""
    for kind in (RuntimeError, ValueError, torch.onnx.OnnxExporterError):
        with purexport.patch(), pytest.raises(kind, match="opset_version=3 is not one of"):
            torch.onnx.export(nn.ReLU(), (X,), opset_version=3)
    with pytest.raises(ValueError, match="opset_version=3") as alone:
        purexport.export(nn.ReLU(), (X,), opset_version=3)
    assert type(alone.value) is ValueError


def test_an_export_is_one_for_torch_too() -> None:
    """A model that asks torch.onnx, by a name that it took before."""
    seen: list[Any] = []

    class Asks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((foreign.is_in_onnx_export(), torch.onnx.is_in_onnx_export(), purexport.is_in_onnx_export()))
            return x + 1

    with purexport.patch():
        torch.onnx.export(Asks(), (X,))
        assert set(seen) == {(True, True, True)} and not torch.onnx.is_in_onnx_export()
    seen.clear()
    purexport.export(Asks(), (X,))
    assert set(seen) == {(False, False, True)}, "without patch() torch.onnx knows nothing of it"


class Activations(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tril(nn.functional.gelu(x)) + nn.functional.gelu(x, approximate="tanh") + torch.linalg.inv(x)


CUSTOM = {"Gelu", "Trilu", "Inverse"}


@pytest.mark.parametrize("inside", [False, True], ids=["registered-before", "registered-inside"])
def test_the_contrib_operators_of_onnxruntime(inside: bool) -> None:
    """A library that registers its operators with torch.onnx, and takes them back."""
    x, file = torch.randn(3, 3) + 3 * torch.eye(3), io.BytesIO()

    def domains() -> set[str]:
        program = torch.onnx.export(Activations(), (x,), file, opset_version=17, custom_opsets={"com.microsoft": 1})
        return {node.op_type for node in program.model_proto.graph.node if node.domain}  # type: ignore[union-attr]

    if not inside:
        contrib.register()
    with purexport.patch():
        if inside:
            contrib.register()
        assert domains() == CUSTOM
        session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
        (got,) = session.run(None, {"x": x.numpy()})
        assert_near(got, Activations()(x))
        contrib.unregister()
        assert not domains()


def test_what_is_registered_inside_is_registered_with_both() -> None:
    def relu(g: Any, x: Any) -> Any:
        return g.op("foreign::Relu", x)

    try:
        with purexport.patch():
            torch.onnx.register_custom_op_symbolic("::relu", relu, 9)  # an old form of ATen names
        program = purexport.export(nn.ReLU(), (X,), custom_opsets={"foreign": 1})
        assert [node.domain for node in program.model_proto.graph.node] == ["foreign"]
        file = io.BytesIO()
        foreign.export(nn.ReLU(), (X,), file, dynamo=False, custom_opsets={"foreign": 1})  # type: ignore[arg-type]
        assert b"foreign" in file.getvalue()
    finally:
        with purexport.patch():
            torch.onnx.unregister_custom_op_symbolic("::relu", 9)
    assert not purexport.export(nn.ReLU(), (X,)).model_proto.graph.node[0].domain


class Regions(nn.Module):
    def forward(self, x: torch.Tensor, boxes: torch.Tensor, scores: torch.Tensor) -> Any:
        ops = torchvision().ops
        kept = ops.nms(boxes, scores, 0.5)
        return ops.roi_align(x, [boxes[kept]], (2, 2), 1.0, 2, True)


def test_operators_of_a_library_that_we_know_better() -> None:
    """torchvision registers symbolic functions with torch.onnx when it is loaded; our rules are more exact."""
    boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.2, 4.0], [2.0, 2.0, 7.0, 7.0]])
    args = (torch.randn(1, 3, 8, 8), boxes, torch.tensor([0.9, 0.8, 0.7]))
    torchvision()
    registry = sys.modules[torch.onnx.register_custom_op_symbolic.__module__].registration.registry  # type: ignore[attr-defined]
    assert registry.is_registered_op("torchvision::roi_align", 15)
    with purexport.patch(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(Regions(), args, dynamo=False, opset_version=15)  # below 16 theirs is inexact
    assert {"torchvision::nms", "torchvision::roi_align"} <= set(program.report.rules)
    assert_near(program(*args)[0], Regions()(*args))


class Squeezed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.foreign.scaled(x, 0.5, [1])


def test_blocks_by_the_internals_of_torch_are_refused() -> None:
    def symbolic(g: Any, x: Any, by: Any, dims: Any) -> Any:
        return torch.onnx.symbolic_opset11.squeeze(g, g.op("foreign::Any", x), 0)  # type: ignore[attr-defined]

    torch.onnx.register_custom_op_symbolic("foreign::scaled", symbolic, 9)
    try:
        with purexport.patch(), pytest.raises(purexport.ExportError, match=r"write them with g.block\(\)"):
            torch.onnx.export(Squeezed(), (X,))
    finally:
        torch.onnx.unregister_custom_op_symbolic("foreign::scaled", 9)


def test_without_torch_onnx_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"no {name}")

    monkeypatch.delattr(torch, "onnx")
    monkeypatch.setattr(torch, "__getattr__", missing)
    with pytest.raises(ImportError, match=r"patch\(\) replaces functions of torch.onnx, which cannot be loaded here"):
        purexport.patch().__enter__()
    assert not torch_onnx.patched()
