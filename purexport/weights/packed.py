"""Which tensors of a checkpoint stand for one weight together, and the config beside it that says what shapes do not.

Codes, scales and zero points become the weight, as float32 that is made when it is written; `quantize` finds the codes
of integers in it (`CodedPayload`) and keeps them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from proto_schema.external.addresses import exists, is_address, joined, parent
from proto_schema.onnx import TensorProto
from purexport.weights import compressed, float8
from purexport.weights.bitsandbytes import Blocks4, rows_of
from purexport.weights.gptq_awq import words_of
from purexport.weights.jsontext import parsed
from purexport.weights.stored import CheckpointFile, Stored

_NF4, _FP4 = ".weight.quant_state.bitsandbytes__nf4", ".weight.quant_state.bitsandbytes__fp4"
_MARKS = (".qweight", ".SCB", _NF4, _FP4, float8.BLOCKS, float8.WHOLE, compressed.PACKED)
_CONFIGS = (("config.json", "quantization_config"), ("quantize_config.json", ""), ("quant_config.json", ""))
_LONGEST_CONFIG = 1 << 20  # bytes


def unpacked(found: Mapping[str, Stored], path: str) -> dict[str, Stored]:
    """The tensors of a checkpoint with those that stand for one weight together as that weight.

    `path` is the checkpoint's, beside which its quantization config is. WeightsError says what does not fit.
    """
    if not any(name.endswith(_MARKS) for name in found):
        return dict(found)
    config = _config(parent(path))
    made: dict[str, Stored] = {}
    gone: set[str] = set()
    for name in found:
        group = _group(found, name, config)
        if group is not None:
            weight, parts = group
            made[weight.name] = weight
            gone.update(part for part in parts if part in found)
    if not made:
        return dict(found)
    return {name: row for name, row in found.items() if name not in gone} | made


def _config(folder: str) -> Mapping[str, Any]:
    """The quantization config beside a checkpoint; empty where there is none."""
    for name, key in _CONFIGS:
        path = joined(folder, name)
        if not (exists(path) if is_address(path) else os.path.isfile(path)):
            continue
        with CheckpointFile(path) as file:
            if file.size > _LONGEST_CONFIG:
                raise file.error(f"it has {file.size} bytes, more than a config may have")
            found = parsed(file, file.read(0, file.size), "it", "copy or download it again")
        config = found.get(key) if key else found
        if isinstance(config, dict):
            return config
    return {}


def _group(found: Mapping[str, Stored], name: str, config: Mapping[str, Any]) -> tuple[Stored, Sequence[str]] | None:
    """(the weight, the tensors it is made of) where a name is that of the first of these."""
    if name.endswith(".qweight"):
        prefix = name.removesuffix("qweight")
        parts = [prefix + tail for tail in ("qweight", "qzeros", "scales", "g_idx")]
        if all(part in found for part in parts[:3]) and prefix + "weight" not in found:
            return words_of(found, prefix, config), parts
    for ending in (_NF4, _FP4):
        if name.endswith(ending):
            prefix = name.removesuffix(ending) + ".weight"
            tails = ("absmax", "quant_map", "nested_absmax", "nested_quant_map", name.removeprefix(prefix + "."))
            return Blocks4.stored(found, prefix, name), [prefix, *(f"{prefix}.{tail}" for tail in tails)]
    if name.endswith(".SCB"):
        prefix = name.removesuffix("SCB")
        if prefix + "weight" in found and found[prefix + "weight"].dtype == TensorProto.INT8:
            return rows_of(found, prefix), [name, prefix + "weight", prefix + "weight_format"]
    if name.endswith((compressed.PACKED, compressed.SCALE)):
        prefix = name[: name.rindex(".") + 1]
        weight = compressed.compressed(found, prefix, config)
        if weight is not None:
            return weight, compressed.parts_of(prefix)
    if name.endswith((float8.BLOCKS, float8.WHOLE)):
        weight = float8.scaled(found, name, config)
        if weight is not None:
            prefix = weight.name[: weight.name.rfind(".") + 1]
            return weight, [name, weight.name, *(prefix + part for part in compressed.INPUTS)]
    return None
