"""All that this package uses of TorchScript, which torch has deprecated: no other file names `torch.jit` or its graphs.

Without it in torch, everything works as ever, except that no model is a script.  So the day torch drops it, this file
and the route of scripts go.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch

from purexport.errors import ExportError

if TYPE_CHECKING:
    from torch._jit_internal import is_scripting
    from torch.jit import ScriptFunction, ScriptModule
    from torch.jit import _trace as tracer

    PRESENT = True
else:
    try:
        from torch._jit_internal import is_scripting
        from torch.jit import ScriptFunction, ScriptModule
        from torch.jit import _trace as tracer

        PRESENT = hasattr(torch._C, "_jit_pass_inline")
    except ImportError:
        PRESENT, tracer = False, None

        class ScriptModule(torch.nn.Module):
            """A class of which nothing is an instance."""

        class ScriptFunction:
            """The same for functions."""

        def is_scripting() -> bool:
            """Nothing is compiled to a script."""
            return False


__all__ = [
    "MODULES",
    "PRESENT",
    "SCRIPTS",
    "ScriptFunction",
    "ScriptModule",
    "answer_of_torch",
    "called_a_trace",
    "calls_of_scripts",
    "find_schema",
    "find_schemas",
    "inline",
    "inline_forks",
    "is_script",
    "is_scripting",
    "script_of_traces",
    "scripts_handed_to",
    "tracer",
]

SCRIPTS = (ScriptModule, ScriptFunction)
"""What is a script."""

MODULES = (torch.nn.Module, ScriptModule, getattr(torch._C, "ScriptModule", ScriptModule))
"""What has attributes in a script."""


# what runs a function of `torch.jit.script_if_tracing`; one code for all functions
_IF_TRACING: CodeType | None = tracer._script_if_tracing(lambda: None).__code__ if PRESENT else None


def is_script(model: Any) -> bool:
    """Whether a model is a scripted module or function."""
    return isinstance(model, SCRIPTS)


def _of_torch(name: str) -> Callable[..., Any]:
    """A function of `torch._C`; where torch lacks it, one that says so."""

    def missing(*args: Any) -> Any:
        raise ExportError(f"torch {torch.__version__} has no torch.jit, which scripts need", code="no-torchscript")

    found: Callable[..., Any] = getattr(torch._C, name, missing)
    return found


# schemas of operators, those of scripts included
find_schema = _of_torch("_get_schema")
find_schemas = _of_torch("_jit_get_schemas_for_operator")

# graphs, with calls and forks inlined
inline = _of_torch("_jit_pass_inline")
inline_forks = _of_torch("_jit_pass_inline_fork_wait")


def answer_of_torch() -> Any:
    """What says whether a trace is running, at the moment: to all, and to functions that are scripts in a trace."""
    if not PRESENT:
        return None
    jit: Any = torch.jit
    return jit.is_tracing, tracer.is_tracing


@contextmanager
def called_a_trace(compiled: Collection[Any] = ()) -> Iterator[None]:
    """Inside, `torch.jit.is_tracing()` is true for all but torch, in the whole process.

    Libraries then do what holds for other sizes and other elements too.  torch itself refuses under its tracer what
    other captures can record.  Of the functions that are scripts in a trace, the `compiled` ones are.
    """
    if not PRESENT:
        yield
        return
    jit: Any = torch.jit
    original, of_torch = answer_of_torch()

    def is_tracing() -> bool:
        theirs = str(sys._getframe(1).f_globals.get("__name__", ""))
        return theirs.partition(".")[0] != "torch" or bool(original())

    def is_script_of_traces() -> bool:
        frame = sys._getframe(1)
        return (frame.f_code is _IF_TRACING and frame.f_locals["fn"] in compiled) or bool(of_torch())

    jit.is_tracing, tracer.is_tracing = is_tracing, is_script_of_traces
    try:
        yield
    finally:
        jit.is_tracing, tracer.is_tracing = original, of_torch


def script_of_traces(frame: FrameType | None, root: FrameType | None) -> Any | None:
    """The function that runs, in a frame up to the `root`, that torch's tracer would have as a script, if one does."""
    while frame is not None and frame is not root:
        if frame.f_code is _IF_TRACING:
            return frame.f_locals["fn"]
        frame = frame.f_back
    return None


def calls_of_scripts() -> Any:
    """What a call of a script runs at the moment."""
    return [kind.__call__ for kind in SCRIPTS if hasattr(kind, "__call__")]  # noqa: B004


@contextmanager
def scripts_handed_to(handler: Callable[..., Any]) -> Iterator[None]:
    """Inside, the handler gets a script, its arguments, and a function that runs it on some, where Python calls one.

    Scripts that other scripts call are not handed over, nor are modules with hooks.  In the whole process.
    """

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        return handler(self, args, kwargs, functools.partial(originals[_kind(self)], self))

    kinds: list[Any] = list(SCRIPTS)
    own = ["__call__" in vars(kind) for kind in kinds]
    originals = {kind: kind.__call__ for kind in kinds if hasattr(kind, "__call__")}  # noqa: B004
    for kind in originals:
        kind.__call__ = called
    try:
        yield
    finally:
        for kind, is_own in zip(kinds, own, strict=True):
            if is_own:
                kind.__call__ = originals[kind]
            elif kind in originals:
                del kind.__call__


def _kind(script: Any) -> Any:
    return ScriptModule if isinstance(script, ScriptModule) else ScriptFunction
