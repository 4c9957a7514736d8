"""Modules of `onnx` that are those of `proto_schema`, with functions that cross.

A mirror looks a name up when it is first asked for, so importing `onnx` imports none of them. Where the module or the
name does not exist here, the error says so.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from proto_schema.compat.crossing import crossing
from proto_schema.compat.messages import PROTOS

OURS = "proto_schema"


class Mirror(ModuleType):
    """`onnx.NAME`, looked up in `proto_schema.NAME`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"onnx.{name}", f"proto_schema.{name}, with messages as protobuf has them.")
        vars(self)["__path__"] = []
        vars(self)["_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in PROTOS:
            return PROTOS[name]
        source = f"{OURS}.{vars(self)['_name']}"
        module = import_module(source)
        try:
            found = getattr(module, name)
        except AttributeError:
            raise AttributeError(f"onnx.{vars(self)['_name']}.{name} is not in {source}") from None
        if isinstance(found, ModuleType):
            made: Any = mirror(f"{vars(self)['_name']}.{name}")
        else:
            made = crossing(found) if callable(found) and not isinstance(found, type) else found
        vars(self)[name] = made
        return made

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *dir(import_module(f"{OURS}.{vars(self)['_name']}"))})


@cache
def mirror(name: str) -> ModuleType:
    """The module `onnx.NAME`. ModuleNotFoundError where `proto_schema` has none of that name."""
    if not _exists(f"{OURS}.{name}"):
        raise ModuleNotFoundError(
            f"onnx.{name} is not in proto_schema.compat: there is no {OURS}.{name}", name=f"onnx.{name}"
        )
    return Mirror(name)


def _exists(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
