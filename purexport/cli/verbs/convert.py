"""`purexport convert m.onnx --opset 12 -o out.onnx`: another opset, with the weights where they are.

`purexport convert m.onnx --dtype float16 -o half.onnx`: another float type, weights a piece at a time.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict
from typing import Any

import proto_schema as ps
from proto_schema.budget import EVALUATION
from proto_schema.units import counted
from purexport.cli.errors import UsageError
from purexport.cli.specs import add_budget, parse_budget
from purexport.cli.streams import add_data_files, add_force, data_files, report_stream, save_changed
from purexport.cli.terminal import titled

_EXAMPLES = """\
examples:
  purexport convert m.onnx --opset 12 -o old.onnx
  purexport convert m.onnx --opset ai.onnx.ml=3 -o old.onnx
  purexport convert m.onnx --opset 9 --ir-version 4 --dry-run
  purexport convert m.onnx --dtype float16 -o half.onnx
  purexport convert m.onnx --dtype float16 --samples samples/ --search -o half.onnx
  purexport convert m.onnx --dtype bfloat16 --keep "Softmax,LayerNormalization" --io convert -o half.onnx
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "convert",
        help="convert to another opset version, or to float16 or bfloat16",
        description="Convert a model to an older or a newer opset. An operator that the opset lacks is replaced by\n"
        "several of its operators. If that is not possible, the verb names the node and the nearest opset that\n"
        "has the operator, and the exit status is 1. Weights are not read: the kernel copies them, or they\n"
        "stay in their files.\n\n"
        "With --dtype the model computes in float16 or bfloat16 wherever its operators can. What stays in float32\n"
        "is printed with the reason. Weights are read a piece at a time.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add("--opset", metavar="[DOMAIN=]N", action="append", default=[], help="the opset version to convert to")
    add("--ir-version", metavar="N", type=int, help="the IR version of the result; older runtimes need an older one")
    add("--dtype", choices=("float16", "bfloat16"), help="the type to compute in")
    add("--keep", metavar="NAMES", action="append", default=[], help="operators or names of nodes that stay in float32")
    add(
        "--io",
        choices=("keep", "convert"),
        default="keep",
        help="inputs and outputs stay in float32 (default), or change",
    )
    add(
        "--samples",
        metavar="PATH",
        action="append",
        default=[],
        help="inputs that show what overflows: .npz, .npy, folder",
    )
    add("--search", action="store_true", help="keep the fewest nodes with which the outputs stay within --tolerance")
    add(
        "--tolerance",
        metavar="X",
        type=float,
        help="of --search: a part of an output's largest element (default: 0.01)",
    )
    add("-o", "--output", metavar="FILE", help="the file to write; may be the same without --dtype")
    add("--dry-run", action="store_true", help="say what would be done, and write nothing")
    add_budget(parser, "each run of our evaluator with --samples or --search", EVALUATION)
    add_data_files(parser)
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Convert, write, report. Returns 1 where nodes cannot be converted."""
    from proto_schema.version_converter import ConversionError, convert_ir, convert_version, save_converted

    wanted = dict(_opset(text) for text in args.opset)
    if not wanted and args.ir_version is None and args.dtype is None:
        raise UsageError("say which version to convert to, as in --opset 12, or which type, as in --dtype float16")
    _refuse_options_of_dtype(args)
    if args.output is None and not args.dry_run:
        raise UsageError("say where to write the result, as in -o out.onnx, or --dry-run to write nothing")
    stored = data_files(args)
    model = made = ps.load(args.file)
    facts: dict[str, Any] = {"file": args.file, "output": args.output, "dry_run": args.dry_run, "refused": []}
    try:
        for domain, version in wanted.items():
            made = convert_version(made, version, domain)
        if args.ir_version is not None:
            made = convert_ir(made, args.ir_version)
    except ConversionError as error:
        rows = [{"node": row.node, "reason": row.reason, "needs": row.needs} for row in error.refusals]
        facts |= {"converts": False, "refused": rows, "needs": error.needs, "error": str(error)}
        report_stream("").write(
            (json.dumps(facts, indent=2) if args.json else _refused(error.needs, str(error))) + "\n"
        )
        return 1
    if args.dtype is not None:
        return _to_dtype(args, model, made, facts)
    facts |= {"converts": True, "opsets": _opsets(made), "ir_version": made.ir_version} | _changes(model, made)
    if not args.dry_run:
        save_converted(made, args.file, args.output, overwrite=args.force, **stored)
    text = json.dumps(facts, indent=2) if args.json else "\n".join(titled(item) for item in _lines(facts))
    report_stream(args.output or "").write(text + "\n")
    return 0


def _refuse_options_of_dtype(args: argparse.Namespace) -> None:
    if args.dtype is None:
        given = {"keep": args.keep, "io": args.io != "keep", "samples": args.samples, "search": args.search}
        given |= {"tolerance": args.tolerance is not None, "budget": args.budget}
        for name, is_given in given.items():
            if is_given:
                raise UsageError(f"--{name} is of another float type; say --dtype float16 or bfloat16, too")
    if args.tolerance is not None and not args.search:
        raise UsageError("--tolerance is of --search; say --search, too")


def _to_dtype(args: argparse.Namespace, model: ps.ModelProto, given: ps.ModelProto, facts: dict[str, Any]) -> int:
    """Convert to another float type, write, report. Returns 1 where nothing changes."""
    from proto_schema.files.saveplan import planned_pieces
    from proto_schema.files.saving import WriteOptions
    from proto_schema.precision import converted

    more = {} if args.tolerance is None else {"tolerance": args.tolerance}
    try:
        made = converted(
            given,
            args.dtype,
            ",".join(args.keep),
            args.io,
            args.samples or None,
            search=args.search,
            budget=parse_budget(args.budget),
            **more,
        )
    except ValueError as error:
        if type(error) is not ValueError:  # those of a file that cannot be read
            raise
        raise UsageError(str(error).replace("keep=", "--keep ")) from error
    if not args.dry_run:
        save_changed(model, made.model, args.file, args.output, args.force, data_files(args))
    changes = any(made.report.converted.values())
    lines = list(made.report.lines())
    if args.dry_run and args.executor is not None:
        options = WriteOptions(True, shard_size=data_files(args)["shard_size"])
        pieces = planned_pieces(made.model, args.output or args.file, options)
        facts["pieces"] = [asdict(piece) for piece in pieces]
        lines += [f"pieces for --executor {args.executor}:", *map(str, pieces)]
    if not changes:
        lines.append(f"nothing computes in {args.dtype}: the model has no float32 operator that can")
    facts |= {"converts": changes, **made.report.as_dict()}
    text = json.dumps(facts, indent=2) if args.json else "\n".join(map(titled, lines))
    report_stream(args.output or "").write(text + "\n")
    return 0 if changes else 1


def _opset(text: str) -> tuple[str, int]:
    domain, _, version = text.rpartition("=")
    if not version.isascii() or not version.isdigit():
        raise UsageError(f"--opset {text}: write a version, as in 12, or a domain with one, as in ai.onnx.ml=3")
    return domain, int(version)


def _refused(needs: int, text: str) -> str:
    hint = f"\nopset {needs} is the nearest to which the whole model converts" if needs else ""
    return text + hint


def _opsets(model: ps.ModelProto) -> dict[str, int]:
    return {item.domain or "ai.onnx": item.version or 0 for item in model.opset_import}


def _changes(model: ps.ModelProto, made: ps.ModelProto) -> dict[str, Any]:
    """How many nodes of each operator there were and are; what did not change is left out."""
    before, after = _operators(model), _operators(made)
    names = sorted({name for name in before | after if before[name] != after[name]})
    return {
        "nodes": [sum(before.values()), sum(after.values())],
        "operators": {name: [before[name], after[name]] for name in names},
    }


def _operators(model: ps.ModelProto) -> Counter[str]:
    count: Counter[str] = Counter()

    def nodes(items: list[ps.NodeProto]) -> None:
        for node in items:
            count[node.op_type or ""] += 1
            for attribute in node.attribute:
                if attribute.g is not None:
                    nodes(attribute.g.node)

    nodes(model.graph.node if model.graph is not None else [])
    for function in model.functions:
        nodes(function.node)
    return count


def _lines(facts: dict[str, Any]) -> list[str]:
    opsets = ", ".join(f"{domain} {version}" for domain, version in facts["opsets"].items())
    would = "would be" if facts["dry_run"] else "is"
    target = facts["output"] or "the result"
    before, after = facts["nodes"]
    versions = f"opset {opsets}, IR version {facts['ir_version']}"
    lines = [f"{target} {would} of {versions}; {counted(after, 'node')} (before: {before:,})"]
    lines += [f"  {name}: {old:,} -> {new:,}" for name, (old, new) in facts["operators"].items()]
    return lines
