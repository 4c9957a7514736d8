"""`language_model`: a decoder of transformers, or a folder with one, to a folder that a runtime generates text from.

The stages are those of `export`.  What is different: attention is captured as one call (`attention`), rows of the
target rewrite the neutral graph (`purexport/fusion/`), and what runtimes read beside the model is written too.
Invariant: nothing in here, or below it, knows an architecture by name, but what knows llama.cpp's files (`llamacpp`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from proto_schema.external.addresses import refuse_address
from proto_schema.files.saving import Where
from purexport.errors import ExportError
from purexport.fusion.targets import TARGETS
from purexport.language import transformers_js
from purexport.language.adapters import CHOICES, adapters_as, make_inputs, without_wrapper
from purexport.language.caches import (
    CACHES,
    COUNTING,
    CountedDecoder,
    StaticDecoder,
    decoder_with,
    rows_for,
    share_buffers,
    takes_one_buffer,
)
from purexport.language.checked import check_steps
from purexport.language.exported import ATTENTION, LanguageModelReport, exported, nodes_of, positions_of, refuse_held
from purexport.language.fixed import check_pair, fixed_decoders, write_pair
from purexport.language.folder import (
    MODEL_FILE,
    code_named_in,
    configs_of,
    dtype_of,
    files_beside,
    genai_config,
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
from purexport.language.quantized import quantization_for, quantized
from purexport.language.several import check_graphs, graphs_of, write_graphs
from purexport.language.step import Decoder, decoder_of
from purexport.options import Options, Quantize
from purexport.program import ONNXProgram
from purexport.progress import FOLDER_STAGES, Progress, Told
from purexport.progress.bar import shown
from purexport.runtime.sessions import run, session_of
from purexport.stages.finish import judge_path
from purexport.weights.checkpoint import Checkpoint

_OPSET, _OPSET_OF_BUFFERS = 23, 24  # the first with Attention, and with TensorScatter
_MOST_POSITIONS = 1 << 21  # of the tables that are written unasked
_UNCOMPARED = (
    "some models compute something else with a static cache than without; to see it, the weights of a folder must be "
    "loaded: verify=True does so"
)


def language_model(
    model_or_folder: nn.Module | str | os.PathLike[str],
    out: str | os.PathLike[str],
    target: Literal["onnx", "onnxruntime", "onnxruntime-genai", "transformers.js"] = "onnx",
    opset_version: int | None = None,
    *,
    cache: Literal["dynamic", "static"] | None = "dynamic",
    max_length: int | None = None,
    prompt_length: int | None = None,
    last_logits: bool = False,
    lora: Literal["merge", "inputs"] | None = None,
    dtype: str | torch.dtype | None = None,
    inputs: Mapping[str, torch.Tensor] | None = None,
    verify: bool = False,
    external_data: Where = None,
    shard_size: int | None = None,
    progress: Told = None,
    quantize: Quantize = None,
    variants: Sequence[str] | str | None = None,
    trust_remote_code: bool = False,
) -> LanguageModelReport:
    """Write a language model to the folder `out`, with what runtimes need beside it; returns a report.

    `model_or_folder` is a model of transformers with a language-model head, or a folder that `save_pretrained` wrote.
    The weights of a folder are copied from its checkpoint when the file is written, and are not in memory,
    unless `verify` loads them to compare.

    `dtype` is "float32", "float16" or "bfloat16": what weights are cast to when they are written.  By default they
    stay as they are, but bfloat16 becomes float32 for ONNX Runtime's operators, whose kernels on a CPU lack it.

    The file takes `input_ids`, `attention_mask` (over past and new tokens), `position_ids` where the model has them,
    and `past_key_values.N.key` and `.value`.  It gives `logits` and `present.N.key` and `.value`.  Batch, new tokens
    and past may be of any size.  With `last_logits` only the last token of each row that the mask shows has logits.
    The opset is 23 by default, the first with an operator for attention; 24 where buffers are written by TensorScatter.

    With `cache="static"` keys and values are buffers of `max_length` tokens, which the file is given and gives back;
    for "onnx" the mask is as long as they are, and `past_length`, [1], says where the new tokens are written.  With
    `prompt_length`, too, there are two files for one row whose shapes are numbers, with one data file: `prefill.onnx`
    for so many tokens, and `step.onnx` for one.  With `cache=None` the file takes whole texts and keeps nothing.

    LoRA adapters of the package peft stay products of their own, with `lora="merge"` they are added to the weights, and
    with `lora="inputs"` they are inputs of the file, which have the adapter in use as their default.

    An encoder-decoder becomes `encoder.onnx` and `decoder.onnx`, which share one data file (docs/language-models.md
    has their inputs and outputs).  `inputs` is what a processor made of an example, for models whose config does not
    say which sounds or pictures they take.

    `target` says which operators are used: "onnx" those of the standard; "onnxruntime" also GroupQueryAttention of
    ONNX Runtime's domain com.microsoft; "onnxruntime-genai" too, with a genai_config.json, and padding counts behind
    the tokens of a row.  Without a static cache `max_length` bounds the positions of tables in the file (default: what
    the model was made for).  `verify=True` compares the logits of a prompt and 16 greedy steps in onnxruntime with
    those of torch, and of a few steps of rows with padding on either side that the target allows; and what each row
    of the target wrote with what stood there, on random values.

    "transformers.js" writes `onnx/` with the names that transformers.js reads, in each of the types `variants`: "fp32",
    "fp16", "q8", "q4", "q4f16", by default all.

    `external_data` and `shard_size` are as in `export`: where weights are, and the bytes of one data file.

    `quantize` stores the weights of products in fewer bits, as that of `export` does: with target="onnx" for
    DequantizeLinear, else for MatMulNBits and, where layers have experts, QMoE.  `verify` then compares the file before
    that with torch, and the quantized one with one of floats that are rounded alike.

    No Python of a folder runs, whatever its config names, and links that lead out of it are refused. With
    `trust_remote_code=True` the classes that `auto_map` names are imported from the folder, after a warning: only for
    folders whose author may run programs on this machine.

    Raises ExportError for what is no such model, and as `export` does; ValueError for an option out of range; OSError
    where `out` cannot be written to; ImportError where onnxruntime is missing for `verify`; VerificationError for
    logits that differ.
    """
    with shown(progress) as told:
        return _written(
            model_or_folder,
            out,
            target,
            opset_version,
            cache=cache,
            max_length=max_length,
            prompt_length=prompt_length,
            last_logits=last_logits,
            lora=lora,
            dtype=dtype,
            inputs=inputs,
            verify=verify,
            external_data=external_data,
            shard_size=shard_size,
            progress=told,
            quantize=quantize,
            variants=variants,
            trust_remote_code=trust_remote_code,
        )


def _written(
    model_or_folder: Any,
    out: str | os.PathLike[str],
    target: str,
    opset_version: int | None,
    *,
    cache: str | None,
    max_length: int | None,
    prompt_length: int | None,
    last_logits: bool,
    lora: str | None,
    dtype: str | torch.dtype | None,
    inputs: Mapping[str, torch.Tensor] | None,
    verify: bool,
    external_data: Where,
    shard_size: int | None,
    progress: Told,
    quantize: Quantize,
    variants: Sequence[str] | str | None,
    trust_remote_code: bool,
) -> LanguageModelReport:
    """The folder, as `language_model` documents it."""
    known = (*TARGETS, transformers_js.TARGET)
    if target not in known:
        raise ValueError(f"target={target!r} is not one of {', '.join(map(repr, known))}")
    _refuse_options(cache, max_length, target, lora)
    refuse_address(model_or_folder, "a model's folder")
    refuse_address(out, "a model's folder")
    types = transformers_js.variants_of(variants)
    if prompt_length is not None and (target != "onnx" or cache != "static" or quantize is not None or shard_size):
        raise ValueError(
            "prompt_length= is for target='onnx' with cache='static' and without quantize= and shard_size=; `purexport "
            "quantize` takes each of its files, and `purexport share` gives the results one data file"
        )
    if target == transformers_js.TARGET:
        _refuse_for_browser(cache, last_logits, lora, external_data, shard_size, quantize)
        if verify and "fp32" not in types:
            raise ValueError("verify=True compares the files of fp32 with torch; leave fp32 among the variants")
    elif variants is not None:
        raise ValueError(f"variants are of target={transformers_js.TARGET!r}; leave them away")
    told = Progress(progress, FOLDER_STAGES)
    folder = Path(model_or_folder) if isinstance(model_or_folder, (str, os.PathLike)) else None
    source = look_into(folder, trust_remote_code) if folder is not None else None
    model, weights = read_folder(source) if source is not None else (model_or_folder, None)
    beside = files_beside(folder) if folder is not None else None
    kind, remarks = dtype_of(model, dtype, target)
    remarks += [*source.remarks, *code_named_in(beside or {})] if source is not None else []
    model = in_dtype(model, kind) if kind is not None else model
    place = Path(out)
    model = without_wrapper(model)
    bits = quantization_for(quantize, target)
    if target == transformers_js.TARGET:
        opset = transformers_js.OPSET if opset_version is None else opset_version
        plain = Options(opset_version=opset, capture="trace", weights=weights, progress=progress)
        files = dict(configs_of(model) if beside is None else beside)
        whole = (lambda: model if source is None else loaded(source, kind)) if verify else None
        with running(source):
            browser = transformers_js.graphs_of(model, inputs)
        with transformers_js.removed_in(place, files), adapters_as(model, lora):
            report = transformers_js.written(model, browser, place, files, plain, types, max_length, whole)
        report.warnings += remarks
        return report
    with running(source):
        graphs = graphs_of(model, last_logits, inputs)
    if graphs is not None:
        if bits is not None:
            raise ValueError(
                "quantize= takes decoders of one file; write this model without it, then run `purexport quantize` on "
                "its files, and `purexport share` on the results"
            )
        if cache != "dynamic" or lora == "inputs":
            asked = f"cache={cache!r}" if cache != "dynamic" else f"lora={lora!r}"
            raise ExportError(
                f"{type(model).__name__} is not a decoder of keys and values only, and {asked} is for these; leave it "
                "away",
                code="not-a-decoder",
            )
        opset = _OPSET if opset_version is None else opset_version
        plain = Options(opset_version=opset, capture="trace", weights=weights, shard_size=shard_size, progress=progress)
        files = configs_of(model) if beside is None else beside
        names = [*files, MODEL_FILE, *(part.file for part in (*graphs.parts, *graphs.others))]
        with removed_on_failure(place, names):
            with adapters_as(model, lora):
                report, graphs = write_graphs(model, graphs, place, files, plain, target, max_length, prove=verify)
            if verify:
                told.at("verify")
                report.difference = check_graphs(model if source is None else loaded(source, kind), graphs, place)
        report.warnings += remarks
        return report
    with adapters_as(model, lora) as adapters:
        with running(source):
            decoder = decoder_with(model, target, cache, max_length, last_logits)
        positions = max_length or _bounded_positions(positions_of(model), target)
        options = _options(decoder, opset_version, weights, external_data, shard_size, progress)
        if prompt_length is not None and isinstance(decoder, StaticDecoder):
            files = configs_of(model) if beside is None else beside
            whole = (lambda: model if source is None else loaded(source, kind)) if verify else None
            report = _written_pair(decoder, prompt_length, place, files, options, positions, whole)
            report.warnings += remarks if source is None or verify else [*remarks, _UNCOMPARED]
            return report
        if place.exists():
            judge_path(place / MODEL_FILE, options)
        files = configs_of(model) if beside is None else beside
        refuse_others(place, files)
        program, report = _exported(model, decoder, options, target, positions, prove=verify)
    make_inputs(program, adapters)
    if target == "onnxruntime-genai":
        one_buffer = takes_one_buffer(program, decoder)
        files |= {"genai_config.json": genai_config(model, decoder, positions, one_buffer=one_buffer)}
        refuse_others(place, files)
    fewer = None if bits is None else quantized(program, bits, opset_version)
    report.opset = program.report.opset
    remarks += [] if fewer is None else fewer.remarks
    with removed_on_failure(place, [MODEL_FILE, *files]):
        place.mkdir(parents=True, exist_ok=True)
        told.at("save")
        told_bytes = told.bytes or False
        program.save(place / MODEL_FILE, external_data=external_data, shard_size=shard_size, progress=told_bytes)
        write_files(place, files)
        if verify:
            told.at("verify")
            real = decoder if source is None else decoder_of(loaded(source, kind))
            compared = replace(decoder, whole=real.whole)
            report.difference = _verified(compared, place) if fewer is None else fewer.check(compared)
    report.warnings += remarks
    report.files = [*model_files(place), *files]
    report.bytes = sum((place / name).stat().st_size for name in report.files)
    if isinstance(decoder, StaticDecoder) and source is not None and not verify:
        report.warnings = [*report.warnings, _UNCOMPARED]
    return report


def _written_pair(
    decoder: StaticDecoder,
    prompt: int,
    place: Path,
    files: Mapping[str, bytes],
    options: Options,
    positions: int,
    whole: Callable[[], Any] | None,
) -> LanguageModelReport:
    """Two graphs of fixed shapes with one data file; `whole` gives the model that they are compared with."""
    pair = fixed_decoders(decoder, prompt)
    if place.exists():
        for file in pair:
            judge_path(place / file, options)
    refuse_others(place, files)
    told = Progress(options.progress, FOLDER_STAGES)
    with removed_on_failure(place, [*pair, MODEL_FILE, *files]):
        models: dict[str, Any] = {}
        for file, one in pair.items():
            mine = replace(options, input_names=one.input_names, output_names=one.output_names, dynamic_axes={})
            program, report = _exported(one.model, one, mine, "onnx", positions, prove=whole is not None)
            models[file] = program.model_proto
        report.files = [*write_pair(models, place, told), *files]
        write_files(place, files)
        if whole is not None:
            told.at("verify")
            report.difference = check_pair(decoder, prompt, decoder_of(whole()), place)
    report.bytes = sum((place / name).stat().st_size for name in report.files)
    return report


def program_of(
    model: Any,
    target: str = "onnx",
    opset_version: int | None = None,
    *,
    cache: str | None = "dynamic",
    last_logits: bool = False,
    lora: str | None = None,
    max_length: int | None = None,
    prove: bool = False,
) -> tuple[ONNXProgram, Decoder, LanguageModelReport]:
    """The file of a decoder, not yet written, and what it takes.  Raises as `language_model` does."""
    _refuse_options(cache, max_length, target, lora)
    model = without_wrapper(model)
    with adapters_as(model, lora) as adapters:
        decoder = decoder_with(model, target, cache, max_length, last_logits)
        options = _options(decoder, opset_version, None, None, None, None)
        positions = max_length or positions_of(model)
        program, report = _exported(model, decoder, options, target, positions, prove=prove)
    make_inputs(program, adapters)
    return program, decoder, report


def _options(
    decoder: Decoder,
    opset: int | None,
    weights: Checkpoint | None,
    external_data: Any,
    shard_size: int | None,
    progress: Any,
) -> Options:
    return Options(
        opset_version=_default_opset(decoder) if opset is None else opset,
        input_names=decoder.input_names,
        output_names=decoder.output_names,
        dynamic_axes=decoder.axes,
        capture="trace",
        weights=weights,
        external_data=external_data,
        shard_size=shard_size,
        progress=progress,
    )


def _refuse_options(cache: str | None, max_length: int | None, target: str, lora: str | None) -> None:
    """Raise ValueError for a cache that there is not, or that the target has no use for."""
    if lora not in CHOICES:
        raise ValueError(f"lora={lora!r} is not one of {', '.join(map(repr, CHOICES))}")
    if cache not in CACHES:
        raise ValueError(f"cache={cache!r} is not one of {', '.join(map(repr, CACHES))}")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length={max_length} is not a number of tokens")
    if cache == "static" and max_length is None:
        raise ValueError("cache='static' needs max_length=N, the number of tokens that its buffers have room for")
    if cache is None and target == "onnxruntime-genai":
        raise ValueError("onnxruntime-genai needs a cache; cache=None is for target='onnx' and 'onnxruntime'")


def _refuse_for_browser(
    cache: Any, last_logits: bool, lora: Any, external_data: Any, shard_size: Any, quantize: Any
) -> None:
    """Raise ValueError for options of other targets."""
    given = {"cache": cache != "dynamic", "last_logits": last_logits, "lora": lora == "inputs"}
    given |= {"external_data": external_data is not None, "shard_size": shard_size is not None}
    given |= {"quantize": quantize is not None}
    for name, is_other in given.items():
        if is_other:
            instead = "; its files in fewer bits are its variants" if name == "quantize" else ""
            raise ValueError(f"target={transformers_js.TARGET!r} takes no {name}=; leave it away{instead}")


def _default_opset(decoder: Decoder) -> int:
    return _OPSET_OF_BUFFERS if isinstance(decoder, StaticDecoder) else _OPSET


def _exported(
    model: Any, decoder: Decoder, options: Options, target: str, positions: int, *, prove: bool
) -> tuple[ONNXProgram, LanguageModelReport]:
    rows = rows_for(decoder, target)
    program, fused = exported(model, decoder.step, decoder.example(), options, rows, positions, prove=prove)
    refuse_held(MODEL_FILE, program.model_proto, decoder.axes, program.report.warnings)
    if isinstance(decoder, CountedDecoder) and decoder.length is not None:
        share_buffers(program, decoder, fused.reasons)
    nodes = nodes_of(program)
    attention = sum(nodes[name] for name in ATTENTION)
    opset, warnings = options.opset, program.report.warnings
    others = decoder.layers - nodes["GroupQueryAttention"] if target == COUNTING else 0
    if others > 0:
        reason = next(iter(fused.reasons), "it was not found in the graph")
        warnings.append(
            "onnxruntime-genai puts padding behind the tokens of a row and writes over it, which only "
            f"GroupQueryAttention follows, and {others} of {decoder.layers} layers have other attention ({reason}): "
            "generate with prompts of one length only, or write this model for target='onnxruntime'"
        )
    return program, LanguageModelReport(
        target,
        opset,
        dict(nodes),
        decoder.layers,
        attention,
        fused.counts,
        fused.reasons,
        warnings=warnings,
        proven=fused.proven,
    )


def _bounded_positions(positions: int, target: str) -> int:
    """The positions of tables in the file.  Raises ExportError for more than a file should have unasked."""
    if target != "onnx" and positions > _MOST_POSITIONS:
        raise ExportError(
            f"max_position_embeddings is {positions}, and the file would have a table of angles for each; say how long "
            "a text may get with max_length=",
            code="odd-config",
        )
    return positions


def _verified(decoder: Decoder, place: Path) -> float:
    """Run the written file in onnxruntime, and the model in torch.  Raises VerificationError for a difference."""
    session = session_of(str(place / MODEL_FILE))
    (ids,) = [item for item in session.get_inputs() if item.name == "input_ids"]
    return check_steps(decoder, functools.partial(run, session), padded=not isinstance(ids.shape[0], int))
