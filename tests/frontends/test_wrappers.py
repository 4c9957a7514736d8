"""Models inside others that hand on what they are given, containers as results, and arguments that are refused."""

from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.harness import run_ort
from tests.tolerances import CHAIN, assert_near

X = torch.arange(12.0).reshape(3, 4)


class Scores(OrderedDict[str, Any]):
    pass


@dataclasses.dataclass
class Pair:
    first: Tensor
    second: Tensor | None = None


@dataclasses.dataclass
class Both(OrderedDict[str, Any]):
    """A dataclass that is a mapping of its own fields, as the results of transformers are."""

    first: Any = None
    second: Any = None

    def __post_init__(self) -> None:
        self.update({name: value for name, value in vars(self).items() if value is not None})


class Marked(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        with torch.profiler.record_function("a part"):
            return image * 2 + 1


# model, names of inputs, outputs and initializers
WRAPPED = [
    pytest.param(
        nn.DataParallel(nn.Linear(4, 2)), ["input"], ["output"], ["module.weight", "module.bias"], id="parallel"
    ),
    pytest.param(nn.DataParallel(Marked()), ["image"], ["output"], None, id="parallel-of-a-function"),
    pytest.param(Marked(), ["image"], ["output"], None, id="profiled"),
    pytest.param(lambda x: Scores(a=x + 1, b=-x), ["x"], ["a", "b"], None, id="a-subclass-of-a-dict"),
    pytest.param(lambda x: Pair(x + 1, -x), ["x"], ["first", "second"], None, id="a-dataclass"),
    pytest.param(lambda x: Pair(x + 1), ["x"], ["first"], None, id="a-dataclass-with-none"),
    pytest.param(lambda x: {"in": Both(x + 1, -x)}, ["x"], ["in_first", "in_second"], None, id="a-dataclass-and-dict"),
]


@pytest.mark.parametrize("capture", ["auto", "trace", "export"])
@pytest.mark.parametrize(("model", "inputs", "outputs", "weights"), WRAPPED)
def test_what_is_inside_is_exported(
    model: Any, inputs: list[str], outputs: list[str], weights: list[str] | None, capture: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        program = purexport.export(model, (X,), capture=capture, verify=True)
    graph = program.model_proto.graph
    assert [item.name for item in graph.input] == inputs and [item.name for item in graph.output] == outputs
    assert weights is None or [item.name for item in graph.initializer] == weights
    assert program.report.route == ("trace" if capture == "auto" else capture)


REFUSED = [
    # an argument, the code of the error and words of it
    pytest.param(lambda: torch.eye(3).to_sparse(), "argument-layout", r"a torch.sparse_coo tensor", id="coo"),
    pytest.param(lambda: torch.eye(3).to_sparse_csr(), "argument-layout", r"a torch.sparse_csr tensor", id="csr"),
    pytest.param(lambda: {"x": [torch.eye(3).to_sparse()]}, "argument-layout", r"x\.to_dense\(\)", id="inside"),
    pytest.param(lambda: torch.nested.nested_tensor([X, X[:2]]), "argument-layout", r"a nested tensor", id="nested"),
    pytest.param(
        lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
        "quantized-tensor",
        r"x\.int_repr\(\)",
        id="quantized",
    ),
    pytest.param(lambda: np.ones(3), "argument-not-a-tensor", r"an array of numpy.*torch\.from_numpy", id="numpy"),
    pytest.param(lambda: torch.float32, "argument-not-a-tensor", r"holds torch.float32", id="dtype"),
]


@pytest.mark.parametrize("capture", ["auto", "trace", "export"])
@pytest.mark.parametrize(("make", "code", "words"), REFUSED)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse CSR tensor support")
@pytest.mark.filterwarnings("ignore:quantize_per_tensor is deprecated")
def test_an_argument_that_no_input_can_stand_for(make: Any, code: str, words: str, capture: str) -> None:
    with pytest.raises(purexport.ExportError, match=words) as caught:
        purexport.export(lambda x, y: x + 1, (X, make()), capture=capture)
    assert caught.value.code == code


def exported() -> nn.Module:
    """A module that torch.export made, which refuses to change its mode, as that of convert_pt2e does."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.ReLU()).eval()
    return torch.export.export(model, (X,)).module()


@pytest.mark.parametrize("capture", ["trace", "export"])
@pytest.mark.parametrize("among", [False, True], ids=["alone", "among-others"])
def test_an_exported_module_is_exported(among: bool, capture: str) -> None:
    torch.manual_seed(0)
    inner = exported()
    model = nn.Sequential(inner, nn.Dropout(0.9)) if among else inner
    program = purexport.export(model, (X,), capture=capture)
    assert [node.op_type for node in program.model_proto.graph.node] == ["Gemm", "Relu"]
    assert_near(run_ort(program.model_proto.SerializeToString(), [X.numpy()])[0], inner(X).detach(), CHAIN)
    assert not among or model[1].training


@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
def test_a_compiled_module_is_exported(part: bool) -> None:
    """The wrapper stays where it is, and the file has the names of the model inside."""
    inner = nn.Linear(4, 2)
    compiled: Any = torch.compile(inner)
    model = nn.Sequential(compiled, nn.ReLU()) if part else compiled
    in_place = nn.Linear(4, 2)
    in_place.compile()
    call = in_place._compiled_call_impl
    for wrapped, names in ((model, ["0.weight", "0.bias"] if part else ["weight", "bias"]), (in_place, None)):
        program = purexport.export(wrapped, (X,))
        assert program.report.route == "trace"
        assert names is None or [item.name for item in program.model_proto.graph.initializer] == names
    assert model is compiled or model[0] is compiled
    assert in_place._compiled_call_impl is call is not None


@pytest.mark.parametrize("route", ["trace", "export"])
def test_lazy_modules_get_their_sizes_from_the_arguments(route: Any) -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.Linear(3, 2))
    state = torch.get_rng_state()
    program = purexport.export(model, (X,), capture=route, verify=True)
    assert torch.equal(torch.get_rng_state(), state) and model.training
    assert model[0].in_features == 4 and program.report.route == route
    with pytest.raises(purexport.ExportError, match="the model does not run on these args: RuntimeError: mat1 and"):
        purexport.export(nn.Sequential(nn.LazyLinear(3), nn.Linear(4, 2)), (X,))


def test_a_functional_call_of_a_layer() -> None:
    """torch's tracer refuses it."""

    class Stateless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            weights = {name: value * 2 for name, value in self.layer.named_parameters()}
            result: Tensor = torch.func.functional_call(self.layer, weights, (x,))
            return result

    assert purexport.export(Stateless(), (X,), verify=True).report.route == "trace"
