"""Broadcasting with unbacked sizes, which are known only at run time.

torch's shape functions assume that such a size is not 1 and equals the other operand's size, and replace it from then
on.  After a branch the size may well be 1, and the file would contain a wrong size.  So operands with unbacked sizes
are expanded to the common shape before torch runs, and torch assumes nothing:

- next to a known size other than 1, the common size is the known one, whatever the unbacked size turns out to be;
- otherwise the common size is a new unbacked size;
- a tensor that is written in place keeps its shape.

Semantics: https://docs.pytorch.org/docs/stable/notes/broadcasting.html.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from purexport.aten.schema import signature
from purexport.facts.table import fact_of


def widened(target: str, operator: Any, args: Mapping[str, Any], unknown: Callable[[], Any]) -> Mapping[str, Any]:
    """`args` of a call, with operands of unbacked sizes expanded where torch would make an assumption.

    `operator` is what will be called; only torch's own operators have a tag which says that they broadcast.
    `unknown` makes a new unbacked size.
    """
    if torch.Tag.pointwise not in getattr(operator, "tags", ()) and not fact_of(target).broadcasts:
        return args
    tensors = {name: arg for name, arg in args.items() if isinstance(arg, torch.Tensor)}
    if len(tensors) < 2 or not any(_is_unknown(size) for tensor in tensors.values() for size in tensor.shape):
        return args
    written = next((tensors[name] for name in signature(target).writes if name in tensors), None)
    rank = max(tensor.dim() for tensor in tensors.values())
    shapes = [(1,) * (rank - tensor.dim()) + tuple(tensor.shape) for tensor in tensors.values()]
    if written is not None and written.dim() < rank:
        return args  # torch raises the error
    common = [
        _common(sizes, None if written is None else written.shape[axis], unknown)
        for axis, sizes in enumerate(zip(*shapes, strict=True))
    ]
    made = dict(args)
    for name, tensor in tensors.items():
        own = zip(tensor.shape, common[rank - tensor.dim() :], strict=True)
        shape = [size if wide is None or not _gives_way(size, wide) else wide for size, wide in own]
        if tensor is not written and any(new is not old for new, old in zip(shape, tensor.shape, strict=True)):
            made[name] = torch.empty(shape, dtype=tensor.dtype)
    return made


def _common(sizes: Sequence[Any], written: Any, unknown: Callable[[], Any]) -> Any:
    """The size that unbacked ones are expanded to; None where torch has nothing to assume."""
    wide = [size for size in sizes if not _is(size, 1)]
    if all(_is(size, wide[0]) for size in wide[1:]) or not any(map(_is_unknown, wide)):
        return None
    if written is not None:
        return None if _is_unknown(written) else written
    known = [size for size in wide if isinstance(size, int)]
    return known[0] if known else unknown()


def _gives_way(size: Any, wide: Any) -> bool:
    """Whether `size` is replaced by the common size `wide`: either it is unbacked, or `wide` is and `size` is not 1."""
    return _is_unknown(size) or (_is_unknown(wide) and not _is(size, 1))


def _is(one: Any, other: Any) -> bool:
    return bool(statically_known_true(one == other))


def _is_unknown(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and bool(free_unbacked_symbols(size))
