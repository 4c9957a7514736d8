"""Symbolic functions that call the helpers of torch.onnx, in exports outside of `patch`; torch.onnx stays as it was."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.onnx
import torch.onnx.symbolic_helper as helper
from torch import Tensor, nn

import purexport
from tests.compat.test_patch import unchanged
from tests.tolerances import assert_near

ROOT = Path(__file__).parents[2]
X, MASK = torch.linspace(-2, 2, 12).reshape(3, 4), torch.tensor([[1, 0, 1, 1]] * 3)


class MaskedSoftmax(torch.autograd.Function):
    """As SEW-D and older DeBERTa have it: the functions of opset 9 are imported where they are called."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, dim: int) -> Tensor:
        left_out = ~mask.bool()
        return torch.softmax(x.masked_fill(left_out, -1e4), dim).masked_fill(left_out, 0)

    @staticmethod
    def symbolic(g: Any, x: Any, mask: Any, dim: int) -> Any:
        from torch.onnx.symbolic_opset9 import masked_fill, softmax

        left_out = g.op("Not", g.op("Cast", mask, to_i=helper.cast_pytorch_to_onnx["Bool"]))  # type: ignore[attr-defined]
        scores = masked_fill(g, x, left_out, g.op("Constant", value_t=torch.tensor(-1e4)))
        return masked_fill(g, softmax(g, scores, dim), left_out, g.op("Constant", value_t=torch.tensor(0.0)))


class Scaled(torch.autograd.Function):
    """Arguments are read by torch's decorator, a constant by torch's helper, types and shapes by torch's classes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, by: int) -> Tensor:
        return x * by

    @staticmethod
    @helper.parse_args("v", "v", "i")
    def symbolic(g: Any, x: Any, mask: Any, by: int) -> Any:
        assert torch.onnx.JitScalarType.from_value(x).dtype() == torch.float32 and helper._get_tensor_rank(x) == 2
        wide = helper._unsqueeze_helper(g, x, [0])
        kept = helper._get_const(g.op("Constant", value_t=torch.tensor(by)), "i", "by")
        factor = g.op("Constant", value_t=torch.tensor(float(kept)))
        return torch.onnx.symbolic_opset9.mul(g, helper._squeeze_helper(g, wide, [0]), factor)  # type: ignore[attr-defined]


class Applied(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.function.apply(x, mask, 1)


@pytest.mark.parametrize("opset", [9, 13, 20])
@pytest.mark.parametrize("route", ["trace", "export"])
@pytest.mark.parametrize("function", [MaskedSoftmax, Scaled])
def test_they_take_our_values(function: Any, route: str, opset: int) -> None:
    model = Applied(function)
    with unchanged():
        program = purexport.export(model, (X, MASK), capture=route, opset_version=opset, verify=True)
    assert_near(program(X, MASK)[0], model(X, MASK))


def test_registered_functions_take_them_too() -> None:
    def relu(g: Any, x: Any) -> Any:
        return torch.onnx.symbolic_opset9.clamp_min(g, x, g.op("Constant", value_t=torch.tensor(0.0)))  # type: ignore[attr-defined]

    purexport.register_custom_op_symbolic("aten::relu", relu, 9)
    try:
        with unchanged():
            program = purexport.export(nn.ReLU(), (X,))
    finally:
        purexport.unregister_custom_op_symbolic("aten::relu", 9)
    assert [node.op_type for node in program.model_proto.graph.node] == ["Clip"]


def test_an_error_takes_them_back() -> None:
    class Fails(MaskedSoftmax):
        @staticmethod
        def symbolic(g: Any, x: Any, mask: Any, dim: int) -> Any:
            return torch.onnx.symbolic_opset9.softmax(g, x, "no axis")  # type: ignore[attr-defined]

    with unchanged(), pytest.raises(purexport.ExportError, match=r"Function .*Fails at .* failed: TypeError"):
        purexport.export(Applied(Fails), (X, MASK))


@pytest.mark.parametrize("opened", ["before", "inside", "across"])
def test_a_patch_meanwhile(opened: str) -> None:
    """Another thread opens a `patch` before the symbolic function runs or while it does, and may keep it longer."""
    held: list[Any] = []

    class Opens(MaskedSoftmax):
        @staticmethod
        def symbolic(g: Any, x: Any, mask: Any, dim: int) -> Any:
            if opened != "before":
                thread = threading.Thread(target=lambda: held.append(purexport.patch()))
                thread.start()
                thread.join()
            assert torch.onnx.export is purexport.export
            if opened != "across":
                held[0].undo()
            return MaskedSoftmax.symbolic(g, x, mask, dim)

    with unchanged():
        if opened == "before":
            held.append(purexport.patch())
        program = purexport.export(Applied(Opens), (X, MASK), verify=True)
        held[0].undo()
    assert_near(program(X, MASK)[0], Applied(MaskedSoftmax)(X, MASK))


SCRIPT = """
import sys, torch, purexport
class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.softmax(x, 1)
    @staticmethod
    def symbolic(g, x):
        from torch.onnx.symbolic_opset9 import softmax
        return softmax(g, x, 1)
assert "torch.onnx" not in sys.modules
program = purexport.export(lambda x: Softmax.apply(x), (torch.ones(2, 3),))
print(*[node.op_type for node in program.model_proto.graph.node])
"""


@pytest.mark.full  # a process that imports torch takes seconds
def test_torch_onnx_is_loaded_by_the_function() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["Softmax"], done.stderr
