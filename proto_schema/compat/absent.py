"""Names of onnx that are no interface: they can be imported, and refuse when they are used.

Programs and tests import private functions beside public ones (`from onnx.reference.ops.op_conv import _im2col`). A
refusal at the import would take the whole file with it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

INNER = ("backend.", "onnx_cpp2py_export", "reference.ops.", "reference.", "bin.", "tools.", "defs.", "frontend.")
"""Modules below these are inner parts of onnx, as far as they are not here."""


class Absent:
    """Stands for a name. Whatever is done with it but reading its attributes raises NotImplementedError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(
            f"{self._name} is an inner part of the package onnx and is not in proto_schema.compat; use the public "
            "functions, or run this with onnx itself"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __getitem__(self, key: Any) -> NoReturn:
        self._refuse()

    def __iter__(self) -> NoReturn:
        self._refuse()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self._name}, absent>"


class AbsentModule(ModuleType):
    """A module of such names."""

    def __init__(self, name: str) -> None:
        super().__init__(f"onnx.{name}", "An inner part of the package onnx, which is not here.")
        vars(self)["__path__"] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


def is_inner(name: str) -> bool:
    """Whether `onnx.NAME` is an inner part."""
    return f"{name}.".startswith(INNER)
