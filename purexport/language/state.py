"""Decoders whose layers keep other state than keys and values: that of a convolution, that of a recurrence, or all.

model.onnx: (input_ids, attention_mask, position_ids, past_key_values.N.key, past_key_values.N.value,
past_key_values.N.conv_state, past_key_values.N.recurrent_state, ...) -> (logits, present.N..., ...)

Which layer keeps what is read from the cache that transformers makes for the model, after a prompt.  Before the first
token the state is zeros: what a convolution and a recurrence begin with.  So one graph does for the prompt and for what
follows, if the model goes on from a state with several tokens at once.  Where it computes them in a loop, the graph
takes one token at a time.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from purexport.language.checked import PROMPT, STEPS, Written, bound_of, compared
from purexport.language.library import cache_argument, library
from purexport.language.parts import BATCH, SIZES, GraphPart, Port
from purexport.language.recurrences import recurrences_recorded
from purexport.language.step import called
from purexport.lock import alone
from purexport.torch_patches.calls import operators_handed_to

FILE = "model.onnx"
_PAST, _NEW, _WHOLE = "past_sequence_length", "sequence_length", "total_sequence_length"
_PROMPT = 5
_LENGTHS = (7, 1031)  # more than the chunks that models cut a text into


@dataclass(frozen=True)
class CacheSlot:
    """One tensor of a cache: the layer, the attribute of the layer that holds it, and its place in there or None."""

    layer: int
    attribute: str
    place: int | None
    shape: tuple[int | str, ...]
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """The end of its name in the file, as runtimes expect it."""
        kind = {"keys": "key", "values": "value"}.get(self.attribute, self.attribute.removesuffix("s"))
        return f"{self.layer}.{kind}" + (f"_{self.place}" if self.place else "")

    @property
    def grows(self) -> bool:
        """Whether it is as long as the text."""
        return self.place is None

    def of(self, cache: Any) -> Tensor:
        """The tensor in a cache."""
        held = getattr(cache.layers[self.layer], self.attribute)
        found: Tensor = held if self.place is None else held[self.place]
        return found


class StateStep(nn.Module):
    """A decoder with its state as tensors."""

    def __init__(self, model: nn.Module, slots: Sequence[CacheSlot], takes: Sequence[str], last_logits: bool) -> None:
        super().__init__()
        self.model = model
        self._slots = list(slots)
        self._takes = list(takes)
        self._last = last_logits

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The logits, and the state after these tokens."""
        given = dict(zip(self._takes, tensors, strict=False))
        cache = empty_cache(self.model)
        fill_cache(cache, self._slots, tensors[len(self._takes) :])
        result = self.model(**given, **{cache_argument(self.model.forward): cache}, use_cache=True)
        logits = result.logits[:, -1:] if self._last else result.logits
        return (logits, *(slot.of(cache) for slot in self._slots))


def empty_cache(model: Any) -> Any:
    """The cache that transformers makes for a model, with whole keys and values where it would cut them."""
    caches = library("cache_utils")
    cache = caches.DynamicCache(config=model.config)
    for place, layer in enumerate(cache.layers):
        if isinstance(layer, caches.DynamicSlidingWindowLayer):
            states = getattr(layer, "number_of_states", None)
            cache.layers[place] = (
                caches.DynamicLayer()
                if states is None
                else caches.LinearAttentionAndFullAttentionLayer(number_of_states=states)
            )
    return cache


def fill_cache(cache: Any, slots: Sequence[CacheSlot], tensors: Sequence[Tensor]) -> None:
    """Put copies of tensors into an empty cache: the model writes into its state."""
    keys: dict[int, Tensor] = {}
    for slot, tensor in zip(slots, tensors, strict=True):
        layer = cache.layers[slot.layer]
        if slot.place is None:
            if slot.attribute == "keys":
                keys[slot.layer] = tensor
            else:
                cache.update(keys[slot.layer], tensor, slot.layer)
            continue
        getattr(layer, slot.attribute)[slot.place] = tensor.clone()
        getattr(layer, f"is_{slot.attribute}_initialized")[slot.place] = True
        layer.has_previous_state[slot.place] = True
        layer.dtype, layer.device = tensor.dtype, tensor.device
        if slot.attribute == "conv_states":
            layer.conv_kernel_size[slot.place] = tensor.shape[-1]


def slots_of(model: Any) -> list[CacheSlot]:
    """What a model keeps, where that is not keys and values alone; nothing for other models."""
    caches = library("cache_utils")
    try:
        cache = empty_cache(model)
    except (AttributeError, KeyError, TypeError, ValueError):  # no cache can be made from such a config
        return []
    if not any(isinstance(layer, caches.LinearAttentionCacheLayerMixin) for layer in cache.layers):
        return []

    def prompted(input_ids: Tensor) -> Any:
        made = empty_cache(model)
        model(input_ids=input_ids, use_cache=True, **{cache_argument(model.forward): made})
        return made

    with torch.no_grad():
        cache = called(model, {"input_ids": torch.zeros(3, _PROMPT, dtype=torch.int64)}, prompted)
    found = []
    for number, layer in enumerate(cache.layers):
        for attribute in ("keys", "values"):
            held = getattr(layer, attribute, None)
            if held is not None:
                heads, width = held.shape[1], held.shape[3]
                found.append(CacheSlot(number, attribute, None, (BATCH, heads, _PAST, width), held.dtype))
        for attribute in ("conv_states", "recurrent_states"):
            for place, held in getattr(layer, attribute, {}).items():
                if held is not None:
                    found.append(CacheSlot(number, attribute, place, (BATCH, *held.shape[1:]), held.dtype))
    return found


def takes_any_length(model: Any, slots: Sequence[CacheSlot]) -> bool:
    """Whether the model goes on from a state with the same calls, however many tokens it is given.

    Otherwise there is a loop over tokens or over chunks of them, which a trace would write out for one length.
    """
    (part,) = parts_of(model, slots)
    counts = []
    for length in _LENGTHS:
        args = part.args(**{_NEW: length, _WHOLE: SIZES[_PAST] + length})
        given = {f"tensor_{at}": tensor for at, tensor in enumerate(args)}
        count: Counter[str] = Counter()

        def counted(overload: Any, args: Any, kwargs: Any, count: Counter[str] = count) -> Any:
            count[str(overload)] += 1
            return overload(*args, **kwargs)

        def stepped(handler: Any = counted, **tensors: Tensor) -> Any:
            with operators_handed_to(handler):
                return part.module(*tensors.values())

        try:
            with alone(), torch.no_grad(), recurrences_recorded(model):
                called(model, given, stepped, values=False)
        except MemoryError:
            raise
        except Exception:  # what needs values, or refuses a state with several tokens
            return False
        counts.append(count)
    return counts[0] == counts[1]


def parts_of(
    model: Any, slots: Sequence[CacheSlot], last_logits: bool = False, single: bool = False
) -> list[GraphPart]:
    """The graph of a model with these slots; a `single` one takes one token at a time."""
    taken = inspect.signature(model.forward).parameters
    new = 1 if single else _NEW
    words = int(model.config.get_text_config().vocab_size)
    inputs = [Port("input_ids", (BATCH, new), torch.int64, words)]
    if "attention_mask" in taken and any(slot.grows for slot in slots):
        inputs.append(Port("attention_mask", (BATCH, _WHOLE), torch.int64))
    if "position_ids" in taken:
        inputs.append(Port("position_ids", (BATCH, new), torch.int64, 2))
    takes = [port.name for port in inputs]
    inputs += [Port(f"past_key_values.{slot.name}", slot.shape, slot.dtype) for slot in slots]
    outputs = ["logits", *(f"present.{slot.name}" for slot in slots)]
    sizes = SIZES | ({_WHOLE: SIZES[_PAST] + 1} if single else {})
    return [GraphPart(FILE, StateStep(model, slots, takes, last_logits).eval(), inputs, outputs, sizes)]


def check(
    model: Any, parts: Sequence[GraphPart], runs: Mapping[str, Written], steps: int = STEPS, prompt: int = PROMPT
) -> float:
    """The largest difference of a logit, relative to the largest one of its step, over a prompt and `steps` tokens.

    The file goes on from its own state; torch gets all tokens anew at each step, without a cache.
    Raises VerificationError at the first step whose logits differ by more than rounding.
    """
    (part,) = parts
    batch, worst = 3, 0.0
    single = part.inputs[0].shape[1] == 1
    start = dict(zip(part.input_names, part.args(**{BATCH: batch, _PAST: 0}), strict=True))
    state = {name: torch.zeros_like(item) for name, item in start.items() if name.startswith("past_")}
    ids = torch.randint(0, part.inputs[0].below, (batch, prompt), generator=torch.Generator().manual_seed(1))
    new = ids
    for count in range(1 + steps):
        with torch.no_grad():
            wanted = model(input_ids=ids, use_cache=False).logits[:, -new.shape[1] :]
        found = []
        for at in range(0, new.shape[1], 1 if single else new.shape[1]):
            tokens = new[:, at : at + 1] if single else new
            past = ids.shape[1] - new.shape[1] + at
            feed = {"input_ids": tokens, "attention_mask": torch.ones(batch, past + tokens.shape[1], dtype=torch.int64)}
            feed["position_ids"] = torch.arange(past, past + tokens.shape[1]).expand(batch, -1).contiguous()
            got = runs[part.file](feed | state)
            found.append(got["logits"])
            state = {name.replace("present", "past_key_values"): item for name, item in got.items() if name != "logits"}
        mine = torch.cat(found, 1)
        wanted = wanted[:, -mine.shape[1] :]
        worst = max(worst, compared(wanted, mine, count, bound_of(wanted.dtype, model.dtype)))
        new = wanted[:, -1:].argmax(-1)
        ids = torch.cat([ids, new], 1)
    return worst
