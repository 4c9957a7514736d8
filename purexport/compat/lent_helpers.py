"""The helpers of torch.onnx for symbolic functions, which are to take our values as well as torch's own.

Symbolic functions call `torch.onnx.symbolic_helper` and the functions of `symbolic_opset9` and later.  While a `patch`
is open, their inner helpers take our values.  An export outside of `patch` has the same from its first symbolic
function on: nothing else of torch.onnx is replaced then, and nothing is as long as torch.onnx is not loaded.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from purexport import symbolic_helper
from purexport.compat.symbolic.context import GraphContext
from purexport.compat.symbolic.values import SymbolicValue
from purexport.compat.torch_onnx import PLACES


@contextmanager
def lending(opset: int) -> Iterator[Callable[[], None]]:
    """Gives a function: from its first call with torch.onnx loaded until the end, the helpers take our values too."""
    with ExitStack() as stack:
        opened: list[Any] = []

        def lend() -> None:
            if not opened and "torch.onnx" in sys.modules:
                opened.append(stack.enter_context(PLACES.lend(substitutes, opset)))

        yield lend


def substitutes() -> Iterator[tuple[Any, str, Any]]:
    """(holder, name, what it becomes) for the helpers of torch.onnx."""
    theirs: Any = torch.onnx
    helpers: Any = sys.modules[theirs.symbolic_helper.parse_args.__module__]
    for name, ours in _functions_of(symbolic_helper):
        yield helpers, name, _either(getattr(helpers, name, None), ours)
    yield helpers, "parse_args", _parse_args(helpers.parse_args, symbolic_helper.parse_args)
    yield helpers, "_parse_arg", _either(helpers._parse_arg, _parse_arg)
    scalar_type = helpers._type_utils.JitScalarType
    yield scalar_type, "from_value", classmethod(_from_value(vars(scalar_type)["from_value"].__func__))


def _functions_of(module: types.ModuleType) -> Iterable[tuple[str, Callable[..., Any]]]:
    """The functions that a module defines itself, without its decorators."""
    own = [(name, item) for name, item in vars(module).items() if isinstance(item, types.FunctionType)]
    decorators = ("parse_args", "quantized_args")
    return [(name, item) for name, item in own if item.__module__ == module.__name__ and name not in decorators]


def _is_ours(item: Any) -> bool:
    items = item if isinstance(item, (list, tuple)) else (item,)
    return any(isinstance(each, (GraphContext, SymbolicValue)) for each in items)


def _either(theirs: Callable[..., Any] | None, ours: Callable[..., Any]) -> Callable[..., Any]:
    """Our function if one of the arguments is a value of our graph, else torch's."""
    if theirs is None:
        return ours

    @functools.wraps(theirs)
    def call(*args: Any, **named: Any) -> Any:
        chosen = ours if any(map(_is_ours, (*args, *named.values()))) else theirs
        return chosen(*args, **named)

    return call


def _parse_args(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator of symbolic functions: the call of the function decides between torch's and ours."""

    @functools.wraps(theirs)
    def decorator(*descriptors: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return lambda function: _either(theirs(*descriptors)(function), ours(*descriptors)(function))

    return decorator


def _parse_arg(value: Any, desc: str, arg_name: str | None = None, node_name: str | None = None) -> Any:
    """Converts a value of our graph for functions that torch's own `parse_args` decorated."""
    return symbolic_helper.parsed(value, desc, arg_name or "an argument", node_name or "")


def _from_value(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def from_value(cls: Any, value: Any, default: Any = None) -> Any:
        if not _is_ours(value):
            return theirs(cls, value, default)
        dtype = value.type().dtype()
        return theirs(cls, None, default) if dtype is None else cls.from_dtype(dtype)

    return from_value
