"""Build: run the passes over the ONNX graph, make the message from it, and put that into a program."""

from __future__ import annotations

from proto_schema.onnx import ModelProto
from purexport.frontends.core.free_axes import FreeAxes
from purexport.frontends.core.module_classes import module_classes
from purexport.graph import printer
from purexport.graph.build import build_model
from purexport.graph.parameters import owned_values
from purexport.graph.passes import outline
from purexport.graph.passes.cse import share_equal_nodes
from purexport.graph.passes.dce import remove_dead_nodes
from purexport.graph.passes.metadata import add_metadata
from purexport.graph.passes.naming import assign_names
from purexport.graph.passes.output_axes import name_output_axes
from purexport.graph.passes.size_names import name_sizes
from purexport.graph.passes.size_vectors import sizes_as_vectors
from purexport.graph.passes.statistics import keep_statistics_apart
from purexport.program import ONNXProgram
from purexport.progress import say
from purexport.runtime.report import AS_EXAMPLE, Report
from purexport.stages.free_axes import given_names
from purexport.stages.lower import Onnx
from purexport.stages.run import Run


def build_program(run: Run, onnx: Onnx) -> ONNXProgram:
    """The model as a message, in a program that can be run and saved.  Raises WeightsError for missing weights,
    ExternalDataError if a checkpoint changed since it was opened.
    """
    options, graph = run.options, onnx.graph
    run.progress.at("build")
    remove_dead_nodes(graph)
    sizes_as_vectors(graph, options.opset)
    functions = outline.modules_as_functions(graph, run.model, options.export_modules_as_functions)
    same = share_equal_nodes(graph)
    remove_dead_nodes(graph)
    run.weights.refuse_absent(graph)
    run.weights.mapped.refuse_changed()
    name_sizes([graph, *(function.graph for function in functions)], given_names(run), same)
    owned = owned_values(graph, onnx.pure.graph.inputs)
    name_output_axes(graph, options.dynamic_axes or {})
    defaults = keep_statistics_apart(graph, functions)
    assign_names(graph)
    proto = build_model(
        graph,
        options.opset,
        type(run.model).__name__,
        options.custom_opsets,
        owned=owned,
        defaults=defaults,
        all_inputs=bool(options.keep_initializers_as_inputs),
        origins=run.weights.mapped.origins,
    )
    outline.add_functions(proto, functions, options.opset)
    if options.metadata:
        add_metadata(proto, graph, functions, module_classes(run.model))
    if options.verbose:
        parameters = [value.name for value in owned]
        found = printer.origins(graph, run.model, parameters, lines=onnx.pure.captured.scripted)
        (options.verbose if callable(options.verbose) else say)(printer.graph_text(proto, found))
    report = _report(run, onnx, proto)
    state = onnx.pure.state
    constants = run.constants if run.numbers or run.constants else None
    # where weights come from elsewhere, torch's program holds what stood for them
    recorded = None if run.options.weights is not None else onnx.pure.captured.program
    program = ONNXProgram(proto, report, {**state.first, **onnx.outside}, state.written, constants)
    return program.made_from(run.model, recorded)


def _report(run: Run, onnx: Onnx, proto: ModelProto) -> Report:
    captured, lowered = onnx.pure.captured, onnx.lowered
    report = Report(
        captured.route,
        captured.reason,
        run.options.opset,
        sorted(lowered.rules),
        sorted(lowered.decomposed),
        [*onnx.pure.remarks, *lowered.remarks],
    )
    names = [item.name for item in onnx.pure.graph.inputs if item.kind == "user"]
    found = run.free_axes or (FreeAxes() if run.options.dynamic else None)
    for item in proto.graph.input:
        shape = item.type.tensor_type.shape if item.type is not None and item.type.tensor_type is not None else None
        for axis, dim in enumerate(shape.dim if shape is not None and item.name in names else ()):
            name = item.name or ""
            if dim.dim_param:
                report.dynamic.setdefault(name, {})[axis] = dim.dim_param
            else:
                reason = (
                    AS_EXAMPLE if found is None else found.static.get(name, {}).get(axis, "the model fixes its size")
                )
                report.static.setdefault(name, {})[axis] = f"{dim.dim_value}: {reason}"
    return report
