"""`purexport canonicalize m.onnx -o out.onnx`: the same model in the bytes that every writer would choose."""

from __future__ import annotations

import argparse
import json

from proto_schema.external.addresses import size_of_file
from proto_schema.units import counted
from purexport.cli.streams import add_force, report_stream
from purexport.cli.terminal import safe
from purexport.inspect.forms import canonicalize


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "canonicalize",
        help="write the same model in canonical form, which all readers read alike",
        description="Write a model in canonical form: fields in order and once, numbers in their shortest form. "
        "External data stays as it is.",
        epilog="example:\n  purexport canonicalize m.onnx -o out.onnx",
    )
    parser.add_argument("file", metavar="FILE", help="the .onnx file")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write; may be the same")
    add_force(parser)
    parser.add_argument("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the file, report."""
    before = size_of_file(args.file)
    after = canonicalize(args.file, args.output, overwrite=args.force)
    facts = {"file": args.output, "bytes": after, "bytes_before": before}
    text = safe(f"wrote {args.output}, {counted(after, 'byte')} (before: {before:,})")
    report_stream(args.output).write((json.dumps(facts) if args.json else text) + "\n")
    return 0
