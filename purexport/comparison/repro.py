"""A reproducer: the node at fault alone, its inputs, what it should give, and a script of ten lines that runs it.

Where an optimization of the runtime is at fault, it is the whole model, which the script runs with and without it.
"""

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
from proto_schema.files.commit import replacing
from purexport import dtypes
from purexport.comparison.evidence import Evidence, Judged
from purexport.comparison.file_values import as_array, node_results, part_of
from purexport.comparison.located import Blamed
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

LEVELS_SCRIPT = '''\
"""Runs model.onnx at two levels of optimization and shows how far the results are from what they should be."""

import numpy as np
import onnxruntime

for level in {levels!r}:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
    feed = {{item.name: np.load(f"input_{{place}}.npy") for place, item in enumerate(session.get_inputs())}}
    for place, found in enumerate(session.run({outputs!r}, feed)):
        wanted = np.load(f"expected_{{place}}.npy")
        print(level, {outputs!r}[place], np.abs(np.float64(found) - np.float64(wanted)).max())
'''


def write_levels(
    evidence: Evidence,
    levels: Sequence[str],
    right: Mapping[str, torch.Tensor],
    folder: str | os.PathLike[str],
    overwrite: bool = False,
) -> list[str]:
    """Write the model with the inputs, the right results and a script that runs it at both levels; returns the paths.

    Raises FileExistsError for a folder that is not empty.
    """
    names = [item.name or "" for item in evidence.file.graph.output]
    weights = {tensor.name for tensor in evidence.file.graph.initializer}
    inputs = [item.name or "" for item in evidence.file.graph.input if item.name not in weights]
    arrays = {f"input_{place}.npy": evidence.found.values[name] for place, name in enumerate(inputs)}
    arrays |= {f"expected_{place}.npy": right[name] for place, name in enumerate(names)}
    script = LEVELS_SCRIPT.format(levels=tuple(levels), outputs=names)
    return _written(folder, overwrite, evidence.file, arrays, script)


def write_reproducer(
    evidence: Evidence, blame: Blamed, wrong: Judged | None, folder: str | os.PathLike[str], overwrite: bool = False
) -> list[str]:
    """Write the nodes at fault as a model of their own, with their inputs and what torch has; returns the paths.

    The folder is made if it is not there.  Raises ExportError where a value is missing, FileExistsError for a folder
    that is not empty.
    """
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
    arrays = {f"input_{place}.npy": tensor for place, tensor in enumerate(feed.values())}
    wanted = _expected(evidence, blame, names)
    arrays |= {f"expected_{place}.npy": wanted[name] for place, name in enumerate(names) if name in wanted}
    return _written(folder, overwrite, part, arrays, SCRIPT.format(outputs=names))


def _written(
    folder: str | os.PathLike[str],
    overwrite: bool,
    model: ps.ModelProto,
    arrays: Mapping[str, torch.Tensor],
    script: str,
) -> list[str]:
    out = Path(folder)
    if not overwrite and out.is_dir() and any(out.iterdir()):
        said = "it is not empty; give another folder, or overwrite=True, --force"
        raise FileExistsError(errno.EEXIST, said, str(out))
    out.mkdir(parents=True, exist_ok=True)
    ps.save(model, out / "model.onnx", overwrite=overwrite)
    files = {name: _npy(as_array(tensor)) for name, tensor in arrays.items()} | {"run.py": script.encode()}
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
    made = node_results(source, node, evidence.found.values, constants, evidence.budget)
    return known if isinstance(made, str) else {**made, **known}


def _typed(tensor: torch.Tensor | None, name: str) -> ps.ValueInfoProto:
    if tensor is None:
        return ps.ValueInfoProto(name=name)
    return ps.helper.make_tensor_value_info(name, dtypes.onnx_code(tensor.dtype), tensor.shape)


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
