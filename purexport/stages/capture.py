"""Capture: the model and its arguments become the neutral graph, by one of the routes.  The model is left unchanged."""

from __future__ import annotations

from proto_schema import operators
from purexport.capture.choose import capture
from purexport.capture.core import names
from purexport.capture.core.mode import copied, exporting, preserved, select_model_mode_for_export
from purexport.capture.core.request import Captured, Request
from purexport.capture.core.structures import counted
from purexport.capture.export.route import plain_shapes
from purexport.lowering.core.versions import takes_sequences
from purexport.stages.run import Run


def capture_model(run: Run) -> Captured:
    """The neutral graph, with names for its inputs, and with the weights for the file.

    Raises ExportError where no route takes the model, ValueError for names or axes that do not fit the model.
    """
    options, weights = run.options, run.weights
    # the model runs on copies, because it may write to its arguments
    args, kwargs = weights.arguments(copied(run.arguments))
    request = Request(
        run.model,
        args,
        kwargs,
        options.capture,
        options.input_names,
        options.dynamic_axes,
        plain_shapes(options.dynamic_shapes, run.model, run.args, run.kwargs),
        weights.valueless_tensors,
        options.output_names or (),
        run.numbers,
        takes_sequences(operators.schema("Loop", options.opset)),
    )
    mode = select_model_mode_for_export(run.model, options.training)
    with mode, weights.swapped(), preserved(run.model, runs=not weights.valueless), exporting():
        with weights.captured():
            captured = capture(request)
        captured.remarks += counted((args, kwargs))
        weights.fill(captured.graph)
        named = names.order_inputs(captured.graph.inputs, run.model)
        names.name_inputs(named, options.input_names or ())
    return captured
