"""`language_model`: a decoder of transformers, or a folder with one, to a folder for a runtime."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from purexport.fusion.rewriting import rewrite
from purexport.fusion.targets import rows_of
from purexport.language.attention import attention_recorded
from purexport.language.step import BATCH, PAST, SEQ, Decoder, decoder_of
from purexport.options import Options
from purexport.program import ONNXProgram
from purexport.stages.build import build_program
from purexport.stages.capture import capture_model
from purexport.stages.functionalize import make_pure
from purexport.stages.lower import lower_to_onnx
from purexport.stages.run import opened

MODEL_FILE = "model.onnx"


def program_of(model: Any, decoder: Decoder, opset: int | None = None, target: str = "onnx", **options: Any) -> ONNXProgram:
    """The file of one step of a decoder, not yet written."""
    chosen = Options(
        opset_version=opset,
        input_names=decoder.input_names,
        output_names=decoder.output_names,
        dynamic_axes=decoder.axes,
        capture="trace",
        **options,
    )
    with attention_recorded(model), opened(decoder.step, decoder.args(BATCH, SEQ, PAST), None, chosen) as run:
        pure = make_pure(run, capture_model(run))
        fused = rewrite(pure.graph, rows_of(target, _positions(model)))
        print(fused)
        return build_program(run, lower_to_onnx(run, pure))


def _positions(model: Any) -> int:
    """How many positions the model was made for."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 4096)
