"""Common lines of models in the fewest nodes: never more than the better of torch.onnx's exporters writes.

A row pins the nodes of our file, and those of `torch.onnx.export(dynamo=False)` and `(dynamo=True)` (torch 2.13,
onnxscript 0.7.2) at opset 20, bodies included; Constant nodes are counted for none.  Each file runs in ONNX Runtime at
other sizes, 1 and 0 among them where torch takes them.  `python -m tests.lowering.test_node_counts` prints the table,
`pytest -m sweep` counts the nodes of the peers anew where onnxscript is installed.
"""

from __future__ import annotations

import io
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purexport

OPSET = 20


@dataclass(frozen=True)
class Line:
    """A line, the shapes of its arguments with names for the axes that are dynamic, and the counts of nodes.

    `empty` are axes for which a size of 0 is not tried, with the reason.
    """

    name: str
    run: Callable[..., Any]
    shapes: list[list[Any]]
    ours: int
    script: int
    dynamo: int
    empty: dict[str, str] | None = None
    whole: tuple[int, ...] = ()  # the arguments that are int64


def split_heads(x: Tensor) -> Tensor:
    b, t, c = x.shape
    return x.view(b, t, 4, c // 4).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    b, h, t, d = x.shape
    return x.transpose(1, 2).contiguous().view(b, t, h * d)


def packed_heads(x: Tensor) -> tuple[Tensor, Tensor]:
    b, t, _ = x.shape
    q, k, v = x.reshape(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    return q @ k.transpose(-2, -1), v


def repeat_heads(x: Tensor) -> Tensor:
    b, h, t, d = x.shape
    return x[:, :, None].expand(b, h, 3, t, d).reshape(b, h * 3, t, d)


def patches(x: Tensor) -> Tensor:
    b, c, h, w = x.shape
    return x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, (h // 2) * (w // 2), c * 4)


def windows(x: Tensor) -> Tensor:
    b, h, w, c = x.shape
    return x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, 4, c)


def shuffle(x: Tensor) -> Tensor:
    b, c, h, w = x.shape
    return x.view(b, 3, c // 3, h, w).transpose(1, 2).reshape(b, c, h, w)


def rotate_half(x: Tensor) -> Tensor:
    return torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1)


def above_diagonal(x: Tensor) -> Tensor:
    t = x.size(1)
    return x @ x.transpose(1, 2) + torch.triu(torch.full((t, t), float("-inf")), diagonal=1)


def below_diagonal(x: Tensor) -> Tensor:
    t = x.size(1)
    return (x @ x.transpose(1, 2)).masked_fill(~torch.tril(torch.ones(t, t, dtype=torch.bool)), -1e9)


class Positions(nn.Module):
    """A table of positions, cut to the length."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 24, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[:, : x.size(1)]


class Embedded(nn.Module):
    """Tokens and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(20, 8), nn.Embedding(24, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return self.token(ids) + self.position(torch.arange(ids.size(1)).unsqueeze(0))


class Causal(nn.Module):
    """A mask in a buffer, cut to the length."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(24, 24)).view(1, 1, 24, 24))

    def forward(self, x: Tensor) -> Tensor:
        t = x.size(-1)
        return x.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))


IMAGE, BATCH, TOKENS, HEADS = (
    ["b", 3, "h", "w"],
    ["b", 3, 8, 8],
    ["b", "t", 8],
    ["b", 4, "t", 2],
)
NOTHING = dict.fromkeys("hw", "the mean of no elements is NaN, and 0 in ONNX Runtime")
POOLED = dict.fromkeys("hw", "ONNX Runtime pools no empty images")

LINES = [
    Line("x.flatten(1)", lambda x: x.flatten(1), [BATCH], 1, 1, 1),
    Line("torch.flatten(x, 1), sizes open", lambda x: torch.flatten(x, 1), [IMAGE], 1, 1, 10),
    Line("x.view(x.size(0), -1)", lambda x: x.view(x.size(0), -1), [BATCH], 1, 5, 1),
    Line("x.view(len(x), -1)", lambda x: x.view(len(x), -1), [BATCH], 1, 1, 1),
    Line("x.reshape(-1, n)", lambda x: x.reshape(-1, 192), [BATCH], 1, 1, 1),
    Line("x.flatten(2)", lambda x: x.flatten(2), [IMAGE], 4, 4, 9),
    Line("x.flatten(2).transpose", lambda x: x.flatten(2).transpose(1, 2), [IMAGE], 5, 5, 10),
    Line("x.flatten(0, 1)", lambda x: x.flatten(0, 1), [TOKENS], 1, 1, 1),
    Line("x.reshape(-1)", lambda x: x.reshape(-1), [TOKENS], 1, 1, 1),
    Line("x.view(-1, x.size(-1))", lambda x: x.view(-1, x.size(-1)), [TOKENS], 1, 6, 1),
    Line("split heads", split_heads, [TOKENS], 2, 15, 5),
    Line("split heads by *shape", lambda x: x.view(*x.shape[:-1], 4, 2).transpose(1, 2), [TOKENS], 2, 9, 5),
    Line("split heads by -1", lambda x: x.view(x.shape[0], -1, 4, 2).transpose(1, 2), [TOKENS], 2, 6, 4),
    Line("merge heads", merge_heads, [HEADS], 2, 15, 5),
    Line("packed heads", packed_heads, [["b", "t", 24]], 7, 15, 13),
    Line("unflatten", lambda x: x.unflatten(-1, (4, 2)), [TOKENS], 1, 9, 4),
    Line("chunk", lambda x: x.chunk(2, dim=-1), [TOKENS], 1, 8, 1),
    Line("expand", lambda x: x.expand(-1, 4, -1), [["b", 1, 8]], 1, 5, 1),
    Line("class token", lambda x, c: torch.cat([c.expand(x.shape[0], -1, -1), x], 1), [TOKENS, [1, 1, 8]], 4, 12, 4),
    Line("table of positions", Positions(), [TOKENS], 3, 5, 3),
    Line("embedded positions", Embedded(), [["b", "t"]], 7, 8, 7, whole=(0,)),
    Line("causal mask in a buffer", Causal(), [["b", 4, "t", "t"]], 5, 10, 5),
    Line("causal mask, triu", above_diagonal, [TOKENS], 7, 10, 7),
    Line("causal mask, tril", below_diagonal, [TOKENS], 8, 12, 8),
    Line(
        "mask by lengths",
        lambda x, n: torch.arange(x.size(1))[None, :] < n[:, None],
        [TOKENS, ["b"]],
        6,
        7,
        6,
        whole=(1,),
    ),
    Line("mask of padding", lambda m: (1.0 - m[:, None, None, :]) * -1e4, [["b", "t"]], 3, 4, 3),
    Line("x[:, 0]", lambda x: x[:, 0], [["b", 5, 8]], 1, 1, 1),
    Line("x[:, -1]", lambda x: x[:, -1], [TOKENS], 1, 1, 1, empty={"t": "there is no last one"}),
    Line("x[:, :-1]", lambda x: x[:, :-1], [TOKENS], 1, 1, 1),
    Line("x[:, : t // 2]", lambda x: x[:, : x.size(1) // 2], [TOKENS], 3, 7, 5),
    Line("rotate half", rotate_half, [TOKENS], 4, 11, 4),
    Line("even and odd", lambda x: torch.stack([x[..., ::2], x[..., 1::2]], -1).flatten(-2), [TOKENS], 6, 9, 9),
    Line("interpolate by scale", lambda x: functional.interpolate(x, scale_factor=2.0), [IMAGE], 1, 1, 1, POOLED),
    Line(
        "interpolate to a size",
        lambda x, y: functional.interpolate(x, size=y.shape[2:], mode="bilinear", align_corners=False),
        [IMAGE, ["b", 3, "h2", "w2"]],
        2,
        12,
        6,
        {**POOLED, "h2": "as torch", "w2": "as torch"},
    ),
    Line("mean over space", lambda x: x.mean((2, 3)), [IMAGE], 1, 1, 1, NOTHING),
    Line("mean over a view", lambda x: x.view(x.size(0), x.size(1), -1).mean(-1), [IMAGE], 2, 9, 4, NOTHING),
    Line("pool and flatten", lambda x: functional.adaptive_avg_pool2d(x, 1).flatten(1), [IMAGE], 2, 2, 2, POOLED),
    Line("repeat", lambda x: x.repeat(1, 2, 1), [TOKENS], 1, 3, 2),
    Line("repeat for the batch", lambda x, p: p[None].repeat(x.size(0), 1, 1) + x, [["b", 5, 8], [5, 8]], 5, 12, 6),
    Line("repeat heads", repeat_heads, [HEADS], 6, 28, 7),
    Line("repeat_interleave", lambda x: x.repeat_interleave(2, 1), [TOKENS], 5, 7, 5),
    Line("stack", lambda x: torch.stack([x, x + 1], 1), [TOKENS], 4, 4, 4),
    Line("pad", lambda x: functional.pad(x, (1, 1)), [IMAGE], 1, 8, 1),
    Line(
        "pad to even sizes",
        lambda x: functional.pad(x, (0, x.shape[-1] % 2, 0, x.shape[-2] % 2)),
        [IMAGE],
        6,
        24,
        10,
    ),
    Line("unfold", lambda x: functional.unfold(x, 2, stride=2), [BATCH], 4, 27, 16),
    Line("patches", patches, [BATCH], 3, 28, 3),
    Line("windows", windows, [["b", 8, 8, 3]], 3, 24, 3),
    Line("shuffle of channels", shuffle, [["b", 6, "h", "w"]], 7, 24, 8),
    Line("zeros of a state", lambda x: torch.zeros(2, x.size(0), 8) + x.mean(1), [["b", 5, 8]], 5, 7, 5),
    Line("new_zeros", lambda x: torch.cat([x.new_zeros(x.size(0), 1, x.size(2)), x], 1), [TOKENS], 4, 9, 4),
    Line("zeros_like", lambda x: torch.cat([torch.zeros_like(x[:, :1]), x], 1), [TOKENS], 4, 4, 4),
    Line("ones of two sizes", lambda x: torch.ones(x.shape[0], x.shape[1]), [TOKENS], 2, 8, 4),
    Line(
        "batch and time in one",
        lambda x: x.reshape(x.shape[0] * x.shape[1], 1, x.shape[2], x.shape[3]),
        [["b", "t", 8, 8]],
        1,
        14,
        1,
    ),
    Line("pool and squeeze", lambda x: functional.adaptive_avg_pool2d(x, 1)[..., 0, 0], [IMAGE], 3, 3, 3, POOLED),
    Line("a sum by its length", lambda x: x.sum(1) / x.size(1), [TOKENS], 5, 5, 5, {"t": "0 by 0 is NaN"}),
    Line("scaled by a root", lambda x: x @ x.transpose(1, 2) / math.sqrt(x.size(-1)), [TOKENS], 3, 3, 3),
]

EXAMPLE = {"b": 2, "t": 5, "h": 8, "w": 8, "h2": 16, "w2": 12}


class One(nn.Module):
    """A function of one argument as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


class Two(One):
    """A function of two arguments as a module."""

    def forward(self, x: Tensor, y: Tensor) -> Any:  # type: ignore[override]
        return self.function(x, y)


def module_of(line: Line) -> nn.Module:
    return line.run if isinstance(line.run, nn.Module) else (One, Two)[len(line.shapes) - 1](line.run)


def arguments(line: Line, sizes: dict[str, int]) -> tuple[Tensor, ...]:
    made = torch.Generator().manual_seed(0)
    shapes = [[sizes.get(size, size) for size in shape] for shape in line.shapes]
    return tuple(
        torch.randint(0, 5, shape, generator=made) if place in line.whole else torch.randn(shape, generator=made)
        for place, shape in enumerate(shapes)
    )


def axes(line: Line) -> dict[str, dict[int, str]]:
    named = {
        f"x{place}": {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
        for place, shape in enumerate(line.shapes)
    }
    return {name: labels for name, labels in named.items() if labels}


def names(line: Line) -> list[str]:
    return [f"x{place}" for place in range(len(line.shapes))]


def quiet() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


def exported(line: Line, opset: int = OPSET) -> purexport.ONNXProgram:
    return purexport.export(
        module_of(line),
        arguments(line, EXAMPLE),
        input_names=names(line),
        dynamic_axes=axes(line),
        opset_version=opset,
        capture="trace",
    )


def count(graph: Any) -> int:
    """The nodes of a graph and of its bodies, of ours or of onnx."""
    bodies = [item.g for node in graph.node for item in node.attribute if item.type == 5]
    return sum(node.op_type != "Constant" for node in graph.node) + sum(map(count, bodies))


def further_sizes(line: Line) -> Iterator[dict[str, int]]:
    """Sizes at which a line is tried: each axis alone at 1, 0 and more, and all at once."""
    labels = list(dict.fromkeys(size for shape in line.shapes for size in shape if isinstance(size, str)))
    for label in labels:
        for size in (0, 1, EXAMPLE[label] + 4):
            if size or label not in (line.empty or {}):
                yield {**EXAMPLE, label: size}
    yield {label: size * 2 for label, size in EXAMPLE.items()}
    yield dict.fromkeys(EXAMPLE, 1)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_line(line: Line) -> None:
    proto = exported(line).model_proto
    assert count(proto.graph) == line.ours
    assert line.ours <= min(line.script, line.dynamo)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), quiet(), providers=["CPUExecutionProvider"])
    fed = {item.name for item in session.get_inputs()}
    for sizes in further_sizes(line):
        inputs = arguments(line, sizes)
        try:
            expected = line.run(*inputs)
        except (RuntimeError, IndexError, ValueError):
            assert min(sizes.values()) < 2, "torch takes the line at sizes of 2 and more"
            continue
        feed = {name: tensor.numpy() for name, tensor in zip(names(line), inputs, strict=True) if name in fed}
        wanted = [expected] if isinstance(expected, Tensor) else list(expected)
        for mine, theirs in zip(session.run(None, feed), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs.detach().numpy(), 1e-4, 1e-5, err_msg=str(sizes), strict=True)


# lines whose files before opset 14 compute the shape of a Reshape, where a 0 would be the size of the input
OLDER = [
    line for line in LINES if line.name in ("repeat heads", "shuffle of channels", "repeat_interleave", "split heads")
]


@pytest.mark.parametrize("line", OLDER, ids=lambda line: line.name)
def test_older_opsets_never_give_another_shape(line: Line) -> None:
    """Where sizes are 0, the file has torch's shape, or stops; with one 0 it has the shape."""
    session = onnxruntime.InferenceSession(exported(line, 13).model_proto.SerializeToString(), quiet())
    labels = list(dict.fromkeys(size for shape in line.shapes for size in shape if isinstance(size, str)))
    for count_ in range(1, len(labels) + 1):
        for empty in itertools.combinations(labels, count_):
            inputs = arguments(line, {**EXAMPLE, **dict.fromkeys(empty, 0)})
            try:
                (found,) = session.run(None, dict(zip(names(line), [item.numpy() for item in inputs], strict=True)))
            except Exception as error:  # of ONNX Runtime
                assert count_ > 1 and "reshape" in str(error).lower(), empty
            else:
                assert found.shape == tuple(line.run(*inputs).shape), empty


def test_totals() -> None:
    assert totals() == {"ours": 174, "dynamo=False": 473, "dynamo=True": 246}


def totals() -> dict[str, int]:
    return {
        "ours": sum(line.ours for line in LINES),
        "dynamo=False": sum(line.script for line in LINES),
        "dynamo=True": sum(line.dynamo for line in LINES),
    }


def by_script(line: Line) -> int:
    file = io.BytesIO()
    inputs = arguments(line, EXAMPLE)
    torch.onnx.export(
        module_of(line).eval(),
        inputs,
        file,
        input_names=names(line),
        dynamic_axes=axes(line),
        dynamo=False,
        opset_version=OPSET,
    )
    return count(onnx.load_from_string(file.getvalue()).graph)


def by_dynamo(line: Line) -> int:
    labels = {size for shape in line.shapes for size in shape if isinstance(size, str)}
    dims = {label: torch.export.Dim(label) for label in labels}
    shapes = tuple(
        {axis: dims[size] for axis, size in enumerate(shape) if isinstance(size, str)} for shape in line.shapes
    )
    with redirect_stdout(io.StringIO()):
        made = torch.onnx.export(
            module_of(line).eval(),
            arguments(line, EXAMPLE),
            dynamic_shapes=shapes,
            dynamo=True,
            opset_version=OPSET,
            verbose=False,
        )
    return count(made.model_proto.graph)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_the_peers(line: Line) -> None:
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs it: pip install -e '.[bench]'")
    assert (by_script(line), by_dynamo(line)) == (line.script, line.dynamo)


def main() -> None:
    """Prints the table."""
    print(f"{'line':<32}{'ours':>6}{'dynamo=False':>14}{'dynamo=True':>13}  ours")
    for line in LINES:
        found = Counter(node.op_type for node in exported(line).model_proto.graph.node)
        nodes = ", ".join(f"{kind} {number}" if number > 1 else str(kind) for kind, number in found.items())
        print(f"{line.name:<32}{line.ours:>6}{line.script:>14}{line.dynamo:>13}  {nodes}")
    print(f"{'all':<32}{totals()['ours']:>6}{totals()['dynamo=False']:>14}{totals()['dynamo=True']:>13}")


if __name__ == "__main__":
    main()
