"""Folders as transformers.js reads them: graphs in onnx/ under its names, in several types beside each other.

onnx/model.onnx: decoders, and models that generate no text
onnx/encoder_model.onnx, onnx/decoder_model_merged.onnx: encoder-decoders
onnx/vision_encoder.onnx, onnx/embed_tokens.onnx, onnx/decoder_model_merged.onnx: pictures and text

The state of a convolution (LFM2) is past_conv.N and present_conv.N.

Its decoder of an encoder-decoder gets the encoder's result at every step, and a cache that is empty at the first one.
So the graph computes keys and values of cross attention for what the cache lacks: for all of it, or for nothing.
The model is captured once; files in other types are made of the same graphs (`VARIANTS`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import proto_schema as ps
from purexport.errors import ExportError
from purexport.language import encoder_decoder, vision
from purexport.language.checked import Written, check_steps
from purexport.language.exported import LanguageModelReport
from purexport.language.folder import refuse_others, removed_on_failure, write_files
from purexport.language.parts import BATCH, SIZES, GraphPart, Port, layers_of
from purexport.language.senses import PICTURES
from purexport.language.several import programs_of
from purexport.language.state import CacheSlot, slots_of, takes_any_length
from purexport.language.state import check as check_states
from purexport.language.state import parts_of as state_parts_of
from purexport.language.step import Decoder, decoder_of
from purexport.options import Options
from purexport.progress import FOLDER_STAGES, Progress
from purexport.runtime.sessions import session_of

TARGET = "transformers.js"
OPSET = 21  # which releases of the web runtime from 1.18 on load
FOLDER = "onnx"
# by the name of `dtype` in transformers.js: what is behind the name of a file, and how its weights are stored
VARIANTS = {"fp32": "", "fp16": "_fp16", "q8": "_quantized", "q4": "_q4", "q4f16": "_q4f16"}
_BITS = {"q8": "int8", "q4": "int4", "q4f16": "int4"}
_HALF = ("fp16", "q4f16")
MODEL, ENCODER, DECODER = "model", "encoder_model", "decoder_model_merged"
VISION, EMBEDDING = "vision_encoder", "embed_tokens"
_PAST, _NEW, _ENCODED = "past_sequence_length", "sequence_length", "past_encoder_sequence_length"
_GIVEN = ("inputs_embeds", "attention_mask", "position_ids")  # what its loop has for a decoder of pictures, but a cache
_MARK = 1.0  # of a picture's token
_KINDS = "token_type_ids"  # whether a token is a picture's
_CONFIG, _KEY = "config.json", "transformers.js_config"


class MergedStep(encoder_decoder.EncoderDecoderStep):
    """One step of an encoder-decoder, from the encoder's result, with keys and values of its cross attention so far."""

    def forward(self, input_ids: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """The logits, and the cache of each layer: of self attention after these tokens, of cross attention whole."""
        hidden, masks, past = rest[0], rest[1 : 1 + int(self.masked)], list(rest[1 + int(self.masked) :])
        lacking = hidden[:, past[2].shape[2] :]
        computed = encoder_decoder.cross_attention_of(self.model, self.encoded, lacking)
        for layer in range(len(past) // 4):
            for part in (0, 1):
                at = 4 * layer + 2 + part
                past[at] = torch.cat([past[at], computed[2 * layer + part]], 2)
        logits, *own = super().forward(input_ids, *masks, *past)
        cache = [
            item
            for layer in range(len(past) // 4)
            for item in (*own[2 * layer : 2 * layer + 2], *past[4 * layer + 2 : 4 * layer + 4])
        ]
        return (logits, *cache)


class EncodeOnly(encoder_decoder.Encode):
    """The encoder."""

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The last hidden state."""
        return super().forward(*tensors)[:1]


class EmbedTokens(nn.Module):
    """Tokens to embeddings."""

    def __init__(self, model: Any, marked: bool) -> None:
        super().__init__()
        self.model = model
        self._marked = marked

    def forward(self, input_ids: Tensor) -> Tensor:
        """[batch, tokens, hidden size], and one element more where these are marked as no picture's."""
        found: Tensor = self.model.get_input_embeddings()(input_ids)
        return _marked(found, 0.0) if self._marked else found


class MarkedSee(nn.Module):
    """Pictures to features that are marked as a picture's."""

    def __init__(self, see: Any) -> None:
        super().__init__()
        self.model = see.model  # whose names the checkpoint has
        self._see = (see,)
        self.fixed = see.fixed

    def forward(self, *tensors: Tensor) -> Tensor:
        """[places in the text, hidden size + 1]"""
        return _marked(self._see[0](*tensors), _MARK)


class MarkedStep(nn.Module):
    """One step of a decoder that is told which tokens are a picture's, by the last element of each embedding.

    The loop of transformers.js hands on nothing beside the embeddings, and puts the features among them as they are.
    """

    def __init__(self, step: Any, place: int) -> None:
        """`place` is that of the kinds of tokens among the inputs of `step`."""
        super().__init__()
        self.model = step.model  # whose names the checkpoint has
        self._step = (step,)
        self._place = place

    def forward(self, embedded: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """The logits, and the cache after these tokens."""
        kinds = (embedded[..., -1] > _MARK / 2).long()
        before = self._place - 1
        found: tuple[Tensor, ...] = self._step[0](embedded[..., :-1], *rest[:before], kinds, *rest[before:])
        return found


def _marked(rows: Tensor, mark: float) -> Tensor:
    return torch.cat([rows, torch.full_like(rows[..., :1], mark)], -1)


@dataclass(frozen=True)
class BrowserGraphs:
    """The graphs of a model under transformers.js's names, and their comparison with a model that has its weights."""

    parts: Sequence[GraphPart]
    compare: Callable[[Any, Mapping[str, Written]], float]


def graphs_of(model: Any, inputs: Mapping[str, Tensor] | None) -> BrowserGraphs:
    """The graphs of a model.  Raises ExportError for kinds that transformers.js has no loop for, and as parts do."""
    if encoder_decoder.is_encoder_decoder(model):
        return _of_encoder_decoder(model, inputs)
    if vision.has_pictures(model):
        return _of_pictures(model, inputs)
    slots = slots_of(model)
    if slots:
        return _of_states(model, slots)
    decoder = decoder_of(model)
    sizes = {-1: BATCH, -2: _PAST}
    inputs_of = dict(zip(decoder.input_names, decoder.example(), strict=True))
    past = list(layers_of("past_key_values", decoder.layers, ""))
    shapes: dict[str, tuple[int | str, ...]] = {
        "attention_mask": (BATCH, "total_sequence_length"),
        **{
            name: tuple(sizes.get(size, size) for size in shape)
            for name, shape in zip(past, decoder.shapes, strict=True)
        },
    }
    below = {"input_ids": decoder.vocabulary, "position_ids": 2}
    ports = [
        Port(name, shapes.get(name, (BATCH, _NEW)), item.dtype, below.get(name, 0)) for name, item in inputs_of.items()
    ]
    part = GraphPart(f"{MODEL}.onnx", decoder.step, ports, decoder.output_names, SIZES)

    def compare(loaded: Any, runs: Mapping[str, Written]) -> float:
        compared: Decoder = replace(decoder, whole=decoder_of(loaded).whole)
        return check_steps(compared, lambda feed: list(runs[part.file](feed).values()))

    return BrowserGraphs([part], compare)


def _of_states(model: Any, slots: Sequence[CacheSlot]) -> BrowserGraphs:
    if any(slot.attribute == "recurrent_states" or slot.place for slot in slots) or not takes_any_length(model, slots):
        raise ExportError(
            f"{type(model).__name__} keeps states beside keys and values, and takes tokens one by one, which "
            "transformers.js does not do; write it for target='onnx'",
            code="not-a-decoder",
        )
    (part,) = state_parts_of(model, slots)
    ports = [replace(port, name=_of_convolution(port.name, "past_key_values", "past")) for port in part.inputs]
    outputs = [_of_convolution(name, "present", "present") for name in part.output_names]
    mine = replace(part, file=f"{MODEL}.onnx", inputs=ports, output_names=outputs)
    back = dict(zip(outputs, part.output_names, strict=True))

    def compare(loaded: Any, runs: Mapping[str, Written]) -> float:
        def called(feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
            given = {_of_convolution(name, "past_key_values", "past"): item for name, item in feed.items()}
            return {back[name]: item for name, item in runs[mine.file](given).items()}

        files: Any = {part.file: _as_file(called, runs[mine.file])}
        return check_states(loaded, [part], files)

    return BrowserGraphs([mine], compare)


def _of_convolution(name: str, before: str, after: str) -> str:
    """The name that transformers.js has for the state of a convolution; other names as they are."""
    layer = name.removesuffix(".conv_state")
    return name if layer == name else layer.replace(f"{before}.", f"{after}_conv.")


def _of_encoder_decoder(model: Any, inputs: Mapping[str, Tensor] | None) -> BrowserGraphs:
    encoder, decoder = encoder_decoder.parts_of(model, False, inputs)
    step: Any = decoder.module
    crossed = next(port for port in decoder.inputs if port.name.endswith(".encoder.key"))
    length = crossed.shape[2]
    ids, *rest = decoder.inputs
    masks = [port for port in rest if port.name == "encoder_attention_mask"]
    past = [
        replace(port, shape=(*port.shape[:2], _ENCODED, port.shape[3])) if ".encoder." in port.name else port
        for port in rest
        if port not in masks
    ]
    states = Port("encoder_hidden_states", (BATCH, length, step.width), crossed.dtype)
    encoded = decoder.sizes[length] if isinstance(length, str) else length
    sizes = {**decoder.sizes, _ENCODED: min(5, max(encoded - 1, 0))}
    outputs = ["logits", *layers_of("present", len(past) // 4, "decoder.", "encoder.")]
    merged = MergedStep(model, step.encoded, bool(masks), step.width, False).eval()
    encode = EncodeOnly(model, encoder.input_names).eval()
    parts = [
        replace(encoder, file=f"{ENCODER}.onnx", module=encode, output_names=encoder.output_names[:1]),
        GraphPart(f"{DECODER}.onnx", merged, [ids, states, *masks, *past], outputs, sizes),
    ]

    def compare(loaded: Any, runs: Mapping[str, Written]) -> float:
        """The files as those with the cross attention in the encoder: what one gives at its first step is kept."""
        first, second = runs[parts[0].file], runs[parts[1].file]
        state: dict[str, Tensor] = {}

        def start(feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
            state["encoder_hidden_states"] = first(feed)["last_hidden_state"]
            return {"last_hidden_state": state["encoder_hidden_states"]}

        def go_on(feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
            batch = len(feed["input_ids"])
            empty = {
                port.name: torch.zeros(batch, int(port.shape[1]), 0, int(port.shape[3]), dtype=port.dtype)
                for port in past
                if ".encoder." in port.name
            }
            given = {**feed, **empty, **state} | {name: state[name] for name in empty if name in state}
            found = second(given)
            kept = {name: item for name, item in found.items() if ".encoder." in name}
            if not any(name in state for name in empty):
                state.update({name.replace("present", "past_key_values"): item for name, item in kept.items()})
            return {name: item for name, item in found.items() if name not in kept}

        def again(feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
            state.clear()
            return start(feed)

        calls: Any = {encoder.file: _as_file(again, first), decoder.file: _as_file(go_on, second)}
        return encoder_decoder.check(loaded, [encoder, decoder], calls)

    return BrowserGraphs(parts, compare)


def _as_file(function: Callable[[Mapping[str, Tensor]], dict[str, Tensor]], file: Written) -> Any:
    """A function as a file: with the sizes that the file has fixed."""

    @functools.wraps(function)
    def called(feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return function(feed)

    called.held = file.held  # type: ignore[attr-defined]
    return called


def _of_pictures(model: Any, inputs: Mapping[str, Tensor] | None) -> BrowserGraphs:
    seen, embedding, decoder = vision.parts_of(model, False, inputs)
    names = [port.name for port in decoder.inputs]
    more = [name for name in names if name not in (*_GIVEN, _KINDS) and not name.endswith((".key", ".value"))]
    if more:
        raise ExportError(
            f"the decoder of {type(model).__name__} takes {', '.join(more)}, which transformers.js does not give it; "
            "write it for target='onnx'",
            code="not-a-decoder",
        )
    ids, marked, step, given = embedding.inputs[0], _KINDS in names, decoder, decoder.inputs
    if marked:
        embeds, *rest = decoder.inputs
        wide = replace(embeds, shape=(*embeds.shape[:2], int(embeds.shape[2]) + 1))
        given = [wide, *(port for port in rest if port.name != _KINDS)]
        seen = replace(seen, module=MarkedSee(seen.module).eval())
        step = replace(decoder, module=MarkedStep(decoder.module, names.index(_KINDS)).eval(), inputs=given)
    parts = [
        replace(seen, file=f"{VISION}.onnx"),
        GraphPart(f"{EMBEDDING}.onnx", EmbedTokens(model, marked).eval(), [ids], ["inputs_embeds"], embedding.sizes),
        replace(step, file=f"{DECODER}.onnx"),
    ]
    token = PICTURES.token(model)

    def compare(loaded: Any, runs: Mapping[str, Written]) -> float:
        pictures, tokens, last = (runs[part.file] for part in parts)

        def embedded(feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
            found = tokens(feed)["inputs_embeds"]
            if len(feed["image_features"]):
                found[feed["input_ids"] == token] = feed["image_features"]
            return {"inputs_embeds": found}

        def told(feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return dict(last({port.name: feed[port.name] for port in given}))

        calls: Any = {PICTURES.file: pictures, vision.EMBEDDING: _as_file(embedded, tokens)}
        calls[vision.DECODER] = _as_file(told, last)
        return vision.check(loaded, [seen, embedding, decoder], calls)

    return BrowserGraphs(parts, compare)


def variants_of(asked: Sequence[str] | str | None) -> list[str]:
    """The names of types in the order of `VARIANTS`; all by default.  Raises ValueError for others."""
    if asked is None:
        return list(VARIANTS)
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    for name in names:
        if name not in VARIANTS:
            raise ValueError(f"variants: {name!r} is not one of {', '.join(VARIANTS)}")
    if not names:
        raise ValueError(f"variants names no type; known are {', '.join(VARIANTS)}")
    return [name for name in VARIANTS if name in names]


def variant(model: ps.ModelProto, name: str, *, embeds: bool = False) -> ps.ModelProto:
    """A model in a type, of the floats that it has.  Where it `embeds`, its table is in fewer bits, too."""
    bits = _BITS.get(name)
    if bits is not None:
        model = ps.quantization.quantize(model, {"type": bits, "embeddings": embeds}, target="onnxruntime")
    return ps.convert_float(model, "float16") if name in _HALF else model


@contextmanager
def removed_in(place: Path, files: Iterable[str]) -> Iterator[None]:
    """Inside, an error removes the files that were written inside: graphs, their data, and `files` beside them."""
    stems = (MODEL, ENCODER, DECODER, VISION, EMBEDDING)
    graphs = [f"{stem}{suffix}.onnx" for stem in stems for suffix in VARIANTS.values()]
    names = [*graphs, *(f"{name}_data" for name in graphs)]
    with removed_on_failure(place, files), removed_on_failure(place / FOLDER, names):
        yield


def write_variants(
    models: Mapping[str, ps.ModelProto], place: Path, variants: Sequence[str], files: dict[str, bytes], told: Progress
) -> list[str]:
    """Write models in several types, and the configs beside them; the names of what was written.

    config.json says which files have their weights in a file of their own.  Raises as `proto_schema.save` does;
    FileExistsError where a config is there that says something else.
    """
    folder = place / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    written, outside = [], {}
    for name in variants:
        for file, model in models.items():
            path = folder / file.replace(".onnx", f"{VARIANTS[name]}.onnx")
            data = path.with_name(f"{path.name}_data")
            made = variant(model, name, embeds=file.startswith(EMBEDDING))
            ps.save(made, path, location=data.name, progress=told.bytes or None)
            written.append(f"{FOLDER}/{path.name}")
            if data.exists():
                written.append(f"{FOLDER}/{data.name}")
                outside[path.name] = 1
    if outside and _CONFIG in files:
        config = json.loads(files[_CONFIG])
        config[_KEY] = {**config.get(_KEY, {}), "use_external_data_format": outside}
        files[_CONFIG] = (json.dumps(config, indent=2) + "\n").encode()
    refuse_others(place, files)
    write_files(place, files)
    return [*written, *files]


def written(
    model: Any,
    graphs: BrowserGraphs,
    place: Path,
    files: dict[str, bytes],
    options: Options,
    variants: Sequence[str],
    positions: int | None,
    loaded: Callable[[], Any] | None,
) -> LanguageModelReport:
    """Write the graphs of a language model; the report.

    `loaded` gives the model with its weights, where its files are compared with it.

    Raises as `language_model` does.
    """
    told = Progress(options.progress, FOLDER_STAGES)
    models, report = programs_of(model, graphs.parts, options, "onnxruntime", positions, prove=loaded is not None)
    report.target = TARGET
    told.at("save")
    report.files = write_variants(models, place, variants, files, told)
    report.bytes = sum((place / name).stat().st_size for name in report.files)
    if loaded is not None:
        told.at("verify")
        runs = {part.file: Written(part, session_of(str(place / FOLDER / part.file))) for part in graphs.parts}
        report.difference = graphs.compare(loaded(), runs)
    return report
