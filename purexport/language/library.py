"""transformers, which is imported where it is needed, and its modules.  Its types are not used: it may be absent."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from purexport.errors import ExportError
from purexport.errors.requirements import command_for


def library(module: str = "") -> Any:
    """transformers, or a module of it.  Raises ExportError where it is not installed."""
    try:
        importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise ExportError(
            f"language models are made by transformers, which is not installed: {command_for('transformers')}",
            code="needs-transformers",
        ) from error
    return importlib.import_module(f"transformers.{module}".rstrip("."))


@contextmanager
def offline() -> Iterator[None]:
    """Inside, transformers fetches nothing: neither models that a config names, nor kernels."""
    library()
    constants: Any = importlib.import_module("huggingface_hub.constants")
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
