"""`purexport share a.onnx b.onnx -o folder`: several models with one data file, in which equal tensors lie once."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import proto_schema as ps
from proto_schema.external.addresses import is_address, joined, name_of
from purexport.cli.errors import UsageError
from purexport.cli.specs import parse_size
from purexport.cli.streams import add_data_files, add_force, report_stream
from purexport.cli.terminal import safe_lines

_EXAMPLES = """\
Tensors of at least 1 kB go to the data file; tensors with equal bytes are stored once.  Weights are
streamed, not loaded.

examples:
  purexport share encoder.onnx decoder.onnx -o folder
  purexport share prefill.onnx step.onnx -o folder --location weights.data --dry-run
  purexport share s3://bucket/encoder.onnx s3://bucket/decoder.onnx -o s3://bucket/both --shard-size 5GB
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "share",
        help="write several models with one data file",
        description="Write several models to a folder, with one data file that stores equal tensors once.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+", help="the .onnx files")
    add(
        "-o",
        "--output",
        metavar="FOLDER",
        required=True,
        help="the folder to write to; it is created if it does not exist",
    )
    add("--location", metavar="NAME", help="the name of the data file (default: model.onnx.data)")
    add("--dry-run", action="store_true", help="only say what would be written")
    add_data_files(parser, one_model=False)
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the models, report."""
    names = [name_of(file) for file in args.files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two files are called {twice}; all models go to one folder, so rename one of them")
    for file, name in zip(args.files, names, strict=True):
        if not args.force and _is_same(file, joined(args.output, name)):
            raise UsageError(f"{file} is in that folder itself; name another folder, or replace it with --force")
    models = {name: ps.load(file) for file, name in zip(args.files, names, strict=True)}
    shard = parse_size(args.shard_size)
    made = not args.dry_run and not is_address(args.output) and not os.path.isdir(args.output)
    if made:
        Path(args.output).mkdir()
    try:
        options = {"shard_size": shard, "overwrite": args.force, "dry_run": args.dry_run}
        plan = ps.share(models, args.output, args.location, **options)
    except BaseException:
        if made and not os.listdir(args.output):
            Path(args.output).rmdir()
        raise
    head = "would write" if args.dry_run else "wrote"
    text = json.dumps(plan.as_dict(), indent=2) if args.json else safe_lines(f"{head}\n{plan.as_text()}")
    report_stream(args.output).write(text + "\n")
    return 0


def _is_same(file: str, target: str) -> bool:
    if is_address(file) or is_address(target):
        return file == target
    return os.path.exists(target) and os.path.samefile(file, target)
