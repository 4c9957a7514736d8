"""Packages that are no requirement: what a program does with them says what it needs where they are not installed.

Nothing here is loaded by an export.  The packages are loaded by name at the call that is about them, and nowhere else.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from purexport.errors.requirements import command_for


def package(name: str, purpose: str) -> ModuleType:
    """The module `name`.  Raises ImportError, which says what needs it and how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        wheel = name.partition(".")[0].replace("onnx_ir", "onnx-ir")
        raise ImportError(f"{purpose} needs {wheel}: {command_for(wheel)}") from error


def installed(name: str) -> bool:
    """Whether there is such a package; it is not loaded."""
    return find_spec(name) is not None
