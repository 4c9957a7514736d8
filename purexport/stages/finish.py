"""Verify and save: the last two stages, which work on a finished program."""

from __future__ import annotations

import os
from typing import Any

from proto_schema.files.durable import blamed_on, takes_rename
from proto_schema.files.targets import judge
from proto_schema.units import counted
from purexport.compat.past_options import arguments_of
from purexport.errors import VerificationError
from purexport.frontends.core.mode import copied, select_model_mode_for_export
from purexport.lock import alone
from purexport.options import Options
from purexport.program import ONNXProgram
from purexport.runtime.verification import Tolerance, expected_of, tolerance, verify
from purexport.stages.lower import Onnx
from purexport.stages.run import Run


def verify_program(run: Run, program: ONNXProgram, onnx: Onnx) -> ONNXProgram:
    """The program, after a check that it gives the model's results on the run's arguments, and on those of `verify`.

    Raises VerificationError when the results differ, which names the first node that is wrong and torch's line.
    """
    run.progress.at("verify")
    options = run.options
    mode = select_model_mode_for_export(run.model, options.training)
    bounds = tolerance(program.model_proto, options.rtol, options.atol)
    others = [arguments_of(run.model, given, None) for given in options.verified_arguments]
    if run.varying is not None:  # a file that has the example's number as a constant says so
        others = [arguments for arguments in others if _takes_numbers(program, arguments)]
    with alone(), mode, run.weights.swapped(valued=True):
        _verified(run, program, onnx, (run.args, run.kwargs), bounds)
        for place, arguments in enumerate(others):
            _verified(run, program, onnx, arguments, bounds, f"verify[{place}]: ")
    program.release()
    program.report.verified = verified_on(len(others), bounds)
    return program


def _takes_numbers(program: ONNXProgram, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> bool:
    try:
        program.tensors(arguments)
    except ValueError:
        return False
    return True


def verified_on(others: int, bounds: Tolerance) -> str:
    """What was compared, for the report: the example, and how many calls beside it."""
    more = f" and on {counted(others, 'more call')}" if others else ""
    return (
        f"the file gives torch's results in onnxruntime on the example{more} (rtol={bounds.rtol:g}, "
        f"atol={bounds.atol:g})"
    )


def _verified(
    run: Run,
    program: ONNXProgram,
    onnx: Onnx,
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    bounds: Tolerance,
    where: str = "",
) -> None:
    args, kwargs = arguments
    try:
        verify(program, run.model, args, kwargs, bounds, where)
    except VerificationError as error:
        cause = _cause(run, program, onnx, arguments, bounds)
        if not cause:
            raise
        raise VerificationError(f"{error}; {cause}") from None


def _cause(
    run: Run, program: ONNXProgram, onnx: Onnx, arguments: tuple[tuple[Any, ...], dict[str, Any]], bounds: Tolerance
) -> str:
    """What is at fault for a difference; empty where that is not found."""
    # few exports come here, and each would load them
    from purexport.comparison.compared import compared
    from purexport.comparison.departures import RecordedModel
    from purexport.comparison.torch_values import anchors, torch_values

    args, kwargs = arguments
    proto, graph = program.model_proto, onnx.pure.graph
    try:
        known = torch_values(graph, program.tensors(copied(arguments)))
        expected = expected_of(program, run.model, args, kwargs)
        feed = program.feed(proto, args, kwargs)
        recorded = RecordedModel(graph, known, run.model, lambda: expected_of(program, run.model, args, kwargs))
        named = anchors(graph, known, onnx.lowered.stands)
        found = compared(proto, feed, expected, named, bounds, proto, recorded=recorded)
    except Exception:
        # the difference itself is the error; a search that fails must not hide it
        return ""
    if found.agrees or not found.cause:
        return ""
    line = f", {found.torchs}" if found.torchs else ""
    return f"at fault: {found.cause}{line}"


def save_program(run: Run, program: ONNXProgram, f: Any) -> ONNXProgram:
    """Write the program to `f`, a path or a binary file, and return it.  Raises OSError when `f` cannot be written."""
    options = run.options
    run.progress.at("save")
    where = options.external_data if options.external_data is not None else options.use_external_data_format or None
    stored: dict[str, Any] = {"shard_size": options.shard_size, "archive": options.archive, "resume": options.resume}
    stored |= {"checksums": options.checksums, "executor": options.executor}
    program.save(f, external_data=where, progress=run.progress.bytes or False, overwrite=options.overwrite, **stored)
    return program


def judge_path(f: Any, options: Options) -> None:
    """Raise OSError when `f` is a path that the program must not be written to."""
    if f is None or hasattr(f, "write") or not takes_rename(os.fspath(f)):
        return
    with blamed_on(os.fspath(f)):
        judge(os.fspath(f), "model" if options.archive is None else "tar", overwrite=options.overwrite)
