"""Tensors of llama.cpp's files under the names, and in the order, of transformers' models.

llama.cpp writes rotary pairs of `llama` beside each other: of each head's rows [2, half] it makes [half, 2]. That is
undone here, a head at a time; codes of blocks stay codes. Other architectures have their rows as transformers has them.
An architecture is known where all of this is: its names, its order, and that no tensor has other numbers (some norms
are stored plus one).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from proto_schema.external.payload import CHUNK, Payload, byte_view, pieces, whole
from proto_schema.quantization.codes.coded import CodedPayload, Codes, Floats
from proto_schema.tensors.dtypes import DTYPES
from purexport.errors import ExportError
from purexport.weights.gguffile import architecture
from purexport.weights.stored import Stored, shown

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_COMPUTED = ("rope_freqs.weight",)  # what the config says, too
_IN_TURNS = "llama"  # the architecture whose rotary pairs are beside each other
MODELS = {"llama": ("llama", "mistral"), "qwen2": ("qwen2",), "qwen3": ("qwen3",)}
"""The architectures that are known, and the `model_type` of the configs that go with them."""
_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)")


def of_llama_cpp(config: Any, path: Path, found: Mapping[str, Stored]) -> dict[str, Stored]:
    """The tensors of a .gguf file by the names of the model's; as they are where the names are none of llama.cpp's.

    Raises ExportError for an architecture or a tensor that is not known, and for a config of another one.
    """
    if not any(name.startswith(("blk.", "token_embd.")) for name in found):
        return dict(found)
    kind = architecture(path)
    if config.model_type not in MODELS.get(kind, ()):
        known = ", ".join(f"{name} (model_type {' or '.join(types)})" for name, types in MODELS.items())
        raise _error(
            path,
            f"is of the architecture {shown(kind)}, and config.json has model_type {shown(config.model_type)}; known "
            f"are {known}",
        )
    made = {}
    for name, stored in found.items():
        match = _NAME.fullmatch(name)
        new = _NAMES.get(match[2]) if match is not None else None
        if name in _COMPUTED:
            continue
        if match is None or new is None or (match[1] is None) != (match[2] in ("token_embd", "output_norm", "output")):
            raise _error(path, f"has the tensor {shown(name)}, whose place in the model is not known")
        if kind == _IN_TURNS and match[2] in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if match[2] == "attn_q" else config.num_key_value_heads
            made[f"model.layers.{match[1]}.{new}.{match[3]}"] = _in_halves(path, stored, heads)
            continue
        layer = "" if match[1] is None else f"model.layers.{match[1]}."
        made[f"{layer}{new}.{match[3]}"] = stored
    return made


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

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        head = self.rows * self.row
        for part in whole(self.source, max(CHUNK // max(head, 1), 1) * head, head) if head else ():
            rows = np.frombuffer(part, np.uint8).reshape(-1, self.rows // 2, 2, self.row)
            yield from pieces(byte_view(np.ascontiguousarray(rows.swapaxes(1, 2))), limit)


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
