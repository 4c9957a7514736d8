"""`torch.onnx.verification.verify_onnx_program` for our programs, while a `patch` is open.

Torch's own compares a program with the ExportedProgram that it was made of, by names of onnx_ir.  This one needs no
onnx_ir, and takes programs of traces too, which it compares with the model, as long as that lives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from purexport.frontends.core.mode import copied, preserved
from purexport.frontends.core.structures import results_in
from purexport.program import ONNXProgram
from purexport.runtime.sessions import as_real


def verifying(theirs: Callable[..., Any], info: Any) -> Callable[..., Any]:
    """The function of torch.onnx, which leaves our programs to us; `info` is torch's class of what it returns."""

    @functools.wraps(theirs)
    def verify_onnx_program(
        onnx_program: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        compare_intermediates: bool = False,
    ) -> Any:
        if not isinstance(onnx_program, ONNXProgram):
            return theirs(onnx_program, args, kwargs, compare_intermediates)
        return _compared(onnx_program, args, kwargs, info)

    return verify_onnx_program


def _compared(
    program: ONNXProgram, args: tuple[Any, ...] | None, kwargs: Mapping[str, Any] | None, info: Any
) -> list[Any]:
    """One entry for each output.  Raises ValueError where there is nothing to compare the program with."""
    recorded = program.exported_program
    if args is None and kwargs is None:
        if recorded is None or recorded.example_inputs is None:
            raise ValueError("verify_onnx_program needs args: a program of a trace keeps no example arguments")
        args, kwargs = recorded.example_inputs
    given, keywords = copied((tuple(args or ()), dict(kwargs or {})))
    model = program.source() if recorded is None else recorded.module()
    if model is None:
        raise ValueError("verify_onnx_program needs the model that was exported, which is gone; keep it")
    with torch.no_grad(), preserved(model):
        expected = [as_real(torch.as_tensor(leaf)) for _, leaf in results_in(model(*given, **keywords))]
    names = [item.name or "" for item in program.model_proto.graph.output]
    found = program(*(args or ()), **(kwargs or {}))
    return [info.from_tensors(name, theirs, ours) for name, theirs, ours in zip(names, expected, found, strict=False)]
