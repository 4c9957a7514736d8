"""Normalization in training mode writes to its running statistics, although its schema does not say so.

The new values follow torch's documentation of BatchNorm and InstanceNorm: `(1 - momentum) * running + momentum *
observed`, with the unbiased variance.  For InstanceNorm the statistics of the instances are averaged over the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from purexport.aten.graph import AtenValue, Call, TensorType
from purexport.facts.fact import Statistics
from purexport.facts.table import fact_of

Emit = Callable[[Call], None]
New = Callable[[AtenValue, Emit], AtenValue]


def new_statistics(call: Call) -> dict[str, New]:
    """The running statistics that `call` writes: by argument name, a function that emits the new value."""
    said = fact_of(call.target).statistics
    if said is None or not call.args[said.switch] or call.args.get("running_mean") is None:
        return {}
    return {
        "running_mean": lambda running, emit: _blend(said, call, running, _mean(call, emit), emit),
        "running_var": lambda running, emit: _blend(said, call, running, _variance(said, call, emit), emit),
    }


def _blend(said: Statistics, call: Call, running: AtenValue, observed: AtenValue, emit: Emit) -> AtenValue:
    momentum = call.args[said.momentum]
    kept = _emitted(call, emit, "aten::mul.Tensor", running.type, self=running, other=1 - momentum)
    same = observed
    if observed.tensor.dtype != running.tensor.dtype:
        convert = {"dtype": running.tensor.dtype, "non_blocking": False, "copy": False, "memory_format": None}
        same = _emitted(call, emit, "aten::to.dtype", running.type, self=observed, **convert)
    return _emitted(call, emit, "aten::add.Tensor", running.type, self=kept, other=same, alpha=momentum)


def _mean(call: Call, emit: Emit) -> AtenValue:
    input_, dims, type_ = _observed(call)
    return _emitted(call, emit, "aten::mean.dim", type_, self=input_, dim=dims, keepdim=False, dtype=None)


def _variance(said: Statistics, call: Call, emit: Emit) -> AtenValue:
    input_, dims, type_ = _observed(call)
    options: dict[str, Any] = {"correction": 1, "keepdim": False}
    if not said.by_instance:
        return _emitted(call, emit, "aten::var.correction", type_, self=input_, dim=dims, **options)
    shape = (input_.tensor.shape or (None, None))[:2]
    each = TensorType(type_.dtype, shape)
    alone = _emitted(call, emit, "aten::var.correction", each, self=input_, dim=dims[1:], **options)
    return _emitted(call, emit, "aten::mean.dim", type_, self=alone, dim=[0], keepdim=False, dtype=None)


def _observed(call: Call) -> tuple[AtenValue, list[int], TensorType]:
    """The input, its axes except that of the channels, and the type of a statistic."""
    input_: AtenValue = call.args["input"]
    shape = input_.tensor.shape or ()
    return input_, [0, *range(2, len(shape))], TensorType(input_.tensor.dtype, shape[1:2])


def _emitted(call: Call, emit: Emit, target: str, type_: Any, **args: Any) -> AtenValue:
    result = AtenValue(type_)
    emit(Call(target, args, [result], call.source))
    return result
