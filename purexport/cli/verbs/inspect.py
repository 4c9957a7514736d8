"""`purexport inspect m.onnx [PATH]`: the bytes of a file as a tree of fields, whole or broken."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import proto_schema as ps
from purexport.cli.errors import UsageError
from purexport.cli.terminal import line
from purexport.inspect.elements import Bytes, Element
from purexport.inspect.hexview import annotated
from purexport.inspect.paths import find
from purexport.inspect.salvage import likely_cause
from purexport.inspect.values import json_of, text_of

_EXAMPLES = """\
PATH names a field, as in  graph.node[3]  graph.node["conv1"].attribute["pads"].ints[2]  graph.initializer[-1].raw_data
  *  or  [*]  stands for all, ?77 for an unknown field 77.

examples:
  purexport inspect m.onnx                             the outer fields
  purexport inspect m.onnx 'graph.node[*].op_type'     one field of all nodes
  purexport inspect m.onnx 'graph.node[0]' --hex       its bytes, each with its meaning
"""

_HEAD = "    offset  head    payload  type    field"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "inspect",
        help="print the bytes of a file as a tree of fields: offset, length, name, value",
        description="Show the bytes of an .onnx file as a tree of fields. Weights are not read. "
        "A broken file is shown up to the first error, with its place and cause, and the exit status is 1.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the file")
    add("path", metavar="PATH", nargs="?", default="", help="the field to show (default: the whole file)")
    add("--depth", type=int, metavar="N", help="levels below the field (default: 2, with --json all)")
    add("--hex", action="store_true", help="bytes on the left, their meaning on the right")
    add("--root", metavar="NAME", default="ModelProto", help="the message that the file holds (default: ModelProto)")
    add("--json", action="store_true", help="one object for each field, in the order of the bytes")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the tree.  Returns 1 when the bytes shown are broken somewhere."""
    source = Bytes(args.file, root_class(args.root))
    roots = find(source, args.path)
    damage = (_write_json if args.json else _write_text)(source, roots, args)
    return 1 if damage else 0


def root_class(name: str) -> type[ps.Message]:
    """The message class of a name.  UsageError for an unknown one."""
    found = getattr(ps, name, None)
    if not (isinstance(found, type) and issubclass(found, ps.Message) and found is not ps.Message):
        raise UsageError(f"--root {name}: there is no such message; write ModelProto, TensorProto, GraphProto, ...")
    return found


def selected(source: Bytes, roots: list[Element], depth: int | None) -> Iterator[Element]:
    """The elements that a path named, each with those below it."""
    for root in roots:
        if root.step:
            yield root
        yield from source.walk(root, depth)


def field_facts(source: Bytes, element: Element) -> dict[str, Any]:
    """An element as plain data."""
    facts: dict[str, Any] = {
        "path": element.path,
        "field": element.field.name if element.field else None,
        "number": element.number,
        "wire_type": element.wire_name or None,
        "offset": element.start,
        "header": element.header,
        "payload": element.payload,
    }
    if element.message is not None:
        facts["message"] = element.message.__qualname__
    elif not element.problem:
        facts["value"] = json_of(source, element, 1 << 16)
    if element.problem:
        facts.update(problem=element.problem, bad=element.bad)
    return facts


def worst(damage: list[Element]) -> Element:
    """The element to name first: the earliest bad byte, and of fields that are cut off there the innermost."""
    return min(damage, key=lambda element: (element.bad, -element.depth))


def problem_lines(source: Bytes, damage: list[Element]) -> Iterator[str]:
    """The first bad byte, its field, the cause; and how many more there are."""
    first = worst(damage)
    yield f"first bad byte: {first.bad:#x}, in {first.path}: {first.problem}"
    yield f"likely cause: {likely_cause(source, damage)}"
    apart = {(element.bad, element.problem) for element in damage if element.bad != first.bad}
    if apart:
        yield f"{len(apart)} more places are bad after it"


def clipped(text: str) -> str:
    """ASCII, and cut to the width if stdout is a terminal."""
    return line([(text, "")])


def _write_json(source: Bytes, roots: list[Element], args: argparse.Namespace) -> list[Element]:
    write = sys.stdout.write
    damage: list[Element] = []
    head = {"file": args.file, "size": source.size, "root": args.root}
    write(json.dumps(head)[:-1] + ', "fields": [')
    separator = "\n"
    for element in selected(source, roots, args.depth):
        write(separator + json.dumps(field_facts(source, element)))
        separator = ",\n"
        if element.problem:
            damage.append(element)
    first = worst(damage) if damage else None
    bad = None if first is None else {"offset": first.bad, "path": first.path, "problem": first.problem}
    write(f'\n], "first_bad": {json.dumps(bad)}}}\n')
    return damage


def _write_text(source: Bytes, roots: list[Element], args: argparse.Namespace) -> list[Element]:
    depth = 2 if args.depth is None else args.depth
    damage: list[Element] = []

    def seen() -> Iterator[Element]:
        for element in selected(source, roots, depth):
            if element.problem:
                damage.append(element)
            yield element

    base = min(root.depth for root in roots)
    if not args.hex:
        sys.stdout.write(line([(_HEAD, "dim")]) + "\n")
    lines = map(clipped, annotated(source, seen())) if args.hex else (_line(source, one, base) for one in seen())
    for text in lines:
        sys.stdout.write(text + "\n")
    if not args.path and not args.hex:
        damage = [element for element in source.walk() if element.problem]  # below the levels that were shown, too
    for text in problem_lines(source, damage) if damage else ():
        sys.stdout.write(line([(text, "red")]) + "\n")
    return damage


def _line(source: Bytes, element: Element, base: int) -> str:
    indent = "  " * (element.depth - max(base, 1))
    text = text_of(source, element)
    label = element.step if element.depth > base or not base else element.path
    sign = " = " if element.message is None and text else "  "
    note = f"  <- {element.problem}" if element.problem else ""
    row = f"{element.start:#10x}  {element.header:4}  {element.payload:9}  {element.wire_name or '-':6}  "
    style = "bold" if element.message is not None else ""
    return line([(row, "dim"), (indent + label, style), (f"{sign}{text}".rstrip(), "cyan"), (note, "red")])
