"""What an export did, for people and for programs: the file, its dynamic axes, whether it was verified, the remarks.

The short text has at most ten lines, so that a person reads all of it.  It never hides that something was left out:
a line then ends in how many more there are, and `as_text(rules=True)` has all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from typing import Any

import proto_schema as ps
from proto_schema.notebook import table
from proto_schema.units import counted, size_text
from proto_schema.wire.records import dataclass

_MOST_LINES = 2  # of each kind of axes
_MOST_NAMES = 3  # in one line
_MOST_WARNINGS = 3
_MOST_CHARACTERS = 200
AS_EXAMPLE = "as in the example"  # why an axis is static that nobody asked to vary
_ALL = "as_text(rules=True) has all"


@dataclass(repr=False)
class Report:
    """What an export did: the route and its reason, the rules that ran, the calls decomposed by torch, the remarks.

    `dynamic` has the names of the axes that vary, by input, and `static` the sizes of the others with the reasons,
    which an export with `dynamic=True` finds out.  `nodes` and `size` (in bytes, with the weights) are those of the
    file.  `verified` says on what the file was compared with the model; it is empty where it was not.
    """

    route: str = ""
    reason: str = ""
    opset: int = 0
    rules: list[str] = field(default_factory=list)
    decomposed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dynamic: dict[str, dict[int, str]] = field(default_factory=dict)
    static: dict[str, dict[int, str]] = field(default_factory=dict)
    nodes: int = 0
    size: int = 0
    verified: str = ""

    def measure(self, model: ps.ModelProto) -> None:
        """Take the number of nodes and the size of a file, which replace those of an earlier one."""
        self.nodes, self.size = len(model.graph.node), model.ByteSize()

    def as_dict(self) -> dict[str, Any]:
        """The report as a dict that JSON can represent."""
        return asdict(self)

    def as_text(self, rules: bool = False) -> str:
        """The report as text for people, in at most ten lines; with `rules` all of it, and the rules that ran."""
        return "\n".join(f"{kind}: {said}" for kind, said in self._facts(rules))

    def __str__(self) -> str:
        return self.as_text()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def __repr__(self) -> str:
        warned = f", {counted(len(self.warnings), 'warning')}" if self.warnings else ""
        checked = "verified" if self.verified else "not verified"
        return f"Report({self.route}, {self._file()}, {checked}{warned})"

    def _repr_html_(self) -> str:
        """The short text as a table, for notebooks."""
        return table(self._facts(rules=False))

    def _facts(self, rules: bool) -> list[tuple[str, str]]:
        found = [("route", f"{self.route} ({self.reason if rules else _cut(self.reason)})"), ("file", self._file())]
        if rules:
            found.append(("rules", ", ".join(self.rules)))
            found += [("decomposed by torch", ", ".join(self.decomposed))] if self.decomposed else []
            found += [("dynamic", line) for line in _by_axis(self.dynamic)]
            found += [("static", line) for line in [*_by_axis(self._held()), *self._others()]]
        else:
            found += [("dynamic", line) for line in _shortened(_by_names(self.dynamic))]
            static = [*(_cut(line) for line in _by_names(_one_by_one(self._held()))), *self._others()]
            found += [("static", line) for line in _shortened(static)]
        found.append(("verified", self.verified or "no (verify=True compares the file with the model)"))
        if rules:
            return found + [("warning", remark) for remark in self.warnings]
        shown = self.warnings[:_MOST_WARNINGS]
        left = len(self.warnings) - len(shown)
        more = f" ... and {left} more; {_ALL}" if left else ""
        return found + [("warning", _cut(remark) + (more if remark is shown[-1] else "")) for remark in shown]

    def _file(self) -> str:
        return f"opset {self.opset}, {counted(self.nodes, 'node')}, {size_text(self.size)}"

    def _held(self) -> dict[str, dict[int, str]]:
        """The static axes of which more is known than that nobody asked for them to vary."""
        return {
            name: {axis: what for axis, what in found.items() if not what.endswith(f": {AS_EXAMPLE}")}
            for name, found in self.static.items()
        }

    def _others(self) -> list[str]:
        """A line for the axes that nobody asked to vary, if there are any."""
        if all(self._held()[name] == found for name, found in self.static.items()):
            return []
        if self.dynamic:
            return ["the other axes have the sizes of the example"]
        return ["all axes have the sizes of the example (dynamic=True lets vary what can)"]


def _by_axis(axes: Mapping[str, Mapping[int, str]]) -> Iterable[str]:
    return (f"{name} axis {axis} is {what}" for name, found in axes.items() for axis, what in found.items())


def _by_names(axes: Mapping[str, Mapping[int, str]] | Iterable[tuple[str, Mapping[int, str]]]) -> list[str]:
    """Inputs with the same axes in one line, as caches have them: `a, b and 62 more: axis 0 is batch`."""
    groups: dict[str, list[str]] = {}
    for name, found in axes.items() if isinstance(axes, Mapping) else axes:
        groups.setdefault(", ".join(f"axis {axis} is {what}" for axis, what in found.items()), []).append(name)
    return [f"{_names(names)} {said}" for said, names in groups.items() if said]


def _one_by_one(axes: Mapping[str, Mapping[int, str]]) -> list[tuple[str, Mapping[int, str]]]:
    return [(name, {axis: what}) for name, found in axes.items() for axis, what in found.items()]


def _names(names: list[str]) -> str:
    left = len(names) - _MOST_NAMES
    return ", ".join(names) if left <= 0 else f"{', '.join(names[:_MOST_NAMES])} and {left} more:"


def _shortened(lines: list[str]) -> list[str]:
    left = len(lines) - _MOST_LINES
    if left <= 0:
        return lines
    return [*lines[: _MOST_LINES - 1], f"{lines[_MOST_LINES - 1]} ... and {left} more; {_ALL}"]


def _cut(text: str) -> str:
    """The first line of a text, and not too much of it."""
    first, newline, _ = text.partition("\n")
    short = first[:_MOST_CHARACTERS]
    return short + " ..." if newline or len(short) < len(first) else short
