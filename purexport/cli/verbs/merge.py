"""`purexport merge a.onnx b.onnx --map out:in -o m.onnx`: one model of two."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import Any

import proto_schema as ps
from proto_schema.external.addresses import size_of_file
from proto_schema.units import counted, size_text
from purexport.cli.describe import interface
from purexport.cli.errors import UsageError
from purexport.cli.specs import parse_names
from purexport.cli.streams import DataFiles, add_data_files, add_force, data_files, report_stream
from purexport.cli.terminal import safe

_EXAMPLES = """\
examples:
  purexport merge encoder.onnx head.onnx --map features:x -o model.onnx
  purexport merge a.onnx b.onnx --map y:x --prefix a_ --prefix b_ -o both.onnx

Write \\, for a comma in a name.
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "merge",
        help="join two models: outputs of the first become inputs of the second",
        description="Join two models into one. External data stays where it is if it is in the folder of the new model "
        "or below it; the new model refers to it.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("first", metavar="FIRST", help="the model whose outputs are taken")
    add("second", metavar="SECOND", help="the model whose inputs they feed")
    add("--map", metavar="OUT:IN", action="append", default=[], help="an output of FIRST and an input of SECOND")
    add(
        "--prefix",
        action="append",
        default=[],
        help="a prefix for the names in FIRST; give it again for the names in SECOND",
    )
    add("--inputs", metavar="NAMES", help="keep these inputs only (names separated by commas)")
    add("--outputs", metavar="NAMES", help="keep these outputs only (names separated by commas)")
    add("-o", "--output", metavar="FILE", required=True, help="the file to write")
    add("--dry-run", action="store_true", help="report on the merged model, and write nothing")
    add_data_files(parser)
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Join, write, report."""
    pairs = [_pair(text) for text in args.map]
    if len(args.prefix) > 2:
        raise UsageError("--prefix: give it once for the first model, and once more for the second")
    prefixes = [*args.prefix, None, None]
    stored = data_files(args)
    merged = _merged(args, pairs, prefixes)
    facts = _facts(merged, args.output, args.dry_run)
    if not args.dry_run:
        _save(merged, args, stored)
        facts["bytes"] = size_of_file(args.output)
    text = json.dumps(facts, indent=2) if args.json else "\n".join(map(safe, _lines(facts)))
    report_stream(args.output).write(text + "\n")
    return 0


def _merged(args: argparse.Namespace, pairs: list[tuple[str, str]], prefixes: Sequence[str | None]) -> ps.ModelProto:
    try:
        return ps.compose.merge_models(
            ps.load(args.first),
            ps.load(args.second),
            pairs,
            inputs=None if args.inputs is None else parse_names(args.inputs),
            outputs=None if args.outputs is None else parse_names(args.outputs),
            prefix1=prefixes[0],
            prefix2=prefixes[1],
            producer_name="purexport",
            producer_version=None,
        )
    except ps.compose.OverlapError as error:
        raise UsageError(f"{error.found}; --prefix a_ --prefix b_ goes before the names of the two") from None


def _save(model: ps.ModelProto, args: argparse.Namespace, stored: DataFiles) -> None:
    from proto_schema.external import tensors
    from proto_schema.external.addresses import is_address
    from proto_schema.files.owned import files_of
    from proto_schema.files.targets import judge

    for source in (args.first, args.second):
        judge(os.fspath(args.output), "model", files_of(os.fspath(source)), args.force)
    external = any(tensor.data_location == ps.TensorProto.EXTERNAL for tensor in tensors(model))
    moves = stored["shard_size"] is not None or any(map(is_address, (args.first, args.second, args.output)))
    where: Any = None if not external and stored["shard_size"] is None else True if moves else "reference"
    ps.save(model, args.output, external_data=where, overwrite=args.force, **stored)


def _pair(text: str) -> tuple[str, str]:
    """The names before and after the colon. A colon in a name is written `\\:`."""
    parts = text.replace("\\:", "\0").split(":")
    if len(parts) != 2 or not all(parts):
        raise UsageError(f"--map {text}: write an output and an input with a colon between, as in features:x")
    return parts[0].replace("\0", ":"), parts[1].replace("\0", ":")


def _facts(model: ps.ModelProto, target: str, dry_run: bool) -> dict[str, Any]:
    known = interface(model)
    return {
        "file": target,
        "dry_run": dry_run,
        "nodes": len(model.graph.node) if model.graph else 0,
        "inputs": known["inputs"],
        "outputs": known["outputs"],
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    verb = "would write" if facts["dry_run"] else "wrote"
    size = "" if facts["dry_run"] else f", {size_text(facts['bytes'])}"
    lines = [f"{verb} {facts['file']}{size}: {counted(facts['nodes'], 'node')}"]
    for title in ("inputs", "outputs"):
        lines += [f"  {title[:-1]}  {value['name']}  {value['type']}" for value in facts[title]]
    return lines
