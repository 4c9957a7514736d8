"""Models inside others that hand on what they are given: DataParallel, and code between the marks of a profiler."""

from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import purexport

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
    assert program.report.route == ("export" if capture == "export" else "trace")
