"""A decoder's weights in fewer bits, and the check of the file that has them.

The quantized file is compared with the same file of floats whose weights are rounded to the numbers that the codes
mean, and this one, with the weights as they are, with torch.  So the bounds are the usual ones.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

import proto_schema as ps
from proto_schema.quantization import dequantized, quantize
from purexport.errors import ExportError
from purexport.language.checked import Run, check_steps
from purexport.language.step import Decoder
from purexport.options import Quantization, quantization_of
from purexport.program import ONNXProgram
from purexport.runtime.sessions import Sessions, exact_session_of, run


def quantization_for(asked: Any, target: str) -> Quantization | None:
    """What `quantize` of a language model means; its target follows from the model's.  Raises ValueError."""
    return None if asked is None else quantization_of(asked, "onnx" if target == "onnx" else "onnxruntime")


@dataclass
class Quantized:
    """What was asked, and the model before and after."""

    asked: Quantization
    before: ps.ModelProto
    after: ps.ModelProto

    def check(self, decoder: Decoder) -> float:
        """How far the float file is from torch, relative to the largest logit.

        Raises VerificationError where it is too far, or the quantized file from the numbers that its codes mean.
        """
        with Sessions() as plain:
            difference = check_steps(decoder, functools.partial(run, plain.open(self.before)))
        meant = dequantized(self.before, self.asked.scheme, target=self.asked.target)
        with Sessions() as rounded, Sessions() as codes:
            step: Any = _Step(functools.partial(run, rounded.open(meant)), decoder)
            check_steps(step, functools.partial(run, codes.open(self.after, exact_session_of)))
        return difference


def quantized(program: ONNXProgram, asked: Quantization) -> Quantized:
    """Gives the program its weights in fewer bits.  Raises ExportError for what cannot be done."""
    before = program.model_proto
    try:
        after = quantize(before, asked.scheme, target=asked.target)
    except ValueError as error:
        raise ExportError(f"quantize: {error}", code="wrong-option") from error
    program.model_proto = after
    return Quantized(asked, before, after)


class _Step:
    """A decoder whose steps a file computes."""

    def __init__(self, runs: Run, decoder: Decoder) -> None:
        self._runs = runs
        self._decoder = decoder

    def step(self, *args: torch.Tensor) -> Any:
        """Logits and cache, as the decoder's module gives them."""
        return self._runs(dict(zip(self._decoder.input_names, args, strict=True)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)
