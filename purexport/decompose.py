"""The safety net: one call without a rule, expanded by torch's own decomposition of that one call.

The call is traced on fake tensors of its recorded types, its decomposition is recorded, and the pieces come back as a
neutral graph.  Only calls whose sizes are all known are expanded, since the pieces would hold the sizes fixed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from purexport.capture.aten import AtenGraph, Call, Input, TensorType, Value, map_values
from purexport.capture.exported import read_module


def expand(call: Call) -> AtenGraph | None:
    """The pieces of ``call`` as a graph over the call's own input values; None when it cannot be expanded."""
    overload = _overload(call.target)
    values = list(dict.fromkeys(call.inputs()))
    if overload is None or not all(_is_static(value) for value in (*values, *call.outputs)):
        return None
    if not overload.has_kernel_for_dispatch_key("CompositeImplicitAutograd") and overload not in _table():
        return None

    def run(*tensors: torch.Tensor) -> Any:
        known = dict(zip(values, tensors, strict=True))
        return overload(**{name: map_values(arg, known.__getitem__) for name, arg in call.args.items()})

    examples = [_example(value.tensor) for value in values]
    try:
        module = make_fx(run, decomposition_table=_table(), tracing_mode="fake")(*examples)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    graph = AtenGraph(inputs=[Input(value, f"input_{index}", "user") for index, value in enumerate(values)])
    read_module(module, graph)
    if any(piece.target == call.target for piece in graph.calls):
        return None
    return graph


def _is_static(value: Value) -> bool:
    type_ = value.type
    return (
        isinstance(type_, TensorType) and type_.shape is not None and all(isinstance(dim, int) for dim in type_.shape)
    )


def _example(type_: TensorType) -> torch.Tensor:
    shape = [dim for dim in type_.shape or () if isinstance(dim, int)]
    return torch.empty(shape, dtype=type_.dtype, device="meta")


def _table() -> dict[Any, Any]:
    from torch._decomp import core_aten_decompositions

    return dict(core_aten_decompositions())


def _overload(target: str) -> Any:
    namespace, _, rest = target.partition("::")
    name, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    except AttributeError:
        return None
