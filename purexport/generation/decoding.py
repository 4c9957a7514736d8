"""One step of a decoder: tokens and a cache go in, logits and the longer cache come out, whatever form the cache has.

The form is read from the inputs of the file.  Keys and values grow; or they are buffers, with `past_length` or with a
fixed length; or a layer keeps a state, of the past tokens alone; or nothing is kept.  In buffers of the last two kinds
ONNX Runtime counts the tokens of a row, so that padding must be behind them: rows are turned so, and logits back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from purexport.generation.files import PAST
from purexport.generation.sessions import Array, RunnableFile, numpy_type

_PLACE, _MASK, _POSITIONS = "past_length", "attention_mask", "position_ids"
_STATES = ("conv_state", "recurrent_state")


@dataclass
class DecoderCache:
    """What a decoder keeps of the tokens that it has seen: values by the inputs that take them, and their mask."""

    values: dict[str, Any]
    mask: Array
    padding: int = 0  # of the slots in use, those in front of the first token

    def get_seq_length(self) -> int:
        """How many tokens were seen."""
        return int(self.mask.shape[1]) - self.padding


class Decoding:
    """The steps of a file with a decoder.  `counts` says that the runtime counts the tokens of a row."""

    def __init__(self, runnable: RunnableFile, counts: bool) -> None:
        self.runnable = runnable
        inputs = runnable.file.inputs
        self._past = [name for name in inputs if name.startswith(f"{PAST}.")]
        own = [name for name in self._past if ".encoder." not in name]
        lengths = {inputs[name].shape[2] for name in own if name.endswith((".key", ".value"))}
        fixed = [size for size in lengths if isinstance(size, int)]
        self.keeps = bool(self._past)
        self.room = fixed[0] if fixed else None
        self.counts = counts or (bool(fixed) and _PLACE not in inputs)
        self.has_states = any(state in name for name in self._past for state in _STATES)
        tokens = inputs.get("input_ids") or inputs["inputs_embeds"]
        self.is_single = tokens.shape[1] == 1

    def takes(self, name: str) -> bool:
        """Whether the file has such an input."""
        return name in self.runnable.file.inputs

    def empty(self, batch: int, given: Mapping[str, Any] | None = None) -> DecoderCache:
        """The cache before the first token; `given` are values of inputs that are the same at each step."""
        values = dict(given or {})
        for name in self._past:
            if name not in values:
                layout = self.runnable.file.inputs[name]
                sizes = [size if isinstance(size, int) else 0 for size in layout.shape]
                sizes[0] = sizes[0] or batch
                values[name] = self.runnable.value(name, np.zeros(sizes, numpy_type(layout.code)))
        return DecoderCache(values, np.zeros((batch, 0), np.int64))

    def step(
        self,
        tokens: Mapping[str, Array],
        mask: Array | None,
        positions: Array | None,
        cache: DecoderCache,
        *,
        is_last_use: bool = False,
    ) -> tuple[Array, DecoderCache]:
        """The logits of new tokens, and the cache with them.

        `mask` is over past and new tokens, `positions` are those of the new ones; by default nothing is hidden, and
        positions are counted from 0.  Where this is the last use of the cache its buffers are written to.
        Raises ValueError for more tokens than the buffers have room for, and for padding where states see it.
        """
        batch, count = next(iter(tokens.values())).shape[:2]
        past = cache.mask.shape[1]
        if mask is None:
            mask = np.concatenate([cache.mask, np.ones((batch, count), np.int64)], 1)
        mask = np.asarray(mask, np.int64)
        if mask.shape != (batch, past + count):
            raise ValueError(
                f"attention_mask is {list(mask.shape)}, and the cache and the new tokens are {[batch, past + count]}"
            )
        if self.room is not None and past + count > self.room:
            raise ValueError(
                f"the cache of this folder has room for {self.room} tokens, and these are {past + count}; write the "
                "folder with a larger max_length (--max-length)"
            )
        if self.has_states and not mask.all():
            raise ValueError(
                "attention_mask hides tokens, which the states of this model would see; generate for rows of one "
                "length, or row by row"
            )
        if positions is None:
            positions = np.broadcast_to(np.arange(past, past + count), (batch, count))
        if not self.is_single or count == 1:
            return self._run(tokens, mask, positions, cache, is_last_use)
        found = []
        for at in range(count):
            one = {name: item[:, at : at + 1] for name, item in tokens.items()}
            seen = mask[:, : past + at + 1]
            logits, cache = self._run(one, seen, positions[..., at : at + 1], cache, is_last_use or at > 0)
            found.append(logits)
        return np.concatenate(found, 1), cache

    def _run(
        self, tokens: Mapping[str, Array], mask: Array, positions: Array, cache: DecoderCache, is_last_use: bool
    ) -> tuple[Array, DecoderCache]:
        file, past = self.runnable.file, cache.mask.shape[1]
        count = mask.shape[1] - past
        order = None
        if self.counts and not mask[:, past:].all():
            order = np.argsort(mask[:, past:] == 0, 1, kind="stable")
            tokens = {name: _ordered(item, order) for name, item in tokens.items()}
            positions = _ordered(positions, order)
        feed: dict[str, Array] = dict(tokens)
        feed |= {_MASK: self._mask_of(mask), _POSITIONS: positions}
        if self.takes(_PLACE):
            feed[_PLACE] = np.array([past])
        values = {name: self.runnable.value(name, item) for name, item in feed.items() if self.takes(name)}
        caches = file.caches
        written = caches if is_last_use and file.writes_in_place and self.room is not None else ()
        found = self.runnable.run(values | cache.values, caches, written)
        logits = found["logits"]
        if order is not None and logits.shape[1] == count:
            logits = _ordered(logits, np.argsort(order, 1))
        kept = cache.values | {given: found[name] for name, given in caches.items()}
        return logits, DecoderCache(kept, mask)

    def _mask_of(self, mask: Array) -> Array:
        """The mask as the file takes it."""
        if self.takes(_PLACE):
            return np.pad(mask, ((0, 0), (0, (self.room or 0) - mask.shape[1])))
        if self.counts:
            return np.asarray(np.arange(mask.shape[1]) < mask.sum(1, keepdims=True), np.int64)
        return mask


class PairedDecoding(Decoding):
    """The steps of two files whose shapes are numbers: one for pieces of a prompt, and one for a token."""

    def __init__(self, prefill: RunnableFile, step: RunnableFile) -> None:
        super().__init__(step, counts=False)
        self._prefill = Decoding(prefill, counts=False)
        self._piece = int(prefill.file.inputs["input_ids"].shape[1])
        self.is_single = False

    def step(
        self,
        tokens: Mapping[str, Array],
        mask: Array | None,
        positions: Array | None,
        cache: DecoderCache,
        *,
        is_last_use: bool = False,
    ) -> tuple[Array, DecoderCache]:
        """The same; more than one token is taken in pieces, with hidden tokens in front of the first one."""
        batch, count = next(iter(tokens.values())).shape[:2]
        past = cache.get_seq_length()
        new = np.ones((batch, count), np.int64) if mask is None else np.asarray(mask, np.int64)[:, -count:]
        if positions is None:
            positions = np.broadcast_to(np.arange(past, past + count), (batch, count))
        one = self if count == 1 else self._prefill
        width = 1 if count == 1 else self._piece
        front = -count % width
        tokens, positions, new = (
            {name: _padded(item, front) for name, item in tokens.items()},
            _padded(positions, front),
            _padded(new, front),
        )
        padding, found = cache.padding + front, []
        for at in range(0, count + front, width):
            piece = slice(at, at + width)
            seen = np.concatenate([cache.mask, new[:, piece]], 1)
            given = {name: item[:, piece] for name, item in tokens.items()}
            logits, cache = Decoding.step(
                one, given, seen, positions[:, piece], cache, is_last_use=is_last_use or bool(at)
            )
            found.append(logits)
        logits = found[-1] if found[-1].shape[1] != width else np.concatenate(found, 1)[:, front:]
        return logits, DecoderCache(cache.values, cache.mask, padding)


def _padded(array: Array, count: int) -> Array:
    return np.pad(array, ((0, 0), (count, 0)))


def _ordered(array: Array, order: Array) -> Array:
    """The rows [batch, tokens, ...] in another order of their tokens."""
    index = order.reshape(order.shape + (1,) * (array.ndim - 2))
    return np.asarray(np.take_along_axis(array, np.broadcast_to(index, order.shape + array.shape[2:]), 1))
