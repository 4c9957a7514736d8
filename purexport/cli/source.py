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
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from purexport.cli.errors import UsageError
from purexport.cli.nearest import near_file, near_module
from purexport.cli.process import EndedBySignal


def load_model(source: str, *, meta: bool = False) -> Any:
    """The model that `MODULE:NAME` names, on the meta device if that is asked for.

    Raises UsageError if it cannot be found or made.
    """
    import torch

    torch.manual_seed(0)
    with torch.device("meta") if meta else nullcontext():
        found = _found(source)
        if isinstance(found, torch.nn.Module):
            return found
        made = _make(found, source)
        if not callable(made):
            raise UsageError(f"{source}() returned {_article(type(made).__name__)}, not a model")
        return made


def load_example(source: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that the function `MODULE:NAME` returns: a tuple, a mapping of keyword arguments, or one argument.

    Raises UsageError if it cannot be found or fails.
    """
    import torch

    torch.manual_seed(0)
    made = _make(_found(source), source)
    if isinstance(made, Mapping):
        return (), dict(made)
    return (made if isinstance(made, tuple) else (made,)), {}


def _found(source: str) -> Any:
    where, colon, name = source.rpartition(":")
    if not (colon and where and name):
        raise UsageError(f"{source!r}: write MODULE:NAME, as in torchvision.models:resnet18 or net.py:Net")
    found: Any = _import(where)
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{where} has no {name!r}; it has {_offers(found)}")
        found = getattr(found, part)
    return found


@contextmanager
def running(what: str, remedy: str = "take that line out for an export") -> Iterator[None]:
    """The code of a model runs inside.  What it raises to end the process (`sys.exit`) is an error with its place.

    Raises UsageError for it: no file was made, and the exit status must say so.
    """
    try:
        yield
    except (Exception, EndedBySignal, GeneratorExit):
        raise
    except BaseException as error:
        kind = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise UsageError(f"{what} is ended by {kind} at {_place(error)}; {remedy}") from error


def _place(error: BaseException) -> str:
    """`net.py:3`: the innermost line that is neither Python's own nor torch's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_pythons(os.path.realpath(frame.filename))]
    frame = (own or frames)[-1]
    inside = frame.filename.startswith(os.path.join(os.getcwd(), ""))
    return f"{os.path.relpath(frame.filename) if inside else frame.filename}:{frame.lineno}"


def is_library(file: str) -> bool:
    """Whether a file is no code of a user: Python's, an installed package's, or ours."""
    paths = sysconfig.get_paths()
    packages = tuple(os.path.join(os.path.realpath(paths[name]), "") for name in ("purelib", "platlib"))
    return _is_pythons(file) or file.startswith((*packages, _OURS))


_OURS = os.path.join(os.path.realpath(Path(__file__).parents[1]), "")


def _is_pythons(file: str) -> bool:
    """Whether a file is Python's own or torch's."""
    paths = sysconfig.get_paths()
    below = [os.path.join(os.path.realpath(paths[name]), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    packages = tuple(below[2:])
    if file.startswith(packages):
        return file.startswith(tuple(f"{folder}torch{os.sep}" for folder in packages))
    return file.startswith((*below[:2], "<frozen"))


def _import(where: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with running(f"cannot import {where}: it", "put it under if __name__ == '__main__'"):
        try:
            return _import_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        except Exception as error:  # whatever the user's module does while it is imported
            raise _raised(f"cannot import {where}:", error, _near(where, error)) from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"there is no such file{near_file(str(path))}")
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
        raise UsageError(
            f"{source} takes arguments ({', '.join(needed)}); write a function without any that returns the model, "
            f"def made(): return {found.__name__}(...), and name that one"
        )
    with running(f"{source}()"):
        try:
            made: Any = found()
        except Exception as error:  # whatever the user's code does
            raise _raised(f"{source}() raised", error) from error
    return made


def _raised(what: str, error: Exception, more: str = "") -> UsageError:
    """What a user's code raised, with all its lines."""
    first, *others = str(error).strip().split("\n")
    return UsageError(f"{what} {type(error).__name__}: {first}{more}".removesuffix(": "), others)


def _near(where: str, error: Exception) -> str:
    return near_module(where) if isinstance(error, ModuleNotFoundError) and error.name == where else ""


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
