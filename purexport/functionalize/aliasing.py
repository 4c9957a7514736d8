"""What torch itself says of a call: whether its result shares an argument's storage, and which dtype it has.

Whether ``reshape``, ``contiguous`` or ``to`` copies depends on sizes and strides, and composite operators
(``meshgrid``, ``atleast_2d``, dropout that is off) share without saying so in their schema.  Torch is asked, on meta
tensors of the recorded sizes and strides.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from purexport.aten.graph import Call, TensorType, Value, map_values, values_in
from purexport.aten.names import base_of, operator_of
from purexport.aten.schema import MISSING, signature

# Views by annotation, or by their code, that copy when they must (or share when they can).
MAY_SHARE = frozenset(
    f"aten::{name}"
    for name in [
        "reshape",
        "reshape_as",
        "flatten",
        "contiguous",
        "to",
        "type_as",
        "dropout",
        "feature_dropout",
        "alpha_dropout",
        "feature_alpha_dropout",
        "float",
        "ravel",
        "resolve_conj",
        "resolve_neg",
        "conj",
        "real",
        "cpu",
        "_unsafe_view",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
    ]
)
# Those of them, and others, that give back the argument itself, not a view of it, when there is nothing to do.
_RETURNS_ITSELF = MAY_SHARE - {"aten::reshape", "aten::reshape_as", "aten::flatten", "aten::ravel"}
_RETURNS_ITSELF |= {"aten::positive", "aten::sum_to_size", "aten::lift_fresh"}
# Views without an annotation: pieces of one storage.
UNSAID_VIEWS = frozenset(f"aten::{name}" for name in ["unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"])

# torch.export writes ``lift_fresh``, which shares, as ``lift_fresh_copy``, which copies: which it was, is not told.
_MAY_HAVE_COPIED = frozenset(["aten::lift_fresh_copy"])

# Composite operators that always compute: their results are their own.  Asking torch of each of them would cost more
# than all the rest of an export.
_COMPUTE = frozenset(
    f"aten::{name}"
    for name in [
        *("conv1d", "conv2d", "conv3d", "_convolution", "_convolution_mode"),
        *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("linear", "matmul", "scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu"),
        *("batch_norm", "layer_norm", "group_norm", "instance_norm", "softmax", "log_softmax"),
        *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d"),
        *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "relu6", "selu"),
        *("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d"),
    ]
)

_WIDENING = frozenset(["aten::cumsum", "aten::cumprod"])  # of small integers to int64
_COMPARISONS = frozenset(
    f"aten::{name}"
    for name in [
        *("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor"),
        *("less", "less_equal", "greater", "greater_equal", "not_equal"),
    ]
)


def may_return_itself(call: Call) -> bool:
    """Whether the result may be the very tensor that the call was given, and no other name for its memory."""
    if call.base != "aten::flatten":
        return call.base in _RETURNS_ITSELF
    given = call.args["self"]
    rank = given.type.rank if isinstance(given, Value) and isinstance(given.type, TensorType) else None
    ends = [call.args["start_dim"], call.args["end_dim"]]
    return rank is None or (rank > 0 and ends[0] % rank == ends[1] % rank)


def shares_storage(call: Call, source: str) -> bool | None:
    """Whether the result lives in the argument's storage; None when the strides that decide it are unknown."""
    given = call.args[source]
    if not isinstance(given, Value) or not _is_known(given):
        return None
    result, made = _on_meta(call)
    if not isinstance(result, torch.Tensor) or given not in made:
        return None
    return _storage(result) == _storage(made[given])


def seen_by(view: Call, base: torch.Tensor) -> Any:
    """What ``view`` shows of ``base``, put in the place of its source; None where it needs more than that to run."""
    source = signature(view.target).aliased() or next(iter(view.args))
    others = [value for name, arg in view.args.items() if name != source for value in values_in([arg])]
    return None if others else _call(view.target, view.args, lambda _: base)


def hidden_sources(call: Call) -> list[Value]:
    """The arguments whose storage a result of a composite operator shares, though its schema does not say so."""
    if call.base in _MAY_HAVE_COPIED:
        return list(values_in(call.args.values()))
    if not _is_composite(call.target):
        return []
    result, made = _on_meta(call)
    results = result if isinstance(result, (list, tuple)) else [result]
    storages = {_storage(item) for item in results if isinstance(item, torch.Tensor)}
    return [value for value, tensor in made.items() if _storage(tensor) in storages]


def result_dtype(target: str, args: dict[str, Any]) -> torch.dtype | None:
    """The dtype of a pure call, asked of torch on empty tensors where operands could promote; None when plain."""
    own = args.get("self")
    operands = [arg for name, arg in args.items() if name != "self"]
    numbers = any(isinstance(arg, (float, complex)) and not isinstance(arg, bool) for arg in operands)
    tensors = [arg for arg in operands if isinstance(arg, Value) and isinstance(arg.type, TensorType)]
    if isinstance(own, Value) and isinstance(own.type, TensorType):
        plain = all(arg.tensor.dtype == own.tensor.dtype for arg in tensors)
        base = base_of(target)
        others = base in _COMPARISONS or (base in _WIDENING and not own.tensor.dtype.is_floating_point)
        if plain and (own.tensor.dtype.is_floating_point or not numbers) and not others:
            return None
    parameters = {item.name: item for item in signature(target).parameters}
    call = {name: arg for name, arg in args.items() if arg != parameters[name].default or arg is MISSING}
    dynamic = not all(_is_known(value) for value in values_in(args.values()) if isinstance(value.type, TensorType))

    def make(type_: TensorType) -> torch.Tensor:
        # sizes of 1 fit each other where the real ones are not known
        shape = [1] * len(type_.shape or ()) if dynamic else _sizes(type_)
        return torch.empty(shape, dtype=type_.dtype, device="meta")

    result = _run(target, call, make)
    return result.dtype if isinstance(result, torch.Tensor) else None


@functools.cache
def _is_composite(target: str) -> bool:
    """True for operators written in terms of others, whose schemas do not tell all that they share."""
    if base_of(target) in _COMPUTE or any(parameter.alias for parameter in signature(target).parameters):
        return False
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(target, "CompositeImplicitAutograd"))
    except RuntimeError:
        return False  # an operator of TorchScript alone, such as aten::ScalarImplicit


def _is_known(value: Value) -> bool:
    type_ = value.type
    return (
        isinstance(type_, TensorType)
        and type_.strides is not None
        and type_.shape is not None
        and all(isinstance(dim, int) for dim in type_.shape)
    )


def _sizes(type_: TensorType) -> list[int]:
    return [dim if isinstance(dim, int) else 2 for dim in type_.shape or ()]


def _on_meta(call: Call) -> tuple[Any, dict[Value, torch.Tensor]]:
    """The result of the call on meta tensors, and the tensor that stood for each value."""
    made: dict[Value, torch.Tensor] = {}
    args = dict(call.args)
    if isinstance(args.get("device"), torch.device):
        args["device"] = torch.device("meta")
    # sizes that the graph computes are in the recorded result
    output = call.outputs[0].type
    for name in ("shape", "size"):
        if name in args and isinstance(output, TensorType) and _is_known(call.outputs[0]):
            args[name] = list(output.shape or ())

    def make(value: Value) -> torch.Tensor:
        type_ = value.tensor
        if value not in made:
            shape = _sizes(type_)
            plain = torch.empty(shape, device="meta").stride()
            strides = type_.strides if type_.strides is not None and len(type_.strides) == len(shape) else plain
            made[value] = torch.empty_strided(shape, strides, dtype=type_.dtype, device="meta")
        return made[value]

    return _call(call.target, args, make), made


def _run(target: str, args: dict[str, Any], make: Callable[[TensorType], torch.Tensor]) -> Any:
    return _call(target, args, lambda value: make(value.tensor))


def _call(target: str, args: dict[str, Any], make: Callable[[Value], torch.Tensor]) -> Any:
    """The operator's result with a tensor for each value; None where it does not run so."""

    def convert(value: Value) -> Any:
        return make(value) if isinstance(value.type, TensorType) else 2

    operator = operator_of(target)
    if operator is None:
        return None
    try:
        with torch.no_grad():
            return operator(**{key: map_values(arg, convert) for key, arg in args.items()})
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return None


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
