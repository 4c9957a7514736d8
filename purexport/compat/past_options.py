"""Options as code written for torch.onnx gives them: by position, under older names, or without a meaning today.

`takes_past_options` decorates `export`.  Arguments that old signatures take after the eighth position become keywords.
An option of the past is taken with a warning that says what became of it.  An unknown option is a TypeError that names
the nearest one.  Source: the signatures of torch.onnx.export from torch 0.3 to 2.13, whose options are in one table.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypedDict, cast

import torch

from purexport.compat import torch_onnx
from purexport.errors import ExportError
from purexport.frontends.core.mode import exporting, select_model_mode_for_export
from purexport.frontends.core.observed import Observed
from purexport.frontends.core.request import script_parameters
from purexport.options import OperatorExportTypes, TrainingMode, ours
from purexport.program import ONNXProgram
from purexport.torch_patches.torch_jit import ScriptModule, is_script

P = ParamSpec("P")

# torch 2.0 on, after output_names
_NEWER = (
    "operator_export_type",
    "opset_version",
    "do_constant_folding",
    "dynamic_axes",
    "keep_initializers_as_inputs",
    "custom_opsets",
    "export_modules_as_functions",
    "autograd_inlining",
)
# torch 1.2 to 1.9; the first is a bool, by which the two are told apart
_OLDER = (
    "aten",
    "export_raw_ir",
    "operator_export_type",
    "opset_version",
    "_retain_param_name",
    "do_constant_folding",
    "example_outputs",
    "strip_doc_string",
    "dynamic_axes",
    "keep_initializers_as_inputs",
    "custom_opsets",
    "enable_onnx_checker",
    "use_external_data_format",
)
# older names of an operator_export_type, when they are true
_KINDS = {"aten": OperatorExportTypes.ONNX_ATEN, "export_raw_ir": OperatorExportTypes.RAW}


class PastOptions(TypedDict, total=False):
    """Options of older signatures of torch.onnx.export, which are taken with a warning."""

    _retain_param_name: Any
    add_node_names: Any
    aten: Any
    enable_onnx_checker: Any
    export_raw_ir: Any
    export_type: Any
    fixed_batch_size: Any
    onnx_shape_inference: Any
    propagate: Any
    strip_doc_string: Any
    val: Any


_NOT_NEEDED = "dtypes and shapes follow from the model"
_ROUTE = "capture='trace' or 'export' chooses the route"
_REPORT = "the report lies in ONNXProgram.report"
_VERIFY = "verify=True compares the file with the model"
_PAST = {
    "_retain_param_name": "parameters always keep their state_dict names",
    "add_node_names": "nodes always have names",
    "artifacts_dir": _REPORT,
    "autograd_inlining": "a Function without a symbolic is always inlined",
    "dump_exported_program": "torch.export.export gives the program, and purexport.export takes it",
    "dynamo": _ROUTE,
    "enable_onnx_checker": "purexport check, or proto_schema.checker.check_model, checks a file",
    "example_outputs": _NOT_NEEDED,
    "export_type": "f is a path or a binary file",
    "fallback": _ROUTE,
    "fixed_batch_size": "dynamic_axes says which sizes may change",
    "onnx_shape_inference": "types are always inferred",
    "optimize": "what is computed once or never is always found",
    "profile": _REPORT,
    "propagate": _NOT_NEEDED,
    "strip_doc_string": "no source lines are written into the file",
    "val": _VERIFY,
}


def takes_past_options(export: Callable[P, ONNXProgram]) -> Callable[P, ONNXProgram]:
    """`export` as callers of every torch.onnx call it.

    Raises TypeError for an unknown option, and for one that is given twice.
    """
    parameters = inspect.signature(export).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    known = [item.name for item in parameters if item.kind not in variable]
    positions = sum(item.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for item in parameters)

    @functools.wraps(export)
    def call(*args: Any, **given: Any) -> ONNXProgram:
        options, remarks = translated({**given, **_by_position(args[positions:], given)}, known)
        for remark in remarks if not torch_onnx.patched() else ():  # under `patch` the code cannot be changed
            warnings.warn(remark, UserWarning, stacklevel=2)
        with torch_onnx.errors_of_torch():
            program = cast(Callable[..., ONNXProgram], export)(*args[:positions], **options)
        program.report.warnings[:0] = remarks
        if given.get("dynamo", torch_onnx.patched() or None):
            arguments = args[1] if len(args) > 1 else options.get("args", ())
            given_by_name = options.get("kwargs"), options.get("dynamic_shapes")
            # the model is kept for it, whose weights the program has anyway
            program.recording = functools.partial(_recorded, program.source(), arguments, *given_by_name)
        return program

    return cast(Callable[P, ONNXProgram], call)


def _by_position(values: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments after the eighth position, by name."""
    names = _OLDER if values and isinstance(values[0], bool) else _NEWER
    if len(values) > len(names):
        raise TypeError(f"export() takes at most {8 + len(names)} arguments by position, {8 + len(values)} were given")
    twice = [name for name, _ in zip(names, values, strict=False) if name in given]
    if twice:
        raise TypeError(f"export() got {twice[0]!r} by position and by name")
    return dict(zip(names, values, strict=False))


def translated(given: Mapping[str, Any], known: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The options that `known` lists, and a remark on each past one.  Raises TypeError for an unknown option."""
    options, remarks = {}, []
    for name, value in given.items():
        if name in _KINDS:
            remarks.append(f"{name} is an older name: operator_export_type=OperatorExportTypes.{_KINDS[name].name}")
            if value:
                options["operator_export_type"] = _KINDS[name]
        elif name in _PAST and (name not in known or value is not None):
            remarks.append(f"the option {name!r} has no effect any more: {_PAST[name]}")
        elif name in known:
            options.setdefault(name, value)
        elif name not in _PAST:
            raise TypeError(f"export() has no option {name!r}; the nearest is {_nearest(name, known)!r}")
    kind = options.get("operator_export_type", OperatorExportTypes.ONNX)
    if kind is None:
        del options["operator_export_type"]  # the default of older signatures
    elif "operator_export_type" in options:
        options["operator_export_type"] = ours(OperatorExportTypes, kind)
    return options, remarks


def _nearest(name: str, known: Sequence[str]) -> str:
    return difflib.get_close_matches(name, [*known, *_PAST, *_KINDS], n=1, cutoff=0.0)[0]


def _recorded(
    model: Any, args: Any, kwargs: Mapping[str, Any] | None, shapes: Any
) -> torch.export.ExportedProgram | None:
    """What torch.export records of a model; None for what is no module.

    Raises what torch.export raises.
    """
    if not isinstance(model, torch.nn.Module) or isinstance(model, ScriptModule):
        return None
    positional, keywords = arguments_of(model, args, kwargs)
    with select_model_mode_for_export(model, TrainingMode.EVAL), exporting():
        return torch.export.export(model, positional, keywords, dynamic_shapes=shapes, strict=False)


# Arguments of the model -----------------------------------------------------------------------------------------------


def arguments_of(model: Any, args: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`args` and `kwargs` of a call of the model: a dict at the end of `args` is its keyword arguments.

    As in torch.onnx a list stands for the tuple where the model does not take it as its only argument, and an empty
    dict at the end says that a dict before it is a positional argument.  A dict is positional too if `forward` cannot
    take its keys as names.  If `kwargs` are given, `args` stay as they are.
    Observed calls stand for the arguments of one.
    Raises ExportError if some of the keys are parameters of `forward` and others are not, or if no call was observed.
    """
    if isinstance(args, Observed):
        return args.form.best.arguments
    given = args if isinstance(args, tuple) else (args,)
    if isinstance(args, list) and _is_listed(model, args, kwargs):
        given = tuple(args)
    if kwargs is not None or not given or type(given[-1]) is not dict:
        return given, dict(kwargs or {})
    *first, last = given
    if not last:
        return tuple(first), {}
    parameters = _parameters(model)
    if parameters is None or not all(isinstance(key, str) for key in last):
        return given, {}
    try:
        parameters.bind(*first, **last)
    except TypeError as failure:
        if not _fits(parameters, given, {}):
            raise ExportError(
                f"args end with a dict of keyword arguments ({', '.join(last)}) that the model does not take: "
                f"{failure}; its parameters are {', '.join(parameters.parameters)}",
                code="args-do-not-fit",
            ) from None
        return given, {}
    return tuple(first), dict(last)


def _is_listed(model: Any, args: list[Any], kwargs: Mapping[str, Any] | None) -> bool:
    """Whether the model takes the elements of a list as its arguments, and not the list as one."""
    parameters = _parameters(model)
    named = dict(kwargs or {})
    return parameters is not None and not _fits(parameters, (args,), named) and _fits(parameters, tuple(args), named)


def _fits(parameters: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    try:
        parameters.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _parameters(model: Any) -> inspect.Signature | None:
    if is_script(model):
        kind, none = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        return inspect.Signature(
            [
                inspect.Parameter(item.name, kind, default=item.default_value if item.has_default_value() else none)
                for item in script_parameters(model)
            ]
        )
    try:
        return inspect.signature(model.forward if isinstance(model, torch.nn.Module) else model)
    except (TypeError, ValueError):
        return None
