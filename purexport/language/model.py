"""`language_model`: a decoder of transformers, or a folder with one, to a folder that a runtime generates text from.

The stages are those of `export`.  What is different: attention is captured as one call (`attention`), rows of the
target rewrite the neutral graph (`purexport/fusion/`), and what runtimes read beside the model is written too.
Invariant: nothing in here, or below it, knows an architecture by name.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from purexport.fusion.targets import TARGETS
from purexport.language.checked import check_steps
from purexport.language.exported import ATTENTION, LanguageModelReport, exported, nodes_of, positions_of
from purexport.language.folder import (
    MODEL_FILE,
    class_of,
    configs_of,
    files_beside,
    genai_config,
    read_folder,
    refuse_others,
    write_files,
)
from purexport.language.library import library
from purexport.language.quantized import quantization_for, quantized
from purexport.language.several import check_graphs, graphs_of, write_graphs
from purexport.language.step import BATCH, PAST, SEQ, Decoder, decoder_of
from purexport.options import Options
from purexport.program import ONNXProgram
from purexport.runtime.sessions import run, session_of
from purexport.stages.finish import judge_path
from purexport.weights.checkpoint import Checkpoint

_OPSET = 23  # the first with Attention


def language_model(
    model_or_folder: Any,
    out: str | os.PathLike[str],
    target: str = "onnx",
    opset_version: int | None = None,
    *,
    cache: str | None = "dynamic",
    max_length: int | None = None,
    last_logits: bool = False,
    inputs: Mapping[str, torch.Tensor] | None = None,
    verify: bool = False,
    external_data: Any = None,
    progress: Any = None,
    quantize: Any = None,
) -> LanguageModelReport:
    """Write a language model to the folder `out`, with what runtimes need beside it; returns a report.

    `model_or_folder` is a model of transformers with a language-model head, or a folder that `save_pretrained` wrote.
    The weights of a folder are copied from its checkpoint when the file is written, and are not in memory,
    unless `verify` loads them to compare.

    The file takes `input_ids`, `attention_mask` (over past and new tokens), `position_ids` where the model has them,
    and `past_key_values.N.key` and `.value`.  It gives `logits` and `present.N.key` and `.value`.  Batch, new tokens
    and past may be of any size.  With `last_logits` only the last token has logits.  The opset is 23 by default, the
    first with an operator for attention.

    An encoder-decoder becomes `encoder.onnx` and `decoder.onnx`, which share one data file (docs/language-models.md
    has their inputs and outputs).  `inputs` is what a processor made of an example, for models whose config does not
    say which sounds or pictures they take.

    `target` says which operators are used: "onnx" those of the standard; "onnxruntime" also GroupQueryAttention of
    ONNX Runtime's domain com.microsoft; "onnxruntime-genai" too, with a genai_config.json, and padding counts behind
    the tokens of a row.  `max_length` bounds the positions of tables in the file (default: what the model was made
    for).  `verify=True` compares the logits of a prompt and 16 greedy steps in onnxruntime with those of torch.

    `quantize` stores the weights of products in fewer bits, as that of `export` does: with target="onnx" for
    DequantizeLinear, else for MatMulNBits.  `verify` then compares the file before that with torch, and the quantized
    one with one of floats that are rounded alike.

    Raises ExportError for what is no such model, and as `export` does; ValueError for an option out of range; OSError
    where `out` cannot be written to; ImportError where onnxruntime is missing for `verify`; VerificationError for
    logits that differ.
    """
    if target not in TARGETS:
        raise ValueError(f"target={target!r} is not one of {', '.join(map(repr, TARGETS))}")
    if cache != "dynamic":
        raise ValueError(f"cache={cache!r} is not supported yet; 'dynamic' is")
    folder = Path(model_or_folder) if isinstance(model_or_folder, (str, os.PathLike)) else None
    model, weights = read_folder(folder) if folder is not None else (model_or_folder, None)
    place = Path(out)
    bits = quantization_for(quantize, target)
    graphs = graphs_of(model, last_logits, inputs)
    if graphs is not None:
        if bits is not None:
            raise ValueError(
                "quantize= takes decoders of one file; write this model without it, then run `purexport quantize` on "
                "its files, and `purexport share` on the results"
            )
        opset = _OPSET if opset_version is None else opset_version
        plain = Options(opset_version=opset, capture="trace", weights=weights, progress=progress)
        beside = files_beside(folder) if folder is not None else configs_of(model)
        report, graphs = write_graphs(model, graphs, place, beside, plain, target, max_length)
        if verify:
            report.difference = check_graphs(_loaded(folder, model), graphs, place)
        return report
    decoder = decoder_of(model, last_logits)
    positions = max_length or positions_of(model)
    options = _options(decoder, opset_version, weights, external_data, progress)
    if place.exists():
        judge_path(place / MODEL_FILE, options)
    files = files_beside(folder) if folder is not None else configs_of(model)
    refuse_others(place, files)
    program, report = _exported(model, decoder, options, target, positions)
    if target == "onnxruntime-genai":
        one_buffer = _takes_one_buffer(program, decoder)
        files |= {"genai_config.json": genai_config(model, decoder, positions, one_buffer=one_buffer)}
        refuse_others(place, files)
    fewer = None if bits is None else quantized(program, bits)
    place.mkdir(parents=True, exist_ok=True)
    program.save(place / MODEL_FILE, external_data=external_data)
    write_files(place, files)
    report.files = [MODEL_FILE, *files]
    report.files += [path.name for path in place.glob(f"{MODEL_FILE}.data*")]
    report.bytes = sum((place / name).stat().st_size for name in report.files)
    if verify and fewer is not None:
        report.difference = fewer.check(decoder_of(_loaded(folder, model), last_logits))
    elif verify:
        report.difference = _verified(folder, decoder, place, last_logits)
    return report


def program_of(
    model: Any,
    target: str = "onnx",
    opset_version: int | None = None,
    *,
    last_logits: bool = False,
    max_length: int | None = None,
) -> tuple[ONNXProgram, Decoder, LanguageModelReport]:
    """The file of a decoder, not yet written, and what it takes.  Raises as `language_model` does."""
    decoder = decoder_of(model, last_logits)
    options = _options(decoder, opset_version, None, None, None)
    program, report = _exported(model, decoder, options, target, max_length or positions_of(model))
    return program, decoder, report


def _options(
    decoder: Decoder, opset: int | None, weights: Checkpoint | None, external_data: Any, progress: Any
) -> Options:
    return Options(
        opset_version=_OPSET if opset is None else opset,
        input_names=decoder.input_names,
        output_names=decoder.output_names,
        dynamic_axes=decoder.axes,
        capture="trace",
        weights=weights,
        external_data=external_data,
        progress=progress,
    )


def _exported(
    model: Any, decoder: Decoder, options: Options, target: str, positions: int
) -> tuple[ONNXProgram, LanguageModelReport]:
    program, fused = exported(model, decoder.step, decoder.args(BATCH, SEQ, PAST), options, target, positions)
    nodes = nodes_of(program)
    attention = sum(nodes[name] for name in ATTENTION)
    opset, warnings = options.opset, program.report.warnings
    return program, LanguageModelReport(
        target, opset, dict(nodes), decoder.layers, attention, fused.counts, fused.reasons, warnings=warnings
    )


def _takes_one_buffer(program: ONNXProgram, decoder: Decoder) -> bool:
    """Whether the past may be a buffer that is longer than what is in it: only GroupQueryAttention looks at it."""
    graph = program.model_proto.graph
    past = set(decoder.input_names[-2 * decoder.layers :])
    nodes = graph.node if graph is not None else ()
    return all(node.op_type == "GroupQueryAttention" or past.isdisjoint(node.input) for node in nodes)


def _verified(folder: Path | None, decoder: Decoder, place: Path, last_logits: bool) -> float:
    """Run the written file in onnxruntime, and the model in torch.  Raises VerificationError for a difference."""
    session = session_of(str(place / MODEL_FILE))
    if folder is not None:
        decoder = decoder_of(_loaded(folder, None), last_logits)
    return check_steps(decoder, functools.partial(run, session))


def _loaded(folder: Path | None, model: Any) -> Any:
    """The model, or that of a folder with its weights."""
    if folder is None:
        return model
    config = library().AutoConfig.from_pretrained(folder, local_files_only=True)
    return class_of(config).from_pretrained(folder, local_files_only=True).eval()
