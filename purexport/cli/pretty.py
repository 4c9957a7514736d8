"""`show` and `stat` for a terminal, as tables of the package rich. The facts are those of the plain text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proto_schema.units import counted, size_text
from purexport.cli.terminal import safe
from purexport.inspect.sizes import Sizes

_BAR = 24


def show(console: Any, facts: dict[str, Any], rows: Iterable[tuple[str, str]]) -> None:
    """What is in a model. `rows` are its facts by name."""
    grid = _table("", ("", "dim"), ("", ""), head=False)
    _fill(grid, rows)
    console.print(grid)
    console.print()
    for title in ("inputs", "outputs"):
        table = _table(title, ("name", "cyan"), ("type", ""))
        _fill(table, ((value["name"], value["type"]) for value in facts[title]))
        console.print(table)
    counts = {kind: count for kind, count in facts["operators"].items() if count}
    table = _table("operators", ("operator", "green"), ("count", "right"), ("", "blue"))
    _fill(
        table,
        ((kind, f"{count:,}", bar) for (kind, count), bar in zip(counts.items(), _bars(counts), strict=True)),
    )
    console.print(table)
    if "nodes" not in facts:
        return
    heads = (("", "dim"), ("operator", "green"), ("from", ""), ("to", "cyan"), ("type", ""), ("attributes", "dim"))
    table = _table("nodes", *heads)
    for at, node in enumerate(facts["nodes"]):
        kind = f"{node['domain']}::{node['op_type']}" if node["domain"] else node["op_type"]
        inputs = ", ".join(name or "-" for name in node["inputs"])
        outputs, types, attributes = (", ".join(node[key]) for key in ("outputs", "types", "attributes"))
        _fill(table, [(str(at), kind, inputs, outputs, types, attributes)])
    console.print(table)


def chart(console: Any, title: str, counts: Mapping[str, int], top: int) -> None:
    """Where bytes go: name, size, share, bar; the last row sums up what is beyond `top` rows."""
    rows = {name: count for name, count in counts.items() if count}
    total = sum(rows.values()) or 1
    shown = dict(list(rows.items())[:top])
    if len(rows) > top:
        shown[f"{len(rows) - top} others"] = total - sum(shown.values())
    table = _table(title, ("", "cyan"), ("bytes", "right"), ("share", "right"), ("", "blue"))
    for (name, count), bar in zip(shown.items(), _bars(shown), strict=True):
        _fill(table, [(name, size_text(count), f"{100 * count / total:.1f}%", bar)])
    console.print(table)


def largest(console: Any, found: Sizes, top: int) -> None:
    """The largest tensors."""
    heads = (("name", "cyan"), ("type", ""), ("bytes", "right"), ("", "dim"))
    table = _table(f"largest of {counted(len(found.weights), 'tensor')}", *heads)
    for weight in found.weights[:top]:
        kind = f"{weight.dtype}{list(weight.dims)}"
        _fill(table, [(weight.name, kind, size_text(weight.nbytes), "external" if weight.external else "")])
    console.print(table)


def _table(title: str, *columns: tuple[str, str], head: bool = True) -> Any:
    """A table of columns, each a title and a style, or `right` for numbers."""
    from rich import box
    from rich.table import Table

    made = Table(
        title=title or None,
        title_style="bold",
        title_justify="left",
        show_header=head,
        box=box.SIMPLE_HEAD if head else None,
        header_style="dim",
        pad_edge=False,
    )
    for name, style in columns:
        right = style == "right"
        made.add_column(name, style="" if right else style, justify="right" if right else "left", overflow="fold")
    return made


def _fill(table: Any, rows: Iterable[Sequence[str]]) -> None:
    """Adds rows of cells, as text that is no markup, whatever the names of a file look like."""
    from rich.text import Text

    for row in rows:
        table.add_row(*(Text(safe(cell)) for cell in row))


def _bars(counts: Mapping[str, int]) -> list[str]:
    largest = max(counts.values(), default=1)
    return ["#" * max(1, round(_BAR * count / largest)) for count in counts.values()]
