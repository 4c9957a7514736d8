"""`purexport salvage broken.onnx -o kept.onnx`: what can be saved of a damaged file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from proto_schema.units import counted
from purexport.cli.streams import add_force, report_stream
from purexport.cli.verbs.inspect import clipped
from purexport.inspect.salvage import Salvage, salvage

_SHOWN = 20
_NAMES = {
    "node": ("node",),
    "initializer": ("weight",),
    "sparse_initializer": ("sparse weight",),
    "input": ("input",),
    "output": ("output",),
    "value_info": ("declared value",),
    "functions": ("function",),
    "metadata_props": ("entry of metadata", "entries of metadata"),
    "opset_import": ("opset",),
    "unknown fields": ("unknown field",),
}
"""The fields that are counted, one and several of them."""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "salvage",
        help="find the damage in a file, and write the intact parts to a new one",
        description="Say where a file is damaged and what the cause may be. Write a new file with every complete node, "
        "tensor and field. Opsets, inputs and outputs are added where a valid model needs them. Damage by a transfer "
        "as text (line ends, UTF-8) is repaired. The exit status is 1 when something had to be dropped, or is missing.",
        epilog="example:\n  purexport salvage broken.onnx -o kept.onnx",
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
    inside = [(_NAMES[name], count) for name, count in found.kept.most_common() if name in _NAMES]
    kept = ", ".join(counted(count, *names) for names, count in inside)
    yield f"wrote {target}, with {kept or 'nothing of a graph'}"
    if found.dropped:
        lost = sum(size for _, size, _ in found.dropped)
        yield f"dropped {counted(lost, 'byte')} in {counted(len(found.dropped), 'place')}"
        yield from (f"  {at:#x}  {counted(size, 'byte')}  {path}" for at, size, path in found.dropped[:_SHOWN])
    elif found.lost:
        yield "dropped nothing, but the file is damaged: something may be missing"
    if found.added:
        yield "added, inferred from the rest or guessed"
        yield from (f"  {note}" for note in found.added[:_SHOWN])
        if len(found.added) > _SHOWN:
            yield f"  ... {len(found.added) - _SHOWN} more (--json shows all)"
    if found.invalid:
        yield f"the new file is not valid: {found.invalid}"
    elif found.lost:
        yield "the new file is a valid model"
