"""The whole path as one function, read top to bottom.  Nothing flows backwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from proto_schema import operators
from proto_schema.collection import paused_collection
from proto_schema.saving import Archive, Where
from purexport.aten.autograd_functions import recording
from purexport.aten.graph import AtenGraph, Input, TensorType, values_in
from purexport.capture.choose import capture
from purexport.capture.core import names
from purexport.capture.core.mode import copied, exporting, preserved, select_model_mode_for_export, training_mode
from purexport.capture.core.module_classes import module_classes
from purexport.capture.core.request import Captured, Request
from purexport.capture.export.program import plain_shapes
from purexport.compat import past_options, torch_onnx
from purexport.compat.symbolic.rules import custom_rules
from purexport.errors import ExportError
from purexport.functionalize.graph import Functionalized, functionalize
from purexport.functionalize.state import State, keep_state
from purexport.graph import printer
from purexport.graph.build import build_model
from purexport.graph.ir import Graph, Value
from purexport.graph.passes import outline
from purexport.graph.passes.cse import share_equal_nodes
from purexport.graph.passes.dce import remove_dead_nodes
from purexport.graph.passes.metadata import add_metadata
from purexport.graph.passes.naming import assign_names
from purexport.lock import alone
from purexport.lowering.lower import lower_graph
from purexport.options import OperatorExportTypes, TrainingMode
from purexport.program import ONNXProgram, Report
from purexport.program import verify as verify_program
from purexport.progress import Progress, say
from purexport.shapes import abstract_run
from purexport.weights.model.attach import Attached, with_values

OLDEST_OPSET, DEFAULT_OPSET = 9, 20
MUTATION_POLICIES = ("warn", "error", "io")


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
    external_data: Where = None,
    shard_size: int | None = None,
    archive: Archive = None,
    resume: bool = False,
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None,
    verify: bool = False,
    report: bool = False,
    capture: str = "auto",
    mutated_state: str = "warn",
    metadata: bool = False,
    progress: Any = None,
    weights: Any = None,
) -> ONNXProgram:
    """Export ``model`` to ONNX; returns the program, and writes it to ``f`` when that is given.

    ``args`` is one tensor or a tuple, at whose end a dict may stand for keyword arguments; ``f`` a path or a binary
    file.  The file says exactly the ``opset_version`` asked for (9 to the newest; default 20).  With
    ``do_constant_folding=False`` what the model computes of its parameters stays in the graph; sizes are known numbers
    all the same.  With ``keep_initializers_as_inputs=True`` initializers are the defaults of inputs, as up to IR
    version 3.  With ``metadata=True`` each node says the line, module and class of the model that it comes from, and
    the file has IR version 10 or later.  ``progress`` is a function of (stage, number, stages), or True, which logs;
    while the file is written one that takes ``done`` and ``total`` too hears the bytes.  ``report=True`` logs how the
    program came about.  A failed export writes nothing, and leaves the model and every generator of random numbers as
    they were.

    ``external_data``, ``shard_size``, ``archive`` and ``resume`` are those of ``proto_schema.save``: where the weights
    go, whether model and weights become a tar, and whether an interrupted save goes on.

    ``weights`` fills the model's parameters and buffers for this export: a checkpoint's path (.safetensors, an index of
    shards, a torch or ONNX file), a mapping from name to tensor, a sequence of these, or a ``Checkpoint`` with options.
    Their bytes are read when they are written; the model may lie on the meta device or be fake.

    Raises ExportError (UnsupportedOperatorError for operators that ONNX cannot say at this opset, VerificationError
    when ``verify`` finds a difference), ValueError for an option out of range, its subclass WeightsError for weights
    that do not fit, OSError when ``f`` cannot be written.
    """
    opset = _opset(opset_version)
    _check_choices(operator_export_type, mutated_state)
    outline.check_wanted(export_modules_as_functions, model, opset)
    arguments, keywords = past_options.arguments_of(model, args, kwargs)
    names.check_given(input_names, output_names)
    stages = Progress(progress)

    with alone(), with_values(), paused_collection(), torch_onnx.told_to_torch(opset), recording() as applied:
        stages.at("capture")
        rules = custom_rules(opset, custom_translation_table, applied, torch_onnx.registered_with_torch(opset))
        attached = Attached(model, weights)
        # the model runs on copies, because it may write to its arguments
        copies, copied_keywords = attached.arguments(copied((arguments, keywords)))
        shapes = plain_shapes(dynamic_shapes, model, arguments, keywords)
        request = Request(
            model, copies, copied_keywords, capture, input_names, dynamic_axes, shapes, attached.hollow_tensors
        )
        mode = select_model_mode_for_export(model, training_mode(training))
        with mode, attached.swapped(), preserved(model, runs=not attached.hollow), exporting():
            captured = _capture(request, attached)
        if verify:
            attached.refuse_verification((arguments, keywords))
        _refuse_parts(captured.graph, (arguments, keywords))
        stages.at("functionalize")
        pure = functionalize(captured.graph, sizes_of_example=bool(captured.axes) and not captured.typed)
        _refuse_shared_inputs(pure, (arguments, keywords))
        remarks = [
            *captured.notes,
            *_said(captured.remarks),
            *_mutations(pure, mutated_state),
            *_types(captured, pure),
        ]
        state = [item.input for item in pure.mutations] if mutated_state == "io" else []
        names.make_way(pure.graph, input_names, output_names, dynamic_axes or (), state)
        kept = keep_state(pure) if mutated_state == "io" else State()
        pure.graph.output_names = names.name_outputs(pure.graph.output_names, output_names)
        remarks += _complex_borders(pure.graph)
        users = [item.name for item in pure.graph.inputs if item.kind == "user"]
        names.check_axes(dynamic_axes, [*users, *pure.graph.output_names])
        stages.at("lower")
        # what is computed of parameters would not follow those that come from outside
        fold = do_constant_folding and export_params and not past_options.trains(model, training)
        kind, listed = operator_export_type, captured.listed
        lowered = lower_graph(pure.graph, opset, rules, fold=fold, kind=kind, listed=listed)
        remarks += lowered.remarks
        outside = [] if export_params else _parameters_as_inputs(lowered.graph, pure.graph.inputs)
        stages.at("build")
        outlined = outline.modules_as_functions(lowered.graph, model, export_modules_as_functions)
        share_equal_nodes(lowered.graph)
        remove_dead_nodes(lowered.graph)
        attached.refuse_absent(lowered.graph)
        owned = _owned(lowered.graph, pure.graph.inputs)
        assign_names(lowered.graph)
        proto = build_model(
            lowered.graph,
            opset,
            type(model).__name__,
            custom_opsets,
            all_inputs=bool(keep_initializers_as_inputs),
            origins=attached.mapped.origins,
        )
        outline.add_functions(proto, outlined, opset)
        if metadata:
            add_metadata(proto, lowered.graph, outlined, module_classes(model))

        if verbose:
            parameters = [value.name for value in owned]
            found = printer.origins(lowered.graph, model, parameters, lines=captured.scripted)
            (verbose if callable(verbose) else say)(printer.graph_text(proto, found))

    summary = Report(captured.route, captured.reason, opset, sorted(lowered.rules), sorted(lowered.decomposed), remarks)
    if report:
        say(summary.as_text())
    own = {value.name: tensor for value, tensor in outside}
    program = ONNXProgram(proto, summary, {**kept.first, **own}, kept.written)
    if verify:
        stages.at("verify")
        with (
            alone(),
            select_model_mode_for_export(model, training_mode(training)),
            attached.swapped(valued=True),
        ):
            verify_program(program, model, arguments, keywords, rtol=1e-3, atol=1e-5)
    if f is not None:
        stages.at("save")
        where = external_data if external_data is not None else use_external_data_format or None
        stored: dict[str, Any] = {"shard_size": shard_size, "archive": archive, "resume": resume}
        program.save(f, external_data=where, progress=stages.bytes, **stored)
    return program


def _opset(version: int | None) -> int:
    newest = operators.newest_opset()
    if version is None:
        return DEFAULT_OPSET
    if not isinstance(version, int) or isinstance(version, bool) or not OLDEST_OPSET <= version <= newest:
        raise ValueError(f"opset_version={version!r} is not one of {OLDEST_OPSET} to {newest}")
    return version


def _check_choices(kind: OperatorExportTypes, mutated_state: str) -> None:
    if not isinstance(kind, OperatorExportTypes):
        raise ValueError(f"operator_export_type={kind!r} is no OperatorExportTypes")
    if mutated_state not in MUTATION_POLICIES:
        raise ValueError(f"mutated_state={mutated_state!r} is not one of {', '.join(map(repr, MUTATION_POLICIES))}")


def _capture(request: Request, attached: Attached) -> Captured:
    unknown = [item for item in request.args if isinstance(item, torch.dtype)]
    if unknown:
        raise ExportError(
            f"args holds {unknown[0]}, which is no tensor; pass example tensors", code="argument-not-a-tensor"
        )
    with attached.captured():
        captured = capture(request)
    attached.fill(captured.graph)
    named = names.order_inputs(captured.graph.inputs, request.model)
    names.name_inputs(named, request.input_names or ())
    return captured


def _refuse_parts(graph: AtenGraph, arguments: Any) -> None:
    """as_strided reads the memory around a tensor that is part of a larger one; a file sees its elements only."""
    strided = next((call for call in graph.calls if call.base == "aten::as_strided"), None)
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    plain = [tensor for tensor in tensors if tensor.layout == torch.strided]
    if strided is not None and any(_is_part(tensor) for tensor in plain):
        raise ExportError(
            f"{strided.target} at {strided.source} may read memory beside one of the args, which is part of a larger "
            "tensor; pass a copy of it (.clone())",
            code="memory-layout",
        )


def _is_part(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size()


def _refuse_shared_inputs(pure: Functionalized, arguments: Any) -> None:
    """A write to one of two inputs that share memory would reach the other in torch, and not in a file."""
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    storages = [tensor.untyped_storage()._cdata for tensor in tensors if tensor.layout == torch.strided]
    written = [item for item in pure.mutations if item.input.kind == "user"]
    if written and len(set(storages)) < len(storages):
        raise ExportError(
            f"the model writes to its input {written[0].input.name!r} at {written[0].place}, and two of the args share "
            "memory; pass tensors of their own (.clone())",
            code="args-share-memory",
        )


def _mutations(pure: Functionalized, policy: str) -> list[str]:
    """What the model writes to its inputs, parameters and buffers: said in a warning, or refused."""
    if policy == "io":
        return []
    remarks = [
        f"the model writes to its {_what(item.input)} {item.input.name!r} at {item.place}; the values inside the file "
        "are right, the write itself is not kept"
        for item in pure.mutations
    ]
    if remarks and policy == "error":
        raise ExportError("\n".join(remarks) + "\n(mutated_state='error')", code="state-written")
    return _said(remarks)


def _said(remarks: Sequence[str]) -> list[str]:
    """Each remark as a warning that points at the caller of ``export``, who stands before ``takes_past_options``."""
    for remark in remarks:
        warnings.warn(remark, UserWarning, stacklevel=5)
    return list(remarks)


def _what(item: Input) -> str:
    return "input" if item.kind == "user" else item.kind


def _types(captured: Captured, pure: Functionalized) -> list[str]:
    """Where sizes can change, a trace's types come from abstract execution; torch.export brings its own."""
    if (
        captured.typed
        or captured.route != "trace"
        or not (captured.axes or abstract_run.has_data_dependent_sizes(pure.graph))
    ):
        return []
    found = abstract_run.infer_types(pure.graph, captured.axes)
    return _said(found.remarks())


def _complex_borders(graph: AtenGraph) -> list[str]:
    """Complex inputs and outputs are real in the file: the report says which, and how to convert them."""
    named = [("input", item.name, item.value.type) for item in graph.inputs if item.kind == "user"]
    for name, output in zip(graph.output_names, graph.outputs, strict=True):
        named += [("output", name, value.type) for value in values_in([output])]
    return [
        f"{what} {name!r} is complex; in the file it is a real tensor with a last axis of size 2 (torch.view_as_real)"
        for what, name, type_ in named
        if isinstance(type_, TensorType) and type_.dtype.is_complex
    ]


def _owned(graph: Graph, inputs: Sequence[Input]) -> list[Value]:
    """What the graph holds of the model's parameters and buffers, in ``state_dict`` order."""
    order = {item.name: position for position, item in enumerate(inputs) if item.kind in ("parameter", "buffer")}
    owned = [value for value in graph.initializers() if value.name in order]
    return sorted(owned, key=lambda value: order[value.name])


def _parameters_as_inputs(graph: Graph, inputs: Sequence[Input]) -> list[tuple[Value, torch.Tensor]]:
    """``export_params=False``: what the model owns comes from outside; returns it with what the model holds."""
    found = []
    for value in _owned(graph, inputs):
        if value.const is not None:
            found.append((value, value.const))
        value.const = value.stored = None
        graph.inputs.append(value)
    return found


def export_to_pretty_string(model: Any, args: Any = (), *rest: Any, **given: Any) -> str:
    """The graph that ``export`` would write, as text in the form of the torch.onnx documents of 2018 to 2020.

    Takes the options of ``export``, by position too; ``f``, which old signatures have in the third place, is not
    written.  Raises as ``export`` does.
    """
    lines: list[str] = []
    by_position = rest if rest and isinstance(rest[0], bool) else rest[1:]
    wanted = {name: value for name, value in given.items() if name not in ("f", "verbose", "google_printer")}
    export_params = by_position[0] if by_position else wanted.pop("export_params", True)
    export(model, args, None, export_params, lines.append, *by_position[2:], **wanted)
    return lines[0]
