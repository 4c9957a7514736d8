"""Bounds on what the constructor of a model may make, beside the size of the checkpoint.

Its parameters have no values, but each is allocated for a moment, tables of positions and masks stay, and each layer is
made by Python.  So the elements of what is asked for are counted before an operator runs, and so are the operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from purexport.errors import ExportError
from purexport.language.config import BESIDE, TIED
from purexport.torch_patches.calls import operators_handed_to

_TABLES = 1 << 28  # elements of tables and masks, beside those of parameters
_BY_NUMBER = ("aten::arange", "aten::linspace", "aten::logspace", "aten::eye", "aten::randperm")
_CALLS, _CALLS_BESIDE = 256, 1 << 17  # operators for each tensor of the checkpoint, and more


@contextmanager
def bounded_building(tensors: int, elements: int) -> Iterator[None]:
    """Inside, ExportError comes before an operator that would make more than the model of such a checkpoint has."""
    room = 2 * (TIED * elements + BESIDE) + _TABLES
    calls = _CALLS * tensors + _CALLS_BESIDE

    def counted(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal room, calls
        room -= _asked(overload._schema.name, args)
        calls -= 1
        if room < 0 or calls < 0:
            raise ExportError(
                f"config.json: its model is far larger than the checkpoint, which has {tensors} tensors of {elements} "
                "numbers; take the config that belongs to the weights",
                code="odd-config",
            )
        return overload(*args, **kwargs)

    with operators_handed_to(counted):
        yield


def _asked(name: str, args: tuple[Any, ...]) -> int:
    """How many elements an operator is asked for: by sizes that it is given, or by those of its operands together."""
    shapes = [item.shape for item in args if isinstance(item, torch.Tensor) and not item.is_meta]
    sizes = next((item for item in args if isinstance(item, (list, tuple))), ())
    if len(shapes) > 1:
        longest = max(map(len, shapes))
        padded = [(1,) * (longest - len(shape)) + tuple(shape) for shape in shapes]
        return math.prod(map(max, zip(*padded, strict=True)))
    if shapes:
        return math.prod((*shapes[0], *sizes)) if name == "aten::repeat" else 0
    if name in _BY_NUMBER:
        return int(max(abs(item) for item in args if isinstance(item, (int, float))))
    return math.prod(size for size in sizes if isinstance(size, int))
