"""Two models side by side as one page: their graphs, what differs in the color of how, and a list that jumps there.

The page is made as that of `html`: the structure of both files is one block of data, and no name in it can be markup.
It is bounded: of many differences the first are listed, and each text is cut.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from proto_schema.files.commit import replacing
from proto_schema.files.owned import files_of
from purexport.inspect.compare import Difference
from purexport.inspect.elements import Bytes
from purexport.inspect.filling import DRAWING, Structure, packed, parts, schema
from purexport.version import VERSION

MOST = 5000
"""Differences that a page lists."""

_LETTERS = 1000  # of a path or text
_SCRIPTS = (*DRAWING, "diff_side.js", "diff.js")


@dataclass(frozen=True)
class DiffPage:
    """What was written: its size, how many differences it lists, and how many there are more."""

    file: str
    bytes: int
    listed: int
    left_out: int


def diff_page(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    found: Sequence[Difference],
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
) -> DiffPage:
    """Writes the page of two models and of the differences that `compare_files` found.

    A page that purexport made may be replaced, any other file with `overwrite`, but not the models or their data.
    Raises OSError if a file cannot be read or the page cannot be written.
    """
    paths, target = (os.fspath(a), os.fspath(b)), os.fspath(target)
    sides = []
    for path in paths:
        side = Structure(Bytes(path))
        side.take(side.source.whole())
        sides.append(side)
    names = [os.path.basename(path) for path in paths]
    if names[0] == names[1]:
        names = list(paths)
    facts = {
        "sides": [{"file": name, **side.facts()} for name, side in zip(names, sides, strict=True)],
        "differences": [_row(item) for item in found[:MOST]],
        "total": len(found),
        "made_by": f"purexport {VERSION}",
        **schema(sides[0].source.root),
    }
    with replacing(target, "page", [file for path in paths for file in files_of(path)], overwrite) as file:
        pieces = parts("diff.html", _SCRIPTS, f"{names[0]}, {names[1]}", packed(facts, sides))
        size = sum(map(len, pieces))
        file.write(pieces, size)
    return DiffPage(target, size, min(len(found), MOST), max(0, len(found) - MOST))


def _row(item: Difference) -> list[str]:
    return [text[:_LETTERS] for text in (item.kind, item.path, item.text, item.at_a, item.at_b)]
