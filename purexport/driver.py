"""The whole export as one function, to be read from top to bottom.  No stage refers to a later one.

`capture` is its first half: the model runs once.  `CapturedModel.to_onnx` is the second, any number of times, for any
opset and target.  The file is that of `export`, byte for byte.  Invariant: torch runs again only where the graph
depends on the opset (`stages/capture.py` says how), or where an opset refuses a number or an axis that another takes as
an input of the file.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch

from proto_schema.external.executors import ExecutorLike
from proto_schema.files.saving import Archive, Where
from purexport.compat import past_options
from purexport.compat.past_options import PastOptions
from purexport.errors import ExportError
from purexport.frontends.core.calls import refuse_mixed_up
from purexport.frontends.core.request import Captured
from purexport.options import (
    Branches,
    Capture,
    Destination,
    MutatedState,
    Named,
    OperatorExportTypes,
    Options,
    Quantize,
    TargetName,
    TrainingMode,
)
from purexport.program import ONNXProgram
from purexport.progress import Told, say
from purexport.progress.bar import shown
from purexport.stages.build import build_program
from purexport.stages.finish import judge_path, save_program, verify_program
from purexport.stages.free_axes import R, at_any_size
from purexport.stages.functionalize import by_next_route, pure_graph
from purexport.stages.lower import Onnx, lower_to_onnx
from purexport.stages.numbers import with_numbers
from purexport.stages.quantize import quantize_program
from purexport.stages.run import Memory, Run, opened, warn_user

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack  # which torch needs

Model: TypeAlias = Callable[..., object] | torch.export.ExportedProgram
if TYPE_CHECKING:
    from purexport.weights.checkpoint import Checkpoint
    from purexport.weights.stored import Stored

    WeightsSource: TypeAlias = str | os.PathLike[str] | Mapping[str, torch.Tensor | Stored] | Checkpoint
    GivenWeights: TypeAlias = WeightsSource | Sequence[WeightsSource] | None
else:
    GivenWeights = object  # readers of checkpoints take 20 ms to import, which a first export need not


@past_options.takes_past_options
def export(
    model: Model,
    args: object = (),
    f: Destination = None,
    export_params: bool = True,
    verbose: bool | Callable[[str], object] = False,
    training: TrainingMode | bool | Named = TrainingMode.EVAL,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    *by_position: object,
    kwargs: Mapping[str, object] | None = None,
    operator_export_type: OperatorExportTypes | Named = OperatorExportTypes.ONNX,
    opset_version: int | None = None,
    do_constant_folding: bool = True,
    example_outputs: object = None,
    keep_initializers_as_inputs: bool | None = None,
    dynamic_axes: Mapping[str, object] | None = None,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool | Collection[type] = False,
    use_external_data_format: bool | None = None,
    dynamic_shapes: object = None,
    dynamic: bool = False,
    external_data: Where = None,
    shard_size: int | None = None,
    archive: Archive = None,
    resume: bool = False,
    overwrite: bool = False,
    checksums: bool = False,
    executor: ExecutorLike = None,
    custom_translation_table: Mapping[Any, Callable[..., object]] | None = None,
    verify: bool | list[Any] = False,
    rtol: float | None = None,
    atol: float | None = None,
    report: bool = False,
    capture: Capture = "auto",
    mutated_state: MutatedState = "warn",
    branches: Branches = "example",
    metadata: bool = False,
    progress: Told = None,
    weights: GivenWeights = None,
    target: TargetName = "onnx",
    quantize: Quantize = None,
    dynamo: bool | None = None,
    optimize: bool | None = None,
    fallback: bool | None = None,
    profile: bool | None = None,
    dump_exported_program: bool | None = None,
    artifacts_dir: object = None,
    autograd_inlining: bool | None = None,
    **past: Unpack[PastOptions],
) -> ONNXProgram:
    """Export `model` to ONNX, write it to `f` if that is given, and return the program.

        program = purexport.export(model, (torch.rand(1, 3, 224, 224),), "model.onnx", dynamic=True, verify=True)
        print(program.report)

    A failed export writes nothing, and leaves the model and every generator of random numbers as they were.

    What is exported:
      `model`: an nn.Module, a script, an ExportedProgram, or a function.
      `args`: one tensor or a tuple; a dict at its end holds keyword arguments; or the calls that `purexport.observe`
        saw.  Arguments and results may be containers, mappings, dataclasses and caches, nested in any way.  By trace
        the Python numbers among the arguments are inputs too, where the model lets them vary.
      `kwargs`: keyword arguments, also None, numbers and strings.
      `training`: EVAL, PRESERVE, TRAINING, or a bool; torch's own enum is taken too.
      `weights`: fills the parameters and buffers for this export: a checkpoint's path (.safetensors, an index of
        shards, a torch or ONNX file), a mapping from name to tensor, a sequence of these, or a `Checkpoint` with
        options.  Their bytes are read when they are written.  The model may be on the meta device or have fake tensors.
      `capture`: "trace" (one run on tensors without data, with symbolic sizes), "export" (torch.export), or "auto": a
        script and an ExportedProgram as they are, other models by the first of these that succeeds.
      `mutated_state`: how to treat a buffer or an input that the model writes to: "warn", "error", or "io", which
        makes them inputs and outputs of the file.
      `branches`: which ways of an `if` on sizes or data the file has: that of the "example", or "both", as `If`, where
        the ways come together again.  That takes a run of the model for each `if`, on tensors without data.

    What the file says:
      `opset_version`: exactly this opset, 9 to the newest; 20 by default.
      `custom_opsets`: versions of the domains of custom operators.
      `input_names`, `output_names`: names of the first inputs, after these of the entries of `state_dict`, and outputs.
      `dynamic_axes`: axes that may vary, by the name of an input, as in `past_key_values.0.key`, or of an argument, as
        in `past_key_values`: {"x": {0: "batch"}} or {"x": [0]}.
      `dynamic_shapes`: the same as torch.export takes it, on every route.
      `dynamic`: True: the model runs at other sizes first; every axis that it lets vary is dynamic, and the report says
        why the other axes are static.
      `export_params`: False: parameters and buffers are inputs, in the order of `state_dict`.
      `keep_initializers_as_inputs`: True: initializers are the defaults of inputs, as up to IR version 3.
      `do_constant_folding`: False: values that the model computes from its parameters stay in the graph; static sizes
        are still numbers.
      `operator_export_type`: how to treat operators that ONNX does not have; torch's own enum is taken too.
      `custom_translation_table`: operators of torch to functions that write them in ONNX.
      `export_modules_as_functions`: True, or a set of classes of modules that become ONNX functions.
      `metadata`: True: each node has the line, module and class of the model that it comes from; such a file has IR
        version 10 or later.

    Where it is written: `f` is a path or a binary file.  A path that cannot be written to is refused before the export
    begins.  The other options are the same as in `proto_schema.save`:
      `external_data`: where the weights are: None, True, False or "reference".
      `use_external_data_format`: the same, for older code.
      `shard_size`: bytes of one data file.
      `archive`: "tar": model and weights in one stream.
      `resume`: True: an interrupted save is continued.
      `overwrite`: True: a file that is not known to be a model may be replaced.
      `checksums`: True: the file says the SHA-256 of its tensors and data files.
      `executor`: who writes data files, in pieces: an executor of concurrent.futures, or its name.

    Reports and checks:
      `verbose`: True logs the printed graph; a function gets its text.
      `report`: True logs how the program was made.
      `progress`: by default a line at a terminal or in a notebook, for what takes longer than two seconds; False: none;
        True: the log; or a function of (stage, number, stages).  If it also takes `done` and `total`, it gets the
        number of bytes while the file is written.
      `verify`: True runs the file in onnxruntime on `args` and compares the results with the model's; a list holds the
        arguments of more calls.
      `rtol`, `atol`: the tolerances; by default they follow from the data types of the file.

    Code for torch.onnx may give more options by position (`by_position`), as in the years of torch 1.2 to 2.4.
    `example_outputs`, `dynamo`, `optimize`, `fallback`, `profile`, `dump_exported_program`, `artifacts_dir`,
    `autograd_inlining` and the options of `past` are taken; a warning says what became of each.

    `target` says what the file shall run on. With "onnx" it has standard operators, in forms for which the newest ONNX
    Runtime has kernels on the CPU; with "onnx; onnxruntime==1.20" those of that release; with "onnx; any" each operator
    stays in the model's dtype, as runtimes with kernels of their own want it (bfloat16 on a GPU, for one).  With
    "onnxruntime" the file may also have operators of its domain com.microsoft: MultiHeadAttention, and those that read
    quantized weights.

    `quantize` stores the weights of products in fewer bits: "int4", "int8", "float16", ..., or a mapping of the fields
    of `proto_schema.quantization.Scheme`, as in {"type": "int4", "block_size": 64, "exclude": "head.*"}.  With a
    "target" of "onnxruntime" among them, or as that of the export, products become MatMulNBits.  With "activations" of
    "uint8" or "int8" and a "calibration" (a list of arguments of the model, a folder of .npz files, ...) results of
    nodes become integers, too, as by `proto_schema.quantization.quantize`.  Each weight is read once, when the file is
    written.  Without an `opset_version` the file has the first opset, from the default on, that can say it.  With
    `verify` the file is compared twice, with the usual bounds: before the quantization with torch, and afterwards with
    one of floats that are rounded alike.

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
        operator_export_type=cast(OperatorExportTypes, operator_export_type),  # the decorator has made it ours
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
        checksums=checksums,
        executor=executor,
        custom_translation_table=custom_translation_table,
        verify=verify,
        rtol=rtol,
        atol=atol,
        report=report,
        capture=capture,
        mutated_state=mutated_state,
        branches=branches,
        metadata=metadata,
        progress=progress,
        weights=weights,
        target=target,
        quantize=quantize,
    )
    return made(model, args, kwargs, options, f)


def made(
    model: Any, args: Any, kwargs: Mapping[str, Any] | None, options: Options, f: Any, memory: Memory | None = None
) -> ONNXProgram:
    """The program, written to `f` when that is given.  `memory` is that of a capture of the model (`capture_once`)."""
    refuse_mixed_up(model, args, f)
    judge_path(f, options)
    with with_progress(options) as told:
        with opened(model, args, kwargs, told, memory) as run:
            declared, onnx = lowered(run)
            program = build_program(declared, onnx)
        if told.verifies:
            verify_program(run, program, onnx)
        quantize_program(run, program)
        if told.report:
            say(program.report.as_text(rules=True))
        if f is not None:
            save_program(run, program, f)
    return program


@contextmanager
def with_progress(options: Options) -> Iterator[Options]:
    """The options, with a line at the terminal as their `progress` where none was asked for."""
    with shown(options.progress) as told:
        yield options if told is options.progress else dataclasses.replace(options, progress=told)


def lowered(run: Run) -> tuple[Run, Onnx]:
    """The ONNX graph, and the run with the numbers and axes that it has."""
    declared, onnx, remarks = with_numbers(run, lambda given: _at_asked_sizes(given, captured_and_lowered))
    onnx.lowered.remarks[:0] = warn_user([*run.remarks, *remarks])
    return declared, onnx


def capture_once(model: Any, args: Any, kwargs: Mapping[str, Any] | None, options: Options) -> tuple[Memory, Captured]:
    """The capture of a model, and a memory in which it stands for later runs.  Raises what a capture raises."""
    refuse_mixed_up(model, args, None)
    with with_progress(options) as told, opened(model, args, kwargs, told) as run:
        _, pure, _ = with_numbers(run, lambda given: _at_asked_sizes(given, pure_graph))
        return run.memory, pure.captured


def captured_and_lowered(run: Run) -> Onnx:
    """The stages of one export from the model to the ONNX graph."""
    pure = pure_graph(run)
    try:
        return lower_to_onnx(run, pure)
    except ExportError as error:
        return by_next_route(run, pure.captured, error, captured_and_lowered)


def _at_asked_sizes(run: Run, stages: Callable[[Run], R]) -> tuple[Run, R]:
    return at_any_size(run, stages) if run.options.dynamic else (run, stages(run))


def export_to_pretty_string(model: Model, args: object = (), *rest: Any, **given: Any) -> str:
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


OF_THE_CAPTURE = (
    "input_names",
    "output_names",
    "dynamic_axes",
    "dynamic",
    "dynamic_shapes",
    "capture",
    "training",
    "mutated_state",
    "branches",
    "weights",
    "progress",
)


def capture(
    model: Model,
    args: object = (),
    kwargs: Mapping[str, object] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, object] | None = None,
    dynamic: bool = False,
    dynamic_shapes: object = None,
    capture: Capture = "auto",
    *,
    training: TrainingMode | bool | Named = TrainingMode.EVAL,
    mutated_state: MutatedState = "warn",
    branches: Branches = "example",
    weights: GivenWeights = None,
    progress: Told = None,
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
        branches=branches,
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
        f: Destination = None,
        opset_version: int | None = None,
        target: TargetName = "onnx",
        quantize: Quantize = None,
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
