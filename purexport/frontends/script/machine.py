"""The machine runs a script's nodes: it reads the operands, calls a handler from the tables, and stores the result.

Invariant: it knows no operator by name.  `registry.FORMS`, in their order, decide the meaning of a node: the first form
counts that applies to the operands and has a handler for the node's kind.  A node without a handler is recorded by its
schema, or refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from purexport.aten.graph import AtenValue, Frame, Source
from purexport.errors import ExportError
from purexport.frontends.core.frames import traced_frames
from purexport.frontends.script.attributes import Attributes
from purexport.frontends.script.by_schema import record_by_schema
from purexport.frontends.script.recorder import ScriptRecorder
from purexport.frontends.script.registry import ANY, FORMS, Form, Handlers, ScriptNode
from purexport.shapes.fakes import FakeMachine

MOST_STEPS = 100_000
MOST_COPIES = 64  # of a loop's body for one run of the loop
_MOST_COPIES_IN_ALL = 1024  # of a loop that stands in other loops
_FRAME = re.compile(r'^\s*File "(.*)", line (\d+)', re.MULTILINE)


class LongLoop(Exception):  # noqa: N818  it is a finding, after which the interpretation starts anew
    """A loop of known steps has too many of them to be unrolled; `key` tells it from other loops."""

    def __init__(self, key: int) -> None:
        self.key = key


class Machine(ScriptRecorder):
    """One interpretation of the TorchScript graph `script`, whose nodes live as long as it does.

    `kept` are the keys of the loops that stay loops although their steps are known; None unrolls all of them.
    """

    def __init__(self, script: Any, shapes: FakeMachine, handlers: Handlers, kept: frozenset[int] | None) -> None:
        super().__init__(shapes)
        self.attributes = Attributes(self)
        self.kept = kept
        self._copies: Counter[int] = Counter()
        self._script = script
        self._handlers = handlers
        self._steps = 0

    def run_block(self, block: Any, items: Sequence[Any]) -> list[Any]:
        """The results of a block of nodes, or of the whole graph, on its inputs.

        Raises ExportError where a node has no form in ONNX, or after too many steps.
        """
        for value, item in zip(block.inputs(), items, strict=True):
            self.state.env[value.unique()] = item
        for node in block.nodes():
            self._run_node(node)
        return [self.state.env[value.unique()] for value in block.outputs()]

    def count_copy(self, loop: int, step: int) -> None:
        """Note that the body of a loop is unrolled once more.  Raises LongLoop where the loop should stay one."""
        self._copies[loop] += 1
        if self.kept is not None and (step >= MOST_COPIES or self._copies[loop] > _MOST_COPIES_IN_ALL):
            raise LongLoop(loop)

    def _run_node(self, node: Any) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise ExportError(
                f"the script takes more than {MOST_STEPS} steps at export, at {self.place(node)}",
                code="script-too-long",
            )
        kind = node.kind()
        operands = [self.state.env[value.unique()] for value in node.inputs()]
        handler = self._handlers.find(ANY, kind)
        if handler is not None:
            result = handler(self, ScriptNode(kind, self.place(node), node), *operands)
        else:
            result = self._operate(ScriptNode(kind, self.place(node, operands), node), operands)
        self._store(node, result)

    def _operate(self, node: ScriptNode, operands: list[Any]) -> Any:
        """The result of an operator, by the first form that takes it, else by its schema."""
        for form in FORMS:
            result = self._apply(form, node, operands)
            if result is not NotImplemented:
                return result
        return record_by_schema(self, node, operands)

    def _apply(self, form: Form, node: ScriptNode, operands: Sequence[Any]) -> Any:
        """The result of a form's handler; NotImplemented where there is none, or where it does not take the operands.

        Raises ExportError where the form refuses operators without a handler.
        """
        handler = self._handlers.find(form, node.kind)
        if (handler is None and form.refusal is None) or not form.applies(operands):
            return NotImplemented
        result = NotImplemented if handler is None else handler(self, node, *operands)
        if result is NotImplemented and form.refusal is not None:
            raise form.refusal(node, operands)
        return result

    def _store(self, node: Any, result: Any) -> None:
        """Bind a node's outputs; lists and dicts that the node made belong to the current body."""
        count = node.outputsSize()
        results = [] if not count else [result] if count == 1 else result
        for value, item in zip(node.outputs(), results, strict=True):
            self.state.env[value.unique()] = self.own(item) if type(item) in (list, dict) else item

    def place(self, node: Any, operands: Sequence[Any] = ()) -> Source:
        """The place of a node: its line, and its module, which is the owner of a parameter among the operands."""
        path = node.scopeName().rpartition("/")[2].removeprefix("__module.")
        scope = "" if path in ("(root)", "__module") else path
        scope = scope or next((self.owner(item) for item in operands if self.owner(item)), "")
        script = self._script  # the node lives as long as its graph

        def frames() -> Iterable[Frame]:
            assert script is not None
            place = node.sourceRange()  # of a trace that calls scripts, either form
            return [(path, int(line)) for path, line in reversed(_FRAME.findall(place))] or traced_frames(place)

        return Source(scope, frames)

    def owner(self, item: Any) -> str:
        """The path of the module that a parameter belongs to; empty for anything else."""
        return self.owners.get(item, "") if isinstance(item, AtenValue) else ""
