"""`purexport diff a.onnx b.onnx`: what differs between two models."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

from proto_schema.units import size_text
from purexport.cli.streams import add_force
from purexport.cli.verbs.inspect import clipped
from purexport.inspect.compare import IGNORABLE, Difference, compare_files
from purexport.inspect.diff_page import diff_page


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "diff",
        help="print the differences between two models: structure, fields, values, bytes",
        description="Compare two models: graphs aligned by names and structure, then fields, then the values of "
        "tensors, then bytes. The exit status is 1 when they differ.",
        epilog="examples:\n"
        "  purexport diff a.onnx b.onnx\n"
        "  purexport diff a.onnx b.onnx --ignore metadata,names,doc_string,storage\n"
        "  purexport diff a.onnx b.onnx --html diff.html",
    )
    add = parser.add_argument
    add("a", metavar="A", help="an .onnx file")
    add("b", metavar="B", help="the other .onnx file")
    add(
        "--ignore",
        metavar="WHAT",
        default="",
        help=f"differences to ignore, separated by commas: {', '.join(IGNORABLE)}",
    )
    add("--top", type=int, default=50, metavar="N", help="differences to show (default: 50)")
    add("--html", metavar="PAGE", help="write a page with both graphs side by side and a list of the differences")
    add_force(parser)
    add("--json", action="store_true", help="all differences as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the differences.  Returns 1 when there are any."""
    found = compare_files(args.a, args.b, frozenset(filter(None, args.ignore.split(","))))
    page = diff_page(args.a, args.b, found, args.html, overwrite=args.force) if args.html else None
    if args.json:
        facts = {"equal": not found, "differences": [asdict(item) for item in found]}
        text = json.dumps(facts if page is None else {**facts, "page": asdict(page)}, indent=2)
    else:
        lines = list(map(clipped, _lines(args, found)))
        if page is not None:
            lines.append(clipped(f"wrote {page.file}, {size_text(page.bytes)}; open it in a browser"))
        text = "\n".join(lines)
    sys.stdout.write(text + "\n")
    return 1 if found else 0


def _lines(args: argparse.Namespace, found: list[Difference]) -> Iterator[str]:
    if not found:
        yield f"{args.a} and {args.b} are equal" + (f", except for {args.ignore}" if args.ignore else " to the byte")
        return
    yield f"{args.a} and {args.b} differ in {len(found)} place{'s' if len(found) > 1 else ''}"
    for item in found[: args.top]:
        where = {"only in a": f"only in {args.a}: ", "only in b": f"only in {args.b}: "}.get(item.kind, "")
        yield f"  {item.path or 'the model'}"
        yield f"    {where}{item.text}"
    if len(found) > args.top:
        yield f"  ... {len(found) - args.top} more"
