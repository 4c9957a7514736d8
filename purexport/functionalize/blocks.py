"""In-place writes inside branches and loops.

If a branch writes to a storage from outside, the `prim::If` gets a further output.  If a loop writes to one, the
`prim::Loop` carries it.  Afterwards that output is the storage's base, and every view of it is computed again.

A carried variable that is the same tensor before and after each step (`x.add_(1)`) stays that tensor.  Any other
carried variable may be one of several tensors, and so may the result of a branch.  It is not known which of them it
aliases, so a write that would show the difference is refused.

The body of a loop is read again and again until a reading finds nothing new: no further storage that is written, and no
further variable that becomes another tensor.

A `prim::Scan` writes to nothing from outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

from proto_schema.wire.records import dataclass
from purexport.aten.graph import AtenGraph, AtenValue, Block, Call, TensorType, map_values, values_in
from purexport.functionalize.storages import Alias, Journal, WrittenStorages


class Reading(Protocol):
    """The pass that reads the calls of a body: see `graph.Pass`."""

    calls: list[Call]
    aliases: dict[AtenValue, Alias]
    doubtful: list[tuple[Alias, Alias, str]]
    fillers: set[AtenValue]
    journal: Journal

    def run_calls(self, calls: Sequence[Call]) -> None:
        """Read calls and emit the pure ones."""
        ...

    def read(self, value: AtenValue) -> AtenValue:
        """The current content of a value."""
        ...

    def new(self, value: AtenValue) -> Alias:
        """The alias of a value that shares nothing."""
        ...

    def write(self, alias: Alias, new: AtenValue, call: Call) -> None:
        """`call` makes `new` the content of `alias`."""
        ...


class Order:
    """The position of every call, calls in bodies included, and the position of the last use of each value.

    A value from outside that a loop uses counts as used until the loop ends.
    """

    def __init__(self, graph: AtenGraph) -> None:
        self.positions: dict[Call, int] = {}
        self.last_use: dict[AtenValue, int] = {}
        self._calls(graph.calls)
        self._use(graph.outputs)

    def _calls(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self.positions[call] = len(self.positions)
            self._use(call.args.values())
            for block in call.blocks:
                self._calls(block.calls)
                self._use(block.outputs)
                if call.target != "prim::If":
                    self.last_use.update(dict.fromkeys(block.outer(), len(self.positions)))

    def _use(self, args: Any) -> None:
        self.last_use.update(dict.fromkeys(values_in(args), len(self.positions)))


def control(run: Reading, call: Call, args: dict[str, Any]) -> None:
    """Read `prim::If`, `prim::Loop` or `prim::Scan`; `args` are its arguments with their current values."""
    {"prim::If": _branch, "prim::Loop": _loop, "prim::Scan": _scan}[call.target](run, call, args)


@dataclass
class _Body:
    """A body after reading: its pure form, and the outer storages that it wrote.

    `aliases` are those of its outputs: None for a number, and for a filler, a tensor that is never read.
    """

    block: Block
    aliases: list[Alias | None]
    written: WrittenStorages = field(default_factory=WrittenStorages)


def _read(run: Reading, block: Block, carried: Mapping[Alias, AtenValue]) -> _Body:
    """Read a body; `carried` gives the outer storages that have a new value at each step."""
    outer, run.calls = run.calls, []
    try:
        with run.journal.body() as written:
            for root, value in carried.items():
                run.journal.set(root, value, root.version + 1)
            run.run_calls(block.calls)
            aliases = [_alias(run, item) for item in block.outputs]
            outputs = [map_values(item, run.read) for item in block.outputs]
        return _Body(Block(run.calls, outputs, list(block.inputs)), aliases, written)
    finally:
        run.calls = outer


def _alias(run: Reading, item: Any) -> Alias | None:
    if not isinstance(item, AtenValue) or item in run.fillers or not isinstance(item.type, TensorType):
        return None
    return run.aliases.get(item)


def _branch(run: Reading, call: Call, args: dict[str, Any]) -> None:
    bodies = [_read(run, block, {}) for block in call.blocks]
    roots = list(dict.fromkeys(root for body in bodies for root in body.written.values))
    written = [[body.written.values.get(root, root.current) for root in roots] for body in bodies]
    after = [AtenValue(root.current.type) for root in roots]
    blocks = [
        replace(body.block, outputs=[*body.block.outputs, *more]) for body, more in zip(bodies, written, strict=True)
    ]
    run.calls.append(Call(call.target, args, [*call.outputs, *after], call.source, blocks))
    for root, value in zip(roots, after, strict=True):
        run.write(root, value, call)
    pairs = zip(*(body.aliases for body in bodies), strict=True)
    _outputs(run, call, [[item for item in pair if item is not None] for pair in pairs])


def _outputs(run: Reading, call: Call, sources: Sequence[Sequence[Alias]]) -> None:
    """Make aliases for the outputs of a call; `sources` are the tensors that each output may be."""
    made: list[tuple[Alias, set[Alias]]] = []
    for value, found in zip(call.outputs, sources, strict=True):
        if not isinstance(value.type, TensorType):
            continue
        if found and found[0].depth <= run.journal.depth and all(other is found[0] for other in found):
            run.aliases[value] = found[0]
            continue
        alias = run.aliases[value] = run.new(value)
        roots = {item.root for item in found}
        run.doubtful += [(root, alias, _doubt(call)) for root in roots if root.depth <= run.journal.depth]
        run.doubtful += [(other, alias, _doubt(call)) for other, theirs in made if theirs & roots]
        made.append((alias, roots))


def _doubt(call: Call) -> str:
    what = "branch" if call.target == "prim::If" else "loop"
    return (
        f"the {what} at {call.source} may or may not have given another name to; call .clone() on what comes out of "
        f"the {what}, or on what goes in"
    )


def _scan(run: Reading, call: Call, args: dict[str, Any]) -> None:
    """Its body writes to what it made itself, and to nothing else (`frontends.core.rolled`, and torch's own scan)."""
    (block,) = call.blocks
    for value in block.inputs:
        run.aliases[value] = Alias(value, depth=run.journal.depth + 1)
    body = _read(run, block, {})
    assert not body.written.values, "a scan writes to its own tensors only"
    run.calls.append(Call(call.target, args, call.outputs, call.source, [body.block]))
    _outputs(run, call, [[] for _ in call.outputs])


@dataclass
class _Variable:
    """One carried variable.  It is `same` until a reading shows that it becomes another tensor."""

    start: Any
    inner: AtenValue
    result: Any
    after: AtenValue
    outer: Alias | None
    same: bool


def _loop(run: Reading, call: Call, args: dict[str, Any]) -> None:
    (block,) = call.blocks
    step, *inner = block.inputs
    columns = zip(call.args["carried"], inner, block.outputs[1:], call.outputs, strict=True)
    variables = [_Variable(*column, *_start(run, column[0], column[1])) for column in columns]
    carried: dict[Alias, AtenValue] = {}
    edges: set[tuple[Alias | int, int]] = set()
    while True:
        marked = len(run.doubtful)
        _enter(run, variables, edges, call)
        body = _read(run, block, carried)
        if not _learn(run, variables, body, carried, edges):
            break
        del run.doubtful[marked:]
    kept = [index for index, item in enumerate(variables) if not item.same]
    ends = [body.block.outputs[0], *(body.block.outputs[1 + index] for index in kept)]
    ends += [body.written.values[root] for root in carried]
    pure = Block(body.block.calls, ends, [step, *(variables[index].inner for index in kept), *carried.values()])
    start = [map_values(variables[index].start, run.read) for index in kept] + [root.current for root in carried]
    after = [AtenValue(root.current.type) for root in carried]
    outputs = [*(variables[index].after for index in kept), *after]
    run.calls.append(Call(call.target, {**args, "carried": start}, outputs, call.source, [pure]))
    for root, value in zip(carried, after, strict=True):
        run.write(root, value, call)
    found_at_end = zip(variables, body.aliases[1:], strict=True)
    either = [(item.outer, None if item.same else found) for item, found in found_at_end]
    _outputs(run, call, [[alias for alias in pair if alias is not None] for pair in either])


def _start(run: Reading, start: Any, inner: AtenValue) -> tuple[Alias | None, bool]:
    alias = _alias(run, start) if isinstance(inner.type, TensorType) else None
    return alias, alias is not None


def _enter(run: Reading, variables: Sequence[_Variable], edges: set[tuple[Alias | int, int]], call: Call) -> None:
    """Make aliases for the variables at the start of a step."""
    for item in variables:
        if item.same and item.outer is not None:
            run.aliases[item.inner] = item.outer
        elif isinstance(item.inner.type, TensorType):
            alias = run.aliases[item.inner] = Alias(item.inner, depth=run.journal.depth + 1)
            if item.outer is not None:
                run.doubtful.append((item.outer, alias, _doubt(call)))
    for source, index in edges:
        other = run.aliases[variables[source].inner] if isinstance(source, int) else source
        run.doubtful.append((other, run.aliases[variables[index].inner], _doubt(call)))


def _learn(
    run: Reading,
    variables: Sequence[_Variable],
    body: _Body,
    carried: dict[Alias, AtenValue],
    edges: set[tuple[Alias | int, int]],
) -> bool:
    """Note what a reading of the body showed; True when it showed something new and the body must be read again."""
    before = len(carried), len(edges), sum(item.same for item in variables)
    for root in body.written.values:
        carried.setdefault(root, AtenValue(root.current.type))
    for item, found in zip(variables, body.aliases[1:], strict=True):
        item.same = item.same and found is item.outer
    edges.update(_shared(run, variables, body))
    return before != (len(carried), len(edges), sum(item.same for item in variables))


def _shared(run: Reading, variables: Sequence[_Variable], body: _Body) -> Iterator[tuple[Alias | int, int]]:
    """Which variables may alias a tensor from outside, or each other, at the next step."""
    roots = [found.root if found is not None else None for found in body.aliases[1:]]
    inner = {id(run.aliases[item.inner]): index for index, item in enumerate(variables) if item.inner in run.aliases}
    for index, root in enumerate(roots):
        if root is None or variables[index].same:
            continue
        if root.depth <= run.journal.depth:
            yield root, index
        elif id(root) in inner and inner[id(root)] != index:
            yield inner[id(root)], index
        yield from ((other, index) for other in range(index) if roots[other] is root and not variables[other].same)
