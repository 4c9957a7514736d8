"""`pretrained_model`: a model of transformers that generates no text, or a folder with one, to a folder for a runtime.

The folder is read as that of a language model is (`folder`), by the same rules for what comes from strangers.  The
graph is that of `export`: the task says which class and which outputs (`tasks`), the model's `forward` which inputs
(`interface`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import proto_schema as ps
from proto_schema.external.addresses import refuse_address
from proto_schema.quantization import dequantized
from purexport.driver import made
from purexport.errors import ExportError, UnsupportedOperatorError, VerificationError
from purexport.language import transformers_js
from purexport.language.exported import nodes_of
from purexport.language.folder import (
    MODEL_FILE,
    ModelFolder,
    changed_by_loading,
    code_named_in,
    configs_of,
    dtype_of,
    files_beside,
    in_dtype,
    loaded,
    look_into,
    model_files,
    read_folder,
    refuse_others,
    removed_on_failure,
    running,
    write_files,
)
from purexport.language.interface import OTHERS, part_of
from purexport.language.parts import BATCH, GraphPart
from purexport.language.quantized import QuantizedModel, quantization_for, quantized
from purexport.language.tasks import AUTO_CLASSES, Task, class_for, task_for, task_named
from purexport.options import DEFAULT_OPSET, Options
from purexport.program import ONNXProgram
from purexport.progress import STAGES, Progress
from purexport.runtime.sessions import Sessions, exact_session_of, run
from purexport.runtime.verification import tolerance
from purexport.stages.finish import judge_path
from purexport.weights.stored import listed

TARGETS = ("onnx", "onnxruntime", transformers_js.TARGET)


@dataclass
class PretrainedModelReport:
    """What became of a model: its task, its inputs and outputs with their sizes, the files, and the check.

    A size is a number, or the name of an axis.
    """

    task: str
    model: str
    target: str
    opset: int
    inputs: dict[str, list[int | str]]
    outputs: dict[str, list[int | str]]
    nodes: dict[str, int]
    files: list[str] = field(default_factory=list)
    bytes: int = 0
    difference: float | None = None
    verified: list[dict[str, int]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report as a dict that JSON can represent."""
        return asdict(self)

    def as_text(self) -> str:
        """The report as text for people."""
        lines = [f"task: {self.task}, {self.model}, target {self.target}, opset {self.opset}"]
        for word, ports in (("input", self.inputs), ("output", self.outputs)):
            lines += [f"{word}: {name} [{', '.join(map(str, shape))}]" for name, shape in ports.items()]
        lines.append(f"nodes: {sum(self.nodes.values())}")
        lines.append(f"files: {', '.join(self.files)}, {self.bytes} bytes in all")
        if self.difference is not None:
            sizes = "; ".join(", ".join(f"{name} {size}" for name, size in row.items()) for row in self.verified)
            lines.append(f"verified: outputs differ by at most {self.difference:.2g} of the largest ({sizes})")
        return "\n".join([*lines, *(f"warning: {remark}" for remark in self.warnings)])


def pretrained_model(
    model_or_folder: Any,
    out_folder: str | os.PathLike[str],
    task: str | None = None,
    target: str = "onnx",
    opset_version: int | None = None,
    quantize: Any = None,
    verify: bool = False,
    *,
    inputs: Mapping[str, Tensor] | None = None,
    dtype: str | torch.dtype | None = None,
    external_data: Any = None,
    shard_size: int | None = None,
    progress: Any = None,
    variants: Sequence[str] | str | None = None,
    trust_remote_code: bool = False,
) -> PretrainedModelReport:
    """Write a model of transformers that generates no text to a folder, as `model.onnx`; returns a report.

        purexport.pretrained_model("bert-base-uncased", "out", task="feature-extraction", verify=True)

    `model_or_folder` is a model of transformers, or a folder that `save_pretrained` wrote, whose weights are copied
    from its checkpoint without being in memory.  Models that generate text are those of `language_model`.

    `task` is a task of the hub, as in "text-classification".  By default it is that of the class which the config
    names.  Inputs, outputs and the names of their axes are those of optimum's exporter (docs/transformers-models.md has
    all of them).  An axis that the model takes at one size only has that size in the file.

    `inputs` is what a processor made of an example, for models whose config does not say which pictures or sounds they
    take.  `target` "onnx" means operators of the standard, "onnxruntime" also those of its domain com.microsoft, and
    "transformers.js" the folder that it reads, in the types `variants` (as in `language_model`).  The opset is 20 by
    default.  `dtype`, `quantize`, `external_data` and `shard_size` are as in
    `language_model`.

    `verify=True` runs the file in onnxruntime and the model in torch at two sizes of each axis that may vary, with
    padding behind the last text, before anything is written.

    Files of the tokenizer and the processor, and the configs, are copied beside the file.  No Python of a folder runs,
    whatever its config names, and links that lead out of it are refused; `trust_remote_code=True` is as in
    `language_model`.

    Raises ExportError for what is no such model, and as `export` does; ValueError for an option out of range; OSError
    where `out_folder` cannot be written to; ImportError where onnxruntime is missing for `verify`; VerificationError
    for outputs that differ.
    """
    if target not in TARGETS:
        raise ValueError(f"target={target!r} is not one of {', '.join(map(repr, TARGETS))}")
    refuse_address(model_or_folder, "a model's folder")
    refuse_address(out_folder, "a model's folder")
    types = transformers_js.variants_of(variants)
    in_browser = target == transformers_js.TARGET
    if in_browser and not (quantize is None and external_data is None and shard_size is None):
        raise ValueError(
            f"target={target!r} takes no quantize=, external_data= or shard_size=; its files have types of their own"
        )
    if variants is not None and not in_browser:
        raise ValueError(f"variants are of target={transformers_js.TARGET!r}; leave them away")
    asked = None if task is None else task_named(task)
    folder = Path(model_or_folder) if isinstance(model_or_folder, (str, os.PathLike)) else None
    source = None if folder is None else look_into(folder, trust_remote_code, partial(_class_for, asked), AUTO_CLASSES)
    model, weights = read_folder(source) if source is not None else (model_or_folder, None)
    found = _task_of(model, asked)
    kind, remarks = dtype_of(model, dtype, target)
    model = in_dtype(model, kind) if kind is not None else model
    files = configs_of(model) if folder is None else files_beside(folder)
    remarks += [*source.remarks, *code_named_in(files)] if source is not None else []
    bits = quantization_for(quantize, target)
    with running(source):
        part = part_of(model, found, _given_by_tokenizer(files), inputs)
    least = DEFAULT_OPSET if bits is None else max(DEFAULT_OPSET, bits.needed_opset)
    options = Options(
        opset_version=least if opset_version is None else opset_version,
        input_names=part.input_names,
        output_names=list(part.output_names),
        dynamic_axes=part.axes,
        weights=weights,
        external_data=external_data,
        shard_size=shard_size,
        progress=progress,
        target="onnxruntime" if in_browser else target,
    )
    place = Path(out_folder)
    if not in_browser:
        if place.exists():
            judge_path(place / MODEL_FILE, options)
        refuse_others(place, files)
    program = _exported(part, options)
    fewer = None if bits is None else quantized(program, bits, opset_version)
    report = _report(program, part, found, type(model).__name__, target, options.opset)
    report.warnings += [*program.report.warnings, *remarks, *([] if fewer is None else fewer.remarks)]
    told = Progress(progress, STAGES)
    if verify:
        told.at("verify")
        module = _with_values(part, source, kind)
        try:
            report.difference, report.verified = _verified(program, part, module, fewer)
        except VerificationError as error:
            changed = [] if source is None else changed_by_loading(module.model, source)
            if not changed:
                raise
            raise VerificationError(
                f"{error}; transformers gives {listed(changed)} other values than the folder when it loads the "
                "model, and the file has the values of the folder"
            ) from error
    if in_browser:
        with transformers_js.removed_in(place, files):
            told.at("save")
            models = {MODEL_FILE: program.model_proto}
            report.files = transformers_js.write_variants(models, place, types, dict(files), told)
        report.bytes = sum((place / name).stat().st_size for name in report.files)
        return report
    with removed_on_failure(place, [MODEL_FILE, *files]):
        place.mkdir(parents=True, exist_ok=True)
        told.at("save")
        told_bytes = told.bytes or False
        program.save(place / MODEL_FILE, external_data=external_data, shard_size=shard_size, progress=told_bytes)
        write_files(place, files)
    report.files = [*model_files(place), *files]
    report.bytes = sum((place / name).stat().st_size for name in report.files)
    return report


def _given_by_tokenizer(files: Mapping[str, bytes]) -> list[str] | None:
    """The inputs that the tokenizer of a folder makes; None where its config does not say."""
    try:
        found = json.loads(files.get("tokenizer_config.json", b"null"))
    except (ValueError, RecursionError):  # it is copied as it is; whoever loads it sees what is wrong
        return None
    names = found.get("model_input_names") if isinstance(found, dict) else None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _class_for(asked: Task | None, config: Any) -> Any:
    return class_for(config, asked)[0]


def _task_of(model: Any, asked: Task | None) -> Task:
    config = getattr(model, "config", None)
    if not hasattr(config, "get_text_config"):
        raise ExportError(
            f"{type(model).__name__} is not a model of transformers; export takes other models", code="no-task"
        )
    return task_for(type(model), config, asked)


def _with_values(part: GraphPart, source: ModelFolder | None, dtype: torch.dtype | None) -> Any:
    """What the file is compared with: the module with the weights of the folder as transformers loads them."""
    module: Any = part.module  # `interface.TaskModule`
    return module if source is None else module.over(loaded(source, dtype))


def _exported(part: GraphPart, options: Options) -> ONNXProgram:
    """The program of a graph, of any number of examples even where the model computes with a size of one of them.

    A trace comes first, also of a model without values; torch.export is asked where a trace fails, or where it takes
    only the number of examples that it saw.
    """
    alone = {name: {at: size for at, size in axes.items() if size == BATCH} for name, axes in part.axes.items()}
    alone = {name: axes for name, axes in alone.items() if axes}
    ways = [("trace", part.axes), ("export", part.axes), *([("trace", alone)] if alone != part.axes else ())]
    programs: list[ONNXProgram] = []
    errors: list[ExportError] = []
    for capture, axes in ways:
        try:
            asked = replace(options, capture=capture, dynamic_axes=axes)
            programs.append(made(part.module, part.args(), None, asked, None))
        except UnsupportedOperatorError:
            if not programs:
                raise
        except ExportError as error:
            errors.append(error)
        else:
            if not alone or _takes_any_batch(programs[-1]):
                return programs[-1]
    if not programs:
        raise errors[0]
    return programs[0]


def _takes_any_batch(program: ONNXProgram) -> bool:
    return any(BATCH in shape for _, shape in _shapes(program.model_proto.graph.input))


def _report(
    program: ONNXProgram, part: GraphPart, task: Task, name: str, target: str, opset: int
) -> PretrainedModelReport:
    graph = program.model_proto.graph
    inputs, outputs = (dict(_shapes(ports)) for ports in (graph.input, graph.output))
    return PretrainedModelReport(task.name, name, target, opset, inputs, outputs, dict(nodes_of(program)))


def _shapes(ports: Sequence[ps.ValueInfoProto]) -> Iterator[tuple[str, list[int | str]]]:
    for port in ports:
        tensor = port.type.tensor_type if port.type is not None else None
        dims = tensor.shape.dim if tensor is not None and tensor.shape is not None else ()
        yield port.name or "", [dim.dim_param or dim.dim_value or "?" for dim in dims]


def _verified(
    program: ONNXProgram, part: GraphPart, module: Any, fewer: QuantizedModel | None
) -> tuple[float, list[dict[str, int]]]:
    """The largest difference, relative to the largest number of an output, and the sizes that were tried.

    Raises VerificationError for an output that differs by more than rounding, and for a file that takes other sizes
    than the model.
    """
    worst = 0.0
    rows: list[dict[str, int]] = []
    before = program if fewer is None else ONNXProgram(fewer.before)
    bounds = tolerance(before.model_proto)
    taken = dict(_shapes(before.model_proto.graph.input))
    for sizes in _sizes(part, taken, module):
        args = part.args(len(rows), **sizes)
        with torch.no_grad():
            wanted = module(*args)
        found = before(*args)
        where = ", ".join(f"{name} {size}" for name, size in sizes.items())
        for name, mine, theirs in zip(part.output_names, found, wanted, strict=True):
            worst = max(worst, _difference(name, mine, theirs, bounds, where))
        if fewer is not None:
            _check_codes(fewer, before.feed(fewer.before, args, {}), part.output_names, bounds, where)
        rows.append(sizes)
    before.release()
    return worst, rows


def _sizes(part: GraphPart, taken: Mapping[str, Sequence[int | str]], module: Any) -> Iterator[dict[str, int]]:
    """The sizes of the example by the names of axes, and others that the model runs at."""
    names = [size for port in part.inputs for size in taken.get(port.name, ()) if isinstance(size, str)]
    names = [name for name in dict.fromkeys(names) if name in part.sizes]
    first = {name: part.sizes[name] for name in names}
    yield first
    others = {name: OTHERS.get(name) or 2 * size for name, size in first.items()}
    smaller = {name: OTHERS.get(name) or size for name, size in first.items()}
    few = {name: OTHERS[name] if name == names[0] else size for name, size in first.items()}
    for sizes in (others, smaller, few):
        try:
            with torch.no_grad():
                module(*part.args(1, **sizes))
        except Exception:  # sizes that are not the model's
            continue
        if sizes != first:
            yield sizes
        return


def _difference(name: str, mine: Tensor, theirs: Tensor, bounds: Any, where: str) -> float:
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        raise VerificationError(
            f"with {where}: output {name!r} is {mine.dtype}{list(mine.shape)} in onnxruntime and "
            f"{theirs.dtype}{list(theirs.shape)} in torch"
        )
    if not theirs.numel():
        return 0.0
    apart = torch.where(mine == theirs, 0.0, (mine.double() - theirs.double()).abs()).nan_to_num(nan=torch.inf)
    largest = theirs.double().abs().nan_to_num(0.0, 0.0, 0.0).max().clamp(min=1e-6)
    difference = float(apart.max() / largest)
    if not bool(bounds.close(mine, theirs).all()) and difference > bounds.rtol:
        raise VerificationError(
            f"with {where}: output {name!r} of the file differs from torch's by {difference:.2g} of the largest number"
        )
    return difference


def _check_codes(fewer: QuantizedModel, feed: dict[str, Tensor], names: Sequence[str], bounds: Any, where: str) -> None:
    """Raise VerificationError where the quantized file is not one of floats that are rounded alike."""
    meant = dequantized(fewer.before, fewer.asked.scheme, target=fewer.asked.target)
    with Sessions() as rounded, Sessions() as codes:
        wanted = run(rounded.open(meant), feed)
        found = run(codes.open(fewer.after, exact_session_of), feed)
    for name, mine, theirs in zip(names, found, wanted, strict=True):
        _difference(name, mine, theirs, bounds, f"{where}, quantized")
