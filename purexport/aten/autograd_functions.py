"""Autograd Functions with a `symbolic` method become one call each in the graph, on every route.

While `recording` is on, applying such a Function calls our own operator `purexport_autograd::function`.  This operator
runs the Function's `forward`, both as its kernel and as its shape function.  A trace and torch.export record that one
call.  The lowering asks `AutogradFunctions` for the class and the arguments of its `key`.

What a Function without one calls is recorded.

Invariant: only the thread that records is affected.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from proto_schema.wire.records import dataclass
from purexport.aten.memory import storage_of
from purexport.aten.names import operator_of, parsed
from purexport.errors import ExportError
from purexport.torch_patches.autograd import (
    APPLIED_IN_C,
    applied_by,
    forward_handed_to,
    left_whole_by_dynamo,
    plain_apply,
)

TARGET = "purexport_autograd::function"
_SCHEMA = "function(Tensor[] tensors, SymInt[] sizes, int key) -> Tensor[]"


@dataclass(frozen=True)
class ArgumentSlot:
    """The place of a tensor (`"tensors"`) or of a symbolic size (`"sizes"`) among the arguments."""

    kind: str
    index: int


@dataclass
class FunctionCall:
    """One application: the class, its arguments (slots replace the tensors and symbolic sizes), and its result."""

    function: Any
    leaves: list[Any]
    spec: Any
    result: Any = None
    dtypes: list[torch.dtype] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The class as its module names it."""
        return str(self.function.__qualname__)

    def arguments(self, tensors: Sequence[Any], sizes: Sequence[Any]) -> list[Any]:
        """The arguments of `forward` and `symbolic`, in order, with `tensors` and `sizes` in the slots."""
        carried = {"tensors": tensors, "sizes": sizes}
        filled = [carried[leaf.kind][leaf.index] if isinstance(leaf, ArgumentSlot) else leaf for leaf in self.leaves]
        return list(pytree.tree_unflatten(filled, self.spec))

    def results(self, tensors: Sequence[Any]) -> Any:
        """What `forward` returned, with these tensors in the slots."""
        return pytree.tree_map(
            lambda leaf: tensors[leaf.index] if isinstance(leaf, ArgumentSlot) else leaf, self.result
        )

    def run(self, tensors: Sequence[torch.Tensor], sizes: Sequence[Any]) -> list[torch.Tensor]:
        """Run `forward`, as the kernel of the operator.

        A result that aliases an argument is copied, because the operator's schema declares no aliasing.
        Raises ExportError when `forward` writes to an argument, which a symbolic cannot express.
        """
        versions = [_version(tensor) for tensor in tensors]
        result = plain_apply(self.function)(*self.arguments(tensors, sizes))
        if [_version(tensor) for tensor in tensors] != versions:
            raise ExportError(
                f"the autograd Function {self.name} writes to its argument, and its symbolic cannot express that; "
                "write to a copy in forward, or remove symbolic",
                code="autograd-function",
            )
        leaves, spec = pytree.tree_flatten(result)
        found = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        places = iter(range(len(found)))
        slots = [ArgumentSlot("tensors", next(places)) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.result, self.dtypes = pytree.tree_unflatten(slots, spec), [item.dtype for item in found]
        taken = {storage_of(tensor) or id(tensor) for tensor in tensors}
        return [item.clone() if (storage_of(item) or id(item)) in taken else item for item in found]


class AutogradFunctions:
    """The applications in the captures of one model, by key."""

    def __init__(self) -> None:
        self.calls: list[FunctionCall] = []

    def record(self, function: Any, args: Sequence[Any]) -> Any:
        """Apply `function` as one call of our operator."""
        leaves, spec = pytree.tree_flatten(list(args))
        carried: dict[str, list[Any]] = {"tensors": [], "sizes": []}
        slots = []
        for leaf in leaves:
            kind = _kind(function, leaf)
            if kind is not None:
                carried[kind].append(leaf)
            slots.append(leaf if kind is None else ArgumentSlot(kind, len(carried[kind]) - 1))
        call = FunctionCall(function, slots, spec)
        self.calls.append(call)
        return call.results(_operator()(carried["tensors"], carried["sizes"], len(self.calls) - 1))


_ACTIVE: ContextVar[AutogradFunctions | None] = ContextVar("purexport_functions", default=None)


@contextmanager
def recording(functions: AutogradFunctions) -> Iterator[None]:
    """Record each Function with a `symbolic` as one call of `functions`, in this thread.

    One export does so at a time (`alone`).
    """
    token = _ACTIVE.set(functions)
    stored = _with_symbolic() if APPLIED_IN_C else ()
    try:
        with applied_by(_apply), forward_handed_to(_forward_called, stored):
            yield
    finally:
        _ACTIVE.reset(token)


def single_calls_in_bodies() -> AbstractContextManager[None]:
    """Record Functions with a `symbolic` as one call each also in the bodies of `torch.cond` and similar operators."""
    return left_whole_by_dynamo(_with_symbolic())


def _with_symbolic() -> list[Any]:
    """All classes of Functions with a `symbolic`."""
    return [kind for kind in _subclasses(torch.autograd.Function) if callable(getattr(kind, "symbolic", None))]


def _subclasses(kind: Any) -> Iterator[Any]:
    for item in kind.__subclasses__():
        yield item
        yield from _subclasses(item)


def _apply(function: Any, *args: Any, **kwargs: Any) -> Any:
    functions = _ACTIVE.get()
    if functions is not None and not kwargs and callable(getattr(function, "symbolic", None)):
        return functions.record(function, args)
    return plain_apply(function)(*args, **kwargs)


def _forward_called(function: Any, forward: Any, args: Sequence[Any]) -> Any:
    """`forward` was called, with a context first unless `setup_context` takes it: by an `apply` stored before."""
    functions = _ACTIVE.get()
    if functions is None:
        return forward(*args)
    if _takes_context(function):
        if not args or not isinstance(args[0], function._backward_cls):
            return forward(*args)  # `forward` of another Function calls it, with a context of its own
        args = args[1:]
    return functions.record(function, args)


def _takes_context(function: Any) -> bool:
    return function.setup_context is torch.autograd.Function.setup_context


@functools.cache
def _operator() -> Any:
    """Our operator.  It is declared to torch when it is first needed, and stays until the process ends."""
    name = parsed(TARGET)
    library: Any = torch.library.Library(name.namespace, "DEF")  # type: ignore[no-untyped-call]
    library.define(_SCHEMA)
    library.impl(name.name, _run, "CompositeExplicitAutograd")
    torch.library.register_fake(TARGET, _run, lib=library)
    _operator.library = library  # type: ignore[attr-defined]  # torch removes the operator when this object dies
    return operator_of(TARGET)


def _run(tensors: Sequence[torch.Tensor], sizes: Sequence[Any], key: int) -> list[torch.Tensor]:
    functions = _ACTIVE.get()
    if functions is None:
        raise RuntimeError(f"{TARGET} runs during an export only")
    token = _ACTIVE.set(None)  # a Function that forward applies is part of forward, not a call of its own
    try:
        return functions.calls[key].run(tensors, sizes)
    finally:
        _ACTIVE.reset(token)


def _kind(function: Any, leaf: Any) -> str | None:
    if isinstance(leaf, torch.Tensor):
        return "tensors"
    if isinstance(leaf, torch.SymInt):
        return "sizes"
    if isinstance(leaf, (torch.SymFloat, torch.SymBool)):
        raise ExportError(
            f"the autograd Function {function.__qualname__} takes a number that follows from a dynamic size; "
            "pass it as a tensor",
            code="autograd-function",
        )
    return None


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
