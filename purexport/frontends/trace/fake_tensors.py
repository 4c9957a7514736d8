"""A model without values is traced on torch's fake tensors, which have shapes and compute nothing.

Inside the dispatch of a fake tensor, torch runs Python code that asks for sizes, and while a trace is recorded every
size is a tensor.  So once an operator is recorded, recording pauses until its kernel returns.  Tensors that the model
makes itself (`torch.arange`) are real, so that numbers computed from sizes are known.  Integer arguments are real, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from purexport.aten.graph import AtenGraph
from purexport.errors import ExportError
from purexport.frontends.core.module_tensors import ModuleTensor, placed
from purexport.frontends.trace.replay import Kernels, is_large_product
from purexport.frontends.trace.shapes_of_calls import Shaped
from purexport.torch_patches.calls import Handler, operators_handed_to
from purexport.torch_patches.torch_jit import tracing_state
from purexport.torch_patches.tracer import traced_in_kernels, untraced

State = list[tuple[str, str, torch.Tensor]]


@contextmanager
def on_fakes(owned: Sequence[ModuleTensor]) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Inside, fake tensors replace the model's tensors without values; yields the function that makes further fakes."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    pairs = []
    for item in owned:
        module, name = item.places[0]
        pairs.append((item, mode.from_tensor(getattr(module, name).detach())))
    with placed(pairs):
        # integer tensors are positions, lengths and masks, and the model's control flow may depend on them
        yield lambda tensor: mode.from_tensor(tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor


def attributes(owned: Sequence[ModuleTensor]) -> State:
    """Tensors without values that are plain attributes of the model; the trace takes them as inputs too."""
    return [("constant", item.names[0], getattr(*item.places[0])) for item in owned if item.kind == "constant"]


def refuse_lost(graph: AtenGraph, owned: Sequence[ModuleTensor]) -> None:
    """Raise ExportError where the trace has a fake tensor as a constant: the calls that compute it were lost."""
    known = {item.names[0] for item in owned}
    lost = [item for item in graph.inputs if isinstance(item.tensor, FakeTensor) and item.name not in known]
    if lost:
        call = next((call for call in graph.calls if any(item.value in call.inputs() for item in lost)), None)
        place = call.source if call is not None else "the model"
        raise ExportError(
            f"a trace without values does not record the computation before {place}; use capture='export', or a "
            "model with values",
            code="trace-without-values",
        )


def paused() -> AbstractContextManager[None]:
    """Inside, operators that torch's Python kernels call are not recorded in addition to the outer operator."""
    shaped = Shaped()

    def run(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _paused(shaped, overload, args, kwargs)

    return operators_handed_to(run)


def for_shapes() -> AbstractContextManager[None]:
    """Inside, products of large matrices, and what follows from them, have only the right shape: nobody has written
    their elements.

    Where the model asks for such an element, UnfitError ends the run.  All else is computed: a model may keep a table
    for this length in a place of its own, as behind `functools.lru_cache`, and use it again after the export.
    """
    kernels = Kernels((), is_large_product)

    def run(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _paused(kernels.run, overload, args, kwargs)

    return operators_handed_to(run)


def _paused(run: Handler, overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if tracing_state() is None:
        return run(overload, args, kwargs)
    if overload is torch.ops.aten.convolution.default:  # the tracer records the other operator only
        with traced_in_kernels(), operators_handed_to(partial(_paused, run)):
            return torch.ops.aten._convolution.default(*args, False, False, True, True)
    with untraced():
        return run(overload, args, kwargs)
