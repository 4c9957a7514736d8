"""What operators give on fake tensors is what torch gives, and torch is asked once for each kind of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from purexport.shapes.shaped_calls import Shaped
from purexport.torch_patches.calls import operators_handed_to

f32 = torch.randn
HALF = torch.float16

# each row runs on x [2, 3, 4], y [2, 3, 4] and the real z [3, 4]; all in one run, so that an answer kept for one
# serves no other that differs in a stride, a type or a number
CALLS: list[Callable[[Any, Any, Any], Any]] = [
    lambda x, y, z: x + y,
    lambda x, y, z: x.transpose(0, 2) + y.transpose(0, 2),
    lambda x, y, z: x.transpose(0, 2).contiguous() + y.transpose(0, 2),
    lambda x, y, z: x.to(HALF) + y.to(HALF),
    lambda x, y, z: x.to(HALF) + y,
    lambda x, y, z: x.to(HALF) * z,
    lambda x, y, z: x.to(HALF) * z[0, 0],
    lambda x, y, z: x.to(HALF) * 2.5,
    lambda x, y, z: x.to(torch.int32) * 2.5,
    lambda x, y, z: x.to(torch.int32) * 2,
    lambda x, y, z: x[:, :1] * y,
    lambda x, y, z: x.mean(-1),
    lambda x, y, z: x.mean(-1, keepdim=True),
    lambda x, y, z: x.mean((0, 1)),
    lambda x, y, z: torch.cat([x, y], 1),
    lambda x, y, z: torch.cat([x, y.to(HALF), x], -1),
    lambda x, y, z: torch.cat([x, z[None].expand(2, 3, 4)], 0),
    lambda x, y, z: x @ y.transpose(1, 2),
    lambda x, y, z: x.view(6, 4) @ z.t(),
    lambda x, y, z: x.view(2, 12).unsqueeze(1).expand(2, 5, 12)[:, 1:4, ::3].select(1, 0).squeeze(0),
    lambda x, y, z: torch.nn.functional.silu(x.permute(2, 0, 1)).rsqrt().neg().pow(2),
    lambda x, y, z: x[None].contiguous(memory_format=torch.channels_last).relu(),
    lambda x, y, z: (x > y) & (z > 0),
    lambda x, y, z: torch.where(x > 0, y, z),
    lambda x, y, z: torch.nn.functional.layer_norm(x, (4,)),
    lambda x, y, z: x.topk(2).values,
    lambda x, y, z: x.split(1)[1],
    lambda x, y, z: x.add_(y),
    lambda x, y, z: torch.full((2, 3), 7.0) + x[..., 0],
]


def layout(tensor: torch.Tensor) -> Any:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, isinstance(tensor, FakeTensor)


@pytest.mark.parametrize("times", [1, 2])
def test_it_is_what_torch_gives(times: int) -> None:
    """The second time, answers that were kept are given."""
    found = []
    for handler in (lambda overload, args, kwargs: overload(*args, **kwargs), Shaped()):
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        for _ in range(times):
            rows = [(mode.from_tensor(f32(2, 3, 4)), mode.from_tensor(f32(2, 3, 4)), f32(3, 4)) for _ in CALLS]
            with operators_handed_to(handler):
                results = [call(*args) for call, args in zip(CALLS, rows, strict=True)]
        found.append([layout(result) for result in results])
    assert found[0] == found[1]


def test_torch_is_asked_once() -> None:
    asked = []
    shaped = Shaped()

    class Counting(FakeTensorMode):
        def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func)
            return super().dispatch(func, types, args, kwargs)

    mode = Counting(allow_non_fake_inputs=True)
    x, weight = mode.from_tensor(f32(2, 3, 4)), mode.from_tensor(f32(4, 4))
    with operators_handed_to(shaped):
        for _ in range(5):
            x = torch.cat([torch.nn.functional.silu(x @ weight.t()), x], -1)[..., :4] * 0.5
    # the products' sums have the same shapes in each layer
    assert sorted({str(item) for item in asked}) == sorted(str(item) for item in asked)
    assert tuple(x.shape) == (2, 3, 4)


def test_a_view_is_one() -> None:
    """A write through a view of a fake tensor is one to the tensor."""
    mode = FakeTensorMode()
    x = mode.from_tensor(f32(2, 3))
    with operators_handed_to(Shaped()):
        view = x.t()
        before = x._version
        view.add_(1)
    assert view._is_view() and view._base is x
    assert x._version > before
