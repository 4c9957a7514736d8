"""A decoder's weights in fewer bits, and the check of the file that has them.

The file with the weights as they are is compared with torch.  At each of its steps the quantized file is compared with
the same file of floats whose weights are rounded to the numbers that the codes mean.  So the bounds are the usual ones,
but for experts of 2 bits, whose kernel rounds what they are multiplied with to int8.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

import proto_schema as ps
from proto_schema.quantization import dequantized, planned
from purexport.language.checked import Run, bound_of, check_steps, compared
from purexport.language.step import Decoder
from purexport.options import Quantization, quantization_of
from purexport.program import ONNXProgram
from purexport.runtime.sessions import Sessions, exact_session_of, run
from purexport.stages.quantize import quantize_weights

_ROUNDED = 0.1  # of the largest logit, where a kernel rounds to int8; codes that are read wrongly are far beyond it


def quantization_for(asked: Any, target: str) -> Quantization | None:
    """What `quantize` of a language model means; its target follows from the model's.  Raises ValueError."""
    if isinstance(asked, Mapping) and "activations" in asked:
        raise ValueError(
            "quantize: the activations of a language model stay floats; leave activations out, or give the file that "
            "is written and samples of all its inputs to `purexport quantize --activations`"
        )
    made = None if asked is None else quantization_of(asked, "onnx" if target == "onnx" else "onnxruntime")
    if made is not None and made.scheme.needs_samples:
        raise ValueError(
            f"quantize: {made.scheme.algorithm} needs samples of all inputs of the file; write the folder without "
            f"quantize=, then run `purexport quantize FILE -o q.onnx --algorithm {made.scheme.algorithm} --calibrate "
            "SAMPLES` on its file, or take the algorithm 'hqq' or 'k-quant'"
        )
    return made


@dataclass
class QuantizedModel:
    """What was asked, and the model before and after."""

    asked: Quantization
    before: ps.ModelProto
    after: ps.ModelProto

    @property
    def remarks(self) -> list[str]:
        """The weights of experts that stay as they are, and why; the report has them."""
        entries = planned(self.before, self.asked.scheme, target=self.asked.target).entries
        left = [entry for entry in entries if not entry.form and "MoE" in entry.reason]
        return [f"quantize: {entry.name} stays {entry.dtype}: it {entry.reason}" for entry in left]

    def check(self, decoder: Decoder) -> float:
        """How far the float file is from torch, relative to the largest logit.

        Raises VerificationError where it is too far, or the quantized file from the numbers that its codes mean.
        """
        meant = dequantized(self.before, self.asked.scheme, target=self.asked.target)
        with Sessions() as plain, Sessions() as rounded, Sessions() as codes:
            floats = functools.partial(run, plain.open(self.before))
            alike = _Alike(
                functools.partial(run, rounded.open(meant)),
                functools.partial(run, codes.open(self.after, exact_session_of)),
                max(bound_of(decoder.dtype), _ROUNDED if self._rounds() else 0),
            )

            def runs(feed: dict[str, torch.Tensor]) -> Any:
                alike.check(feed)
                return floats(feed)

            return check_steps(decoder, runs)

    def _rounds(self) -> bool:
        """Whether the quantized file has experts of 2 bits."""
        nodes = self.after.graph.node if self.after.graph is not None else []
        return self.asked.scheme.kind.bits == 2 and any(node.op_type == "QMoE" for node in nodes)


def quantized(program: ONNXProgram, asked: Quantization, opset_version: int | None) -> QuantizedModel:
    """Gives the program its weights in fewer bits.  Raises ExportError for what cannot be done."""
    before = program.model_proto
    quantize_weights(program, asked, opset_version)
    return QuantizedModel(asked, before, program.model_proto)


class _Alike:
    """Two files on the same inputs, those of each step."""

    def __init__(self, rounded: Run, codes: Run, bound: float) -> None:
        self._rounded, self._codes, self._bound = rounded, codes, bound
        self._steps = 0

    def check(self, feed: dict[str, torch.Tensor]) -> None:
        """Raises VerificationError where an output of the second is too far from that of the first."""
        for wanted, found in zip(self._rounded(feed), self._codes(feed), strict=True):
            compared(wanted, found, self._steps, self._bound, ", quantized")
        self._steps += 1
