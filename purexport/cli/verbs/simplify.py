"""`purexport simplify m.onnx -o s.onnx`: fewer nodes that compute the same, with the weights where they are."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

import proto_schema as ps
from proto_schema.budget import EVALUATION, FOLDING
from purexport.cli.errors import UsageError
from purexport.cli.feeds import add_feed, files_of_feed, make_feed
from purexport.cli.specs import parse_budget, parse_size
from purexport.cli.streams import add_data_files, add_force, data_files, report_stream
from purexport.cli.terminal import titled

_EXAMPLES = """\
examples:
  purexport simplify m.onnx -o small.onnx
  purexport simplify m.onnx -o m.onnx --prove 3
  purexport simplify m.onnx --fold-bytes 16MB --dry-run
"""

_SAID = {
    "folded": "computed from constants",
    "constants": "constants, now tensors of the file",
    "identities": "change nothing",
    "cancelled": "cancel with the node before",
    "branches": "If whose condition is known",
    "merged": "put into the weights of a convolution",
    "equal": "compute the same as another node",
    "unused": "not used",
}


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "simplify",
        help="remove nodes without changing the results",
        description="Fold constants and known shapes, merge batch normalizations into convolutions, and remove nodes\n"
        "that change nothing, cancel each other, repeat others or are not used. Large weights are not loaded:\n"
        "the kernel copies them, or they stay in their files. Weights that a normalization scales are read\n"
        "piece by piece.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add("-o", "--output", metavar="FILE", help="the file to write; may be the same")
    add("--fold-bytes", metavar="SIZE", default="1MiB", help="tensors up to this size are folded (default: 1MiB)")
    limits = (
        f"the memory limit for folding (default: {FOLDING >> 20} MiB) and for each run of --prove (default: "
        f"{EVALUATION >> 20:,} MiB); the limit of work follows from it"
    )
    add("--budget", metavar="SIZE", help=limits)
    add("--prove", metavar="N", type=int, default=0, help="run both models on N random inputs and compare")
    add_feed(parser)
    add("--dry-run", action="store_true", help="say what would be done, and write nothing")
    add_data_files(parser)
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Simplify, write, report. Raises UsageError, ProofError, OSError and what a file that is no model raises."""
    if args.output is None and not args.dry_run:
        raise UsageError("say where to write the result, as in -o small.onnx, or --dry-run to write nothing")
    if args.prove < 0:
        raise UsageError(f"--prove {args.prove}: write how many inputs to try, as in --prove 3")
    if not args.prove and (args.input or args.inputs or args.dim):
        raise UsageError("--input, --inputs and --dim say what both models are run on: add --prove N")
    files_of_feed(args)
    from proto_schema.shape_inference import save_inferred
    from proto_schema.simplification import simplified

    stored = data_files(args)
    model = ps.load(args.file)
    given = args.input or args.inputs or args.dim
    prove = [make_feed(model, args, seed) for seed in range(args.prove)] if given else args.prove
    size, budget = parse_size(args.fold_bytes, "--fold-bytes") or 0, parse_budget(args.budget)
    found = simplified(model, fold_bytes=size, prove=prove, budget=budget)
    if not args.dry_run:
        save_inferred(found.model, args.file, args.output, overwrite=args.force, **stored)
    before, after = _operators(model), _operators(found.model)
    facts: dict[str, Any] = {
        "file": args.file,
        "output": args.output,
        "dry_run": args.dry_run,
        "nodes": [before.total(), after.total()],
        "done": dict(found.done),
        "operators": {name: [before[name], after[name]] for name in sorted(before | after)},
        "proven": args.prove,
    }
    text = json.dumps(facts, indent=2) if args.json else "\n".join(titled(item) for item in _lines(facts))
    report_stream(args.output or "").write(text + "\n")
    return 0


def _operators(model: ps.ModelProto) -> Counter[str]:
    return Counter(node.op_type or "" for node in (model.graph.node if model.graph is not None else ()))


def _lines(facts: dict[str, Any]) -> list[str]:
    before, after = facts["nodes"]
    would = "would have" if facts["dry_run"] else "has"
    lines = [f"{facts['output'] or 'the result'} {would} {after:,} node{'s' * (after != 1)} (before: {before:,})"]
    lines += [f"  {facts['done'][key]:,} {text}" for key, text in _SAID.items() if facts["done"].get(key)]
    changed = {name: row for name, row in facts["operators"].items() if row[0] != row[1]}
    lines += [f"  {name}: {old:,} -> {new:,}" for name, (old, new) in changed.items()]
    if facts["proven"]:
        lines.append(f"proven: both compute the same on {facts['proven']} random inputs")
    return lines
