"""Models that read pictures and text, as three graphs.

vision.onnx: (pixel_values, ...) -> (image_features), one row for each place that pictures take in the text
embedding.onnx: (input_ids, image_features) -> (inputs_embeds), with the features at the places of the picture's token
decoder.onnx: (inputs_embeds, attention_mask, position_ids, ..., past_key_values.N.key, past_key_values.N.value, ...) ->
(logits, present.N.key, present.N.value, ...)

Some towers give features of several layers, which the decoder adds behind its own layers (`deepstack_visual_embeds`).
vision.onnx gives them under the decoder's name for them, and embedding.onnx places them among zeros, so that the
decoder is given a row for each token. A decoder whose layers keep other state than keys and values is that of `state`.

The structure is that of transformers: `get_image_features`, `get_input_embeddings`, `get_decoder`, `image_token_id`.
A graph of vision takes one picture of one size: how a model cuts pictures into patches is written for numbers that it
reads from the sizes (`image_grid_thw`), so these are no inputs.
What the decoder is called with beside embeddings, mask, positions and cache is looked at in a call of the whole model:
where that is more than the graphs can hand on, the model is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from purexport.errors import ExportError
from purexport.language.checked import STEPS, Written, bound_of, compared
from purexport.language.library import cache_argument, library
from purexport.language.parts import BATCH, SIZES, GraphPart, Port, layers_of
from purexport.language.senses import PICTURES, Sense, sense_of
from purexport.language.state import CacheSlot, empty_cache, fill_cache, slots_of, takes_any_length
from purexport.language.step import called, growing_cache

EMBEDDING, DECODER = "embedding.onnx", "decoder.onnx"
PLACED = "placed_"  # before the name of features of other layers, with a row for each token
_PAST, _NEW, _WHOLE = "past_sequence_length", "sequence_length", "total_sequence_length"
# one for each token: whether it stands for a picture
_TOKEN_KINDS = ("token_type_ids", "mm_token_type_ids")
_PREFIX = _TOKEN_KINDS[0]
_OF_TOKENS = ("input_ids", *_TOKEN_KINDS)
_HANDED_ON = {"inputs_embeds", "attention_mask", "position_ids", "past_key_values", "input_ids", "cache_position"}


def has_pictures(model: Any) -> bool:
    """Whether a model of transformers reads pictures, and places what it sees among the embeddings of a text."""
    return sense_of(model) is PICTURES


class See(nn.Module):
    """Pictures to features, and to those of other layers where the decoder is given them."""

    def __init__(self, model: nn.Module, sense: Sense, ports: Sequence[Port], source: str, layers: str = "") -> None:
        super().__init__()
        self.model = model
        self._sense = sense
        self._names = [port.name for port in ports if port.only is None]
        self.fixed = {port.name: port.only for port in ports if port.only is not None}
        self._source = source
        self._layers = layers

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """[places in the text, hidden size] each"""
        fixed = {name: item.to(tensors[0].device) for name, item in self.fixed.items()}
        given = dict(zip(self._names, tensors, strict=True)) | fixed
        if self._source and not self._layers:
            found, more = _until(self.model, self._sense, self._source, given), []
        else:
            result = self._sense.seen(self.model, given)
            found = _features_in(result)
            more = [_joined(item) for item in getattr(result, self._layers)] if self._layers else []
        return tuple(item.reshape(-1, item.shape[-1]) for item in (found, *more))


class _ReachedError(Exception):
    """The features are there; what is behind them only takes them apart."""

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.features = features


def _until(model: Any, sense: Sense, source: str, given: Mapping[str, Tensor]) -> Tensor:
    """The features as the submodule `source` gives them."""

    def reached(_: Any, __: Any, result: Any) -> None:
        raise _ReachedError(_tensor_in(result))

    hook = model.get_submodule(source).register_forward_hook(reached)
    try:
        return _features_in(sense.seen(model, given))
    except _ReachedError as found:
        return found.features
    finally:
        hook.remove()


def _tensor_in(result: Any) -> Any:
    """The tensor that a module gives as its features; None for other results."""
    found = result if isinstance(result, Tensor) else getattr(result, "pooler_output", None)
    return found if isinstance(found, Tensor) else None


def _features_in(result: Any) -> Tensor:
    return _joined(getattr(result, "pooler_output", result))


def _joined(found: Any) -> Tensor:
    """The features of all pictures in one tensor."""
    if isinstance(found, Tensor):
        return found
    return torch.cat([item.reshape(-1, item.shape[-1]) for item in found])


class Embed(nn.Module):
    """Tokens and features to embeddings, and features of other layers to rows for the decoder."""

    def __init__(self, model: Any, token: int) -> None:
        super().__init__()
        self.model = model
        self._token = token

    def forward(self, input_ids: Tensor, features: Tensor, *layers: Tensor) -> tuple[Tensor, ...]:
        """[batch, tokens, hidden size] each; without any features the token has its own embedding, as in the model."""
        seen = torch.ones_like(features[:1, :1]).sum() > 0
        here = (input_ids == self._token) & seen
        embedded = self.model.get_input_embeddings()(input_ids.masked_fill(here, 0))
        places = here.reshape(-1).long().cumsum(0).reshape(here.shape) * here
        placed = torch.where(here.unsqueeze(-1), _behind_zeros(features).to(embedded.dtype)[places], embedded)
        return (placed, *(_behind_zeros(item)[places] for item in layers))


def _behind_zeros(features: Tensor) -> Tensor:
    """The first row stands for tokens that are no picture's, so that there may be no features at all."""
    return torch.cat([features.new_zeros(1, features.shape[1]), features])


class EmbeddingsStep(nn.Module):
    """One step of the decoder, from embeddings."""

    def __init__(
        self,
        model: nn.Module,
        names: Sequence[str],
        last_logits: bool,
        slots: Sequence[CacheSlot] = (),
        layers: tuple[str, Sequence[str]] = ("", ()),
    ) -> None:
        super().__init__()
        self.model = model
        self._names = list(names)
        self._last = last_logits
        self._slots = list(slots)
        self._layers = layers

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The logits, and the cache after these tokens."""
        given = dict(zip(self._names, tensors, strict=False))
        past = tensors[len(self._names) :]
        if self._slots:
            cache = empty_cache(self.model)
            fill_cache(cache, self._slots, past)
        else:
            cache = growing_cache(past)
        if _PREFIX in given:  # models ask whether there is a past; the kinds of tokens say what sees what
            cache.__class__ = type("CacheOfKinds", (type(cache),), {"is_initialized": False})
        with _decoder_given(self.model, self._of_layers(given)):
            result = self.model(**given, **{cache_argument(self.model.forward): cache}, use_cache=True)
        logits = result.logits[:, -1:] if self._last else result.logits
        if self._slots:
            return (logits, *(slot.of(cache) for slot in self._slots))
        return (logits, *(tensor for layer in cache.layers for tensor in (layer.keys, layer.values)))

    def _of_layers(self, given: dict[str, Tensor]) -> dict[str, Any]:
        """What the decoder alone is given, taken out of `given`: a row for each token, and where the rows belong."""
        name, masks = self._layers
        rows = [given.pop(key) for key in [key for key in given if name and key.startswith(PLACED)]]
        if not rows:
            return {}
        everywhere = torch.ones(rows[0].shape[:2], dtype=torch.bool, device=rows[0].device)
        return {name: [item.reshape(-1, item.shape[-1]) for item in rows], **dict.fromkeys(masks, everywhere)}


@contextmanager
def _decoder_given(model: Any, more: Mapping[str, Any]) -> Iterator[None]:
    """Inside, the decoder of a model is called with more arguments."""
    if not more:
        yield
        return
    hook = model.get_decoder().register_forward_pre_hook(
        lambda _, args, kwargs: (args, {**kwargs, **more}), with_kwargs=True
    )
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _decoder_heard(model: Any) -> Iterator[list[dict[str, Any]]]:
    """The arguments of each call of the decoder inside of a model, by name."""
    heard: list[dict[str, Any]] = []
    hook = model.get_decoder().register_forward_pre_hook(
        lambda _, __, kwargs: heard.append(dict(kwargs)), with_kwargs=True
    )
    try:
        yield heard
    finally:
        hook.remove()


def parts_of(model: Any, last_logits: bool = False, inputs: Mapping[str, Tensor] | None = None) -> list[GraphPart]:
    """The graphs of a model; `inputs` is what a processor made of one picture or sound.

    Raises ExportError for a model that does not run, or whose decoder is given more than the graphs hand on.
    """
    sense = sense_of(model) or PICTURES
    name, token = type(model).__name__, int(sense.token(model) or 0)
    slots = slots_of(model)
    failed: list[Exception] = []
    for ports in sense.ports(model, inputs):
        tensors = {port.name: port.example({}, torch.Generator().manual_seed(0)) for port in ports}
        try:
            with torch.no_grad():
                found = called(model, tensors, lambda **given: _seen(model, sense, given))
                count, width, source, fields = found
                heard, cache = called(
                    model, _prompt(model, tensors, count, token), lambda **given: _heard(model, given, slots)
                )
        except Exception as error:  # whatever a model says of pictures that are not its own
            failed.append(error)
            continue
        break
    else:
        reason = f" ({failed[0]})".partition("\n")[0] if failed else ""
        raise ExportError(
            f"{name} does not run on {sense.noun} as its config has them; give what its processor makes, as "
            f"inputs={{...}}{reason}",
            code="not-a-decoder",
        )
    field, layers, masks = _of_layers(heard, fields, count)
    handed_on = {*_HANDED_ON, layers, *masks}
    more = {key for key, item in heard.items() if isinstance(item, (Tensor, list, tuple)) and key not in handed_on}
    if more:
        raise ExportError(
            f"the decoder of {name} is given {', '.join(sorted(more))} beside embeddings, which no graph hands on",
            code="not-a-decoder",
        )
    if slots and not takes_any_length(model, slots):
        raise ExportError(
            f"the decoder of {name} takes one token at a time, and a picture has several; no graphs were made for this",
            code="not-a-decoder",
        )
    dtype = heard["inputs_embeds"].dtype
    words = int(model.config.get_text_config().vocab_size)
    taken = inspect.signature(model.forward).parameters
    positions = heard.get("position_ids")
    rows: tuple[int | str, ...] = (positions.shape[0],) if positions is not None and positions.dim() == 3 else ()
    count_of_layers = len(heard[layers]) if layers else 0
    of_layers = [f"{layers}.{place}" for place in range(count_of_layers)]
    given = [
        Port("inputs_embeds", (BATCH, _NEW, width), dtype),
        Port("attention_mask", (BATCH, _WHOLE), torch.int64),
        Port("position_ids", (*rows, BATCH, _NEW), torch.int64, 2),
    ]
    given += [Port("token_type_ids", (BATCH, _NEW), torch.int64, 2)] if "token_type_ids" in taken else []
    given += [Port(PLACED + item, (BATCH, _NEW, width), dtype) for item in of_layers]
    if slots:
        past = [Port(f"past_key_values.{slot.name}", slot.shape, slot.dtype) for slot in slots]
        present = [f"present.{slot.name}" for slot in slots]
    else:
        shapes = [_shapes(name, layer) for layer in cache.layers]
        past = [
            Port(f"past_key_values.{layer}.{part}", (BATCH, heads, _PAST, size), dtype)
            for layer, (heads, *sizes) in enumerate(shapes)
            for part, size in zip(("key", "value"), sizes, strict=True)
        ]
        present = [*layers_of("present", len(shapes), "")]
    sizes = SIZES | {sense.axis: 5}
    pixels = [port for port in ports if port.only is None]
    features = [sense.features, *of_layers]
    embedding = [Port("input_ids", (BATCH, _NEW), torch.int64, words)]
    embedding += [Port(item, (sense.axis, width), dtype) for item in features]
    placed = ["inputs_embeds", *(PLACED + item for item in of_layers)]
    decoder = EmbeddingsStep(model, [port.name for port in given], last_logits, slots, (layers, masks)).eval()
    return [
        GraphPart(sense.file, See(model, sense, ports, source, field).eval(), pixels, features, sizes),
        GraphPart(EMBEDDING, Embed(model, token).eval(), embedding, placed, sizes),
        GraphPart(DECODER, decoder, [*given, *past], ["logits", *present], sizes),
    ]


def _of_layers(heard: Mapping[str, Any], fields: Mapping[str, int], count: int) -> tuple[str, str, Sequence[str]]:
    """(the tower's name for features of other layers, the decoder's, its masks of where they belong); or ''s."""
    lists = {
        key: len(item)
        for key, item in heard.items()
        if isinstance(item, (list, tuple)) and item and all(len(part) == count for part in item)
    }
    pairs = [(field, key) for field, size in fields.items() for key, found in lists.items() if size == found]
    if len(pairs) != 1:
        return "", "", ()
    masks = [key for key, item in heard.items() if isinstance(item, Tensor) and item.dtype is torch.bool]
    return *pairs[0], masks


def _shapes(name: str, layer: Any) -> tuple[int, int, int]:
    if type(layer) is not library("cache_utils").DynamicLayer or layer.keys is None or layer.keys.dim() != 4:
        raise ExportError(
            f"{name} keeps {type(layer).__name__} in its cache; a language model with keys and values, [batch, heads, "
            "length, size] each, is needed here",
            code="not-a-decoder",
        )
    return layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3]


def _seen(model: Any, sense: Sense, given: Mapping[str, Tensor]) -> tuple[int, int, str, dict[str, int]]:
    """(places in the text, hidden size, the submodule that gives the features, other lists and their lengths).

    Where no submodule gives the features it is ''.
    """
    made: list[tuple[str, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda _, __, result, name=name: made.append((name, _tensor_in(result))))
        for name, module in model.named_modules()
        if name
    ]
    try:
        result = sense.seen(model, given)
    finally:
        for hook in hooks:
            hook.remove()
    found = getattr(result, "pooler_output", result)
    whole = _features_in(result)
    count, width = whole.numel() // whole.shape[-1], whole.shape[-1]
    fields = {name: len(item) for name, item in getattr(result, "items", dict)() if isinstance(item, list)}
    fields.pop("pooler_output", None)
    if not isinstance(found, (list, tuple)):
        return count, width, "", fields
    storages = {item.untyped_storage()._cdata for item in found}
    sources = [
        name
        for name, item in made
        if item is not None and {item.untyped_storage()._cdata} == storages and item.numel() == whole.numel()
    ]
    return count, width, sources[-1] if sources else "", fields


def _prompt(model: Any, pictures: Mapping[str, Tensor], count: int, token: int) -> dict[str, Tensor]:
    """A text with a picture in it, as a processor makes it."""
    taken = inspect.signature(model.forward).parameters
    words = int(model.config.get_text_config().vocab_size)
    ids = torch.randint(0, words, (1, count + 6), generator=torch.Generator().manual_seed(3))
    ids[ids == token] = (token + 1) % words
    ids[:, 2 : count + 2] = token
    prompt = {**pictures, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return prompt | {name: (ids == token).long() for name in _TOKEN_KINDS if name in taken}


def _heard(model: Any, given: Mapping[str, Tensor], slots: Sequence[CacheSlot]) -> tuple[dict[str, Any], Any]:
    """What the decoder is given in a call of the whole model, and the cache afterwards."""
    cache = empty_cache(model) if slots else library("cache_utils").DynamicCache()
    with _decoder_heard(model) as heard:
        model(**given, **{cache_argument(model.forward): cache}, use_cache=True)
    return heard[0], cache


def check(model: Any, parts: Sequence[GraphPart], runs: Mapping[str, Written], steps: int = STEPS) -> float:
    """The largest difference of a logit, relative to the largest one of its step, over a prompt and `steps` tokens.

    The prompt is a text with a picture.  torch gets the picture and all tokens anew at each step, without a cache.
    Where tokens have kinds, later ones do not see what those of the prompt see; there torch keeps its cache.
    Raises VerificationError at the first step whose logits differ by more than rounding.
    """
    vision, _, decoder = parts
    sense = sense_of(model) or PICTURES
    token = int(sense.token(model) or 0)
    pictures = dict(zip(vision.input_names, vision.args(2), strict=True))
    features = runs[sense.file](pictures)
    nothing = {name: item[:0] for name, item in features.items()}
    pictures |= getattr(vision.module, "fixed", {})
    given = _prompt(model, pictures, features[sense.features].shape[0], token)
    state = dict(zip(decoder.input_names, decoder.args(**{BATCH: 1, _PAST: 0}), strict=True))
    state = {name: torch.zeros_like(item) for name, item in state.items()}
    new, worst = given["input_ids"], 0.0
    cache = library("cache_utils").DynamicCache() if _PREFIX in given else None
    for count in range(1 + steps):
        with torch.no_grad(), _decoder_heard(model) as heard:
            asked, kept = dict(given), dict[str, Any](use_cache=cache is not None)
            if cache is not None:
                asked |= {name: item[:, -new.shape[1] :] for name, item in given.items() if name in _OF_TOKENS}
                asked = asked if not count else {name: item for name, item in asked.items() if name not in pictures}
                kept[cache_argument(model.forward)] = cache
            wanted = model(**asked, **kept).logits[:, -new.shape[1] :]
        positions = heard[0].get("position_ids")
        if positions is None:
            positions = torch.arange(given["input_ids"].shape[1])[None]
        feed = runs[EMBEDDING]({"input_ids": new, **(nothing if count else features)})
        feed["attention_mask"] = given["attention_mask"]
        feed["position_ids"] = positions[..., -new.shape[1] :].contiguous()
        feed["token_type_ids"] = (new == token).long()
        found = runs[DECODER](state | feed)
        wanted = wanted[:, -found["logits"].shape[1] :]
        worst = max(worst, compared(wanted, found["logits"], count, bound_of(wanted.dtype, model.dtype)))
        state |= {name.replace("present", "past_key_values"): item for name, item in found.items() if name != "logits"}
        new = wanted[:, -1:].argmax(-1)
        new[new == token] = token - 1 if token else 1
        given["input_ids"] = torch.cat([given["input_ids"], new], 1)
        given["attention_mask"] = torch.ones_like(given["input_ids"])
        given |= {name: (given["input_ids"] == token).long() for name in _TOKEN_KINDS if name in given}
    return worst
