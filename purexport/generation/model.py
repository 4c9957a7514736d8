"""`load_pretrained`: a folder as an object that is called as the model was, and that generates text.

    model = purexport.load_pretrained("out")
    tokens = model.generate(**tokenizer("Once upon a time", return_tensors="np"), max_new_tokens=20)

Which class a folder gets is said by its files.  torch's tensors may be given, and then they are what is returned; numpy
and a runtime are all that is needed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from purexport.errors import ExportError
from purexport.generation.decoding import DecoderCache, Decoding, PairedDecoding
from purexport.generation.files import KINDS, PAST, SINGLE, GraphFile, config_in, files_of
from purexport.generation.sessions import RUNTIMES, Array, RunnableFile, opened
from purexport.generation.settings import chooser_of, ends_of, last_length, merged, settings_from

_IGNORED = ("use_cache", "return_dict")  # of calls, where they ask for what is done here
_MASK, _IDS = "attention_mask", "input_ids"
# types of models whose `generate` leaves the tokens out that it begins with
_PROMPTS_LEFT_OUT = ("whisper",)
# classes whose logits of each token are no next tokens
_LABELS = ("ForMaskedLM", "ForTokenClassification", "ForPreTraining", "ForCTC")


def load_pretrained(
    folder: str | os.PathLike[str],
    *,
    providers: Sequence[Any] | None = None,
    runtime: str | None = None,
) -> LoadedModel:
    """A folder that `language_model` or `pretrained_model` wrote, as an object that runs.

    Calling it takes the inputs of the model by name and returns its outputs: `logits`, `past_key_values` and so on.
    The models that generate text have `generate`.

    `runtime` is "onnxruntime", or "reference" for the evaluator of `proto_schema`, which is also taken where ONNX
    Runtime is not installed.  `providers` are ONNX Runtime's, in order (default: the CPU's).  Caches stay on the device
    of the first one.

    Raises ExportError for a folder of another kind, and for a file with operators that the runtime lacks; OSError for
    files that are missing; ImportError where the asked runtime is not installed.
    """
    if runtime is not None and runtime not in RUNTIMES:
        raise ValueError(f"runtime={runtime!r} is not one of {', '.join(map(repr, RUNTIMES))}")
    place = Path(folder)
    files = files_of(place)
    config = config_in(place, "config.json")
    kind = _kind_of(files, config)
    return kind(place, config, {name: opened(file, runtime, providers) for name, file in files.items()})


def _kind_of(files: Mapping[str, GraphFile], config: Mapping[str, Any]) -> type[LoadedModel]:
    names = tuple(files)
    if names == KINDS[0]:
        return LoadedPictureModel
    if names == KINDS[1]:
        return LoadedEncoderDecoder
    if names == KINDS[2]:
        return LoadedDecoder
    file = files[SINGLE]
    if any(name.startswith(f"{PAST}.") for name in file.inputs):
        return LoadedDecoder
    classes = config.get("architectures") or [""]
    writes = [*file.outputs] == ["logits"] and len(file.outputs["logits"].shape) == 3 and _IDS in file.inputs
    return LoadedDecoder if writes and not str(classes[0]).endswith(_LABELS) else LoadedModel


class ModelOutputs(dict[str, Any]):
    """The outputs of a call by name, as attributes, and by place, as those of transformers are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the outputs are {', '.join(self)}, and not {name}") from None

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> tuple[Any, ...]:
        """The outputs in order."""
        return tuple(self.values())


def _is_torch(item: Any) -> bool:
    return type(item).__module__.partition(".")[0] == "torch"


def _arrays(given: Mapping[str, Any]) -> tuple[dict[str, Array], bool]:
    """Tensors of torch, arrays and lists as arrays, and whether torch's are among them."""
    found: dict[str, Array] = {}
    for name, item in given.items():
        if _is_torch(item):
            tensor = item.detach().cpu()
            found[name] = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
        else:
            found[name] = np.asarray(item)
    return found, any(_is_torch(item) for item in given.values())


def _returned(array: Any, in_torch: bool) -> Any:
    if not in_torch or not isinstance(array, np.ndarray):
        return array
    torch: Any = importlib.import_module("torch")
    return torch.from_numpy(np.ascontiguousarray(array))


class LoadedModel:
    """A model of one file, or of several: `config` is what config.json says."""

    def __init__(self, folder: Path, config: Mapping[str, Any], runnables: Mapping[str, RunnableFile]) -> None:
        self.folder = folder
        self.config = dict(config)
        self._runnables = runnables

    def __call__(self, **inputs: Any) -> ModelOutputs:
        """The outputs of the file for its inputs, which are named as those of the model.

        Raises ValueError for an input that is missing, that the file does not have, or that does not fit.
        """
        (runnable,) = self._runnables.values()
        arrays, in_torch = _arrays(self._given(inputs))
        arrays = _complete(runnable.file, arrays)
        found = runnable.run({name: runnable.value(name, item) for name, item in arrays.items()})
        return ModelOutputs({name: _returned(item, in_torch) for name, item in found.items()})

    def _given(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: item for name, item in inputs.items() if item is not None and name not in _IGNORED}

    def generate(self, *_: Any, **__: Any) -> Any:
        """Raises ExportError: this model generates no text."""
        raise ExportError(
            f"{self.folder} has a model that generates no text ({', '.join(self.config.get('architectures') or [])}); "
            "call it",
            code="generates-no-text",
        )


def _complete(file: GraphFile, arrays: Mapping[str, Array], unused: Sequence[str] = ()) -> dict[str, Array]:
    """The inputs of a file, with a mask of ones where none is given.

    What a processor makes and the file does not take is left out if it says nothing: a mask of ones, types of zeros.
    Raises ValueError for other inputs, and for those that are missing.
    """
    found = {}
    for name, item in arrays.items():
        if name in file.inputs:
            found[name] = item
        elif not (name in unused or _says_nothing(name, item)):
            raise ValueError(f"{file.path.name} takes {', '.join(file.inputs)}, and not {name}; leave it out")
    for name, layout in file.inputs.items():
        if name in found:
            continue
        like = found.get(_IDS)
        if like is None or name not in (_MASK, "token_type_ids") or len(layout.shape) != like.ndim:
            raise ValueError(f"{file.path.name} takes {', '.join(file.inputs)}, and {name} is missing")
        found[name] = np.ones_like(like) if name == _MASK else np.zeros_like(like)
    return found


def _says_nothing(name: str, item: Array) -> bool:
    return bool(item.all()) if name == _MASK else name == "token_type_ids" and not item.any()


class GeneratingModel(LoadedModel):
    """A model that generates text.  `generation_config` has the settings of the folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any], runnables: Mapping[str, RunnableFile]) -> None:
        super().__init__(folder, config, runnables)
        self.generation_config = settings_from(config_in(folder, "generation_config.json"), config)
        *others, last = runnables.values()
        counts = (folder / "genai_config.json").is_file()
        is_pair = tuple(runnables) == KINDS[2]
        self._decoding = PairedDecoding(others[0], last) if is_pair else Decoding(last, counts)

    def generate(
        self,
        inputs: Any = None,
        *,
        generation_config: Any = None,
        logits_processor: Sequence[Any] | None = None,
        stopping_criteria: Sequence[Any] | None = None,
        streamer: Any = None,
        **options: Any,
    ) -> Any:
        """The text that follows: [rows, tokens] with the prompt, as `generate` of transformers returns it.

        `inputs` are the tokens of the prompt (of the encoder, where there is one); other inputs are given by name, as
        to a call.  `options` are settings of transformers' GenerationConfig.  The choice is greedy, or with
        `do_sample=True` a sample.  `logits_processor`, `stopping_criteria` and `streamer` are as in transformers.

        Raises ValueError for settings that this does not follow, such as `num_beams`, and for more tokens than a
        cache has room for; ExportError for settings that take transformers, where it is not installed.
        """
        taken = self._input_names()
        given = {name: options.pop(name) for name in list(options) if name in taken}
        given |= {} if inputs is None else {self._main_input(): inputs}
        arrays, in_torch = _arrays(self._given(given))
        prompted = self._prompt_options(options)
        settings = merged(self.generation_config, generation_config, options)
        text, mask, cache = self._begun(arrays, settings, prompted)
        longest = last_length(settings, text.shape[1], self._text_config().get("max_position_embeddings"))
        encoder_ids = arrays.get(_IDS) if self.config.get("is_encoder_decoder") else None
        choose = chooser_of(settings, self.config, text, mask, encoder_ids, longest, logits_processor)
        hidden = text.shape[1] if self.config.get("model_type") in _PROMPTS_LEFT_OUT else 0
        ends, going = ends_of(settings), np.ones(len(text), np.bool_)
        filler = settings.get("pad_token_id")
        filler = filler if filler is not None else ends[0] if ends else 0
        mask = np.ones_like(text) if mask is None else mask
        new: Array = text
        if streamer is not None:
            streamer.put(_returned(text, True))
        while text.shape[1] < longest and going.any():
            logits, cache = self._advanced(text, new, mask, arrays, cache)
            new = np.where(going, choose(text, logits), filler)[:, None].astype(np.int64)
            text = np.concatenate([text, new], 1)
            mask = np.concatenate([mask, np.ones_like(new)], 1)
            going &= ~np.isin(new[:, 0], ends)
            for criterion in stopping_criteria or ():
                going &= ~np.asarray(criterion(_returned(text, True), None))
            if streamer is not None:
                streamer.put(_returned(new[:, 0], True))
        if streamer is not None:
            streamer.end()
        return _returned(text[:, hidden:], in_torch)

    def _text_config(self) -> Mapping[str, Any]:
        nested = self.config.get("text_config")
        return nested if isinstance(nested, dict) else self.config

    def _main_input(self) -> str:
        return _IDS

    def _input_names(self) -> set[str]:
        """The inputs that calls of the whole model take."""
        return {name for one in self._runnables.values() for name in one.file.inputs} | {"token_type_ids", _MASK}

    def _prompt_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options that say how a prompt is made, taken out of the others."""
        return {}

    def _begun(
        self, arrays: dict[str, Array], settings: Mapping[str, Any], prompted: Mapping[str, Any]
    ) -> tuple[Array, Array | None, DecoderCache]:
        """The tokens of the prompt, their mask, and the cache before them."""
        if _IDS not in arrays:
            raise ValueError("generate needs input_ids, the tokens of a prompt")
        ids = np.asarray(arrays[_IDS], np.int64)
        mask = arrays.get(_MASK)
        mask = _shown(ids, settings) if mask is None else np.asarray(mask, np.int64)
        return ids, mask, self._decoding.empty(len(ids))

    def _advanced(
        self, text: Array, new: Array, mask: Array, arrays: Mapping[str, Array], cache: DecoderCache
    ) -> tuple[Array, DecoderCache]:
        """The logits behind the last token of each row, and the cache with the new tokens."""
        if not self._decoding.keeps:
            cache, new = self._decoding.empty(len(text)), text
        positions = np.where(mask == 0, 0, mask.cumsum(1) - 1)[:, -new.shape[1] :]
        logits, cache = self._decoding.step({_IDS: new}, mask, positions, cache, is_last_use=True)
        return logits[:, -1], cache


def _shown(ids: Array, settings: Mapping[str, Any]) -> Array:
    """The mask of a prompt without one: tokens of padding are hidden, if padding is no end of a text."""
    pad = settings.get("pad_token_id")
    if pad is None or pad in ends_of(settings) or not (ids == pad).any():
        return np.ones_like(ids)
    return np.asarray(ids != pad, np.int64)


class LoadedDecoder(GeneratingModel):
    """A decoder."""

    def __call__(self, input_ids: Any = None, **inputs: Any) -> ModelOutputs:
        """The logits of tokens, and the cache as `past_key_values`, which the next call may be given.

        `attention_mask` is over the past and the new tokens.  Raises ValueError for inputs that do not fit.
        """
        cache = inputs.pop("past_key_values", None)
        given, in_torch = _arrays(self._given({_IDS: input_ids, **inputs}))
        if _IDS not in given:
            raise ValueError("input_ids are missing")
        ids, mask, positions = given.pop(_IDS), given.pop(_MASK, None), given.pop("position_ids", None)
        _refuse_unknown(given, SINGLE)
        before = self._decoding.empty(len(ids)) if cache is None else cache
        logits, after = self._decoding.step({_IDS: ids}, mask, positions, before)
        kept = {PAST: after} if self._decoding.keeps else {}
        return ModelOutputs(logits=_returned(logits, in_torch), **kept)


def _refuse_unknown(arrays: Mapping[str, Array], file: str) -> None:
    """Raise ValueError for inputs that a file does not take, unless they say nothing."""
    for name, item in arrays.items():
        if not _says_nothing(name, item):
            raise ValueError(f"{file} takes no {name}; leave it out")


class LoadedEncoderDecoder(GeneratingModel):
    """An encoder-decoder: an encoder runs once, a decoder step by step."""

    def __call__(self, **inputs: Any) -> ModelOutputs:
        """The logits of `decoder_input_ids`, and the cache as `past_key_values`.

        With a cache the inputs of the encoder are not needed.  Raises ValueError for inputs that do not fit.
        """
        cache = inputs.pop("past_key_values", None)
        given, in_torch = _arrays(self._given(inputs))
        if "decoder_input_ids" not in given:
            raise ValueError("decoder_input_ids are missing, the tokens of the decoder")
        ids = np.asarray(given.pop("decoder_input_ids"), np.int64)
        hidden = {}
        if cache is None:
            cache, encoded = self._encoded(given, len(ids))
            hidden = {"encoder_last_hidden_state": _returned(encoded, in_torch)}
        logits, after = self._decoding.step({_IDS: ids}, None, None, cache)
        return ModelOutputs({"logits": _returned(logits, in_torch), PAST: after, **hidden})

    def _encoded(self, arrays: Mapping[str, Array], batch: int) -> tuple[DecoderCache, Array]:
        """The cache before the first token, and the last hidden state of the encoder."""
        encoder = self._runnables[KINDS[1][0]]
        complete = _complete(encoder.file, arrays, (_MASK,))
        values = {name: encoder.value(name, item) for name, item in complete.items()}
        caches = {name: name.replace("present", PAST) for name in encoder.file.outputs if name.startswith("present.")}
        found = encoder.run(values, caches)
        same = {given: found[name] for name, given in caches.items() if self._decoding.takes(given)}
        if self._decoding.takes("encoder_attention_mask"):
            mask = arrays.get(_MASK, complete.get(_MASK))
            mask = np.ones(found["last_hidden_state"].shape[:2], np.int64) if mask is None else mask
            same["encoder_attention_mask"] = self._decoding.runnable.value("encoder_attention_mask", mask)
        return self._decoding.empty(batch, same), found["last_hidden_state"]

    def _main_input(self) -> str:
        return next(name for name in self._runnables[KINDS[1][0]].file.inputs if name != _MASK)

    def _input_names(self) -> set[str]:
        return {*self._runnables[KINDS[1][0]].file.inputs, _MASK, "decoder_input_ids"}

    def _prompt_options(self, options: dict[str, Any]) -> dict[str, Any]:
        names = ("language", "task") if "lang_to_id" in self.generation_config else ()
        return {name: options.pop(name) for name in names if name in options}

    def _begun(
        self, arrays: dict[str, Array], settings: Mapping[str, Any], prompted: Mapping[str, Any]
    ) -> tuple[Array, Array | None, DecoderCache]:
        encoder, main = self._runnables[KINDS[1][0]].file, self._main_input()
        if main not in arrays:
            raise ValueError(f"generate needs {main}, the input of {encoder.path.name}")
        batch = len(arrays[main])
        if _MASK not in arrays and main == _IDS:
            arrays[_MASK] = _shown(np.asarray(arrays[_IDS], np.int64), settings)
        ids = arrays.pop("decoder_input_ids", None)
        start = settings.get("decoder_start_token_id")
        start = settings.get("bos_token_id") if start is None else start
        if start is None and ids is None:
            raise ValueError(
                "neither the configs of the folder nor the call say decoder_start_token_id, the token to begin with"
            )
        cache, _ = self._encoded(arrays, batch)
        if ids is None:
            ids = self._first_tokens(np.full((batch, 1), start, np.int64), settings, prompted, cache)
        elif start is not None and self.config.get("model_type") != "whisper" and (ids[:, 0] != start).all():
            ids = np.concatenate([np.full((batch, 1), start), ids], 1)
        return np.asarray(ids, np.int64), None, cache

    def _first_tokens(
        self, start: Array, settings: Mapping[str, Any], prompted: Mapping[str, Any], cache: DecoderCache
    ) -> Array:
        """The tokens that a text begins with; those of Whisper say its language and what to do.

        The language is the likeliest one where none is given.  Raises ValueError for languages that there are not.
        """
        languages: Mapping[str, int] = settings.get("lang_to_id") or {}
        if not languages:
            return start
        language = prompted.get("language") or settings.get("language")
        if language is None:
            logits, _ = self._decoding.step({_IDS: start}, None, None, cache)
            known = np.array(sorted(languages.values()))
            chosen = known[logits[:, -1, known].argmax(-1)]
        else:
            code = language if language in languages else f"<|{language}|>"
            if code not in languages:
                raise ValueError(f"language={language!r} is not one of {', '.join(name[2:-2] for name in languages)}")
            chosen = np.full(len(start), languages[code])
        tasks: Mapping[str, int] = settings.get("task_to_id") or {}
        task = prompted.get("task") or settings.get("task") or "transcribe"
        if task not in tasks:
            raise ValueError(f"task={task!r} is not one of {', '.join(tasks)}")
        found = [start, chosen[:, None], np.full_like(start, tasks[task])]
        if settings.get("no_timestamps_token_id") is not None:
            found.append(np.full_like(start, settings["no_timestamps_token_id"]))
        return np.concatenate(found, 1)

    def _advanced(
        self, text: Array, new: Array, mask: Array, arrays: Mapping[str, Array], cache: DecoderCache
    ) -> tuple[Array, DecoderCache]:
        logits, cache = self._decoding.step({_IDS: new}, None, None, cache, is_last_use=True)
        return logits[:, -1], cache


class LoadedPictureModel(GeneratingModel):
    """A model of pictures and text: pictures to features, tokens and features to embeddings, and a decoder of these."""

    def __call__(self, input_ids: Any = None, **inputs: Any) -> ModelOutputs:
        """The logits of tokens, and the cache as `past_key_values`; `pixel_values` are those of all pictures in them.

        Raises ValueError for inputs that do not fit.
        """
        cache = inputs.pop("past_key_values", None)
        given, in_torch = _arrays(self._given({_IDS: input_ids, **inputs}))
        if _IDS not in given:
            raise ValueError("input_ids are missing")
        ids, mask = np.asarray(given[_IDS], np.int64), given.get(_MASK)
        before = self._decoding.empty(len(ids)) if cache is None else cache
        positions = given.get("position_ids")
        if positions is None and self._has_three_positions():
            if before.get_seq_length():
                raise ValueError("position_ids are missing: with a cache they depend on the pictures before the tokens")
            positions = self._positions(ids, np.ones_like(ids) if mask is None else mask, given)
        logits, after = self._decoding.step(self._embedded(ids, given), mask, positions, before)
        return ModelOutputs({"logits": _returned(logits, in_torch), PAST: after})

    def _token(self) -> int:
        return int(self.config.get("image_token_id", self.config.get("image_token_index", -1)))

    def _input_names(self) -> set[str]:
        return super()._input_names() | {"image_grid_thw", "mm_token_type_ids", "image_sizes"}

    def _embedded(self, ids: Array, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """What the decoder is given for tokens."""
        embedding = self._runnables[KINDS[0][1]]
        if "pixel_values" in arrays:
            features = self._features(arrays)
            places, count = int((ids == self._token()).sum()), len(features["image_features"])
            if places != count:
                raise ValueError(
                    f"input_ids have {places} tokens for pictures, and pixel_values give {count}; give what the "
                    "model's processor makes of the text and all its pictures"
                )
        else:
            layouts = {name: item for name, item in embedding.file.inputs.items() if name != _IDS}
            features = {name: np.zeros((0, int(item.shape[-1])), np.float32) for name, item in layouts.items()}
        feed = {_IDS: ids, **features}
        found = embedding.run({name: embedding.value(name, item) for name, item in feed.items()})
        types = arrays.get("token_type_ids")
        types = (ids == self._token()).astype(np.int64) if types is None else types[:, -ids.shape[1] :]
        return {**found, "token_type_ids": types}

    def _features(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """One row for each token of a picture, of each layer: the file takes one picture of one size."""
        vision = self._runnables[KINDS[0][0]]
        pixels = arrays["pixel_values"]
        shape = [int(size) for size in vision.file.inputs["pixel_values"].shape]
        if pixels.ndim < len(shape) or list(pixels.shape[-len(shape) + 1 :]) != shape[1:] or pixels.size == 0:
            raise ValueError(
                f"pixel_values are {list(pixels.shape)}, and {vision.file.path.name} takes pictures as {shape}; write "
                "the folder with inputs= of this size"
            )
        pictures = pixels.reshape(-1, *shape)
        found = [vision.run({"pixel_values": vision.value("pixel_values", item)}) for item in pictures]
        return {name: np.concatenate([item[name] for item in found]) for name in found[0]}

    def _has_three_positions(self) -> bool:
        layout = self._decoding.runnable.file.inputs.get("position_ids")
        return layout is not None and len(layout.shape) == 3

    def _positions(self, ids: Array, mask: Array, arrays: Mapping[str, Array]) -> Array:
        """[3, rows, tokens]: time, row and column of the parts of pictures, and the same three for words.

        This is for a whole text: words count on from the largest position before them.  Raises ValueError for pictures
        without a grid.
        """
        grids = arrays.get("image_grid_thw")
        merge = int((self.config.get("vision_config") or {}).get("spatial_merge_size", 2))
        batch, count = ids.shape
        found = np.zeros((3, batch, count), np.int64)
        picture = iter([] if grids is None else grids.tolist())
        for row in range(batch):
            at, position = 0, 0
            while at < count:
                if ids[row, at] != self._token():
                    if mask[row, at]:
                        found[:, row, at] = position
                        position += 1
                    at += 1
                    continue
                grid = next(picture, None)
                if grid is None:
                    raise ValueError(
                        "image_grid_thw is missing: the sizes of the pictures, as the processor gives them"
                    )
                time, high, wide = grid[0], grid[1] // merge, grid[2] // merge
                places = np.stack(np.meshgrid(*map(np.arange, (time, high, wide)), indexing="ij")).reshape(3, -1)
                found[:, row, at : at + places.shape[1]] = position + places
                position, at = position + max(time, high, wide), at + places.shape[1]
        return found

    def _advanced(
        self, text: Array, new: Array, mask: Array, arrays: Mapping[str, Array], cache: DecoderCache
    ) -> tuple[Array, DecoderCache]:
        first = cache.get_seq_length() == 0
        given = arrays if first else {}
        if self._has_three_positions():
            positions = self._positions(text, mask, arrays)[..., -new.shape[1] :]
        else:
            positions = np.where(mask == 0, 0, mask.cumsum(1) - 1)[:, -new.shape[1] :]
        logits, cache = self._decoding.step(self._embedded(new, given), mask, positions, cache, is_last_use=True)
        return logits[:, -1], cache
