"""A small decoder written out, in the ways in which models write its parts, and what its file must compute.

The parts are chosen by name: how the rotary embedding is written, how the norm, and how attention.  The cache is given
and returned as tensors, as a step of a language model does (`purexport/language/step.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from purexport.aten import own_operators as own
from purexport.fusion.proofs import Prover
from purexport.fusion.rewriting import Fused, Row, rewrite
from purexport.fusion.targets import rows_of
from purexport.language.exported import HOLES
from purexport.options import Options
from purexport.program import ONNXProgram
from purexport.stages.build import build_program
from purexport.stages.capture import capture_model
from purexport.stages.functionalize import make_pure
from purexport.stages.lower import lower_to_onnx
from purexport.stages.run import opened

HEADS, KV_HEADS, WIDTH, POSITIONS = 4, 2, 16, 40
NAMES = ["x", "attention_mask", "position_ids", "past_key", "past_value"]
OUTPUTS = ["y", "present_key", "present_value"]
AXES = {
    "x": {0: "batch", 1: "seq"},
    "attention_mask": {0: "batch", 1: "total"},
    "position_ids": {0: "batch", 1: "seq"},
    "past_key": {0: "batch", 2: "past"},
    "past_value": {0: "batch", 2: "past"},
}


def in_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * torch.cat((cos, cos), -1) + turned * torch.cat((sin, sin), -1)


def next_to_each_other(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cos.repeat_interleave(2, -1) + turned * sin.repeat_interleave(2, -1)


def part_by_part(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def first_part_only(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    width = 2 * cos.shape[-1]
    return torch.cat((in_halves(x[..., :width], cos, sin), x[..., width:]), -1)


def without_batch(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The angles have an axis less than what they turn."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * torch.cat((cos, cos), -1)[0] + turned * torch.cat((sin, sin), -1)[0]


def with_a_mistake(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Nearly a rotary embedding: the sign of the other half is turned."""
    half = x.shape[-1] // 2
    turned = torch.cat((x[..., half:], -x[..., :half]), -1)
    return x * torch.cat((cos, cos), -1) + turned * torch.cat((sin, sin), -1)


def unequal_angles(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The second half of the angles is another one."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * torch.cat((cos, 2 * cos), -1) + turned * torch.cat((sin, sin), -1)


def root_mean_square(x: Tensor, weight: Tensor) -> Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def powers(x: Tensor, weight: Tensor) -> Tensor:
    return (x * ((x * x).mean(-1, keepdim=True) + 1e-5) ** -0.5) * weight


def without_weight(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def mean_of_another(x: Tensor, weight: Tensor) -> Tensor:
    """Scaled by the mean square of something else."""
    return weight * (x * torch.rsqrt((x + 1).pow(2).mean(-1, keepdim=True) + 1e-5))


def norm_of_a_sum(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    return root_mean_square(x + y, weight) + (x + y)


def layer_norm_of_a_sum(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    total = x + y
    return nn.functional.layer_norm(total, weight.shape, weight, 2 * weight) * total


def norm_of_a_row_added(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The sum has the rows of one operand only."""
    return root_mean_square(x[:1] + y, weight)


class Gated(nn.Module):
    """A gated layer behind the attention."""

    def __init__(self, activation: Any, size: int = 24) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(HEADS * WIDTH, 24), nn.Linear(HEADS * WIDTH, size)
        self.down = nn.Linear(24, HEADS * WIDTH)
        self.activation = activation

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return self.down(self.up(y) * self.activation(self.gate(y)))  # type: ignore[no-any-return]


class Experts(nn.Module):
    """Experts behind the attention, of which a router chooses two; `signed` has weights that may be negative."""

    def __init__(self, interleaved: bool, transposed: bool, limit: float = 0.0, signed: bool = False) -> None:
        super().__init__()
        size, count, inner = HEADS * WIDTH, 4, 24
        self.router = nn.Linear(size, count)
        shapes = [(count, 2 * inner, size), (count, size, inner)]
        turned = [(first, last, middle) if transposed else (first, middle, last) for first, middle, last in shapes]
        self.up, self.down = (nn.Parameter(torch.randn(shape) / 4) for shape in turned)
        self.up_bias, self.down_bias = (nn.Parameter(torch.randn(count, shape[1])) for shape in shapes)
        self.transposed, self.signed = transposed, signed
        self.gate = (interleaved, 1.702, 1.0, limit)

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        flat = y.flatten(0, 1)
        weights, index = self.router(flat).topk(2, dim=-1)
        weights = weights if self.signed else weights.softmax(-1) * 2.5
        args = (self.up, self.down, self.up_bias, self.down_bias, self.transposed, *self.gate)
        return own.operator("experts")(flat, index, weights, *args).view_as(y)  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """A state behind the attention that decays, and learns by the delta rule or as it comes."""

    def __init__(self, delta: bool) -> None:
        super().__init__()
        self.delta = delta

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        heads = torch.nn.functional.normalize(y.unflatten(-1, (HEADS, WIDTH)), dim=-1)
        state = heads.new_zeros(y.shape[0], HEADS, WIDTH, WIDTH)
        decay, beta = -heads.abs().mean(-1), heads.mean(-1).sigmoid() if self.delta else None
        found, _ = own.operator("recurrence")(heads, heads, heads, state, decay, None, beta, 0.0)
        return found.flatten(-2)  # type: ignore[no-any-return]


def _repeated(item: Tensor) -> Tensor:
    return item.repeat_interleave(HEADS // KV_HEADS, 1)


def recorded(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return own.operator("attention")(query, key, value, mask, None, None, WIDTH**-0.5, 0.0, False)  # type: ignore[no-any-return]


def capped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return own.operator("attention")(query, key, value, mask, None, None, 0.3, 1.5, False)  # type: ignore[no-any-return]


def with_sinks(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    sinks = torch.linspace(-1, 1, HEADS)
    return own.operator("attention")(query, key, value, mask, None, sinks, 0.3, 0.0, False)  # type: ignore[no-any-return]


def biased(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """A bias for each head and key, whatever the query."""
    bias = torch.linspace(-1, 0, HEADS)[None, :, None, None] * torch.arange(key.shape[2])
    return own.operator("attention")(query, key, value, mask, bias, None, 0.3, 0.0, False)  # type: ignore[no-any-return]


def scaled_by_the_length(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """The factor is another one for each number of keys."""
    scores = query @ _repeated(key).transpose(-1, -2) * (key.shape[2] * 0.1) + added(mask)
    return scores.softmax(-1) @ _repeated(value)


def scaled_dot_product(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(query, _repeated(key), _repeated(value), mask)


def added(mask: Tensor) -> Tensor:
    return torch.where(mask, torch.tensor(0.0), torch.tensor(torch.finfo(torch.float32).min))


def products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    scores = query @ _repeated(key).transpose(-1, -2) * WIDTH**-0.5 + added(mask)
    return nn.functional.dropout(scores.softmax(-1), 0.1, False) @ _repeated(value)


def masked_fill(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    scores = query @ _repeated(key).transpose(-1, -2) / WIDTH**0.5
    return scores.masked_fill(~mask, -1e9).softmax(-1) @ _repeated(value)


class Decoder(nn.Module):
    """One layer of attention behind a norm."""

    def __init__(
        self,
        norm: Any,
        rotary: Any,
        attention: Any,
        *,
        pairs: int = WIDTH // 2,
        window: int = 0,
        behind: Any = None,
        biases: bool = True,
    ) -> None:
        super().__init__()
        size = HEADS * WIDTH
        self.norm, self.rotary, self.attention, self.window = norm, rotary, attention, window
        self.behind = behind
        self.weight = nn.Parameter(torch.rand(size) + 0.5)
        self.q, self.k, self.v = (
            nn.Linear(size, size, biases),
            nn.Linear(size, KV_HEADS * WIDTH, biases),
            nn.Linear(size, KV_HEADS * WIDTH, biases),
        )
        self.o = nn.Linear(size, size)
        self.register_buffer("frequencies", 1 / 100 ** (torch.arange(pairs) / pairs))

    def forward(self, x: Tensor, mask: Tensor, at: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, ...]:
        batch, length, _ = x.shape
        given, x = x, self.norm(x, self.weight)
        angles = (at[:, :, None].float() * self.frequencies)[:, None]
        query = self.q(x).view(batch, length, HEADS, WIDTH).transpose(1, 2)
        key, value = (item.view(batch, length, KV_HEADS, WIDTH).transpose(1, 2) for item in (self.k(x), self.v(x)))
        query, key = (self.rotary(item, angles.cos(), angles.sin()) for item in (query, key))
        key, value = torch.cat((past_key, key), 2), torch.cat((past_value, value), 2)
        seen = self.attention(query, key, value, self._mask(mask.bool(), length, past_key.shape[2]))
        result = self.o(seen.transpose(1, 2).reshape(batch, length, -1))
        return result if self.behind is None else self.behind(given, result, self.weight), key, value

    def _mask(self, padding: Tensor, length: int, past: int) -> Tensor:
        rows, columns = torch.arange(length)[:, None] + past, torch.arange(past + length)
        near = (columns <= rows) & (columns > rows - self.window) if self.window else columns <= rows
        whole = (near[None, None] & padding[:, None, None, :]).expand(padding.shape[0], 1, length, past + length)
        pattern = (own.WINDOW, self.window) if self.window else (own.CAUSAL, 0)
        return own.operator("visible")(whole, padding, *pattern)  # type: ignore[no-any-return]


def arguments(batch: int, length: int, past: int, holes: Sequence[tuple[int, int]] = ()) -> tuple[Tensor, ...]:
    """Inputs of these sizes; `holes` are keys that the mask hides."""
    generator = torch.Generator().manual_seed(batch + length + past)
    mask = torch.ones(batch, past + length, dtype=torch.int64)
    for row, key in holes:
        mask[row, key] = 0
    at = (mask.cumsum(1) - 1).clamp(min=0)[:, past:].contiguous()
    cache = [torch.randn(batch, KV_HEADS, past, WIDTH, generator=generator) for _ in range(2)]
    return (torch.randn(batch, length, HEADS * WIDTH, generator=generator), mask, at, *cache)


def fused_program(
    model: nn.Module, target: str, opset: int, changed: Callable[[Row], Row] = lambda row: row
) -> tuple[ONNXProgram, Fused]:
    """The file of a decoder by the rows of a target, which may be changed, and what they did; they are proven."""
    axes: Mapping[str, Any] = AXES
    options = Options(opset_version=opset, input_names=NAMES, output_names=OUTPUTS, dynamic_axes=axes, capture="trace")
    holes = [(1, 0)] if target in HOLES else []
    prover = Prover(dict(zip(NAMES, arguments(2, 5, 7, holes), strict=True)))
    with opened(model, arguments(2, 5, 7), None, options) as run:
        pure = make_pure(run, capture_model(run))
        graph, fused = rewrite(pure.graph, [changed(row) for row in rows_of(target, POSITIONS)], prover)
        return build_program(run, lower_to_onnx(run, replace(pure, graph=graph))), fused
