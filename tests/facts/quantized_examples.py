"""Calls of quantized operators, made of their schemas: an argument is chosen by its name.

The graph holds packed weights as lists: `(weight, bias, stride, padding, output_padding, dilation, groups, transposed)`
of a convolution, `(weight, bias)` of a linear layer (`frontends/core/prepacked.py`).
"""

from __future__ import annotations

from typing import Any

import torch

from purexport.aten.names import overloads_of, parsed
from purexport.aten.schema import MISSING, bind, signature
from purexport.facts.table import FACTS
from tests.facts.examples import Example, example, integers, numbers, weights

OPS: Any = torch.ops.quantized
NUMBERS: dict[str, Any] = {
    "scale": 0.1,
    "zero_point": 3,
    "eps": 1e-5,
    "negative_slope": 0.1,
    "inplace": False,
    "num_groups": 1,
}
NUMBERS |= {"dim": 1, "threshold": 0.5, "value": 0.25, "b": 2.0, "normalized_shape": [2], "p": 0.5}
SHAPES = {"mean": (3,), "var": (3,), "bias": (3,), "weight": (3,)}


def quantized(*shape: int, dtype: torch.dtype = torch.quint8) -> torch.Tensor:
    return torch.quantize_per_tensor(numbers(*shape), 0.1, 3 if dtype is torch.quint8 else 0, dtype)


def examples() -> list[Example]:
    """One for each overload of a quantized operator with a fact, and of those of ATen that quantize."""
    found = [_elementwise(target) for target in _targets() if _is_elementwise(target)]
    found += [_convolution(target) for target in _targets() if "conv" in target]
    found += [_linear(target) for target in _targets() if "W_prepack" in _names(target)]
    found += [
        example("quantized::cat", [quantized(2, 3), quantized(1, 3)], 0, 0.1, 3),
        example("quantized::cat_relu", [quantized(2, 3), quantized(1, 3)], 0, 0.1, 3),
        _embedding(),
        example("quantized::matmul", quantized(2, 3), quantized(3, 4), 0.1, 3),
        example("aten::int_repr", quantized(2, 3)),
        example("aten::dequantize.self", quantized(2, 3)),
        example("aten::dequantize.tensors", [quantized(2, 3), quantized(4)]),
        example("aten::quantize_per_channel", numbers(2, 3), torch.ones(2), integers(0, 0), 0, torch.qint8),
        example("aten::quantize_per_tensor", numbers(2, 3), 0.1, 3, torch.quint8),
        example(
            "aten::quantize_per_tensor.tensor_qparams", numbers(2, 3), torch.tensor(0.1), torch.tensor(3), torch.quint8
        ),
        example("aten::quantize_per_tensor_dynamic", numbers(2, 3), torch.qint8, False),
        *_recurrent(),
    ]
    return found


def _targets() -> list[str]:
    return [
        target
        for row in FACTS.values()
        if row.operator.startswith("quantized::")
        for target in overloads_of(row.operator)
        if not parsed(target).overload.endswith("out") and parsed(target).overload != "Scalar2"
    ]


def _names(target: str) -> list[str]:
    return [parameter.name for parameter in signature(target).parameters]


def _argument(target: str, name: str, kind: str) -> Any:
    rank = next((int(char) for char in parsed(target).name if char.isdigit() and char != "6"), 2)
    if name in ("qx", "input", "self", "qa", "qb"):
        shape = (2, 3, *[2] * rank) if rank != 1 else (2, 3, 2)
        return quantized(*shape)
    if name == "b" and "Tensor" in kind:
        return torch.tensor(2.0)
    if name == "weight" and "prelu" in target:
        return quantized(3)
    if name in SHAPES:
        shape = (2,) if "layer_norm" in target else SHAPES[name]
        return torch.ones(shape)
    return next(number for key, number in NUMBERS.items() if name == key or name.endswith((f"_{key}", f"_{key}_i")))


def _is_elementwise(target: str) -> bool:
    others = parsed(target).name in ("cat", "cat_relu", "matmul", "embedding_byte")
    return not others and "conv" not in target and "W_prepack" not in _names(target)


def _elementwise(target: str) -> Example:
    required = [item for item in signature(target).parameters if item.default is MISSING]
    args = {item.name: _argument(target, item.name, item.type) for item in required}
    bounds = {"min": 0.0, "max": 1.0} if parsed(target).name == "clamp" else {}
    return Example(target, bind(target, [], args | bounds))


def _convolution(target: str) -> Example:
    name = parsed(target).name
    rank = int(next(char for char in name if char.isdigit()))
    transposed, dynamic = "transpose" in name, "dynamic" in name
    stride, padding, ones, zeros = [2] * rank, [1] * rank, [1] * rank, [0] * rank
    weight, bias = quantized(*((2, 3) if transposed else (3, 2)), *[3] * rank, dtype=torch.qint8), torch.ones(3)
    prepack = getattr(OPS, f"conv{'_transpose' if transposed else ''}{rank}d_prepack")
    between = [zeros] if transposed else []
    packed = prepack(weight, bias, stride, padding, *between, ones, 1)
    flat = rank == 1  # which torch packs as two axes
    kept: list[Any] = [weight.unsqueeze(2) if flat else weight, bias]
    kept += [[first, *sizes] if flat else sizes for first, sizes in ((1, stride), (0, padding), (0, zeros), (1, ones))]
    value = numbers(1, 2, *[5] * rank) if dynamic else quantized(1, 2, *[5] * rank)
    rest: list[Any] = [] if dynamic else [0.1, 3]
    if "stride" in _names(target):
        rest = [stride, padding, ones, 1, 0.1, 3]
    return Example(target, bind(target, [value, packed, *rest], {}), {_names(target)[1]: [*kept, 1, transposed]})


def _linear(target: str) -> Example:
    weight, bias = quantized(4, 3, dtype=torch.qint8), torch.ones(4)
    half, dynamic = "fp16" in target, "dynamic" in target
    packed = OPS.linear_prepack_fp16(weight.dequantize(), bias) if half else OPS.linear_prepack(weight, bias)
    args = [numbers(2, 5, 3), packed] if dynamic else [quantized(2, 5, 3), packed, 0.1, 3]
    return Example(target, bind(target, args, {}), {"W_prepack": [weight, bias]})


def _embedding() -> Example:
    rows = torch.quantize_per_channel(numbers(6, 4), torch.ones(6), torch.zeros(6), 0, torch.quint8)
    packed = OPS.embedding_bag_prepack(rows)
    return Example(
        "quantized::embedding_byte",
        bind("quantized::embedding_byte", [packed, integers(1, 2, 5)], {}),
        {"weight": [rows]},
    )


def _recurrent() -> list[Example]:
    """The layers in the form that `torch.ao.nn.quantized.dynamic` calls."""
    made = []
    for gates, name, state in ((4, "lstm", [numbers(1, 2, 4)] * 2), (3, "gru", numbers(1, 2, 4))):
        first, second, bias, other = weights(gates)
        halves = [
            OPS.linear_prepack(torch.quantize_per_tensor(half, 0.1, 0, torch.qint8), number)
            for half, number in ((first, bias), (second, other))
        ]
        cell = OPS.make_quantized_cell_params_dynamic(*halves, bias, other, False)
        target = f"aten::quantized_{name}.input"
        args = [numbers(5, 2, 3), state, [cell], True, 1, 0.0, False, False, False]
        made.append(Example(target, bind(target, args, {}), {"params": []}))
    return made
