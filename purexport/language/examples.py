"""Inputs that a model of transformers runs on, where only its config is known.

What a model takes first is said by its `main_input_name`: tokens, sounds, or pictures. The sizes of sounds and pictures
follow from numbers in configs, in a few layouts; the first that the model runs on is taken. A processor says more: its
outputs may be given instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from purexport.errors import ExportError
from purexport.language.library import library
from purexport.language.parts import BATCH, SIZES, Port

_TOKENS = ("input_ids",)
# the fields of configs that say how many numbers a frame of sound has, and how long a sound is
_FRAMES = (
    "num_mel_bins",
    "input_feat_per_channel",
    "feature_projection_input_dim",
    "feature_size",
    "d_model",
    "hidden_size",
)
_LENGTHS = ("max_source_positions", "max_position_embeddings")
_WHOLE = "max_length"  # of the spectrogram of AST, whose frames are first; as many patches come of it the other way
_LENGTH = "encoder_input_length"
_SIDE = 224  # of pictures for models that say no size

Runs = Callable[[Mapping[str, torch.Tensor]], bool]


def ports_of(
    model: Any, runs: Runs, given: Mapping[str, torch.Tensor] | None = None
) -> tuple[list[Port], dict[str, int]]:
    """The inputs of an encoder, and the sizes of an example; `runs` says whether the model runs on tensors.

    `given` is what a processor made. Raises ExportError where nothing is found that the model runs on.
    """
    dtype = next((item.dtype for item in model.parameters() if item.is_floating_point()), torch.float32)
    main = str(getattr(model, "main_input_name", "input_ids"))
    candidates = _of_given(given, dtype) if given is not None else _of_config(model, main, dtype)
    sizes = dict(SIZES)
    for ports, more in candidates:
        found = sizes | more
        if not runs(_tensors(ports, found)):
            continue
        length = next((size for size in ports[0].shape[1:] if isinstance(size, str)), None)
        masked = [*ports, Port("attention_mask", (BATCH, length or 1), torch.int64)]
        takes = "attention_mask" in inspect.signature(model.forward).parameters
        fits = takes and length and len(ports) == 1 and runs(_tensors(masked, found))
        return varying(masked if fits else ports, found, runs), found
    raise ExportError(
        f"no {main} were found that {type(model).__name__} runs on; give what its processor makes, as inputs={{...}}",
        code="not-a-decoder",
    )


def _tensors(ports: list[Port], sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {port.name: port.example(sizes, generator) for port in ports}


def varying(ports: list[Port], sizes: dict[str, int], runs: Runs) -> list[Port]:
    """The inputs, with numbers instead of the names of axes that the model wants at one size."""
    names = {size for port in ports for size in port.shape if isinstance(size, str) and size != BATCH}
    for name in sorted(names):
        if not runs(_tensors(ports, sizes | {name: 2 * sizes[name]})):
            ports = [
                replace(port, shape=tuple(sizes[name] if size == name else size for size in port.shape))
                for port in ports
            ]
    return ports


def _of_given(given: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Iterator[tuple[list[Port], dict[str, int]]]:
    """The tensors of a processor: their first axis is the batch, and the longest other one may vary."""
    ports, sizes = [], {}
    for name, item in given.items():
        shape: list[int | str] = [BATCH, *item.shape[1:]]
        if item.dim() > 1:
            at = max(range(1, item.dim()), key=lambda axis: item.shape[axis])
            shape[at] = "encoder_sequence_length" if name in (*_TOKENS, "attention_mask") else f"{name}_length"
            sizes[str(shape[at])] = int(item.shape[at])
        kind = dtype if item.is_floating_point() else item.dtype
        ports.append(Port(name, tuple(shape), kind, 0 if "mask" in name else int(item.max()) + 1))
    yield ports, sizes


def _of_config(model: Any, main: str, dtype: torch.dtype) -> Iterator[tuple[list[Port], dict[str, int]]]:
    if main in _TOKENS:
        words = int(getattr(model.config, "vocab_size", None) or model.config.get_text_config().vocab_size)
        yield [Port(main, (BATCH, "encoder_sequence_length"), torch.int64, words)], {}
        return
    yield from layouts_of(model, main, dtype, _LENGTH)


def layouts_of(model: Any, main: str, dtype: torch.dtype, frames: str) -> Iterator[tuple[list[Port], dict[str, int]]]:
    """What a model may take as its pictures or sounds, the likeliest first; `frames` is the name of a sound's axis."""
    fields = list(_fields(model.config))
    if main.startswith("pixel"):
        for name, size in fields:
            if name == "image_size":
                high, wide = size if isinstance(size, (list, tuple)) else (size, size)
                channels = next((item for key, item in fields if key in ("num_channels", "in_channels")), 3)
                yield [Port(main, (BATCH, channels, "height", "width"), dtype)], {"height": high, "width": wide}
        channels = next((item for key, item in fields if key in ("num_channels", "in_channels")), 3)
        yield [Port(main, (BATCH, channels, "height", "width"), dtype)], {"height": _SIDE, "width": _SIDE}
        return
    lengths = [2 * item for name, item in fields if name in _LENGTHS and isinstance(item, int)]
    bins = next((item for name, item in fields if name == _FRAMES[0]), None)
    for length in (item for name, item in fields if name == _WHOLE):
        if not isinstance(bins, int):
            break
        yield [Port(main, (BATCH, frames, bins), dtype)], {frames: length}
    for length in (*dict.fromkeys(lengths), 64, 3000):
        for wanted in _FRAMES:
            for count in dict.fromkeys(item for name, item in fields if name == wanted and isinstance(item, int)):
                for shape in ((BATCH, count, frames), (BATCH, frames, count)):
                    yield [Port(main, shape, dtype)], {frames: length}
    for length in (1600, 16000):
        yield [Port(main, (BATCH, frames), dtype)], {frames: length}


def pictures_of(model: Any, given: Mapping[str, torch.Tensor] | None) -> Iterator[list[Port]]:
    """What a model may take as one picture, the likeliest first, and examples of it.

    What `get_image_features` takes beside pixels says how the model cuts pictures: a grid of patches, patches with
    their positions, patches with a shape, or tiles of the sizes that the config lists.
    """
    taken = parameters_of(model, "get_image_features")
    dtype = next((item.dtype for item in model.parameters() if item.is_floating_point()), torch.float32)
    if given is not None:
        yield _ports_of_one(given, taken, dtype)
        return
    vision = getattr(model.config, "vision_config", model.config)

    def number(*names: str, default: int) -> int:
        found = (getattr(vision, name, getattr(model.config, name, None)) for name in names)
        numbers = (item[0] if isinstance(item, (list, tuple)) and item else item for item in found)
        return next((item for item in numbers if isinstance(item, int)), default)

    channels, patch = number("in_channels", "in_chans", "num_channels", default=3), number("patch_size", default=14)
    side = max(_SIDE // patch, 2)  # patches in a row, of towers that take pictures of any size

    def square(block: int) -> tuple[int, int]:
        return max(side // block, 2) * block, max(side // block - 1, 1) * block

    if "image_grid_thw" in taken:
        rows, columns = square(number("spatial_merge_size", default=2))
        pixels = (rows * columns, channels * number("temporal_patch_size", default=2) * patch * patch)
        grid = torch.tensor([[1, rows, columns]])
        yield [Port("pixel_values", pixels, dtype), Port("image_grid_thw", (1, 3), torch.int64, 1, grid)]
    if "spatial_shapes" in taken:
        rows, columns = square(number("downsample_factor", default=2))
        sizes, shown = torch.tensor([[rows, columns]]), torch.ones(1, rows * columns, dtype=torch.int64)
        yield [
            Port("pixel_values", (1, rows * columns, channels * patch * patch), dtype),
            Port("spatial_shapes", (1, 2), torch.int64, 1, sizes),
            Port("pixel_attention_mask", tuple(shown.shape), torch.int64, 1, shown),
        ]
    if "image_position_ids" in taken:
        rows, columns = square(number("pooling_kernel_size", default=3))
        places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).flip(1)[None]  # x, y
        yield [
            Port("pixel_values", (1, rows * columns, channels * patch * patch), dtype),
            Port("image_position_ids", tuple(places.shape), torch.int64, 1, places),
        ]
    size = getattr(vision, "image_size", _SIDE)
    high, wide = size if isinstance(size, (list, tuple)) else (size, size)
    whole = torch.tensor([[high, wide]])
    more = [Port("image_sizes", (1, 2), torch.int64, 1, whole)] if "image_sizes" in taken else []
    tiles = _tiles(model.config, high, wide) if more else 1
    for shape in ((1, channels, high, wide), (1, tiles, channels, high, wide)):
        yield from ([Port("pixel_values", shape, dtype), *extra] for extra in ((more, []) if more else ([],)))


def sounds_of(model: Any, given: Mapping[str, torch.Tensor] | None) -> Iterator[list[Port]]:
    """What a model may take as one sound, the likeliest first, and examples of it: frames of numbers, and masks of
    frames that are all heard.
    """
    taken = parameters_of(model, "get_audio_features")
    dtype = next((item.dtype for item in model.parameters() if item.is_floating_point()), torch.float32)
    if given is not None:
        yield _ports_of_one(given, taken, dtype)
        return
    audio = next((getattr(model.config, name) for name in _AUDIO if hasattr(model.config, name)), model.config)
    counts = [getattr(audio, name) for name in ("num_mel_bins", "input_dim", "feature_size") if hasattr(audio, name)]
    longest = getattr(audio, "max_source_positions", None)
    main = next(iter(taken))
    for length in (*([2 * longest] if isinstance(longest, int) else ()), 200, 3000):
        masks = [Port(name, (1, length), torch.int64) for name in taken if "mask" in name]
        for count in dict.fromkeys(counts):
            for shape in ((1, count, length), (1, length, count)):
                yield [Port(main, shape, dtype), *masks]


_AUDIO = ("audio_config", "encoder_config")


def parameters_of(model: Any, method: str) -> Mapping[str, inspect.Parameter]:
    """What a method of a model takes, which may only hand on what it is given to that of the model inside."""
    for owner in (model, getattr(model, "model", None)):
        found = inspect.signature(getattr(owner, method)).parameters if hasattr(owner, method) else {}
        named = {name: item for name, item in found.items() if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)}
        if named:
            return named
    return {}


def _ports_of_one(given: Mapping[str, torch.Tensor], taken: Collection[str], dtype: torch.dtype) -> list[Port]:
    """The tensors of a processor that are taken, of these sizes; integers are the only value of their input."""
    return [
        Port(
            name,
            tuple(item.shape),
            dtype if item.is_floating_point() else item.dtype,
            1,
            None if item.is_floating_point() else item,
        )
        for name, item in given.items()
        if name in taken
    ]


def _tiles(config: Any, high: int, wide: int) -> int:
    """How many tiles a picture of the tower's own size becomes, with the picture itself; 1 where it is not cut."""
    listed = getattr(config, "image_grid_pinpoints", None)
    if not listed:
        return 1
    rows, columns = library("image_processing_utils").select_best_resolution((high, wide), listed)
    return int(-(-rows // high) * -(-columns // wide)) + 1


def _fields(config: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a config and of those in it."""
    for name, item in vars(config).items():
        if hasattr(item, "to_dict"):
            yield from _fields(item)
        elif isinstance(item, (int, list, tuple)):
            yield name, item
