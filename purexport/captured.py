"""A captured model: what an export knows of a model before it asks for an opset or a runtime.

`capture` runs the model once.  `CapturedModel.to_onnx` makes a program of that any number of times, for any opset and
target.  Both together are `export`, and the file is the same, byte for byte.  Invariant: torch runs again only where
the graph depends on the opset (`stages/capture.py` says how), or where an opset refuses a number or an axis that
another takes as an input of the file.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proto_schema.saving import Where
from purexport.frontends.core.request import Captured
from purexport.options import Options, TrainingMode
from purexport.pipeline import capture_once, made
from purexport.program import ONNXProgram
from purexport.stages.run import Memory

OF_THE_CAPTURE = (
    "input_names",
    "output_names",
    "dynamic_axes",
    "dynamic",
    "dynamic_shapes",
    "capture",
    "training",
    "mutated_state",
    "weights",
    "progress",
)


def capture(
    model: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic: bool = False,
    dynamic_shapes: Any = None,
    capture: str = "auto",
    *,
    training: TrainingMode | bool | Any = TrainingMode.EVAL,
    mutated_state: str = "warn",
    weights: Any = None,
    progress: bool | Callable[..., Any] | None = None,
) -> CapturedModel:
    """Capture `model` on the example arguments, for any number of files.

        captured = purexport.capture(model, (x,), dynamic_axes={"x": {0: "batch"}})
        captured.to_onnx("new.onnx", opset_version=23)
        captured.to_onnx("old.onnx", opset_version=13)

    The arguments are those of `purexport.export` with the same names; the other options of `export` are arguments of
    `to_onnx`.  The parameters of the model are not copied: a file has their values when it is written.  The model
    itself must not change between.

    Raises ExportError where the model cannot be captured, ValueError for an option out of range or a name that does
    not fit the model, WeightsError for weights that do not fit.
    """
    options = Options(
        training=training,
        input_names=input_names,
        output_names=output_names,
        dynamic_axes=dynamic_axes,
        dynamic=dynamic,
        dynamic_shapes=dynamic_shapes,
        capture=capture,
        mutated_state=mutated_state,
        weights=weights,
        progress=progress,
    )
    memory, found = capture_once(model, args, kwargs, options)
    return CapturedModel(model, args, kwargs, options, memory, found)


class CapturedModel:
    """What `purexport.capture` returns.

    `route` and `reason` say how the model was captured, as in the report of a program.  `str` is the graph in ATen
    operators as text.
    """

    def __init__(
        self,
        model: Any,
        args: Any,
        kwargs: Mapping[str, Any] | None,
        options: Options,
        memory: Memory,
        captured: Captured,
    ) -> None:
        self._model, self._args, self._kwargs = model, args, kwargs
        self._options, self._memory, self._captured = options, memory, captured

    @property
    def route(self) -> str:
        """ "trace", "export", "script" or "program"."""
        return self._captured.route

    @property
    def reason(self) -> str:
        """Why that route was taken."""
        return self._captured.reason

    def to_onnx(
        self,
        f: Any = None,
        opset_version: int | None = None,
        target: str = "onnx",
        quantize: Any = None,
        external_data: Where = None,
        verify: bool | list[Any] = False,
        **options: Any,
    ) -> ONNXProgram:
        """The program for an opset and a runtime, written to `f` when that is given.

        The arguments, and `options` such as `do_constant_folding` or `metadata`, are those of `purexport.export`, and
        so is the result: the same bytes as an export with the options of the capture and these.

        Raises what `export` raises; TypeError for an option that belongs to `capture`, or that there is not.
        """
        _refuse_strange(options)
        asked = dataclasses.replace(
            self._options,
            opset_version=opset_version,
            target=target,
            quantize=quantize,
            external_data=external_data,
            verify=verify,
            **options,
        )
        return made(self._model, self._args, self._kwargs, asked, f, self._memory)

    def __str__(self) -> str:
        return str(self._captured.graph)

    def __repr__(self) -> str:
        graph = self._captured.graph
        inputs = sum(item.kind == "user" for item in graph.inputs)
        name = getattr(self._model, "__name__", type(self._model).__name__)
        return f"CapturedModel({name}, by {self.route}: {inputs} inputs, {len(graph.calls)} calls)"


def _refuse_strange(options: Mapping[str, Any]) -> None:
    known = {field.name for field in dataclasses.fields(Options)}
    for name in options:
        if name in OF_THE_CAPTURE:
            raise TypeError(f"to_onnx: {name!r} belongs to the capture; give it to purexport.capture")
        if name not in known:
            near = difflib.get_close_matches(name, known - set(OF_THE_CAPTURE), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"to_onnx: there is no option {name!r}{hint}")
