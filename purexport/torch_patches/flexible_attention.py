"""Lets flex_attention run plain operators: a product, what the two functions of the user say, and a softmax.

torch compiles flex_attention, or calls one operator with the functions as programs, and a file can hold neither.  The
functions take a score and four positions without axes.  Here they get all scores at once, and positions with one long
axis each, which broadcast: the functions may only compute each score by itself, also in torch.
Source of the semantics: the documentation of torch.nn.attention.flex_attention.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

_MODULE = "torch.nn.attention.flex_attention"
_NAMES = ("flex_attention_hop", "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG")


def flexible_attention() -> Any:
    """What stands in torch's module now; None where nobody has imported it."""
    module = sys.modules.get(_MODULE)
    return None if module is None else tuple(getattr(module, name, None) for name in _NAMES)


@contextmanager
def plain_flexible_attention() -> Iterator[None]:
    """Inside, flex_attention runs plain operators, in the whole process."""
    module = sys.modules.get(_MODULE)
    if module is None or not all(hasattr(module, name) for name in _NAMES):
        yield
        return
    before = {name: value for name, value in vars(module).items() if name in _NAMES}
    vars(module).update(zip(_NAMES, (_attention, True), strict=True))
    try:
        yield
    finally:
        vars(module).update(before)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable[..., Any],
    block_mask: Sequence[Any],
    scale: float,
    kernel_options: Any = None,
    score_buffers: Sequence[torch.Tensor] = (),
    mask_buffers: Sequence[torch.Tensor] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result, and the logarithm of the sum and the largest of the scores, both to the base 2.

    Scores are float32 or wider, as in torch.  A row in which everything is masked gives zeros.
    """
    if query.shape[1] != key.shape[1]:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * scale
    places = [
        torch.arange(scores.shape[axis], device=scores.device).reshape([-1 if axis == one else 1 for one in range(4)])
        for axis in range(4)
    ]
    kept = block_mask[-1](*places, *mask_buffers)
    scores = torch.where(kept, score_mod(scores, *places, *score_buffers), -math.inf).to(wide)
    result = torch._safe_softmax(scores, dim=-1).to(query.dtype) @ value
    return result, scores.logsumexp(dim=-1) / math.log(2), scores.amax(dim=-1) / math.log(2)
