"""Decoders by what they keep: buffers of one length, rows without padding in front, or nothing.

(input_ids, attention_mask, position_ids, past_length, past_key_values.0.key, ...) -> (logits, present.0.key, ...)

A buffer has a slot for each token that the text may get.  The new tokens are written into the slots from `past_length`
on, of all rows alike.  The mask is about slots, and as long as the buffers: it hides padding.  What lies behind the new
tokens is hidden by their order.  transformers' own cache of this kind writes in place; here each write is one call
(`written`), which the file has as TensorScatter.
Invariant: layers with a window have whole buffers too, and the mask says what they see.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

import proto_schema as ps
from purexport.aten import own_operators as own
from purexport.errors import ExportError
from purexport.language.last import logits_of_last
from purexport.language.library import cache_argument, library
from purexport.language.step import BATCH, PAST, SEQ, Decoder, decoder_of
from purexport.program import ONNXProgram

CACHES = ("dynamic", "static", None)
COUNTING = "onnxruntime-genai"  # the target whose attention counts the tokens of a row
PLACE = "past_length"
_OPEN = ("batch_size", "sequence_length")
_CHECKED, _BOUND = 3, 1e-2  # tokens of the two calls that are compared, and how far logits may be apart

Tensor = torch.Tensor


class StaticStep(torch.nn.Module):
    """A decoder of transformers that writes into buffers, called with and returning tensors only."""

    def __init__(self, model: torch.nn.Module, takes_positions: bool, last_logits: bool) -> None:
        super().__init__()
        self.model = model
        self._takes_positions = takes_positions
        self.last_logits = last_logits

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """The logits, and the buffers with these tokens in them."""
        asked: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask, "use_cache": True}
        if self._takes_positions:
            asked["position_ids"], rest = rest[0], rest[1:]
        place, *past = rest
        layers = [_layer(key, value, place) for key, value in zip(past[::2], past[1::2], strict=True)]
        asked[cache_argument(self.model.forward)] = library("cache_utils").Cache(layers=layers)
        if self.last_logits:
            slots = place + torch.arange(input_ids.shape[1], device=place.device)
            result = logits_of_last(self.model, attention_mask.index_select(1, slots), **asked)
        else:
            result = self.model(**asked)
        return (result.logits, *(tensor for layer in layers for tensor in (layer.keys, layer.values)))


def _layer(key: Tensor, value: Tensor, place: Tensor) -> Any:
    """transformers' layer of a static cache, with buffers that are inputs, and so many tokens in them."""
    layer = library("cache_utils").StaticLayer(max_cache_len=key.shape[-2])
    layer.keys, layer.values = key, value
    layer.dtype, layer.device, layer.is_initialized = key.dtype, key.device, True
    layer.cumulative_length = place.reshape(())
    layer.update = functools.partial(_update, layer, place)
    return layer


def _update(layer: Any, place: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    write = own.operator("written")
    layer.keys, layer.values = write(layer.keys, key, place), write(layer.values, value, place)
    layer.cumulative_length = layer.cumulative_length + key.shape[-2]
    return layer.keys, layer.values


@dataclass(frozen=True, eq=False)
class StaticDecoder(Decoder):
    """A step with buffers of `length` slots."""

    length: int = 0

    @property
    def room(self) -> int:  # type: ignore[override]
        """How long a text may get."""
        return self.length

    @property
    def input_names(self) -> list[str]:
        """The inputs in order."""
        names = super().input_names
        at = len(names) - 2 * self.layers
        return [*names[:at], PLACE, *names[at:]]

    @property
    def axes(self) -> dict[str, dict[int, str]]:
        """The dynamic axes: rows, and new tokens."""
        found = super().axes
        return {name: {at: word for at, word in axes.items() if word in _OPEN} for name, axes in found.items()}

    def example(self) -> tuple[Tensor, ...]:
        """Random inputs to capture the step with."""
        seq = min(SEQ, max(self.length // 2, 1))
        return self.args(BATCH, seq, min(PAST, self.length - seq))

    def args(self, batch: int, seq: int, past: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Random tokens behind a random past, nothing hidden."""
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, self.vocabulary, (batch, seq), generator=generator)
        given = self.fed(
            ids, torch.ones(batch, past + seq, dtype=torch.int64), self.past(batch, self.length, generator)
        )
        return tuple(given[name] for name in self.input_names)

    def fed(self, ids: Tensor, mask: Tensor, state: Sequence[Tensor]) -> dict[str, Tensor]:
        """The inputs for new tokens, of a mask over the whole text, and the buffers."""
        given = super().fed(ids, mask, state)
        given["attention_mask"] = torch.nn.functional.pad(mask, (0, self.length - mask.shape[1]))
        return given | {PLACE: torch.tensor([mask.shape[1] - ids.shape[1]])}

    def empty(self, batch: int) -> list[Tensor]:
        """The buffers before the first token; what is in them is not seen."""
        return self.past(batch, self.length)


def static_decoder(decoder: Decoder, last_logits: bool, length: int) -> StaticDecoder:
    """The same model with buffers of `length` slots.

    Raises ExportError where the model computes something else with such buffers, as far as it has values to tell.
    """
    model, takes = decoder.model, decoder.takes_positions
    step = StaticStep(model, takes, last_logits).eval()
    found = StaticDecoder(step, decoder.shapes, takes, decoder.dtype, decoder.vocabulary, decoder.whole, length)
    if not any(parameter.is_meta for parameter in model.parameters()):
        _refuse_others(found, StaticStep(model, takes, False).eval())
    return found


def _refuse_others(decoder: StaticDecoder, step: StaticStep) -> None:
    """Raise ExportError where a padded prompt, or a token behind it, has other logits than without buffers."""
    kind, tokens = type(step.model).__name__, min(_CHECKED, decoder.length)
    ids = torch.arange(BATCH * tokens).reshape(BATCH, tokens) % decoder.vocabulary
    mask = torch.ones_like(ids)
    mask[0, : tokens - 2] = 0
    buffers, found = decoder.empty(BATCH), list[Tensor]()
    with torch.no_grad():
        wanted = decoder.whole(*decoder.whole_args(ids, mask))[0]
        for new in (ids[:, : tokens - 1], ids[:, tokens - 1 :]):
            if not new.shape[1]:
                continue
            seen = sum(item.shape[1] for item in found) + new.shape[1]
            given = decoder.fed(new, mask[:, :seen], buffers)
            try:
                logits, *buffers = step(*(given[name] for name in decoder.input_names))
            except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
                raise ExportError(
                    f"{kind} does not run with a static cache ({error}); use cache='dynamic'", code="static-cache"
                ) from error
            found.append(logits)
    shown = mask.bool()
    difference = (torch.cat(found, 1) - wanted)[shown].float().abs().max()
    if not difference <= _BOUND * wanted[shown].float().abs().max():
        raise ExportError(
            f"{kind} computes other logits with a static cache than with a dynamic one; use cache='dynamic'",
            code="static-cache",
        )


class PlainStep(torch.nn.Module):
    """A decoder without a cache: tokens to logits."""

    def __init__(self, model: torch.nn.Module, takes_positions: bool, last_logits: bool) -> None:
        super().__init__()
        self.model = model
        self._takes_positions = takes_positions
        self.last_logits = last_logits

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *positions: Tensor) -> tuple[Tensor, ...]:
        """The logits of these tokens."""
        asked: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask, "use_cache": False}
        if self._takes_positions:
            (asked["position_ids"],) = positions
        if self.last_logits:
            return (logits_of_last(self.model, attention_mask, **asked).logits,)
        return (self.model(**asked).logits,)


@dataclass(frozen=True, eq=False)
class PlainDecoder(Decoder):
    """A decoder without a cache."""

    keeps: ClassVar[bool] = False

    @property
    def axes(self) -> dict[str, dict[int, str]]:
        """The dynamic axes: rows and tokens, the same of all inputs."""
        return {name: {0: "batch_size", 1: "sequence_length"} for name in self.input_names}

    def _cache_names(self, prefix: str) -> list[str]:
        return []

    def empty(self, batch: int) -> list[Tensor]:
        """Nothing."""
        return []

    def example(self) -> tuple[Tensor, ...]:
        """Random inputs to capture the step with."""
        ids, *given = self.args(BATCH, SEQ, 0)
        return (ids, *given[: len(self.input_names) - 1])


def plain_decoder(decoder: Decoder, last_logits: bool) -> PlainDecoder:
    """The same model without a cache."""
    model, takes = decoder.model, decoder.takes_positions
    step = PlainStep(model, takes, last_logits).eval()
    return PlainDecoder(step, decoder.shapes, takes, decoder.dtype, decoder.vocabulary, decoder.whole)


@dataclass(frozen=True, eq=False)
class CountedDecoder(Decoder):
    """A decoder whose rows have their padding behind the tokens: the mask says how many tokens a row has.

    The next token of a row is written over its padding.  With a `length` the past is a buffer of so many slots.
    """

    sides: ClassVar[Sequence[str]] = ("right",)
    length: int | None = None

    @property
    def room(self) -> int | None:  # type: ignore[override]
        """How long a text may get."""
        return self.length

    def fed(self, ids: Tensor, mask: Tensor, state: Sequence[Tensor]) -> dict[str, Tensor]:
        """The inputs for new tokens, of a mask over the whole text, and what the file gave at the step before."""
        counted = torch.arange(mask.shape[1]) < mask.sum(1)[:, None]
        return super().fed(ids, mask, state) | {"attention_mask": counted.to(mask.dtype)}

    def empty(self, batch: int) -> list[Tensor]:
        """The cache before the first token."""
        return [torch.zeros_like(item) for item in self.past(batch, self.length or 0)]


def counted_decoder(decoder: Decoder, length: int | None) -> CountedDecoder:
    """The same model, for a runtime that counts the tokens of a row."""
    step, takes = decoder.step, decoder.takes_positions
    return CountedDecoder(step, decoder.shapes, takes, decoder.dtype, decoder.vocabulary, decoder.whole, length)


def decoder_with(model: Any, target: str, cache: str | None, length: int | None, last_logits: bool) -> Decoder:
    """The decoder for a cache and a target.  Raises ExportError as `decoder_of` and `static_decoder` do."""
    decoder = decoder_of(model, last_logits)
    if cache is None:
        return plain_decoder(decoder, last_logits)
    if cache == "static" and target == "onnx":
        return static_decoder(decoder, last_logits, length or 0)
    if cache == "static" or target == COUNTING:
        return counted_decoder(decoder, length if cache == "static" else None)
    return decoder


def rows_for(decoder: Decoder, target: str) -> str:
    """The target whose rows rewrite a decoder: buffers are those of the runtime that counts tokens."""
    return COUNTING if isinstance(decoder, CountedDecoder) else target


def share_buffers(program: ONNXProgram, decoder: CountedDecoder, reasons: Sequence[str]) -> None:
    """Say in the file that the past and the present of a layer are buffers of one length.

    Raises ExportError where more than GroupQueryAttention looks at the past: it would take the buffer to be full.
    """
    if not takes_one_buffer(program, decoder):
        kind, why = type(decoder.model).__name__, f" ({reasons[0]})" if reasons else ""
        raise ExportError(
            "a static cache of ONNX Runtime is for models in which only GroupQueryAttention looks at the past; in "
            f"{kind} more does{why}; use target='onnx' or cache='dynamic'",
            code="static-cache",
        )
    graph = program.model_proto.graph
    names = {*decoder.input_names, *decoder.output_names} - {"logits"}
    for item in (*graph.input, *graph.output) if graph is not None else ():
        if (item.name or "").startswith(("past_key_values.", "present.")) and item.name in names:
            item.type.tensor_type.shape.dim[2] = ps.TensorShapeProto.Dimension(dim_value=decoder.length)


def takes_one_buffer(program: ONNXProgram, decoder: Decoder) -> bool:
    """Whether the past may be a buffer that is longer than what is in it: only GroupQueryAttention looks at it."""
    graph = program.model_proto.graph
    past = {name for name in decoder.input_names if name.startswith("past_key_values.")}
    nodes = graph.node if graph is not None else ()
    return all(node.op_type == "GroupQueryAttention" or past.isdisjoint(node.input) for node in nodes)
