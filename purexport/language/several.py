"""Language models of several graphs, to a folder: a file for each, and one data file for all of them.

A weight that several graphs use is stored once (`proto_schema/external/sharing.py`).  The parts say what the graphs
are; nothing in here knows which kind of model they came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

import proto_schema as ps
from purexport.errors import ExportError
from purexport.language import encoder_decoder, state, vision
from purexport.language.checked import Written
from purexport.language.exported import ATTENTION, LanguageModelReport, exported, nodes_of, positions_of, refuse_held
from purexport.language.folder import refuse_others, write_files
from purexport.language.parts import GraphPart
from purexport.language.senses import sense_of
from purexport.options import Options
from purexport.progress import FOLDER_STAGES, Progress
from purexport.runtime.sessions import session_of
from purexport.stages.finish import judge_path


@dataclass(frozen=True)
class Graphs:
    """The graphs of a model, and how their files are compared with torch: (model, parts, files by name) -> difference.

    `others` are what is tried where the model holds an axis of `parts`.
    """

    parts: Sequence[GraphPart]
    compare: Callable[[Any, Sequence[GraphPart], Mapping[str, Written]], float]
    others: Sequence[GraphPart] = ()


def graphs_of(model: Any, last_logits: bool = False, inputs: Mapping[str, Tensor] | None = None) -> Graphs | None:
    """The graphs of a model that has several; None for other models.  Raises ExportError as the parts' modules do."""
    if not hasattr(getattr(model, "config", None), "get_text_config"):
        return None
    if encoder_decoder.is_encoder_decoder(model):
        parts = encoder_decoder.parts_of(model, last_logits, inputs)
        return Graphs(parts, encoder_decoder.check)
    if sense_of(model) is not None:
        return Graphs(vision.parts_of(model, last_logits, inputs), vision.check)
    slots = state.slots_of(model)
    if slots:
        single = state.parts_of(model, slots, last_logits, single=True)
        if not state.takes_any_length(model, slots):
            return Graphs(single, state.check)
        return Graphs(state.parts_of(model, slots, last_logits), state.check, single)
    return None


def write_graphs(
    model: Any,
    graphs: Graphs,
    place: Path,
    beside: Mapping[str, bytes],
    options: Options,
    target: str,
    positions: int | None,
    *,
    prove: bool = False,
) -> tuple[LanguageModelReport, Graphs]:
    """Export the graphs, and write their files and those `beside` them to a folder; the report, and what was written.

    Raises as `export` does; ExportError for a target that runs single decoders only; OSError.
    """
    if target == "onnxruntime-genai":
        raise ExportError(
            "onnxruntime-genai is given decoders of keys and values only; write this model for target='onnxruntime'",
            code="not-a-decoder",
        )
    if place.exists():
        for part in graphs.parts:
            judge_path(place / part.file, options)
    refuse_others(place, beside)
    try:
        files, report = programs_of(model, graphs.parts, options, target, positions, prove=prove)
    except ExportError as error:
        if not graphs.others:
            raise
        graphs = replace(graphs, parts=graphs.others, others=())
        files, report = programs_of(model, graphs.parts, options, target, positions, prove=prove)
        report.warnings.append(f"the file takes one token at a time: {error}")
    place.mkdir(parents=True, exist_ok=True)
    told = Progress(options.progress, FOLDER_STAGES)
    told.at("save")
    plan = ps.share(files, place, shard_size=options.shard_size, progress=told.bytes)
    write_files(place, beside)
    report.files = [*files, *(Path(path).name for path in plan.data_files), *beside]
    report.bytes = sum((place / name).stat().st_size for name in report.files)
    return report, graphs


def check_graphs(model: Any, graphs: Graphs, place: Path) -> float:
    """How far the written files are from the model.  Raises VerificationError, ImportError without onnxruntime."""
    runs = {part.file: Written(part, session_of(str(place / part.file))) for part in graphs.parts}
    return graphs.compare(model, graphs.parts, runs)


def programs_of(
    model: Any,
    parts: Sequence[GraphPart],
    options: Options,
    target: str,
    positions: int | None = None,
    *,
    prove: bool = False,
) -> tuple[dict[str, ps.ModelProto], LanguageModelReport]:
    """The files of the parts, by name and not yet written, and a report on all of them.  Raises as `export` does.

    An input that no node of a file uses is left out of it.
    """
    nodes: Counter[str] = Counter()
    fused: Counter[str] = Counter()
    proven: Counter[str] = Counter()
    reasons: list[str] = []
    warnings: list[str] = []
    layers = 0
    files = {}
    for part in parts:
        mine = replace(
            options, input_names=part.input_names, output_names=list(part.output_names), dynamic_axes=part.axes
        )
        tables = positions or positions_of(model)
        program, found = exported(model, part.module, part.args(), mine, target, tables, prove=prove)
        files[part.file] = _without_unused(program.model_proto)
        refuse_held(part.file, files[part.file], part.axes, program.report.warnings)
        nodes += nodes_of(program)
        fused.update(found.counts)
        proven.update(found.proven)
        reasons += [f"{part.file}: {reason}" for reason in found.reasons]
        warnings += [f"{part.file}: {remark}" for remark in program.report.warnings]
        layers += found.attention
    attention = sum(nodes[name] for name in ATTENTION)
    report = LanguageModelReport(
        target,
        options.opset,
        dict(nodes),
        layers,
        attention,
        dict(fused),
        reasons,
        warnings=warnings,
        proven=dict(proven),
    )
    return files, report


def _without_unused(model: ps.ModelProto) -> ps.ModelProto:
    graph = model.graph
    if graph is not None:
        used = {name for node in graph.node for name in node.input} | {item.name for item in graph.output}
        inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.g is not None]
        while inner:
            body = inner.pop()
            used |= {name for node in body.node for name in node.input} | {item.name for item in body.output}
            inner += [attribute.g for node in body.node for attribute in node.attribute if attribute.g is not None]
        graph.input = [item for item in graph.input if item.name in used]
    return model
