"""`purexport stat m.onnx`: where the bytes go, and whether the external data is sound."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from proto_schema.units import counted, size_text
from purexport.cli import pretty
from purexport.cli.terminal import console, titled
from purexport.cli.verbs.inspect import clipped
from purexport.cli.verbs.show import table
from purexport.inspect.sizes import DataFile, Sizes, duplicates, sizes

_BAR = 30


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = verbs.add_parser(
        "stat",
        help="print sizes by message, operator, dtype and module, and the external data",
        description="Say where the bytes of a model go, which tensors are largest, and whether the files of external "
        "data are complete. Weights are read only with --duplicates. The exit status is 1 when data is missing.",
        epilog="example:\n  purexport stat m.onnx --duplicates",
    )
    add = parser.add_argument
    add("file", metavar="FILE", help="the .onnx file")
    add("--top", type=int, default=10, metavar="N", help="rows of each table (default: 10)")
    add("--duplicates", action="store_true", help="find tensors of equal content; reads those that could be equal")
    add("--json", action="store_true", help="everything as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the sizes.  Returns 1 when external data is missing or overlaps."""
    found = sizes(args.file)
    equal = duplicates(args.file) if args.duplicates else None
    if args.json:
        facts = asdict(found)
        if equal is not None:
            facts["duplicates"] = [{"names": names, "bytes": size} for names, size in equal]
        text = json.dumps(facts, indent=2)
    elif (screen := console()) is not None:
        text = _shown(screen, args.file, found, equal, max(args.top, 1))
    else:
        text = "\n".join(map(titled, _lines(args.file, found, equal, max(args.top, 1))))
    sys.stdout.write(text + "\n")
    return 0 if all(file.sound for file in found.data_files) and not found.problems else 1


def bars(counts: Mapping[str, int], top: int) -> Iterator[str]:
    """A bar chart: name, size, share, bar."""
    total = sum(counts.values()) or 1
    rows = [(name, count) for name, count in counts.items() if count]
    rest = sum(count for _, count in rows[top:])
    shown = rows[:top] + ([(f"{len(rows) - top} others", rest)] if rest else [])
    largest = max((count for _, count in shown), default=1)
    width = max((len(name) for name, _ in shown), default=0)
    for name, count in shown:
        bar = "#" * max(1, round(_BAR * count / largest))
        yield f"  {name:<{min(width, 40)}}  {size_text(count):>7}  {100 * count / total:5.1f}%  {bar}"


def _shown(screen: Any, path: str, found: Sizes, equal: list[tuple[list[str], int]] | None, top: int) -> str:
    """Prints charts and tensors as tables; the rest is text as ever."""
    screen.print(clipped(_head(path, found)) + "\n", style="bold")
    for title, counts in _charts(found):
        pretty.chart(screen, title, counts, top)
    if found.weights:
        pretty.largest(screen, found, top)
    return "\n".join(map(titled, _ends(found, equal, top))).lstrip("\n")


def _head(path: str, found: Sizes) -> str:
    outside = sum(file.size or 0 for file in found.data_files)
    return f"{path}, {size_text(found.file)}" + (f", and {size_text(outside)} of external data" if outside else "")


def _charts(found: Sizes) -> list[tuple[str, dict[str, int]]]:
    charts = [
        ("bytes by use", found.by_use),
        ("bytes of the file by message", found.by_message),
        ("weights by operator", found.by_operator),
        ("weights by dtype", found.by_dtype),
        ("weights by module", found.by_module),
    ]
    return [(title, counts) for title, counts in charts if any(counts.values())]


def _lines(path: str, found: Sizes, equal: list[tuple[list[str], int]] | None, top: int) -> Iterator[str]:
    yield _head(path, found)
    for title, counts in _charts(found):
        yield f"\n{title}"
        yield from bars(counts, top)
    if found.weights:
        yield f"\nlargest of {counted(len(found.weights), 'tensor')}"
        rows = [(weight.name, f"{weight.dtype}{list(weight.dims)}", weight) for weight in found.weights[:top]]
        yield from table(
            (name, kind, size_text(weight.nbytes), "external" if weight.external else "") for name, kind, weight in rows
        )
    yield from _ends(found, equal, top)


def _ends(found: Sizes, equal: list[tuple[list[str], int]] | None, top: int) -> Iterator[str]:
    if equal is not None:
        yield f"\nequal tensors: {counted(len(equal), 'group')}, {size_text(_waste(equal))} more than needed"
        yield from (f"  {size_text(size):>7}  {', '.join(names)}" for names, size in equal[:top])
    if found.data_files:
        yield "\nexternal data"
        yield from table(_file_row(file) for file in found.data_files)
    yield from (f"  {problem}" for file in found.data_files for problem in _file_problems(file))
    yield from (f"  {problem}" for problem in found.problems)


def _waste(equal: list[tuple[list[str], int]]) -> int:
    return sum(size * (len(names) - 1) for names, size in equal)


def _file_row(file: DataFile) -> tuple[Any, ...]:
    size = "missing" if file.size is None else size_text(file.size)
    tensors = f"{file.tensors} tensor{'' if file.tensors == 1 else 's'}"
    covered, tail = f"{size_text(file.covered)} used", f"{file.tail:,} after the last"
    return file.name, size, tensors, covered, f"{counted(file.gaps, 'byte')} in gaps", tail


def _file_problems(file: DataFile) -> Iterator[str]:
    if file.size is None:
        yield f"{file.name} is missing: copy it beside the model"
    if file.overlaps:
        yield f"{file.name}: {_named(file.overlaps)} begin inside another tensor's bytes"
    if file.beyond:
        yield f"{file.name}: {_named(file.beyond)} reach past its end; is it complete?"


def _named(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
