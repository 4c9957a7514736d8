"""Quantize: the weights of a finished program in fewer bits, on the way to the file.

Nothing is computed here: a quantized weight is a payload that reads the model's when the file is written.  What a check
compares has bounds as narrow as those of any other export: the file before the quantization with torch's model, and the
quantized file with the same file whose weights are rounded to the numbers that the codes mean.  So the accuracy that a
scheme costs hides no fault.
"""

from __future__ import annotations

from proto_schema.onnx import ModelProto
from purexport.capture.core.mode import copied
from purexport.compat.past_options import arguments_of
from purexport.errors import ExportError
from purexport.options import Quantization
from purexport.program import ONNXProgram
from purexport.runtime.sessions import exact_session_of
from purexport.runtime.verification import tolerance, verify_files
from purexport.stages.run import Run


def quantize_program(run: Run, program: ONNXProgram) -> ONNXProgram:
    """The program with its weights as `quantize` of the options says; itself without that option.

    Raises VerificationError where `verify` finds that the codes are not read as they are meant, and ExportError for a
    weight that cannot be quantized as asked.
    """
    asked = run.options.quantization
    if asked is None:
        return program
    from proto_schema.quantization import quantize

    before = program.model_proto
    try:
        program.model_proto = quantize(before, asked.scheme, target=asked.target)
    except ValueError as error:
        raise ExportError(f"quantize: {error}", code="wrong-option") from error
    if run.options.verifies:
        _verify(run, program, before, asked)
    return program


def _verify(run: Run, program: ONNXProgram, before: ModelProto, asked: Quantization) -> None:
    from proto_schema.quantization import dequantized

    options = run.options
    bounds = tolerance(before, options.rtol, options.atol)
    meant = ONNXProgram(
        dequantized(before, asked.scheme, target=asked.target), None, program.state, program.written, program.constants
    )
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
