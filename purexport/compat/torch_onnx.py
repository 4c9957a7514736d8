"""What an open `patch` has put into torch.onnx, and what an export does while one is open.

The replacements belong to the process, as torch.onnx does, so all threads see them.  The first `patch` puts everything
in its place, and the last one to end takes it back, in whatever order threads leave.  A `patch` stands, from its call
on, until a `with` takes it over, which ends it, or until it is undone.  What other code has replaced meanwhile is left
alone.  Nothing here imports torch.onnx: torch loads it when it is asked for the attribute.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from purexport.errors import ExportError
from purexport.lowering.rules import registered

# the exporters of torch 2.6 and later, which torch.onnx.export calls: by module and name
INNER = ("torch.onnx._internal.exporter._compat", "export_compat")
ABSENT = object()
Substitutes = Callable[[], Iterable[tuple[Any, str, Any]]]


class Places:
    """What was replaced.  One object behind a lock, because it changes torch.onnx, of which a process has one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._standing: list[object] = []
        self._put: list[tuple[Any, str, Any, Any]] = []  # holder, name, what was there, what is there
        self._modules: dict[str, types.ModuleType] = {}
        self._lent: list[Substitutes] = []

    @property
    def active(self) -> bool:
        """Whether a `patch` is open."""
        return self._depth > 0

    def stand(self, owner: object, substitutes: Substitutes, inner: Callable[..., Any]) -> None:
        """Open a `patch` of `owner` that stands: `substitutes` as for `enter`."""
        with self._lock:
            self.enter(substitutes, inner)
            self._standing.append(owner)

    def take_over(self, owner: object) -> bool:
        """Whether `owner` had one that stands; it ends with the next `leave` from now on."""
        with self._lock:
            known = len(self._standing)
            self._standing = [item for item in self._standing if item is not owner]
            return len(self._standing) < known

    def fall(self) -> None:
        """Close all that stand."""
        with self._lock:
            count = len(self._standing)
            self._standing = []
            for _ in range(count):
                self.leave()

    def enter(self, substitutes: Substitutes, inner: Callable[..., Any]) -> None:
        """Open one more: `substitutes` gives (holder, name, what it becomes), `inner` goes to INNER."""
        with self._lock:
            if not self._depth:
                self._clear()  # what is lent is a part of it
                try:
                    self._fill(substitutes(), inner)
                except BaseException:
                    self._settle()
                    raise
            self._depth += 1

    def leave(self) -> None:
        """Close one; the last takes everything back."""
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._settle()

    @contextmanager
    def lend(self, substitutes: Substitutes, opset: int) -> Iterator[None]:
        """What `substitutes` gives is in its place meanwhile, for an export to `opset`; a `patch` has that anyway."""
        with self._lock:
            self._lent.append(substitutes)
            if not self._depth and len(self._lent) == 1:
                self._fill(substitutes(), None)
        state = registering_module().GLOBALS
        before, state._export_onnx_opset_version = state._export_onnx_opset_version, opset
        try:
            yield
        finally:
            state._export_onnx_opset_version = before
            with self._lock:
                self._lent.pop()
                if not self._depth and not self._lent:
                    self._clear()

    def _settle(self) -> None:
        """Take everything back but what is lent."""
        self._clear()
        if self._lent:
            self._fill(self._lent[0](), None)

    def _fill(self, substitutes: Iterable[tuple[Any, str, Any]], inner: Callable[..., Any] | None) -> None:
        for holder, name, ours in substitutes:
            before = vars(holder).get(name, ABSENT)
            setattr(holder, name, ours)
            self._put.append((holder, name, before, ours))
        self._replace({(name, id(before)): ours for _, name, before, ours in self._put})
        name, function = INNER
        if inner is not None and name not in sys.modules:  # torch loads it on the first export, and would call its own
            module = types.ModuleType(name, "Stands for the module of torch while purexport.patch() is open.")
            setattr(module, function, inner)
            sys.modules[name] = self._modules[name] = module

    def _clear(self) -> None:
        for name, module in self._modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        self._modules = {}
        # a module of torch.onnx that was loaded meanwhile took our functions for torch's
        self._replace({(name, id(ours)): before for _, name, before, ours in self._put if before is not ABSENT})
        for holder, name, before, ours in reversed(self._put):
            if vars(holder).get(name) is ours:
                if before is ABSENT:
                    delattr(holder, name)
                else:
                    setattr(holder, name, before)
        self._put = []

    def _replace(self, replacements: Mapping[tuple[str, int], Any]) -> None:
        """The same name in every loaded module of torch.onnx that holds it."""
        places = {(id(holder), name) for holder, name, _, _ in self._put}
        for module in [module for key, module in sys.modules.items() if f"{key}.".startswith("torch.onnx.")]:
            for name, value in list(vars(module).items()):
                if (name, id(value)) in replacements and (id(module), name) not in places:
                    setattr(module, name, replacements[name, id(value)])


PLACES = Places()


def registering_module() -> Any:
    """The module that defines the functions of torch.onnx.utils; that one may only re-export them."""
    theirs: Any = torch.onnx
    return import_module(theirs.register_custom_op_symbolic.__module__)


def patched() -> bool:
    """Whether a `patch` is open in this process."""
    return PLACES.active


@contextmanager
def told_to_torch(opset: int) -> Iterator[None]:
    """While a `patch` is open, an export is one for torch.onnx too: `torch.onnx.is_in_onnx_export()` is true."""
    if not PLACES.active:
        yield
        return
    state = registering_module().GLOBALS
    before = state._in_onnx_export, state._export_onnx_opset_version
    state._in_onnx_export, state._export_onnx_opset_version = True, opset
    try:
        yield
    finally:
        state._in_onnx_export, state._export_onnx_opset_version = before


@contextmanager
def errors_of_torch() -> Iterator[None]:
    """While a `patch` is open, our errors are torch.onnx's too, so that code can catch them as those.

    An option that is refused is a ValueError with us, and a RuntimeError there, as torch's error is.
    """
    theirs: Any
    try:
        yield
    except ValueError as error:
        if PLACES.active and type(error) is ValueError:
            theirs = torch.onnx.errors
            raise _as_both(ValueError, theirs.OnnxExporterError)(*error.args) from error
        raise
    except ExportError as error:
        if PLACES.active:
            theirs = torch.onnx.errors
            name = "UnsupportedOperatorError" if isinstance(error, NotImplementedError) else "OnnxExporterError"
            ours: Any = type(error)
            error.__class__ = _as_both(ours, getattr(theirs, name))
        raise


@functools.cache
def _as_both(ours: Any, theirs: Any) -> Any:
    if issubclass(ours, theirs):
        return ours
    return type(ours.__name__, (ours, theirs), {"__module__": ours.__module__, "__doc__": ours.__doc__})


def registered_with_torch(opset: int) -> dict[str, Callable[..., Any]]:
    """While a `patch` is open: what is registered with torch.onnx and applies at `opset`.

    Functions that libraries register for their own operators are left out if we have rules for these operators.
    """
    if not PLACES.active:
        return {}
    groups = registering_module().registration.registry
    rules = registered()
    found = {}
    for name in sorted(groups.all_functions()):
        custom = groups.get_function_group(name)._functions._overrides
        fitting = [version for version in custom if version <= opset]
        if fitting and (name.startswith("aten::") or name not in rules):
            found[name] = custom[max(fitting)]
    return found
