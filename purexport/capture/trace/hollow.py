"""A trace of a model that has no values: on torch's fake tensors, which know shapes and compute nothing.

Inside a fake's own dispatch torch runs Python code that asks for sizes, and while a trace is recorded every size is a
tensor.  So recording pauses for each operator once it is noted.  What the model makes itself (``torch.arange``) is
real, so that numbers that follow from sizes are numbers, and so are arguments of whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from purexport.aten.graph import AtenGraph
from purexport.capture.core.module_tensors import Owned, placed
from purexport.errors import ExportError

State = list[tuple[str, str, torch.Tensor]]


@contextmanager
def on_fakes(owned: Sequence[Owned]) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Inside, fakes hang in the model; gives the function that makes others."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    pairs = []
    for item in owned:
        module, name = item.places[0]
        pairs.append((item, mode.from_tensor(getattr(module, name).detach())))
    with placed(pairs):
        # whole numbers are positions, lengths and masks, by which a model decides what it does
        yield lambda tensor: mode.from_tensor(tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor


def attributes(owned: Sequence[Owned]) -> State:
    """Tensors without values that hang in the model as plain attributes, which the trace takes as inputs too."""
    return [("constant", item.names[0], getattr(*item.places[0])) for item in owned if item.kind == "constant"]


def refuse_lost(graph: AtenGraph, owned: Sequence[Owned]) -> None:
    """Raise ExportError where the trace holds a fake as a constant: it lost what computes it."""
    known = {item.names[0] for item in owned}
    lost = [item for item in graph.inputs if isinstance(item.tensor, FakeTensor) and item.name not in known]
    if lost:
        call = next((call for call in graph.calls if any(item.value in call.inputs() for item in lost)), None)
        place = call.source if call is not None else "the model"
        raise ExportError(
            f"a trace without values lost what is computed before {place}; use capture='export', or a "
            "model with values",
            code="trace-without-values",
        )


@contextmanager
def paused() -> Iterator[None]:
    """Inside, the operators that torch's own Python code calls in its kernels are not recorded."""
    with _Paused():  # type: ignore[no-untyped-call]
        yield


class _Paused(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operators run without being recorded a second time."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        state = torch._C._get_tracing_state()
        if state is None:
            return func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution.default:
            return _recorded(lambda: torch.ops.aten._convolution.default(*args, False, False, True, True))
        _set_tracing(None)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            _set_tracing(state)


def _set_tracing(state: Any) -> None:
    _recorded(lambda: torch._C._set_tracing_state(state))  # type: ignore[attr-defined]


def _recorded(function: Callable[[], Any]) -> Any:
    """Run ``function`` as outside of the tracer, which keeps itself from what it calls."""
    key = torch._C._dispatch_key_parse("Tracer")
    was = torch._C._dispatch_tls_is_dispatch_key_excluded(key)
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        return function()
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, was)
