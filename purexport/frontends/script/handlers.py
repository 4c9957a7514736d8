"""All handlers: the files of `operators/` are imported by name, and each has its own table."""

from __future__ import annotations

import functools
from importlib import import_module

from purexport.frontends.script.registry import Handlers

# every file with handlers
FILES = (
    "branches loops exits objects containers optionals texts dynamic_lists lists_of_values python_objects numbers "
    "tensors mkldnn"
)


@functools.cache
def registered() -> Handlers:
    """All handlers in one table.  Raises ValueError when an operator has two handlers for one form."""
    found = Handlers()
    for file in FILES.split():
        found.include(import_module(f"purexport.frontends.script.operators.{file}").handles)
    return found
