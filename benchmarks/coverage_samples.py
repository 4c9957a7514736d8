"""The names of torch's operator and module databases, and samples of them as modules of tensors."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

DTYPES = (torch.float32, torch.int64, torch.bool)

# random only where an option of a sample says so
SOMETIMES_RANDOM = ("nn.functional.multi_head_attention_forward", "nn.functional.scaled_dot_product_attention")
# results that hold whatever was in memory
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_")


class Bound(nn.Module):
    """An operator as a module of its tensors: the sample's other arguments are part of it."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        leaves, self.tree = pytree.tree_flatten((args, dict(kwargs)))
        self.function = function
        self.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.leaves = [None if place in self.places else leaf for place, leaf in enumerate(leaves)]
        if isinstance(function, nn.Module):
            self.inner = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return self.function(*args, **kwargs)


Sample = tuple[Bound, tuple[torch.Tensor, ...]]


def database() -> dict[str, Any]:
    """Every entry of both databases by name; modules are called `nn.Linear`, variants `std.unbiased`."""
    from torch.testing._internal import common_methods_invocations as invocations
    from torch.testing._internal.common_modules import module_db

    # the database seeds its random operators at each call; unseeded, they show what they are
    invocations.wrapper_set_seed = lambda function, *args, **kwargs: function(*args, **kwargs)
    entries = {f"{item.name}.{item.variant_test_name}".rstrip("."): item for item in invocations.op_db}
    modules = {f"nn.{item.module_cls.__name__}": item for item in module_db}
    return {**entries, **modules}


def dtype_of(entry: Any) -> torch.dtype | None:
    """The dtype that a name is swept in; None when it takes complex numbers only."""
    supported = entry.dtypes if hasattr(entry, "dtypes") else entry.supported_dtypes("cpu")
    return next((dtype for dtype in DTYPES if dtype in supported), None)


def samples(entry: Any, dtype: torch.dtype, count: int, spread: bool) -> list[Sample]:
    """The first `count` samples of a name, or as many spread over all of them."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    if hasattr(entry, "module_cls"):
        found = _module_samples(entry, dtype)
    else:
        found = ((entry.op, (item.input, *item.args), item.kwargs) for item in entry.sample_inputs("cpu", dtype))
    if spread:
        known = list(found)
        found = iter([known[index * (len(known) - 1) // max(count - 1, 1)] for index in range(min(count, len(known)))])
    return [_bound(*item) for item in itertools.islice(found, count)]


def _module_samples(entry: Any, dtype: torch.dtype) -> Iterator[tuple[Any, tuple[Any, ...], Any]]:
    given = entry.module_inputs_func(entry, device="cpu", dtype=dtype, requires_grad=False, training=False)
    for item in given:
        torch.manual_seed(0)
        module = entry.module_cls(*item.constructor_input.args, **item.constructor_input.kwargs)
        if item.forward_input is not None:
            yield module.to(dtype).eval(), item.forward_input.args, item.forward_input.kwargs


def _bound(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Sample:
    model = Bound(function, args, kwargs)
    leaves = [leaf for leaf in pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
    return model.eval(), tuple(leaf.detach() for leaf in leaves)


def results_of(model: Bound, tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """What torch computes, on copies (with all of the memory that a view is of)."""
    with torch.no_grad():
        result = model(*copy.deepcopy(tensors))
    return [torch.as_tensor(leaf).detach() for leaf in pytree.tree_leaves(result) if leaf is not None]


def set_apart(name: str, found: Sequence[Sample]) -> tuple[str, list[Sample]]:
    """Why a name cannot be compared (`random` or `sparse`, or `complex` results of real inputs; empty when it can), and
    what to compare."""
    if name in UNINITIALISED:
        return "random", []
    fixed = []
    for sample in found:
        runs = []
        for seed in range(2):
            torch.manual_seed(seed)
            runs.append(results_of(*sample))
        if not runs[0]:
            continue  # nothing to compare
        if any(tensor.layout != torch.strided or tensor.is_nested for tensor in runs[0]):
            return "sparse", []
        if any(tensor.is_complex() for tensor in runs[0]) and not any(tensor.is_complex() for tensor in sample[1]):
            return "complex", []
        if all(_same(one, other) for one, other in zip(*runs, strict=True)):
            fixed.append(sample)
        elif name not in SOMETIMES_RANDOM:
            return "random", []
    return ("", fixed) if fixed else ("random", [])


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    wide = torch.complex128 if one.is_complex() else torch.float64
    return one.shape == other.shape and torch.allclose(one.to(wide), other.to(wide), equal_nan=True)
