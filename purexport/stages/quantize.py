"""Quantize: the weights of a finished program in fewer bits, on the way to the file.

Nothing is computed here: a quantized weight is a payload that reads the model's when the file is written.  What a check
compares has bounds as narrow as those of any other export: the file before the quantization with torch's model, and the
quantized file with the same file whose weights are rounded to the numbers that the codes mean.  So the accuracy that a
scheme costs hides no fault.

Activations are quantized by the ranges that samples show, for which the program runs here.  Their rounding is no fault,
so the report says how far the results are from those of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch

from proto_schema.onnx import ModelProto
from purexport.compat.past_options import arguments_of
from purexport.errors import ExportError
from purexport.frontends.core.mode import copied
from purexport.options import Quantization
from purexport.program import ONNXProgram
from purexport.runtime.sessions import exact_session_of, wide_session_of
from purexport.runtime.verification import tolerance, verify_files
from purexport.stages.run import Run

_OVERFLOWS = 1.5  # times the error that rounding has


def quantize_program(run: Run, program: ONNXProgram) -> ONNXProgram:
    """The program with its weights as `quantize` of the options says; itself without that option.

    Raises VerificationError where `verify` finds that the codes are not read as they are meant, and ExportError for a
    weight that cannot be quantized as asked.
    """
    asked = run.options.quantization
    if asked is None:
        return program
    run.progress.at("quantize")
    before = program.model_proto
    if asked.activations is not None:
        return _calibrated(run, program, asked)
    samples = None
    if asked.samples is not None:
        given = list(asked.samples) if isinstance(asked.samples, Iterator) else asked.samples
        samples = _samples(run, program, given)
    quantize_weights(program, asked, run.options.opset_version, samples)
    if run.options.verifies:
        _verify(run, program, before, asked, samples)
    return program


def quantize_weights(program: ONNXProgram, asked: Quantization, opset_version: int | None, samples: Any = None) -> None:
    """Give the program its weights in fewer bits; `opset_version` is what the user asked for.

    Without one the opset rises where a weight needs a later one, and the report says so. Raises ExportError for a
    weight that cannot be quantized as asked.
    """
    from proto_schema.quantization import quantize
    from proto_schema.version_converter import opset

    before = opset(program.model_proto)
    try:
        made = quantize(program.model_proto, asked.scheme, target=asked.target, calibration=samples)
    except ValueError as error:
        raise ExportError(f"quantize: {error}", code="wrong-option") from error
    after = opset(made)
    if after != before:
        if opset_version is not None:
            raise ExportError(
                f"quantize: {asked.scheme.type} needs opset {after} for a weight of this model, and opset_version="
                f"{opset_version} was asked for; give {after} or none",
                code="wrong-option",
            )
        program.report.opset = after
        program.report.warnings.append(
            f"quantize: the file has opset {after} instead of {before}, which lacks {asked.scheme.type} for a weight"
        )
    program.model_proto = made


def _calibrated(run: Run, program: ONNXProgram, asked: Quantization) -> ONNXProgram:
    from proto_schema.calibration import calibrated  # few exports ask for it

    before, options = program.model_proto, asked.activations
    assert options is not None
    given = asked.samples
    if isinstance(given, Iterator):  # it can be read once only, and a method may need it twice
        given = list(given)
    try:
        made = calibrated(before, options, _samples(run, program, given))
    except ValueError as error:
        raise ExportError(f"quantize: {error}", code="wrong-option") from error
    left = [entry for entry in made.entries if entry.reason]
    program.report.warnings += [f"quantize: {entry.name} stays in floats: it {entry.reason}" for entry in left]
    program.model_proto = made.model
    if run.options.verifies:
        program.report.warnings.append(_cost(run, program, before, options.type))
        program.report.verified += ", before the quantization"
    return program


def _cost(run: Run, program: ONNXProgram, before: ModelProto, kind: str) -> str:
    """How far the results are from those of floats, in words for the report; the float file has been verified."""
    args, kwargs = copied((run.args, dict(run.kwargs)))

    def results(initializer: Callable[[str | bytes], Any] | None = None) -> Sequence[Any]:
        program.initialize_inference_session(initializer)
        found = program(*args, **kwargs)
        program.release()
        return found

    usual, exact = results(), results(wide_session_of)
    after, program.model_proto = program.model_proto, before
    floats = results()
    program.model_proto = after
    apart, least = _apart(usual, floats), _apart(exact, floats)
    text = (
        f"quantize: with activations in {kind} the results are {apart:.2g} of their size away from those of floats "
        "(root mean square), on the arguments of the export"
    )
    if apart > _OVERFLOWS * least:
        text += (
            f"; {least:.2g} where sums of products do not overflow, as onnxruntime lets them on this processor, unless "
            "the session option session.x64quantprecision is 1"
        )
    return text


def _samples(run: Run, program: ONNXProgram, given: Any) -> Any:
    """Samples as the calibration takes them: those that are arguments of the model become inputs of its file."""
    if callable(given):
        return lambda: _feeds(run, program, given())
    return given if isinstance(given, (str, PathLike)) else lambda: _feeds(run, program, given)


def _feeds(run: Run, program: ONNXProgram, given: Any) -> Any:
    if isinstance(given, (str, PathLike, np.ndarray)):
        return given
    if isinstance(given, torch.Tensor):
        return _array(given)
    if isinstance(given, Mapping):
        return {name: _array(item) for name, item in given.items()}
    if not isinstance(given, Iterable):
        raise ValueError(
            f"calibration is a list of arguments of the model, a folder of .npz and .npy files, or a dict of arrays, "
            f"not a {type(given).__name__}"
        )
    return (_feed(run, program, item) for item in given)


def _feed(run: Run, program: ONNXProgram, item: Any) -> Any:
    if isinstance(item, Mapping):
        return {name: _array(value) for name, value in item.items()}
    if not isinstance(item, (torch.Tensor, tuple)):
        return item
    args, kwargs = arguments_of(run.model, item, None)
    return {name: tensor.numpy(force=True) for name, tensor in program.feed(program.model_proto, args, kwargs).items()}


def _array(item: Any) -> Any:
    return item.numpy(force=True) if isinstance(item, torch.Tensor) else item


def _apart(found: Iterable[Any], wanted: Iterable[Any]) -> float:
    """The root of the squared differences over that of the squares, of all results."""
    differences = squares = 0.0
    for mine, theirs in zip(found, wanted, strict=True):
        if isinstance(theirs, torch.Tensor) and theirs.is_floating_point():
            differences += float((mine.double() - theirs.double()).square().sum())
            squares += float(theirs.double().square().sum())
    return (differences / squares) ** 0.5 if squares else 0.0


def _verify(run: Run, program: ONNXProgram, before: ModelProto, asked: Quantization, samples: Any) -> None:
    from proto_schema.quantization import dequantized

    options = run.options
    bounds = tolerance(before, options.rtol, options.atol)
    rounded = dequantized(before, asked.scheme, target=asked.target, calibration=samples)
    meant = ONNXProgram(rounded, None, program.state, program.written, program.constants)
    program.initialize_inference_session(exact_session_of)
    calls = [("", (run.args, run.kwargs))]
    calls += [
        (f"verify[{place}]: ", arguments_of(run.model, given, None))
        for place, given in enumerate(options.verified_arguments)
    ]
    for where, (args, kwargs) in calls:
        copies, keywords = copied((args, dict(kwargs)))
        verify_files(program, meant, copies, keywords, bounds, where)
    program.release()
    meant.release()
    program.report.verified += ", before the quantization; afterwards those of its codes as floats"
