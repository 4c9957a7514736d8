"""The whole export as one function, to be read from top to bottom.  No stage refers to a later one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from proto_schema.saving import Archive, Where
from purexport.compat import past_options
from purexport.options import OperatorExportTypes, Options, TrainingMode
from purexport.program import ONNXProgram
from purexport.stages.build import build_program
from purexport.stages.capture import capture_model
from purexport.stages.finish import judge_path, save_program, verify_program
from purexport.stages.free_axes import lower_at_any_size
from purexport.stages.functionalize import make_pure
from purexport.stages.lower import Onnx, lower_to_onnx
from purexport.stages.numbers import lower_with_numbers
from purexport.stages.run import Run, opened


@past_options.takes_past_options
def export(
    model: Any,
    args: Any = (),
    f: Any = None,
    export_params: bool = True,
    verbose: bool | Callable[[str], Any] = False,
    training: TrainingMode | bool = TrainingMode.EVAL,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX,
    opset_version: int | None = None,
    do_constant_folding: bool = True,
    example_outputs: Any = None,
    keep_initializers_as_inputs: bool | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool | Collection[type] = False,
    use_external_data_format: bool | None = None,
    dynamic_shapes: Any = None,
    dynamic: bool = False,
    external_data: Where = None,
    shard_size: int | None = None,
    archive: Archive = None,
    resume: bool = False,
    overwrite: bool = False,
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None,
    verify: bool = False,
    report: bool = False,
    capture: str = "auto",
    mutated_state: str = "warn",
    metadata: bool = False,
    progress: Any = None,
    weights: Any = None,
) -> ONNXProgram:
    """Export `model` to ONNX; returns the program, and writes it to `f` when that is given.

    `args` is one tensor or a tuple; a dict at the end of the tuple holds keyword arguments.  Arguments and results may
    be containers, mappings, dataclasses and caches, in each other.  By trace the Python numbers among the arguments are
    inputs too, where the model lets them vary.  `dynamic_axes` names inputs, as in
    `past_key_values.0.key`, or arguments, as in `past_key_values`.  With `dynamic=True` the model runs at other
    sizes first; every axis that it lets vary is dynamic, and the report says why the others are not.

    `f` is a path or a binary file.  The file has exactly the requested `opset_version` (9 to the newest; default 20).
    With `do_constant_folding=False` values that the model computes from its parameters stay in the graph; static sizes
    are numbers all the same.  With `keep_initializers_as_inputs=True` initializers are the defaults of inputs, as up to
    IR version 3.  With `metadata=True` each node has the line, module and class of the model that it comes from, and
    the file has IR version 10 or later.  `progress` is a function of (stage, number, stages), or True, which logs.  If
    the function also takes `done` and `total`, it gets the number of bytes while the file is written.  `report=True`
    logs how the program was made.  A failed export writes nothing, and leaves the model and every generator of random
    numbers as they were.

    `external_data`, `shard_size`, `archive`, `resume` and `overwrite` are those of `proto_schema.save`.  They say where
    the weights are written, whether model and weights become a tar, whether an interrupted save is continued, and
    whether a file that is not known to be a model may be replaced.  A path that cannot be written to is refused before
    the export begins.

    `weights` fills the model's parameters and buffers for this export: a checkpoint's path (.safetensors, an index of
    shards, a torch or ONNX file), a mapping from name to tensor, a sequence of these, or a `Checkpoint` with options.
    Their bytes are read when they are written.  The model may be on the meta device or consist of fake tensors.

    Raises ExportError (UnsupportedOperatorError for operators that ONNX cannot express at this opset, VerificationError
    when `verify` finds a difference), ValueError for an option out of range, its subclass WeightsError for weights
    that do not fit, OSError when `f` cannot be written.
    """
    options = Options(
        export_params=export_params,
        verbose=verbose,
        training=training,
        input_names=input_names,
        output_names=output_names,
        operator_export_type=operator_export_type,
        opset_version=opset_version,
        do_constant_folding=do_constant_folding,
        keep_initializers_as_inputs=keep_initializers_as_inputs,
        dynamic_axes=dynamic_axes,
        custom_opsets=custom_opsets,
        export_modules_as_functions=export_modules_as_functions,
        use_external_data_format=use_external_data_format,
        dynamic_shapes=dynamic_shapes,
        dynamic=dynamic,
        external_data=external_data,
        shard_size=shard_size,
        archive=archive,
        resume=resume,
        overwrite=overwrite,
        custom_translation_table=custom_translation_table,
        verify=verify,
        report=report,
        capture=capture,
        mutated_state=mutated_state,
        metadata=metadata,
        progress=progress,
        weights=weights,
    )
    judge_path(f, options)
    with opened(model, args, kwargs, options) as run:
        declared, onnx = lower_with_numbers(run, _at_asked_sizes)
        program = build_program(declared, onnx)
    if options.verify:
        verify_program(run, program)
    if f is not None:
        save_program(run, program, f)
    return program


def _at_asked_sizes(run: Run) -> tuple[Run, Onnx]:
    stages = _captured_and_lowered
    return lower_at_any_size(run, stages) if run.options.dynamic else (run, stages(run))


def _captured_and_lowered(run: Run) -> Onnx:
    captured = capture_model(run)
    pure = make_pure(run, captured)
    return lower_to_onnx(run, pure)


def export_to_pretty_string(model: Any, args: Any = (), *rest: Any, **given: Any) -> str:
    """The graph that `export` would write, as text in the form of the torch.onnx documents of 2018 to 2020.

    Takes the options of `export`, also by position.  `f` is the third parameter of old signatures and is not written.
    Raises the errors of `export`.
    """
    lines: list[str] = []
    by_position = rest if rest and isinstance(rest[0], bool) else rest[1:]
    wanted = {name: value for name, value in given.items() if name not in ("f", "verbose", "google_printer")}
    export_params = by_position[0] if by_position else wanted.pop("export_params", True)
    export(model, args, None, export_params, lines.append, *by_position[2:], **wanted)
    return lines[0]
