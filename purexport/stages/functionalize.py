"""Functionalize: writes become values, types hold for all sizes, and everything that users can refer to gets a name."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from purexport.aten.graph import AtenGraph
from purexport.capture.core import names
from purexport.capture.core.request import Captured, argument_names
from purexport.capture.core.structures import tensors_in
from purexport.functionalize.arguments import refuse_parts, refuse_shared_inputs
from purexport.functionalize.graph import functionalize
from purexport.functionalize.state import State, keep_state, write_remarks
from purexport.lowering.complex.interface import interface_remarks
from purexport.shapes import abstract_run
from purexport.stages.run import Run


@dataclass(frozen=True, eq=False)
class Pure:
    """The graph without writes, the model's state that the file takes and returns, and the remarks."""

    captured: Captured
    graph: AtenGraph
    state: State
    remarks: list[str]


def make_pure(run: Run, captured: Captured) -> Pure:
    """The captured graph without writes.

    Raises ExportError for a write that a file cannot keep, ValueError for names or axes that do not fit the graph.
    """
    options = run.options
    tensors = tensors_in(run.arguments)
    refuse_parts(captured.graph, tensors)
    run.progress.at("functionalize")
    sizes_of_example = bool(captured.axes) and not captured.types_hold_for_all_sizes
    pure = functionalize(captured.graph, sizes_of_example=sizes_of_example)
    refuse_shared_inputs(pure, tensors)
    remarks = list(captured.notes)
    remarks += _said(captured.remarks)
    remarks += _said(write_remarks(pure, options.mutated_state))
    remarks += _said(_infer_types(captured, pure.graph))
    keeps = options.mutated_state == "io"
    buffers = [item.input for item in pure.mutations] if keeps else []
    names.make_way(pure.graph, options.input_names, options.output_names, options.dynamic_axes or (), buffers)
    state = keep_state(pure) if keeps else State()
    pure.graph.output_names = names.name_outputs(pure.graph.output_names, options.output_names)
    remarks += interface_remarks(pure.graph)
    users = [item.name for item in pure.graph.inputs if item.kind == "user"]
    names.check_axes(options.dynamic_axes, [*users, *pure.graph.output_names], argument_names(run.model, run.arguments))
    return Pure(captured, pure.graph, state, remarks)


def _infer_types(captured: Captured, graph: AtenGraph) -> list[str]:
    """Where sizes can change, replace types with the example's sizes by those of the abstract execution."""
    if captured.types_hold_for_all_sizes:
        return []
    if not captured.axes and not abstract_run.has_data_dependent_sizes(graph):
        return []
    return abstract_run.infer_types(graph, captured.axes).remarks()


def _said(remarks: Sequence[str]) -> Sequence[str]:
    """Show each remark as a warning that points at the caller of `export`: the first line outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    for remark in remarks:
        warnings.warn(remark, UserWarning, stacklevel=level)
    return remarks


_PACKAGE = str(Path(__file__).parents[1])
