"""`purexport quantize m.onnx -o q.onnx --type int4`: weights in fewer bits, a piece at a time from file to file."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import proto_schema as ps
from proto_schema.budget import EVALUATION
from purexport.cli.errors import UsageError
from purexport.cli.specs import add_budget, parse_budget
from purexport.cli.streams import add_data_files, add_force, data_files, report_stream, save_changed
from purexport.cli.terminal import titled

if TYPE_CHECKING:
    from proto_schema.calibration import Calibrated
    from proto_schema.quantization import Scheme

_EXAMPLES = """\
examples:
  purexport quantize m.onnx --type int4 --dry-run
  purexport quantize m.onnx -o q.onnx --type int4 --block-size 64 --target onnxruntime
  purexport quantize m.onnx -o q.onnx --opset 21
  purexport quantize m.onnx -o q.onnx --executor processes --resume
  purexport quantize m.onnx -o q.onnx --type int8 --exclude 'lm_head*' --exclude '*.norm.*'
  purexport quantize m.onnx -o q.onnx --algorithm gptq --calibrate samples/
  purexport quantize m.onnx --sensitivity samples/ --size 40MB --plan plan.json
  purexport quantize m.onnx --plan plan.json -o q.onnx
  purexport quantize m.onnx -o q.onnx --activations uint8 --calibrate samples/ --method percentile
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "quantize",
        help="store weights in fewer bits: int8, int4, int2, small floats, in blocks or by channel",
        description="Store the weights of MatMul, Gemm and Conv (with --embeddings also of Gather) in fewer bits.\n"
        "Each weight is read once, a piece at a time. --dry-run prints the plan for each weight, its bytes before\n"
        "and after, and its relative error. With --activations the results of nodes become integers, too.\n"
        "Their ranges come from samples: the model runs on each file of --calibrate. The algorithms gptq and awq\n"
        "need samples, too.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add("-o", "--output", metavar="FILE", help="the file to write; may be the same")
    add("--type", help="the type of the weights: int4 (the default), int8, uint4, nvfp4, float16, ...")
    add("--block-size", metavar="N", type=int, help="elements that share a scale; 0 for a whole output channel")
    add(
        "--target",
        choices=("onnx", "onnxruntime"),
        default="onnx",
        help="onnx: operators of the standard (default); onnxruntime: also MatMulNBits and QMoE",
    )
    points = parser.add_mutually_exclusive_group()
    points.add_argument("--symmetric", action="store_true", help="no zero points; signed types have none by default")
    points.add_argument("--zero-points", action="store_true", help="a zero point for each block")
    add("--include", metavar="PATTERN", action="append", default=[], help="quantize only weights whose names match")
    add("--exclude", metavar="PATTERN", action="append", default=[], help="leave out weights whose names match")
    add("--embeddings", action="store_true", help="also quantize tables that only Gather reads")
    add(
        "--smallest",
        metavar="N",
        type=int,
        default=1024,
        help="keep weights with fewer elements as they are (default: 1024)",
    )
    add("--clip", action="store_true", help="search for the range of each block with the smallest squared error")
    add("--algorithm", metavar="NAME", help="how integers are found: rtn (the default), k-quant, hqq, gptq or awq")
    add("--opset", metavar="N", type=int, help="convert the model to this opset first, if its own lacks the type")
    add(
        "--accuracy-level",
        metavar="N",
        type=int,
        default=0,
        help="the attribute accuracy_level of MatMulNBits; 4 lets it multiply in int8",
    )
    add("--activations", choices=("uint8", "int8"), help="the type of activations; the weights become int8")
    add("--calibrate", metavar="PATH", action="append", default=[], help="samples: a folder, an .npz or .npy file")
    add("--method", choices=("minmax", "percentile", "entropy"), help="how ranges are found (default: minmax)")
    add("--percentile", metavar="P", type=float, help="percent of the magnitudes inside the range (default: 99.999)")
    add("--per-channel", action="store_true", help="a scale for each output channel of int8 weights")
    add("--sensitivity", metavar="SAMPLES", help="measure what each weight costs alone on samples, and make a plan")
    add("--types", default="int4,int8", help="the types that a plan chooses from (default: int4,int8)")
    add("--size", metavar="SIZE", help="of a plan: the most bytes of the weights, as in 40MB")
    add("--error", metavar="E", type=float, help="of a plan: the largest relative error of the outputs, as in 0.01")
    add("--plan", metavar="FILE", help="the plan as JSON: to write with --sensitivity, otherwise to follow")
    add("--threads", metavar="N", type=int, help="number of threads (default: one for each core)")
    add("--dry-run", action="store_true", help="say what would be done, with errors, and write nothing")
    add_budget(parser, "each run on a sample by our evaluator, and for a file of samples", EVALUATION)
    add_data_files(parser)
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Quantize, write, report."""
    try:
        return _run(args)
    except ValueError as error:
        if type(error) is not ValueError:  # those of a file that cannot be read
            raise
        raise UsageError(_in_options(str(error))) from error


_NOTHING = "no weight is quantized"
_OPTIONS = {
    r"\bembeddings=True": "--embeddings",
    r"\bsmallest=(\d+)": r"--smallest \1",
    r"\btype='(\w+)'": r"--type \1",
    r"\btarget='(\w+)'": r"--target \1",
    r"\bthe target onnxruntime\b": "--target onnxruntime",
    r"\b(?:with )?exclude=": "by --exclude ",
    r"\bleave symmetric and clip out": "leave --symmetric, --zero-points and --clip out",
    r"\bleave the type out": "leave --type out",
    r"\bleave activations out": "leave --activations out",
    r"\bthere is no quantization\b": "there is no --type",
    r"\bthere is no algorithm\b": "there is no --algorithm",
    r"\balgorithm='hqq' or 'k-quant'": "--algorithm hqq or k-quant",
    r"\bleave clip out": "leave --clip out",
    r"\ba pattern of include\b": "a pattern of --include",
    r"\bthe patterns\b": "--include and --exclude",
    r"\binline_local_functions(?= brings)": "in Python proto_schema.inliner.inline_local_functions",
    r"(?<!-)\b(block_size|accuracy_level|embeddings|symmetric|clip|smallest|percentile)(?= is\b)": r"--\1",
}
"""The words of Python's arguments in errors and reasons, and those of the options."""


def _in_options(text: str) -> str:
    """A hint in the words of the command line."""
    for words, option in _OPTIONS.items():
        text = re.sub(words, option, text)
    return re.sub(r"--[a-z]+_[a-z]+", lambda found: found[0].replace("_", "-"), text)


def _run(args: argparse.Namespace) -> int:
    from proto_schema.files.saveplan import planned_pieces
    from proto_schema.files.saving import WriteOptions
    from proto_schema.quantization import Scheme, measured, planned, quantize

    if args.sensitivity is not None or args.plan is not None:
        from purexport.cli.plans import run_plan

        return run_plan(args)
    if args.size is not None or args.error is not None:
        raise UsageError("--size and --error are of a plan; say --sensitivity SAMPLES, too")
    if args.output is None and not args.dry_run:
        raise UsageError("say where to write the result, as in -o q.onnx, or --dry-run to write nothing")
    if args.threads is not None and args.threads < 1:
        raise UsageError(f"--threads {args.threads}: at least one")
    scheme = Scheme(
        args.type or ("int8" if args.activations else "int4"),
        args.block_size,
        True if args.symmetric else False if args.zero_points else None,
        tuple(args.include),
        tuple(args.exclude),
        args.embeddings,
        args.clip,
        args.smallest,
        accuracy_level=args.accuracy_level,
        threads=args.threads,
        algorithm=args.algorithm or "rtn",
    )
    stored = data_files(args)
    model = ps.load(args.file)
    if args.opset is not None:
        model = ps.version_converter.convert_version(model, args.opset)
    facts: dict[str, Any] = {"file": args.file, "output": args.output, "dry_run": args.dry_run}
    if args.activations is not None:
        found = _calibrated(model, scheme, args)
        made, more, lines = found.model, found.as_dict(), list(found.lines())
        any_fewer = any(not entry.reason for entry in found.entries)
    else:
        samples = _samples_of_weights(args, scheme)
        made = quantize(model, scheme, target=args.target, **samples)
        if args.dry_run:
            report = measured(model, scheme, target=args.target, **samples)
        else:
            report = planned(model, scheme, target=args.target)
        entries = (replace(entry, reason=_in_options(entry.reason)) for entry in report.entries)
        report = replace(report, entries=tuple(entries))
        more, lines = report.as_dict(), list(report.lines())
        any_fewer = any(entry.form for entry in report.entries)
    if not any_fewer:
        lines.append(
            _NOTHING if args.dry_run else f"{_NOTHING}: {args.output} has the weights of {args.file} as they are"
        )
    if not args.dry_run:
        save_changed(model, made, args.file, args.output, args.force, stored)
    elif args.executor is not None:
        pieces = planned_pieces(made, args.output or args.file, WriteOptions(True, shard_size=stored["shard_size"]))
        more["pieces"] = [asdict(piece) for piece in pieces]
        lines += [f"pieces for --executor {args.executor}:", *map(str, pieces)]
    text = json.dumps({**facts, **more}, indent=2) if args.json else "\n".join(map(titled, lines))
    report_stream(args.output or "").write(text + "\n")
    return 0 if any_fewer else 1


def _calibrated(model: ps.ModelProto, scheme: Scheme, args: argparse.Namespace) -> Calibrated:
    from proto_schema.calibration import CalibrationOptions, calibrated

    if not args.calibrate:
        raise UsageError("--activations needs samples: --calibrate FOLDER, with an .npz or .npy file for each")
    if args.target != "onnx":
        raise UsageError("--activations has standard operators only, which ONNX Runtime fuses; leave --target out")
    given = {"method": args.method, "percentile": args.percentile}
    more = {name: value for name, value in given.items() if value is not None}
    options = CalibrationOptions.of(scheme, args.activations, per_channel=args.per_channel, **more)
    return calibrated(model, options, args.calibrate, parse_budget(args.budget))


def _samples_of_weights(args: argparse.Namespace, scheme: Scheme) -> dict[str, Any]:
    """What an algorithm by samples takes; empty for one that needs none. Raises UsageError for what does not fit."""
    of_activations = ["method", "percentile", "per_channel"]
    for name in of_activations if scheme.needs_samples else ["calibrate", *of_activations, "budget"]:
        if getattr(args, name):
            also = ", or --algorithm gptq or awq" if name in ("calibrate", "budget") else ""
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is of activations; say --activations uint8 or int8, too{also}")
    if not scheme.needs_samples:
        return {}
    if not args.calibrate:
        raise UsageError(f"--algorithm {scheme.algorithm} needs samples: --calibrate FOLDER, with .npz or .npy files")
    return {"calibration": args.calibrate, "budget": parse_budget(args.budget)}
