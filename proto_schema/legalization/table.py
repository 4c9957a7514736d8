"""The table of older forms: what writes an operator where an opset lacks it, or where its version cannot say the call.

    @older("Celu", before=12)
    def celu(op: Operators, X: Value, alpha: float = 1.0) -> Value: ...

A form is a function of a builder (`operators`) and of the operator's arguments, by the names of the newest version:
inputs are values (a list where the operator takes any number), attributes are plain. It writes the newest operators,
which the builder writes by still older ones where it must, and computes exactly what the operator computes. It returns
the value or a tuple of them, or None where the operator needs no other form at these arguments. It raises RefusedError
for what older operators cannot say.

Two ask the table: the exporter's emitter, where the version in force refuses a call, and the version converter, on the
way from opset `before` to the one below.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from proto_schema.wire.records import dataclass

Form: TypeAlias = "Callable[..., Any]"
F = TypeVar("F", bound=Form)

FILES = (
    "activations", "einsum", "elements", "matrices", "moving", "order", "running",
    "nn.boxes", "nn.caches", "nn.columns", "nn.normalization", "nn.sampling", "nn.windows",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A form for the opsets below `before`, and at any opset for first inputs of the data types `of_dtypes`.

    `is_asked_first`: versions below take the call as well, and compute something else, or nothing.
    """

    op_type: str
    before: int
    form: Form
    of_dtypes: frozenset[int] = frozenset()
    asks_outputs: bool = False
    is_asked_first: bool = False

    def write(self, op: Any, arguments: Mapping[str, Any], outputs: int) -> tuple[Any, ...] | None:
        """The values for the outputs, None where the form is not for these arguments. Raises RefusedError."""
        more = {"outputs": outputs} if self.asks_outputs else {}
        found = self.form(op, **arguments, **more)
        return found if found is None or isinstance(found, tuple) else (found,)


_ROWS: dict[str, list[Row]] = {}


def older(*names: str, before: int, of_dtypes: Iterable[int] = (), is_asked_first: bool = False) -> Callable[[F], F]:
    """Declare the decorated function as the form of these operators below an opset.

    `of_dtypes`: where the operator computes in less precision than its data type, its form is always better.
    `is_asked_first`: where the opset has a version of the operator, too, and the form says whether that will do.
    """

    def declare(form: F) -> F:
        for name in names:
            known = _ROWS.setdefault(name, [])
            if any(row.before == before for row in known):
                raise ValueError(f"{name} has two forms below opset {before}")
            asks = "outputs" in inspect.signature(form).parameters
            known.append(Row(name, before, form, frozenset(of_dtypes), asks, is_asked_first))
            known.sort(key=lambda row: -row.before)
        return form

    return declare


@cache
def rows() -> Mapping[str, list[Row]]:
    """All rows by operator, those of the newest opset first."""
    for name in FILES:
        import_module(f"proto_schema.legalization.{name}")
    return _ROWS
