"""The files of a folder that was written here: what each takes and gives, and the configs beside them.

A file is read for its interface alone; its weights stay where they are.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import proto_schema as ps
from proto_schema import external_data_helper
from proto_schema.operators import runtimes, schema
from purexport.errors import ExportError

SINGLE = "model.onnx"
PAST, PRESENT = "past_key_values", "present"
# the names of files that a folder has, the kind with the most files first
KINDS = (
    ("vision.onnx", "embedding.onnx", "decoder.onnx"),
    ("encoder.onnx", "decoder.onnx"),
    ("prefill.onnx", "step.onnx"),
    (SINGLE,),
)
_WRITES = ("TensorScatter", "ScatterND", "GroupQueryAttention")


@dataclass(frozen=True)
class TensorLayout:
    """The data type of an input or output as a number of ONNX, and its sizes: numbers, or names of axes."""

    code: int
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class GraphFile:
    """A file: its path, what it takes and gives, and whether a cache may be written where it is read."""

    path: Path
    inputs: Mapping[str, TensorLayout]
    outputs: Mapping[str, TensorLayout]
    writes_in_place: bool

    @property
    def caches(self) -> dict[str, str]:
        """The input of each output that is the cache after a step."""
        names = {name: name.replace(PRESENT, PAST, 1) for name in self.outputs if name.startswith(f"{PRESENT}.")}
        return {name: given for name, given in names.items() if given in self.inputs}


def files_of(folder: Path) -> dict[str, GraphFile]:
    """The files of a folder by name.

    Raises ExportError for a folder that was not written by `language_model` or `pretrained_model`; OSError for files
    that are missing or cannot be read.
    """
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder))
    there = {path.name for path in folder.glob("*.onnx")}
    for names in KINDS:
        missing = [name for name in names if name not in there]
        if not missing:
            return {name: _read(folder / name) for name in names}
        if len(missing) < len(names) and names[0] in there:
            raise FileNotFoundError(
                errno.ENOENT, f"{names[0]} is there, and {missing[0]}, which belongs to it, is not", str(folder)
            )
    if (folder / "onnx").is_dir():
        raise ExportError(
            f"{folder} is laid out for transformers.js, which runs its files in onnx/; write the model for "
            "target='onnx' or 'onnxruntime'",
            code="not-a-runnable-folder",
        )
    if "audio.onnx" in there:
        raise ExportError(
            f"{folder} has a model that reads text and sound, which is not run from here; run its three files in "
            "ONNX Runtime, as docs/language-models.md has their inputs",
            code="not-a-runnable-folder",
        )
    raise ExportError(
        f"{folder} has none of {', '.join(dict.fromkeys(names[0] for names in KINDS))}; give a folder that `purexport "
        "llm` or `purexport hf` wrote",
        code="not-a-runnable-folder",
    )


def _read(path: Path) -> GraphFile:
    model = ps.load(str(path))
    graph = model.graph
    if graph is None:
        raise ExportError(f"{path} has no graph", code="not-a-runnable-folder")
    for tensor in external_data_helper.all_tensors(model):
        if external_data_helper.uses_external_data(tensor):
            entries = {item.key: item.value for item in tensor.external_data}
            data = path.parent / (entries.get("location") or "")
            if not data.is_file():
                raise FileNotFoundError(
                    errno.ENOENT, f"the weights of {path.name} are in this file; copy it beside {path.name}", str(data)
                )
    weights = {tensor.name for tensor in graph.initializer}
    inputs = {item.name or "": _layout(item) for item in graph.input if item.name not in weights}
    outputs = {item.name or "": _layout(item) for item in graph.output}
    users: dict[str, list[str]] = {name: [] for name in inputs if name.startswith(f"{PAST}.")}
    for node in graph.node:
        for name in node.input:
            if name in users:
                users[name].append(node.op_type or "")
    writes = bool(users) and all(len(names) == 1 and names[0] in _WRITES for names in users.values())
    return GraphFile(path, inputs, outputs, writes)


def _layout(item: ps.ValueInfoProto) -> TensorLayout:
    tensor = item.type.tensor_type if item.type is not None else None
    dims = tensor.shape.dim if tensor is not None and tensor.shape is not None else ()
    shape = tuple(dim.dim_value if dim.dim_value is not None else dim.dim_param or "?" for dim in dims)
    return TensorLayout((tensor.elem_type if tensor is not None else None) or 0, shape)


def config_in(folder: Path, name: str) -> dict[str, Any]:
    """A config of a folder; empty where there is none.  Raises ExportError for what is no JSON object."""
    path = folder / name
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path} is not JSON ({error}); copy it again", code="not-a-runnable-folder") from error
    if not isinstance(found, dict):
        raise ExportError(f"{path} is not a JSON object; copy it again", code="not-a-runnable-folder")
    return found


def without_kernel(path: Path, version: str) -> str:
    """What a release of ONNX Runtime lacks of a file: its opset, or a kernel for a node, in words; '' for neither."""
    model = ps.load(str(path))
    opsets = {item.domain or "": item.version or 0 for item in model.opset_import}
    try:
        release = runtimes.release(".".join(version.split("+", maxsplit=1)[0].split(".")[:3]))
    except ValueError:  # a release that is newer than the table
        return ""
    if opsets.get("", 0) > release.newest_opset:
        return f"onnxruntime {version} loads opset {release.newest_opset} at most, and the file has {opsets['']}"
    for node in model.graph.node if model.graph is not None else ():
        known = None if node.domain else schema(node.op_type or "", opsets.get("", 0))
        if known is not None and not known.is_function and not release.runs(known.name, known.since_version, {}):
            return f"onnxruntime {version} has no kernel for {node.op_type}, as in node {node.name!r}"
    return ""
