"""A program is data: tensors to be drawn, statements, and what to return.  From it come a module, and a script to run.

The same program makes the same module and the same numbers each time.  A feed is a set of sizes for the named axes, and
its number: feed 0 is what the program is exported on, every feed has its own numbers.
"""

from __future__ import annotations

import inspect
import linecache
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

HEADER = "import torch\nimport torch.nn.functional as F\nfrom torch import Tensor\n\n"


def drawn(shape: tuple[int, ...], dtype: str, kind: str, seed: int) -> torch.Tensor:
    """Numbers of a kind: "normal", "lattice" (quarters, so that ties occur), "positive", "below N" (indices)."""
    generator = torch.Generator().manual_seed(seed)
    if kind.startswith("below"):
        whole = torch.randint(0, int(kind.split()[1]), shape, generator=generator)
    elif dtype == "bool":
        return torch.randint(0, 2, shape, generator=generator).bool()
    elif "float" not in dtype:
        whole = torch.randint(0 if dtype == "uint8" or kind == "positive" else -5, 8, shape, generator=generator)
    elif kind == "lattice":
        return (torch.randint(-8, 9, shape, generator=generator) / 4).to(getattr(torch, dtype))
    else:
        numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (numbers.abs() + 0.25 if kind == "positive" else numbers).to(getattr(torch, dtype))
    return whole.to(getattr(torch, dtype))


@dataclass(frozen=True)
class Draw:
    """A tensor of the program: an input `x0` or a buffer `p0`.  A size that is a text is a named axis."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    kind: str
    seed: int

    def at(self, sizes: Mapping[str, int], feed: int = 0) -> torch.Tensor:
        return drawn(
            tuple(sizes[s] if isinstance(s, str) else s for s in self.shape), self.dtype, self.kind, self.seed + feed
        )


@dataclass(frozen=True)
class Step:
    """A statement, and the statements below it where it is the head of a block."""

    text: str
    body: tuple[Step, ...] = ()
    other: tuple[Step, ...] = ()

    def lines(self, indent: str = "") -> Iterator[str]:
        yield indent + self.text
        for step in self.body:
            yield from step.lines(indent + "    ")
        if self.other:
            yield indent + "else:"
        for step in self.other:
            yield from step.lines(indent + "    ")


@dataclass(frozen=True)
class Program:
    """`sizes` holds the sizes of the named axes, a row a feed.  `branches` says that data decides what runs."""

    inputs: tuple[Draw, ...]
    owned: tuple[Draw, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    sizes: tuple[dict[str, int], ...]
    opset: int
    branches: bool = False
    optimized: bool = False

    def source(self) -> str:
        """The module as a class `M`; its buffers are its arguments."""
        owned = [draw.name for draw in self.owned]
        lines = ["class M(torch.nn.Module):"]
        if owned:
            lines += [f"    def __init__(self, {', '.join(owned)}):", "        super().__init__()"]
            lines += [f'        self.register_buffer("{name}", {name})' for name in owned] + [""]
        arguments = "".join(f", {draw.name}: Tensor" for draw in self.inputs)
        lines.append(f"    def forward(self{arguments}):")
        for step in self.steps:
            lines += step.lines("        ")
        lines.append(f"        return {', '.join(self.outputs)}")
        return "\n".join(lines) + "\n"

    def module(self) -> torch.nn.Module:
        """A new instance of the module, with the buffers' first values."""
        return self.module_class()(*[draw.at(self.sizes[0]) for draw in self.owned])

    def module_class(self) -> type[torch.nn.Module]:
        """The class; torch.jit.script finds its source."""
        text = HEADER + self.source()
        name = "<program>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        namespace = types.ModuleType("program")
        exec(compile(text, name, "exec"), namespace.__dict__)
        made: type[torch.nn.Module] = namespace.__dict__["M"]
        return made

    def feed(self, number: int) -> tuple[torch.Tensor, ...]:
        """The inputs of a feed."""
        return tuple(draw.at(self.sizes[number], number * 1000) for draw in self.inputs)

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """The named axes of each input, as torch.onnx takes them."""
        found = {draw.name: {i: s for i, s in enumerate(draw.shape) if isinstance(s, str)} for draw in self.inputs}
        return {name: axes for name, axes in found.items() if axes}

    def script(self, route: str) -> str:
        """A script that shows what torch and the route's file compute on each feed."""
        model = f"M({', '.join(repr_of(draw, self.sizes[0], 0) for draw in self.owned)})"
        feeds = [
            "(" + "".join(repr_of(draw, sizes, 1000 * k) + ", " for draw in self.inputs) + ")"
            for k, sizes in enumerate(self.sizes)
        ]
        wrap = "torch.jit.script(model())" if route == "script" else "model()"
        capture = "auto" if route == "script" else route
        axes = f", dynamic_axes={self.dynamic_axes()}" if self.dynamic_axes() else ""
        names = f", input_names={[draw.name for draw in self.inputs]}"
        level = "ORT_ENABLE_ALL" if self.optimized else "ORT_DISABLE_ALL"
        return (
            HEADER.replace("import torch\n", "import onnxruntime\nimport torch\n", 1).rstrip("\n")
            + f"\nimport purexport\n\n\n{inspect.getsource(drawn)}\n\n{self.source()}\n\n"
            + f"def model():\n    return {model}\n\n\nfeeds = [\n"
            + "".join(f"    {feed},\n" for feed in feeds)
            + "]\n"
            + f'given = dict(opset_version={self.opset}, capture="{capture}"{names}{axes})\n'
            + f"program = purexport.export({wrap}, feeds[0], **given)\n"
            + "options = onnxruntime.SessionOptions()\n"
            + f"options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.{level}\n"
            + "session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), options)\n"
            + "for feed in feeds:\n"
            + '    inputs = {name: x.numpy().copy() for name, x in zip(given["input_names"], feed)}\n'
            + "    used = {value.name for value in session.get_inputs()}\n"
            + "    print(model()(*feed))\n"
            + "    print(session.run(None, {name: x for name, x in inputs.items() if name in used}))\n"
        )


def repr_of(draw: Draw, sizes: Mapping[str, int], offset: int) -> str:
    shape = tuple(sizes[s] if isinstance(s, str) else s for s in draw.shape)
    return f"drawn({shape}, {draw.dtype!r}, {draw.kind!r}, {draw.seed + offset})"


def world_of(program: Program, feed: int) -> dict[str, Any]:
    """The names that the statements see before the first one, for a feed."""
    world: dict[str, Any] = {draw.name: value for draw, value in zip(program.inputs, program.feed(feed), strict=True)}
    owned = {draw.name: draw.at(program.sizes[0]) for draw in program.owned}
    return {**world, "self": types.SimpleNamespace(**owned)}
