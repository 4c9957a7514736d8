"""Folders of language models: what `save_pretrained` writes, read; and the folder for a runtime, written.

The weights of a folder are never loaded: the model is made with parameters that have no values, and the bytes go from
the checkpoint to the file.
"""

from __future__ import annotations

import copy
import errno
import json
import math
import os
import re
import stat
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proto_schema.errors import bounded
from proto_schema.files.commit import replacing
from proto_schema.files.durable import remove_all
from proto_schema.files.owned import files_of
from purexport.errors import ExportError, is_out_of_memory
from purexport.language.building import bounded_building
from purexport.language.config import CODE, check_sizes, code_of, keys_of, plain_config, taken_packing
from purexport.language.conversion import converted, loaded_tensor
from purexport.language.folder_files import check_index, contents_of, file_in, json_of
from purexport.language.library import library, offline, without_bars
from purexport.language.llamacpp import of_llama_cpp
from purexport.language.step import Decoder
from purexport.language.tasks import is_encoder
from purexport.language.trusted import AUTO_CLASSES, trusted_class, trusted_config, warning
from purexport.torch_patches.empty import parameters_without_values
from purexport.weights import torchdcp
from purexport.weights.checkpoint import Checkpoint
from purexport.weights.model.mapped import Mapped
from purexport.weights.source import Weights, open_weights
from purexport.weights.stored import Stored, listed, shown

MODEL_FILE = "model.onnx"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# what a tokenizer and `generate` read, beside the weights
_BESIDE = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken")
READ_METHODS = ("gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors", "modelopt")
_NOT_BESIDE = ("*.index.json", "genai_config.json")
_LLAMA_CPP, _LATER_PART = ".gguf", re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_DATA = re.compile(r"(\.\d+)?(-\d{5}-of-\d{5})?\.data.*")  # behind the name of a model that has a data file
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # organisation and name
_INDEX, _SINGLE, _CONFIG = "model.safetensors.index.json", "model.safetensors", "config.json"
_HEADS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT")
# The runtime chooses how to run a decoder by this word; every plain decoder with a cache runs in the same way.
_PLAIN_DECODER = "llama"


@dataclass(frozen=True)
class ModelFolder:
    """A folder that was looked at: the config as one of floats, the weights, and what the report says of both."""

    folder: Path
    plain: Mapping[str, Any]  # the config as it is in the file
    config: Any
    kind: Any  # the class of the model
    weights: Weights
    path: Path  # of the weights
    is_packed: bool  # whether they are codes
    remarks: list[str]

    @property
    def elements(self) -> int:
        """How many numbers the weights are."""
        return _elements(self.weights)


def look_into(
    folder: Path,
    trust_remote_code: bool = False,
    chosen: Callable[[Any], Any] | None = None,
    autos: Sequence[str] = AUTO_CLASSES,
) -> ModelFolder:
    """What is in a folder.  No code of the folder runs, unless `trust_remote_code`; then a warning comes first.

    `chosen` says which class of transformers a config is for (`class_of`); with `trust_remote_code` one that the
    folder's code has for `autos` comes first.

    Raises ExportError for a folder without a model in it, for links that lead elsewhere, and for a config that no
    model has or that needs code of the folder; OSError, WeightsError.
    """
    place = folder / _CONFIG
    _check_is_there(place)
    said = json_of(folder, _CONFIG)
    plain, remarks = plain_config(said, str(place))
    is_packed = _is_packed(folder, taken_packing(plain, str(place)))
    if not trust_remote_code:
        _check_type(place, plain.get("model_type"), code_of(said))
    path = _weights_of(folder)
    weights = open_weights(path)
    check_sizes(plain, str(place), len(weights), _elements(weights))
    if trust_remote_code:
        remarks = [warning(folder)]
        warnings.warn(remarks[0], UserWarning, stacklevel=3)
    with _refused_as_odd(place, "make a config", plain), offline():
        config = trusted_config(folder) if trust_remote_code else _config_of(folder, plain)
        if getattr(config, "quantization_config", None) is not None:
            del config.quantization_config
        kind = (trusted_class(config, folder, autos) if trust_remote_code else None) or (chosen or class_of)(config)
    return ModelFolder(folder, plain, config, kind, weights, path, is_packed, remarks)


def _check_is_there(place: Path) -> None:
    """Raise ExportError for a folder without a config; OSError for a folder that is not there or cannot be read."""
    try:
        place.parent.stat()
    except FileNotFoundError as error:
        if not _HUB_ID.fullmatch(str(place.parent)):
            raise
        name = str(place.parent)
        raise FileNotFoundError(
            errno.ENOENT,
            "there is no such folder, and nothing is downloaded here; if it is a model of the hub, get its folder "
            f"first: hf download {name} --local-dir {place.parent.name}",
            name,
        ) from error
    try:
        if stat.S_ISREG(place.stat().st_mode):
            return
    except (FileNotFoundError, NotADirectoryError):
        pass
    raise ExportError(
        f"{place.parent} has no {place.name}; a folder as model.save_pretrained writes it is needed",
        code="not-a-decoder",
    )


def _check_type(place: Path, name: Any, code: list[str]) -> None:
    """Raise ExportError for a model_type that transformers does not have; `code` are keys that name Python code."""
    if name in library("models.auto.configuration_auto").CONFIG_MAPPING:
        return
    what = "it has no model_type" if name is None else f"transformers has no model_type {shown(name)}"
    if code:
        raise ExportError(
            f"{place}: {what}, and the Python code that {code[0]} names is not run; if you trust its author, "
            "--trust-remote-code (trust_remote_code=True) runs it",
            code="runs-code",
        )
    raise ExportError(f"{place}: {what}; a newer release may have it", code="not-a-decoder")


def _config_of(folder: Path, plain: Mapping[str, Any]) -> Any:
    """transformers' config of a plain one, which it reads from a folder where nothing else is."""
    with tempfile.TemporaryDirectory() as place:
        write_files(Path(place), {_CONFIG: json.dumps(plain).encode()})
        config = library().AutoConfig.from_pretrained(place, local_files_only=True, trust_remote_code=False)
    config.name_or_path = str(folder)
    return config


def read_folder(source: ModelFolder) -> tuple[Any, Checkpoint]:
    """The model of a folder, without values of parameters, and the checkpoint with them, for a `Step` of the model.

    Raises ExportError for a model that cannot be made of the config, or is far larger than the checkpoint.
    """
    with (
        _refused_as_odd(source.folder / _CONFIG, f"make {source.kind.__name__}", source.plain),
        offline(),
        parameters_without_values(),
        bounded_building(len(source.weights), source.elements),
    ):
        model = source.kind._from_config(source.config)
    found = _tensors_of(model, source)
    _check_found(model, found, source)
    return model.eval(), Checkpoint(found, rename={"": "model."}, strict=False, cast=True)


def _check_found(model: Any, found: Mapping[str, Stored], source: ModelFolder) -> None:
    """Raise ExportError where the checkpoint has less than half of the parameters; those that are tied count once.

    Each single one is asked for when the graph needs it, which is after the capture.
    """
    names: defaultdict[int, set[str]] = defaultdict(set)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].add(name)
    missing = [min(same) for same in names.values() if same.isdisjoint(found)]
    if 2 * len(missing) > len(names):
        raise ExportError(
            f"{source.path} has {len(found)} of the {len(names)} parameters of {type(model).__name__}, and not "
            f"{listed(missing)}; take the config.json that belongs to the weights",
            code="odd-config",
        )


def loaded(source: ModelFolder, dtype: torch.dtype | None) -> Any:
    """The model of a folder with its weights, in torch.

    The weights come from the readers that fill the file, and transformers makes the parameters of them by its own
    rules.  Codes become the floats that they stand for.
    """
    kinds = {} if dtype is None else {"dtype": dtype}
    with offline(), without_bars():
        if not source.is_packed and not source.path.name.endswith(_LLAMA_CPP):
            mapped = Mapped(runs=True)
            values = {name: _value(mapped, stored) for name, stored in source.weights.items()}
            model = source.kind.from_pretrained(
                None, config=source.config, state_dict=values, trust_remote_code=False, **kinds
            )
            return model.eval()
        model = source.kind._from_config(source.config, **kinds)
    found = _tensors_of(model, source)
    model.load_state_dict({name: loaded_tensor(stored) for name, stored in found.items()}, strict=False)
    model.tie_weights()
    return model.eval()


def changed_by_loading(model: Any, source: ModelFolder) -> list[str]:
    """The weights of a model of `loaded` that transformers has given other values than the folder has."""
    own = model.state_dict()
    stored = {name: loaded_tensor(item).to(own[name].dtype) for name, item in _tensors_of(model, source).items()}
    return [name for name, values in stored.items() if not torch.equal(own[name], values)]


def _value(mapped: Mapped, stored: Stored) -> Tensor:
    tensor = mapped.view(stored)
    return loaded_tensor(stored) if tensor is None else tensor


def _tensors_of(model: Any, source: ModelFolder) -> dict[str, Stored]:
    """The tensors of a folder by the names of its model's."""
    found: Mapping[str, Stored] = source.weights
    if source.path.name.endswith(_LLAMA_CPP):
        found = of_llama_cpp(model.config, source.path, found)
    return converted(model, found)


def _elements(weights: Weights) -> int:
    return sum(math.prod(stored.shape) for stored in weights.values())


def running(source: ModelFolder | None) -> AbstractContextManager[None]:
    """Inside, the model of a folder runs for the first time, without values; what it raises is said of its config."""
    if source is None:
        return nullcontext()
    return _refused_as_odd(source.folder / _CONFIG, f"run {source.kind.__name__}", source.plain)


@contextmanager
def _refused_as_odd(place: Path, what: str, plain: Mapping[str, Any]) -> Iterator[None]:
    """Inside, whatever transformers says of a config is an ExportError of one line; errors of the system stay."""
    try:
        yield
    except (ExportError, MemoryError, OSError, ModuleNotFoundError):
        raise
    except Exception as error:  # of transformers' code, which raises what its first use of a value raises
        if is_out_of_memory(error):
            raise MemoryError(f"{place}: there is too little memory to {what}") from error
        keys = keys_of(plain, error.args[0]) if isinstance(error, KeyError) and error.args else []
        reason = f"{type(error).__name__}: {error}" if not keys else f"it has no {error} for {', '.join(keys)}"
        reason = " ".join(reason.split())
        raise ExportError(
            f"{place}: transformers cannot {what} by it ({bounded(reason)}); take the config "
            "that belongs to the weights",
            code="odd-config",
        ) from error


def _is_packed(folder: Path, packing: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the weights are codes.  Raises ExportError for codes that cannot be read."""
    for packed in packing:
        method = packed.get("quant_method", "a method of its own")
        if str(method).lower() not in READ_METHODS:
            name = method if isinstance(method, str) else shown(method)
            raise ExportError(
                f"{folder} has weights that are quantized by {name}, and {', '.join(READ_METHODS)} can be read; save "
                "it without quantization first",
                code="not-a-decoder",
            )
    return bool(packing)


def _weights_of(folder: Path) -> Path:
    """The file with the weights, their index, or the folder of their chunks.

    Raises ExportError for links that lead out of the folder.
    """
    for name in (_INDEX, _SINGLE):
        if (folder / name).is_file():
            if name == _INDEX:
                check_index(folder, name)
            return file_in(folder, name)
    chunks = torchdcp.files(sorted(path.name for path in folder.iterdir()))
    if chunks:
        for name in chunks:
            file_in(folder, name)
        return folder
    found = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    parts = sorted(folder.glob(f"*{_LLAMA_CPP}"))
    found = found or [path for path in parts if not _LATER_PART.search(path.name)]
    if len(found) != 1:
        raise ExportError(
            f"{folder} has neither {_SINGLE}, nor {_INDEX}, nor one {_LLAMA_CPP} file, nor a checkpoint of "
            f"torch.distributed.checkpoint",
            code="not-a-decoder",
        )
    for path in {found[0], *parts}:
        file_in(folder, path.name)
    return found[0]


def dtype_of(model: Any, asked: str | torch.dtype | None, target: str) -> tuple[torch.dtype | None, list[str]]:
    """What the weights are cast to, None where they stay as they are; and what the report says of it."""
    if asked is not None:
        kind = DTYPES.get(str(asked).removeprefix("torch."))
        if kind is None:
            raise ValueError(f"dtype={asked!r} is not one of {', '.join(map(repr, DTYPES))}")
        return kind, []
    if target == "onnx" or getattr(model, "dtype", None) != torch.bfloat16:
        return None, []
    return torch.float32, [
        "the weights are bfloat16, and float32 in the file: kernels on a CPU lack bfloat16; dtype= says otherwise"
    ]


def in_dtype(model: Any, dtype: torch.dtype) -> Any:
    """The model with parameters of a float type: itself where they have no values, otherwise a copy.

    Tables that the model computes stay as they are, as where `from_pretrained` is given a dtype.
    """
    if not any(parameter.is_meta for parameter in model.parameters()):
        model = copy.deepcopy(model)
    cast: dict[Tensor, Tensor] = {}  # what is tied stays so
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.is_floating_point():
                new = cast.setdefault(parameter, nn.Parameter(parameter.detach().to(dtype), requires_grad=False))
                module._parameters[name] = new
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point() and name not in module._non_persistent_buffers_set:
                module._buffers[name] = buffer.to(dtype)
    return model


def class_of(config: Any) -> Any:
    """The class of transformers that a config was saved with; one with a language-model head where it names none.

    Raises ExportError where there is none, and for a name of transformers that is not a model which generates text.
    """
    transformers, mappings = library(), library("models.auto.modeling_auto")
    known = [getattr(mappings, f"MODEL_FOR_{kind}_MAPPING") for kind in _HEADS]
    with_head = [mapping[type(config)] for mapping in known if type(config) in mapping]
    for name in getattr(config, "architectures", None) or ():
        found = getattr(transformers, name, None)
        if found is None:
            continue
        is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
        if found in with_head or (is_model and issubclass(found, library("generation").GenerationMixin)):
            return found
        raise ExportError(
            f"config.json: architectures names {shown(name)}, which is not a model of transformers that generates "
            "text; `purexport hf` (purexport.pretrained_model) writes models of other kinds",
            code="not-a-decoder",
        )
    if not with_head or is_encoder(config):
        raise ExportError(
            f"{type(config).__name__} is not the config of a model that generates text; `purexport hf` "
            "(purexport.pretrained_model) writes models of other kinds",
            code="not-a-decoder",
        )
    return with_head[0]


def files_beside(source: Path) -> dict[str, bytes]:
    """The files of the tokenizer and of `generate` in a folder, by name.  No template in them is rendered.

    Raises ExportError for links that lead elsewhere, for what is not a file, and for more bytes than tokenizers have.
    """
    names = {path.name for pattern in _BESIDE for path in source.glob(pattern) if not path.is_dir()}
    names -= {path.name for pattern in _NOT_BESIDE for path in source.glob(pattern)}
    return contents_of(source, sorted(names))


def code_named_in(files: Mapping[str, bytes]) -> list[str]:
    """A remark on each file, other than the model's config, that names Python code for whoever loads it."""
    remarks = []
    for name, content in files.items():
        if name != _CONFIG and name.endswith(".json") and any(key.encode() in content for key in CODE):
            try:
                keys = code_of(json.loads(content))
            except (ValueError, RecursionError):  # it is copied as it is; nothing here reads it
                continue
            remarks += [f"{name} names Python code in {key}, which is neither run nor copied" for key in keys]
    return remarks


def configs_of(model: Any) -> dict[str, bytes]:
    """The configs of a model as files, by name; they name the class of the model, as `save_pretrained` has them do."""
    config = copy.copy(model.config)
    config.architectures = [type(model).__name__]
    with tempfile.TemporaryDirectory() as place:
        config.save_pretrained(place)
        if getattr(model, "generation_config", None) is not None:
            model.generation_config.save_pretrained(place)
        return {path.name: path.read_bytes() for path in sorted(Path(place).iterdir())}


def refuse_others(out: Path, files: Mapping[str, bytes]) -> None:
    """Raise FileExistsError where one of these files is in the folder with another content, or is no regular file."""
    for name, content in files.items():
        path = out / name
        if path.exists() and (not path.is_file() or path.read_bytes() != content):
            raise FileExistsError(
                errno.EEXIST, "it is there already and says something else; choose another folder", str(path)
            )


def write_files(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the files that are not there yet, each whole or not at all."""
    for name, content in files.items():
        if not (out / name).exists():
            with replacing(str(out / name), "page") as file:
                file.write([content], len(content))


def model_files(place: Path) -> list[str]:
    """The names of the model's file in a folder, and of its data files."""
    return [os.path.basename(path) for path in files_of(str(place / MODEL_FILE))]


@contextmanager
def removed_on_failure(out: Path, names: Iterable[str]) -> Iterator[None]:
    """Inside, an error removes the files of these names, and their data files, that were written inside.

    A folder that was not there goes too, if nothing is left in it.
    """
    was_there, names = out.exists(), set(names)

    def ours() -> set[tuple[Path, int, int]]:
        found = out.iterdir() if out.is_dir() else ()
        mine = [path for path in found if path.name in names or _DATA.sub("", path.name) in names]
        return {(path, state.st_ino, state.st_mtime_ns) for path in mine for state in (path.lstat(),)}

    before = ours()
    try:
        yield
    except BaseException:
        remove_all([str(path) for path, *_ in ours() - before])
        if not was_there:
            with suppress(OSError):  # what somebody else put there stays
                out.rmdir()
        raise


def genai_config(model: Any, decoder: Decoder, positions: int, *, one_buffer: bool) -> bytes:
    """What onnxruntime-genai reads: the names of inputs and outputs, sizes, and how to search.

    With `one_buffer` it gives the file one buffer for the past and the present of a layer, as long as the text may get.
    """
    config, generation = model.config.get_text_config(), getattr(model, "generation_config", None)

    def token(name: str) -> Any:
        value = getattr(generation, name, None)
        return value if value is not None else getattr(config, name, None)

    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    inputs |= {"position_ids": "position_ids"} if decoder.takes_positions else {}
    _, heads, _, width = decoder.shapes[0]
    ends = token("eos_token_id")
    described = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": MODEL_FILE,
        "head_size": width,
        "hidden_size": config.hidden_size,
        "inputs": inputs | {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": decoder.layers,
        "num_key_value_heads": heads,
    }
    whole = {
        "bos_token_id": token("bos_token_id"),
        "context_length": positions,
        "decoder": described,
        "eos_token_id": ends,
        "pad_token_id": _first(token("pad_token_id"), ends),
        "type": _PLAIN_DECODER,
        "vocab_size": decoder.vocabulary,
    }
    search: dict[str, Any] = {
        "do_sample": False,
        "max_length": positions,
        "min_length": 0,
        "num_beams": 1,
        "num_return_sequences": 1,
    }
    search |= {"past_present_share_buffer": one_buffer, "repetition_penalty": 1.0, "temperature": 1.0}
    known = {name: item for name, item in whole.items() if item is not None}
    return (json.dumps({"model": known, "search": search}, indent=2) + "\n").encode()


def _first(*items: Any) -> Any:
    found = next((item for item in items if item is not None), 0)
    return found[0] if isinstance(found, list) else found
