"""Where handlers are declared: `@handles("aten::append", on=DYNAMIC)` on a function `f(machine, node, *operands)`.

A handler returns the outputs of its node, which are plain Python objects and values of the graph: one item, a list of
items where the node has several outputs, or None where it has none.  It is selected by the kind of the node and by the
form of its operands.  For example, the same operator means Python's own `append` for a list of known length, and a call
in the graph for a list whose length is known only at run time.  A handler that does not support the operands returns
NotImplemented, and the next form that applies is tried.  In the end the operator is recorded by its schema
(`by_schema`).

Each file of `operators/` has a table, `handles = Handlers()`, and `handlers` combines all tables.  To support a further
operator, write one handler into the file of its theme, and a row in tests/frontends/script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from purexport.aten.graph import AtenValue, Source
from purexport.errors import ExportError
from purexport.frontends.script.values import ComputedText, Maybe, ScriptList, holds_value

Handler = Callable[..., Any]
Function = TypeVar("Function", bound=Handler)


@dataclass(frozen=True)
class ScriptNode:
    """A node of TorchScript: its kind (`aten::append`, without overload), its place, and torch's own object."""

    kind: str
    source: Source
    torch: Any

    @property
    def type(self) -> str:
        """The type of the only output as TorchScript writes it; empty where the node has several outputs or none."""
        return str(self.torch.output().type()) if self.torch.outputsSize() == 1 else ""

    @staticmethod
    def packed(results: Sequence[Any]) -> Any:
        """The result that a handler returns for these outputs of its node."""
        return results[0] if len(results) == 1 else results


@dataclass(frozen=True)
class Form:
    """A form of a node's operands for which operators have a meaning of their own.

    `refusal` makes the error for an operator without a handler for the form.  Without it the next form is tried.
    """

    name: str
    applies: Callable[[Sequence[Any]], bool]
    refusal: Callable[[ScriptNode, Sequence[Any]], ExportError] | None = None


# Forms ----------------------------------------------------------------------------------------------------------------


def _any(operands: Sequence[Any]) -> bool:
    return True


def _has_optional(operands: Sequence[Any]) -> bool:
    return any(isinstance(item, Maybe) for item in operands)


def _refuse_optional(node: ScriptNode, operands: Sequence[Any]) -> ExportError:
    maybe = next(item for item in operands if isinstance(item, Maybe))
    return ExportError(
        f"{node.kind} at {node.source} takes a value that is None on one path at {maybe.source}; test it with "
        "'is not None'",
        code="none-on-one-path",
    )


def _has_text(operands: Sequence[Any]) -> bool:
    return any(isinstance(item, ComputedText) for item in operands)


def _refuse_text(node: ScriptNode, operands: Sequence[Any]) -> ExportError:
    return ExportError(
        f"{node.kind} at {node.source} takes a text that depends on data; ONNX has no form of it", code="data-dependent"
    )


def _has_dynamic(operands: Sequence[Any]) -> bool:
    return any(isinstance(item, ScriptList) and item.value is not None for item in operands)


def _refuse_dynamic(node: ScriptNode, operands: Sequence[Any]) -> ExportError:
    return ExportError(
        f"{node.kind} at {node.source} takes a list whose length depends on data, which has no form in ONNX; use "
        "torch.stack or torch.cat of it, or a list of known length",
        code="list-of-unknown-length",
    )


def _is_place(operands: Sequence[Any]) -> bool:
    return len(operands) > 1 and isinstance(operands[0], ScriptList) and isinstance(operands[1], AtenValue)


def _is_list_of_values(operands: Sequence[Any]) -> bool:
    return bool(operands) and isinstance(operands[0], list) and holds_value(operands)


def _is_python(operands: Sequence[Any]) -> bool:
    return bool(operands) and isinstance(operands[0], (list, tuple, dict, str))


ANY = Form("whatever the operands are", _any)
OPTIONAL = Form("what is None on one path", _has_optional, _refuse_optional)
TEXT = Form("a text with computed numbers in it", _has_text, _refuse_text)
VALUES = Form("anything that is or holds a value of the graph", holds_value)
DYNAMIC = Form("a list whose length only the run knows", _has_dynamic, _refuse_dynamic)
PLACE = Form("a list of known length, and a number that only the run knows", _is_place)
ELEMENTS = Form("a list of known length that holds values of the graph", _is_list_of_values)
PYTHON = Form("a list of known length, a tuple, dict or text", _is_python)
COMPUTED = Form("numbers and tensors", _any)

# the order in which forms are tried, after ANY
FORMS = (OPTIONAL, TEXT, VALUES, DYNAMIC, PLACE, ELEMENTS, PYTHON, COMPUTED)


class Handlers:
    """A table of handlers by form and kind."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Form, str], Handler] = {}

    def __call__(self, *kinds: str, on: Form | Sequence[Form] = ANY) -> Callable[[Function], Function]:
        """Register the decorated function as the handler of each kind.  Raises ValueError for a second handler."""

        def register(function: Function) -> Function:
            for form in [on] if isinstance(on, Form) else on:
                for kind in kinds:
                    self.add(form, kind, function)
            return function

        return register

    def add(self, form: Form, kind: str, handler: Handler) -> None:
        """Register a handler.  Raises ValueError when the kind already has one for this form, or for any operands."""
        others = [ANY, form] if form is not ANY else [ANY, *FORMS]
        taken = [other for other in others if (other, kind) in self._rows]
        if taken:
            raise ValueError(f"{kind} has two handlers for {taken[0].name}")
        self._rows[form, kind] = handler

    def include(self, other: Handlers) -> None:
        """Add the rows of another table.  Raises ValueError as `add`."""
        for form, kind, handler in other:
            self.add(form, kind, handler)

    def find(self, form: Form, kind: str) -> Handler | None:
        """The handler of a kind for a form, None where there is none."""
        return self._rows.get((form, kind))

    def __iter__(self) -> Iterator[tuple[Form, str, Handler]]:
        return ((form, kind, handler) for (form, kind), handler in self._rows.items())
