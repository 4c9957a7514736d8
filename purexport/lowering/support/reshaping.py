"""The fewest nodes that give a tensor another shape where sizes can change, right for all of them, 0 included.

In this order: no node; a Flatten; a Reshape with a constant (`proto_schema.sizes.reshaping`); an Unsqueeze or Squeeze;
a Reshape to multiples of the sizes that the tensor has, or to products of them; a Reshape to computed sizes.  A
computed size of 0 is one only with `allowzero` (opset 14): without it, it is the size of the input at its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proto_schema.inference.types import product
from proto_schema.sizes import Dim, Size, symbol
from proto_schema.sizes.reshaping import constant_shape, is_copied, may_be_zero, what_is_left
from proto_schema.sizes.size import less
from purexport import dtypes
from purexport.graph.ir import Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.inferring import content_of

Sizes = Sequence["Dim | None"]
_NEVER = -2  # no size, and nothing that stands for one


def size_of(size: Any) -> Dim | None:
    """What is known of a size that a rule holds; None for -1 and for what only the run knows."""
    if isinstance(size, Value):
        content = content_of(size)
        size = content[0] if content is not None and len(content) == 1 else None
    return size if isinstance(size, Size) or (isinstance(size, int) and size >= 0) else None


def reshaped(op: Emitter, value: Value, sizes: Sizes, left_over: int | None, computed: Callable[[int], Any]) -> Value:
    """`value` in another shape, none of whose sizes is the number 0.

    `sizes` is what is known of them, `computed` gives the size at a place, an int or a value.  At the place `left_over`
    the model itself leaves a size open, as `view(b, -1)` does: torch refuses that where -1 is ambiguous.
    """
    resolved = op.builder.scope.equations.resolved
    new = [None if size is None else resolved(size) for size in sizes]
    if value.shape is None:
        return _computed(op, value, (), new, left_over, computed)
    old = [None if size is None else resolved(size) for size in value.shape]
    if left_over is not None and not all(isinstance(size, int) for size in (*new[:left_over], *new[left_over + 1 :])):
        left = what_is_left(old, new, left_over)
        new[left_over] = None if left == 0 else left
    if None not in new and new == old:
        return value
    return (
        _flattened(op, value, old, new, (1,))
        or _constant(op, value, constant_shape(old, new, left_over))
        or _with_other_ones(op, value, old, new)
        or _flattened(op, value, old, new, range(2, len(old)))
        or _multiplied(op, value, old, new)
        or _last_merged(op, value, old, new)
        or _computed(op, value, old, new, left_over, computed)
    )


def unsqueezed(op: Emitter, value: Value, axis: int) -> Value:
    """`value` with one more axis; an Unsqueeze that the module has just written takes it, too."""
    inner, axes = _axes_of(op, value, "Unsqueeze")
    if inner is None:
        return op.Unsqueeze(value, [axis])
    return op.Unsqueeze(inner, sorted([*(other + (other >= axis) for other in axes), axis]))


def squeezed(op: Emitter, value: Value, axes: Sequence[int]) -> Value:
    """`value` without axes of size 1; a Squeeze that the module has just written takes them, too."""
    inner, gone = _axes_of(op, value, "Squeeze")
    if inner is None:
        return op.Squeeze(value, list(axes))
    left = [axis for axis in range(inner.rank) if axis not in gone]
    return op.Squeeze(inner, sorted([*gone, *(left[axis] for axis in axes)]))


def _axes_of(op: Emitter, value: Value, op_type: str) -> tuple[Value | None, list[int]]:
    """The tensor that an operator of the same module gave other axes of size 1, and these axes; None where none did."""
    node = value.node
    if node is None or node.op_type != op_type or node.domain or node.source.scope != op.source.scope:
        return None, []
    axes = node.attributes.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1] is not None and node.inputs[1].const is not None:
        axes = node.inputs[1].const.tolist()
    return (node.inputs[0], list(axes)) if axes is not None and min(axes) >= 0 else (None, [])


def _constant(op: Emitter, value: Value, shape: list[int] | None) -> Value | None:
    return None if shape is None else op.Reshape(value, shape)


def _flattened(op: Emitter, value: Value, old: Sizes, new: Sizes, axes: Sequence[int]) -> Value | None:
    """(b, c, h, w) to (b, c*h*w) is a Flatten, which is right for empty tensors too."""
    known = [size for size in old if size is not None]
    if len(new) != 2 or len(known) < max(len(old), 3) or all(isinstance(size, int) for size in new):
        return None
    if not op.takes("Flatten", value.dtype):
        return None
    for axis in axes:
        if [product(known[:axis]), product(known[axis:])] == list(new):
            return op.Flatten(value, axis=axis)
    return None


def _with_other_ones(op: Emitter, value: Value, old: Sizes, new: Sizes) -> Value | None:
    """(b, t, c) to (b, 1, t, c) is an Unsqueeze, and the way back a Squeeze."""
    if None in old or None in new:
        return None
    if len(new) > len(old):
        axes = _ones_between(new, old)
        return op.Unsqueeze(value, axes) if axes else None
    axes = _ones_between(old, new)
    return op.Squeeze(value, axes) if axes else None


def _ones_between(more: Sizes, fewer: Sizes) -> list[int] | None:
    """The axes of size 1 that `more` has beyond `fewer`; None where the shapes differ in anything else."""
    axes, left = [], list(fewer)
    for axis, size in enumerate(more):
        if left and size == left[0]:
            left.pop(0)
        elif isinstance(size, int) and size == 1:
            axes.append(axis)
        else:
            return None
    return None if left else axes


def _multiplied(op: Emitter, value: Value, old: Sizes, new: Sizes) -> Value | None:
    """(b, t, 2, 8) to (b, 2*t, 8): the first sizes times [1, 2, 4].  A product is 0 only where the size itself is."""
    factors = [_factor(size, other) for size, other in zip(old, new, strict=False)]
    if len(old) < len(new) or None in factors:
        return None
    sizes = op.shape(value) if len(old) == len(new) else op.Shape(value, end=len(new))
    return op.Reshape(value, op.Mul(sizes, op.const(factors)))


def _factor(size: Dim | None, product: Dim | None) -> int | None:
    """The number by which a size is multiplied to give the other one; None where there is none."""
    if size is None or product is None or (isinstance(size, int) and size == 0):
        return None
    found = product // size
    return found if isinstance(found, int) and found > 0 and found * size == product else None


def _last_merged(op: Emitter, value: Value, old: Sizes, new: Sizes) -> Value | None:
    """(b, 3, h, w) to (b, 3, h*w), where one size before the last can change."""
    outer = len(new) - 1
    changing = [place for place, size in enumerate(new[:outer]) if not isinstance(size, int)]
    inner = [size for size in old[outer:] if size is not None]
    if outer < 2 or len(changing) != 1 or list(old[:outer]) != list(new[:outer]) or len(inner) < len(old) - outer:
        return None
    if new[outer] != product(inner):
        return None
    if op.has("Reshape", "allowzero") and may_be_zero(new[outer]):
        return _products(op, value, len(old), new)
    return _rows_split(op, value, new, changing[0])


def _products(op: Emitter, value: Value, rank: int, new: Sizes) -> Value:
    """The last axes merged into one: a row of factors for each new size, 1 for those of the others."""
    outer = len(new) - 1
    taken = [[axis == place or axis > place == outer for axis in range(rank)] for place in range(len(new))]
    factors = op.Where(op.const(taken, dtypes.BOOL), op.shape(value), op.const(1))
    result = op.Reshape(value, op.ReduceProd(factors, axes=[1], keepdims=0), allowzero=1)
    result.shape = tuple(size for size in new if size is not None)
    return result


def _rows_split(op: Emitter, value: Value, new: Sizes, changing: int) -> Value | None:
    """Flattened to (3*b, h*w), and the rows split; a -1 for b is right if h*w is not 0."""
    outer = len(new) - 1
    if not op.takes("Flatten", value.dtype):
        return None
    if _may_be_zero_of_data(op, new[outer]):
        op.remark("merges axes; where one of them has size 0, the file stops with an error")
    rows = op.Unsqueeze(op.Flatten(value, axis=outer), list(range(outer - 1)))
    return op.Reshape(rows, [-1 if place == changing else size for place, size in enumerate(new[:outer])] + [0])


def _computed(
    op: Emitter, value: Value, old: Sizes, new: Sizes, left_over: int | None, computed: Callable[[int], Any]
) -> Value:
    """A Reshape to sizes that the graph computes."""
    copied = {place for place, size in enumerate(new) if is_copied(old, place, size)}
    open_ = [place for place, size in enumerate(new) if not isinstance(size, int) and place not in copied]
    asked: list[Any] = [0 if place in copied else size for place, size in enumerate(new)]
    zeros = [place for place in open_ if may_be_zero(new[place]) and not _zero_with(old, place, new[place])]
    if left_over is not None and left_over in open_:
        asked[left_over] = -1
    elif zeros and op.has("Reshape", "allowzero"):
        return op.Reshape(value, op.ints([computed(place) for place in range(len(new))]), allowzero=1)
    elif zeros:
        return _without_allowzero(op, value, new, asked, zeros, computed)
    return op.Reshape(
        value, op.ints([size if isinstance(size, int) else computed(place) for place, size in enumerate(asked)])
    )


def _zero_with(old: Sizes, place: int, size: Dim | None) -> bool:
    """Whether a size is 0 only where the input has a 0 at its place, so that a 0 says the same."""
    return place < len(old) and _factor(old[place], size) is not None


def _without_allowzero(
    op: Emitter, value: Value, new: Sizes, asked: list[Any], zeros: list[int], computed: Callable[[int], Any]
) -> Value:
    """A Reshape before opset 14, where a 0 would be the size of the input: a size of 0 is what is left, a -1.

    A -1 stands from the start for the one size that may be 0 where the inputs have elements, or the only one that can
    change.  Runtimes refuse a second -1, and one beside another size of 0.
    """
    of_data = [place for place in zeros if _may_be_zero_of_data(op, new[place])]
    left = of_data or [place for place, size in enumerate(new) if not isinstance(size, int)]
    if len(left) == 1:
        asked[left[0]] = -1
    elif of_data:
        op.remark(
            "has computed sizes that may be 0, which Reshape can say from opset 14 on; where two are 0, the file stops "
            "with an error"
        )
    sizes = [size if isinstance(size, int) else computed(place) for place, size in enumerate(asked)]
    shape: Any = op.ints(sizes)
    if any(isinstance(sizes[place], Value) for place in zeros):
        # over all sizes at once: for a single one ONNX Runtime (1.31) writes a -1, whatever it is
        zero = [0 if place in zeros and isinstance(size, Value) else _NEVER for place, size in enumerate(sizes)]
        shape = op.Where(op.Equal(shape, op.const(zero)), -1, shape)
    result = op.Reshape(value, shape)
    if None not in new:
        result.shape = tuple(size for size in new if size is not None)
    return result


def _may_be_zero_of_data(op: Emitter, size: Dim | None) -> bool:
    """Whether a size can be 0, if the axes of the inputs have elements."""
    axes = [dim for item in op.builder.inputs for dim in item.shape or () if isinstance(dim, Size)]
    filled = {name: symbol(name, low=1) for axis in axes for name in axis.symbols}
    if isinstance(size, int):
        return False
    return size is None or less(0, size.replaced(filled)) is not True
