"""One graph of a language model that has several: a module with tensors in and out, under the names of its file.

A size that may vary is the name of its axis. From these names follow the dynamic axes of the export, and examples of
any sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

BATCH = "batch_size"
# sizes of examples: primes that are apart from each other and rare in models
SIZES = {
    BATCH: 2,
    "sequence_length": 7,
    "past_sequence_length": 11,
    "total_sequence_length": 18,
    "encoder_sequence_length": 13,
}


@dataclass(frozen=True)
class Port:
    """An input: its name, its shape and dtype.

    Integers are below `below`, or all one if that is 0: a mask.  `only` is the one value that is taken.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: torch.dtype
    below: int = 0
    only: Tensor | None = None

    def example(self, sizes: Mapping[str, int], generator: torch.Generator) -> Tensor:
        """A random tensor, with these sizes for the names in the shape."""
        shape = [sizes[size] if isinstance(size, str) else size for size in self.shape]
        if self.only is not None:
            return self.only.clone()
        if self.dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(self.dtype)
        if not self.below:
            return torch.ones(shape, dtype=self.dtype)
        return torch.randint(0, self.below, shape, generator=generator).to(self.dtype)


@dataclass(frozen=True, eq=False)
class GraphPart:
    """A graph: its file, what computes it, and its inputs and outputs in order.

    `sizes` are those of the example, by the names of axes.
    """

    file: str
    module: nn.Module
    inputs: Sequence[Port]
    output_names: Sequence[str]
    sizes: Mapping[str, int] = field(default_factory=lambda: SIZES)

    @property
    def input_names(self) -> list[str]:
        """The inputs in order."""
        return [port.name for port in self.inputs]

    @property
    def axes(self) -> dict[str, dict[int, str]]:
        """The dynamic axes, as `export` takes them."""
        found = {
            port.name: {at: size for at, size in enumerate(port.shape) if isinstance(size, str)} for port in self.inputs
        }
        return {name: axes for name, axes in found.items() if axes}

    def args(self, seed: int = 0, **sizes: int) -> tuple[Tensor, ...]:
        """Random inputs, of the sizes of the example or of others."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(port.example({**self.sizes, **sizes}, generator) for port in self.inputs)


def layers_of(prefix: str, count: int, *kinds: str) -> Iterator[str]:
    """The names of a cache: prefix.0.kind.key, prefix.0.kind.value, and so on."""
    for layer in range(count):
        for kind in kinds:
            yield from (f"{prefix}.{layer}.{kind}key", f"{prefix}.{layer}.{kind}value")
