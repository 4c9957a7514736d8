"""`purexport show m.onnx`: the graph for people, or with --json for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import proto_schema as ps
from proto_schema.units import counted, size_text
from proto_schema.wire.collection import paused_collection
from purexport.cli import pretty
from purexport.cli.describe import describe, file_sizes
from purexport.cli.terminal import console, paint, safe

_MOST_ROWS = 5000  # of a table of rich, which measures every cell; more are plain lines


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "show",
        help="print the contents of an .onnx file: inputs, outputs, opsets, sizes, nodes",
        description="Show the graph of an .onnx file: inputs, outputs, opsets, sizes, operators and nodes with the "
        "types and shapes of their results. Weights are not read, so large files show at once.",
        epilog="example:\n  purexport show m.onnx --no-nodes",
    )
    parser.add_argument("file", metavar="FILE", help="the .onnx file")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("--no-nodes", action="store_true", help="leave out the table of nodes")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the file's content.  Raises DecodeError or OSError when it cannot be read."""
    with paused_collection():  # what is made of a hundred thousand nodes all stays until it is written
        _show(args)
    return 0


def _show(args: argparse.Namespace) -> None:
    model = ps.load(args.file)
    facts = {"files": file_sizes(args.file, model), **describe(model)}
    if args.no_nodes:
        del facts["nodes"]
    screen = None if args.json or len(facts.get("nodes", ())) > _MOST_ROWS else console()
    if screen is not None:
        pretty.show(screen, facts, _facts(facts))
        return
    text = json.dumps(facts, indent=2) if args.json else "\n".join(_lines(facts))
    sys.stdout.write(text.encode("ascii", "backslashreplace").decode() + "\n")


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    yield from table(_facts(facts), indent="")
    for title in ("inputs", "outputs"):
        yield f"\n{paint(title, 'bold')}"
        yield from table((value["name"], value["type"]) for value in facts[title])
    yield f"\n{paint('operators', 'bold')}"
    yield from table((kind, str(count)) for kind, count in facts["operators"].items())
    if "nodes" in facts:
        yield f"\n{paint('nodes', 'bold')}"
        yield from table(_node_cells(node) for node in facts["nodes"])


def _facts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    weights = facts["weights"]
    opsets = [
        str(version) if domain == "ai.onnx" else f"{domain} {version}"
        for domain, version in facts["opset_import"].items()
    ]
    rows = [("file", f"{name}, {size_text(size)}") for name, size in facts["files"].items()]
    rows += [
        ("graph", facts["graph"]),
        ("made by", facts["producer"]),
        ("opset", ", ".join(opsets)),
        ("IR version", str(facts["ir_version"])),
        ("weights", f"{counted(weights['tensors'], 'tensor')}, {counted(weights['values'], 'value')}"),
        ("functions", ", ".join(facts["functions"])),
        *(("metadata", f"{key} = {value}") for key, value in facts["metadata"].items()),
    ]
    return [(name, text) for name, text in rows if text]


def _node_cells(node: dict[str, Any]) -> tuple[str, str]:
    """The operator, and the rest as one text: names are of too many lengths for columns."""
    kind = f"{node['domain']}::{node['op_type']}" if node["domain"] else node["op_type"]
    pairs = zip(node["outputs"], node["types"], strict=True)
    made = (name if type_ == "?" else f"{name}: {type_}" for name, type_ in pairs)
    text = f"{', '.join(name or '-' for name in node['inputs'])} -> {', '.join(made)}"
    return kind, f"{text}  {{{', '.join(node['attributes'])}}}" if node["attributes"] else text


_WIDEST = 100  # characters of a column: a name may have a million, and rows may be as many


def table(rows: Iterable[Sequence[str]], indent: str = "  ") -> Iterator[str]:
    """Rows of cells as safe lines, the columns aligned."""
    kept = [[safe(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
    for row in kept:
        yield (
            indent + "  ".join(cell.ljust(min(width, _WIDEST)) for cell, width in zip(row, widths, strict=True))
        ).rstrip()
