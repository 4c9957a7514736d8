"""All that this package uses of TorchScript, which torch has deprecated: no other file names `torch.jit` or its graphs.

Without it in torch, whatever is exported by torch.export works as ever.  No model is a script then, and the route by a
trace says that torch lacks it (`required`).  So the day torch drops it, this file and the two routes go.

The tracer's interface in `torch._C` has no stubs; here it has types.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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

        PRESENT = hasattr(torch._C, "_create_graph_by_tracing")
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
    "TracerWarning",
    "answer_of_torch",
    "called_a_trace",
    "calls_of_scripts",
    "create_graph",
    "find_schema",
    "find_schemas",
    "inline",
    "inline_forks",
    "is_in_a_script_of_traces",
    "is_script",
    "is_scripting",
    "is_tracing",
    "remove_dead",
    "required",
    "run_graph",
    "scripts_handed_to",
    "set_tracing_state",
    "set_value",
    "trace",
    "tracer",
    "tracing_state",
    "value_of",
]

SCRIPTS = (ScriptModule, ScriptFunction)
"""What is a script."""

MODULES = (torch.nn.Module, ScriptModule, getattr(torch._C, "ScriptModule", ScriptModule))
"""What has attributes in a script."""


# what runs a function of `torch.jit.script_if_tracing`; one code for all functions
_IF_TRACING: CodeType | None = tracer._script_if_tracing(lambda: None).__code__ if PRESENT else None


def required() -> None:
    """Raises ExportError where torch has no tracer."""
    if not PRESENT:
        raise ExportError(
            f"torch {torch.__version__} has no torch.jit, by which a trace is recorded; use capture='export'",
            code="no-torchscript",
        )


def is_script(model: Any) -> bool:
    """Whether a model is a scripted module or function."""
    return isinstance(model, SCRIPTS)


def _of_torch(name: str) -> Callable[..., Any]:
    """A function of `torch._C`; where torch lacks it, one that says so."""

    def missing(*args: Any) -> Any:
        required()
        raise AttributeError(f"torch._C has no {name}")

    found: Callable[..., Any] = getattr(torch._C, name, missing)
    return found


TracerWarning: type[Warning] = tracer.TracerWarning if PRESENT else UserWarning

# schemas of operators, those of scripts included
find_schema = _of_torch("_get_schema")
find_schemas = _of_torch("_jit_get_schemas_for_operator")

# the tracer: a trace as a graph, its state in this thread, the value in it that stands for a tensor
create_graph = _of_torch("_create_graph_by_tracing")
tracing_state: Callable[[], Any] = getattr(torch._C, "_get_tracing_state", lambda: None)
set_tracing_state = _of_torch("_set_tracing_state")
is_tracing: Callable[[], bool] = getattr(torch._C, "_is_tracing", lambda: False)
value_of = _of_torch("_get_value_trace")
set_value = _of_torch("_set_value_trace")

# graphs: run, without dead nodes, with calls and forks inlined
run_graph = _of_torch("_jit_interpret_graph")
remove_dead = _of_torch("_jit_pass_dce")
inline = _of_torch("_jit_pass_inline")
inline_forks = _of_torch("_jit_pass_inline_fork_wait")


def answer_of_torch() -> Any:
    """What says whether a trace is running, at the moment."""
    jit: Any = torch.jit
    return jit.is_tracing


@contextmanager
def called_a_trace() -> Iterator[None]:
    """Inside, `torch.jit.is_tracing()` is true for all but torch, in the whole process.

    Libraries then do what holds for other sizes and other elements too.  torch itself refuses under its tracer what
    other captures can record.
    """
    jit: Any = torch.jit
    original = jit.is_tracing

    def is_tracing() -> bool:
        theirs = str(sys._getframe(1).f_globals.get("__name__", ""))
        return theirs.partition(".")[0] != "torch" or bool(original())

    jit.is_tracing = is_tracing
    try:
        yield
    finally:
        jit.is_tracing = original


def is_in_a_script_of_traces(frame: FrameType | None, root: FrameType | None) -> bool:
    """Whether a function runs, in a frame up to the `root`, that torch's tracer would have as a script."""
    while frame is not None and frame is not root:
        if frame.f_code is _IF_TRACING:
            return True
        frame = frame.f_back
    return False


def calls_of_scripts() -> Any:
    """What a call of a script runs at the moment."""
    return [kind.__call__ for kind in SCRIPTS if hasattr(kind, "__call__")]  # noqa: B004


@contextmanager
def scripts_handed_to(handler: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    """Inside, the handler gets a function that runs the script, where Python calls one.

    Scripts that other scripts call are not handed over, nor are modules with hooks.  In the whole process.
    """

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        return handler(lambda: originals[_kind(self)](self, *args, **kwargs))

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


def trace(model: Any, args: tuple[Any, ...]) -> Any:
    """torch's own trace of a module, which is a script."""
    required()
    from torch.jit import trace as traced

    return traced(model, args, strict=False, check_trace=False)  # type: ignore[no-untyped-call]
