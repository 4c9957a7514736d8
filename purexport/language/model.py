"""`language_model`: a decoder of transformers, or a folder with one, to a folder that a runtime generates text from.

The stages are those of `export`.  What is different: attention is captured as one call (`attention`), rows of the
target rewrite the neutral graph (`purexport/fusion/`), and what runtimes read beside the model is written too.
Invariant: nothing in here, or below it, knows an architecture by name.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from purexport.fusion.rewriting import Fused, rewrite
from purexport.fusion.targets import TARGETS, rows_of
from purexport.language.attention import attention_recorded
from purexport.language.checked import check_steps
from purexport.language.folder import (
    MODEL_FILE,
    configs_of,
    files_beside,
    genai_config,
    read_folder,
    refuse_others,
    write_files,
)
from purexport.language.library import library
from purexport.language.step import BATCH, PAST, SEQ, Decoder, decoder_of
from purexport.lock import alone
from purexport.options import Options
from purexport.program import ONNXProgram
from purexport.runtime.sessions import run, session_of
from purexport.stages.build import build_program
from purexport.stages.capture import capture_model
from purexport.stages.finish import judge_path
from purexport.stages.functionalize import make_pure
from purexport.stages.lower import lower_to_onnx
from purexport.stages.run import Run, opened
from purexport.weights.checkpoint import Checkpoint

_OPSET = 23  # the first with Attention
_POSITIONS = 4096  # of a model that does not say how many it was made for
_ATTENTION = ("Attention", "GroupQueryAttention", "MultiHeadAttention")


@dataclass
class LanguageModelReport:
    """What became of a language model: nodes by kind, layers with attention as one operator, and what was not fused."""

    target: str
    opset: int
    nodes: dict[str, int]
    layers: int
    attention: int
    fused: dict[str, int]
    not_fused: list[str]
    files: list[str] = field(default_factory=list)
    bytes: int = 0
    difference: float | None = None
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report as a dict that JSON can represent."""
        return asdict(self)

    def as_text(self) -> str:
        """The report as text for people."""
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.nodes.items(), key=lambda item: -item[1]))
        lines = [f"target: {self.target}, opset {self.opset}", f"nodes: {sum(self.nodes.values())} ({kinds})"]
        lines.append(f"attention as one operator: {self.attention} of {self.layers} layers")
        lines += [f"not fused: {reason}" for reason in self.not_fused]
        if self.files:
            lines.append(f"files: {', '.join(self.files)}, {self.bytes} bytes in all")
        if self.difference is not None:
            lines.append(f"verified: logits differ by at most {self.difference:.2g} of the largest")
        return "\n".join([*lines, *(f"warning: {remark}" for remark in self.warnings)])


def language_model(
    model_or_folder: Any,
    out: str | os.PathLike[str],
    target: str = "onnx",
    opset_version: int | None = None,
    *,
    cache: str | None = "dynamic",
    max_length: int | None = None,
    last_logits: bool = False,
    verify: bool = False,
    external_data: Any = None,
    progress: Any = None,
) -> LanguageModelReport:
    """Write a decoder to the folder `out`, with what runtimes need beside it; returns a report.

    `model_or_folder` is a model of transformers with a language-model head, or a folder that `save_pretrained` wrote.
    The weights of a folder are copied from its checkpoint when the file is written, and are not in memory,
    unless `verify` loads them to compare.

    The file takes `input_ids`, `attention_mask` (over past and new tokens), `position_ids` where the model has them,
    and `past_key_values.N.key` and `.value`.  It gives `logits` and `present.N.key` and `.value`.  Batch, new tokens
    and past may be of any size.  With `last_logits` only the last token has logits.  The opset is 23 by default, the
    first with an operator for attention.

    `target` says which operators are used: "onnx" those of the standard; "onnxruntime" also GroupQueryAttention of
    ONNX Runtime's domain com.microsoft; "onnxruntime-genai" too, with a genai_config.json, and padding counts behind
    the tokens of a row.  `max_length` bounds the positions of tables in the file (default: what the model was made
    for).  `verify=True` compares the logits of a prompt and 16 greedy steps in onnxruntime with those of torch.

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
    decoder = decoder_of(model, last_logits)
    positions = max_length or _positions(model)
    place = Path(out)
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
    place.mkdir(parents=True, exist_ok=True)
    program.save(place / MODEL_FILE, external_data=external_data)
    write_files(place, files)
    report.files = [MODEL_FILE, *files]
    report.files += [path.name for path in place.glob(f"{MODEL_FILE}.data*")]
    report.bytes = sum((place / name).stat().st_size for name in report.files)
    if verify:
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
    program, report = _exported(model, decoder, options, target, max_length or _positions(model))
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
    example = decoder.args(BATCH, SEQ, PAST)
    with alone(), attention_recorded(model), opened(decoder.step, example, None, options) as one:
        pure = make_pure(one, capture_model(one))
        fused = rewrite(pure.graph, rows_of(target, positions))
        program = build_program(one, lower_to_onnx(one, pure))
    return program, _report(one, program, decoder, target, fused)


def _report(run: Run, program: ONNXProgram, decoder: Decoder, target: str, fused: Fused) -> LanguageModelReport:
    graph = program.model_proto.graph
    nodes = Counter(node.op_type or "" for node in (graph.node if graph is not None else ()))
    attention = sum(nodes[name] for name in _ATTENTION)
    opset, warnings = run.options.opset, program.report.warnings
    return LanguageModelReport(
        target, opset, dict(nodes), decoder.layers, attention, fused.counts, fused.reasons, warnings=warnings
    )


def _takes_one_buffer(program: ONNXProgram, decoder: Decoder) -> bool:
    """Whether the past may be a buffer that is longer than what is in it: only GroupQueryAttention looks at it."""
    graph = program.model_proto.graph
    past = set(decoder.input_names[-2 * decoder.layers :])
    nodes = graph.node if graph is not None else ()
    return all(node.op_type == "GroupQueryAttention" or past.isdisjoint(node.input) for node in nodes)


def _positions(model: Any) -> int:
    """How many positions the model was made for."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or _POSITIONS)


def _verified(folder: Path | None, decoder: Decoder, place: Path, last_logits: bool) -> float:
    """Run the written file in onnxruntime, and the model in torch.  Raises VerificationError for a difference."""
    session = session_of(str(place / MODEL_FILE))
    if folder is not None:
        decoder = decoder_of(library().AutoModelForCausalLM.from_pretrained(folder).eval(), last_logits)
    return check_steps(decoder, functools.partial(run, session))
