"""`purexport locate m.onnx OFFSET-or-PATH`: which field owns a byte, or where a field lies."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from purexport.cli.verbs.inspect import clipped, field_facts, root_class
from purexport.cli.verbs.show import table
from purexport.inspect.elements import Bytes, Element
from purexport.inspect.hexview import around
from purexport.inspect.locate import Location, is_path, locate, named, owners
from purexport.inspect.paths import find
from purexport.inspect.values import text_of

_OFFSET = re.compile(r"0[xX][0-9a-fA-F]{1,40}|[0-9]{1,40}")


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "locate",
        help="say which field contains a byte, or where a field or a name is",
        description="For a byte, say which field and which messages contain it. For a path or a name, say where its "
        "fields are in the file. With --data the offset is in a file of external data, and the answer is "
        "the tensor that is stored there.",
        epilog="examples:\n"
        "  purexport locate m.onnx 0x1f3a\n"
        "  purexport locate m.onnx 'graph.initializer[\"fc.weight\"].raw_data'\n"
        "  purexport locate m.onnx fc.weight\n"
        "  purexport locate m.onnx 4096 --data m.onnx.data",
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    place = 'as in 0x1f3a, 7994, graph.initializer["fc.weight"].raw_data, or the name of a tensor: fc.weight'
    add("place", metavar="OFFSET-or-PATH", help=place)
    add("--data", metavar="NAME", help="the offset counts in this data file, named as in the model or by its path")
    add("--root", metavar="NAME", default="ModelProto", help="the message that the file holds (default: ModelProto)")
    add("--json", action="store_true", help="the same as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the place.  Returns 1 when no tensor owns the byte of a data file."""
    offset = int(args.place, 0 if args.place[:2] in ("0x", "0X") else 10) if _OFFSET.fullmatch(args.place) else None
    if args.data is not None:
        if offset is None:
            raise ValueError(f"--data needs an offset, as in 0x1000, not {args.place!r}")
        return _in_data_file(args, offset)
    source = Bytes(args.file, root_class(args.root))
    if offset is None:
        found = find(source, args.place) if is_path(source, args.place) else named(source, args.place)
        facts: Any = [field_facts(source, element) for element in found]
        lines = _table(source, found)
    else:
        location = locate(source, offset)
        facts = _facts(source, location)
        lines = _lines(source, location)
    _write(args, facts, lines)
    return 0


def _write(args: argparse.Namespace, facts: Any, lines: Iterator[str]) -> None:
    text = json.dumps(facts, indent=2) if args.json else "\n".join(map(clipped, lines))
    sys.stdout.write(text + "\n")


def _in_data_file(args: argparse.Namespace, offset: int) -> int:
    found = owners(args.file, args.data, offset)
    lines = [
        f"{owner.path}  bytes {owner.offset:#x} to {owner.offset + owner.length:#x} of {args.data}, {owner.detail}"
        for owner in found
    ]
    _write(args, [asdict(owner) for owner in found], iter(lines or [f"no tensor owns {offset:#x} of {args.data}"]))
    return 0 if found else 1


def _facts(source: Bytes, location: Location) -> dict[str, Any]:
    return {
        "offset": location.offset,
        "path": location.chain[-1].path if location.chain else "",
        "part": location.part,
        "detail": location.detail,
        "chain": [field_facts(source, element) for element in location.chain],
    }


def _lines(source: Bytes, location: Location) -> Iterator[str]:
    inner = location.chain[-1] if location.chain else source.whole()
    yield f"{location.offset:#x} ({location.offset}) is in the {location.part} of {inner.path or 'the file'}"
    if location.detail:
        yield location.detail
    if inner.problem:
        yield f"problem: {inner.problem}"
    yield ""
    yield from _table(source, list(location.chain))
    yield ""
    yield from around(source, location.offset)


def _table(source: Bytes, elements: list[Element]) -> Iterator[str]:
    head = ("from", "value at", "to", "type", "field", "value")
    rows = [
        (
            f"{element.start:#x}",
            f"{element.body:#x}",
            f"{element.stop:#x}",
            element.message.__qualname__ if element.message else element.wire_name or "-",
            element.path,
            text_of(source, element),
        )
        for element in elements
    ]
    yield from table([head, *rows], indent="")
