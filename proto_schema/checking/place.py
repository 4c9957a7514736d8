"""Where a problem is: a path of fields, put together while the problem travels outwards."""

from __future__ import annotations

import json
from types import TracebackType

from proto_schema.errors import CheckError


class Problem(Exception):  # noqa: N818 - never leaves the package
    """A broken rule. `steps` leads from the innermost message outwards."""

    def __init__(self, reason: str, step: str = "", key: int | str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps = [_step(step, key)] if step else []

    def within(self, name: str, key: int | str | None = None) -> Problem:
        """The same problem, one step further out."""
        self.steps.append(_step(name, key))
        return self

    def as_error(self) -> CheckError:
        """The public error: `graph.node[3].attribute["pads"]: reason`."""
        path = ".".join(reversed(self.steps))
        return CheckError(f"{path}: {self.reason}" if path else self.reason)


class inside:  # noqa: N801 - reads as a statement
    """`with inside("node", 3):` what is checked in there lies in `node[3]`. A text key gives `attribute["pads"]`."""

    __slots__ = ("key", "name")

    def __init__(self, name: str, key: int | str | None = None) -> None:
        self.name = name
        self.key = key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, Problem):
            error.within(self.name, self.key)


def _step(name: str, key: object) -> str:
    if key is None:
        return name
    shown = json.dumps(key) if isinstance(key, (int, str)) else repr(key)
    return f"{name}[{shown}]"


def require(message: object, *names: str) -> None:
    """Each of these optional fields is there."""
    for name in names:
        if getattr(message, name) is None:
            raise Problem("is required, but absent", name)


def require_text(message: object, name: str) -> None:
    """The text field is there, not empty, and text: what is no UTF-8 stays bytes when it is decoded."""
    text = getattr(message, name)
    if not text:
        raise Problem("is required, but absent or empty", name)
    if not isinstance(text, str):
        raise Problem(f"is not UTF-8: {bytes(text)!r}", name)
