"""Operators over dtypes, casts, constants, and models in half precision or under autocast.

Where ONNX Runtime has no kernel for a dtype (most of bfloat16, some of float64), onnx's reference evaluator computes.
"""

from __future__ import annotations

import functools
import itertools
import operator

import pytest
import torch
from torch import nn
from torch.nn import functional

import purexport
from tests.harness import check_file, compare_with_torch, export
from tests.tiers import dealt
from tests.tolerances import EXACT, TABLE, USUAL, Bounds

F16, BF16, F64 = torch.float16, torch.bfloat16, torch.float64
FLOATS = (F16, BF16, F64)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32)
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, torch.bool)
OPSETS = (13, 20, 23)

PLACES = torch.tensor([[0, 1], [2, 0], [1, 3]])

# name: (model, dtypes); a model of two arguments gets two tensors [3, 4]
# (ONNX Runtime multiplies products by float32 numbers, so that scaled float64 ones are left out)
OPERATORS = {
    "add": (lambda x, y: x + y, ALL),
    "add-number": (lambda x: x + 3, ALL),
    "add-alpha": (lambda x, y: torch.add(x, y, alpha=2), NUMBERS),
    "sub": (lambda x, y: x - y, NUMBERS),
    "mul": (lambda x, y: x * y, ALL),
    "mul-float": (lambda x: x * 2.5, ALL),
    "div": (lambda x, y: x / (y + 20), NUMBERS),
    "floor-divide": (lambda x, y: x // y, NUMBERS),
    "remainder": (lambda x, y: x % y, NUMBERS),
    "neg": (torch.neg, NUMBERS),
    "abs": (torch.abs, NUMBERS),
    "sign": (torch.sign, ALL),
    "square": (torch.square, ALL),
    "exp": (torch.exp, ALL),
    "sqrt": (lambda x: x.abs().sqrt(), NUMBERS),
    "sin": (torch.sin, ALL),
    "tanh": (torch.tanh, ALL),
    "sigmoid": (torch.sigmoid, ALL),
    "relu": (torch.relu, NUMBERS),
    "silu": (lambda x: functional.silu(x), FLOATS),
    "gelu": (functional.gelu, (F16, BF16)),  # the reference evaluator's Erf is float32
    "elu": (lambda x: functional.elu(x, 0.3), FLOATS),
    "leaky-relu": (lambda x: functional.leaky_relu(x, 0.1), FLOATS),
    "hardswish": (lambda x: functional.hardswish(x), FLOATS),
    "softplus": (functional.softplus, FLOATS),
    "softmax": (lambda x: torch.softmax(x, -1), FLOATS),
    "softmax-float32": (lambda x: torch.softmax(x, -1, dtype=torch.float32), ALL),
    "round": (torch.round, NUMBERS),
    "floor": (torch.floor, NUMBERS),
    "clamp": (lambda x: x.clamp(0, 2), NUMBERS),
    "minimum": (torch.minimum, ALL),
    "maximum": (torch.maximum, ALL),
    "sum": (lambda x: x.sum(1), ALL),
    "mean": (lambda x: x.mean(1), FLOATS),
    "prod": (lambda x: x.prod(1), ALL),
    "amax": (lambda x: x.amax(1), ALL),
    "max-dim": (lambda x: x.max(1), ALL),
    "argmax": (lambda x: x.argmax(1), NUMBERS),
    "var": (lambda x: x.var(1), FLOATS),
    "norm": (lambda x: x.norm(dim=1), FLOATS),
    "cumsum": (lambda x: x.cumsum(1), ALL),
    "any": (lambda x: x.any(1), ALL),
    "eq": (operator.eq, ALL),
    "lt": (operator.lt, ALL),
    "ge-number": (lambda x: x >= 1, ALL),
    "where": (lambda x, y: torch.where(x > y, x, y), ALL),
    "masked-fill": (lambda x: x.masked_fill(x > 1, 0), ALL),
    "matmul": (lambda x, y: x @ y.t(), NUMBERS),
    "linear": (lambda x, y: functional.linear(x, y, y.flatten()[:3]), FLOATS),
    "addmm": (lambda x, y: torch.addmm(y[:, :3], x, y.t(), beta=0.1, alpha=0.3), (F16, BF16)),
    "attention": (lambda x, y: functional.scaled_dot_product_attention(x[None], y[None], y[None]), (F16, BF16)),
    "layer-norm": (lambda x: functional.layer_norm(x, [4]), FLOATS),
    "group-norm": (lambda x: functional.group_norm(x, 2), FLOATS),
    "batch-norm": (lambda x, y: functional.batch_norm(x, y[0], y[1].abs() + 1), (F16, F64)),
    "conv": (lambda x, y: functional.conv1d(x[None], y[:, None, :2].expand(3, 3, 2)), FLOATS),
    "max-pool": (lambda x: functional.max_pool1d(x[None], 2), FLOATS),
    "avg-pool": (lambda x: functional.avg_pool1d(x[None], 2), FLOATS),
    "embedding": (lambda x: functional.embedding(PLACES[:, 0], x), FLOATS),
    "cat": (lambda x, y: torch.cat([x, y], 1), ALL),
    "slice": (lambda x: x[1:, ::2].t().reshape(-1), ALL),
    "gather": (lambda x: torch.gather(x, 1, PLACES), ALL),
    "scatter": (lambda x, y: x.scatter(1, PLACES, y), ALL),
    "index-put": (lambda x, y: x.index_put((torch.tensor([0, 2]),), y[:2]), ALL),
    "topk": (lambda x: x.topk(2, 1)[0], NUMBERS),
    "sort": (lambda x: x.sort(1)[0], ALL),
    "pad": (lambda x: functional.pad(x, (1, 1), value=1), ALL),
    "tril": (torch.tril, ALL),
    "full": (lambda x: torch.full((3, 4), 2, dtype=x.dtype) + x, NUMBERS),
    "arange": (lambda x: torch.arange(4, dtype=x.dtype) + x, NUMBERS),
    "logical-and": (torch.logical_and, ALL),
    "isnan": (torch.isnan, ALL),
}
CASTS = (torch.float32, *ALL, torch.int64)


def example(dtype, position):
    generator = torch.Generator().manual_seed(position)
    if dtype.is_floating_point:
        return torch.randn((3, 4), generator=generator, dtype=F64).to(dtype)
    numbers = torch.randint(0 if dtype == torch.uint8 else -9, 10, (3, 4), generator=generator)
    if dtype == torch.bool:
        return numbers > 0
    numbers[numbers == 0] = 3  # a divisor
    # sums and products of the narrow ones wrap
    return (numbers * (12 if dtype == torch.int8 and not position else 1)).to(dtype)


def check(model, args, opset, bounds=USUAL, capture="trace", **options):
    program = export(model, args, {}, opset=opset, capture=capture, **options)
    data = program.model_proto.SerializeToString()
    check_file(data, opset)
    compare_with_torch(model, data, args, {}, bounds, reference=True)


def count_of(model):
    """The number of tensors that a model takes."""
    if hasattr(model, "__code__"):
        return model.__code__.co_argcount
    return 2 if model in (torch.minimum, torch.maximum, torch.logical_and, operator.eq, operator.lt) else 1


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("name", dealt(OPERATORS, 5))
def test_operator(name):
    """At each opset, in each dtype."""
    model, dtypes = OPERATORS[name]
    for dtype, opset in itertools.product(dtypes, OPSETS):
        args = tuple(example(dtype, position) for position in range(count_of(model)))
        try:
            check(model, args, opset)
        except Exception as error:
            raise AssertionError(f"{name_of(dtype)} at opset {opset}: {error}") from error


@pytest.mark.parametrize("name", dealt(["add", "mul-float", "softmax", "sum", "where", "clamp", "layer-norm"], 3))
def test_operator_by_export(name):
    model, dtypes = OPERATORS[name]
    for dtype in dtypes:
        args = tuple(example(dtype, position) for position in range(count_of(model)))
        check(model, args, 20, capture="export")


@pytest.mark.parametrize("dtype", CASTS, ids=name_of)
def test_cast(dtype):
    for source, opset in itertools.product(ALL, (13, 20)):
        x = example(source, 0)
        if dtype == torch.uint8 and source is not torch.bool:
            x = x.abs()  # a negative float has no uint8
        check(lambda x: x.to(dtype), (x,), opset, EXACT)


# float8 ---------------------------------------------------------------------------------------------------------------

EDGES = [0.0, 1.1, 239.0, 248.0, 447.0, 449.0, 464.0, 465.0, 1e4, 57344.0, 6e4, 61440.0, 65000.0, 1e-3, -460.0, -1e5]
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


@pytest.mark.parametrize("source", [torch.float32, F16, BF16], ids=name_of)
@pytest.mark.parametrize("dtype", FLOAT8, ids=name_of)
def test_float8(dtype, source):
    """Too large a number becomes the largest of float8_e4m3fn (since torch 2.13), and infinity or NaN of the others."""
    x = torch.tensor([*EDGES, float("inf"), float("nan")]).to(source)
    check(lambda x: x.to(dtype).float(), (x,), 20, EXACT)
    check(lambda x: x.to(dtype), (x,), 20, EXACT)
    check(lambda x: x.float() * 2, (x.to(dtype),), 20, EXACT)


@pytest.mark.parametrize("dtype", FLOAT8, ids=name_of)
def test_float8_needs_its_opset(dtype):
    with pytest.raises(purexport.UnsupportedOperatorError, match=r"needs opset 19 or later"):
        purexport.export(lambda x: x.to(dtype), (torch.ones(3),), opset_version=18, capture="trace")


@pytest.mark.parametrize("model", [lambda x: x + 1, lambda x: x.to(BF16)])
def test_bfloat16_needs_its_opset(model):
    with pytest.raises(purexport.UnsupportedOperatorError, match=r"needs opset 13 or later"):
        purexport.export(model, (torch.ones(3, dtype=BF16),), opset_version=12, capture="trace")


# Wide and unsigned integers, constants -------------------------------------------------------------------------------

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@pytest.mark.parametrize("dtype", UNSIGNED, ids=name_of)
def test_unsigned(dtype):
    x = torch.tensor([1, 3, 60000]).to(dtype)
    for model in (
        lambda x: x.long() + 1,
        lambda x: torch.cat([x, x]),
        lambda x: x == 3,
        lambda x: x[1:].reshape(2, 1).t(),
        lambda x: torch.tensor([1, 2, 65535], dtype=dtype).long() + x.long(),
    ):
        check(model, (x,), 20, EXACT)


LARGE = torch.tensor([2**53 + 1, 2**62 + 3, -(2**63)])
TENTHS = torch.tensor([0.1, 3.14159, -1e-30])

CONSTANTS = {
    "int64": (lambda x: x + LARGE, torch.tensor([1, 2, 3])),
    "int64-number": (lambda x: x + (2**53 + 1), torch.tensor([1, 2, 3])),
    "float64": (lambda x: x * TENTHS.double(), torch.ones(3, dtype=F64)),
    "float64-number": (lambda x: x * 0.1, torch.ones(3, dtype=F64)),
    "float64-clamp": (lambda x: x.clamp(-0.1, 0.1), torch.ones(3, dtype=F64)),
    "float64-fill": (lambda x: x.masked_fill(x > 0, 0.1), torch.ones(3, dtype=F64)),
    "float64-full": (lambda x: x + torch.full((300,), 0.1, dtype=F64), torch.zeros(300, dtype=F64)),
    "bfloat16": (lambda x: x + TENTHS.bfloat16(), torch.ones(3, dtype=BF16)),
    "float16": (lambda x: x + TENTHS.half(), torch.ones(3, dtype=F16)),
    "uint8": (lambda x: x + torch.tensor([250, 3, 9], dtype=torch.uint8), torch.tensor([9, 2, 3], dtype=torch.uint8)),
}


@pytest.mark.parametrize("capture", ["trace", "export"])
@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_exact(name, capture):
    model, x = CONSTANTS[name]
    check(model, (x,), 20, EXACT, capture=capture)


# Models ---------------------------------------------------------------------------------------------------------------


AUTOCAST = {
    dtype: Bounds(*TABLE[name_of(dtype)], loose="autocast computes in the lower precision, and the model casts back")
    for dtype in (BF16, F16)
}


class Autocast(nn.Module):
    """Layers that autocast computes in the lower precision, and those that it leaves in float32."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4)
        self.conv = nn.Conv1d(1, 2, 3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype):
            y = torch.softmax(self.second(functional.gelu(self.norm(self.first(x)))), -1)
            return y, self.conv(x[:, None]).flatten(1), (y @ y.t()).float()


@functools.cache
def seeded(factory, *args):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return factory(*args).eval()


@pytest.mark.parametrize("axes", [None, {"x0": {0: "batch"}}], ids=["static", "dynamic"])
@pytest.mark.parametrize("capture", ["trace", pytest.param("export", marks=pytest.mark.full)])
@pytest.mark.parametrize("dtype", [BF16, F16], ids=name_of)
def test_autocast(dtype, capture, axes):
    model, x = seeded(Autocast, dtype), torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    for opset in OPSETS if axes is None else (20,):
        check(model, (x,), opset, AUTOCAST[dtype], capture=capture, dynamic_axes=axes)


def network():
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4, 5), nn.LayerNorm(5), nn.SiLU())


@pytest.mark.parametrize("route", ["trace", "export", "script"])
@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_network(dtype, route):
    model = seeded(network).to(dtype)
    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    if route == "script":
        model, route = torch.jit.script(model), "auto"
    check(model, (x,), 20, capture=route)
