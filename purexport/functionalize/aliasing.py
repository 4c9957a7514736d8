"""Aliasing and dtype of a call, found by running it: does its result alias an argument, and which dtype does it have?

Whether `reshape`, `contiguous` or `to` copies depends on sizes and strides.  Composite operators (`meshgrid`,
`atleast_2d`, dropout in eval mode) may alias although their schema does not say so.  So torch runs the call on meta
tensors with the recorded sizes and strides.

An axis of size 1 may have any stride: torch copies no transpose of a single row.  So where sizes are those of an
example, the call is also run with other sizes (`shares_where_axes_are`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from purexport.aten.graph import AtenValue, Call, TensorType, map_values, values_in
from purexport.aten.memory import share_memory
from purexport.aten.names import operator_of
from purexport.aten.schema import MISSING, signature
from purexport.facts.fact import Aliases, ResultDtype
from purexport.facts.table import fact_of

_LAST = (1 << 63) - 1  # the end of a slice that has none


def shares_storage(call: Call, source: str) -> bool | None:
    """Whether the result aliases the argument; None when the sizes or strides that decide it are unknown."""
    given = call.args[source]
    if not isinstance(given, AtenValue):
        return None
    if not _is_known(given):
        return _shares_in_any_layout(call, given)
    result, made = _on_meta(call)
    if not isinstance(result, torch.Tensor) or given not in made:
        return None
    return share_memory(result, made[given])


def _shares_in_any_layout(call: Call, given: AtenValue) -> bool | None:
    """Whether the result aliases an argument of unknown sizes or strides: the answer for a few of them if it is one.

    A cast to another dtype copies, and one to the same dtype does not, however the argument lies in memory.
    """
    if not isinstance(given.type, TensorType) or given.type.shape is None:
        return None
    answers = set()
    for size in (1, 3):
        shape = [dim if isinstance(dim, int) else size + axis * (size > 1) for axis, dim in enumerate(given.type.shape)]
        plain = torch.empty(shape, device="meta").stride()
        backwards = torch.empty(shape[::-1], device="meta").stride()[::-1]
        for strides in (plain, backwards, [2 * stride for stride in plain]):
            result, made = _on_meta(call, {given: TensorType(given.type.dtype, tuple(shape), tuple(strides))})
            if not isinstance(result, torch.Tensor) or given not in made:
                return None
            answers.add(share_memory(result, made[given]))
    return answers.pop() if len(answers) == 1 else None


def shares_where_axes_are(size: int, call: Call, source: str, any_order: bool = True) -> set[bool]:
    """Whether the result aliases the argument where the argument's axes have `size`, one by one and together.

    Only axes change that are 1 or become 1.  Empty where there are none, and where torch does not run the call.
    Strides do not tell the order of two axes of size 1; without `any_order` it is that of the axes.
    """
    given = call.args[source]
    type_ = given.tensor
    axes = [axis for axis, was in enumerate(type_.shape or ()) if was not in (0, size) and 1 in (was, size)]
    found = set()
    for changed in [*([axis] for axis in axes), axes[::-1], *([axes] if any_order else [])]:
        shape, strides, results = list(type_.shape or ()), list(type_.known_strides or ()), _sizes_of_result(call)
        for axis in changed:
            results = _in_place_of(shape[axis], size, results)
            _resize(shape, strides, axis, size)
        other = TensorType(type_.dtype, tuple(shape), tuple(strides))
        result, made = _on_meta(call, {given: other}, results)
        if isinstance(result, torch.Tensor) and given in made:
            found.add(share_memory(result, made[given]))
    return found


def shares_if_whole(call: Call, source: str) -> bool:
    """Whether the result aliases an argument of the recorded sizes that is no part of a larger tensor."""
    given = call.args[source]
    plain = torch.empty(_sizes(given.tensor), device="meta").stride()
    result, made = _on_meta(call, {given: TensorType(given.tensor.dtype, given.tensor.shape, plain)})
    return isinstance(result, torch.Tensor) and given in made and share_memory(result, made[given])


def is_bounded(view: Call) -> bool:
    """Whether a slice has an end, so that it takes all of an axis at some sizes and a part at others."""
    return view.base == "aten::slice" and view.args["end"] not in (None, _LAST)


def _resize(shape: list[int], strides: list[int], axis: int, size: int) -> None:
    """Change the size of an axis, and the strides of the axes outside of it."""
    was = shape[axis]
    for other, stride in enumerate(strides):
        if other != axis and stride >= strides[axis] * was > 0:
            strides[other] = stride * size // was
    shape[axis] = size


def _in_place_of(was: int, size: int, shape: Sequence[int]) -> list[int]:
    """The sizes of a result, of which one is, or has as a factor, the size of an argument that changes."""
    found = list(shape)
    place = found.index(was) if was in found else next((at for at, dim in enumerate(found) if dim % was == 0), None)
    if place is not None:
        found[place] = found[place] // was * size
    return found


def _sizes_of_result(call: Call) -> list[int]:
    return _sizes(call.outputs[0].type) if isinstance(call.outputs[0].type, TensorType) else []


def seen_by(view: Call, base: torch.Tensor) -> Any:
    """The result of `view` with `base` as the viewed tensor; None where the call needs other values of the graph."""
    source = signature(view.target).aliased() or next(iter(view.args))
    others = [value for name, arg in view.args.items() if name != source for value in values_in([arg])]
    return None if others else _call(view.target, view.args, lambda _: base)


def hidden_sources(call: Call) -> list[AtenValue]:
    """The arguments that a result of a composite operator aliases although its schema does not say so."""
    if fact_of(call.target).aliases is Aliases.UNKNOWN:
        return list(values_in(call.args.values()))
    if not call.outputs or not _is_composite(call.target):
        return []
    result, made = _on_meta(call)
    results = result if isinstance(result, (list, tuple)) else [result]
    return [value for value, tensor in made.items() if any(share_memory(item, tensor) for item in results)]


def result_dtype(target: str, args: dict[str, Any]) -> torch.dtype | None:
    """The dtype of a pure call; None when it is that of `self`, without any type promotion.

    Where operands could be promoted, torch runs the call on meta tensors to tell the dtype.
    """
    own = args.get("self")
    operands = [arg for name, arg in args.items() if name != "self"]
    numbers = any(isinstance(arg, (float, complex)) and not isinstance(arg, bool) for arg in operands)
    tensors = [arg for arg in operands if isinstance(arg, AtenValue) and isinstance(arg.type, TensorType)]
    if isinstance(own, AtenValue) and isinstance(own.type, TensorType):
        plain = all(arg.tensor.dtype == own.tensor.dtype for arg in tensors)
        said = fact_of(target).result_dtype
        wider = said is ResultDtype.INTEGERS and not own.tensor.dtype.is_floating_point
        others = said is ResultDtype.ALWAYS or wider
        if plain and (own.tensor.dtype.is_floating_point or not numbers) and not others:
            return None
    parameters = {item.name: item for item in signature(target).parameters}
    call = {name: arg for name, arg in args.items() if arg != parameters[name].default or arg is MISSING}
    dynamic = not all(_is_known(value) for value in values_in(args.values()) if isinstance(value.type, TensorType))

    def make(type_: TensorType) -> torch.Tensor:
        # where sizes are unknown, sizes of 1 stand for them, because these always broadcast
        shape = [1] * len(type_.shape or ()) if dynamic else _sizes(type_)
        return torch.empty(shape, dtype=type_.dtype, device="meta")

    result = _run(target, call, make)
    return result.dtype if isinstance(result, torch.Tensor) else None


@functools.cache
def _is_composite(target: str) -> bool:
    """True for operators written in terms of others, whose schemas may leave out aliasing."""
    if fact_of(target).aliases is Aliases.NEVER or any(parameter.alias for parameter in signature(target).parameters):
        return False
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(target, "CompositeImplicitAutograd"))
    except RuntimeError:
        return False  # an operator of TorchScript alone, such as aten::ScalarImplicit


def _is_known(value: AtenValue) -> bool:
    type_ = value.type
    return (
        isinstance(type_, TensorType)
        and type_.known_strides is not None
        and type_.shape is not None
        and all(isinstance(dim, int) for dim in type_.shape)
    )


def _sizes(type_: TensorType) -> list[int]:
    return [dim if isinstance(dim, int) else 2 for dim in type_.shape or ()]


def _on_meta(
    call: Call, types: Mapping[AtenValue, TensorType] | None = None, results: Sequence[int] | None = None
) -> tuple[Any, dict[AtenValue, torch.Tensor]]:
    """The result of the call on meta tensors, and the tensor that stood for each value.

    `types` are those of arguments, and `results` the sizes of the result, where they are not the recorded ones.
    """
    made: dict[AtenValue, torch.Tensor] = {}
    args = dict(call.args)
    if isinstance(args.get("device"), torch.device):
        args["device"] = torch.device("meta")
    # the recorded result has the sizes that the graph computes
    output = call.outputs[0].type
    for name in ("shape", "size"):
        if name in args and isinstance(output, TensorType) and _is_known(call.outputs[0]):
            args[name] = list(output.shape or ()) if results is None else list(results)

    def make(value: AtenValue) -> torch.Tensor:
        type_ = (types or {}).get(value, value.tensor)
        if value not in made:
            shape = _sizes(type_)
            plain = torch.empty(shape, device="meta").stride()
            known = type_.known_strides
            strides = known if known is not None and len(known) == len(shape) else plain
            made[value] = torch.empty_strided(shape, strides, dtype=type_.dtype, device="meta")
        return made[value]

    return _call(call.target, args, make), made


def _run(target: str, args: dict[str, Any], make: Callable[[TensorType], torch.Tensor]) -> Any:
    return _call(target, args, lambda value: make(value.tensor))


def _call(target: str, args: Mapping[str, Any], make: Callable[[AtenValue], torch.Tensor]) -> Any:
    """The operator's result with a tensor in place of each value; None where it does not run on those."""

    def convert(value: AtenValue) -> Any:
        return make(value) if isinstance(value.type, TensorType) else 2

    operator = operator_of(target)
    if operator is None:
        return None
    try:
        with torch.no_grad():
            return operator(**{key: map_values(arg, convert) for key, arg in args.items()})
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError, NotImplementedError):
        return None
