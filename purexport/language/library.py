"""transformers, which is imported where it is needed, and its modules.  Its types are not used: it may be absent."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from purexport.errors import ExportError
from purexport.errors.requirements import command_for

_CACHES = ("cache", "past_key_values", "cache_params")  # what models call the cache, of this and of older releases


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


def cache_argument(function: Callable[..., Any]) -> str:
    """The name of the cache among the arguments of a function of transformers, which 5.24 has renamed."""
    taken = inspect.signature(function).parameters
    known = library("modeling_outputs").BaseModelOutputWithPast.__dataclass_fields__
    return next((name for name in _CACHES if name in taken), next(name for name in _CACHES if name in known))


def cache_of(result: Any) -> Any:
    """The cache in the result of a model; None where it has none."""
    return next((found for name in _CACHES if (found := getattr(result, name, None)) is not None), None)


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


@contextmanager
def without_bars() -> Iterator[None]:
    """Inside, transformers draws no progress bars: who reports progress here says so itself."""
    logging = library("utils.logging")
    drawn = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if drawn:
            logging.enable_progress_bar()


@contextmanager
def computed_anew(model: Any) -> Iterator[None]:
    """Inside, a model keeps no result from one call to the next: not in itself, nor in caches of transformers.

    A table without values must not be found by a later call, and one that is found has the sizes of an earlier call.
    """
    tools = library("pytorch_utils")
    is_compiling = tools.is_torchdynamo_compiling
    kept = [content for module in model.modules() for content in _tables(module)]
    before = [dict(content) for content in kept]
    tools.is_torchdynamo_compiling = lambda: True  # under torch.compile, caches of functions are not used
    try:
        yield
    finally:
        tools.is_torchdynamo_compiling = is_compiling
        for content, items in zip(kept, before, strict=True):
            for name in content.keys() - items.keys():
                del content[name]
            content.update(items)


def _tables(module: Any) -> list[dict[Any, Any]]:
    """The dicts among the attributes of a module, without those that torch and transformers keep for themselves."""
    return [item for name, item in vars(module).items() if type(item) is dict and not name.startswith("_")]
