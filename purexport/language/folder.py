"""Folders of language models: what `save_pretrained` writes, read; and the folder for a runtime, written.

The weights of a folder are never loaded: the model is made with parameters that have no values, and the bytes go from
the checkpoint to the file.
"""

from __future__ import annotations

import copy
import errno
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proto_schema.commit import replacing
from purexport.errors import ExportError
from purexport.language.conversion import converted, loaded_tensor
from purexport.language.library import library
from purexport.language.llamacpp import of_llama_cpp
from purexport.language.step import Decoder
from purexport.torch_patches.empty import parameters_without_values
from purexport.weights.checkpoint import Checkpoint
from purexport.weights.source import open_weights
from purexport.weights.stored import Stored

MODEL_FILE = "model.onnx"
# what a tokenizer and `generate` read, beside the weights
_BESIDE = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken")
READ_METHODS = ("gptq", "awq", "bitsandbytes", "fp8")
_NOT_BESIDE = ("*.index.json", "genai_config.json")
_LLAMA_CPP, _LATER_PART = ".gguf", re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
# The runtime chooses how to run a decoder by this word; every plain decoder with a cache runs in the same way.
_PLAIN_DECODER = "llama"


def read_folder(folder: Path) -> tuple[Any, Checkpoint]:
    """The model of a folder, without values of parameters, and the checkpoint with them, for a `Step` of the model.

    Raises ExportError for a folder without a model in it.
    """
    config, _ = _config_of(folder)
    with parameters_without_values():
        model = class_of(config)._from_config(config)
    return model.eval(), Checkpoint(_tensors_of(model, folder), rename={"": "model."}, strict=False, cast=True)


def loaded(folder: Path, dtype: torch.dtype | None) -> Any:
    """The model of a folder with its weights, in torch.

    Weights in codes become the floats that they stand for, by the readers that fill the file: transformers would need
    the package that made them.
    """
    config, is_packed = _config_of(folder)
    kinds = {} if dtype is None else {"dtype": dtype}
    if not is_packed and not _weights_of(folder).name.endswith(_LLAMA_CPP):
        return class_of(config).from_pretrained(folder, local_files_only=True, **kinds).eval()
    model = class_of(config)._from_config(config, **kinds)
    found = _tensors_of(model, folder)
    model.load_state_dict({name: loaded_tensor(stored) for name, stored in found.items()}, strict=False)
    model.tie_weights()
    return model.eval()


def _tensors_of(model: Any, folder: Path) -> dict[str, Stored]:
    """The tensors of a folder by the names of its model's."""
    path = _weights_of(folder)
    found: Mapping[str, Stored] = open_weights(path)
    if path.name.endswith(_LLAMA_CPP):
        found = of_llama_cpp(model.config, path, found)
    return converted(model, found)


def _config_of(folder: Path) -> tuple[Any, bool]:
    """(the config of the model as one of floats, whether its weights are codes)."""
    if not (folder / "config.json").is_file():
        raise ExportError(
            f"{folder} has no config.json; a folder as model.save_pretrained writes it is needed", code="not-a-decoder"
        )
    config = library().AutoConfig.from_pretrained(folder, local_files_only=True)
    quantized = getattr(config, "quantization_config", None)
    if quantized is None:
        return config, False
    known = quantized if isinstance(quantized, dict) else vars(quantized)
    method = str(known.get("quant_method", "a method of its own")).lower()
    if method not in READ_METHODS:
        raise ExportError(
            f"{folder} has weights that are quantized by {method}, and {', '.join(READ_METHODS)} can be read; save it "
            "without quantization first",
            code="not-a-decoder",
        )
    del config.quantization_config
    return config, True


def _weights_of(folder: Path) -> Path:
    weights = next((folder / name for name in (_INDEX, _SINGLE) if (folder / name).is_file()), None)
    if weights is not None:
        return weights
    found = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    found = found or [path for path in sorted(folder.glob(f"*{_LLAMA_CPP}")) if not _LATER_PART.search(path.name)]
    if len(found) != 1:
        raise ExportError(
            f"{folder} has neither {_SINGLE}, nor {_INDEX}, nor one {_LLAMA_CPP} file", code="not-a-decoder"
        )
    return found[0]


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

    Raises ExportError where there is none.
    """
    transformers = library()
    for name in getattr(config, "architectures", None) or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    mappings = library("models.auto.modeling_auto")
    for kind in ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT"):
        mapping = getattr(mappings, f"MODEL_FOR_{kind}_MAPPING")
        if type(config) in mapping:
            return mapping[type(config)]
    raise ExportError(f"{type(config).__name__} is of no model that generates text", code="not-a-decoder")


def files_beside(source: Path) -> dict[str, bytes]:
    """The files of the tokenizer and of `generate` in a folder, by name."""
    names = {path.name for pattern in _BESIDE for path in source.glob(pattern)}
    names -= {path.name for pattern in _NOT_BESIDE for path in source.glob(pattern)}
    return {name: (source / name).read_bytes() for name in sorted(names) if (source / name).is_file()}


def configs_of(model: Any) -> dict[str, bytes]:
    """The configs of a model as files, by name."""
    with tempfile.TemporaryDirectory() as place:
        model.config.save_pretrained(place)
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
