"""Parts of a model as files of their own: a tensor as .npy, all tensors as .safetensors, a subgraph as a model.

Weights go from the mapped file to the new one in chunks. A file appears whole or not at all.
https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
https://huggingface.co/docs/safetensors/index#format
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import proto_schema as ps
from proto_schema.external.datafiles import payload_of
from proto_schema.external.payload import BytesLike, byte_view, nbytes
from proto_schema.files.commit import replacing
from proto_schema.files.owned import files_of
from proto_schema.files.targets import judge
from proto_schema.graphs.names import as_text
from proto_schema.graphs.similar import similar
from proto_schema.graphs.subgraphs import subgraph
from proto_schema.onnx import GraphProto, ModelProto, TensorProto
from proto_schema.tensors.dtypes import DTYPES, element_count, type_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from proto_schema.files.saving import SaveOptions

Path: TypeAlias = "str | os.PathLike[str]"

SAFETENSORS = {row.name: row.safetensors for row in DTYPES.values() if row.safetensors}
"""The data types that the format has, by ours."""

LONGEST_HEADER = 100_000_000
"""Bytes of a safetensors header, at most: the limit of the format."""

_MOST_TEXT = 1 << 28  # bytes of a .npy file of texts, in which all have the length of the longest


def find_tensor(model: ModelProto, name: str) -> TensorProto:
    """The initializer of that name, or the value of the Constant whose output has it. ValueError if there is none."""
    graph = model.graph or GraphProto()
    found = {as_text(tensor.name): tensor for tensor in graph.initializer}
    for node in graph.node:
        held = [attribute.t for attribute in node.attribute if attribute.t is not None]
        if node.op_type == "Constant" and held and node.output:
            found.setdefault(as_text(node.output[0]), held[0])
    if name not in found:
        close = similar(name, found) or list(found)[:3]
        raise ValueError(f"no tensor is called {name!r}{'; there is ' if close else ''}{', '.join(close)}")
    return found[name]


def tensor_to_npy(path: Path, name: str, target: Path, *, overwrite: bool = False) -> Any:
    """Writes a tensor of the model at `path` as .npy and returns the array, a view of the file if possible.

    Types that numpy lacks are written as the nearest one that it has, as `numpy_helper.to_array` returns them. A file
    that is there is replaced only with `overwrite`.
    Raises ValueError for an unknown name, OSError and ExternalDataError if data cannot be read or written.
    """
    import numpy as np

    try:
        array = ps.numpy_helper.to_array(find_tensor(ps.load(path), name))
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
    if array.dtype == object:
        if any(isinstance(item, bytes) for item in array.flat):
            raise ValueError(f"{name}: a string in it is not UTF-8, and .npy files need text")
        size = 4 * array.size * max(map(len, array.flat), default=0)
        if size > _MOST_TEXT:
            raise ValueError(f"{name}: as .npy it would have {size:,} bytes; all texts get the length of the longest")
        array = array.astype(str)
    array = np.asarray(array, order="C")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
    data: BytesLike = array.tobytes() if array.dtype.kind == "U" else byte_view(array)
    with replacing(os.fspath(target), "file", files_of(os.fspath(path)), overwrite) as file:
        file.write([head.getvalue(), data], head.tell() + nbytes(data))
    return array


def to_safetensors(path: Path, target: Path, *, overwrite: bool = False) -> tuple[int, list[str]]:
    """Writes the initializers of the model at `path` as .safetensors; over a file that is there with `overwrite`.

    Returns (tensors written, "name: reason" of those left out because the format has nothing of that type or name).
    Raises ValueError if two have one name or the format does not allow as many, OSError and ExternalDataError if data
    cannot be read or written.
    """
    graph = ps.load(path).graph or GraphProto()
    head: dict[str, Any] = {}
    parts: list[BytesLike] = []
    left_out = [
        f"{as_text(row.values.name) if row.values else ''}: the format has no sparse tensors"
        for row in graph.sparse_initializer
    ]
    at = 0
    for tensor in graph.initializer:
        name, kind = as_text(tensor.name), SAFETENSORS.get(type_name(tensor.data_type))
        if kind is None:
            left_out.append(f"{name}: the format has no {type_name(tensor.data_type)}")
            continue
        count = element_count(tensor.dims)
        if count * DTYPES[tensor.data_type or 0].bits % 8:  # a part of a byte
            left_out.append(f"{name}: the format has no {type_name(tensor.data_type)} of {count} elements")
            continue
        if name == "__metadata__":
            left_out.append(f"{name}: the format keeps this name for itself")
            continue
        if name in head:
            raise ValueError(f"two tensors are called {name!r}; the format needs names that differ")
        data = _little_endian(tensor)
        size = nbytes(data)
        head[name] = {"dtype": kind, "shape": list(tensor.dims), "data_offsets": [at, at + size]}
        parts.append(data)
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > LONGEST_HEADER:
        raise ValueError(
            f"the names and shapes take {len(text)} bytes, and the format allows {LONGEST_HEADER}; "
            "write tensors one by one with --tensor"
        )
    first = len(text).to_bytes(8, "little") + text
    with replacing(os.fspath(target), "file", files_of(os.fspath(path)), overwrite) as file:
        file.write([first, *parts], len(first) + at)
    return len(head), left_out


def _little_endian(tensor: TensorProto) -> BytesLike:
    """The bytes as raw_data would hold them. ValueError if they do not fit type and shape."""
    row = DTYPES[tensor.data_type or 0]
    codes = ps.numpy_helper.to_codes(tensor) if row.name != "COMPLEX64" else None
    data = payload_of(tensor)
    if data is not None and nbytes(data) == row.nbytes(element_count(tensor.dims)):
        return data
    if codes is not None and row.bits < 8:
        return ps.numpy_helper.from_codes(codes, row.code).raw_data or b""
    return byte_view(ps.numpy_helper.to_array(tensor) if codes is None else codes)


# Subgraphs ------------------------------------------------------------------------------------------------------------


def extract_subgraph(
    path: Path,
    target: Path,
    outputs: Sequence[str],
    inputs: Sequence[str] | None = None,
    **stored: Unpack[SaveOptions],
) -> int:
    """Writes the subgraph of the model at `path` to `target` and returns the number of its nodes; as `subgraph`.

    Types that the file does not say are inferred. `stored` are options of `save`; with a `shard_size` the
    weights go to data files.
    """
    model = ps.load(path)
    graph = model.graph or ps.GraphProto()
    typed = {item.name for item in (*graph.input, *graph.output, *graph.value_info) if item.type is not None}
    typed.update(tensor.name for tensor in graph.initializer)
    if not typed.issuperset([*outputs, *(inputs or ())]):
        model = ps.shape_inference.infer_shapes(model)
    made = subgraph(model, outputs, inputs)
    judge(os.fspath(target), "model", files_of(os.fspath(path)), stored.get("overwrite", False))
    stored["external_data"] = None if stored.get("shard_size") is None else True
    ps.save(made, target, **stored)
    return len(made.graph.node) if made.graph is not None else 0


__all__ = [
    "LONGEST_HEADER",
    "SAFETENSORS",
    "extract_subgraph",
    "find_tensor",
    "subgraph",
    "tensor_to_npy",
    "to_safetensors",
]
