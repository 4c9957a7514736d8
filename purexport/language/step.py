"""One step of a decoder with tensors in and out, under the names that runtimes expect.

(input_ids, attention_mask, position_ids, past_key_values.0.key, past_key_values.0.value, ...) -> (logits,
present.0.key, present.0.value, ...).  The cache of the model is made of the past inside.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._pytree import tree_leaves

from purexport.errors import ExportError
from purexport.language.last import logits_of_last
from purexport.language.library import cache_argument, computed_anew, library
from purexport.language.tasks import generates, is_encoder, is_of_library
from purexport.shapes.shaped_calls import Shaped
from purexport.torch_patches.calls import operators_handed_to

Tensor = torch.Tensor

# sizes of the example: primes that are apart from each other and rare in models
BATCH, SEQ, PAST = 2, 7, 11


class DecoderStep(torch.nn.Module):
    """A decoder of transformers with a cache of keys and values, called with and returning tensors only."""

    def __init__(self, model: torch.nn.Module, takes_positions: bool, last_logits: bool) -> None:
        super().__init__()
        self.model = model
        self._takes_positions = takes_positions
        self.last_logits = last_logits

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """The logits and the cache after these tokens."""
        asked: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask, "use_cache": True}
        if self._takes_positions:
            asked["position_ids"], rest = rest[0], rest[1:]
        cache = growing_cache(rest)
        asked[cache_argument(self.model.forward)] = cache
        if self.last_logits:
            result = logits_of_last(self.model, attention_mask[:, -input_ids.shape[1] :], **asked)
        else:
            result = self.model(**asked)
        return (result.logits, *(tensor for layer in cache.layers for tensor in (layer.keys, layer.values)))


def growing_cache(tensors: Sequence[Tensor]) -> Any:
    """transformers' cache with keys and values of each layer in it, whose length is that of the keys.

    Its own layer asks first whether there are any keys, which is a decision on sizes.
    """
    cache = library("cache_utils").DynamicCache()
    for layer, (key, value) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        cache.update(key, value, layer)
    for filled in cache.layers:
        filled.get_seq_length = partial(_length, filled)
    return cache


def _length(layer: Any) -> Any:
    return layer.keys.shape[-2]


@dataclass(frozen=True, eq=False)
class Decoder:
    """A step, with the names of its inputs and outputs, its dynamic axes and an example.

    `whole` is the step with a growing cache and the logits of all tokens, which files are compared with.
    """

    step: torch.nn.Module
    shapes: Sequence[tuple[int, ...]]  # of each tensor of the cache, with -1 for the batch and -2 for the length
    takes_positions: bool
    dtype: torch.dtype
    vocabulary: int
    whole: DecoderStep

    sides: ClassVar[Sequence[str]] = ("left", "right")  # of a row, where padding may be
    keeps: ClassVar[bool] = True  # what was computed before is in a cache
    room: ClassVar[int | None] = None  # how long a text may get

    @property
    def model(self) -> Any:
        """The model of transformers."""
        return self.whole.model

    @property
    def layers(self) -> int:
        return len(self.shapes) // 2

    def _cache_names(self, prefix: str) -> list[str]:
        return [f"{prefix}.{layer}.{part}" for layer in range(self.layers) for part in ("key", "value")]

    @property
    def input_names(self) -> list[str]:
        """The inputs in order."""
        return self._tokens_and_cache

    @property
    def _tokens_and_cache(self) -> list[str]:
        positions = ["position_ids"] if self.takes_positions else []
        return ["input_ids", "attention_mask", *positions, *self._cache_names("past_key_values")]

    @property
    def output_names(self) -> list[str]:
        """The outputs in order."""
        return ["logits", *self._cache_names("present")]

    @property
    def axes(self) -> dict[str, dict[int, str]]:
        """The dynamic axes, in the words of runtimes."""
        tokens = {0: "batch_size", 1: "sequence_length"}
        axes = {"input_ids": tokens, "attention_mask": {0: "batch_size", 1: "total_sequence_length"}}
        axes |= {"position_ids": tokens} if self.takes_positions else {}
        for name, shape in zip(self._cache_names("past_key_values"), self.shapes, strict=True):
            axes[name] = {shape.index(-1): "batch_size", shape.index(-2): "past_sequence_length"}
        return axes

    def example(self) -> tuple[Tensor, ...]:
        """Random inputs to capture the step with."""
        return self.args(BATCH, SEQ, PAST)

    def fed(self, ids: Tensor, mask: Tensor, state: Sequence[Tensor]) -> dict[str, Tensor]:
        """The inputs for new tokens, of a mask over the whole text, and what the file gave at the step before."""
        positions = [positions_in(mask)[:, -ids.shape[1] :].contiguous()] if self.takes_positions else []
        return dict(zip(self._tokens_and_cache, (ids, mask, *positions, *state), strict=True))

    def empty(self, batch: int) -> list[Tensor]:
        """The cache before the first token."""
        return self.past(batch, 0)

    def whole_args(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """What `whole` takes for a text."""
        positions = [positions_in(mask)] if self.takes_positions else []
        return (ids, mask, *positions, *(item[..., :0, :] for item in self.past(len(ids), 1)))

    def args(self, batch: int, seq: int, past: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Random tokens behind a random past, nothing hidden."""
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, self.vocabulary, (batch, seq), generator=generator)
        return (ids, *self.masks(batch, seq, past), *self.past(batch, past, generator))

    def masks(self, batch: int, seq: int, past: int) -> tuple[Tensor, ...]:
        """The attention mask of ones, and the positions where they are an input."""
        ones = torch.ones(batch, past + seq, dtype=torch.int64)
        positions = torch.arange(past, past + seq).expand(batch, -1).contiguous()
        return (ones, positions) if self.takes_positions else (ones,)

    def past(self, batch: int, past: int, generator: torch.Generator | None = None) -> list[Tensor]:
        """A random cache of a length."""
        sizes = {-1: batch, -2: past}
        shapes = [[sizes.get(size, size) for size in shape] for shape in self.shapes]
        return [torch.randn(shape, generator=generator).to(self.dtype) for shape in shapes]


def positions_in(mask: Tensor) -> Tensor:
    """The positions of the tokens of a mask, as `generate` counts them: hidden ones have none, and are given 0."""
    return (mask.cumsum(1) - 1).masked_fill(mask == 0, 0)


def decoder_of(model: Any, last_logits: bool = False) -> Decoder:
    """The step of a model.  Raises ExportError for a model that does not run with a cache of keys and values."""
    if not hasattr(getattr(model, "config", None), "get_text_config"):
        raise ExportError(
            f"{type(model).__name__} is not a model of transformers; export takes other models", code="not-a-decoder"
        )
    if is_encoder(model.config) or (is_of_library(type(model)) and not generates(type(model))):
        raise ExportError(
            f"{type(model).__name__} does not generate text from a cache of keys and values; `purexport hf` "
            "(purexport.pretrained_model) writes models of transformers of other kinds",
            code="not-a-decoder",
        )
    caches = library("cache_utils")
    cache = caches.DynamicCache()
    ids = torch.zeros(3, 5, dtype=torch.int64)
    asked = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": True}
    asked[cache_argument(model.forward)] = cache
    with torch.no_grad():
        result = called(model, asked)
    kinds = {type(layer).__name__ for layer in cache.layers if type(layer) is not caches.DynamicLayer}
    tensors = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    if kinds or not tensors or any(tensor is None or tensor.shape[::2] != (3, 5) for tensor in tensors):
        kept = ", ".join(sorted(kinds)) or "nothing in the cache that it is given"
        raise ExportError(
            f"{type(model).__name__} keeps {kept}; a language model with keys and values, [batch, heads, length, "
            "size] each, is needed here",
            code="not-a-decoder",
        )
    takes = "position_ids" in inspect.signature(model.forward).parameters
    shapes = [(-1, tensor.shape[1], -2, tensor.shape[3]) for tensor in tensors]
    step, whole = (DecoderStep(model, takes, last).eval() for last in (last_logits, False))
    return Decoder(step, shapes, takes, tensors[0].dtype, result.logits.shape[-1], whole)


def called(model: Any, asked: dict[str, Any], function: Callable[..., Any] | None = None, values: bool = True) -> Any:
    """The result of a model, or of a function that calls it.

    It has no values where the model's parameters have none, or without `values`: then only shapes are computed.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    if values and not any(tensor.is_meta for tensor in tensors.values()):
        with computed_anew(model):
            return (function or model)(**asked)
    with computed_anew(model), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = {
            name: torch.empty(tensor.shape, dtype=tensor.dtype) if tensor.is_meta else _faked(mode, tensor)
            for name, tensor in tensors.items()
        }
        given = {name: _faked(mode, item) if isinstance(item, Tensor) else item for name, item in asked.items()}
        named = {f"model.{name}": tensor for name, tensor in fakes.items()}
        calling = _Calling(model, function or model)
        with operators_handed_to(partial(_valued, Shaped())):
            try:
                return torch.func.functional_call(calling, named, (), given, tie_weights=True)
            except (DataDependentOutputException, DynamicOutputShapeException) as error:
                raise ExportError(
                    f"{type(model).__name__} looks at values that it computes from weights ({error}), as in a loop "
                    "over experts that the data chooses, which no file has",
                    code="not-a-decoder",
                ) from error


def _faked(mode: FakeTensorMode, tensor: Tensor) -> Tensor:
    """A tensor without values, but integers stay: models ask which tokens stand for pictures."""
    return mode.from_tensor(tensor) if tensor.is_floating_point() else tensor


def _valued(shaped: Shaped, overload: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operator: with its values where they follow from integers, otherwise without."""
    given = [item for item in tree_leaves((args, kwargs)) if isinstance(item, Tensor)]
    if given and not any(isinstance(item, FakeTensor) for item in given):
        with unset_fake_temporarily():
            return overload(*args, **kwargs)
    if overload is torch.ops.aten.index.Tensor:
        args = (args[0], [place for index in args[1] for place in _places(index)])
    found = shaped(overload, args, kwargs)
    if not given and isinstance(found, Tensor) and not found.is_floating_point():
        with unset_fake_temporarily():
            return overload(*args, **kwargs)
    return found


def _places(index: Tensor | None) -> Sequence[Tensor | None]:
    """The numbers of the elements that a mask with values chooses, axis by axis; another index as it is."""
    if index is None or isinstance(index, FakeTensor) or index.dtype is not torch.bool:
        return [index]
    with unset_fake_temporarily():
        return index.nonzero(as_tuple=True)


class _Calling(torch.nn.Module):
    """A function that calls a model, as a module that holds the model."""

    def __init__(self, model: torch.nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self._calls = [function]  # in a list: a module would be a second name of the model

    def forward(self, **asked: Any) -> Any:
        return self._calls[0](**asked)
