"""`purexport salvage broken.onnx -o kept.onnx`: what can be saved of a damaged file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from purexport.cli.streams import add_force, report_stream
from purexport.cli.verbs.inspect import clipped
from purexport.inspect.salvage import Salvage, salvage

_SHOWN = 20


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "salvage",
        help="of a damaged file: what is wrong, and a new file with all that can be kept",
        description="Say where a file is damaged and why, perhaps, and write a new one with every whole node, tensor "
        "and field. The exit status is 1 when something had to be dropped, or is missing.",
    )
    parser.add_argument("file", metavar="FILE", help="the damaged file")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
    add_force(parser)
    parser.add_argument("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write what can be kept, report.  Returns 1 if something is lost."""
    found = salvage(args.file, args.output, overwrite=args.force)
    facts = {"file": args.output, **asdict(found), "kept": dict(found.kept)}
    text = json.dumps(facts, indent=2) if args.json else "\n".join(map(clipped, _lines(args.output, found)))
    report_stream(args.output).write(text + "\n")
    return 1 if found.lost else 0


def _lines(target: str, found: Salvage) -> Iterator[str]:
    if found.first_bad >= 0:
        yield f"first bad byte: {found.first_bad:#x}, in {found.path or 'the model'}: {found.reason}"
        yield f"likely cause: {found.cause}"
    else:
        yield "nothing is wrong with the bytes"
    kept = ", ".join(f"{count} {name}" for name, count in found.kept.most_common())
    yield f"wrote {target}, with {kept}"
    if found.dropped:
        lost = sum(size for _, size, _ in found.dropped)
        yield f"dropped {lost:,} bytes in {len(found.dropped)} place{'s' if len(found.dropped) > 1 else ''}"
        yield from (f"  {at:#x}  {size:,} bytes  {path}" for at, size, path in found.dropped[:_SHOWN])
    elif found.lost:
        yield "dropped nothing that is there, but the file is damaged: something may be missing"
    if found.lost:
        yield "`purexport check` says whether what is left is a valid model"
