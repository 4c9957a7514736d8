"""A model written for the tests: how it is made, what it is fed, and which of its axes are dynamic."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

VOCABULARY = 50
ROUTES = ("trace", "export")


@dataclass(frozen=True, eq=False)
class Case:
    """One form of a model.

    name    id of the test
    make    the module
    inputs  its arguments, as a function of the named sizes: `lambda batch, length: (tokens(batch, length),)`
    axes    the dynamic axes of the flat tensors in the arguments, by position: {0: {0: "batch", 1: "length"}}
    sizes   the sizes of the example
    others  other sizes that the same file must take; what is not named keeps the example's size
    slow    runs with `-m sweep` only
    routes  captures to run: "trace", "export", and "script" where it can be scripted
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[..., tuple[Any, ...]]
    axes: Mapping[int, Mapping[int, str]]
    sizes: Mapping[str, int]
    others: Sequence[Mapping[str, int]]
    routes: Sequence[str] = ROUTES
    min_opset: int = 13
    slow: bool = False

    def model(self) -> nn.Module:
        """The module in eval mode.  Do not change it: it is shared by the tests of one process."""
        return _made(self)

    def example(self, sizes: Mapping[str, int] | None = None, seed: int = 0) -> tuple[Any, ...]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.inputs(**{**self.sizes, **(sizes or {})})

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        return {f"x{position}": dict(axes) for position, axes in self.axes.items()}

    def other_examples(self) -> list[tuple[Any, ...]]:
        return [self.example(sizes, seed=position + 1) for position, sizes in enumerate(self.others)]


@functools.lru_cache(maxsize=4)
def _made(case: Case) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(zlib.crc32(case.name.encode()))
        model = case.make().eval()
        for module in model.modules():  # statistics and factors of a layer as made would hide it
            if isinstance(module, _BatchNorm):
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 1.5)
            if isinstance(module, (_BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)):
                module.weight.uniform_(0.5, 1.5)
    return model


def tokens(*shape: int) -> Tensor:
    """int64 indices of the vocabulary."""
    return torch.randint(0, VOCABULARY, shape)


def lengths(batch: int, longest: int) -> Tensor:
    """[batch] int64: how long each sequence is, one of them as long as the padded tensor."""
    result = torch.randint(1, longest + 1, (batch,))
    result[0] = longest
    return result


def padding(batch: int, longest: int) -> Tensor:
    """[batch, longest] int64: 1 for what counts, 0 for padding."""
    return (torch.arange(longest)[None] < lengths(batch, longest)[:, None]).long()
