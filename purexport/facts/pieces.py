"""Views that return a list, such as `split` and `unbind`, and how their parts are joined into the base again."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from purexport.facts.fact import Aliases, Fact, Pieces
from purexport.facts.views import INT64_MAX, slice_of


def _between(self: torch.Tensor, indices: Sequence[Any], dim: int = 0) -> list[torch.Tensor]:
    """The parts between the positions `indices`; each is a slice as `slice_of` makes it."""
    return [slice_of(self, dim, start, end) for start, end in itertools.pairwise([0, *indices, INT64_MAX])]


def _even(self: torch.Tensor, sections: int, dim: int = 0) -> Any:
    """So many parts, the first ones longer by one where the size leaves a rest: torch's fakes take it to leave none."""
    size = self.shape[dim]
    if not isinstance(size, torch.SymInt) or not isinstance(sections, int):
        return torch.ops.aten.tensor_split.sections(self, sections, dim)
    found = []
    for part in range(sections):
        shape = list(self.shape)
        shape[dim] = (size + (sections - 1 - part)) // sections
        found.append(self.as_strided(shape, self.stride(), self.storage_offset()))
    return found


def _columns(self: torch.Tensor, indices: Sequence[Any]) -> list[torch.Tensor]:
    return _between(self, indices, 1 if self.dim() > 1 else 0)


def _of_chunks(size: int, args: Mapping[str, Any]) -> int:
    return max(-(-size // int(args["chunks"])), 1)


def _of_one(size: int, args: Mapping[str, Any]) -> int:
    return 1


_PLAIN = Pieces()
_CHUNKS = Pieces(size=_of_chunks)

FACTS = (
    Fact("aten::split", pieces=_PLAIN),
    Fact("aten::split_with_sizes", pieces=_PLAIN),
    Fact("aten::chunk", pieces=_CHUNKS),
    Fact("aten::unsafe_split", pieces=_PLAIN, aliases=Aliases.ALWAYS),
    Fact("aten::unsafe_split_with_sizes", pieces=_PLAIN, aliases=Aliases.ALWAYS),
    Fact("aten::unsafe_chunk", pieces=_CHUNKS, aliases=Aliases.ALWAYS),
    Fact("aten::unbind", pieces=Pieces(join="aten::stack", size=_of_one)),
    Fact(
        "aten::tensor_split",
        pieces=_PLAIN,
        shapes={"indices": _between, "sections": _even},
        data_dependent=lambda call: call.target.endswith("tensor_indices_or_sections"),
    ),
    Fact("aten::hsplit", pieces=Pieces(axis=lambda rank: 0 if rank == 1 else 1), shapes={"array": _columns}),
    Fact("aten::vsplit", pieces=Pieces(axis=lambda rank: 0), shapes={"array": functools.partial(_between, dim=0)}),
    Fact("aten::dsplit", pieces=Pieces(axis=lambda rank: 2), shapes={"array": functools.partial(_between, dim=2)}),
)
