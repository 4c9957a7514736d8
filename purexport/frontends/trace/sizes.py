"""Functions that get a size and of which the tracer would record the example's number: other forms of them.

Under the tracer a size is a tensor without axes.  Where torch takes it for a Python number (`torch.tensor([h, w])`,
`x.split(h // 2)`) or where the number reaches an operator that torch calls inside (`output_padding`), the trace holds
a constant.  The forms here compute the same from the size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch

from purexport.torch_patches.torch_jit import tracing_state
from purexport.torch_patches.tracer import untraced

IsSize = Callable[[torch.Tensor], bool]
Form = Callable[[Any, tuple[Any, ...], dict[str, Any], IsSize], Any]


def recorded(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_size: IsSize) -> Any:
    """The result of another form of the call; None where torch's own form keeps the sizes, or has none."""
    form = _FORMS.get(getattr(function, "__name__", ""))
    return form(function, args, kwargs, is_size) if form is not None and tracing_state() is not None else None


def _made_of_sizes(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_size: IsSize) -> Any:
    """`torch.tensor([h, w])`: the sizes are stacked."""
    position = 1 if function is torch.Tensor.new_tensor else 0
    data = args[position] if len(args) > position else kwargs.get("data", kwargs.get("obj"))
    if not isinstance(data, (list, tuple)) or not any(_is_traced(item, is_size) for item in _leaves(data)):
        return None
    with untraced():  # torch makes no integers of a list with float tensors, only of one with float numbers
        numbers = _numbers(data)
        given = (*args[:position], numbers, *args[position + 1 :]) if len(args) > position else args
        named = {key: numbers if item is data else item for key, item in kwargs.items()}
        example = function(*given, **named)
    return _stacked(data, example)


def _numbers(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return [_numbers(item) for item in data]
    return data.item() if isinstance(data, torch.Tensor) and not data.dim() else data


def _leaves(data: Any) -> list[Any]:
    return [leaf for item in data for leaf in _leaves(item)] if isinstance(data, (list, tuple)) else [data]


def _is_traced(item: Any, is_size: IsSize) -> bool:
    return isinstance(item, torch.Tensor) and not item.dim() and is_size(item)


def _stacked(data: Any, like: torch.Tensor) -> torch.Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_stacked(item, like) for item in data])
    if isinstance(data, torch.Tensor):
        return data.to(like.device, like.dtype)
    return torch.tensor(data, dtype=like.dtype, device=like.device)


class Numbers(list[Any]):
    """The numbers of a vector, as `tolist` gives them, which know the tensor that they are from."""

    def __init__(self, tensor: torch.Tensor, numbers: Sequence[Any]) -> None:
        super().__init__(numbers)
        self.tensor = tensor
        self.first = tuple(numbers)


def _listed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_size: IsSize) -> Any:
    """`x.tolist()` of a vector of integers, which may be the sizes of pieces."""
    tensor = args[0]
    if tensor.dim() != 1 or tensor.dtype not in (torch.int64, torch.int32):
        return None
    return Numbers(tensor, function(*args, **kwargs))


def _split(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_size: IsSize) -> Any:
    """`x.split(n)`: as many pieces as the example has; where the axis ends earlier, the last ones are shorter.

    Pieces of sizes that the data decides are as many as there are sizes.
    """
    named = {"split_size_or_sections": "split_size", "tensor": "self"}
    given = dict(zip(("self", "split_size", "dim"), args, strict=False))
    given |= {named.get(name, name): value for name, value in kwargs.items()}
    size, dim = given["split_size"], given.get("dim", 0) % given["self"].dim()
    if isinstance(size, Numbers) and tuple(size) == size.first:
        return torch.split_with_sizes(given["self"], [size.tensor[place] for place in range(len(size))], dim)  # type: ignore[misc]
    if not _is_traced(size, is_size):
        return None
    with untraced():
        count = len(function(*args, **kwargs))
    bounds = pairwise([size * step for step in range(count + 1)])
    return tuple(given["self"][(slice(None),) * dim + (slice(*ends),)] for ends in bounds)


def _transposed(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_size: IsSize) -> Any:
    """A transposed convolution with computed output padding, which adds rows and columns at the end.

    With the largest padding that torch allows, the result begins with the wanted one.
    """
    names = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
    given = dict(zip(names, args, strict=False)) | kwargs
    extra = given.get("output_padding", 0)
    others = _leaves([given.get(name) for name in ("stride", "padding", "groups", "dilation")])
    if not isinstance(extra, (list, tuple)) or not any(_is_traced(item, is_size) for item in extra):
        return None
    if any(isinstance(item, torch.Tensor) for item in others):
        return None
    rank = len(extra)
    steps = [_each(given.get(name, 1), rank) for name in ("stride", "dilation")]
    most = [max(pair) - 1 for pair in zip(*steps, strict=True)]
    full = function(**{**given, "output_padding": most})
    first = full.dim() - rank
    sizes = [full.shape[first + axis] - (most[axis] - extra[axis]) for axis in range(rank)]
    ends: tuple[Any, ...] = (..., *(slice(0, size) for size in sizes))
    return full[ends]


def _interpolated(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_size: IsSize) -> Any:
    """`interpolate` that computes the size from the factors and then forgets them: by arithmetic on numbers.

    torch computes with tensors here, of whose content nothing is known.
    """
    names = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
    given = dict(zip(names, args, strict=False)) | kwargs
    factor = given.get("scale_factor")
    if not given.get("recompute_scale_factor") or factor is None:
        return None
    axes = range(2, given["input"].dim())
    factors = factor if isinstance(factor, (list, tuple)) else [factor for _ in axes]
    pairs = zip(axes, factors, strict=True)
    size = [
        torch.floor(given["input"].shape[axis].to(torch.float64) * number).to(torch.int64) for axis, number in pairs
    ]
    return function(**{**given, "size": size, "scale_factor": None, "recompute_scale_factor": None})


def _strides(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_size: IsSize) -> Any:
    """`x.stride()` of a tensor whose elements fill its memory, in the order of its axes or of permuted ones."""
    tensor = args[0]
    with untraced():
        steps, sizes = tensor.stride(), tuple(tensor.shape)
    inner = next((order for order in _orders(sizes, steps) if _steps(sizes, order) == list(steps)), None)
    if inner is None:
        return None
    found = _steps(tensor.shape, inner)
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    return tuple(found) if dim is None else found[dim]


def _orders(sizes: Sequence[int], steps: Sequence[int]) -> Iterator[list[int]]:
    """The axes from the innermost to the outermost, as they are in most tensors, and by their steps."""
    axes = [*range(len(sizes))][::-1]
    yield axes
    yield sorted(axes, key=lambda axis: (steps[axis], sizes[axis] != 1))


def _padded(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_size: IsSize) -> torch.Tensor | None:
    """`pad` with a number that follows from sizes, which torch takes for a Python number."""
    names = ("input", "pad", "mode", "value")
    given = {"mode": "constant", "value": None, **dict(zip(names, args, strict=False)), **kwargs}
    if given["mode"] != "constant" or not _is_traced(given["value"], is_size):
        return None
    return torch.constant_pad_nd(given["input"], given["pad"], given["value"])


def _scattered(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_size: IsSize) -> Any:
    """`x.scatter(dim, index, n)`: torch would take the number for a tensor of sources."""
    names = ("input", "dim", "index", "src")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    number = given.pop("value", given.pop("src", None))
    if not _is_traced(number, is_size):
        return None
    target, dim, index = (given.pop(name) for name in names[:3])
    return function(target, dim, index, torch.full_like(index, number, dtype=target.dtype), **given)


def _steps(sizes: Sequence[Any], inner: Sequence[int]) -> list[Any]:
    """How far apart in memory the elements along each axis are: the product of the sizes of the axes inside of it."""
    found: list[Any] = [1 for _ in sizes]
    for axis, outer in pairwise(inner):
        found[outer] = found[axis] * sizes[axis]
    return found


def _each(number: Any, rank: int) -> Sequence[int]:
    numbers = [*number] if isinstance(number, (list, tuple)) else [number]
    return numbers * rank if len(numbers) == 1 else numbers


_FORMS: dict[str, Form] = {
    **dict.fromkeys(("tensor", "as_tensor", "asarray", "new_tensor"), _made_of_sizes),
    **dict.fromkeys(("split", "unsafe_split"), _split),
    "tolist": _listed,
    "interpolate": _interpolated,
    "stride": _strides,
    "pad": _padded,
    **dict.fromkeys(("scatter", "scatter_"), _scattered),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
}
NAMES = frozenset(_FORMS)
"""The functions that may have another form."""


def group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`group_norm` without its check that there is more than one value, which asks for sizes where we do not see it."""
    return torch.group_norm(input, num_groups, weight, bias, eps, torch.backends.cudnn.enabled)
