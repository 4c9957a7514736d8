"""A table of functions, one an operator, each declared beside its code in one of several modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Generic, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Declared = TypeVar("Declared", bound=Callable[..., Any])


class RowTable(Generic[Function]):
    """The rows that the modules `files` of `package` declare, by domain and operator."""

    def __init__(self, package: str, files: Sequence[str], what: str) -> None:
        """`what` says in an error what an operator has two of."""
        self.package = package
        self.files = files
        self.what = what
        self._rows: dict[tuple[str, str], Function] = {}
        self._loaded = False

    def declare(self, *names: str, domain: str = "") -> Callable[[Declared], Declared]:
        """Declare a function as the row of these operators. Raises ValueError for an operator that has a row."""

        def declared(function: Declared) -> Declared:
            for name in names:
                if (domain, name) in self._rows:
                    raise ValueError(f"{domain or 'ai.onnx'}.{name} has two {self.what}")
                self._rows[domain, name] = function  # type: ignore[assignment]
            return function

        return declared

    def all(self) -> dict[tuple[str, str], Function]:
        """All rows; the modules are imported at the first call."""
        if not self._loaded:
            for name in self.files:
                import_module(f"{self.package}.{name}")
            self._loaded = True
        return self._rows
