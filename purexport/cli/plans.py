"""`purexport quantize --sensitivity` and `--plan`: what each weight costs alone, and a type for each."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import proto_schema as ps
from proto_schema.files.commit import replacing
from proto_schema.quantization.scheme import BY_SAMPLES
from purexport.cli.errors import UsageError
from purexport.cli.specs import parse_budget, parse_size
from purexport.cli.streams import data_files, report_stream, save_changed
from purexport.cli.terminal import titled

_OTHERS = ("type", "include", "exclude", "activations", "calibrate", "method", "percentile", "per_channel", "dry_run")


def run_plan(args: argparse.Namespace) -> int:
    """Measure and plan, or read a plan; write it, and the model that follows it, where the options ask for that."""
    from proto_schema.sensitivity import QuantizationPlan

    for name in _OTHERS:
        if getattr(args, name):
            raise UsageError(f"--{name.replace('_', '-')} does not go with a plan, which says the type of each weight")
    model = ps.load(args.file)
    if args.opset is not None:
        model = ps.version_converter.convert_version(model, args.opset)
    facts: dict[str, Any] = {"file": args.file, "output": args.output}
    lines: list[str] = []
    if args.sensitivity is None:
        if args.size is not None or args.error is not None:
            raise UsageError("--size and --error are of a plan that is made; say --sensitivity SAMPLES, too")
        if args.output is None:
            raise UsageError("say where to write the model that follows the plan, as in -o q.onnx")
        plan = QuantizationPlan.of(_read(args.plan))
    else:
        plan, lines = _measured(model, args)
    options = _options(args)
    taken = sum(1 for kind in plan.weights.values() if kind)
    lines.append(
        f"{taken} of {len(plan.weights)} weights in fewer bits: {plan.bytes} bytes, expected error {plan.error:.2e}"
    )
    if args.sensitivity is not None:
        from proto_schema.sensitivity.measuring import outputs_differ

        rounded = plan.rounded(model, args.target, **options)
        found = outputs_differ(model, rounded, args.sensitivity, parse_budget(args.budget))
        facts["measured"] = found
        lines.append(f"error of the outputs, measured: {found:.2e}")
        if args.plan is not None:
            _write(args.plan, plan.as_dict())
    if args.output is not None:
        made = plan.apply(model, args.target, **options)
        save_changed(model, made, args.file, args.output, args.force, data_files(args))
    text = json.dumps({**facts, **plan.as_dict()}, indent=2) if args.json else "\n".join(map(titled, lines))
    report_stream(args.output or "").write(text + "\n")
    return 0 if taken else 1


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Fields of a scheme that are the same for all weights. Raises UsageError for an algorithm by samples."""
    if args.algorithm in BY_SAMPLES:
        raise UsageError(f"--algorithm {args.algorithm} does not go with a plan; hqq and k-quant do")
    given = {
        "algorithm": args.algorithm,
        "block_size": args.block_size,
        "threads": args.threads,
        "clip": args.clip or None,
    }
    given |= {"embeddings": args.embeddings or None, "accuracy_level": args.accuracy_level or None}
    given["symmetric"] = True if args.symmetric else False if args.zero_points else None
    return {name: item for name, item in given.items() if item is not None}


def _measured(model: ps.ModelProto, args: argparse.Namespace) -> tuple[Any, list[str]]:
    from proto_schema.sensitivity import sensitivities

    size = parse_size(args.size, "--size")
    if (size is None) == (args.error is None):
        raise UsageError("a plan is made for a size or an error: --size 40MB, or --error 0.01")
    types = [name.strip() for name in args.types.split(",")]
    costs = sensitivities(
        model,
        args.sensitivity,
        types,
        target=args.target,
        budget=parse_budget(args.budget),
        smallest=args.smallest,
        **_options(args),
    )
    return costs.plan(size, args.error), list(costs.lines())


def _read(path: str) -> Any:
    try:
        return json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON ({error}); --sensitivity writes a plan") from error


def _write(path: str, plan: dict[str, Any]) -> None:
    data = (json.dumps(plan, indent=2) + "\n").encode()
    with replacing(path, "page") as file:
        file.write([data], len(data))
