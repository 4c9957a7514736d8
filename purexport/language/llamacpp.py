"""Tensors of llama.cpp's files under the names, and in the order, of transformers' models.

llama.cpp writes rotary pairs of some architectures beside each other: of each head's rows [2, half] it makes [half, 2].
That is undone here, a head at a time; codes of blocks stay codes. An architecture is known where all of this is: its
names, its order, and which numbers differ (some norms are stored plus one).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from proto_schema.external.payload import CHUNK, BytesLike, Payload, byte_view, pieces, whole
from proto_schema.onnx import TensorProto
from proto_schema.quantization.codes.coded import CodedPayload, Codes, Floats
from proto_schema.tensors.dtypes import DTYPES, type_name
from purexport.errors import ExportError
from purexport.language.llamacpp_names import ARCHITECTURES, Architecture
from purexport.weights.convert import transposed
from purexport.weights.gguffile import architecture
from purexport.weights.stored import Stored, shown

_COMPUTED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")  # what the config says, too
_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")


def of_llama_cpp(config: Any, path: Path, found: Mapping[str, Stored]) -> dict[str, Stored]:
    """The tensors of a .gguf file by the names of the model's; as they are where the names are none of llama.cpp's.

    Raises ExportError for an architecture or a tensor that is not known, and for a config of another one.
    """
    if not any(name.startswith(("blk.", "token_embd.")) for name in found):
        return dict(found)
    kind = architecture(path)
    row = ARCHITECTURES.get(kind)
    if row is None or config.model_type not in row.models:
        known = ", ".join(f"{name} (model_type {' or '.join(one.models)})" for name, one in ARCHITECTURES.items())
        raise _error(
            path,
            f"is of the architecture {shown(kind)}, and config.json has model_type {shown(config.model_type)}; known "
            f"are {known}",
        )
    made = {}
    for name, stored in found.items():
        if name in _COMPUTED:
            continue
        match = _NAME.fullmatch(name)
        new = None if match is None else (row.top if match[1] is None else row.layer).get(match[2])
        if match is None or new is None:
            raise _error(path, f"has the tensor {shown(name)}, whose place in the model is not known")
        layer = "" if match[1] is None else f"{row.layers}.{match[1]}."
        made[f"{layer}{new}.{match[3]}"] = _as_in_model(path, stored, row, config, match)
    return made


def _as_in_model(path: Path, stored: Stored, row: Architecture, config: Any, match: re.Match[str]) -> Stored:
    """A tensor in the order and with the numbers of the model."""
    name, is_weight = match[2], match[3] == "weight"
    if row.in_turns and name in ("attn_q", "attn_k"):
        kinds = ("num_attention_heads",) if name == "attn_q" else ("num_key_value_heads", "num_attention_heads")
        heads = next(number for kind in kinds if (number := getattr(config, kind, None)) is not None)
        return _in_halves(path, stored, heads)
    if row.one_more and name.endswith("norm") and is_weight:
        if stored.dtype != TensorProto.FLOAT:
            raise _error(path, f"has the norm {shown(stored.name)} as {type_name(stored.dtype)}, which is FLOAT there")
        return Stored(stored.name, stored.dtype, stored.shape, _OneLess(stored.payload), stored.origin)
    if row.transposed and match[1] is not None and len(stored.shape) == 2:
        return transposed(stored, (1, 0))
    return stored


def _in_halves(path: Path, stored: Stored, heads: int) -> Stored:
    """A matrix, or a bias, whose rows of a head are in turns, with the first half of the pairs before the second."""
    rows = stored.shape[0] if stored.shape else 0
    if not rows or heads < 1 or rows % (2 * heads):
        raise _error(path, f"has the tensor {shown(stored.name)} of shape {list(stored.shape)} for {heads} heads")
    payload = stored.payload
    if isinstance(payload, CodedPayload) and payload.groups() is None:
        made: Payload = _CodesInHalves(payload, rows // heads)
    else:
        width = DTYPES[stored.dtype].bits // 8
        made = _InHalves(payload, rows // heads, width * int(np.prod(stored.shape[1:], dtype=np.int64)))
    return Stored(stored.name, stored.dtype, stored.shape, made, stored.origin)


class _InHalves(Payload):
    """The rows of each head, of which the even ones come first; a row has `row` bytes."""

    def __init__(self, source: Payload, rows: int, row: int) -> None:
        self.source, self.rows, self.row = source, rows, row

    @property
    def nbytes(self) -> int:
        return self.source.nbytes

    @property
    def identity(self) -> object:
        source = self.source.identity
        return None if source is None else (type(self), source, self.rows, self.row)

    @property
    def sources(self) -> tuple[BytesLike, ...]:
        return (self.source,)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        head = self.rows * self.row
        for part in whole(self.source, max(CHUNK // max(head, 1), 1) * head, head) if head else ():
            rows = np.frombuffer(part, np.uint8).reshape(-1, self.rows // 2, 2, self.row)
            yield from pieces(byte_view(np.ascontiguousarray(rows.swapaxes(1, 2))), limit)


class _OneLess(Payload):
    """Elements of float32, each less one."""

    def __init__(self, source: Payload) -> None:
        self.source = source

    @property
    def nbytes(self) -> int:
        return self.source.nbytes

    @property
    def identity(self) -> object:
        source = self.source.identity
        return None if source is None else (type(self), source)

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        for part in whole(self.source, CHUNK, 4):
            values: Floats = np.frombuffer(part, "<f4") - np.float32(1)
            yield from pieces(byte_view(values), limit)


class _CodesInHalves(CodedPayload):
    """The same of a matrix of codes, which stay."""

    def __init__(self, source: CodedPayload, rows: int) -> None:
        super().__init__(source.rows, source.length, source.bits, source.block)
        self.source, self.of_head = source, rows

    @property
    def sources(self) -> tuple[Payload, ...]:
        return (self.source,)

    @property
    def identity(self) -> object:
        found = super().identity
        return None if found is None else (found, self.of_head)

    def scales(self) -> Floats:
        found: Floats = self._ordered(self.source.scales())
        return found

    def zeros(self) -> Codes:
        found: Codes = self._ordered(self.source.zeros())
        return found

    def codes(self) -> Iterator[Codes]:
        held: list[Codes] = []
        for codes in self.source.codes():
            held.append(codes)
            together = np.concatenate(held)
            end = len(together) // self.of_head * self.of_head
            held = [together[end:]]
            if end:
                yield self._ordered(together[:end])

    def _ordered(self, rows: Any) -> Any:
        heads = rows.reshape(-1, self.of_head // 2, 2, rows.shape[1])
        return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(rows.shape)


def _error(path: Path, reason: str) -> ExportError:
    return ExportError(
        f"{path.name} {reason}; take the folder of the same model with .safetensors, or give a model of transformers "
        "and purexport.Checkpoint(path, rename=...) as weights= to purexport.export",
        code="not-a-decoder",
    )
