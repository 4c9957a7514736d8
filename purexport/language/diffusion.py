"""`pipeline`: a pipeline of diffusers, or a folder with one, to a folder for a runtime: a file for each of its models.

Nothing about a pipeline is listed here except names.  It runs twice at small sizes, and what its text encoders and its
UNet or transformer are called with are the arguments of their exports (`observe`).  The VAE is two files, whose
arguments follow from its config.  Files, inputs and axes have the names that optimum's exporter gives them.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proto_schema.external.addresses import refuse_address
from proto_schema.files.saving import SaveOptions
from proto_schema.units import counted
from purexport.aten.unique_names import distinct
from purexport.driver import made
from purexport.errors import ExportError
from purexport.errors.requirements import command_for
from purexport.frontends.core.observed import Observed, arguments_as
from purexport.frontends.core.observing import observe
from purexport.frontends.core.request import Request, flatten
from purexport.frontends.core.structures import results_in
from purexport.language.folder import MODEL_FILE, refuse_others, removed_on_failure, write_files
from purexport.language.folder_files import json_of
from purexport.language.library import offline
from purexport.options import Options
from purexport.program import ONNXProgram
from purexport.progress import STAGES, Progress
from purexport.stages.finish import judge_path

TARGETS = ("onnx", "onnxruntime")
_BATCH = "batch_size"
_PIXELS = 16  # pipelines refuse heights and widths that are no multiples of this
_STEPS = 2  # of a pipeline that is observed; some schedulers refuse one
# the axes of inputs, by the name of the input and its number of axes
_AXES: dict[tuple[str, int], dict[int, str]] = {
    ("input_ids", 2): {0: _BATCH, 1: "sequence_length"},
    ("attention_mask", 2): {0: _BATCH, 1: "sequence_length"},
    ("sample", 4): {0: _BATCH, 2: "height", 3: "width"},
    ("hidden_states", 4): {0: _BATCH, 2: "height", 3: "width"},
    ("hidden_states", 3): {0: _BATCH, 1: "packed_height_width"},
    ("encoder_hidden_states", 3): {0: _BATCH, 1: "sequence_length"},
    ("txt_ids", 2): {0: "sequence_length"},
    ("img_ids", 2): {0: "packed_height_width"},
    ("latent_sample", 4): {0: _BATCH, 2: "latent_height", 3: "latent_width"},
}
_OF_VAE: dict[int, str] = {0: _BATCH, 2: "sample_height", 3: "sample_width"}
_FILES = {"unet": "out_sample", "transformer": "out_hidden_states"}  # parts by name, and their output
_CONDITIONS = "added_cond_kwargs_"


@dataclass
class PipelineReport:
    """What became of a pipeline: its class, the files, and of each part the inputs, outputs, nodes and the check.

    A size is a number, or the name of an axis.
    """

    pipeline: str
    target: str
    opset: int
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    bytes: int = 0
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report as a dict that JSON can represent."""
        return asdict(self)

    def as_text(self) -> str:
        """The report as text for people."""
        lines = [f"pipeline: {self.pipeline}, target {self.target}, opset {self.opset}"]
        for name, part in self.parts.items():
            inputs, outputs = (
                ", ".join(f"{port}[{', '.join(map(str, shape))}]" for port, shape in part[word].items())
                for word in ("inputs", "outputs")
            )
            lines.append(f"{name}: {inputs} -> {outputs}; {counted(part['nodes'], 'node')}")
            lines += [f"  verified: {part['verified']}"] if part["verified"] else []
        lines.append(f"files: {', '.join(self.files)}, {self.bytes} bytes in all")
        return "\n".join([*lines, *(f"warning: {remark}" for remark in self.warnings)])


class VaeEncoder(nn.Module):
    """The encoder of a VAE: pictures to the mean and the logarithm of the variance of latents."""

    def __init__(self, vae: Any) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, sample: Tensor) -> Tensor:
        """The parameters of the distribution of latents, or the latents of a VAE that has none."""
        found: Any = self.vae.encode(sample, return_dict=False)[0]
        parameters: Tensor = getattr(found, "parameters", found)
        return parameters


class VaeDecoder(nn.Module):
    """The decoder of a VAE: latents to pictures."""

    def __init__(self, vae: Any) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, latent_sample: Tensor) -> Tensor:
        """The pictures."""
        pictures: Tensor = self.vae.decode(latent_sample, return_dict=False)[0]
        return pictures


@dataclass
class _Part:
    """One file: its folder, the module, the calls that were seen, and the names of inputs and outputs."""

    name: str
    module: nn.Module
    seen: Observed
    input_names: list[str]
    output_names: list[str]
    axes: dict[str, dict[int, str]]


def pipeline(
    pipe_or_folder: Any,
    out_folder: str | os.PathLike[str],
    target: str = "onnx",
    opset_version: int | None = None,
    verify: bool = False,
    *,
    inputs: Sequence[Mapping[str, Any]] | None = None,
    external_data: Any = None,
    shard_size: int | None = None,
    progress: Any = None,
) -> PipelineReport:
    """Write a pipeline of diffusers to a folder, each of its models as `model.onnx`; returns a report.

        purexport.pipeline(pipe, "out", verify=True)

    `pipe_or_folder` is a pipeline, or a folder that `save_pretrained` wrote.  The folder gets `text_encoder/`, `unet/`
    or `transformer/`, `vae_encoder/` and `vae_decoder/`, each with `model.onnx` and its config, and beside them the
    files of the scheduler, the tokenizers and the processors, and `model_index.json`.

    The pipeline runs twice at small sizes, on the texts and sizes that `inputs` says: two or more mappings of keyword
    arguments of the pipeline.  By default these are texts, heights and widths; a pipeline that needs more, such as a
    picture, needs `inputs`.

    `verify=True` runs each file in onnxruntime and its model in torch at the sizes of two calls, before anything is
    written.  `target`, `opset_version`, `external_data` and `shard_size` are those of `export`.

    No Python of a folder runs, and nothing is downloaded.

    Raises ExportError for what is no pipeline, and as `export` does; ValueError for an option out of range; OSError
    where `out_folder` cannot be written to; VerificationError for outputs that differ.
    """
    if target not in TARGETS:
        raise ValueError(f"target={target!r} is not one of {', '.join(map(repr, TARGETS))}")
    refuse_address(pipe_or_folder, "a model's folder")
    refuse_address(out_folder, "a model's folder")
    is_path = isinstance(pipe_or_folder, (str, os.PathLike))
    pipe = _loaded(Path(pipe_or_folder)) if is_path else pipe_or_folder
    components = getattr(pipe, "components", None)
    if not isinstance(components, Mapping) or not callable(pipe) or not hasattr(pipe, "save_config"):
        raise ExportError(
            f"{type(pipe).__name__} is not a pipeline of diffusers; export takes other models", code="not-a-pipeline"
        )
    options = Options(
        opset_version=opset_version,
        external_data=external_data,
        shard_size=shard_size,
        progress=progress,
        target=target,
        verify=verify,
    )
    place = Path(out_folder)
    parts, remarks = _parts(pipe, components, inputs)
    files = _files(pipe, components, [part.name for part in parts])
    for part in parts:
        if (place / part.name).exists():
            judge_path(place / part.name / MODEL_FILE, options)
    for folder, beside in files.items():
        refuse_others(place / folder, beside)
    report = PipelineReport(type(pipe).__name__, target, options.opset, warnings=remarks)
    programs = {part.name: _exported(part, options, report) for part in parts}
    told = Progress(progress, STAGES)
    with ExitStack() as stack:
        for folder, beside in files.items():
            stack.enter_context(removed_on_failure(place / folder, [*beside, MODEL_FILE]))
        told.at("save")
        for folder, beside in files.items():
            (place / folder).mkdir(parents=True, exist_ok=True)
            if folder in programs:
                path = place / folder / MODEL_FILE
                stored: SaveOptions = {"external_data": external_data, "shard_size": shard_size}
                programs[folder].save(path, progress=told.bytes or False, **stored)
            write_files(place / folder, beside)
    written = [place / part.name for part in parts]
    report.files = [f"{path.parent.name}/{path.name}" for one in written for path in sorted(one.glob(f"{MODEL_FILE}*"))]
    report.files += [f"{folder}/{name}".removeprefix("./") for folder, beside in files.items() for name in beside]
    report.bytes = sum((place / name).stat().st_size for name in report.files)
    return report


def _loaded(folder: Path) -> Any:
    """The pipeline in a folder.  Raises ExportError where there is none, or where diffusers is missing."""
    if not (folder / "model_index.json").is_file():
        raise ExportError(
            f"{folder} has no model_index.json; a folder as pipe.save_pretrained writes it is needed",
            code="not-a-pipeline",
        )
    try:
        diffusers: Any = importlib.import_module("diffusers")
    except ModuleNotFoundError as error:
        if error.name != "diffusers":
            raise
        raise ExportError(
            f"pipelines are read by diffusers, which is not installed: {command_for('diffusers', 'transformers')}",
            code="needs-diffusers",
        ) from error
    _refuse_code(folder, diffusers)
    try:
        with offline():
            return diffusers.DiffusionPipeline.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, trust_remote_code=False
            )
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        said = str(error).strip().partition("\n")[0]
        raise ExportError(f"diffusers cannot read {folder}: {said}", code="not-a-pipeline") from error


def _refuse_code(folder: Path, diffusers: Any) -> None:
    """Raise ExportError for an index that names code which is neither of diffusers nor of transformers.

    diffusers imports the libraries that the index names, and a file of that name may lie in the current folder.
    """
    index = json_of(folder, "model_index.json")
    parts = {key: part for key, part in index.items() if key[:1] != "_"} if isinstance(index, dict) else {}
    kind = index.get("_class_name") if isinstance(index, dict) else None
    if not isinstance(kind, str) or kind not in dir(diffusers):
        raise ExportError(
            f"{folder / 'model_index.json'}: diffusers has no pipeline {kind!r}, and code of others is not run; "
            "load the pipeline yourself, and give it to purexport.pipeline",
            code="runs-code",
        )
    for key, part in parts.items():
        library = part[0] if isinstance(part, list) and part else None
        own = isinstance(library, str) and library.isidentifier() and hasattr(diffusers.pipelines, library)
        if library not in (None, "diffusers", "transformers") and not own:
            raise ExportError(
                f"{folder / 'model_index.json'}: {key} is of {library!r}, and only code of diffusers and transformers "
                "is run; load the pipeline yourself, and give it to purexport.pipeline",
                code="runs-code",
            )


# What is exported -----------------------------------------------------------------------------------------------------


def _parts(
    pipe: Any, components: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]] | None
) -> tuple[list[_Part], list[str]]:
    """The parts of a pipeline with their calls, and remarks on models that have no file."""
    modules = {name: item for name, item in components.items() if isinstance(item, nn.Module)}
    vae = modules.pop("vae", None)
    calls = _calls(pipe) if inputs is None else inputs
    with ExitStack() as stack:
        stack.enter_context(_unchanged(pipe))
        seen = {name: stack.enter_context(observe(module)) for name, module in modules.items()}
        try:
            for call in calls:
                pipe(**call)
        except Exception as error:
            said = str(error).strip().partition("\n")[0]
            raise ExportError(
                f"{type(pipe).__name__} does not run on {_named(calls[0])}: {type(error).__name__}: {said}; give "
                "inputs=[{...}, {...}], the keyword arguments of two calls at small sizes",
                code="pipeline-does-not-run",
            ) from error
    idle = [name for name, found in seen.items() if not len(found)]
    remarks = [f"{name} was not called by the pipeline, and has no file" for name in idle]
    parts = [_part(name, modules[name], _replayed(found)) for name, found in seen.items() if name not in idle]
    if vae is not None:
        parts += _of_vae(vae)
    return parts, remarks


def _named(call: Mapping[str, Any]) -> str:
    return ", ".join(call) or "no arguments"


def _calls(pipe: Any) -> list[dict[str, Any]]:
    """Two calls with other numbers of texts and other sizes, as far as the signature of the pipeline has them."""
    taken = inspect.signature(pipe.__call__).parameters
    unit = _unit(pipe)
    given = {"num_inference_steps": _STEPS, "output_type": "latent"}
    calls = [
        {"prompt": ["a photo"] * count, "height": height * unit, "width": width * unit, **given}
        for count, height, width in ((1, 2, 3), (2, 3, 2))
    ]
    return [{name: item for name, item in call.items() if name in taken} for call in calls]


def _unit(pipe: Any) -> int:
    """The pixels by which heights and widths of pictures go: those of a latent, by the halvings of the UNet."""
    model = getattr(pipe, "unet", None)
    model = getattr(pipe, "transformer", None) if model is None else model
    config = getattr(model, "config", {})
    halvings = len(config.get("block_out_channels") or ()) - 1
    pixels: int = getattr(pipe, "vae_scale_factor", 8) * 2 ** max(halvings, 1)
    return math.lcm(pixels, _PIXELS)


@contextmanager
def _unchanged(pipe: Any) -> Iterator[None]:
    """The pipeline runs inside without bars, and its scheduler and torch's random numbers are as before afterwards."""
    schedulers = [item for name, item in pipe.components.items() if "scheduler" in name and item is not None]
    before = [(item, copy.copy(vars(item))) for item in schedulers]
    bars = getattr(pipe, "_progress_bar_config", None)
    pipe.set_progress_bar_config(**{**(bars or {}), "disable": True})
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for item, state in before:
            vars(item).clear()
            vars(item).update(state)
        if bars is None:
            vars(pipe).pop("_progress_bar_config", None)
        else:
            pipe._progress_bar_config = bars


def _replayed(seen: Observed) -> Observed:
    """The kept calls of the first form, with a time step as a vector of one number, as runtimes give it."""
    form = seen.form
    found = Observed(seen.name)
    for call in form.kept:
        args, kwargs = call.arguments
        args = tuple(_vector(item) if place == 1 else item for place, item in enumerate(args))
        kwargs = {name: _vector(item) if name == "timestep" else item for name, item in kwargs.items()}
        found.add(arguments_as(args, kwargs))
    return found


def _vector(item: Any) -> Any:
    return item.reshape(1) if isinstance(item, Tensor) and not item.dim() else item


def _part(name: str, module: nn.Module, seen: Observed, axes: Mapping[str, dict[int, str]] | None = None) -> _Part:
    """A part with the names of its inputs, of their axes, and of its outputs."""
    args, kwargs = seen.form.best.arguments
    flat = flatten(Request(module, args, kwargs))
    inputs = distinct([item.removeprefix(_CONDITIONS) for item in flat.names])
    ranks = {item: tensor.dim() for item, tensor in zip(inputs, flat.tensors, strict=True)}
    named = {item: _AXES.get((item, rank), {0: _BATCH} if rank else {}) for item, rank in ranks.items()}
    if ranks.get("timestep") == 1:
        sizes = seen.form.vectors()[list(ranks).index("timestep"), 0]
        named["timestep"] = {} if set(sizes) == {1} else {0: _BATCH}
    named |= axes or {}
    with torch.no_grad():
        results = results_in(module(*args, **kwargs))
    outputs = [".".join(step.text for step in path) for path, _ in results]
    if len(results) == 1:
        outputs = [_FILES.get(name, outputs[0])]
    outputs = [f"out_{item}" if item in inputs else item or "output" for item in outputs]
    return _Part(name, module, seen, inputs, outputs, named)


def _of_vae(vae: Any) -> list[_Part]:
    """The two files of a VAE.  Sizes of latents are small; those of pictures are as many times larger."""
    config = vae.config
    scale = 2 ** (len(config.get("block_out_channels") or (0,)) - 1)
    found = []
    for name, module, channels, times, output in (
        ("vae_encoder", VaeEncoder(vae), config.get("in_channels", 3), scale, "latent_parameters"),
        ("vae_decoder", VaeDecoder(vae), config.get("latent_channels", 4), 1, "sample"),
    ):
        with observe(module) as seen, torch.no_grad(), torch.random.fork_rng():
            for batch, height, width in ((2, 4, 6), (3, 6, 4)):
                module(torch.randn(batch, channels, height * times, width * times, dtype=vae.dtype, device=vae.device))
        part = _part(name, module, seen, {"sample": _OF_VAE} if name == "vae_encoder" else None)
        found.append(replace(part, output_names=[output]))
    return found


def _exported(part: _Part, options: Options, report: PipelineReport) -> ONNXProgram:
    """The program of a part, which goes into the report."""
    asked = replace(options, input_names=part.input_names, output_names=part.output_names, dynamic_axes=part.axes)
    try:
        program = made(part.module, part.seen, None, asked, None)
    except ExportError as error:
        error.args = (f"{part.name}: {error}", *error.args[1:])
        raise
    graph = program.model_proto.graph
    shapes = {word: dict(_shapes(ports)) for word, ports in (("inputs", graph.input), ("outputs", graph.output))}
    report.parts[part.name] = {**shapes, "nodes": len(graph.node), "verified": program.report.verified}
    report.warnings += [f"{part.name}: {remark}" for remark in program.report.warnings]
    return program


def _shapes(ports: Sequence[Any]) -> Iterator[tuple[str, list[int | str]]]:
    for port in ports:
        tensor = port.type.tensor_type if port.type is not None else None
        dims = tensor.shape.dim if tensor is not None and tensor.shape is not None else ()
        yield port.name or "", [dim.dim_param or dim.dim_value or "?" for dim in dims]


# What is written beside -----------------------------------------------------------------------------------------------


def _files(pipe: Any, components: Mapping[str, Any], parts: Sequence[str]) -> dict[str, dict[str, bytes]]:
    """The files of the scheduler, the tokenizers and the configs, by folder; "." is the folder of the pipeline."""
    folders: dict[str, Any] = {".": pipe}
    for name, item in components.items():
        if name == "vae" and isinstance(item, nn.Module):
            folders |= {part: item for part in parts if part.startswith("vae_")}
        elif item is not None and (not isinstance(item, nn.Module) or name in parts):
            folders[name] = item
    return {name: _saved(item) for name, item in folders.items()}


def _saved(item: Any) -> dict[str, bytes]:
    """The files that a component writes of itself, without weights."""
    config: Any = getattr(item, "config", None)
    with tempfile.TemporaryDirectory() as folder:
        if not isinstance(item, nn.Module) and not hasattr(item, "components") and hasattr(item, "save_pretrained"):
            item.save_pretrained(folder)
        elif hasattr(item, "save_config"):
            item.save_config(folder)
        elif hasattr(config, "save_pretrained"):
            config.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.is_file()}
