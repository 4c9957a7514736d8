"""Functionalize: writes become values, types hold for all sizes, and everything that users can refer to gets a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from proto_schema.wire.records import dataclass
from purexport.aten.graph import AtenGraph
from purexport.errors import ExportError
from purexport.frontends.choose import next_choice
from purexport.frontends.core import names
from purexport.frontends.core.request import Captured, argument_names
from purexport.frontends.core.structures import tensors_in
from purexport.functionalize.arguments import refuse_parts, refuse_shared_inputs
from purexport.functionalize.graph import functionalize
from purexport.functionalize.state import BufferState, keep_state, write_remarks
from purexport.lowering.complex.interface import interface_remarks
from purexport.stages.capture import capture_key, capture_model
from purexport.stages.run import Run, warn_user

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Pure:
    """The graph without writes, the model's state that the file takes and returns, and the remarks."""

    captured: Captured
    graph: AtenGraph
    state: BufferState
    remarks: list[str]


def pure_graph(run: Run) -> Pure:
    """The model's graph without writes.  The model is captured only where the run's memory has no graph for its key.

    Raises what `capture_model` and `make_pure` raise.
    """
    key = capture_key(run)
    pure = run.memory.once(key, lambda: captured_and_pure(run))
    if not pure.captured.scripted:
        run.memory.keep(key._replace(loops_carry_lists=not key.loops_carry_lists), pure)
    return pure


def captured_and_pure(run: Run) -> Pure:
    """The graph of a capture without writes; by the next route where that of the first one cannot be had.

    Raises what `capture_model` and `make_pure` raise.
    """
    captured = capture_model(run)
    try:
        return make_pure(run, captured)
    except ExportError as error:
        return by_next_route(run, captured, error, captured_and_pure)


def by_next_route(run: Run, captured: Captured, error: ExportError, stages: Callable[[Run], T]) -> T:
    """What `stages` give by the next route.

    Raises `error` where there is none, or where that fails too, and what torch says where it refuses the arguments.
    """
    choice = next_choice(run.options.capture, captured)
    if choice is None:
        raise error
    try:
        return stages(replace(run, options=replace(run.options, capture=choice)))
    except ExportError as other:
        raise (other if other.code == "model-does-not-run" else error) from None


def make_pure(run: Run, captured: Captured) -> Pure:
    """The captured graph without writes.

    Raises ExportError for a write that a file cannot keep, ValueError for names or axes that do not fit the graph.
    """
    options = run.options
    tensors = tensors_in(run.arguments)
    refuse_parts(captured.graph, tensors)
    run.progress.at("functionalize")
    sizes_of_example = bool(captured.axes) and not captured.types_hold_for_all_sizes
    pure = functionalize(
        captured.graph,
        sizes_of_example=sizes_of_example,
        has_ones=captured.enlarged,
    )
    refuse_shared_inputs(pure, tensors)
    remarks = list(captured.notes)
    remarks += warn_user(captured.remarks)
    remarks += warn_user(pure.remarks)
    remarks += warn_user(write_remarks(pure, options.mutated_state))
    keeps = options.mutated_state == "io"
    written = [item.input.value for item in pure.mutations] if keeps else []
    pure = pure.with_graph(
        names.make_way(pure.graph, options.input_names, options.output_names, options.dynamic_axes or (), written)
    )
    graph, state = keep_state(pure) if keeps else (pure.graph, BufferState())
    graph = replace(graph, output_names=names.name_outputs(graph.output_names, options.output_names))
    remarks += interface_remarks(graph)
    users = [item.name for item in graph.inputs if item.kind == "user"]
    interface = [*users, *graph.output_names]
    remarks += warn_user(
        names.unknown_axes(options.dynamic_axes or (), interface, argument_names(run.model, run.arguments))
    )
    return Pure(captured, graph, state, remarks)
