"""`torch.export` programs to the neutral graph.

The program is read as `torch.export.export` returns it, before `run_decompositions`.  So it still contains in-place
operators and views, under the names that a trace records, and our own functionalization removes them.
Arithmetic on sizes arrives as Python operators on symbolic integers.  It becomes the same scalar calls that a trace
records.  Symbols get the names of the declared axes, and sizes are expressions of those names.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from purexport.aten.axes import own_name
from purexport.aten.graph import (
    AtenGraph,
    AtenValue,
    Call,
    Input,
    Recording,
    same_bytes,
)
from purexport.errors import ExportError
from purexport.fx.reader import FxReader
from purexport.shapes.symbols import Symbols
from purexport.torch_patches.quiet import quiet_torch

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def read(program: torch.export.ExportedProgram, names: Sequence[str] | None, symbols: Symbols) -> AtenGraph:
    """The neutral graph of a program.

    `names` are those of the user's tensor inputs, in order (None: torch's own); `symbols` reads torch's sizes.
    """
    program = _resolved(program)
    reader = FxReader(Recording(), symbols)
    env = _placeholders(program, names, symbols, reader.graph)
    outputs = reader.body(program.graph_module, env)
    specs = program.graph_signature.output_specs
    results: list[Any] = []
    for output, spec in zip(outputs, specs, strict=True):
        if spec.kind.name == "USER_OUTPUT":
            results.append(output)
        elif spec.kind.name in _MUTATIONS:
            args = {"self": _written(program, spec, env), "src": output, "non_blocking": False}
            reader.graph.calls.append(Call("aten::copy_", args, [AtenValue(output.type)]))
        else:
            raise ExportError(
                f"the program has an output of kind {spec.kind.name}, which ONNX cannot express",
                code="program-not-read",
            )
    return reader.graph.graph(results)


# The outputs that a decomposed program has besides its results: the new values of everything that it writes to.
_MUTATIONS = ("BUFFER_MUTATION", "PARAMETER_MUTATION", "USER_INPUT_MUTATION")


def _written(program: torch.export.ExportedProgram, spec: Any, env: Mapping[torch.fx.Node, Any]) -> Any:
    """The input whose new value an output is."""
    names = {item.target: item.arg.name for item in program.graph_signature.input_specs if item.target is not None}
    wanted = names.get(spec.target, spec.target)
    return next(value for node, value in env.items() if node.name == wanted)


def _resolved(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program without `vmap` and `autocast`, which change the meaning of the calls inside them.

    torch itself resolves them, together with in-place writes; nothing else is decomposed.
    """
    bodies = [module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    targets = [node.target for body in bodies for node in body.graph.nodes if node.op == "call_function"]
    if not any(str(target) == "wrap_with_autocast" or "predispatch" in _home(target) for target in targets):
        return program
    try:
        with quiet_torch(), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            resolved: torch.export.ExportedProgram = program.run_decompositions({})
            return resolved
    except Exception as error:
        raise ExportError(
            f"torch cannot resolve vmap or autocast in the program: {type(error).__name__}: {_first_line(error)}",
            code="program-not-read",
        ) from error


def _home(target: Any) -> str:
    return str(getattr(target, "__module__", ""))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def user_tensors(program: torch.export.ExportedProgram) -> list[torch.Tensor]:
    """The fake tensors that torch recorded for the program's tensor inputs, in order."""
    users = set(program.graph_signature.user_inputs)
    placeholders = (node for node in program.graph.nodes if node.op == "placeholder" and node.name in users)
    return [node.meta["val"] for node in placeholders if isinstance(node.meta["val"], torch.Tensor)]


def shape_env(program: torch.export.ExportedProgram) -> Any:
    """torch's shape environment, with its guards on symbolic sizes; None for a program without symbolic sizes."""
    modes = (getattr(tensor, "fake_mode", None) for tensor in user_tensors(program))
    return next((mode.shape_env for mode in modes if mode is not None), None)


def symbols_of(
    program: torch.export.ExportedProgram,
    names: Sequence[str] | None,
    axes: Mapping[str, Mapping[int, str]],
    sizes: Mapping[Any, Any] | None = None,
) -> Symbols:
    """The names of torch's symbols: the declared name, else one from the first input and axis of this size.

    `axes` gives the names of dynamic axes by input name.  `sizes` says which symbols are expressions of others.
    """
    tensors = user_tensors(program)
    labelled = list(zip(names or tensor_names(program), tensors, strict=False))
    plain = Symbols({}, sizes)
    found: dict[str, str] = {}
    whole: dict[Any, str] = {}
    for name, tensor in labelled:
        for axis, label in axes.get(name, {}).items():
            size = tensor.shape[axis]
            if not isinstance(size, torch.SymInt):
                continue
            expression = plain.expression(size)
            symbols = [str(symbol) for symbol in expression.free_symbols]
            roots = _IDENTIFIER.findall(label)
            if expression.is_Symbol:
                found.setdefault(symbols[0], label)
            elif len(symbols) == len(roots) == 1 and roots[0] != label:  # a derived dimension, such as "2*batch"
                found.setdefault(symbols[0], roots[0])
            elif symbols and label != own_name(name, axis):
                whole.setdefault(expression, label)
    for name, tensor in labelled:
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and plain.expression(size).is_Symbol:
                found.setdefault(str(plain.expression(size)), own_name(name, axis))
    return Symbols(found, sizes, whole)


def tensor_names(program: torch.export.ExportedProgram) -> list[str]:
    """torch's own names of the program's tensor inputs, in order."""
    users = set(program.graph_signature.user_inputs)
    return [
        node.name
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in users and isinstance(node.meta["val"], torch.Tensor)
    ]


def _placeholders(
    program: torch.export.ExportedProgram, names: Sequence[str] | None, symbols: Symbols, graph: Recording
) -> dict[torch.fx.Node, Any]:
    """The graph's inputs, and the value of each placeholder.  Tied weights become one input."""
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    state = {**program.constants, **dict(program.state_dict)}
    env: dict[torch.fx.Node, Any] = {}
    owned: dict[tuple[Any, ...], AtenValue] = {}
    users = iter(names) if names is not None else None
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = specs[node.name]
        kind = spec.kind.name
        if kind == "USER_INPUT":
            recorded = node.meta["val"]
            if not isinstance(recorded, torch.Tensor) and not isinstance(recorded, torch.SymInt):
                env[node] = recorded
                continue
            value = AtenValue(symbols.type(recorded))
            name = next(users) if users is not None else node.name
            graph.inputs.append(Input(value, name, "user"))
        else:
            tensor = state.get(spec.target)
            if not isinstance(tensor, torch.Tensor):
                raise ExportError(
                    f"the program's input {spec.target!r} is not a tensor, and inputs in ONNX are tensors",
                    code="program-not-read",
                )
            if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
                raise ExportError(
                    "torch.export kept a tensor that exists only inside of torch.func.grad, vjp or the like; "
                    'capture="auto" takes such a model',
                    code="program-not-read",
                )
            key = same_bytes(tensor)
            value = owned.get(key) or AtenValue(symbols.type(tensor))
            if key not in owned:
                owned[key] = value
                name = {"PARAMETER": "parameter", "BUFFER": "buffer"}.get(kind, "constant")
                graph.inputs.append(Input(value, spec.target, name, tensor))
        env[node] = value
    return env
