"""What a comparison found, as an object, as text and as JSON."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import torch

import proto_schema as ps
from proto_schema.notebook import table
from purexport.comparison.closeness import TensorDifference
from purexport.comparison.differing import TORCH
from purexport.comparison.evidence import Evidence, Judged
from purexport.comparison.located import Blamed
from purexport.comparison.measures import Measures, numbers_table
from purexport.comparison.repro import write_levels, write_reproducer
from purexport.errors import ExportError

_MOST_LAYERS = 40
_MOST_ROWS = 20  # outputs in a notebook


@dataclass(frozen=True)
class Output:
    """An output of the file beside torch's result; `measures` is None where shapes differ."""

    name: str
    difference: TensorDifference
    measures: Measures | None = None


@dataclass
class Comparison:
    """Whether a file computes what the model does, and where not.

    `agrees` is about the outputs: each is within the bounds, or no node stands out and rounding explains the
    difference.  Then `explained` is how far they are apart, as a multiple of what they move where the inputs move by a
    unit in the last place; bounds that were given are kept.  `outputs` has each of them with its difference.  `other`
    is what the file was compared with: torch, or the first file.  `node` is the node to blame (None where the outputs
    agree), `node_name` and `op_type` its names.  `why` says in words what is wrong.  `at_fault` is one of

      file          the node is not what an export of this model writes, or not what torch computes
      rule          the file is what an export writes, and torch computes something else
      runtime       the runtime does not compute what the node says; our evaluator and torch agree against it
      disputed      the same without torch: the runtime and our evaluator differ
      optimization  the runtime computes what the nodes say, but not with its optimizations
      capture       the model computes something else than what was recorded of it
      ties          scores tie before a node that chooses by their order; either choice is right
      quantization  the node works with numbers in fewer bits
      rounding      no node stands out, and small differences add up

    `first_wrong` is the first value that differs, `call` torch's operator behind it, `source` the module and line of
    the model.  `judged` are the values inside that both have, in the order of the file; it is empty where the outputs
    agree and nobody asked for it.  `layers` is the largest error of each module, in the order of the file, relative to
    the largest element of torch's tensor.  `levels` are the last right and the first wrong level of optimization,
    `right` the outputs at the right one.
    """

    runtime: str
    other: str = TORCH
    outputs: list[Output] = field(default_factory=list)
    failure: str = ""
    explained: float | None = None
    values: int = 0
    node: ps.NodeProto | None = None
    at_fault: str = ""
    why: str = ""
    first_wrong: Judged | None = None
    call: str = ""
    source: str = ""
    layers: dict[str, float] = field(default_factory=dict)
    judged: list[Judged] = field(default_factory=list, repr=False)
    evidence: Evidence | None = field(default=None, repr=False)
    blamed: Blamed | None = field(default=None, repr=False)
    levels: tuple[str, ...] = ()
    right: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)

    @property
    def agrees(self) -> bool:
        """True where every output is within the bounds, or rounding explains it."""
        return not self.failure and (self.explained is not None or all(item.difference.close for item in self.outputs))

    def __bool__(self) -> bool:
        return self.agrees

    @property
    def node_name(self) -> str:
        """The name of the node to blame, of its first result where it has none; empty where nothing is wrong."""
        node = self.node
        return "" if node is None else node.name or next(iter(node.output), "")

    @property
    def op_type(self) -> str:
        """The operator of that node."""
        return "" if self.node is None else self.node.op_type or ""

    @property
    def cause(self) -> str:
        """What is at fault, in a line; empty where nothing is, or nothing was found."""
        if self.node is None:
            return self.why
        return f"{_FAULTS[self.at_fault]} {self.node_name!r} ({self.op_type}): {self.why}"

    @property
    def torchs(self) -> str:
        """torch's operator behind the first wrong value, with the module and line of the model."""
        return " at ".join(item for item in (self.call, self.source) if item)

    @property
    def reproducible(self) -> bool:
        """Whether `write_reproducer` has something to write."""
        return self.evidence is not None and (self.blamed is not None or bool(self.levels))

    def write_reproducer(self, folder: str | os.PathLike[str], overwrite: bool = False) -> list[str]:
        """Write the node at fault as a model of its own, with inputs, right results and a script; returns the paths.

        Where an optimization is at fault, it is the whole model, and the script runs it with and without it.  The
        folder is made if it is not there.  Raises ExportError where no node is at fault, FileExistsError for a folder
        that is not empty; `overwrite` replaces the files of these names there.
        """
        if self.evidence is not None and self.levels:
            return write_levels(self.evidence, self.levels, self.right, folder, overwrite)
        if self.evidence is None or self.blamed is None:
            raise ExportError(
                "there is nothing to reproduce: no node is at fault; compare a file that differs",
                code="nothing-at-fault",
            )
        return write_reproducer(self.evidence, self.blamed, self.first_wrong, folder, overwrite)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        first = self.first_wrong
        return {
            "agrees": self.agrees,
            "runtime": self.runtime,
            "compared_with": self.other,
            "failure": self.failure,
            "explained": self.explained,
            "outputs": [
                {"name": item.name, **_facts(item.difference), **_numbers(item.measures)} for item in self.outputs
            ],
            "compared_values": self.values,
            "node": self.node_name,
            "op_type": self.op_type,
            "at_fault": self.at_fault,
            "why": self.why,
            "first_wrong": None if first is None else {"name": first.name, **_facts(first.difference)},
            "call": self.call,
            "source": self.source,
            "layers": {name: _number(error) for name, error in self.layers.items()},
        }

    def as_text(self) -> str:
        """The report for people: the outputs, the node to blame, and how the error grows by module."""
        rows = [(item.name, item.measures) for item in self.outputs if item.measures is not None]
        return "\n".join([*self.summary(), *numbers_table(rows), *([] if self.agrees else self._growth())])

    def summary(self) -> list[str]:
        """The lines of the report without how the error grows."""
        if self.agrees:
            most = max((item.difference.error for item in self.outputs), default=0.0)
            count = f"{len(self.outputs):,} output{'' if len(self.outputs) == 1 else 's'}"
            said = f"the file agrees with {self.other} in {self.runtime}: {count}, largest relative error {most:.1e}"
            return [said, *self._explained()]
        lines = [f"the file cannot be run: {_indented(self.failure)}"] if self.failure else []
        lines += [
            f"output {item.name!r} is wrong in {self.runtime}: {item.difference.against(self.other)}"
            for item in self.outputs
            if not item.difference.close
        ]
        if self.why:
            lines.append(f"at fault: {_indented(self.cause)}")
        if self.first_wrong is not None:
            lines.append(
                f"  first wrong value: {self.first_wrong.name!r}, {self.first_wrong.difference.against(self.other)}"
            )
        if self.torchs:
            lines.append(f"  in torch: {self.torchs}")
        return lines

    def _explained(self) -> list[str]:
        """Outputs that are further apart than the bounds, and why that is no fault."""
        return [
            f"output {item.name!r} is within what rounding of the inputs explains, not within the tolerance: "
            f"{item.difference.against(self.other)}; an input that is a unit in the last place away moves them as far "
            f"(apart: {self.explained:.1f} times as much at most), and no node stands out"
            for item in self.outputs
            if not item.difference.close
        ]

    def _growth(self) -> list[str]:
        if len(self.layers) < 2:
            return []
        names = list(self.layers)
        shown = names if len(names) <= _MOST_LAYERS else [*names[: _MOST_LAYERS - 1], names[-1]]
        width = max(map(len, shown))
        rows = [f"  {name:<{width}}  {self.layers[name]:.1e}" for name in shown]
        if len(shown) < len(names):
            rows.insert(-1, f"  ... {len(names) - len(shown)} more")
        return [f"largest error by module, of the largest element ({len(names)} modules):", *rows]

    def __str__(self) -> str:
        return self.as_text()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def __repr__(self) -> str:
        lines = self.summary()
        fault = f"; at fault: {self.node_name!r} ({self.op_type})" if self.node is not None else ""
        return f"Comparison({lines[0] if lines else 'the file differs'}{fault})"

    def _repr_html_(self) -> str:
        """The outputs and the node to blame as a table, for notebooks."""
        verdict = "agrees with" if self.agrees else "differs from"
        rows = [("result", f"the file {verdict} {self.other} in {self.runtime}")]
        rows += [("failure", self.failure)] if self.failure else []
        ordered = sorted(self.outputs, key=lambda item: item.difference.close)
        rows += [("output", f"{item.name}: {_said(item.difference, self.other)}") for item in ordered[:_MOST_ROWS]]
        rows += [("outputs", f"{len(ordered) - _MOST_ROWS} more")] if len(ordered) > _MOST_ROWS else []
        facts = (("at fault", self.cause), ("in torch", self.torchs))
        return f"<b>Comparison</b>{table([*rows, *((title, text) for title, text in facts if text)])}"


_FAULTS = {
    "file": "node",
    "runtime": "the runtime, in node",
    "optimization": "an optimization of the runtime, around node",
    "rule": "what the export made, up to node",
    "disputed": "the runtime or our evaluator, in node",
    "ties": "neither side: ties before node",
    "quantization": "the quantization, most in node",
}


def _said(difference: TensorDifference, other: str) -> str:
    return f"relative error {difference.error:.1e}" if difference.close else difference.against(other)


def _indented(text: str) -> str:
    """A text of several lines, as those of a runtime are, below its first one."""
    return text.replace("\n", "\n    ")


def _numbers(found: Measures | None) -> dict[str, Any]:
    return {} if found is None else {name: _number(value) for name, value in found.as_dict().items()}


def _facts(difference: TensorDifference) -> dict[str, Any]:
    return {
        "close": difference.close,
        "error": _number(difference.error),
        "wrong": difference.wrong,
        "elements": difference.elements,
        "place": list(difference.place),
        "file": _number(difference.mine),
        "torch": _number(difference.theirs),
        "types": None if difference.odd is None else list(difference.odd),
    }


def _number(value: Any) -> Any:
    """JSON has no infinity and no NaN: they are texts."""
    if isinstance(value, float) and not torch.tensor(value).isfinite():
        return str(value)
    return value
