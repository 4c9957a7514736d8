"""`MODULE:NAME` -> a model.  MODULE is an importable module or a .py file; the current folder is importable.

NAME, which may be dotted, is a model, a class of nn.Module, or a factory without arguments.  Random weights are the
same in each run.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from purexport.cli.errors import UsageError


def load_model(source: str, *, meta: bool = False) -> Any:
    """The model that `MODULE:NAME` names, on the meta device if that is asked for.

    Raises UsageError if it cannot be found or made.
    """
    import torch

    where, colon, name = source.rpartition(":")
    if not (colon and where and name):
        raise UsageError(f"{source!r}: write MODULE:NAME, as in torchvision.models:resnet18 or net.py:Net")
    torch.manual_seed(0)
    with torch.device("meta") if meta else nullcontext():
        found: Any = _import(where)
        for part in name.split("."):
            if not hasattr(found, part):
                raise UsageError(f"{where} has no {name!r}; it has {_offers(found)}")
            found = getattr(found, part)
        return found if isinstance(found, torch.nn.Module) else _make(found, source)


def _import(where: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return _import_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except Exception as error:  # whatever the user's module does while it is imported
        raise UsageError(f"cannot import {where}: {type(error).__name__}: {error}") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_command_line"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # the model's classes find their module, as pickle and torch expect
    spec.loader.exec_module(module)
    return module


def _make(found: Any, source: str) -> Any:
    if not callable(found):
        raise UsageError(f"{source} is {_article(type(found).__name__)}, not a model, a model class or a factory")
    needed = _needed_arguments(found)
    if needed:
        raise UsageError(f"{source} takes arguments ({', '.join(needed)}); name a function without arguments instead")
    try:
        made = found()
    except Exception as error:  # whatever the user's code does
        raise UsageError(f"{source}() raised {type(error).__name__}: {error}") from error
    if not callable(made):
        raise UsageError(f"{source}() returned {_article(type(made).__name__)}, not a model")
    return made


def _needed_arguments(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # there is no signature: the call will tell
        return []
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in variadic]


def _offers(found: Any) -> str:
    names = [name for name, value in vars(found).items() if callable(value) and not name.startswith("_")]
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "") if names else "nothing to export"


def _article(word: str) -> str:
    return f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word}"
