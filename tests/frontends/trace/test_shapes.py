"""The rows that say sizes of results: what they give with symbols, at other sizes, is what torch gives."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from proto_schema.sizes import Size
from purexport.aten.names import operator_of
from purexport.frontends.trace.shapes import ROWS, Extent, UnfitError, extent, found_again

S = {name: Size.symbol(name, 2) for name in "nm"}
EXAMPLE = {"n": 12, "m": 9}
OTHERS: Sequence[Mapping[str, int]] = ({"n": 31, "m": 40}, {"n": 7, "m": 6}, {"n": 50, "m": 8})


def f(*sizes: Any) -> tuple[Any, ...]:
    """The sizes of a float tensor."""
    return sizes


n, m = S["n"], S["m"]
# an operator, and its arguments: a tuple is a tensor
CALLS: list[tuple[str, list[Any]]] = [
    ("aten::slice.Tensor", [f(2, n), 1, 1, 5, 1]),
    ("aten::slice.Tensor", [f(2, n), 1, 2, 2**63 - 1, 1]),
    ("aten::slice.Tensor", [f(2, n), 1, -3, 2**63 - 1, 1]),
    ("aten::slice.Tensor", [f(2, n), 1, 0, -1, 2]),
    ("aten::slice.Tensor", [f(2, n), 1, 0, m, 1]),
    ("aten::split.Tensor", [f(n, 6), 4, 1]),
    ("aten::split_with_sizes", [f(2, n + 3), [n, 3], 1]),
    ("aten::chunk", [f(2, n * 2), 2, 1]),
    ("aten::unbind.int", [f(n, 3), 1]),
    ("aten::arange", [n]),
    ("aten::arange.start", [2, n]),
    ("aten::arange.start_step", [0, n, 3]),
    ("aten::conv1d", [f(2, 4, n), f(6, 4, 3), None, [2], [1], [1], 1]),
    ("aten::conv2d", [f(n, 4, m, n), f(6, 2, 3, 2), None, [2, 1], [1, 0], [1, 2], 2]),
    ("aten::conv2d.padding", [f(2, 4, n, m), f(6, 4, 3, 3), None, [1, 1], "same", [1, 1], 1]),
    ("aten::conv2d.padding", [f(2, 4, n, m), f(6, 4, 3, 3), None, [1, 1], "valid", [1, 1], 1]),
    ("aten::conv3d", [f(2, 4, n, m, 5), f(6, 4, 3, 3, 1), None, [1], [1], [1], 1]),
    ("aten::max_pool1d", [f(2, 4, n), [3], [2], [1], [1], False]),
    ("aten::max_pool2d", [f(2, 4, n, m), [3, 2], [], [1, 1], [1, 1], False]),
    ("aten::avg_pool2d", [f(2, 4, n, m), [2], [2], [0], False, True, None]),
    ("aten::adaptive_avg_pool2d", [f(2, 4, n, m), [1, 3]]),
    ("aten::pad", [f(2, n, m), [1, 2, 0, n], "constant", 0.0]),
    ("aten::repeat", [f(2, n), [m, 1, 3]]),
    ("aten::upsample_nearest2d.vec", [f(2, 4, n, m), None, [2.0, 3.0]]),
    ("aten::upsample_bilinear2d.vec", [f(2, 4, n, m), [n * 2, 5], False, None]),
    ("aten::topk", [f(2, n), 3, -1, True, True]),
    ("aten::view", [f(n, m, 6), [n, -1, 2]]),
    ("aten::view", [f(n, m, 6), [n * m, 6]]),
    ("aten::reshape", [f(n, 3, m, 6), [n, 3, -1]]),
    ("aten::flatten.using_ints", [f(n, 3, m, 6), 1, -1]),
    ("aten::matmul", [f(n, 3, m, 6), f(6, n)]),
    ("aten::cat", [[f(n, 3), f(m, 3), f(2, 3)], 0]),
    ("aten::sum.dim_IntList", [f(n, 3, m), [1], True]),
    ("aten::expand", [f(n, 1, 1), [-1, m, 3]]),
    ("aten::transpose.int", [f(n, 3, m), 0, -1]),
    ("aten::scaled_dot_product_attention", [f(n, 2, m, 8), f(n, 2, m, 8), f(n, 2, m, 4)]),
]


def at(item: Any, sizes: Mapping[str, int]) -> Any:
    """An argument for torch."""
    if isinstance(item, tuple):
        return torch.empty([at(size, sizes) for size in item], device="meta")
    if isinstance(item, list):
        return [at(one, sizes) for one in item]
    return item.at(sizes) if isinstance(item, Size) else item


def with_symbols(item: Any) -> Any:
    """An argument for the row."""
    if isinstance(item, (tuple, list)):
        return type(item)(with_symbols(one) for one in item)
    return extent(item, item.at(EXAMPLE)) if isinstance(item, Size) else item


def value(item: Any, sizes: Mapping[str, int]) -> int:
    return int(item.size.at(sizes)) if isinstance(item, Extent) else item


@pytest.mark.parametrize("place", range(len(CALLS)), ids=lambda place: f"{CALLS[place][0]}-{place}")
def test_row_is_torchs(place: int) -> None:
    target, args = CALLS[place]
    found = ROWS[target](*with_symbols(args))
    several = found if isinstance(found, list) else [found]
    for sizes in (EXAMPLE, *OTHERS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            overload: Any = operator_of(target)
            wanted = overload(*(at(item, sizes) for item in args), **_on_meta(target))
        shapes = [tuple(wanted.shape)] if isinstance(wanted, torch.Tensor) else [tuple(item.shape) for item in wanted]
        assert [tuple(value(size, sizes) for size in shape) for shape in several] == shapes


def _on_meta(target: str) -> dict[str, Any]:
    return {"device": "meta"} if target.startswith("aten::arange") else {}


@pytest.mark.parametrize(
    ("target", "args"),
    [
        ("aten::slice.Tensor", [f(2, n), 1, 0, n - 5, 1]),  # on either side of 0
        ("aten::max_pool2d", [f(2, 4, n, m), [3, 2], [], [1, 1], [1, 1], True]),
        ("aten::arange.start_step", [0, n, 0.5]),
        ("aten::one_hot", [f(n), -1]),
        ("aten::upsample_nearest2d.vec", [f(2, 4, n, m), None, [1.5, 1.5]]),
    ],
)
def test_row_leaves_to_torch(target: str, args: list[Any]) -> None:
    with pytest.raises(UnfitError):
        ROWS[target](*with_symbols(args))


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ([5, 5, 5], 5),
        ([12, 31, 7], n),
        ([14, 33, 9], n + 2),
        ([9, 31, 6], None),  # the smaller one of two
        ([6, 15, 3], None),  # a half, rounded down
        ([12, None, 7], None),  # type: ignore[list-item]
    ],
)
def test_sizes_found_again(seen: list[int], found: Any) -> None:
    operands = [(size, tuple(sizes[name] for sizes in (EXAMPLE, *OTHERS[:2]))) for name, size in S.items()]
    assert found_again(seen, operands) == found
