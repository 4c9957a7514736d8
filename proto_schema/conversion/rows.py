"""The table of changes: what becomes of a node where its operator changed from one version to the next.

A row is declared beside its code: `@down("Squeeze", version=13)` takes a node of opset 13 to what opset 12 says, and
`@up("Squeeze", version=13)` a node of opset 12 to opset 13. A row gets the node (`VersionedNode`) and what it writes
others with (`Writer`). It returns the values that stand for the outputs, the node in another form (`node.with_`), or
None where the node stays as it is. It raises RefusedError where the opset cannot say the node.

Down from the version in which an operator appeared, a row writes it out in other operators, which are in their newest
form, whatever the opset: what is written is converted in turn. `op.at(12)` writes an older form on purpose. The rows of
`legalization`, which the exporter uses as well, are rows of this table.

Most changes need no row. Where only types were added, the types of the node decide (`narrowing`). Where attributes with
defaults or optional inputs and outputs were added, a node that does not use them stays as it is (`steps`). Where an
attribute became an input, one line says so: `moved("Squeeze", version=13, name="axes", place=1)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TypeAlias

from proto_schema import legalization
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import Writer
from proto_schema.ir import Value

Result: TypeAlias = "Value | Sequence[Value | None] | VersionedNode | None"
Row: TypeAlias = Callable[[VersionedNode, Writer], Result]
Key: TypeAlias = tuple[str, str, int, bool]

FILES = (
    "arithmetic", "axes", "control", "generating", "indexing", "ml", "moving", "sequences",
    "spectral", "nn.attention", "nn.images", "nn.losses", "nn.normalization", "nn.quantization", "nn.recurrent",
    "nn.windows",
)  # fmt: skip
_ROWS: dict[Key, Row] = {}


def down(*names: str, version: int, domain: str = "") -> Callable[[Row], Row]:
    """Declare the row that takes these operators from `version` to the version before."""
    return _declaring(names, version, domain, False)


def up(*names: str, version: int, domain: str = "") -> Callable[[Row], Row]:
    """Declare the row that takes these operators to `version` from the version before."""
    return _declaring(names, version, domain, True)


def _declaring(names: Sequence[str], version: int, domain: str, upward: bool) -> Callable[[Row], Row]:
    def declare(function: Row) -> Row:
        for name in names:
            key = (domain, name, version, upward)
            if key in _ROWS:
                raise ValueError(f"{name} has two rows {'to' if upward else 'from'} opset {version}")
            _ROWS[key] = function
        return function

    return declare


def find(domain: str, name: str, version: int, upward: bool) -> Row | None:
    """The row of a change, if it has one."""
    return table().get((domain, name, version, upward))


@cache
def table() -> dict[Key, Row]:
    """All rows, by domain, operator, version and direction (True is upwards)."""
    for name in FILES:
        import_module(f"proto_schema.conversion.adapters.{name}")
    for forms in legalization.rows().values():
        for form in forms:
            key = ("", form.op_type, form.before, False)
            _ROWS[key] = _by_form(form, _ROWS.get(key))
    return _ROWS


def _by_form(form: legalization.Row, row: Row | None) -> Row:
    """The row that writes a node by its older form, where `row` has no other."""

    def write(node: VersionedNode, op: Writer) -> Result:
        made = None if row is None else row(node, op)
        return form.write(op, node.arguments(), len(node.outputs)) if made is None else made

    return write
