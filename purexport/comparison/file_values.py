"""Every value of a file for one set of inputs, in ONNX Runtime or in our evaluator.

Where ONNX Runtime is not installed, or refuses the file, the evaluator runs it node by node.  It keeps what it has
computed before a node that fails.  Values are torch's tensors; what is no tensor (a sequence, an optional) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import proto_schema as ps
from proto_schema.budget import BudgetLike
from proto_schema.graphs.names import free_names
from purexport import dtypes
from purexport.runtime import forms
from purexport.runtime.packages import installed
from purexport.runtime.sessions import WITH_ARRAYS, Sessions, run

ONNXRUNTIME = "onnxruntime"
EVALUATOR = "the evaluator"


@dataclass
class FileValues:
    """The values by name, by whom they were computed, and why it could not go on behind the last of them."""

    by: str
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    failure: str = ""


def all_values(
    model: ps.ModelProto, feed: Mapping[str, torch.Tensor], by: str = "", budget: BudgetLike = None
) -> FileValues:
    """The values of all results of nodes of the graph.

    `by` is `ONNXRUNTIME` or `EVALUATOR`; by default it is the first that runs the file.  Raises nothing for a file that
    cannot be run: `failure` says why.  `budget` is for the evaluator.
    """
    if by == EVALUATOR or not installed(ONNXRUNTIME):
        return evaluated(model, feed, budget=budget)
    found = FileValues(ONNXRUNTIME)
    names = [name for node in model.graph.node for name in node.output if name]
    try:
        with Sessions() as sessions:
            results = run(sessions.open(forms.with_outputs(model, names)), feed)
    except Exception as error:  # what onnxruntime raises has no common base
        found.failure = str(error).strip()
        return found if by else evaluated(model, feed, found.failure, budget)
    found.values = dict(feed) | {
        name: item for name, item in zip(names, results, strict=True) if isinstance(item, torch.Tensor)
    }
    return found


def outputs_of(
    model: ps.ModelProto,
    feed: Mapping[str, torch.Tensor],
    by: str = "",
    level: str = "",
    budget: BudgetLike = None,
) -> FileValues:
    """The outputs alone, as a user's session gives them; `level` names one of onnxruntime's levels of optimization."""
    if by == EVALUATOR or not installed(ONNXRUNTIME):
        every = evaluated(model, feed, budget=budget)
        every.values = {item.name or "": every.values[item.name or ""] for item in _made(model, every.values)}
        return every
    found = FileValues(ONNXRUNTIME)
    try:
        with Sessions() as sessions:
            results = run(sessions.open(model, _at_level(level) if level else None), feed)
    except Exception as error:  # what onnxruntime raises has no common base
        found.failure = str(error).strip()
        return found
    names = [item.name or "" for item in model.graph.output]
    found.values = {name: item for name, item in zip(names, results, strict=True) if isinstance(item, torch.Tensor)}
    return found


def _made(model: ps.ModelProto, values: Mapping[str, Any]) -> list[ps.ValueInfoProto]:
    return [item for item in model.graph.output if item.name in values]


def _at_level(level: str) -> Any:
    def opened(model: bytes | str) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    return opened


def evaluated(
    model: ps.ModelProto, feed: Mapping[str, torch.Tensor], failure: str = "", budget: BudgetLike = None
) -> FileValues:
    """The values by our evaluator; `failure` is why onnxruntime did not compute them."""
    found = FileValues(EVALUATOR, dict(feed), "")

    def keep(name: str, value: Any) -> None:
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
            found.values[name] = torch.from_numpy(np.array(value))

    try:
        evaluator = ps.reference.ReferenceEvaluator(model, budget=budget)
        evaluator.run(None, {name: as_array(item) for name, item in feed.items()}, intermediate=keep)
    except (ps.reference.EvaluationError, ps.reference.UnsupportedOperatorError) as error:
        found.failure = str(error)
    if failure and not found.failure:
        found.failure = f"onnxruntime refuses the file: {failure}"
    return found


def as_array(tensor: torch.Tensor) -> Any:
    """A tensor as our evaluator takes it; what numpy has no type for goes as float32."""
    wide = tensor.detach().cpu()
    return (wide if wide.dtype in WITH_ARRAYS else wide.float()).numpy()


def node_results(
    model: ps.ModelProto,
    node: ps.NodeProto,
    values: Mapping[str, torch.Tensor],
    constants: Mapping[str, Any],
    budget: BudgetLike = None,
) -> dict[str, torch.Tensor] | str:
    """What our evaluator computes for one node on these values; a text where it cannot."""
    wanted = [name for name in node.output if name]
    made = part_of(model, [node], values, constants, wanted)
    if isinstance(made, str):
        return made
    part, feed = made
    found = evaluated(part, feed, budget=budget)
    return found.failure or {name: found.values[name] for name in wanted if name in found.values}


def part_of(
    model: ps.ModelProto,
    nodes: Sequence[ps.NodeProto],
    values: Mapping[str, torch.Tensor],
    constants: Mapping[str, ps.TensorProto],
    outputs: Sequence[str],
) -> tuple[ps.ModelProto, dict[str, torch.Tensor]] | str:
    """A model of some nodes, and the values that it takes; a text that names a value which is missing."""
    made = {name for node in nodes for name in node.output}
    names = [name for name in dict.fromkeys(name for node in nodes for name in free_names(node)) if name not in made]
    feed = {name: values[name] for name in names if name in values}
    missing = [name for name in names if name not in feed and name not in constants]
    if missing:
        return f"its input {missing[0]!r} has no value"
    inputs = [ps.helper.make_tensor_value_info(name, dtypes.onnx_code(t.dtype), t.shape) for name, t in feed.items()]
    graph = ps.GraphProto(
        name="part",
        node=list(nodes),
        input=inputs,
        output=[ps.ValueInfoProto(name=name) for name in outputs],
        initializer=[constants[name] for name in names if name in constants and name not in feed],
    )
    part = ps.ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions, graph=graph
    )
    return part, feed
