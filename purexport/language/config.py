"""What a config.json may say: which keys are left out before transformers sees it, and which values are refused.

A config names Python files (`auto_map`), packages with kernels (`attn_implementation`), other folders and other files.
None of that is followed: these keys are left out at every depth, and the report names those that mattered. transformers
takes names of dtypes for attributes of torch, makes as many objects as a number says, and reports the rest from deep
inside, so numbers and names are checked here first.
Invariant: nothing is imported, opened or made by what a config says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from proto_schema.tensors.dtypes import DTYPES
from purexport.errors import ExportError
from purexport.weights.stored import shown

# keys that name Python code of the folder, or of another repository
CODE = ("auto_map", "custom_generate", "custom_pipelines")
# keys whose values are looked up among functions, and in packages of kernels where there is no such function
KERNELS = (
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "experts_implementation",
    "_experts_implementation",
    "_experts_implementation_internal",
    "use_kernels",
    "kernel_config",
    "allow_all_kernels",
)
_OF_TORCH = ("eager", "sdpa", "batched_mm", "grouped_mm")  # functions that are transformers' own and plain torch
# keys that name other files, or say where the config came from
ELSEWHERE = ("configuration_files", "transformers_weights", "gguf_file", "name_or_path", "_name_or_path")
FLOATS = tuple(row.torch for row in DTYPES.values() if "float" in row.torch)  # the dtypes that weights can have
_DTYPE_KEYS = ("dtype", "torch_dtype")
_PACKED = "quantization_config"  # is read by the readers of weights only
DEEPEST = 64  # levels of objects and lists; real configs have about six

_THINGS = "layers|n_layer|blocks|depths?|stages|heads|experts|groups|codebooks|labels|branches"
# (how a key ends, what its number counts, the least, the most); the first row that fits counts.  A number of things is
# a number of Python objects that are made; real models have a tenth of the most or less.
LIMITS = tuple(
    (re.compile(rf"(?:{pattern})$"), what, least, most)
    for pattern, what, least, most in (
        ("attention_heads|num_heads|^n_head", "a number of heads", 1, 1 << 14),
        (rf"^(num|n)_(\w+_)?({_THINGS})|(encoder|decoder)_layers|^n_layer", "a number of things", 0, 1 << 16),
        (rf"(^|_)({_THINGS})", "a number of things, or an index", -(1 << 16), 1 << 16),  # vision_feature_layer: -2
        ("^(hidden_size|d_model|n_embd|vocab_size)", "a size", 1, 1 << 28),
        ("^(intermediate_size|ffn_dim|d_ff|n_inner|head_dim)", "a size", 0, 1 << 28),
        ("positions|position_embeddings|^n_ctx", "a number of positions", -1, 1 << 24),
    )
)
_SMALLEST, _LARGEST = -(1 << 63), 1 << 64  # of any other number: ids of tokens, seeds
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")
_WIDTHS = ("hidden_size", "d_model", "n_embd")
_WORDS = ("vocab_size",)
_INNER = ("intermediate_size", "ffn_dim", "d_ff", "n_inner")
# how many times the numbers of a checkpoint a model may have, and how many more: what is tied is stored once
TIED, BESIDE = 8, 1 << 24
FEW = 32  # layers that any model may have


def plain_config(found: Any, place: str) -> tuple[dict[str, Any], list[str]]:
    """(a config without what names code and other files, a remark on each such key that would have mattered).

    Raises ExportError, with `place` for the file, for a value that no model has.
    """
    if not isinstance(found, dict):
        raise _odd(place, f"it is {'null' if found is None else shown(found)}, not a JSON object")
    remarks: list[str] = []
    config: dict[str, Any] = _plain(found, place, remarks, 0)
    _check_names(config, place)
    for path, key, value in _entries(config):
        _check(f"{place}: {path}", key, value)
    return config, remarks


def _plain(value: Any, place: str, remarks: list[str], depth: int) -> Any:
    if depth > DEEPEST:
        raise _odd(place, f"it is nested more than {DEEPEST} levels deep")
    if isinstance(value, list):
        return [_plain(item, place, remarks, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, item in value.items():
        if key in CODE:
            if item:
                remarks.append(f"{place} names Python code in {key}, which is neither run nor copied")
        elif key in KERNELS and item not in _OF_TORCH:
            if item and item is not True:
                remarks.append(f"{place} asks for {shown(item)} as {key}, which is not loaded: it changes no number")
        elif key not in ELSEWHERE:
            kept[key] = _plain(item, place, remarks, depth + 1)
    return kept


def _entries(value: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """(path, key, value) of everything in a config; items of lists go by the key of the list."""
    for key, item in value.items():
        if key == _PACKED:
            continue
        where = f"{path}.{key}" if path else str(key)
        yield where, key, item
        if isinstance(item, dict):
            yield from _entries(item, where)
        elif isinstance(item, list):
            for number, entry in enumerate(item):
                yield f"{where}[{number}]", key, entry
                if isinstance(entry, dict):
                    yield from _entries(entry, f"{where}[{number}]")


def _check(place: str, key: str, value: Any) -> None:
    if key in _DTYPE_KEYS and value is not None:
        if value not in FLOATS:
            raise _odd(place, f"{shown(value)} is not a dtype of weights; known are {', '.join(FLOATS)}")
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    else:
        _check_number(place, key, value)


def _check_number(place: str, key: str, value: float) -> None:
    for pattern, what, least, most in LIMITS:
        if pattern.search(key):
            if not least <= value <= most:  # NaN too
                raise _odd(place, f"{shown(value)} is not {what}, from {least} to {most}")
            return
    if isinstance(value, int) and not _SMALLEST <= value < _LARGEST:
        raise _odd(place, f"{shown(value)} has more than 64 bits")


def _check_names(config: Mapping[str, Any], place: str) -> None:
    names = config.get("architectures")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise _odd(place, f"architectures is {shown(names)}, not a list of names of classes")
    kind = config.get("model_type")
    if kind is not None and not isinstance(kind, str):
        raise _odd(place, f"model_type is {shown(kind)}, not a name")


def taken_packing(config: dict[str, Any], place: str) -> list[dict[str, Any]]:
    """How the weights are packed, by the config and the configs in it, which are without that afterwards.

    The readers of weights see it; transformers' own would import packages for it.
    """
    found = []
    for path, part in list(_parts(config)):
        packed = part.pop(_PACKED, None)
        if packed is not None and not isinstance(packed, dict):
            raise _odd(f"{place}{path}", f"{_PACKED} is {shown(packed)}, not a JSON object")
        found += [packed] if packed is not None else []
    return found


def check_sizes(config: Mapping[str, Any], place: str, tensors: int, elements: int) -> None:
    """Raise ExportError for a config whose model would be far larger than its checkpoint, before it is made.

    `tensors` and `elements` are those of the checkpoint.  Each layer has a tensor of its own and one number for each
    element of the width, or more; the tables of tokens and the layers have at least a product of two sizes.
    """
    most, largest = TIED * elements + BESIDE, max(tensors, FEW)
    for path, part in _parts(config):
        layers = max((value for name in _LAYERS if type(value := part.get(name)) is int), default=0)
        width, inner, words = (_first(part, names) for names in (_WIDTHS, _INNER, _WORDS))
        wanted = (
            (f"{layers} layers", layers, largest, f"{tensors} tensors"),
            (f"{layers} layers of width {width}", layers * width, most, f"{elements} numbers"),
            (f"a layer of {width} times {inner}", width * inner, most, f"{elements} numbers"),
            (f"{words} tokens", words, most, f"{elements} numbers"),
        )
        for what, asked, bound, stored in wanted:
            if asked > bound:
                raise _odd(f"{place}{path}", f"{what} cannot fit the checkpoint, which has {stored}")


def _parts(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """A config and the configs in it, with the place of each for messages."""
    yield path, config
    for key, item in config.items():
        if isinstance(item, dict) and key != _PACKED:
            yield from _parts(item, f"{path}{': ' if not path else '.'}{key}")


def _first(part: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return next((value for name in names if type(value := part.get(name)) is int), 0)


def keys_of(config: Mapping[str, Any], value: Any) -> list[str]:
    """The places of a text in a config."""
    return [path for path, _, item in _entries(config) if isinstance(item, str) and item == value]


def code_of(found: Any) -> list[str]:
    """The keys of a file beside the config that name Python code, such as a class of a tokenizer."""
    if not isinstance(found, dict):
        return []
    return [key for key in CODE if found.get(key)]


def _odd(place: str, reason: str) -> ExportError:
    return ExportError(f"{place}: {reason}; take the config that belongs to the weights", code="odd-config")
