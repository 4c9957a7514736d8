"""Encoder-decoders as two graphs: what is computed once for an input, and one step of the decoder.

encoder.onnx: (input_ids, attention_mask) -> (last_hidden_state, present.N.encoder.key, present.N.encoder.value, ...)
decoder.onnx: (input_ids, encoder_attention_mask, past_key_values.N.decoder.key, .decoder.value, .encoder.key,
.encoder.value, ...) -> (logits, present.N.decoder.key, present.N.decoder.value, ...)

The keys and values of cross attention depend on the input alone, so that the encoder's graph computes them, and the
decoder's weights for them are in no other file. Both are found by one call of the model: what its cache holds then.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from purexport.errors import ExportError
from purexport.language.checked import STEPS, Written, bound_of, compared
from purexport.language.examples import ports_of
from purexport.language.library import cache_argument, cache_of, library
from purexport.language.parts import BATCH, GraphPart, Port, layers_of
from purexport.language.step import called
from purexport.language.tasks import generates

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
_STD = 0.1  # of weights that are made up
_PAST, _NEW, _ENCODED = "past_sequence_length", "sequence_length", "encoder_sequence_length"


def is_encoder_decoder(model: Any) -> bool:
    """Whether the model of transformers reads its input once, and then writes."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


class Encode(nn.Module):
    """The encoder, and the keys and values that the decoder computes from its result."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self._names = list(names)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The last hidden state, and the keys and values of each layer's cross attention."""
        encoded, result = _started(self.model, dict(zip(self._names, tensors, strict=True)))
        return (encoded.last_hidden_state, *_held(cache_of(result).cross_attention_cache))


def _started(model: Any, given: Mapping[str, Tensor], count: int = 1) -> tuple[Any, Any]:
    """The result of the encoder, as `generate` calls it, and that of the decoder for `count` tokens."""
    encoder = model.get_encoder()
    taken = inspect.signature(encoder.forward).parameters
    every = any(item.kind is item.VAR_KEYWORD for item in taken.values())
    encoded = encoder(**{name: item for name, item in given.items() if every or name in taken}, return_dict=True)
    batch = encoded.last_hidden_state.shape[0]
    start = torch.zeros((batch, count), dtype=torch.int64, device=encoded.last_hidden_state.device)
    return encoded, _stepped(model, encoded, start, _empty(), given.get("attention_mask"))


def _stepped(model: Any, encoded: Any, ids: Tensor, cache: Any, mask: Tensor | None) -> Any:
    masks = {} if mask is None else {"attention_mask": mask}
    given = {**masks, cache_argument(model.forward): cache}
    return model(encoder_outputs=encoded, decoder_input_ids=ids, use_cache=True, **given)


def cross_attention_of(model: Any, kind: Any, hidden: Tensor) -> list[Tensor]:
    """The keys and values of each layer's cross attention for a result of the encoder, whose class is `kind`."""
    start = torch.zeros((hidden.shape[0], 1), dtype=torch.int64, device=hidden.device)
    result = _stepped(model, kind(last_hidden_state=hidden), start, _empty(), None)
    return _held(cache_of(result).cross_attention_cache)


class EncoderDecoderStep(nn.Module):
    """One step of the decoder."""

    def __init__(self, model: nn.Module, encoded: Any, masked: bool, width: int, last_logits: bool) -> None:
        super().__init__()
        self.model = model
        self.encoded = encoded  # the class of the encoder's result
        self.masked = masked
        self.width = width
        self._last = last_logits

    def forward(self, input_ids: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """The logits, and the cache of self-attention after these tokens."""
        past = rest[1:] if self.masked else rest
        cache = _empty()
        for layer in range(len(past) // 4):
            key, value, cross_key, cross_value = past[4 * layer : 4 * layer + 4]
            cache.self_attention_cache.update(key, value, layer)
            cache.cross_attention_cache.update(cross_key, cross_value, layer)
            cache.is_updated[layer] = True
        # of the encoder's result only its sizes count
        hidden = past[2].new_zeros((past[2].shape[0], past[2].shape[2], self.width))
        encoded = self.encoded(last_hidden_state=hidden)
        result = _stepped(self.model, encoded, input_ids, cache, rest[0] if self.masked else None)
        logits = result.logits[:, -1:] if self._last else result.logits
        return (logits, *_held(cache.self_attention_cache))


def _empty() -> Any:
    caches = library("cache_utils")
    return caches.EncoderDecoderCache(caches.DynamicCache(), caches.DynamicCache())


def _held(cache: Any) -> list[Tensor]:
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def parts_of(model: Any, last_logits: bool = False, inputs: Mapping[str, Tensor] | None = None) -> list[GraphPart]:
    """The graphs of a model; `inputs` is what a processor made, without the decoder's.

    Raises ExportError for a model that does not keep keys and values of self- and cross-attention for each layer, or
    whose inputs cannot be found.
    """
    if not generates(type(model)):
        raise ExportError(
            f"{type(model).__name__} generates no text; `purexport hf` (purexport.pretrained_model) writes models of "
            "transformers of other kinds",
            code="not-a-decoder",
        )
    results: list[tuple[Any, Any]] = []
    errors: list[Exception] = []
    count = 3

    def trial(**tensors: Tensor) -> tuple[Any, Any]:
        encoded, result = _started(model, tensors, count)
        again = torch.zeros_like(result.logits[..., 0], dtype=torch.int64)
        return encoded, _stepped(model, encoded, again, cache_of(result), tensors.get("attention_mask"))

    def runs(tensors: Mapping[str, Tensor]) -> bool:
        try:
            with torch.no_grad():
                results.append(called(model, dict(tensors), trial))
        except Exception as error:  # whatever a model says of sizes that are not its own
            errors.append(error)
            return False
        return True

    try:
        ports, sizes = ports_of(model, runs, inputs)
    except ExportError as error:
        count = 1  # some decoders with a cache take single tokens
        try:
            ports, sizes = ports_of(model, runs, inputs)
        except ExportError:
            raise error from (errors[0] if errors else None)
    tensors = {port.name: port.example(sizes, torch.Generator().manual_seed(0)) for port in ports}
    runs(tensors)
    encoded, result = results[-1]
    if result.logits.dim() != 3 or result.logits.shape[1] != count:
        raise ExportError(
            f"{type(model).__name__} gives logits {list(result.logits.shape)} for {count} tokens of a row",
            code="not-a-decoder",
        )
    own, cross = (_shapes(model, result, name, sizes) for name in ("self_attention_cache", "cross_attention_cache"))
    hidden = encoded.last_hidden_state
    length = _label(ports, sizes, hidden.shape[1])
    sizes |= {length: hidden.shape[1]} if isinstance(length, str) else {}
    encoder = GraphPart(
        ENCODER,
        Encode(model, [port.name for port in ports]).eval(),
        ports,
        ["last_hidden_state", *layers_of("present", len(cross), "encoder.")],
        sizes,
    )
    masks = [Port("encoder_attention_mask", port.shape, port.dtype) for port in ports if port.name == "attention_mask"]
    new = _NEW if count > 1 else 1
    decoder_inputs = [Port("input_ids", (BATCH, new), torch.int64, result.logits.shape[-1]), *masks]
    for layer, (mine, theirs) in enumerate(zip(own, cross, strict=True)):
        for kind, at, (heads, size, value_size) in (("decoder", _PAST, mine), ("encoder", length, theirs)):
            for part, width in (("key", size), ("value", value_size)):
                name = f"past_key_values.{layer}.{kind}.{part}"
                decoder_inputs.append(Port(name, (BATCH, heads, at, width), hidden.dtype))
    decoder = GraphPart(
        DECODER,
        EncoderDecoderStep(model, type(encoded), bool(masks), hidden.shape[-1], last_logits).eval(),
        decoder_inputs,
        ["logits", *layers_of("present", len(own), "decoder.")],
        sizes,
    )
    return [encoder, decoder if count == 1 or _hides_later(decoder) else _single(decoder)]


def _single(decoder: GraphPart) -> GraphPart:
    ids, *rest = decoder.inputs
    return replace(decoder, inputs=[replace(ids, shape=(BATCH, 1)), *rest])


def _hides_later(decoder: GraphPart) -> bool:
    """Whether a token's logits stay as they are where those behind it are others.

    Some models leave their causal mask away as soon as they are given a cache, because `generate` then gives them one
    token at a time.  What hides later tokens does so with any weights, so that those of a checkpoint are not read.
    """
    generator = torch.Generator().manual_seed(0)
    values = {
        name: _small(parameter, generator) for name, parameter in decoder.module.named_parameters() if parameter.is_meta
    }
    ids, *rest = decoder.args()
    other = ids.clone()
    other[:, -1] = (ids[:, -1] + 1) % decoder.inputs[0].below
    with torch.no_grad():
        one, two = (
            torch.func.functional_call(decoder.module, values, (given, *rest), tie_weights=True)[0]
            for given in (ids, other)
        )
    return one.shape[1] == 1 or bool(torch.allclose(one[:, :-1], two[:, :-1], rtol=1e-3, atol=1e-5, equal_nan=True))


def _small(parameter: Tensor, generator: torch.Generator) -> Tensor:
    """Random values for a parameter without any; rows overlap in memory, so that a large one takes little of it."""
    shape = parameter.shape
    pool = torch.randn(sum(shape) + 1, generator=generator).mul_(_STD).to(parameter.dtype)
    return pool.as_strided(shape, [1] * len(shape))


def _label(ports: Sequence[Port], sizes: Mapping[str, int], length: int) -> int | str:
    """The length of the encoder's result: that of an input where it is the same, a number where no input varies."""
    names = {size for port in ports for size in port.shape if isinstance(size, str) and size != BATCH}
    return next((name for name in sorted(names) if sizes[name] == length), _ENCODED if names else length)


def _shapes(model: Any, result: Any, name: str, sizes: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """(heads, size of keys, size of values) of each layer of a cache."""
    cache = getattr(cache_of(result), name, None)
    found: list[tuple[int, int, int]] = []
    for layer in cache.layers if cache is not None else ():
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if keys is None or values is None or keys.dim() != 4 or keys.shape[0] != sizes[BATCH]:
            found = []
            break
        found.append((keys.shape[1], keys.shape[3], values.shape[3]))
    if not found:
        raise ExportError(
            f"{type(model).__name__} keeps no keys and values, [batch, heads, length, size] each, of every layer's "
            f"{name.replace('_', ' ')}",
            code="not-a-decoder",
        )
    return found


def check(model: Any, parts: Sequence[GraphPart], runs: Mapping[str, Written], steps: int = STEPS) -> float:
    """The largest difference of a logit, relative to the largest one of its step, over a start and `steps` tokens.

    The batch and the lengths are not those of the export, and rows have padding behind them where the model takes a
    mask. torch gets all tokens anew at each step, without a cache.
    Raises VerificationError at the first step whose logits differ by more than rounding.
    """
    encoder, decoder = parts
    held = {name: size for one in runs.values() for name, size in one.held.items()}
    sizes = {name: size + 4 for name, size in encoder.sizes.items()} | {BATCH: 3, _PAST: 0} | held
    tensors = dict(zip(encoder.input_names, encoder.args(1, **sizes), strict=True))
    batch = sizes[BATCH]
    if "attention_mask" in tensors:
        hidden = max(tensors["attention_mask"].shape[1] // 8, 1)
        for row in range(1, batch):
            tensors["attention_mask"][row, -hidden * row :] = 0
    present = runs[encoder.file](tensors)
    past = dict(zip(decoder.input_names, decoder.args(1, **sizes), strict=True))
    past |= {_past_of(name): item for name, item in present.items() if _past_of(name) in past}
    if "attention_mask" in tensors:
        past["encoder_attention_mask"] = tensors["attention_mask"]
    start = 3 if decoder.inputs[0].shape[1] == _NEW else 1
    ids = torch.randint(0, decoder.inputs[0].below, (batch, start), generator=torch.Generator().manual_seed(2))
    new, worst = ids, 0.0
    for count in range(1 + steps):
        with torch.no_grad():
            wanted = model(**tensors, decoder_input_ids=ids, use_cache=False).logits[:, -new.shape[1] :]
        found = runs[decoder.file](past | {"input_ids": new})
        wanted = wanted[:, -found["logits"].shape[1] :]
        worst = max(worst, compared(wanted, found["logits"], count, bound_of(wanted.dtype, model.dtype)))
        past |= {_past_of(name): item for name, item in found.items() if name != "logits"}
        new = wanted[:, -1:].argmax(-1)
        ids = torch.cat([ids, new], 1)
    return worst


def _past_of(name: str) -> str:
    return name.replace("present", "past_key_values")
