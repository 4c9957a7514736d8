"""Faults that the harness must find: `python -m fuzz.meaning.planted` plants each and says after how many graphs.

A row has a name, the tool that is at fault, and what is replaced by what for a while. The graphs of a row are the same
in each run. The status is 1 where a fault is not found.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import proto_schema as ps
from fuzz.engine import outcome
from fuzz.meaning.harness import HARNESS
from fuzz.meaning.tools import TOOLS
from proto_schema import compose, datafiles, printer
from proto_schema.budget import Budget
from proto_schema.conversion import rows as conversion_rows
from proto_schema.graphs import subgraphs
from proto_schema.inference import rows as inference_rows
from proto_schema.inlining import engine as inlining
from proto_schema.quantization import integers
from proto_schema.simplification import branches, engine, merging, rewrites
from proto_schema.simplification.draft import Draft

MOST = 4000  # graphs until a fault counts as not found
FOUND = ("Violation", "CheckError")  # how findings begin; another exception is a fault of what is planted
Patch = Callable[[], "list[AbstractContextManager[Any]]"]


def _attribute(owner: Any, **replaced: Any) -> Patch:
    return lambda: [patch.object(owner, name, value) for name, value in replaced.items()]


def _entry(table: Any, key: Any, value: Any) -> Patch:
    return lambda: [patch.dict(table() if callable(table) else table, {key: value})]


def _rewrite(name: str, row: Any) -> Patch:
    return lambda: [patch.object(engine, "REWRITES", {**rewrites.REWRITES, name: row})]


# What stands for what -------------------------------------------------------------------------------------------------


def _only_alias(draft: Draft, name: str, by: str) -> None:
    """The fault of old: uses are counted once, and go stale when a node becomes an alias."""
    draft.alias[name] = draft.now(by)


def _unchanged(*_: Any) -> None:
    """No count changes."""


def _other_order(draft: Draft, node: ps.NodeProto) -> Any:
    inner = draft.makers.get(node.input[0])
    if inner is None or inner.op_type != "Transpose":
        return None
    first, second = rewrites._perm(draft, inner), rewrites._perm(draft, node)
    if first is None or second is None or len(first) != len(second):
        return None
    return rewrites._like(node, [inner.input[0]], {"perm": [second[axis] for axis in first]})


def _reshaped_at_once(draft: Draft, node: ps.NodeProto) -> Any:
    inner = draft.makers.get(node.input[0])
    wanted = draft.array(node.input[1])
    if inner is None or inner.op_type not in ("Reshape", "Flatten", "Unsqueeze") or wanted is None:
        return None
    return rewrites._like(node, [inner.input[0], node.input[1]], None)


def _same_dtype(self: Draft, one: str, other: str) -> bool:
    return self.dtype(one) == self.dtype(other)


def _without_mean(draft: Draft, node: ps.NodeProto) -> ps.NodeProto | None:
    made = MERGED(draft, node)
    if made is not None and made.input[2]:
        draft.set_constant(made.input[2], draft.array(made.input[2]) * 0)
    return made


def _without_attributes(self: Any, node: ps.NodeProto) -> ps.NodeProto | None:
    if any(item.g is not None for item in node.attribute):
        return None
    plain = copy.copy(node)
    plain.attribute = []
    return EQUAL(self, plain)


def _also_defaults(self: Draft, model: ps.ModelProto, limit: int, budget: Budget) -> None:
    DRAFT(self, model, limit, budget)
    self.constants.update((item.name or "", item) for item in self.graph.initializer)


def _other_branch(draft: Draft, node: ps.NodeProto) -> ps.GraphProto | None:
    chosen = CHOSEN(draft, node)
    return None if chosen is None else next(item.g for item in node.attribute if item.g is not chosen)


MERGED, EQUAL, DRAFT, CHOSEN = merging.merged, engine._Round._equal, Draft.__init__, branches._chosen


# Names ----------------------------------------------------------------------------------------------------------------


def _own_inputs(node: ps.NodeProto) -> Iterator[str]:
    return iter(name for name in node.input if name)


class _Careless:
    """Names that may be there already."""

    def __init__(self, *_: Any) -> None:
        pass

    def __call__(self, wanted: str) -> str:
        return wanted.partition("__")[0]


def _rotated(graph: ps.GraphProto, source: dict[str, str]) -> Iterator[ps.NodeProto]:
    values = list(source.values())
    return CONNECTED(graph, dict(zip(source, values[1:] + values[:1], strict=True)))


CONNECTED = compose._connected


def _without_defaults(nodes: list[ps.NodeProto], call: ps.NodeProto, function: ps.FunctionProto) -> None:
    plain = copy.copy(function)
    plain.attribute_proto = []
    BIND(nodes, call, plain)


BIND = inlining.bind


# Versions, sizes, bytes -----------------------------------------------------------------------------------------------


def _stays(node: Any, op: Any) -> None:
    """The node is left as it is, although its meaning changed."""


def _doubled(node: Any, op: Any) -> Any:
    return op.Mul(node[0], op.Mul(node[0], op.HardSigmoid(node[0], alpha=1 / 6, beta=0.5)))


def _first_shape(site: Any) -> Any:
    return site.out(site.shape(0))


def _ascending(site: Any) -> Any:
    shape = site.shape(0)
    return site.out(None if shape is None else tuple(shape))


def _at_half(self: datafiles.DataFile, data: Any, alignment: int) -> int:
    offset = ADD(self, data, alignment)
    return offset if len(self.payloads) < 3 else self.payloads[-2][0]


ADD = datafiles.DataFile.add


def _by_size(data: Any) -> object:
    return datafiles.nbytes(data)


def _next_code(values: Any, *rest: Any) -> Any:
    found = ENCODED(values, *rest)
    return found + found.dtype.type(1)


ENCODED = integers.encoded

FAULTS: list[tuple[str, str, Patch]] = [
    (
        "readers are counted once, before aliases",
        "simplify",
        _attribute(Draft, replace=_only_alias, drop=_unchanged, take=_unchanged),
    ),
    ("a body's value may go", "simplify", _attribute(Draft, may_go=lambda self, name: name not in self.outputs)),
    ("an output may go", "simplify", _attribute(Draft, may_go=lambda self, name: name not in self.captured)),
    ("x + 0.0 is x", "simplify", _attribute(rewrites, math=SimpleNamespace(copysign=lambda *_: -1))),
    ("x - -0.0 is x", "simplify", _attribute(rewrites, math=SimpleNamespace(copysign=lambda *_: 1))),
    ("transposes join in the other order", "simplify", _rewrite("Transpose", _other_order)),
    ("a 0 of the second of two reshapes", "simplify", _rewrite("Reshape", _reshaped_at_once)),
    ("a slice backwards of all is all", "simplify", _rewrite("Slice", rewrites._same_shape)),
    ("a Dropout whose mask is read", "simplify", _rewrite("Dropout", lambda draft, node: node.input[0])),
    ("the first is the largest", "simplify", _rewrite("Max", lambda draft, node: node.input[0])),
    ("a shape is not compared", "simplify", _attribute(Draft, same_type=_same_dtype)),
    ("a normalization loses its shift", "simplify", _attribute(engine, merged=_without_mean)),
    ("the output axis of ConvTranspose", "simplify", _attribute(merging, _OUTPUT_AXIS={"Conv": 0, "ConvTranspose": 0})),
    ("equal nodes with other attributes", "simplify", _attribute(engine._Round, _equal=_without_attributes)),
    ("a default of an input is a constant", "simplify", _attribute(Draft, __init__=_also_defaults)),
    ("the branch that does not run", "simplify", _attribute(branches, _chosen=_other_branch)),
    ("a body's outer values in a part", "extract and merge", _attribute(subgraphs, free_names=_own_inputs)),
    ("joined values in another order", "extract and merge", _attribute(compose, _connected=_rotated)),
    ("two calls with the same names", "inline", _attribute(ps.inliner, Unique=_Careless)),
    ("a default of a function's attribute", "inline", _attribute(inlining, bind=_without_defaults)),
    ("names in bodies keep their prefix off", "prefix", _attribute(ps.graphs.names, bodies=lambda node: iter(()))),
    ("Softmax before 13 sums a matrix", "convert", _entry(conversion_rows.table, ("", "Softmax", 13, False), _stays)),
    ("another HardSwish", "convert", _entry(conversion_rows.table, ("", "HardSwish", 14, False), _doubled)),
    ("sizes of a sum are those of the first", "infer", _entry(inference_rows.table, ("", "Add"), _first_shape)),
    ("sizes of what is turned", "infer", _entry(inference_rows.table, ("", "Transpose"), _ascending)),
    ("two tensors at one offset", "save", _attribute(datafiles.DataFile, add=_at_half)),
    ("payloads of one size are the same", "save", _attribute(datafiles, identity=_by_size)),
    ("codes that are one off", "quantize", lambda: [patch(f"{integers.__name__}.encoded", _next_code)]),
    ("zeros have no sign as text", "text", _attribute(printer, _float=lambda value: f"{abs(float(value))!r}")),
]  # fmt: skip
"""Name, tool, and the fault; the first is one that `simplify` had."""


def inputs(tool: str, seed: int = 0) -> Iterator[bytes]:
    """Random graphs for one tool."""
    place = list(TOOLS).index(tool)
    rng = Random(f"{tool}:{seed}")
    for _ in range(MOST):
        yield bytes([place, 0]) + rng.randbytes(1200)


def found(tool: str, planted: Patch, most: int = MOST) -> tuple[int, str]:
    """After how many graphs the harness finds the fault, and as what; (0, "") where it does not."""
    for count, data in enumerate(inputs(tool), 1):
        if count > most:
            break
        with ExitStack() as stack:
            for item in planted():
                stack.enter_context(item)
            broken = outcome(HARNESS, data)[1]
        if broken.startswith(FOUND) and not outcome(HARNESS, data)[1]:  # it holds without the fault
            return count, broken
    return 0, ""


def main() -> int:
    """Plant all, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="faults whose name has this text")
    asked = parser.parse_args()
    missed = 0
    print("| fault | tool | graphs | found as |\n|---|---|---|---|")
    for name, tool, planted in FAULTS:
        if asked.only and asked.only not in name:
            continue
        count, broken = found(tool, planted)
        missed += not count
        print(f"| {name} | {tool} | {count or 'not found'} | {broken.replace('|', ' ')[:110]} |", flush=True)
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
