"""A library as others write them: it knows torch.onnx only, and took its names from there when it was loaded."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn
from torch.onnx import (
    OperatorExportTypes,
    TrainingMode,
    export,
    is_in_onnx_export,
    register_custom_op_symbolic,
    symbolic_helper,
    symbolic_opset9,
    unregister_custom_op_symbolic,
)
from torch.onnx.symbolic_helper import parse_args

OPERATORS = torch.library.Library("foreign", "DEF")
OPERATORS.define("scaled(Tensor x, float by, int[] dims) -> Tensor")
OPERATORS.impl("scaled", lambda x, by, dims: x * by, "CompositeExplicitAutograd")
SEEN: list[Any] = []


@parse_args("v", "f", "is")
def scaled(g: Any, x: Any, by: float, dims: list[int]) -> Any:
    """Torch's own helpers and symbolic functions, called from a symbolic function that torch's parse_args decorated."""
    SEEN.append((by, dims, torch.onnx.JitScalarType.from_value(x).dtype(), symbolic_helper._get_tensor_rank(x)))
    wide = symbolic_helper._unsqueeze_helper(g, x, [0])
    return symbolic_opset9.mul(g, symbolic_helper._squeeze_helper(g, wide, [0]), g.op("Constant", value_t=_double(by)))


def _double(number: float) -> torch.Tensor:
    """A number whose dtype is not that of the tensor beside it, which torch.onnx casts without a word."""
    return torch.tensor(number, dtype=torch.float64)


class Net(nn.Module):
    """Computes the same either way, and shows in the file which way it went."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if is_in_onnx_export():
            return torch.tanh(torch.ops.foreign.scaled(self.layer(x), 0.5, [1, 2]))
        return torch.tanh(self.layer(x) * 0.5)


def by_attribute(model: nn.Module, args: Any, file: io.BytesIO, **options: Any) -> Any:
    return torch.onnx.export(model, args, file, **options)


def by_keywords(model: nn.Module, args: Any, file: io.BytesIO, **options: Any) -> Any:
    return torch.onnx.export(model=model, args=args, f=file, **options)  # type: ignore[arg-type]


def by_own_name(model: nn.Module, args: Any, file: io.BytesIO, **options: Any) -> Any:
    return export(model, args, file, dynamo=False, **options)  # type: ignore[arg-type]


def by_own_name_today(model: nn.Module, args: Any, file: io.BytesIO, **options: Any) -> Any:
    export(model, args, dynamo=True, **options).save(file)  # type: ignore[union-attr, arg-type]


def by_utils(model: nn.Module, args: Any, file: io.BytesIO, **options: Any) -> Any:
    return torch.onnx.utils.export(model, args, file, **options)


def in_the_manner_of_torch_1(model: nn.Module, args: Any, file: io.BytesIO, **options: Any) -> Any:
    given: Any = torch.onnx.export
    return given(
        model,
        args,
        file,
        True,
        False,
        TrainingMode.EVAL,
        operator_export_type=OperatorExportTypes.ONNX,
        do_constant_folding=True,
        enable_onnx_checker=True,
        strip_doc_string=True,
        **options,
    )


def register() -> None:
    register_custom_op_symbolic("foreign::scaled", scaled, 9)


def unregister() -> None:
    unregister_custom_op_symbolic("foreign::scaled", 9)
