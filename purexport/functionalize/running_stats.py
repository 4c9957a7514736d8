"""Normalisation in training mode writes to its running statistics, and its schema does not say so.

The new values follow torch's documentation of BatchNorm and InstanceNorm: ``(1 - momentum) * running + momentum *
observed``, with the unbiased variance; an instance's statistics are averaged over the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from purexport.aten.graph import Call, TensorType, Value

Emit = Callable[[Call], None]
New = Callable[[Value, Emit], Value]

# operator -> the argument that says that the input's own statistics are used
_SWITCHES = {
    "aten::batch_norm": "training",
    "aten::native_batch_norm": "training",
    "aten::cudnn_batch_norm": "training",
    "aten::_batch_norm_impl_index": "training",
    "aten::instance_norm": "use_input_stats",
}


def new_statistics(call: Call) -> dict[str, New]:
    """What ``call`` writes besides its result: by argument name, a function that emits the new value."""
    switch = _SWITCHES.get(call.base)
    if switch is None or not call.args[switch] or call.args.get("running_mean") is None:
        return {}
    return {
        "running_mean": lambda running, emit: _blend(call, running, _mean(call, emit), emit),
        "running_var": lambda running, emit: _blend(call, running, _variance(call, emit), emit),
    }


def _blend(call: Call, running: Value, observed: Value, emit: Emit) -> Value:
    momentum = call.args["momentum"] if "momentum" in call.args else call.args["exponential_average_factor"]
    kept = _emitted(call, emit, "aten::mul.Tensor", running.type, self=running, other=1 - momentum)
    same = observed
    if observed.tensor.dtype != running.tensor.dtype:
        convert = {"dtype": running.tensor.dtype, "non_blocking": False, "copy": False, "memory_format": None}
        same = _emitted(call, emit, "aten::to.dtype", running.type, self=observed, **convert)
    return _emitted(call, emit, "aten::add.Tensor", running.type, self=kept, other=same, alpha=momentum)


def _mean(call: Call, emit: Emit) -> Value:
    input_, dims, type_ = _observed(call)
    return _emitted(call, emit, "aten::mean.dim", type_, self=input_, dim=dims, keepdim=False, dtype=None)


def _variance(call: Call, emit: Emit) -> Value:
    input_, dims, type_ = _observed(call)
    options: dict[str, Any] = {"correction": 1, "keepdim": False}
    if call.base != "aten::instance_norm":
        return _emitted(call, emit, "aten::var.correction", type_, self=input_, dim=dims, **options)
    shape = (input_.tensor.shape or (None, None))[:2]
    each = TensorType(type_.dtype, shape)
    alone = _emitted(call, emit, "aten::var.correction", each, self=input_, dim=dims[1:], **options)
    return _emitted(call, emit, "aten::mean.dim", type_, self=alone, dim=[0], keepdim=False, dtype=None)


def _observed(call: Call) -> tuple[Value, list[int], TensorType]:
    """The input, its axes but the channels, and the type of a statistic."""
    input_: Value = call.args["input"]
    shape = input_.tensor.shape or ()
    return input_, [0, *range(2, len(shape))], TensorType(input_.tensor.dtype, shape[1:2])


def _emitted(call: Call, emit: Emit, target: str, type_: Any, **args: Any) -> Value:
    result = Value(type_)
    emit(Call(target, args, [result], call.source))
    return result
