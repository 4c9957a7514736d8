"""Verify and save: the last two stages, which work on a finished program."""

from __future__ import annotations

import os
from typing import Any

from proto_schema.durable import blamed_on, takes_rename
from proto_schema.targets import judge
from purexport.capture.core.mode import select_model_mode_for_export
from purexport.compat.past_options import arguments_of
from purexport.lock import alone
from purexport.options import Options
from purexport.program import ONNXProgram
from purexport.runtime.verification import tolerance, verify
from purexport.stages.run import Run


def verify_program(run: Run, program: ONNXProgram) -> ONNXProgram:
    """The program, after a check that it gives the model's results on the run's arguments, and on those of `verify`.

    Raises VerificationError when the results differ.
    """
    run.progress.at("verify")
    options = run.options
    mode = select_model_mode_for_export(run.model, options.training)
    bounds = tolerance(program.model_proto, options.rtol, options.atol)
    with alone(), mode, run.weights.swapped(valued=True):
        verify(program, run.model, run.args, run.kwargs, bounds)
        for place, given in enumerate(options.verified_arguments):
            args, kwargs = arguments_of(run.model, given, None)
            verify(program, run.model, args, kwargs, bounds, f"verify[{place}]: ")
    program.release()
    return program


def save_program(run: Run, program: ONNXProgram, f: Any) -> ONNXProgram:
    """Write the program to `f`, a path or a binary file, and return it.  Raises OSError when `f` cannot be written."""
    options = run.options
    run.progress.at("save")
    where = options.external_data if options.external_data is not None else options.use_external_data_format or None
    stored: dict[str, Any] = {"shard_size": options.shard_size, "archive": options.archive, "resume": options.resume}
    program.save(f, external_data=where, progress=run.progress.bytes, overwrite=options.overwrite, **stored)
    return program


def judge_path(f: Any, options: Options) -> None:
    """Raise OSError when `f` is a path that the program must not be written to."""
    if f is None or hasattr(f, "write") or not takes_rename(os.fspath(f)):
        return
    with blamed_on(os.fspath(f)):
        judge(os.fspath(f), "model" if options.archive is None else "tar", overwrite=options.overwrite)
