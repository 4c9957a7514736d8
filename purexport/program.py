"""The program that an export returns: it can be run, verified and saved, with methods named as in torch.onnx."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

import proto_schema as ps
from proto_schema.saveplan import SavePlan
from purexport.capture.core.mode import copied, preserved
from purexport.capture.core.structures import apart, number_tensor, results_in, tensors_in
from purexport.errors import ExportError, VerificationError


@dataclass
class Report:
    """What an export did: the route and its reason, the rules that ran, the calls decomposed by torch, the remarks.

    With `dynamic=True` there are also the axes of each input: the names of those that vary, and for each other axis its
    size and the reason.
    """

    route: str = ""
    reason: str = ""
    opset: int = 0
    rules: list[str] = field(default_factory=list)
    decomposed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dynamic: dict[str, dict[int, str]] = field(default_factory=dict)
    static: dict[str, dict[int, str]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The report as a dict that JSON can represent."""
        return asdict(self)

    def as_text(self) -> str:
        """The report as text for people, one line per fact."""
        lines = [f"route: {self.route} ({self.reason})", f"opset: {self.opset}", f"rules: {', '.join(self.rules)}"]
        lines += [f"decomposed by torch: {', '.join(self.decomposed)}"] if self.decomposed else []
        for said, found in (("dynamic", self.dynamic), ("static", self.static)):
            lines += [
                f"{said}: {name} axis {axis} is {what}" for name, axes in found.items() for axis, what in axes.items()
            ]
        return "\n".join([*lines, *(f"warning: {remark}" for remark in self.warnings)])


class ONNXProgram:
    """An exported model: the message, how it was made, and methods to run and save it.

    `state` holds the tensors that the file takes after the model's arguments: with `mutated_state="io"` the first
    values of buffers, with `export_params=False` the model's parameters and buffers.  `written` names the inputs and
    buffers whose new values the file returns after the model's results.  `constants` is None where Python numbers among
    the arguments are no inputs.  Otherwise it has those that are none, by their positions among all tensors and
    numbers, and None for a number without an effect.
    """

    def __init__(
        self,
        model_proto: ps.ModelProto,
        report: Report,
        state: Mapping[str, torch.Tensor] | None = None,
        written: Sequence[str] = (),
        constants: Mapping[int, Any] | None = None,
    ) -> None:
        self.model_proto = model_proto
        self.report = report
        self.state = dict(state or {})
        self.written = list(written)
        self.constants = constants

    def save(
        self, f: Any, *, include_initializers: bool = True, keep_initializers_as_inputs: bool = False, **options: Any
    ) -> None:
        """Write the model to a path or binary file; `options` are those of `proto_schema.save`.

        The first two options are those of torch.onnx: initializers can be left out of the file, or become its inputs.
        """
        ps.save(self._as_asked(include_initializers, keep_initializers_as_inputs), f, **options)

    def plan(
        self, f: Any, *, include_initializers: bool = True, keep_initializers_as_inputs: bool = False, **options: Any
    ) -> SavePlan:
        """What `save` with the same arguments would write: files, tensors, disk space, memory.  Writes nothing."""
        return ps.plan(self._as_asked(include_initializers, keep_initializers_as_inputs), f, **options)

    def _as_asked(self, kept: bool, inputs: bool) -> ps.ModelProto:
        proto = self.model_proto
        return _with_initializers_as(proto, kept, inputs) if inputs or not kept else proto

    def optimize(self) -> None:
        """Does nothing, since constants were folded at the export; for code that calls it on torch.onnx's program."""

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Run the model in onnxruntime on tensors given as the model takes them; returns the outputs as tensors.

        Complex tensors are passed and returned in the form of `torch.view_as_real`.
        State that the file takes after the arguments may be left out; then it has its values from the export.
        Raises ImportError when onnxruntime is not installed, ValueError for a number other than the one in the file.
        """
        tensors = self.tensors((args, kwargs))
        graph = self.model_proto.graph
        names = [item.name or "" for item in graph.input] if graph is not None else []
        tensors += [self.state[name] for name in names[len(tensors) :] if name in self.state]
        return run_in_onnxruntime(self.model_proto, tensors)

    def tensors(self, arguments: tuple[tuple[Any, ...], Mapping[str, Any]]) -> list[torch.Tensor]:
        """The tensors that the file takes for these arguments; a number that is an input has no axes.

        Raises ValueError for a number that the file has as a constant, and that is another one here.
        """
        if self.constants is None:
            return tensors_in(arguments)
        tree = apart(arguments)
        pairs = zip(tree.leaves(), tree.numbers(), strict=True)
        leaves = [leaf for (_, leaf), number in pairs if number or isinstance(leaf, torch.Tensor)]
        for place, number in self.constants.items():
            if number is not None and place < len(leaves) and leaves[place] != number:
                raise ValueError(f"the file was exported for the number {number!r}, and {leaves[place]!r} was given")
        given = [leaf for place, leaf in enumerate(leaves) if place not in self.constants]
        types = [item.type.tensor_type for item in (self.model_proto.graph or ps.GraphProto()).input if item.type]
        doubles = [type_ is not None and type_.elem_type == ps.TensorProto.DOUBLE for type_ in types]
        return [
            leaf if isinstance(leaf, torch.Tensor) else number_tensor(float(leaf) if double else leaf)
            for leaf, double in zip(given, doubles, strict=False)
        ]


def _with_initializers_as(proto: ps.ModelProto, kept: bool, inputs: bool) -> ps.ModelProto:
    """The model with its initializers in the file or not, and as inputs or not; tensors are shared, not copied."""
    graph = proto.graph
    assert graph is not None
    known = {item.name for item in graph.input}
    infos = [
        ps.helper.make_tensor_value_info(tensor.name or "", tensor.data_type or 0, tensor.dims)
        for tensor in graph.initializer
        if tensor.name not in known
    ]
    changed = copy.copy(graph)
    changed.input = [*graph.input, *(infos if inputs else ())]
    changed.initializer = graph.initializer if kept else []
    made = copy.copy(proto)
    made.graph = changed
    return made


def run_in_onnxruntime(model: ps.ModelProto, tensors: Sequence[torch.Tensor]) -> list[Any]:
    """The outputs of `model` on its inputs in order, sequences as lists.  Raises ImportError without onnxruntime."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError("running a model needs onnxruntime: pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(ps.dumps(model), options, providers=["CPUExecutionProvider"])
    arrays = [as_real(tensor.detach()).cpu().numpy() for tensor in tensors]
    names = [item.name for item in session.get_inputs()]
    if len(names) != len(arrays):
        raise ValueError(f"the file takes {len(names)} tensors, {', '.join(names)}, and {len(arrays)} were given")
    inputs = dict(zip(names, arrays, strict=True))
    return [pytree.tree_map(torch.from_numpy, array) for array in session.run(None, inputs)]


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as a file holds it: a complex one has its two parts on a last axis of size 2."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def verify(
    program: ONNXProgram, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], rtol: float, atol: float
) -> None:
    """Run the file in onnxruntime and the model in torch on the same arguments.

    State that the file takes and returns is compared too.
    Raises VerificationError, which names the first output that differs, by how much, and where.
    """
    copies, keywords = copied((args, dict(kwargs)))
    graph = program.model_proto.graph
    assert graph is not None
    names = [item.name or "" for item in graph.output]
    with torch.no_grad(), preserved(model):
        expected = [torch.as_tensor(leaf) for _, leaf in results_in(model(*copies, **keywords))]
        expected += _state_after(
            model, program.tensors((copies, keywords)), [item.name or "" for item in graph.input], program.written
        )
    expected = [as_real(tensor) for tensor in expected]
    got = _results(program, args, kwargs)
    for name, mine, theirs in _pairs(names, got, expected):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            raise VerificationError(
                f"output {name!r} is {mine.dtype}{list(mine.shape)} in onnxruntime and "
                f"{theirs.dtype}{list(theirs.shape)} in torch"
            )
        close = torch.isclose(mine, theirs.cpu(), rtol=rtol, atol=atol, equal_nan=True)
        if not bool(close.all()):
            place = tuple(torch.nonzero(~close)[0].tolist())
            raise VerificationError(
                f"output {name!r} differs at {int((~close).sum())} of {close.numel()} places, first at {place}: "
                f"{mine[place].item()} in onnxruntime, {theirs[place].item()} in torch"
            )


def _results(program: ONNXProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The file's results in onnxruntime.  Raises ExportError where onnxruntime has no kernel for a custom operator."""
    try:
        return program(*args, **kwargs)
    except Exception as error:
        functions = {function.domain for function in program.model_proto.functions}
        domains = {item.domain for item in program.model_proto.opset_import if item.domain} - functions
        if not domains or isinstance(error, ImportError):
            raise
        raise ExportError(
            f"verify=True cannot run the file, whose operators of {', '.join(sorted(map(str, domains)))} need kernels "
            f"that onnxruntime does not have by itself; leave verify out ({error})",
            code="verify-impossible",
        ) from error


def _pairs(names: Sequence[str], got: Sequence[Any], expected: Sequence[torch.Tensor]) -> list[tuple[str, Any, Any]]:
    """The file's outputs by name, with torch's.  A list of data-dependent length is one output, and several in torch.

    Raises VerificationError when the lengths differ.
    """
    flat: list[tuple[str, torch.Tensor]] = []
    for name, mine in zip(names, got, strict=True):
        theirs = expected[len(flat)] if len(flat) < len(expected) else None
        of_numbers = not isinstance(mine, list) and mine.dim() == 1 and (theirs is None or theirs.dim() == 0)
        flat += [(name, item) for item in mine] if isinstance(mine, list) or of_numbers else [(name, mine)]
    if len(flat) != len(expected):
        raise VerificationError(f"onnxruntime gives {len(flat)} tensors in all, torch {len(expected)}")
    return [(name, mine, theirs) for (name, mine), theirs in zip(flat, expected, strict=True)]


def _state_after(
    model: Any, given: Sequence[torch.Tensor], inputs: Sequence[str], written: Sequence[str]
) -> list[torch.Tensor]:
    """The values of the inputs and buffers in `written` after a call with the tensors `given`."""
    held: dict[str, torch.Tensor] = dict(zip(inputs, given, strict=False))
    if isinstance(model, torch.nn.Module):
        held.update(model.named_buffers())
    return [held[name].detach().clone() for name in written]
