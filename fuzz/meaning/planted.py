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
from proto_schema import compose, ir, printer
from proto_schema.conversion import rows as conversion_rows
from proto_schema.external import datafiles
from proto_schema.graphs import subgraphs
from proto_schema.inference import rows as inference_rows
from proto_schema.inlining import engine as inlining
from proto_schema.quantization.codes import integers
from proto_schema.simplification import branches, engine, equal, merging, rules
from proto_schema.simplification.known import Known

MOST = 4000  # graphs until a fault counts as not found
FOUND = ("Violation", "CheckError")  # how findings begin; another exception is a fault of what is planted
Patch = Callable[[], "list[AbstractContextManager[Any]]"]


def _attribute(owner: Any, **replaced: Any) -> Patch:
    return lambda: [patch.object(owner, name, value) for name, value in replaced.items()]


def _entry(table: Any, key: Any, value: Any) -> Patch:
    return lambda: [patch.dict(table() if callable(table) else table, {key: value})]


def _rule(*row: Any, **more: Any) -> Patch:
    return lambda: [patch.object(engine, "RULES", (ps.rewrite.rule(*row, **more), *rules.RULES))]


# What stands for what -------------------------------------------------------------------------------------------------


def _counted_once(known: Known, node: ir.Node) -> ir.Node | None:
    """The fault of old: readers are counted once, and a value that stands for another one gets none."""
    value = node.input(0)
    kept = dict(value._uses) if value is not None else {}
    if value is not None and len(kept) > 1 and any(user is node for user, _ in kept):
        for use in [use for use in kept if use[0] is not node]:
            del value._uses[use]
    try:
        return MERGED(known, node)
    finally:
        if value is not None:
            value._uses.update((use, None) for use in kept if use[0] is not node)


def _without_outputs(self: Known, *arguments: Any) -> None:
    KNOWN(self, *arguments)
    self.outputs = set()


def _other_order(op: Any, x: Any, first: Any, second: Any) -> Any:
    if first is None or second is None or len(first) != len(second):
        return None
    return op.Transpose(x, perm=[second[axis] for axis in first])


def _same_dtype(one: ir.Value, other: ir.Value) -> bool:
    return one.dtype == other.dtype


def _without_mean(known: Known, node: ir.Node) -> ir.Node | None:
    made = MERGED(known, node)
    shift = made.input(2) if made is not None else None
    if shift is not None and shift.constant is not None:
        array = ps.numpy_helper.to_array(shift.constant)
        shift.tensor = ps.numpy_helper.from_array(array * 0, shift.name)
    return made


def _without_attributes(node: ir.Node) -> Any:
    return node.op_type, node.inputs, len(node.outputs)


def _also_defaults(value: ir.Value) -> ps.TensorProto | None:
    return value.tensor if isinstance(value.tensor, ps.TensorProto) else None


def _other_branch(known: Known, node: ir.Node) -> ir.Graph | None:
    chosen = CHOSEN(known, node)
    return None if chosen is None else next(body for body in node.bodies if body is not chosen)


MERGED, CHOSEN, KNOWN = merging.merged, branches._chosen, Known.__init__


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


def _transposes(op: Any, x: Any, first: Any, second: Any) -> Any:
    return op.Transpose(op.Transpose(x, perm=first), perm=second)


def _reshapes(op: Any, x: Any, a: Any, shape: Any, rest: Any, more: Any) -> Any:
    return op.Reshape(op.Reshape(x, a, **more), shape, **rest)


def _slice(op: Any, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    return op.Slice(x, starts, ends, axes, steps)


FAULTS: list[tuple[str, str, Patch]] = [
    ("readers are counted once, before aliases", "simplify", _attribute(engine, merged=_counted_once)),
    ("an output may go", "simplify", _attribute(Known, __init__=_without_outputs)),
    ("x + 0.0 is x", "simplify", _attribute(rules, math=SimpleNamespace(copysign=lambda *_: -1))),
    ("x - -0.0 is x", "simplify", _attribute(rules, math=SimpleNamespace(copysign=lambda *_: 1))),
    ("transposes join in the other order", "simplify", _rule(_transposes, _other_order, shared=True)),
    ("a 0 of the second of two reshapes", "simplify", _rule(_reshapes, rules._once, shared=True)),
    ("a slice backwards of all is all", "simplify", _rule(_slice, rules._first, rules._same)),
    ("the first is the largest", "simplify", _rule(lambda op, x, y: op.Max(x, y), rules._first, rules._same)),
    ("a shape is not compared", "simplify", _attribute(rules, same_type=_same_dtype)),
    ("a normalization loses its shift", "simplify", _attribute(engine, merged=_without_mean)),
    ("the output axis of ConvTranspose", "simplify", _attribute(merging, _OUTPUT_AXIS={"Conv": 0, "ConvTranspose": 0})),
    ("equal nodes with other attributes", "simplify", _attribute(equal, _key=_without_attributes)),
    ("a default of an input is a constant", "simplify", _attribute(ir.Value, constant=property(_also_defaults))),
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
