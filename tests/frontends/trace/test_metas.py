"""Rows of dtypes and strides say what torch's kernels give, for operands that lie in memory in several ways.

Each row has a call here, elementwise ones for pairs of some operands; `pytest -m sweep` of `test_layouts` asks about
the samples of torch's own database.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional

import purexport
from purexport.frontends.core.shape_functions import UnfitError
from purexport.frontends.trace import metas
from purexport.frontends.trace.operators import Operator
from tests.frontends.trace.test_layouts import wrong

aten: Any = torch.ops.aten

BASE = torch.rand(2, 3, 4, 3) + 0.1
OPERANDS = [
    BASE,
    BASE.contiguous(memory_format=torch.channels_last),
    BASE.permute(3, 1, 2, 0).contiguous().permute(3, 1, 2, 0),
    BASE[:, :1],
    BASE[..., ::2],
    BASE[0].double(),
    torch.tensor(2.0),
    (BASE * 5 + 1).long().transpose(1, 3),
    BASE[0, 0] > 0,
]
NUMBERS = (0.5, 2)
ELEMENTWISE = [name for _, names in metas._ELEMENTWISE for name in names.split()]


def overload_of(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(aten, base), overload or "default")


def arguments(overload: Any, operands: Sequence[Any]) -> Iterator[Any]:
    """The operands in turn for tensors, and numbers for others that must be given."""
    given, tensors = itertools.cycle(operands), 0
    for place, item in enumerate(overload._schema.arguments):
        kind = str(item.type)
        if "Tensor" in kind:
            yield operands[tensors] > 0.5 if item.name == "condition" else next(given)
            tensors += 1
        elif (item.has_default_value() and not item.name.startswith(("m", "other"))) or item.kwarg_only:
            return
        else:
            yield NUMBERS[place % 2]


def said(overload: Any, args: Sequence[Any], kwargs: Any) -> Any:
    operator = Operator(overload)
    empty = [without_data(item) if isinstance(item, torch.Tensor) else item for item in args]
    return metas.form_of(operator, operator.bound(empty, kwargs))


def without_data(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    """Where a row knows the result, the kernel takes the operands and gives that; it knows that of plain floats."""
    overload = overload_of(name)
    kwargs = {"rounding_mode": "floor"} if name.endswith("_mode") else {}
    known = 0
    several = {tuple(map(id, args)): args for args in (
        list(arguments(overload, pair)) for pair in itertools.product(OPERANDS, repeat=2)
    )}  # fmt: skip
    for args in several.values():
        try:
            form = said(overload, args, kwargs)
        except UnfitError:
            continue
        known += 1
        real = overload(*args, **kwargs)
        found = (real.shape, real.stride(), real.dtype)
        assert (form.sizes, form.strides, form.dtype) == found, args
    assert known


PLACES = torch.tensor([[0, 1], [1, 0]])
LSTM = torch.nn.LSTM(3, 2, batch_first=True).requires_grad_(False)

# expressions of x, which has the axes 2, 4, 6, 6 and lies in memory in several ways
CALLS = """
F.linear(x, torch.ones(3, 6), torch.ones(3))   x[0] @ x[0].mT   x @ torch.ones(6, 2)   torch.mm(x[0, 0], x[0, 1])
torch.bmm(x[0], x[1])   torch.addmm(x[0, 0], x[0, 1], x[0, 2])   torch.baddbmm(x[0], x[1], x[0])
torch.mv(x[0, 0], x[0, 0, 0])   torch.dot(x[0, 0, 0], x[0, 0, 1])   torch.stack([x, x], 1)   torch.stack([x, x], -1)
torch.stack([x[0], x[1]])
F.layer_norm(x, [6], torch.ones(6))   F.instance_norm(x)   F.group_norm(x, 2)   F.rms_norm(x, [6])   x.softmax(1)
F.batch_norm(x, torch.zeros(4), torch.ones(4))   F.batch_norm(x[0], torch.zeros(6), torch.ones(6))
x.log_softmax(1, torch.float64)   F.embedding(P, torch.ones(3, 4))
F.conv2d(x, torch.ones(3, 4, 3, 3), torch.ones(3))   F.conv2d(x[0], torch.ones(3, 4, 3, 3), padding='same')
F.conv1d(x[0], torch.ones(3, 6, 3), stride=2)   F.conv1d(x[0, 0], torch.ones(3, 6, 3))
F.conv3d(x[None], torch.ones(3, 2, 3, 3, 3))   F.conv2d(x, L)
F.conv_transpose2d(x, torch.ones(4, 3, 3, 3), stride=2)   F.conv_transpose1d(x[0], torch.ones(6, 3, 3))
F.conv1d(x[0], torch.ones(3, 6, 3), padding='valid')   F.conv3d(x[None], torch.ones(3, 2, 3, 3, 3), padding='same')
torch.convolution(x, torch.ones(3, 4, 3, 3), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)   F.max_pool2d(x, 2)
F.max_pool3d(x[None], 2)   F.avg_pool2d(x, 2)   F.avg_pool3d(x[None], 2)   F.max_pool1d(x[0], 2)
F.avg_pool1d(x[0], 2)   F.adaptive_avg_pool1d(x[0], 2)   F.adaptive_avg_pool2d(x, 1)   F.adaptive_avg_pool2d(x, 3)
F.adaptive_avg_pool3d(x[None], 1)   F.adaptive_avg_pool3d(x[None], 2)   F.interpolate(x, scale_factor=2)
F.interpolate(x, size=(3, 4), mode='bilinear')   F.interpolate(x, size=(9, 9), mode='bicubic')   LSTM(x[0, :, :, :3])
torch.nn.GRU(6, 2)(x[0])   torch.nn.RNN(6, 2)(x[0])   torch.nn.RNN(6, 2, nonlinearity='relu')(x[0])
F.scaled_dot_product_attention(x, x, x)   F.scaled_dot_product_attention(x[0], x[0], x[0])   x.sum()   x.sum(1)
(x > 1).sum(1, True)   x.prod()   x.prod(1)   x.cumsum(1)   x.cumprod(1)   x.mean()   x.mean((1, 2))   x.logsumexp(1)
x.var(1)   x.var(1, correction=0)   x.std(1)   torch.std(x, 1, False)   torch.var(x, 1, False)   x.norm(2, 1)
torch.linalg.vector_norm(x, dim=1)   x.max()   x.min()   x.amax(1)   x.amin((1, 2))   x.max(1)   x.min(1)
x.topk(2, 1)   x.argmax(1)   x.argmin()   (x > 1).any()   (x > 1).all()   x.any(1)   x.all(1)   x.sort(1)
torch.cat([x, x], 1)   torch.cat([x, x.double()], 1)   x.index_select(1, P[0])
x.gather(1, P[None, :, None].long() * 0)   x[0, 0].scatter(0, P, x[0, 0])   x[0, 0].scatter(0, P, 1.0)
x[0, 0].scatter_add(0, P, x[0, 0])   x.tril()   x.triu(1)   x.repeat(2, 1, 1, 3)   x[:, P[0]]   x[P, :, P]   x[P, P]
x[..., P]   x[:, :, P, P]   F.pad(x, (1, 2))   torch.constant_pad_nd(x, (1, 2))   F.glu(x, 1)
x.masked_fill(x > 1, 0)   x.masked_fill(x > 1, torch.tensor(2.0))   torch.empty(2, 3).copy_(x[0, 0, :2, :3])
x.clone().fill_(1)   x.clone().zero_()   x.clone().normal_()   x.clone().uniform_()   x.clone().bernoulli_(0.5)
torch.zeros(2, 3) + x[0, 0, :2, :3]   torch.ones(6) + x   torch.empty(6) + x   torch.rand(6) + x   torch.randn(6) + x
torch.eye(6) + x   torch.eye(6, 6) + x   torch.linspace(0, 1, 6) + x   torch.full((6,), 2) + x   torch.arange(6) + x
torch.arange(0, 6) + x   torch.arange(0, 12, 2) + x   torch.randint(3, (6,)) + x   torch.randint(1, 3, (6,)) + x
torch.randperm(6) + x   F.one_hot(P, 3)   x.new_zeros(6)   x.new_ones(6)   x.new_full((6,), 2)   x.new_empty(6)
F.dropout(x)   F.dropout(x, training=False)   x.clone()   torch.empty_like(x)   torch.zeros_like(x)
torch.ones_like(x)   torch.full_like(x, 2)   torch.rand_like(x)   torch.randn_like(x)   x.contiguous()
x.contiguous(memory_format=torch.channels_last)   x.to(torch.float64)   x.double()   x.to('cpu')   x.to(P)
x.type_as(P)   x.to(torch.float64, memory_format=torch.channels_last)   x.reshape(2, -1)
torch.std(x, 1, correction=0)   aten.norm.ScalarOpt_dim(x, 2, [1])   aten.to.other(x, P)
x.reshape(8, 36)
x.flatten(1)   x.flatten(0, 1)   torch.einsum('abcd,abed->abce', x, x)   x.add_(1)   x.relu_()
torch._softmax(x, 1, False)   torch._log_softmax(x, 1, False)   aten._safe_softmax(x, 1)
aten._to_copy(x, dtype=torch.int32)
torch._convolution(x, L, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, False, False, False, False)
"""
NAMES = {"torch": torch, "F": functional, "P": PLACES, "L": torch.rand(3, 4, 3, 3), "LSTM": LSTM, "aten": aten}
X = torch.rand(2, 4, 6, 6)
LIE = {
    "contiguous": X,
    "channels last": X.contiguous(memory_format=torch.channels_last),
    "transposed": X.transpose(1, 3).contiguous().transpose(1, 3),
    "a part": torch.rand(2, 4, 6, 7)[..., 1:],
}
OTHERS = set(metas.ROWS) - {f"aten::{name}" for name in ELEMENTWISE}


def test_other_rows() -> None:
    """Each call in each way that its operand can lie; and each row is one of a call."""
    rows: set[str] = set()
    said: list[str] = []
    for call in re.split(r"   |\n", CALLS.strip()):
        function = eval(f"lambda x: {call}", NAMES)
        for name, x in LIE.items():
            said += [f"{call}, {name}: {one}" for one in wrong(function, (x,), {}, rows)]
    assert not said, "\n".join(said)
    assert rows >= OTHERS, OTHERS - rows


# expressions of x, which has the axes 2 and 3, that torch's kernels refuse; its functions for tensors without data, or
# a row that asks for less, may take them
REFUSED = """
x.softmax(2)   x.log_softmax(-3)   torch._softmax(x, 2, False)   x[:0].amax()   x[:0].max()   x[:, :0].argmax(1)
x.index_select(0, P)   x.index_select(2, P[0])   x.clamp()   x @ x   x.sum(2)   x.sum((0, 0))   x.gather(1, P.float())
F.layer_norm(x, [4])   F.linear(x, torch.ones(3, 2))   F.embedding(x, torch.ones(3, 4))   x.topk(4)   x + x.t()
torch.cat([x, x.t()])   F.pad(x, (1, 1, 1))   F.glu(x)   x.masked_fill(x, 0)   x.scatter(1, P.mT[:, :, None], x)
x.sort(2)   x[0].tril()   F.max_pool2d(x, 2)   F.avg_pool2d(x, 2)   F.adaptive_avg_pool2d(x, 3)   F.gelu(x.long())
torch.mm(x, x.t().double())   x.half() @ x.t()   torch.bitwise_and(x, x)   F.conv_transpose1d(x, torch.ones(3, 3, 1))
x[:, :0].min(1)
"""


@pytest.mark.parametrize("call", re.split(r"   |\n", REFUSED.strip()))
def test_refused_in_the_words_of_torch(call: str) -> None:
    function = eval(f"lambda x: {call}", NAMES)
    with pytest.raises((RuntimeError, IndexError)) as verdict:
        function(torch.rand(2, 3))
    with pytest.raises(purexport.ExportError) as caught:
        purexport.capture(function, (torch.rand(2, 3),), capture="trace")
    assert str(verdict.value).partition("\n")[0] in str(caught.value)
