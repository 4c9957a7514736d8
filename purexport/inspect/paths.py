"""Paths of fields: `graph.node[3].attribute["pads"].ints[2]`, with wildcards, and the elements that they name.

A step is a field's name, `*` for all, or `?77` for an unknown field of that number. After it may come `[3]` (from the
end: `[-1]`), `[*]`, `["name"]` (a name or key, or an output of a node), or `#2` for the second one of a field that
occurs twice. A repeated field without an index means all its elements.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from proto_schema.graphs.similar import similar
from proto_schema.wire.fields import Message, field_of
from purexport.inspect.elements import Bytes, Element
from purexport.inspect.values import items, keys_of

_STEP = re.compile(
    r"""(?P<name>\*|\?\d+|[A-Za-z_]\w*)
        (?:\[(?:(?P<index>-?[0-9]{1,18})|(?P<all>\*)|(?P<key>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))\]|\#(?P<which>[0-9]{1,18}))?
        (?:\.|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class PathStep:
    """One step of a path; None for each part that it does not have."""

    text: str
    name: str
    index: int | None
    key: str | None
    which: int | None


def parse(path: str) -> list[PathStep]:
    """The steps of a path. ValueError says at which character it is wrong."""
    steps = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        whole = match is not None and not (match.end() == len(path) and path.endswith("."))
        try:
            name = None if match is None or match["key"] is None else ast.literal_eval(match["key"])
        except (SyntaxError, ValueError):  # an escape that Python does not have
            whole = False
        if match is None or not whole:
            raise ValueError(f'no path: {path!r} at character {at + 1}; write it as graph.node[3].attribute["pads"]')
        index, which = (int(match[group]) if match[group] else None for group in ("index", "which"))
        steps.append(PathStep(match[0].rstrip("."), match["name"], index, name, which))
        at = match.end()
    return steps


def find(source: Bytes, path: str) -> list[Element]:
    """The elements that a path names, in the order of their bytes; the whole message for an empty path.

    Raises ValueError for a path that the schema or the file does not have, saying how far it leads.
    """
    found = [source.whole()]
    so_far = ""
    for step in parse(path):
        for message in {element.message for element in found}:
            _expect_field(message, step, so_far)
        parents = found
        found = [child for element in found for child in _matches(source, element, step)]
        so_far = f"{so_far}.{step.text}" if so_far else step.text
        if not found:
            raise ValueError(f"{so_far} is not in this file{_what_is(source, parents, step)}")
    return found


def _expect_field(message: type[Message] | None, step: PathStep, so_far: str) -> None:
    if message is None:
        raise ValueError(f"{so_far} is not a message and has no field {step.name!r}")
    if step.name[0] not in "*?" and field_of(message, step.name) is None:
        names = ", ".join(field.name for field in message.FIELDS)
        raise ValueError(f"{message.__qualname__} has no field {step.name!r}; it has {names}")


def _what_is(source: Bytes, parents: list[Element], step: PathStep) -> str:
    if len(parents) != 1 or (step.index is None and step.key is None):
        return ""
    there = list(_expanded(source, parents[0], step))
    names = sorted({key for child in there[:50] for key in keys_of(source, child) if key}) if step.key else []
    close = similar(step.key or "", names) or names[:3]
    return f"; it has {len(there)} of them{', as ' if close else ''}{', '.join(map(ascii, close))}"


def _matches(source: Bytes, parent: Element, step: PathStep) -> list[Element]:
    if step.which is not None:
        return [child for child in source.children(parent) if child.step == step.text]
    named = _expanded(source, parent, step)
    if step.key is not None:
        return [child for child in named if step.key in keys_of(source, child)]
    if step.index is None:
        return list(named)
    if step.index < 0:
        there = list(named)
        return [there[step.index]] if -step.index <= len(there) else []
    return next(([child] for at, child in enumerate(named) if at == step.index), [])


def _expanded(source: Bytes, parent: Element, step: PathStep) -> Iterator[Element]:
    """The children of the step's name; packed numbers one by one if the step has an index."""
    at = 0
    for child in source.children(parent):
        name = child.field.name if child.field is not None else f"?{child.number}"
        if step.name not in ("*", name):
            continue
        if step.index is None or not child.packed:
            yield child
            at += 1
            continue
        for item in items(source, child):
            label = f"{child.step}[{at}]"
            path = f"{parent.path}.{label}" if parent.path else label
            yield Element(**{**item.__dict__, "step": label, "path": path})
            at += 1
