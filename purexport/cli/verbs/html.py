"""`purexport html m.onnx -o m.html`: a page to look at, with everything in it."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict

from proto_schema.units import size_text
from purexport.cli.streams import add_force, report_stream
from purexport.cli.verbs.inspect import clipped
from purexport.inspect.html import HISTOGRAMS, Page, html


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "html",
        help="write a page for a browser: graph, bytes, sizes, tensors with histograms",
        description="Write a page that shows a file of any size in a browser, without a network: its graph, the tree "
        "of fields, a map of the bytes, their sizes by use, and tensors with histograms. Weights are read for the "
        "histograms only. For a broken file the page shows where the error is, and the exit status is 1.",
        epilog="example:\n  purexport html m.onnx -o m.html --histograms none",
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add(
        "-o",
        "--output",
        metavar="FILE",
        help="the page to write (default: beside the file, with the same name and .html)",
    )
    add(
        "--histograms",
        choices=HISTOGRAMS,
        default="auto",
        help="which values the histograms count: auto takes samples of tensors above 16 MB and reads at most 256 MB "
        "(default: auto)",
    )
    add_force(parser)
    add("--json", action="store_true", help="report as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the page, report.  Returns 1 when the file is broken."""
    target = args.output or f"{os.path.splitext(args.file)[0]}.html"
    page = html(args.file, target, args.histograms, overwrite=args.force)
    facts = {**asdict(page), "damage": None}
    if page.damage.first_bad >= 0:
        bad = page.damage
        facts["damage"] = {"offset": bad.first_bad, "path": bad.path, "reason": bad.reason, "cause": bad.cause}
    text = json.dumps(facts, indent=2) if args.json else "\n".join(map(clipped, _lines(page)))
    report_stream(target).write(text + "\n")
    return 0 if facts["damage"] is None else 1


def _lines(page: Page) -> Iterator[str]:
    yield f"wrote {page.file}, {size_text(page.bytes)}; open it in a browser"
    if page.damage.first_bad >= 0:
        yield f"first bad byte: {page.damage.first_bad:#x}, in {page.damage.path or 'the model'}: {page.damage.reason}"
        yield f"likely cause: {page.damage.cause}"
    done = [f"{page.whole} of all values"] if page.whole else []
    done += [f"{page.sampled} of a sample (--histograms all reads all)"] if page.sampled else []
    done += [f"{page.left_out} left out"] if page.left_out else []
    done += [f"{page.unreadable} of values that cannot be read"] if page.unreadable else []
    if done:
        yield f"histograms: {', '.join(done)}"
