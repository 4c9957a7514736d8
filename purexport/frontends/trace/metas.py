"""What torch's kernels give, by rows: sizes, dtype and strides of the results of the calls that models make most.

torch's own functions for this are Python, of which the first call loads seconds of code, and each takes its time.  A
row is taken only where it knows that the kernel takes the operands; all else goes to torch.  Sizes are the rows of
`shapes`, and views are torch's own, which are C++.  Composite operators fall apart on examples without data, inside of
`rows_inside`, so that rows answer what they consist of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch

from purexport.frontends.core.shape_functions import UnfitError, broadcast
from purexport.frontends.trace import shapes, strides
from purexport.frontends.trace.arguments import mapped
from purexport.frontends.trace.operators import Operator
from purexport.frontends.trace.promotion import kind_of, letter, one_dtype, promoted
from purexport.frontends.trace.size_rows import fits_inside
from purexport.torch_patches.calls import operators_handed_to

Bound = Mapping[str, Any]


class Laid(NamedTuple):
    """A new tensor: all but its elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


Row = Callable[[Operator, Bound], Any]


def form_of(operator: Operator, bound: Bound) -> Any:
    """The form of what a call gives, a tuple of forms, or an operand that is returned itself.

    Raises UnfitError where no row knows it.
    """
    row = ROWS.get(operator.target)
    if row is None:
        row = ROWS.get(_pure(operator)) if operator.same == (0,) and not operator.changes_layout else None
        if row is None:
            raise UnfitError(operator.target)
    try:
        found = row(operator, bound)
    except (TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, KeyError, RuntimeError) as error:
        raise UnfitError(str(error)) from None
    return _written(found, bound) if operator.same == (0,) else found


def _pure(operator: Operator) -> str:
    """The name of the operator that computes what this one writes."""
    name, dot, overload = operator.target.partition(".")
    return f"{name.removesuffix('_')}{dot}{overload}"


def _written(form: Laid | torch.Tensor, bound: Bound) -> torch.Tensor:
    """What a call returns that writes to its first operand."""
    x: torch.Tensor = next(iter(bound.values()))
    if form is not x:
        assert isinstance(form, Laid)
        _require(form.sizes == x.shape and torch.can_cast(form.dtype, x.dtype))
    return x


def rows_inside(operator_of: Callable[[Any], Operator]) -> AbstractContextManager[None]:
    """Inside, rows answer calls on examples without data, as far as there are some; `operator_of` knows overloads."""

    def call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operator = operator_of(function)
        bound = operator.bound(list(args), kwargs)
        tensors = _tensors(bound)
        if tensors and all(item.is_meta for item in tensors) and kwargs.get("device") in (None, _META):
            try:
                return made(form_of(operator, bound), _new)
            except UnfitError:
                pass
        return function(*args, **kwargs)

    return operators_handed_to(call)


_META = torch.device("meta")


def made(found: Any, new: Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]) -> Any:
    """Tensors for forms, each of which `new` makes."""
    if type(found) is Laid:
        return new(*found)
    return type(found)(made(item, new) for item in found) if type(found) in (list, tuple) else found


def _new(shape: tuple[int, ...], lie: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, lie, dtype=dtype, device=_META)


def _require(holds: Any) -> None:
    if not holds:
        raise UnfitError("operands of another kind")


def _tensors(bound: Bound) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for item in bound.values():
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif type(item) in (list, tuple):
            found += [one for one in item if isinstance(one, torch.Tensor)]
    return found


def _sizes(operator: Operator, bound: Bound) -> Any:
    """The sizes of the results, of which the rows are those of expressions."""
    row = shapes.row_of(operator.target, operator.overload)
    _require(row is not None)
    assert row is not None
    return row(*(mapped(_shape, item) for item in bound.values()))


def _shape(item: Any) -> Any:
    return tuple(item.shape) if isinstance(item, torch.Tensor) else item


# Elementwise ----------------------------------------------------------------------------------------------------------

_OPERANDS = frozenset(["self", "other", "exponent", "min", "max", "input", "tensor1", "tensor2", "weight", "end"])


def _elementwise(letters: str, result: torch.dtype | None = None, floats: bool = False, each: bool = False) -> Row:
    """A kernel of torch's TensorIterator, for operands whose common dtype is of these kinds, or with `each` all are.

    The result has the dtype `result`, else the common one; with `floats` integers become floats before.
    """

    def row(operator: Operator, bound: Bound) -> Laid:
        tensors = [item for item in bound.values() if isinstance(item, torch.Tensor)]
        operands = [
            item
            for name, item in bound.items()
            if isinstance(item, torch.Tensor) or (name in _OPERANDS and isinstance(item, (bool, int, float, complex)))
        ]
        common = promoted(operands)
        _require(letter(common) in letters and not (each and any(kind_of(item) not in letters for item in operands)))
        if floats and not (common.is_floating_point or common.is_complex):
            common = torch.get_default_dtype()
        shape = broadcast(*(tuple(item.shape) for item in tensors))
        return Laid(shape, strides.iterated(tensors, shape, common), result or common)

    return row


def _where(operator: Operator, bound: Bound) -> Laid:
    condition, *others = bound.values()
    _require(condition.dtype == torch.bool)
    common = promoted(others)
    tensors = [item for item in others if isinstance(item, torch.Tensor)]
    given = [condition, *(item for item in tensors)]
    shape = broadcast(*(tuple(item.shape) for item in given))
    mask = torch.empty_strided(condition.shape, condition.stride(), dtype=common, device="meta")
    return Laid(shape, strides.iterated([mask, *tensors], shape, common), common)


def _clamped(operator: Operator, bound: Bound) -> Laid:
    _require(bound.get("min") is not None or bound.get("max") is not None)
    return _elementwise("if")(operator, bound)  # type: ignore[no-any-return]


def _divided(operator: Operator, bound: Bound) -> Laid:
    """A quotient, of floats unless it is rounded."""
    floats = bound["rounding_mode"] is None
    found: Laid = _elementwise("bifc" if floats else "if", floats=floats)(operator, bound)
    return found


def _power(operator: Operator, bound: Bound) -> Laid:
    """A number to the power of a tensor."""
    exponent = bound["exponent"]
    common = promoted([bound["self"], exponent])
    _require(letter(common) in "if")
    return Laid(tuple(exponent.shape), strides.contiguous(exponent.shape), common)


_ELEMENTWISE: list[tuple[Row, str]] = [
    (_elementwise("bifc"), "add.Tensor add.Scalar mul.Tensor mul.Scalar"),
    (_elementwise("ifc", each=True), "sub.Tensor sub.Scalar rsub.Scalar"),
    (_elementwise("ifc"), "neg square pow.Tensor_Tensor pow.Tensor_Scalar"),
    (_elementwise("if"), "remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar floor_divide floor_divide.Scalar"),
    (_elementwise("if"), "abs ceil floor round trunc relu clamp_min clamp_max clamp_min.Tensor"),
    (_elementwise("bif"), "sign maximum minimum fmin fmax max.other min.other"),
    (_elementwise("bi"), "bitwise_not bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor __and__.Tensor"),
    (_elementwise("bi"), "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar __or__.Tensor __xor__.Tensor"),
    (_elementwise("bi"), "__and__.Scalar __or__.Scalar __xor__.Scalar"),
    (
        _elementwise("bifc", floats=True),
        "div.Tensor div.Scalar true_divide.Tensor true_divide.Scalar sigmoid reciprocal",
    ),
    (_elementwise("bifc", floats=True), "exp expm1 log log10 log1p log2 sqrt rsqrt sin cos tan sinh cosh tanh"),
    (_elementwise("bifc", floats=True), "asin acos atan asinh acosh atanh"),
    (_elementwise("bif", floats=True), "exp2 erf erfc erfinv lgamma digamma logit sinc atan2 xlogy.Tensor"),
    (_elementwise("f"), "gelu silu elu leaky_relu hardtanh hardswish hardsigmoid softplus mish celu selu relu6"),
    (_elementwise("f"), "threshold softshrink hardshrink addcmul addcdiv"),
    (_elementwise("bifc", torch.bool), "eq.Tensor eq.Scalar ne.Tensor ne.Scalar logical_not logical_and logical_or"),
    (_elementwise("bifc", torch.bool), "logical_xor isnan isinf isfinite"),
    (
        _elementwise("bif", torch.bool),
        "lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor ge.Scalar",
    ),
    (_clamped, "clamp clamp.Tensor"),
    (_divided, "div.Tensor_mode div.Scalar_mode"),
    (_power, "pow.Scalar"),
    (_where, "where.self where.ScalarOther where.ScalarSelf where.Scalar"),
]


# Others ---------------------------------------------------------------------------------------------------------------


def _packed(letters: str = "f", *others: str) -> Row:
    """A contiguous result of the operands' dtype.

    `others` are operands that have dtypes of their own.
    """

    def row(operator: Operator, bound: Bound) -> Laid:
        tensors = _tensors({name: item for name, item in bound.items() if name not in others})
        shape = _sizes(operator, bound)
        return Laid(shape, strides.contiguous(shape), one_dtype(tensors, letters))

    return row


def _along_axis(operator: Operator, bound: Bound) -> Laid:
    """A softmax or the like, which may give another dtype."""
    x = bound["self"]
    shape = _sizes(operator, bound)
    dtype = bound.get("dtype") or x.dtype
    _require(letter(dtype) == "f" and not bound.get("half_to_float"))
    _require(-max(x.dim(), 1) <= bound["dim"] < max(x.dim(), 1))
    return Laid(shape, strides.contiguous(shape), dtype)


def _embedded(operator: Operator, bound: Bound) -> Laid:
    weight, indices = bound["weight"], bound["indices"]
    _require(weight.dim() == 2 and indices.dtype in (torch.int64, torch.int32))
    shape = _sizes(operator, bound)
    return Laid(shape, strides.contiguous(shape), weight.dtype)


def _convolved(operator: Operator, bound: Bound) -> Laid:
    """Channels are the innermost axis if they seem to be in the input or in the weight, also where axes are added."""
    tensors = _tensors(bound)
    x, weight = tensors[:2]
    dtype = one_dtype(tensors)
    shape = _sizes(operator, bound)
    transposed = bound.get("transposed") or "transpose" in operator.target
    if not transposed:  # of the others the row of sizes refuses what does not fit
        groups = bound["groups"]
        _require(0 not in shape and weight.shape[0] % groups == 0)
        _require(x.shape[1 - weight.dim()] == weight.shape[1] * groups)
        _require(all(tuple(bias.shape) == (weight.shape[0],) for bias in tensors[2:]))
    alone, flat = x.dim() < weight.dim(), weight.dim() == 3
    x, full = (x.unsqueeze(0), (1, *shape)) if alone else (x, shape)
    if flat:
        x, weight, full = x.unsqueeze(2), weight.unsqueeze(2), (*full[:2], 1, full[2])
    _require(not transposed or x.dim() == 4)
    last = any(map(strides.seems_channels_last, (x, weight)))
    lie = strides.channels_last(full) if last else strides.contiguous(full)
    lie = lie[:2] + lie[3:] if flat else lie
    return Laid(shape, lie[1:] if alone else lie, dtype)


def _pooled(operator: Operator, bound: Bound) -> Any:
    """A pooling or an interpolation keeps the format of its input; along one axis it is one along two."""
    x = next(iter(bound.values()))
    found = _sizes(operator, bound)
    _require(letter(x.dtype) == "f")
    shape, *_ = found if isinstance(found, list) else [found]
    _require(0 not in shape and fits_inside(bound.get("padding", 0), bound.get("kernel_size", 0)))
    if x.dim() == 3 and "pool1d" in operator.target:
        lie = strides.suggested(x.unsqueeze(2), (*shape[:2], 1, shape[2]))
        return Laid(shape, lie[:2] + lie[3:], x.dtype)
    form = Laid(shape, strides.suggested(x, shape), x.dtype)
    return (form, form._replace(dtype=torch.int64)) if isinstance(found, list) else form


def _pooled_apart(operator: Operator, bound: Bound) -> Laid:
    """A pooling whose result is contiguous, if that is not the mean of all."""
    x = bound["self"]
    _require(letter(x.dtype) == "f")
    shape = _sizes(operator, bound)
    _require(0 not in shape and fits_inside(bound.get("padding", 0), bound.get("kernel_size", 0)))
    whole = "adaptive" in operator.target and set(shape[-3:]) == {1}
    return Laid(shape, strides.suggested(x, shape) if whole else strides.contiguous(shape), x.dtype)


def _batch_norm(operator: Operator, bound: Bound) -> Any:
    x, *channels = _tensors(bound)
    one_dtype([x, *channels])
    _require(x.dim() > 1 and all(tuple(item.shape) == (x.shape[1],) for item in channels))
    shape = tuple(x.shape)
    return Laid(shape, strides.suggested(x, shape), x.dtype)


def _recurrent(operator: Operator, bound: Bound) -> Any:
    """An LSTM or the like: all steps, and the last states."""
    batch_first = bound["batch_first"]
    x, hidden = bound["input"], bound["hx"]
    states = [hidden] if isinstance(hidden, torch.Tensor) else list(hidden)
    dtype = one_dtype([*_tensors(bound)])
    _require(x.dim() == 3)
    width = states[0].shape[-1] * (2 if bound["bidirectional"] else 1)
    sizes = (*x.shape[:-1], width)
    first, second, last = strides.contiguous((sizes[1], sizes[0], width) if batch_first else sizes)
    steps = Laid(sizes, (second, first, last) if batch_first else (first, second, last), dtype)
    return (steps, *(Laid(tuple(item.shape), strides.contiguous(item.shape), dtype) for item in states))


def _attention(operator: Operator, bound: Bound) -> Laid:
    """torch's fused kernel gives a tensor like the query; where it does not take the operands, products are made."""
    query, key, value, mask = (bound[name] for name in ("query", "key", "value", "attn_mask"))
    dtype = one_dtype([query, key, value])
    _require(mask is None or mask.dtype in (dtype, torch.bool))
    shape = _sizes(operator, bound)
    fused = _is_fused(bound, query, key, value, mask)
    return Laid(shape, strides.preserved(query) if fused else strides.contiguous(shape), dtype)


def _is_fused(bound: Bound, query: Any, key: Any, value: Any, mask: Any) -> bool:
    inputs = (query, key, value)
    return (
        all(item.dim() == 4 and item.stride(-1) == 1 and 0 not in item.shape for item in inputs)
        and query.shape[0] == key.shape[0] == value.shape[0]
        and query.shape[-1] == key.shape[-1] == value.shape[-1]
        and (bound["enable_gqa"] or query.shape[1] == key.shape[1] == value.shape[1])
        and key.shape[1] == value.shape[1]
        and bound["dropout_p"] == 0.0
        and (mask is None or mask.dim() in (2, 4))
    )


# Reductions -----------------------------------------------------------------------------------------------------------


def _reduced(letters: str, result: torch.dtype | None = None, sums: bool = False, of_some: bool = False) -> Row:
    """What is computed of the elements along axes, with `of_some` of one or more; sums of integers are int64."""

    def row(operator: Operator, bound: Bound) -> Any:
        x = next(iter(bound.values()))
        _require(not of_some or 0 not in x.shape)
        shape = _sizes(operator, bound)
        dtype = bound.get("dtype") or x.dtype
        _require(letter(dtype) in letters and dtype != torch.uint8 and (sums or bound.get("dtype") is None))
        if sums and bound.get("dtype") is None and letter(dtype) in "bi":
            dtype = torch.int64
        values = shape[0] if isinstance(shape, list) else shape
        form = Laid(values, strides.contiguous(values), result or dtype)
        return (form, form._replace(dtype=torch.int64)) if isinstance(shape, list) else form

    return row


def _sorted(operator: Operator, bound: Bound) -> Any:
    x = bound["self"]
    _require(letter(x.dtype) in "bif" and -max(x.dim(), 1) <= bound["dim"] < max(x.dim(), 1))
    form = Laid(tuple(x.shape), tuple(x.stride()) if strides.is_dense(x) else strides.contiguous(x.shape), x.dtype)
    return form, form._replace(dtype=torch.int64)


# What is picked and joined --------------------------------------------------------------------------------------------


def _joined(operator: Operator, bound: Bound) -> Laid:
    tensors = bound["tensors"]
    shape = _sizes(operator, bound)
    last = all(map(strides.seems_channels_last, tensors))
    return Laid(shape, strides.channels_last(shape) if last else strides.contiguous(shape), promoted(tensors))


def _stacked(operator: Operator, bound: Bound) -> Laid:
    """Tensors that are joined along an axis, which is then split; for the last axis they get it before."""
    tensors = bound["tensors"]
    shape = _sizes(operator, bound)
    axis = bound["dim"] % len(shape)
    lie = strides.contiguous(shape)
    if axis < len(shape) - 1 and all(map(strides.seems_channels_last, tensors)):
        size = shape[axis + 1]
        whole = strides.channels_last((*shape[:axis], shape[axis] * size, *shape[axis + 2 :]))
        lie = (*whole[:axis], whole[axis] * size, *whole[axis:])
    return Laid(shape, lie, one_dtype(tensors, "bifc"))


def _picked(*places: str, dtypes: Collection[torch.dtype] = (torch.int64,)) -> Row:
    """A contiguous result of the first operand's dtype; the tensors of these names have one of the dtypes."""

    def row(operator: Operator, bound: Bound) -> Laid:
        x = bound["self"]
        given = [bound[name] for name in places]
        src = bound.get("src")
        _require(all(item.dtype in dtypes for item in given) and (src is None or src.dtype == x.dtype))
        shape = _sizes(operator, bound)
        if "scatter" in operator.target:
            axis = bound["dim"] % max(x.dim(), 1)
            sizes = enumerate(zip(bound["index"].shape, shape, strict=True))
            _require(all(one <= other for at, (one, other) in sizes if at != axis))
        return Laid(shape, strides.contiguous(shape), x.dtype)

    return row


def _indexed(operator: Operator, bound: Bound) -> Laid:
    """What tensors of places pick: an elementwise kernel on the operand without these axes and on the places."""
    x, indices = bound["self"], list(bound["indices"])
    given = [item for item in indices if item is not None]
    _require(all(item.dtype == torch.int64 for item in given))
    shape = _sizes(operator, bound)
    picked = broadcast(*(tuple(item.shape) for item in given))
    places = [axis for axis, item in enumerate(indices) if item is not None]
    rest = [axis for axis in range(x.dim()) if axis not in places]
    first = places[0] if places[-1] - places[0] + 1 == len(places) else 0
    lie = [x.stride(axis) for axis in rest]
    lie[first:first] = [0] * len(picked)
    operands = [torch.empty_strided(shape, lie, dtype=x.dtype, device="meta")]
    for item in given:
        wide = item.expand(picked)
        own = (*[1] * first, *picked, *[1] * (len(rest) - first))
        operands.append(wide.view(own) if wide.is_contiguous() else wide.reshape(own))
    return Laid(shape, strides.iterated(operands, shape, x.dtype), x.dtype)


def _padded(operator: Operator, bound: Bound) -> Laid:
    x, sizes = bound["self"], bound["pad"]
    _require(bound.get("mode", "constant") == "constant" and max(sizes, default=0) > 0 and len(sizes) % 2 == 0)
    shape = _sizes(operator, bound)
    return Laid(shape, strides.suggested(x, shape), x.dtype)


def _gated(operator: Operator, bound: Bound) -> Laid:
    x, dim = bound["self"], bound["dim"]
    shape = _sizes(operator, bound)
    half = x.narrow(dim, 0, shape[dim % x.dim()])
    return Laid(shape, strides.iterated([half, half], shape, one_dtype([x])), x.dtype)


def _masked(operator: Operator, bound: Bound) -> Laid:
    x, mask = bound["self"], bound["mask"]
    value = bound["value"]
    _require(mask.dtype == torch.bool and (not isinstance(value, torch.Tensor) or value.dim() == 0))
    _require(torch.can_cast(promoted([value]), x.dtype) or letter(x.dtype) == "f")
    shape = broadcast(tuple(x.shape), tuple(mask.shape))
    return Laid(shape, strides.contiguous(shape), x.dtype)


def _itself(operator: Operator, bound: Bound) -> torch.Tensor:
    """What fills its operand."""
    x: torch.Tensor = bound["self"]
    src = bound.get("src")
    _require(src is None or broadcast(tuple(src.shape), tuple(x.shape)) == tuple(x.shape))
    return x


# New tensors ----------------------------------------------------------------------------------------------------------


def _made(default: Callable[[Bound], torch.dtype]) -> Row:
    """A contiguous tensor of numbers; `default` is its dtype where the call does not say it."""

    def row(operator: Operator, bound: Bound) -> Laid:
        _require(bound.get("layout") in (None, torch.strided) and bound.get("memory_format") is None)
        shape = _sizes(operator, bound)
        return Laid(shape, strides.contiguous(shape), bound.get("dtype") or default(bound))

    return row


def _of_numbers(*names: str) -> Callable[[Bound], torch.dtype]:
    return lambda bound: promoted([bound[name] for name in names if bound.get(name) is not None])


def _as_set(bound: Bound) -> torch.dtype:
    return torch.get_default_dtype()


# Copies, and what may be one ------------------------------------------------------------------------------------------


def _dropped(operator: Operator, bound: Bound) -> Any:
    x = bound["input"]
    if not bound["train"] or bound["p"] == 0 or 0 in x.shape:
        return x
    _require(letter(x.dtype) == "f")
    same = torch.empty_strided(x.shape, strides.preserved(x), device="meta", dtype=x.dtype)
    return Laid(tuple(x.shape), strides.iterated([x, same], tuple(x.shape), x.dtype), x.dtype)


def _of_format(x: torch.Tensor, wanted: torch.memory_format | None) -> tuple[int, ...]:
    """The strides of a new tensor like this one."""
    if wanted in (None, torch.preserve_format):
        return strides.preserved(x)
    if wanted is torch.contiguous_format:
        return strides.contiguous(x.shape)
    _require(x.dim() == (4 if wanted is torch.channels_last else 5))
    return strides.channels_last(x.shape)


def _alike(operator: Operator, bound: Bound) -> Laid:
    """A copy, or a new tensor of the sizes of another one."""
    x = bound["self"]
    _require(bound.get("layout") in (None, torch.strided))
    return Laid(tuple(x.shape), _of_format(x, bound.get("memory_format")), bound.get("dtype") or x.dtype)


def _contiguous(operator: Operator, bound: Bound) -> Any:
    x, wanted = bound["self"], bound["memory_format"]
    if x.is_contiguous(memory_format=wanted):
        return x
    return Laid(tuple(x.shape), _of_format(x, wanted), x.dtype)


def _converted(operator: Operator, bound: Bound) -> Any:
    x = bound["self"]
    other = bound.get("other")
    dtype = other.dtype if other is not None else bound.get("dtype") or x.dtype
    wanted = bound.get("memory_format")
    _require(bound.get("layout") in (None, torch.strided))
    lies = wanted in (None, torch.preserve_format) or x.is_contiguous(memory_format=wanted)
    if dtype == x.dtype and lies and not bound.get("copy"):
        return x
    return Laid(tuple(x.shape), _of_format(x, wanted), dtype)


def _reshaped(operator: Operator, bound: Bound) -> Any:
    """A view where torch makes one, of which it says so itself, else a copy."""
    x = bound["self"]
    shape = _sizes(operator, bound)
    try:
        return torch.ops.aten.view.default(x, list(shape))
    except RuntimeError:
        return Laid(shape, strides.contiguous(shape), x.dtype)


_TO = "to.device to.dtype to.dtype_layout to.other type_as _to_copy"
_CONVOLUTIONS = "convolution _convolution conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding"

ROWS: dict[str, Row] = {
    f"aten::{name}": row
    for row, names in [
        *_ELEMENTWISE,
        (_packed("bif"), "mm bmm addmm matmul baddbmm mv dot"),
        (_packed(), "linear layer_norm instance_norm"),
        (_along_axis, "softmax.int log_softmax.int _softmax _log_softmax _safe_softmax"),
        (_embedded, "embedding"),
        (_convolved, f"{_CONVOLUTIONS} conv_transpose1d conv_transpose2d.input"),
        (_pooled, "max_pool2d max_pool3d avg_pool2d adaptive_avg_pool2d group_norm"),
        (_pooled, "avg_pool1d adaptive_avg_pool1d"),
        (_pooled, "upsample_nearest2d.vec upsample_bilinear2d.vec upsample_bicubic2d.vec"),
        (_pooled_apart, "max_pool1d avg_pool3d adaptive_avg_pool3d"),
        (_batch_norm, "batch_norm"),
        (_recurrent, "lstm.input gru.input rnn_tanh.input rnn_relu.input"),
        (_attention, "scaled_dot_product_attention"),
        (_reduced("bif", sums=True), "sum sum.dim_IntList prod prod.dim_int cumsum cumprod"),
        (_reduced("f"), "mean mean.dim logsumexp var.dim var.correction std.dim std.correction"),
        (_reduced("f"), "norm.ScalarOpt_dim linalg_vector_norm"),
        (_reduced("bif", of_some=True), "max min amax amin max.dim min.dim"),
        (_reduced("bif"), "topk"),
        (_reduced("if", torch.int64, of_some=True), "argmax argmin"),
        (_reduced("bif", torch.bool), "any all any.dim all.dim"),
        (_sorted, "sort"),
        (_joined, "cat"),
        (_stacked, "stack"),
        (_picked("index"), "gather scatter.src scatter.value scatter_add"),
        (_picked("index", dtypes=(torch.int64, torch.int32)), "index_select"),
        (_picked(), "tril triu repeat"),
        (_indexed, "index.Tensor"),
        (_padded, "constant_pad_nd pad"),
        (_gated, "glu"),
        (_masked, "masked_fill.Scalar masked_fill.Tensor"),
        (_itself, "copy_ fill_.Scalar zero_ normal_ uniform_ bernoulli_.float"),
        (_made(_as_set), "zeros ones empty.memory_format rand randn eye eye.m linspace"),
        (_made(_of_numbers("fill_value")), "full"),
        (_made(_of_numbers("start", "end", "step")), "arange arange.start arange.start_step"),
        (_made(lambda bound: torch.int64), "randint randint.low randperm one_hot"),
        (_made(lambda bound: bound["self"].dtype), "new_zeros new_ones new_full new_empty"),
        (_dropped, "dropout"),
        (_alike, "clone empty_like zeros_like ones_like full_like rand_like randn_like"),
        (_contiguous, "contiguous"),
        (_converted, _TO),
        (_reshaped, "reshape flatten.using_ints"),
    ]
    for name in names.split()
}
"""By name with the overload."""
