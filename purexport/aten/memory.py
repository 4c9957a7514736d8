"""Who shares memory, as far as a tensor or a schema says it by itself.

Which tensors of a graph share memory is found in three places, each on what is known there: of calls by their facts and
by torch (`functionalize/aliasing`), of a graph's values by what was taken from what (`functionalize/storages`), of a
script's lists by fake tensors (`frontends/script/memory`).  All of them stand on these.
"""

from __future__ import annotations

from typing import Any

import torch

from proto_schema.sizes import maximum
from purexport.aten.graph import AtenValue, Call, TensorType
from purexport.aten.schema import signature


def storage_of(tensor: Any) -> int | None:
    """A number of the memory that a tensor lives in, real or fake; None for what has no such memory.

    It is another one for each storage that is alive, also where no bytes are allocated.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        return None
    return int(tensor.untyped_storage()._cdata)


def share_memory(one: Any, other: Any) -> bool:
    """Whether two tensors live in one memory."""
    storage = storage_of(one)
    return storage is not None and storage == storage_of(other)


def written_by(call: Call) -> list[AtenValue]:
    """The tensors that a call writes to, by the annotations of its schema; none for what is no operator of torch."""
    try:
        names = signature(call.target).writes
    except LookupError:
        return []
    return [value for value in (call.args.get(name) for name in names) if isinstance(value, AtenValue)]


def lies_in_order(type_: TensorType) -> bool:
    """Whether a tensor lies in memory in the order of its elements, at all of its sizes."""
    if type_.shape is None or type_.strides is None or None in type_.shape:
        return False
    for least in (0, 1):  # torch counts an axis without elements as one
        expected: list[Any] = [1]
        for size in reversed(type_.shape[1:]):
            expected.append(expected[-1] * (maximum(least, size) if least and size is not None else size))
        if not type_.shape or list(type_.strides) == expected[::-1]:
            return True
    return False
