"""Capture: the model and its arguments become the neutral graph, by one of the routes.  The model is left unchanged."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from proto_schema import operators
from purexport.compat import torch_onnx
from purexport.errors import ExportError
from purexport.frontends.choose import capture
from purexport.frontends.core import names
from purexport.frontends.core.mode import detached, exporting, preserved, select_model_mode_for_export
from purexport.frontends.core.request import Captured, Request
from purexport.frontends.core.structures import counted
from purexport.frontends.export.route import plain_shapes
from purexport.lowering.core.versions import takes_sequences
from purexport.stages.run import Run


class CaptureKey(NamedTuple):
    """What a capture depends on, of that in which two runs of one memory may differ.

    The opset is among it in two ways: older versions of Loop carry no lists, which counts where a script is
    interpreted, and torch is told the opset while a `patch` is open.
    """

    choice: str
    axes: str
    numbers: tuple[int, ...]
    constants: str
    loops_carry_lists: bool
    branches: str
    told_to_torch: int | None


def capture_key(run: Run) -> CaptureKey:
    """The key of the graph that a capture gives for a run."""
    options = run.options
    return CaptureKey(
        options.capture,
        repr(options.dynamic_axes),
        tuple(run.numbers),
        repr(run.constants),
        takes_sequences(operators.schema("Loop", options.opset)),
        options.branches,
        options.opset if torch_onnx.patched() else None,
    )


def capture_model(run: Run) -> Captured:
    """The neutral graph, with names for its inputs, and with the weights for the file.

    Raises ExportError where no route takes the model, ValueError for names or axes that do not fit the model.
    """
    _refuse_wrapped(run.model)
    options, weights = run.options, run.weights
    args, kwargs = weights.arguments(detached(run.arguments))
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
        capture_key(run).loops_carry_lists,
        both=options.branches == "both",
    )
    mode = select_model_mode_for_export(run.model, options.training)
    with mode, weights.swapped(), preserved(run.model, runs=not weights.valueless), exporting():
        with weights.captured():
            captured = capture(request)
        captured.remarks += counted((args, kwargs))
        graph = weights.filled(captured.graph)
        named = names.ordered_and_named(graph.inputs, run.model, options.input_names or ())
    return replace(captured, graph=graph.with_inputs(named))


def _refuse_wrapped(model: Any) -> None:
    """Raises ExportError for a weight that has no memory of its own, as torchao's have none.

    Those that are spread over processes (DTensor) have an error of their own.
    """
    if not isinstance(model, nn.Module):
        return
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if is_traceable_wrapper_subclass(tensor) and not hasattr(tensor, "device_mesh"):
            raise ExportError(
                f"weight {name!r} is a {type(tensor).__name__}, which consists of other tensors; for a model that "
                "torchao quantized call torchao.utils.unwrap_tensor_subclass(model) before the export, otherwise "
                "replace the weight by a plain tensor",
                code="weights-not-plain",
            )
