"""Saving a model whose weights are spread over the processes of torch.distributed: all write one file."""

from purexport.distributed.parts import Part
from purexport.distributed.ranks import HeldByRanks, outline, save
from purexport.errors import DistributedError

__all__ = ["DistributedError", "HeldByRanks", "Part", "outline", "save"]
