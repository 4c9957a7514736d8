"""Examples for torch.export: dynamic axes of size 0 or 1 are enlarged, because torch decides on such sizes.

A size of 1 broadcasts and a size of 0 leaves loops out, so torch would record what holds for these sizes only.  What
held between the sizes of the example must still hold: where an axis has the sum of two others (`total = past + seq`),
it grows with them.  Which axis is the sum cannot be seen where one of them is empty, so there are several proposals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from purexport.frontends.export.specs import Spec, root_of

_LEAST = 2  # the smallest size on which torch does not decide

Key = Any  # the name of a Dim, or the place of an axis on which torch decides


def enlarged(tensors: Sequence[torch.Tensor], specs: Sequence[Spec]) -> Iterator[list[torch.Tensor]]:
    """The examples to try, the most promising first; the given tensors are the last one."""
    sizes = _sizes(tensors, specs)
    small = [key for key, size in sizes.items() if size < _LEAST]
    if small:
        tried: list[Mapping[Key, int]] = []
        for sums in (_largest_sum(sizes, small), list(sizes), []):
            proposal = _grown(sizes, small, sums)
            if proposal not in tried:
                tried.append(proposal)
                yield _with_sizes(tensors, specs, proposal)
    yield list(tensors)


def _sizes(tensors: Sequence[torch.Tensor], specs: Sequence[Spec]) -> dict[Key, int]:
    """The size of each dynamic axis, once per name.  Of a derived axis only the root counts."""
    found: dict[Key, int] = {}
    derived: list[Key] = []
    for place, (tensor, spec) in enumerate(zip(tensors, specs, strict=True)):
        for axis, dim in spec.items():
            if not hasattr(dim, "root"):
                found.setdefault(root_of(dim) or (place, axis), tensor.shape[axis])
            elif tensor.shape[axis] < _LEAST:
                derived.append(root_of(dim))
    return {**dict.fromkeys(derived, 0), **found}


def _largest_sum(sizes: Mapping[Key, int], small: Sequence[Key]) -> list[Key]:
    """The largest axis that is a sum of two others, of which one is small; the last one of those of one size."""
    sums = [key for key in sizes if key not in small and _parts(key, sizes, small)]
    most = max((sizes[key] for key in sums), default=0)
    return [key for key in sums if sizes[key] == most][-1:]


def _parts(key: Key, sizes: Mapping[Key, int], small: Sequence[Key]) -> tuple[Key, Key] | None:
    """Two axes whose sizes add up to that of `key`, the first of which is small."""
    for one in small:
        for other in sizes:
            if len({key, one, other}) == 3 and sizes[one] + sizes[other] == sizes[key]:
                return one, other
    return None


def _grown(sizes: Mapping[Key, int], small: Sequence[Key], sums: Sequence[Key]) -> dict[Key, int]:
    found = {key: max(size, _LEAST) for key, size in sizes.items()}
    for key in sums:
        parts = _parts(key, sizes, small) if key not in small else None
        if parts is not None:
            found[key] = sum(found[part] for part in parts)
    return found


def _with_sizes(tensors: Sequence[torch.Tensor], specs: Sequence[Spec], sizes: Mapping[Key, int]) -> list[torch.Tensor]:
    result = []
    for place, (tensor, spec) in enumerate(zip(tensors, specs, strict=True)):
        shape = list(tensor.shape)
        for axis, dim in spec.items():
            size = sizes.get(root_of(dim) or (place, axis))
            if size is not None:
                shape[axis] = int(dim.fn(size)) if hasattr(dim, "fn") else size
        result.append(tensor if shape == list(tensor.shape) else _resized(tensor, shape))
    return result


def _resized(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of that shape with the values of `tensor`, and zeros elsewhere."""
    for axis, size in enumerate(shape):
        if tensor.shape[axis] == 0 and size:
            tensor = tensor.new_zeros([*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]])
        elif size != tensor.shape[axis]:
            tensor = tensor.index_select(axis, torch.arange(size) % tensor.shape[axis])
    return tensor
