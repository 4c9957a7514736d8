"""Is the file what the model is?  Both run on the same arguments, and the results are compared.

Results are compared as float64.  How far they may be apart follows from the coarsest floating-point type that the file
computes with, since a float32 result of float16 arithmetic has the errors of float16.  Whole numbers are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

import proto_schema as ps
from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.errors import ExportError, VerificationError
from purexport.frontends.core.mode import copied, preserved
from purexport.frontends.core.structures import results_in
from purexport.runtime.sessions import as_real

# relative, absolute; from fine to coarse.  A float8 may be two steps of its two or three bits away
TOLERANCES = {
    "float64": (1e-7, 1e-9),
    "float32": (1e-3, 1e-5),
    "float16": (2e-2, 5e-3),
    "bfloat16": (1e-1, 5e-2),
    "float8_e4m3fn": (0.25, 0.05),
    "float8_e4m3fnuz": (0.25, 0.05),
    "float8_e5m2": (0.5, 0.1),
    "float8_e5m2fnuz": (0.5, 0.1),
}
_ORDER = list(TOLERANCES)


class Program(Protocol):
    """What is compared: `purexport.program.ONNXProgram`."""

    model_proto: ps.ModelProto
    written: list[str]

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]: ...

    def tensors(self, arguments: tuple[tuple[Any, ...], Mapping[str, Any]]) -> list[torch.Tensor]: ...


@dataclass(frozen=True)
class Tolerance:
    """How far a floating-point result may be from torch's, relative and absolute."""

    rtol: float
    atol: float
    given: bool = False  # by the caller, and then for whole numbers too

    def close(self, mine: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        """Where the two are close enough."""
        whole = not mine.is_floating_point()
        if mine.dtype == torch.bool or (whole and not self.given):
            return mine == theirs
        return torch.isclose(mine.double(), theirs.double(), rtol=self.rtol, atol=self.atol, equal_nan=True)


def tolerance(model: ps.ModelProto, rtol: float | None = None, atol: float | None = None) -> Tolerance:
    """The bounds for results of a file, of which the caller may have given some."""
    graph = model.graph
    codes = {item.data_type for item in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        if info.type is not None and info.type.tensor_type is not None:
            codes.add(info.type.tensor_type.elem_type)
    names = [_name(code) for code in codes if dtypes.is_floating(code)]
    usual = TOLERANCES[max((name for name in names if name in TOLERANCES), key=_ORDER.index, default="float32")]
    given = rtol is not None or atol is not None
    return Tolerance(usual[0] if rtol is None else rtol, usual[1] if atol is None else atol, given)


def _name(code: int | None) -> str:
    return str(dtypes.torch_dtype(code or 0)).removeprefix("torch.")


def verify(
    program: Program, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], bounds: Tolerance, where: str = ""
) -> None:
    """Run the file in onnxruntime and the model in torch on the same arguments.

    State that the file takes and returns is compared too.  `where` says in errors which arguments these are.
    Raises VerificationError, which names the first output that differs, by how much, and where; ExportError where
    onnxruntime cannot run the file.
    """
    names = [item.name or "" for item in program.model_proto.graph.output]
    expected = expected_of(program, model, args, kwargs)
    _compare(names, _results(program, args, kwargs, where), expected, bounds, where, ("onnxruntime", "torch"))


def verify_files(
    program: Program,
    meant: Program,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    bounds: Tolerance,
    where: str = "",
) -> None:
    """Run a quantized file, and the one of floats that it stands for, in onnxruntime on the same arguments.

    Raises as `verify` does.
    """
    names = [item.name or "" for item in program.model_proto.graph.output]
    copies, keywords = copied((args, dict(kwargs)))
    leaves = pytree.tree_leaves(list(_results(meant, copies, keywords, where)))
    expected = [torch.as_tensor(leaf) for leaf in leaves]
    sides = ("the quantized file", "the file of the same numbers as floats")
    _compare(names, _results(program, args, kwargs, where), expected, bounds, where, sides)


def _compare(
    names: Sequence[str],
    got: Sequence[Any],
    expected: Sequence[torch.Tensor],
    bounds: Tolerance,
    where: str,
    sides: tuple[str, str],
) -> None:
    """Raises VerificationError for the first output that differs."""
    for name, mine, theirs in _pairs(names, got, expected, where):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            raise VerificationError(
                f"{where}output {name!r} is {mine.dtype}{list(mine.shape)} in {sides[0]} and "
                f"{theirs.dtype}{list(theirs.shape)} in {sides[1]}"
            )
        close = bounds.close(mine, theirs)
        if not bool(close.all()):
            place = tuple(torch.nonzero(~close)[0].tolist())
            raise VerificationError(
                f"{where}output {name!r} differs at {int((~close).sum())} of {close.numel()} places, first at {place}: "
                f"{mine[place].item()} in {sides[0]}, {theirs[place].item()} in {sides[1]}"
                f"{_bounds_text(bounds) if mine.is_floating_point() else ''}"
            )


def expected_of(program: Program, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """What the file's outputs should be: the results of the model, and the state that the file returns behind them."""
    copies, keywords = copied((args, dict(kwargs)))
    with torch.no_grad(), preserved(model):
        expected = [torch.as_tensor(leaf) for _, leaf in results_in(model(*copies, **keywords))]
        inputs = [item.name or "" for item in program.model_proto.graph.input]
        if program.written:  # a cache may have more tensors after the call than before
            expected += _state_after(model, program.tensors((copies, keywords)), inputs, program.written)
    return [as_real(tensor).cpu() for tensor in expected]


def _bounds_text(bounds: Tolerance) -> str:
    return f" (rtol={bounds.rtol:g}, atol={bounds.atol:g})"


def _results(program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any], where: str) -> tuple[Any, ...]:
    """The file's results in onnxruntime.

    Raises ExportError where onnxruntime has no kernel for an operator, VerificationError for sizes that it refuses.
    """
    try:
        return program(*args, **kwargs)
    except ImportError:
        raise
    except Exception as error:
        model = program.model_proto
        functions = {function.domain for function in model.functions}
        domains = {item.domain for item in model.opset_import if item.domain} - functions
        kind, said = type(error).__name__, str(error).partition("\n")[0]
        if domains:
            raise ExportError(
                f"verify=True cannot run the file, whose operators of {', '.join(sorted(map(str, domains)))} need "
                f"kernels that onnxruntime does not have by itself; leave verify out ({said})",
                code="verify-impossible",
            ) from error
        if kind == "NotImplemented":
            raise ExportError(
                f"verify=True cannot run the file, which is valid: onnxruntime has no kernel for one of its operators "
                f"in this data type; leave verify out, or export the model in float32 ({said})",
                code="verify-impossible",
            ) from error
        if kind == "InvalidArgument":
            raise VerificationError(f"{where}onnxruntime refuses the arguments that the model takes: {said}") from error
        raise


def _pairs(
    names: Sequence[str], got: Sequence[Any], expected: Sequence[torch.Tensor], where: str
) -> list[tuple[str, Any, Any]]:
    """The file's outputs by name, with torch's.  A list of data-dependent length is one output, and several in torch.

    Raises VerificationError when the lengths differ.
    """
    flat: list[tuple[str, torch.Tensor]] = []
    for name, mine in zip(names, got, strict=True):
        theirs = expected[len(flat)] if len(flat) < len(expected) else None
        of_numbers = not isinstance(mine, list) and mine.dim() == 1 and (theirs is None or theirs.dim() == 0)
        flat += [(name, item) for item in mine] if isinstance(mine, list) or of_numbers else [(name, mine)]
    if len(flat) != len(expected):
        raise VerificationError(f"{where}onnxruntime gives {len(flat)} tensors in all, torch {len(expected)}")
    return [(name, mine, theirs) for (name, mine), theirs in zip(flat, expected, strict=True)]


def _state_after(
    model: Any, given: Sequence[torch.Tensor], inputs: Sequence[str], written: Sequence[str]
) -> list[torch.Tensor]:
    """The values of the inputs and buffers in `written` after a call with the tensors `given`."""
    held: dict[str, torch.Tensor] = dict(zip(inputs, given, strict=False))
    if isinstance(model, torch.nn.Module):
        held.update(model.named_buffers())
    return [held[name].detach().clone() for name in written]
