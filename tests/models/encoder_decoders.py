"""Models of transformers with an encoder and a decoder: what a test case is, how its model is made, how it is judged.

A case is a class of `MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING` or `MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING` with a tiny random
config, whose decoder keeps its state in an `EncoderDecoderCache`.  It has three exports:

- `first`: the whole model without a cache, (source, target) -> (logits, cache).
- `step`: the decoder with the encoder's result and the cache as tensors -> (logits, the decoder's keys and values).
- `with-cache`: the same as the model has it, with an `EncoderDecoderCache` among the arguments.

Batch, source, target and past are dynamic.  The file of `first` runs at other sizes; those of the others do a prefill
of other sizes with an empty past, and greedy steps of one token.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.models import decoders
from tests.models.decoders import LeftOutError, Run, Task, compare, filled, library, line, mask

EXAMPLE = {"batch": 2, "source": 9, "seq": 3, "past": 5}
OTHERS = ({"batch": 3, "source": 12, "seq": 7, "past": 0}, {"batch": 1, "source": 5, "seq": 1, "past": 0})
STEPS = 4
_SAMPLES = 4000  # of sound
# a layer's tensors in the cache, as they lie in wrapped forms, and their names in our files
_PARTS = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")


def classes() -> list[str]:
    """The names of the mappings' classes."""
    auto = library("models.auto.modeling_auto")
    names = (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES)
    return sorted({name for found in names for name in found.values()})


class Step(nn.Module):
    """A decoder with tensors in and out: the cache is four tensors a layer.  `outputs` makes the encoder's result."""

    def __init__(self, model: nn.Module, takes_mask: bool, outputs: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self.takes_mask = takes_mask
        self.outputs = outputs

    def forward(self, ids: Tensor, states: Tensor, source_mask: Tensor, target_mask: Tensor, *past: Tensor) -> Any:
        cache = both(past)
        result = self.model(**_given(self, ids, states, source_mask, target_mask, cache))
        present = [tensor for layer in cache.self_attention_cache.layers for tensor in (layer.keys, layer.values)]
        return (result.logits, *present)


def both(past: Sequence[Tensor]) -> Any:
    """An `EncoderDecoderCache` of four tensors a layer."""
    own = [tensor for place, tensor in enumerate(past) if place % 4 < 2]
    cross = [tensor for place, tensor in enumerate(past) if place % 4 >= 2]
    return library("cache_utils").EncoderDecoderCache(filled(own), filled(cross))


def _given(step: Step, ids: Tensor, states: Tensor, source_mask: Tensor, target_mask: Tensor, cache: Any) -> Any:
    outputs = step.outputs(last_hidden_state=states)
    masks = {"attention_mask": source_mask, **({"decoder_attention_mask": target_mask} if step.takes_mask else {})}
    return {"encoder_outputs": outputs, "decoder_input_ids": ids, **masks, "past_key_values": cache}


@dataclass(frozen=True, eq=False)
class EncoderDecoder:
    """A case.  `shapes` are those of a layer's four tensors, with -1, -2 and -3 for batch, past and source."""

    name: str
    step: Step
    shapes: Sequence[tuple[int, ...]]
    vocabulary: int
    source: tuple[int, ...]  # the shape of the model's main input after the batch; empty for tokens of any length
    width: int  # of the encoder's states
    # False where the model itself does not look at the target's mask for one token, but does for several (LED): a file
    # has the one path of the example, and is the model's for masks without holes
    masks_steps: bool = True

    @property
    def model(self) -> Any:
        return self.step.model

    def tasks(self) -> dict[str, Task]:
        """The exports of the case."""
        given = self.steps_input(**EXAMPLE)
        axes = {name: found for name, found in self._axes().items() if name in given}
        names = {"input_names": list(given), "output_names": ["logits", *self._present()]}
        step = Task(self.step, tuple(given.values()), {}, axes, names, self._check_step)
        return {"first": self._first(), "step": step, "with-cache": self._own(given)}

    def _axes(self) -> dict[str, Any]:
        source = {} if self.source else {1: "source"}
        axes: dict[str, Any] = {
            "decoder_input_ids": {0: "batch", 1: "seq"},
            "states": {0: "batch", **source},
            "attention_mask": {0: "batch", **source},
            "decoder_attention_mask": {0: "batch", 1: "total"},
        }
        labels = {-1: "batch", -2: "past", **({} if self.source else {-3: "source"})}
        for name, shape in zip(self._past(), self.shapes, strict=True):
            axes[name] = {axis: labels[size] for axis, size in enumerate(shape) if size in labels}
        return axes

    def _past(self) -> list[str]:
        return [f"past_{place // 4}_{_PARTS[place % 4].replace('.', '_')}" for place in range(len(self.shapes))]

    def _present(self) -> list[str]:
        return [name.replace("past", "present", 1) for name in self._past() if "_decoder_" in name]

    def steps_input(self, batch: int, source: int, seq: int, past: int, seed: int = 0) -> dict[str, Tensor]:
        """Random tokens, states and a random cache, in the order of `Step`'s arguments."""
        generator = torch.Generator().manual_seed(seed)
        source = self._length(source)
        ids = torch.randint(3, self.vocabulary, (batch, seq), generator=generator)
        states = torch.randn(batch, source, self.width, generator=generator)
        found = {"decoder_input_ids": ids, "states": states, "attention_mask": self._source_mask(batch, source)}
        found["decoder_attention_mask"] = mask(batch, past + seq)
        sizes = {-1: batch, -2: past, -3: source}
        for name, shape in zip(self._past(), self.shapes, strict=True):
            found[name] = torch.randn([sizes.get(size, size) for size in shape], generator=generator)
        return found

    def _length(self, source: int) -> int:
        """The length of the encoder's states."""
        return next(shape[2] for shape in self.shapes[2:] if shape[0] == -1) if self.source else source

    def _source_mask(self, batch: int, source: int) -> Tensor:
        return mask(batch, source)

    def _first(self) -> Task:
        source = {0: "batch", **({} if self.source else {1: "source"})}
        axes = {self.model.main_input_name: source, "decoder_input_ids": {0: "batch", 1: "seq"}}
        kwargs = self._firsts_input(**EXAMPLE)
        if "attention_mask" in kwargs:
            axes["attention_mask"] = source
        return Task(self.model, (), kwargs, axes, {}, self._check_first)

    def _firsts_input(self, batch: int, source: int, seq: int, past: int, seed: int = 0) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, self.vocabulary, (batch, seq), generator=generator)
        if self.source:
            features = torch.randn(batch, *self.source, generator=generator)
            return {self.model.main_input_name: features, "decoder_input_ids": ids}
        tokens = torch.randint(3, self.vocabulary, (batch, source), generator=generator)
        return {"input_ids": tokens, "attention_mask": self._source_mask(batch, source), "decoder_input_ids": ids}

    def _check_first(self, run: Run) -> None:
        for sizes in OTHERS:
            kwargs = self._firsts_input(**sizes, seed=1)
            with torch.no_grad():
                result = self.model(**kwargs)
            cache = result.past_key_values
            halves = {"decoder": cache.self_attention_cache, "encoder": cache.cross_attention_cache}
            wanted = {"logits": result.logits}
            for half, of in halves.items():
                for place, layer in enumerate(of.layers):
                    wanted |= {f"present.{place}.{half}.key": layer.keys, f"present.{place}.{half}.value": layer.values}
            found = run({name: tensor.numpy() for name, tensor in kwargs.items()})
            compare({name: found[name] for name in wanted}, wanted, str(sizes))

    def _own(self, given: Mapping[str, Tensor]) -> Task:
        axes = self._axes()
        states = axes.pop("states")
        cache = {half: axes[f"past_0_{half}_key"] for half in ("decoder", "encoder")}
        axes = {name: found for name, found in axes.items() if not name.startswith("past_")}
        if not self.step.takes_mask:
            del axes["decoder_attention_mask"]
        kwargs = _given(self.step, *list(given.values())[:4], both(list(given.values())[4:]))
        return Task(
            self.model,
            (),
            kwargs,
            {**axes, "encoder_outputs": states, "past_key_values": cache},
            {},
            self._check_own,
        )

    def _check_own(self, run: Run) -> None:
        def renamed(feeds: dict[str, Any]) -> dict[str, Any]:
            names = {"states": "encoder_outputs_last_hidden_state"}
            found = run({names.get(name, _dotted(name)): value for name, value in feeds.items()})
            return {name: found[_dotted(name)] for name in ("logits", *self._present())}

        self._check_step(renamed)

    def _check_step(self, run: Run) -> None:
        given = self.steps_input(**OTHERS[0], seed=1)
        for count in range(1 + STEPS):
            where = f"step {count}" if count else "prefill"
            with torch.no_grad():
                wanted = self.step(*given.values())
            found = run({name: tensor.numpy() for name, tensor in given.items()})
            compare(found, dict(zip(("logits", *self._present()), wanted, strict=True)), where)
            batch, total = given["decoder_attention_mask"].shape
            given = {**given, "decoder_input_ids": wanted[0][:, -1:].argmax(-1).clamp(max=self.vocabulary - 1)}
            longer = mask(batch, total + 1)
            given["decoder_attention_mask"] = longer if self.masks_steps else torch.ones_like(longer)
            given |= {
                name.replace("present", "past", 1): t for name, t in zip(self._present(), wanted[1:], strict=True)
            }


def _dotted(name: str) -> str:
    """The name that we give to what is called `past_0_decoder_key` or `present_0_decoder_key` here."""
    kind, _, rest = name.partition("_")
    kinds = {"past": "past_key_values", "present": "present"}
    return f"{kinds[kind]}.{rest.replace('_', '.')}" if kind in kinds else name


def made(name: str) -> EncoderDecoder:
    """The case of a class.  Raises LeftOutError with the reason where it is none."""
    try:
        model_class = getattr(library(), name)
        model: Any = decoders.tiny_model(model_class, _config(model_class.config_class))
    except LeftOutError:
        raise
    except Exception as error:  # whatever a class needs that is not here
        raise LeftOutError(f"no tiny model: {line(error)}") from error
    taken = inspect.signature(model.forward).parameters
    if "decoder_input_ids" not in taken or "encoder_outputs" not in taken:
        raise LeftOutError("has no decoder beside an encoder")
    return _case(name, model, "decoder_attention_mask" in taken)


def _config(config_class: Any) -> Any:
    if config_class.model_type == "encoder-decoder":
        bert = library().BertConfig
        sizes = {name: value for name, value in decoders.TINY.items() if name in inspect.signature(bert).parameters}
        sizes |= {"is_decoder": False}
        start = {"pad_token_id": 0, "decoder_start_token_id": 1}
        return config_class.from_encoder_decoder_configs(bert(**sizes), bert(**sizes), **start)
    return decoders.tiny_config(config_class, leave=("is_decoder", "use_cache"))


def _case(name: str, model: Any, takes_mask: bool) -> EncoderDecoder:
    caches = library("cache_utils")
    ids = torch.randint(3, 90, (3, 4))
    source, given = _source(model)
    kwargs = {**given, "decoder_input_ids": ids}
    cache = caches.EncoderDecoderCache(caches.DynamicCache(), caches.DynamicCache())
    try:
        with torch.no_grad():
            result = model(**kwargs, past_key_values=cache)
            plain = model(**kwargs)
            outputs = type(model.get_encoder()(**given))
    except Exception as error:
        raise LeftOutError(f"does not run with an EncoderDecoderCache: {line(error)}") from error
    layers = list(zip(cache.self_attention_cache.layers, cache.cross_attention_cache.layers, strict=False))
    if not layers:
        raise LeftOutError("takes an EncoderDecoderCache and puts nothing in it")
    if type(plain.past_key_values) is not caches.EncoderDecoderCache:
        raise LeftOutError(f"gives a {type(plain.past_key_values).__name__}")
    shapes = []
    length = result.encoder_last_hidden_state.shape[1]
    for own, cross in layers:
        if own.keys.dim() != 4 or cross.keys.shape[:1] != own.keys.shape[:1]:
            raise LeftOutError(
                f"keeps other tensors for each layer: {tuple(own.keys.shape)}, {tuple(cross.keys.shape)}"
            )
        shapes += [(-1, tensor.shape[1], -2, tensor.shape[3]) for tensor in (own.keys, own.values)]
        behind = length if source else -3
        shapes += [(-1, tensor.shape[1], behind, tensor.shape[3]) for tensor in (cross.keys, cross.values)]
    width = result.encoder_last_hidden_state.shape[-1]
    vocabulary = min(90, result.logits.shape[-1])
    case = EncoderDecoder(name, Step(model, takes_mask, outputs).eval(), shapes, vocabulary, source, width)
    _must_hold(case, kwargs, plain)
    return replace(case, masks_steps=not takes_mask or _masks(case, seq=1) or not _masks(case, seq=3))


def _masks(case: EncoderDecoder, seq: int) -> bool:
    """Whether the decoder's result for so many tokens follows from the target's mask."""
    given = case.steps_input(batch=2, source=9, seq=seq, past=5)
    without = torch.ones_like(given["decoder_attention_mask"])
    with torch.no_grad():
        logits = [case.step(*item.values())[0] for item in (given, {**given, "decoder_attention_mask": without})]
    return not torch.equal(*logits)


def _source(model: Any) -> tuple[tuple[int, ...], dict[str, Tensor]]:
    """The shape of the main input after the batch where it is no tokens, and an example."""
    if model.main_input_name == "input_ids":
        return (), {"input_ids": torch.randint(3, 90, (3, 6)), "attention_mask": torch.ones(3, 6, dtype=torch.int64)}
    config = model.config
    frames = 2 * getattr(config, "max_source_positions", 32)
    shapes: list[tuple[int, ...]] = [(getattr(config, "num_mel_bins", 80), frames)]
    shapes.append((frames, getattr(config, "input_feat_per_channel", 80)))
    if model.main_input_name != "input_features":
        shapes = [(_SAMPLES,)]
    for shape in shapes:
        given = {model.main_input_name: torch.randn(3, *shape)}
        try:
            with torch.no_grad():
                model(**given, decoder_input_ids=torch.ones(3, 2, dtype=torch.int64))
            return shape, given
        except Exception as error:  # it wants the axes in another order
            last = line(error)
    raise LeftOutError(f"does not run on features: {last}")


def _must_hold(case: EncoderDecoder, kwargs: dict[str, Any], plain: Any) -> None:
    """The model in eager mode: what it says of all tokens at once it says in steps."""
    ids = kwargs["decoder_input_ids"]
    try:
        with torch.no_grad():
            first = case.model(**{**kwargs, "decoder_input_ids": ids[:, :2]})
            states = first.encoder_last_hidden_state
            cache = first.past_key_values
            past = [
                tensor
                for own, cross in zip(
                    cache.self_attention_cache.layers, cache.cross_attention_cache.layers, strict=True
                )
                for tensor in (own.keys, own.values, cross.keys, cross.values)
            ]
            source = torch.ones(states.shape[:2], dtype=torch.int64)
            second = case.step(ids[:, 2:], states, source, torch.ones(3, 4, dtype=torch.int64), *past)
            last = case.step(*case.steps_input(**EXAMPLE).values())
            empty = case.step(*case.steps_input(**OTHERS[0]).values())
    except Exception as error:
        raise LeftOutError(f"does not run in steps: {line(error)}") from error
    if not all(torch.isfinite(tensor).all() for tensor in (*second, *last, *empty)):
        raise LeftOutError("gives numbers that are not finite")
    if not torch.allclose(second[0], plain.logits[:, 2:], rtol=1e-3, atol=1e-3):
        raise LeftOutError("says other things in steps than of all tokens at once")
