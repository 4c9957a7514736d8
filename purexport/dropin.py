"""``patch``: for a while, whoever calls torch.onnx in this process exports with purexport.

Code of others finds the exporter by three ways, and all are served: as an attribute (``torch.onnx.export``), as a name
that it imported before (``from torch.onnx import export``), and as ``torch.onnx.utils.export``.  So our functions stand
under the public names and under the two inner functions that torch.onnx.export itself calls.  Torch's symbolic helpers
stay what they are for torch's own values and are ours for the values of our graph, by which symbolic functions that
were written, decorated and registered before count too.  Torch's enums and error classes stay the same objects.

What is replaced belongs to the process, as torch.onnx does: all threads see it.  The first ``patch`` puts everything
in its place and the last that ends takes it back, in whichever order threads leave; what somebody else has replaced
meanwhile is left alone.  Nothing here imports torch.onnx: torch loads it when it is asked for the attribute.
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

# the exporters of torch 2.6 and later, which torch.onnx.export calls: by module and name
_INNER = ("torch.onnx._internal.exporter._compat", "export_compat")
_ABSENT = object()


@contextmanager
def patch() -> Iterator[None]:
    """Inside, code that calls ``torch.onnx.export`` and its friends gets ours; a decorator too.

    Serves the whole process, nests, and is undone on exit, also after an error.  Functions that are registered inside
    by ``torch.onnx.register_custom_op_symbolic`` stay registered, with torch.onnx as with us.
    Raises ImportError where torch.onnx cannot be loaded.
    """
    _PLACES.enter()
    try:
        yield
    finally:
        _PLACES.leave()


class _Places:
    """What was put where.  One object behind a lock, because torch.onnx, which it changes, is one for the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._put: list[tuple[Any, str, Any, Any]] = []  # holder, name, what was there, what is there
        self._modules: dict[str, types.ModuleType] = {}

    @property
    def active(self) -> bool:
        """Whether a ``patch`` is open."""
        return self._depth > 0

    def enter(self) -> None:
        """Open one more ``patch``."""
        with self._lock:
            if not self._depth:
                try:
                    self._fill()
                except BaseException:
                    self._clear()
                    raise
            self._depth += 1

    def leave(self) -> None:
        """Close one; the last takes everything back."""
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._clear()

    def _fill(self) -> None:
        for holder, name, ours in _substitutes():
            before = vars(holder).get(name, _ABSENT)
            setattr(holder, name, ours)
            self._put.append((holder, name, before, ours))
        self._replace({(name, id(before)): ours for _, name, before, ours in self._put})
        name, function = _INNER
        if name not in sys.modules:  # torch loads it on the first export, and would find its own
            module = types.ModuleType(name, "Stands for the module of torch while purexport.patch() is open.")
            setattr(module, function, _export_compat)
            sys.modules[name] = self._modules[name] = module

    def _clear(self) -> None:
        for name, module in self._modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        self._modules = {}
        # a module of torch.onnx that was loaded meanwhile took our functions for torch's
        self._replace({(name, id(ours)): before for _, name, before, ours in self._put if before is not _ABSENT})
        for holder, name, before, ours in reversed(self._put):
            if vars(holder).get(name) is ours:
                if before is _ABSENT:
                    delattr(holder, name)
                else:
                    setattr(holder, name, before)
        self._put = []

    def _replace(self, replacements: Mapping[tuple[str, int], Any]) -> None:
        """In every loaded module of torch.onnx, what it holds under the same name."""
        places = {(id(holder), name) for holder, name, _, _ in self._put}
        for module in [module for key, module in sys.modules.items() if f"{key}.".startswith("torch.onnx.")]:
            for name, value in list(vars(module).items()):
                if (name, id(value)) in replacements and (id(module), name) not in places:
                    setattr(module, name, replacements[name, id(value)])


_PLACES = _Places()


# What is put in place -------------------------------------------------------------------------------------------------


def _substitutes() -> Iterator[tuple[Any, str, Any]]:
    """(holder, name, what it becomes)."""
    from purexport import api, enums, operators, pipeline, symbolic_helper
    from purexport.symbolic import registry

    try:
        theirs: Any = torch.onnx
    except ImportError as error:
        raise ImportError(f"patch() replaces functions of torch.onnx, which cannot be loaded here: {error}") from error
    functions = {
        "export": pipeline.export,
        "_export": pipeline.export,
        "export_to_pretty_string": pipeline.export_to_pretty_string,
        "select_model_mode_for_export": api.select_model_mode_for_export,
    }
    registering = {
        "register_custom_op_symbolic": _both(theirs.register_custom_op_symbolic, registry.register_custom_op_symbolic),
        "unregister_custom_op_symbolic": _both(theirs.unregister_custom_op_symbolic, registry.REGISTRY.unregister),
    }
    passing_on = [sys.modules["torch.onnx.utils"]] if "torch.onnx.utils" in sys.modules else []
    for holder in dict.fromkeys([theirs, _utils(), *passing_on]):
        for name, function in (functions | registering).items():
            yield holder, name, function
    yield theirs, "ONNXProgram", api.ONNXProgram
    compat = sys.modules.get(_INNER[0])
    if compat is not None:
        yield compat, _INNER[1], _export_compat
    yield theirs.OperatorExportTypes, "RAW", enums.OperatorExportTypes.RAW
    for name in ("shape_as_tensor", "reshape_from_tensor_shape"):
        yield import_module(f"{theirs.__name__}.operators"), name, getattr(operators, name)
    helpers: Any = sys.modules[theirs.symbolic_helper.parse_args.__module__]
    for name, ours in _functions_of(symbolic_helper):
        yield helpers, name, _either(getattr(helpers, name, None), ours)
    yield helpers, "parse_args", _parse_args(helpers.parse_args, symbolic_helper.parse_args)
    yield helpers, "_parse_arg", _either(helpers._parse_arg, _parse_arg)
    scalar_type = helpers._type_utils.JitScalarType
    yield scalar_type, "from_value", classmethod(_from_value(vars(scalar_type)["from_value"].__func__))


def _utils() -> Any:
    """The module that defines the functions of torch.onnx.utils, which may only pass them on."""
    theirs: Any = torch.onnx
    return sys.modules[theirs.register_custom_op_symbolic.__module__]


def _functions_of(module: types.ModuleType) -> Iterable[tuple[str, Callable[..., Any]]]:
    """The functions that a module defines itself, but for decorators."""
    own = [(name, item) for name, item in vars(module).items() if isinstance(item, types.FunctionType)]
    decorators = ("parse_args", "quantized_args")
    return [(name, item) for name, item in own if item.__module__ == module.__name__ and name not in decorators]


def _both(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """Registers with both, so that torch.onnx knows afterwards what it would have known."""

    @functools.wraps(theirs)
    def call(symbolic_name: str, *rest: Any, **named: Any) -> None:
        name = f"aten{symbolic_name}" if symbolic_name.startswith("::") else symbolic_name  # an old form of ATen names
        ours(name, *rest, **named)
        theirs(name, *rest, **named)

    return call


def _is_ours(item: Any) -> bool:
    from purexport.symbolic.context import GraphContext
    from purexport.symbolic.values import Value

    items = item if isinstance(item, (list, tuple)) else (item,)
    return any(isinstance(each, (GraphContext, Value)) for each in items)


def _either(theirs: Callable[..., Any] | None, ours: Callable[..., Any]) -> Callable[..., Any]:
    """Ours where one of the arguments is a value of our graph, else torch's."""
    if theirs is None:
        return ours

    @functools.wraps(theirs)
    def call(*args: Any, **named: Any) -> Any:
        chosen = ours if any(map(_is_ours, (*args, *named.values()))) else theirs
        return chosen(*args, **named)

    return call


def _parse_args(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator of symbolic functions: which of the two it is shows when the function is called."""

    @functools.wraps(theirs)
    def decorator(*descriptors: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return lambda function: _either(theirs(*descriptors)(function), ours(*descriptors)(function))

    return decorator


def _parse_arg(value: Any, desc: str, arg_name: str | None = None, node_name: str | None = None) -> Any:
    """What functions that torch's own ``parse_args`` decorated do with a value of our graph."""
    from purexport import symbolic_helper

    return symbolic_helper.parsed(value, desc, arg_name or "an argument", node_name or "")


def _from_value(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def from_value(cls: Any, value: Any, default: Any = None) -> Any:
        if not _is_ours(value):
            return theirs(cls, value, default)
        dtype = value.type().dtype()
        return theirs(cls, None, default) if dtype is None else cls.from_dtype(dtype)

    return from_value


# what torch.onnx.export gives to its inner function when the caller said nothing, and what has no effect here
_UNSAID: Mapping[str, Any] = {
    "optimize": True,
    "profile": False,
    "dump_exported_program": False,
    "artifacts_dir": ".",
    "fallback": False,
}


def _export_compat(model: Any, args: Any, f: Any = None, **options: Any) -> Any:
    """In the place of the inner function, to which torch.onnx.export gives all its options."""
    from purexport import pipeline

    said = {name: value for name, value in options.items() if _UNSAID.get(name, _ABSENT) != value}
    return pipeline.export(model, args, f, **said)


# While an export runs -------------------------------------------------------------------------------------------------


def patched() -> bool:
    """Whether a ``patch`` is open in this process."""
    return _PLACES.active


@contextmanager
def told_to_torch(opset: int) -> Iterator[None]:
    """While a ``patch`` is open, an export is one for torch.onnx too: ``torch.onnx.is_in_onnx_export()`` is true."""
    if not _PLACES.active:
        yield
        return
    state = _utils().GLOBALS
    before = state._in_onnx_export, state._export_onnx_opset_version
    state._in_onnx_export, state._export_onnx_opset_version = True, opset
    try:
        yield
    finally:
        state._in_onnx_export, state._export_onnx_opset_version = before


@contextmanager
def errors_of_torch() -> Iterator[None]:
    """While a ``patch`` is open, our errors are torch.onnx's too, for those who catch these."""
    try:
        yield
    except ExportError as error:
        if _PLACES.active:
            theirs: Any = torch.onnx.errors
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
    """While a ``patch`` is open: what is registered with torch.onnx and applies at ``opset``.

    What libraries register for operators of their own for which there are rules here is left out.
    """
    if not _PLACES.active:
        return {}
    from purexport.lowering.registry import registered

    groups = _utils().registration.registry
    rules = registered()
    found = {}
    for name in sorted(groups.all_functions()):
        custom = groups.get_function_group(name)._functions._overrides
        fitting = [version for version in custom if version <= opset]
        if fitting and (name.startswith("aten::") or name not in rules):
            found[name] = custom[max(fitting)]
    return found
