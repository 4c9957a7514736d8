"""Strings with numbers that are known only at run time; they can be used in messages only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from purexport.frontends.script.machine import Machine
from purexport.frontends.script.registry import COMPUTED, TEXT, VALUES, Handler, Handlers, ScriptNode
from purexport.frontends.script.values import ComputedText, holds_value

handles = Handlers()


def _text(function: Callable[..., Any]) -> Handler:
    """Python's own function, on strings in which a question mark stands for each computed number."""

    def handler(machine: Machine, node: ScriptNode, *operands: Any) -> ComputedText:
        return ComputedText(str(function(*map(_shown, operands))))

    return handler


def _shown(item: Any) -> Any:
    if isinstance(item, ComputedText):
        return item.text
    return "?" if holds_value(item) else item


handles("aten::format", on=(TEXT, VALUES))(_text(lambda template, *operands: template.format(*operands)))
handles("aten::str", on=VALUES)(_text(str))
handles("aten::add", on=TEXT)(_text(lambda one, other: one + other))
handles("aten::join", on=TEXT)(_text(lambda glue, items: glue.join(items)))


@handles("aten::str", on=COMPUTED)
def _str(machine: Machine, node: ScriptNode, item: Any) -> str:
    return str(item)
