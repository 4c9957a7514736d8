"""A reproducer: the node at fault alone, its inputs, what it should give, and a script of ten lines that runs it."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import proto_schema as ps
from proto_schema.commit import replacing
from purexport import dtypes
from purexport.comparison.file_values import as_array, node_results, part_of
from purexport.comparison.located import Blamed, Evidence, Judged
from purexport.errors import ExportError

SCRIPT = '''\
"""Runs model.onnx on its inputs and shows how far the results are from what they should be."""

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
feed = {{item.name: np.load(f"input_{{place}}.npy") for place, item in enumerate(session.get_inputs())}}
for place, found in enumerate(session.run({outputs!r}, feed)):
    wanted = np.load(f"expected_{{place}}.npy")
    print({outputs!r}[place], found.shape, wanted.shape, np.abs(np.float64(found) - np.float64(wanted)).max())
'''


def write_reproducer(
    evidence: Evidence, blame: Blamed, wrong: Judged | None, folder: str | os.PathLike[str], overwrite: bool = False
) -> list[str]:
    """Write the nodes at fault as a model of their own, with their inputs and what torch has; returns the paths.

    The folder is made if it is not there.  Raises ExportError where a value is missing, FileExistsError for a folder
    that is not empty.
    """
    out = Path(folder)
    if not overwrite and out.is_dir() and any(out.iterdir()):
        said = "it is not empty; give another folder, or overwrite=True, --force"
        raise FileExistsError(errno.EEXIST, said, str(out))
    places = sorted({blame.place, *(blame.nodes if blame.at_fault == "rule" else ())})
    nodes = [evidence.file.graph.node[place] for place in places]
    names = [name for name in evidence.file.graph.node[blame.place].output if name]
    if wrong is not None and wrong.place in places:
        names = [wrong.name]
    made = part_of(evidence.file, nodes, evidence.found.values, evidence.constants, names)
    if isinstance(made, str):
        raise ExportError(f"the nodes at fault cannot be cut out: {made}", code="nothing-at-fault")
    part, feed = made
    part.graph.output = [_typed(evidence.found.values.get(name), name) for name in names]
    out.mkdir(parents=True, exist_ok=True)
    ps.save(part, out / "model.onnx", overwrite=overwrite)
    files = {f"input_{place}.npy": _npy(as_array(tensor)) for place, tensor in enumerate(feed.values())}
    wanted = _expected(evidence, blame, names)
    for place, name in enumerate(names):
        if name in wanted:
            files[f"expected_{place}.npy"] = _npy(as_array(wanted[name]))
    files["run.py"] = SCRIPT.format(outputs=names).encode()
    written = [str(out / "model.onnx")]
    for name, content in files.items():
        with replacing(str(out / name), "file", overwrite=overwrite) as target:
            target.write([content], len(content))
        written.append(str(out / name))
    return written


def _expected(evidence: Evidence, blame: Blamed, names: Sequence[str]) -> Mapping[str, torch.Tensor]:
    """What the results should be: torch's where it is known, else what our evaluator computes by the sound node."""
    known = {name: evidence.anchors[name].tensor for name in names if name in evidence.anchors}
    if len(known) == len(names):
        return known
    source, node = evidence.file, evidence.file.graph.node[blame.place]
    if blame.at_fault == "file" and evidence.fresh is not None:
        source = evidence.fresh
        same = [other for other in source.graph.node if list(other.output[:1]) == list(node.output[:1])]
        if not same:
            return known
        node = same[0]
    constants = {tensor.name or "": tensor for tensor in source.graph.initializer}
    made = node_results(source, node, evidence.found.values, constants)
    return known if isinstance(made, str) else {**made, **known}


def _typed(tensor: torch.Tensor | None, name: str) -> ps.ValueInfoProto:
    if tensor is None:
        return ps.ValueInfoProto(name=name)
    return ps.helper.make_tensor_value_info(name, dtypes.onnx_code(tensor.dtype), tensor.shape)


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
