"""Operators that are not recorded as they are: questions about sizes and elements, checks, and literals.

A row takes the recorder, the operator and its arguments.  NotImplemented means that the call is recorded after all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from purexport.frontends.core.fake_quantization import fake_quantized
from purexport.frontends.trace.tensors import QUESTIONS, Recorded
from purexport.torch_patches.before_composites import below

_aten = torch.ops.aten
_BY_DATA = "a truth value"


def _question(recorder: Any, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if type(args[0]) is Recorded:
        return QUESTIONS[overload](*args, **kwargs)
    with below():
        return overload(*args, **kwargs)


def _first(recorder: Any, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What gives its argument itself, and changes nothing except how gradients flow."""
    if torch.is_grad_enabled() and type(args[0]) is Recorded:
        with below():
            overload(*args, **kwargs)
    return args[0]


def _nothing(recorder: Any, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A check, or a mark for a profiler."""


def _literal(recorder: Any, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A tensor that was made of numbers: a constant, of which the model gets a copy that it may write to."""
    if type(args[0]) is Recorded:
        return args[0]
    return recorder.recorded(_aten.clone.default, args, {})


def _item(recorder: Any, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    tensor = args[0]
    recorded = tensor if type(tensor) is Recorded else recorder.recorded(_aten.alias.default, (tensor,), {})
    number = recorder.elements.number_of(recorded)
    if not recorded.free:
        return number
    if not isinstance(number, (int, float)) or isinstance(number, bool) or math.isnan(number):
        recorder.note_data(recorded, _BY_DATA if isinstance(number, bool) else "a number")
        return number
    return recorder.number_of(recorded, "aten::item", {"self": recorded.value}, type(number), number)


def _truth(recorder: Any, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    recorded = args[0] if type(args[0]) is Recorded else recorder.recorded(_aten.alias.default, args, {})
    found: bool = recorder.questions.truth(recorded)
    return found


def _verdict(recorder: Any, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """A truth value of several tensors."""
    for item in args:
        if type(item) is Recorded and item.free:
            recorder.note_data(item, _BY_DATA)
    return bool(recorder.elements.result_of(recorder.operator(overload), args, kwargs))


def _fake_quantized(recorder: Any, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Fake quantization, which reads and writes the state of its observer only while that is on."""
    return NotImplemented if args[1].any() else fake_quantized(*args, **kwargs)


def _about_quantization(recorder: Any, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The scale of a quantized tensor or the like, which are its layers' constants unless the data decides them."""
    if type(args[0]) is not Recorded:
        return NotImplemented
    if any(entry.operator.target.startswith("aten::quantize_per_tensor_dynamic") for entry in recorder.log):
        recorder.note_data(args[0], "the scale of a tensor")
    return recorder.elements.result_of(recorder.operator(overload), args, kwargs)


def _slice(recorder: Any, overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A slice up to `-n`, where code has made sure that `n` is positive, ends `n` before the end for any `n`.

    For 0 it would be empty, which such code keeps out: `if n > 0: x = x[:-n]`.  So it is right on the other way too.
    """
    end = args[3] if len(args) > 3 else None
    if type(args[0]) is not Recorded or not isinstance(end, torch.SymInt) or end.node.size is None:
        return NotImplemented
    if end.node.example >= 0 or not recorder.decisions.is_positive_by_path(-end.node.size):
        return NotImplemented
    return recorder.recorded(overload, [*args[:3], args[0].shape[args[1]] + end, *args[4:]], kwargs)


Special = Callable[[Any, Any, Sequence[Any], Mapping[str, Any]], Any]

SPECIALS: dict[Any, Special] = {
    **dict.fromkeys(QUESTIONS, _question),
    **dict.fromkeys((_aten.detach_.default, _aten.requires_grad_.default), _first),
    **dict.fromkeys((_aten.resolve_conj.default, _aten.resolve_neg.default), _first),
    **dict.fromkeys((_aten._assert_async.default, _aten._assert_async.msg, _aten._assert_scalar.default), _nothing),
    _aten._assert_tensor_metadata.default: _nothing,
    torch.ops.profiler._record_function_exit._RecordFunction: _nothing,
    _aten.lift_fresh.default: _literal,
    _aten.slice.Tensor: _slice,
    _aten.item.default: _item,
    _aten._local_scalar_dense.default: _item,
    _aten.is_nonzero.default: _truth,
    _aten.fused_moving_avg_obs_fake_quant.default: _fake_quantized,
    **dict.fromkeys((_aten.q_scale.default, _aten.q_zero_point.default), _about_quantization),
    **dict.fromkeys((_aten.q_per_channel_axis.default, _aten.qscheme.default), _about_quantization),
    _aten.equal.default: _verdict,
    _aten.allclose.default: _verdict,
}
