"""Shapes and numbers of a trace at other sizes, in plain Python, beside torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from purexport.aten.names import operator_of
from purexport.aten.schema import signature
from purexport.frontends.core.shape_functions import INTEGERS, SHAPES, UnfitError
from purexport.frontends.trace import torchscript
from purexport.frontends.trace.replay import Asked
from purexport.frontends.trace.shape_plan import plan_of

LONG = torch.int64
# by target: operands in the order of the schema; a tuple is a tensor of that shape
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "aten::size.int": [((2, 3), 1), ((2, 3), -2)],
    "aten::size": [((2, 3),)],
    "aten::numel": [((2, 3),), ((),)],
    "aten::dim": [((2, 3),), ((),)],
    "aten::detach": [((2, 3),)],
    "aten::clone": [((2, 3),)],
    "aten::contiguous": [((2, 3),)],
    "aten::alias": [((2, 3),)],
    "aten::type_as": [((2, 3), (4,))],
    "aten::to.device": [((2, 3), torch.device("cpu"), torch.float64)],
    "aten::to.dtype": [((2, 3), torch.float64)],
    "aten::to.dtype_layout": [((2, 3),)],
    "aten::to.other": [((2, 3), (4,))],
    "aten::to.prim_dtype": [],
    "aten::view": [((2, 6), [3, 4]), ((2, 6), [-1, 4]), ((2, 6), [2, 2, -1]), ((0, 6), [0, 2, 3]), ((0, 6), [-1, 3])],
    "aten::reshape": [((2, 6), [3, 4]), ((), [1, 1]), ((2, 6), [-1, -1, 3])],
    "aten::_unsafe_view": [((2, 6), [12])],
    "aten::flatten.using_ints": [((2, 3, 4), 1, -1), ((2, 3, 4), 0, 1), ((2, 3, 4), 2, 1)],
    "aten::permute": [((2, 3, 4), [2, 0, 1]), ((2, 3, 4), [-1, 0, 1]), ((2, 3, 4), [0, 0, 1])],
    "aten::transpose.int": [((2, 3, 4), 1, -1), ((2, 3), 0, 1)],
    "aten::t": [((2, 3),), ((4,),), ((2, 3, 4),)],
    "aten::unsqueeze": [((2, 3), 0), ((2, 3), -1), ((), 0)],
    "aten::squeeze.dim": [((2, 1, 3), 1), ((2, 3), -1), ((), 0)],
    "aten::expand": [((1, 3), [2, 3]), ((3,), [2, -1]), ((3,), [-1, 3]), ((2, 3), [3]), ((1, 3), [0, 3])],
    "aten::slice.Tensor": [((7, 3), 0, 1, 9, 2), ((7, 3), -1, -2, None, 1), ((7,), 0, 5, 2, 1), ((7,), 0, 0, 7, 0)],
    "aten::select.int": [((2, 3), 1, 2), ((2, 3), 1, -3), ((2, 3), -1, 3)],
    "aten::split.Tensor": [((7, 3), 3, 0), ((7, 3), 3, 1), ((0, 3), 3, 0)],
    "aten::split": [],
    "aten::chunk": [((7, 3), 3, 0), ((7, 3), 5, -1), ((7, 6), 4, 0)],
    "aten::unbind.int": [((2, 3), 0), ((2, 3), -1)],
    "aten::cat": [([(2, 3), (4, 3)], 0), ([(2, 3), (2, 4)], -1), ([(0,), (2, 3)], 0), ([(2, 3), (2, 3, 1)], 0)],
    "aten::stack": [([(2, 3), (2, 3)], 0), ([(2, 3), (2, 3)], -1), ([(2, 3), (2, 1)], 0)],
    "aten::embedding": [((5, 3), LONG, (2, 4)), ((5, 3), LONG, ())],
    "aten::mm": [((2, 3), (3, 4)), ((2, 3), (2, 3))],
    "aten::bmm": [((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (1, 4, 5))],
    "aten::addmm": [((4,), (2, 3), (3, 4)), ((2, 4), (2, 3), (3, 4)), ((3,), (2, 3), (3, 4))],
    "aten::matmul": [((2, 3), (3, 4)), ((3,), (3,)), ((3,), (2, 3, 4)), ((5, 1, 2, 3), (4, 3, 6)), ((2, 3), (3,))],
    "aten::linear": [((2, 3), (4, 3)), ((2, 5, 3), (4, 3), (4,)), ((3,), (4, 3), (4,))],
    "aten::scaled_dot_product_attention": [
        ((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)),
        ((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8), (1, 1, 5, 6)),
        ((2, 4, 5, 8), (2, 4, 5, 8), (2, 4, 5, 8), None, 0.0, True),
        ((2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8), None, 0.0, False, None, True),
        ((4, 5, 8), (4, 6, 8), (4, 6, 3)),
    ],
    "aten::_convolution": [
        ((2, 3, 9, 8), (4, 3, 3, 3), (4,), [2, 2], [1, 1], [1, 1], False, [0, 0], 1, False, False, True, True),
        ((2, 4, 9), (6, 2, 3), None, [1], [0], [2], False, [0], 2, False, False, True, True),
        ((2, 4, 9), (4, 3, 3), None, [2], [1], [1], True, [1], 1, False, False, True, True),
    ],
    "aten::convolution": [
        ((2, 3, 9, 8), (4, 3, 3, 2), None, [2, 1], [1, 0], [1, 2], False, [0, 0], 1),
        ((2, 4, 5, 6), (4, 3, 2, 2), (3,), [2, 2], [0, 0], [1, 1], True, [0, 0], 1),
    ],
    "aten::mean.dim": [
        ((2, 3, 4), [1, -1], False),
        ((2, 3, 4), [0], True),
        ((2, 3), None, False),
        ((2, 3), [0, 0], True),
    ],
    "aten::sum.dim_IntList": [((2, 3, 4), [1], True), ((2, 3, 4), [], False), ((), [0], False)],
    "aten::any.dim": [((2, 3), 1, True), ((2, 3), -2, False)],
    "aten::all.dim": [((2, 3), 1, False)],
    "aten::softmax.int": [((2, 3), -1), ((), 0)],
    "aten::log_softmax.int": [((2, 3), 1)],
    "aten::cumsum": [((2, 3), 0)],
    "aten::layer_norm": [((2, 5, 3), [3], (3,), (3,)), ((2, 5, 3), [5, 3])],
    "aten::group_norm": [((2, 6, 5), 3, (6,), (6,)), ((2, 6), 2)],
    "aten::batch_norm": [((2, 3, 5), (3,), (3,), (3,), (3,), False, 0.1, 1e-5, False)],
    "aten::upsample_nearest2d.vec": [((2, 3, 5, 6), None, [2.0, 1.5]), ((2, 3, 5, 6), [7, 4], None)],
    "aten::upsample_bilinear2d.vec": [((2, 3, 5, 6), None, False, [2.0, 1.5]), ((2, 3, 5, 6), [7, 4], True, None)],
    "aten::constant_pad_nd": [
        ((2, 3), [1, 2]),
        ((2, 3), [1, -2, 0, 4]),
        ((2, 3), [1, 2, 3, 4, 5, 6]),
        ((2, 3), [-4, 1]),
    ],
    "aten::zeros": [([2, 3],), ([],), ([-1],)],
    "aten::ones": [([2, 3],)],
    "aten::full": [([2, 3], 1.0)],
    "aten::empty.memory_format": [([2, 3],)],
    "aten::new_ones": [((4,), [2, 3])],
    "aten::new_zeros": [((4,), [2, 3]), ((4,), [2, -3])],
    "aten::new_full": [((4,), [2, 3], 1.0)],
    "aten::new_empty": [((4,), [2, 3])],
    "aten::arange": [(5,), (0,), (-1,), (2.5,)],
    "aten::arange.start": [(2, 5), (5, 2), (0.5, 3)],
    "aten::arange.start_step": [(2, 9, 3), (9, 2, -3), (9, 2, 3), (0.0, 1.0, 0.25)],
}

# torch takes keys and values of other lengths, and reads beyond the end
STRICTER = ("aten::scaled_dot_product_attention",)


def _both(target: str, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """What torch gives, and what we give; None for a refusal."""
    kinds = iter(args)
    tensors = [_tensor(arg, LONG if arg is LONG else torch.float32) for arg in kinds if arg is not LONG]
    if LONG in args:
        tensors[args.index(LONG)] = torch.zeros(args[args.index(LONG) + 1], dtype=LONG)
    plain = [arg for arg in args if arg is not LONG]
    overload = operator_of(target)
    assert overload is not None
    names = [item.name for item in signature(target).parameters if item.kwarg_only]
    count = len(signature(target).parameters) - len(names)
    try:
        wanted = _shapes(overload(*tensors[:count], **dict(zip(names, tensors[count:], strict=False))))
    except (RuntimeError, IndexError, ValueError):
        wanted = None
    try:
        found = SHAPES[target](*plain)
    except (UnfitError, ArithmeticError):
        found = None
    return wanted, found


def _tensor(item: Any, dtype: torch.dtype) -> Any:
    if isinstance(item, tuple):
        return torch.zeros(item, dtype=dtype)
    if isinstance(item, list) and item and isinstance(item[0], tuple):
        return [torch.zeros(part, dtype=dtype) for part in item]
    return item


def _shapes(item: Any) -> Any:
    if isinstance(item, Tensor):
        return tuple(item.shape)
    return [_shapes(part) for part in item] if isinstance(item, (list, tuple)) else item


def _variants(item: Any) -> Iterator[Any]:
    """Operands that differ from these in one size, or in one number."""
    if isinstance(item, (tuple, list)):
        for place, part in enumerate(item):
            for other in _variants(part):
                yield type(item)([*item[:place], other, *item[place + 1 :]])
    elif isinstance(item, int) and not isinstance(item, bool):
        yield from (item + 1, *([item - 1] if item else []))


@pytest.mark.parametrize("target", [target for target, calls in CALLS.items() if calls])
def test_shapes_and_refusals_are_those_of_torch(target: str) -> None:
    """At the sizes of each row, and at all that differ from them in one number, refusals among them."""
    compared = 0
    for args in CALLS[target]:
        for variant in itertools.chain([args], _variants(args)):
            wanted, found = _both(target, variant)
            assert wanted == found or (found is None and target in STRICTER), (variant, wanted, found)
            compared += found is not None
    assert compared


def test_every_shape_has_a_call() -> None:
    assert CALLS.keys() == SHAPES.keys()


TORCHS = {"__and__": torch.logical_and, "__or__": torch.logical_or, "floordiv": torch.floor_divide}
NUMBERS = [name for name in INTEGERS if name not in ("aten::Int", "aten::IntImplicit", "aten::ScalarImplicit")]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_those_of_torch(name: str) -> None:
    plain = name.removeprefix("aten::")
    operator = TORCHS.get(plain) or getattr(torch, plain)
    for one, other in itertools.product((0, 1, 2, 7, 12), (1, 3, 4)):
        args: tuple[int, ...] = (one,) if plain == "neg" else (one, other)
        if plain.startswith("__"):
            args = one > 1, other > 1
        assert INTEGERS[name](*args) == operator(*map(torch.tensor, args)).item()


# Whole traces ---------------------------------------------------------------------------------------------------------


def products(x: Tensor) -> Tensor:
    return x * int((x @ x.T).reshape(-1).shape[0])


def halves(x: Tensor) -> Tensor:
    return x * int(x.shape[0] / 3 + 0.5)


def decided(x: Tensor) -> Tensor:
    y = functional.pad(x, (0, 0, 0, (4 - x.shape[0] % 4) % 4))
    return -x if y.shape[0] > 4 else x


def written(x: Tensor) -> Tensor:
    y = x.clone()
    y += torch.ones(x.shape[0], 1)
    y[0] = 0
    return x * int(y.flatten(0).unfold(0, 2, 1).shape[0])


def picked(x: Tensor) -> Tensor:
    rows = torch.arange(x.shape[0]) // 2
    return x * int(torch.cat([x[rows], x.repeat(2, 1)]).shape[0])


def joined(x: Tensor) -> Tensor:
    return x * int(torch.cat([x, torch.ones(3, 4)], 1).shape[1])


def joined_late(x: Tensor) -> Tensor:
    rows = x.shape[0]
    return joined(x) * int(rows)


def stepped(x: Tensor) -> Tensor:
    return x * math.sqrt(x.shape[0])


PLANS: dict[str, tuple[Callable[[Tensor], Tensor], list[list[Any]]]] = {
    "products": (products, [[9], [25], [1]]),
    "a division": (halves, [[1], [2], [0]]),
    "a decision": (decided, [[False], [True], [False]]),
    "what is written to": (written, [[11], [19], [3]]),
    "indices and repeats": (picked, [[9], [15], [3]]),
    "sizes that do not fit": (joined, [[8], [], []]),
    "a number after sizes that do not fit": (joined_late, [[8, 3], [], []]),
    "a number of a size": (stepped, [[3], [5], [1]]),
}


def _asked(function: Callable[[Tensor], Tensor]) -> Asked:
    recorded = torchscript.trace(lambda *given: [function(given[0])], [torch.ones(3, 4)], ["x"], [], [], True)
    assert recorded.asked is not None
    return recorded.asked


@pytest.mark.parametrize("name", PLANS)
def test_numbers_of_a_plan(name: str) -> None:
    function, wanted = PLANS[name]
    asked = _asked(function)
    plan = asked.plan
    assert plan is not None
    assert [plan.at([(rows, 4)]) for rows in (3, 5, 1)] == wanted
    for rows, numbers in zip((3, 5, 1), wanted, strict=True):
        assert not numbers or asked.at([torch.ones(rows, 4)]) == numbers  # as torch's own interpreter has them


def of_elements(x: Tensor) -> Tensor:
    return x * int(x.nonzero().shape[0])


def of_a_mask(x: Tensor) -> Tensor:
    return x * int(x[x > 0].shape[0])


def in_a_tensor(x: Tensor) -> Tensor:
    return x * int(torch.stack([torch.as_tensor(x.shape[0]), torch.as_tensor(x.shape[1])]).sum())


def another_shape_in_place(x: Tensor) -> Tensor:
    y = x + 1
    y.t_()
    return x * int(y.shape[1])


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("function", [of_elements, of_a_mask, in_a_tensor, another_shape_in_place])
def test_no_plan(function: Callable[[Tensor], Tensor]) -> None:
    assert _asked(function).plan is None


def test_no_plan_where_it_would_give_other_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(x: Tensor) -> Tensor:
        return x * int(x.T.contiguous().shape[0])

    assert _asked(copied).plan is not None
    monkeypatch.setitem(SHAPES, "aten::contiguous", lambda shape, *_: (*shape, 1))
    assert _asked(copied).plan is None


def test_no_plan_where_it_would_give_other_numbers() -> None:
    asked = _asked(products)
    assert plan_of(asked.graph, asked.state, [10]) is None
