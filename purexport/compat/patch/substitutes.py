"""`patch`: while one is open, calls of torch.onnx in this process export with purexport.

Other libraries find the exporter in three ways: as an attribute (`torch.onnx.export`), as a name that they imported
before (`from torch.onnx import export`), and as `torch.onnx.utils.export`.  To serve all three, our functions replace
the public names and the two inner functions that torch.onnx.export itself calls.  Torch's symbolic helpers work as
before on torch's own values, and call ours on the values of our graph.  So symbolic functions that were written,
decorated and registered before count too.  Torch's enums and error classes stay the same objects.

`torch_onnx` remembers what was replaced, and takes it back.  Nothing here imports torch.onnx: torch loads it when it is
asked for the attribute.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import torch

from purexport import driver, operators
from purexport.compat.lent_helpers import substitutes as helpers_of_torch
from purexport.compat.patch.verification import verifying
from purexport.compat.symbolic import registry
from purexport.compat.torch_onnx import ABSENT, INNER, PLACES, registering_module
from purexport.frontends.core import mode
from purexport.options import OperatorExportTypes
from purexport.program import ONNXProgram

P = ParamSpec("P")
Result = TypeVar("Result")


def patch() -> Patch:
    """From now on, code that calls `torch.onnx.export` and its companions gets our functions.

    The call alone takes effect, and holds until `undo` of what it returns; `purexport.patch().undo()` does as well.
    As `with purexport.patch():` it holds for the block, also where the block ends by an error; it is a decorator too.
    It holds for the whole process, and may be nested and repeated.  Functions that are registered meanwhile by
    `torch.onnx.register_custom_op_symbolic` stay registered, with torch.onnx and with us.
    Raises ImportError if torch.onnx cannot be loaded.
    """
    return Patch()


class Patch:
    """What `patch` returns: it is open, and ends with its `with`, or by `undo`."""

    def __init__(self) -> None:
        self._blocks = 0
        PLACES.stand(self, _substitutes, _export_compat)

    def undo(self) -> None:
        """End this one, and every other that stands by a call alone.  Blocks of `with` go on until their ends."""
        PLACES.fall()
        while self._blocks:
            self._end()

    def __enter__(self) -> Patch:
        if not PLACES.take_over(self):
            PLACES.enter(_substitutes, _export_compat)
        self._blocks += 1
        return self

    def __exit__(self, *error: object) -> None:
        if self._blocks:
            self._end()

    def _end(self) -> None:
        self._blocks -= 1
        PLACES.leave()

    def __call__(self, function: Callable[P, Result]) -> Callable[P, Result]:
        """As a decorator: it holds for each call of the function, and for nothing else."""
        if PLACES.take_over(self):
            PLACES.leave()

        @functools.wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> Result:
            with Patch():
                return function(*args, **named)

        return call

    def __repr__(self) -> str:
        state = "exports with purexport until .undo() of this" if PLACES.active else "is torch's own"
        return f"<purexport.patch: torch.onnx {state}>"


# What is put in place -------------------------------------------------------------------------------------------------


def _substitutes() -> Iterator[tuple[Any, str, Any]]:
    """(holder, name, what it becomes)."""
    try:
        theirs: Any = torch.onnx
    except ImportError as error:
        raise ImportError(f"patch() replaces functions of torch.onnx, which cannot be loaded here: {error}") from error
    functions = {
        "export": driver.export,
        "_export": driver.export,
        "export_to_pretty_string": driver.export_to_pretty_string,
        "select_model_mode_for_export": mode.select_model_mode_for_export,
    }
    registering = {
        "register_custom_op_symbolic": _both(theirs.register_custom_op_symbolic, registry.register_custom_op_symbolic),
        "unregister_custom_op_symbolic": _both(theirs.unregister_custom_op_symbolic, registry.REGISTRY.unregister),
    }
    passing_on = [sys.modules["torch.onnx.utils"]] if "torch.onnx.utils" in sys.modules else []
    for holder in dict.fromkeys([theirs, registering_module(), *passing_on]):
        for name, function in (functions | registering).items():
            yield holder, name, function
    yield theirs, "ONNXProgram", ONNXProgram
    compat = sys.modules.get(INNER[0])
    if compat is not None:
        yield compat, INNER[1], _export_compat
    yield theirs.OperatorExportTypes, "RAW", OperatorExportTypes.RAW
    for name in ("shape_as_tensor", "reshape_from_tensor_shape"):
        yield import_module(f"{theirs.__name__}.operators"), name, getattr(operators, name)
    verification: Any = import_module(f"{theirs.__name__}.verification")
    if hasattr(verification, "verify_onnx_program"):  # since torch 2.7
        function = verifying(verification.verify_onnx_program, verification.VerificationInfo)
        yield verification, "verify_onnx_program", function
    yield from helpers_of_torch()


def _both(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """Registers with torch.onnx and with us, so that torch.onnx knows the function after the `patch`."""

    @functools.wraps(theirs)
    def call(symbolic_name: str, *rest: Any, **named: Any) -> None:
        name = f"aten{symbolic_name}" if symbolic_name.startswith("::") else symbolic_name  # an old form of ATen names
        ours(name, *rest, **named)
        theirs(name, *rest, **named)

    return call


# what torch.onnx.export gives to its inner function when the caller said nothing, and what has no effect here
_UNSAID: Mapping[str, Any] = {
    "optimize": True,
    "profile": False,
    "dump_exported_program": False,
    "artifacts_dir": ".",
    "fallback": False,
}


def _export_compat(model: Any, args: Any, f: Any = None, **options: Any) -> Any:
    """Replaces the inner function, to which torch.onnx.export gives all its options."""
    said = {name: value for name, value in options.items() if _UNSAID.get(name, ABSENT) != value}
    return driver.export(model, args, f, **said)
