"""Rows of operators that move elements: Pad, Slice, Split, Expand, Reshape, Constant, Cast, blocks and triangles."""

from __future__ import annotations

import numpy as np

from proto_schema.conversion.adapters.axes import positive
from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import BOOL, FLOAT, INT64, Writer, is_float
from proto_schema.onnx import TensorProto

END = 1 << 62

# Pad ------------------------------------------------------------------------------------------------------------------


@up("Pad", version=11)
def pads_as_input(node: VersionedNode, op: Writer) -> Result:
    """Pads and value become inputs."""
    value = op.like(node.attribute("value"), node[0]) if node.given("value") else None
    return node.with_(inputs=[node[0], op.ints(node.attribute("pads")), value], drop="pads value")


@down("Pad", version=19)
def pad_around(node: VersionedNode, op: Writer) -> Result:
    """Around the edge: the elements of the other end, by Concat."""
    if node.text("mode") != "wrap":
        return None
    x = node[0]
    rank = node.need_rank(0)
    pads, axes = node.need_ints(1), _axes_of_pad(node, rank)
    for place, axis in enumerate(axes):
        before, after = pads[place], pads[place + len(axes)]
        size = x.dim(axis)
        if not isinstance(size, int) or before > size or after > size or before < 0 or after < 0:
            raise RefusedError("it pads around the edge by more than there is, or by what is not known")
        parts = [x]
        if before:
            parts.insert(0, op.Slice(x, [size - before], [END], [axis]))
        if after:
            parts.append(op.Slice(x, [0], [after], [axis]))
        x = op.Concat(*parts, axis=axis) if len(parts) > 1 else x
    return x


def _axes_of_pad(node: VersionedNode, rank: int) -> list[int]:
    axes = node.need_ints(3) if node.has(3) else list(range(rank))
    return positive(axes, rank)


@down("Pad", version=18)
def pads_of_all_axes(node: VersionedNode, op: Writer) -> Result:
    """Pads of some axes among zeros."""
    if not node.has(3):
        return None
    rank = node.need_rank(0)
    axes = _axes_of_pad(node, rank)
    known = node.ints(1)
    if known is not None:
        full = [0] * (2 * rank)
        for place, axis in enumerate(axes):
            full[axis], full[rank + axis] = known[place], known[place + len(axes)]
        return node.with_(inputs=[node[0], op.ints(full), node.input(2)])
    chosen = np.full(2 * rank, 2 * len(axes), np.int64)
    for place, axis in enumerate(axes):
        chosen[axis], chosen[rank + axis] = place, place + len(axes)
    full_pads = op.Gather(op.joined(node[1], [0]), op.const(chosen))
    return node.with_(inputs=[node[0], full_pads, node.input(2)])


@down("Pad", version=13)
def pad_all_types(node: VersionedNode, op: Writer) -> Result:
    """Truth values as numbers."""
    if node[0].dtype != BOOL:
        return None
    value = op.Cast(node[2], to=TensorProto.INT32) if node.has(2) else None
    made = op.Pad(op.Cast(node[0], to=TensorProto.INT32), node[1], value, mode=node.text("mode"))
    return op.cast(made, BOOL)


@down("Pad", version=11)
def pads_as_attribute(node: VersionedNode, op: Writer) -> Result:
    """Pads and value as attributes where they are known; integers in a type that holds them."""
    dtype = node.need_dtype(0)
    if dtype in (INT64, TensorProto.UINT64, TensorProto.STRING):
        return None
    if not is_float(dtype):
        wide = TensorProto.DOUBLE if dtype in (TensorProto.INT32, TensorProto.UINT32) else FLOAT
        value = op.cast(node[2], wide) if node.has(2) else None
        return op.cast(op.Pad(op.cast(node[0], wide), node[1], value, mode=node.text("mode")), dtype)
    pads, number = node.ints(1), node[2].number() if node.has(2) else 0.0
    if pads is None or number is None or (dtype == TensorProto.DOUBLE and float(np.float32(number)) != number):
        return None
    return node.with_(inputs=[node[0]], pads=pads, value=float(number))


# Slice and Split ------------------------------------------------------------------------------------------------------


@up("Slice", version=10)
def bounds_as_inputs(node: VersionedNode, op: Writer) -> Result:
    """Bounds and axes become inputs."""
    axes = op.ints(node.attribute("axes")) if node.given("axes") else None
    bounds = [op.ints(node.attribute(name)) for name in ("starts", "ends")]
    return node.with_(inputs=[node[0], *bounds, axes], drop="starts ends axes")


@down("Slice", version=11)
def slice_axes(node: VersionedNode, op: Writer) -> Result:
    """Negative axes, counted from the front."""
    axes = node.ints(3)
    if axes is None or min(axes, default=0) >= 0:
        return None
    rest = node.inputs[4:]
    return node.with_(inputs=[*node.inputs[:3], op.ints(positive(axes, node[0].rank)), *rest])


@down("Slice", version=10)
def bounds_as_attributes(node: VersionedNode, op: Writer) -> Result:
    """Known bounds as attributes."""
    starts, ends, steps = node.ints(1), node.ints(2), node.ints(4) if node.has(4) else [1]
    axes = node.ints(3) if node.has(3) else list(range(len(starts or ())))
    if starts is None or ends is None or axes is None or steps is None or any(step != 1 for step in steps):
        return None
    return node.with_(inputs=[node[0]], starts=starts, ends=ends, axes=positive(axes, node[0].rank))


@up("Split", version=13)
def split_as_input(node: VersionedNode, op: Writer) -> Result:
    """The sizes become an input."""
    sizes = op.ints(node.attribute("split")) if node.given("split") else None
    return node.with_(inputs=[node[0], sizes], drop="split")


@down("Split", version=13)
def split_as_attribute(node: VersionedNode, op: Writer) -> Result:
    """Known sizes as an attribute."""
    known = node.ints(1)
    return None if known is None else node.with_(inputs=[node[0]], split=known)


@up("Split", version=18)
def count_of_parts(node: VersionedNode, op: Writer) -> Result:
    """Equal parts are counted."""
    return None if node.has(1) else node.with_(num_outputs=len(node.outputs))


# Shapes ---------------------------------------------------------------------------------------------------------------


@down("Reshape", version=14)
def zeros_copy(node: VersionedNode, op: Writer) -> Result:
    """A size of 0 that means 0: left where the shape has none, else said otherwise.

    A computed shape may have one. Then there are no elements, and any tensor of that shape is the same.
    """
    if not node.attribute("allowzero"):
        return None
    shape = node.ints(1)
    if shape is None:
        with op.body() as empty:
            empty.outputs = [op.Expand(op.like(0, node[0]), node[1])]
        with op.body() as filled:
            filled.outputs = [op.Reshape(node[0], node[1])]
        has_zero = op.Equal(op.ReduceProd(node[1], keepdims=0), op.const(np.array(0)))
        kinds = [node.out_type(0)]
        return op.looped("If", [has_zero], kinds, then_branch=empty, else_branch=filled)[0]
    if 0 not in shape:
        return node.with_(drop="allowzero")
    sizes = node[0].sizes
    if (
        -1 not in shape
        and sizes is not None
        and all(item != 0 or (place < len(sizes) and sizes[place] == 0) for place, item in enumerate(shape))
    ):
        return node.with_(drop="allowzero")
    if -1 not in shape:
        # a tensor without elements: any such of that shape is the same
        return op.Expand(op.like(0, node[0]), op.ints(shape))
    raise RefusedError("a size of 0 in its shape means 0, which older versions cannot say")


@up("Reshape", version=5)
def shape_as_input(node: VersionedNode, op: Writer) -> Result:
    """The shape becomes an input."""
    return node.with_(inputs=[node[0], op.ints(node.attribute("shape"))], drop="shape")


@down("Expand", version=8)
def expand(node: VersionedNode, op: Writer) -> Result:
    """Known shapes: repeated by Tile."""
    sizes, wanted = node[0].sizes, node.ints(1)
    if sizes is None or wanted is None:
        raise RefusedError("the shapes that it broadcasts are not known")
    shape = np.broadcast_shapes(sizes, tuple(wanted))
    held = node[0].array()
    if held is not None:
        return op.const(np.broadcast_to(held, shape), node.need_dtype(0))
    padded = [1] * (len(shape) - len(sizes)) + list(sizes)
    made = op.Reshape(node[0], padded) if len(padded) > len(sizes) else node[0]
    repeats = [size if own == 1 else 1 for own, size in zip(padded, shape, strict=True)]
    return op.Tile(made, repeats)


@down("ConstantOfShape", version=9)
def constant_of_shape(node: VersionedNode, op: Writer) -> Result:
    """Known shapes: a constant."""
    from proto_schema.numpy_helper import to_array

    shape = node.need_ints(0)
    tensor = node.attribute("value")
    value, dtype = (to_array(tensor), tensor.data_type) if tensor is not None else (np.zeros(1, np.float32), FLOAT)
    if np.prod(shape) > 1 << 20:
        raise RefusedError("its constant would be large")
    return op.const(np.full(shape, value.reshape(-1)[0]), dtype)


# Constants and casts --------------------------------------------------------------------------------------------------


@down("Constant", version=12)
def plain_constant(node: VersionedNode, op: Writer) -> Result:
    """Numbers and text as a tensor."""
    for name, code in _OF_NUMBERS.items():
        if node.given(name):
            value = node.attribute(name)
            if code == TensorProto.STRING:
                items = [item.decode() if isinstance(item, bytes) else item for item in np.atleast_1d(value).tolist()]
                form = () if name == "value_string" else (len(items),)
                return op.const(np.array(items, object).reshape(form), code)
            return op.const(np.array(value), code)
    return None


_OF_NUMBERS = {
    "value_float": FLOAT,
    "value_floats": FLOAT,
    "value_int": INT64,
    "value_ints": INT64,
    "value_string": TensorProto.STRING,
    "value_strings": TensorProto.STRING,
}


@down("Constant", version=11)
def dense_constant(node: VersionedNode, op: Writer) -> Result:
    """A sparse constant as a dense one: before, no operator takes another."""
    sparse = node.attribute("sparse_value")
    if sparse is None:
        return None
    from proto_schema.numpy_helper import to_array

    if np.prod(list(sparse.dims)) > 1 << 24:
        raise RefusedError("its sparse constant would be large")
    values, places = to_array(sparse.values), to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        dense.reshape(-1)[places] = values
    else:
        dense[tuple(places.T)] = values
    return op.const(dense, sparse.values.data_type or 0)


@down("CastLike", version=15)
def cast_like(node: VersionedNode, op: Writer) -> Result:
    """A cast to the type that is known."""
    return op.Cast(
        node[0], to=node.need_dtype(1), saturate=node.attribute("saturate"), round_mode=node.attribute("round_mode")
    )


@down("Cast", "CastLike", version=24)
def round_mode(node: VersionedNode, op: Writer) -> Result:
    """How to round to the one type that was new."""
    wanted = node.attribute("to", 0) if node.schema.name == "Cast" else node.need_dtype(1)
    return None if wanted == TensorProto.FLOAT8E8M0 else node.with_(drop="round_mode")


@down("Cast", "CastLike", version=19)
def saturate(node: VersionedNode, op: Writer) -> Result:
    """Only the types that were new saturate."""
    wanted = node.attribute("to", 0) if node.schema.name == "Cast" else node.need_dtype(1)
    return node.with_(drop="saturate") if wanted < TensorProto.FLOAT8E4M3FN else None


# Blocks and triangles -------------------------------------------------------------------------------------------------


@down("SpaceToDepth", version=28)
def space_to_depth(node: VersionedNode, op: Writer) -> Result:
    """The other order of blocks, by Reshape and Transpose."""
    if node.text("mode") != "CRD":
        return None
    x, size = node[0], node.attribute("blocksize")
    parts = [op.size(x, 0), op.size(x, 1)]
    for axis in (2, 3):
        parts += [op.Div(op.size(x, axis), op.ints([size])), op.ints([size])]
    apart = op.Transpose(op.Reshape(x, op.joined(*parts)), perm=[0, 1, 3, 5, 2, 4])
    return op.Reshape(apart, op.joined(parts[0], op.Mul(parts[1], op.ints([size * size])), parts[2], parts[4]))


@down("DepthToSpace", version=11)
def depth_to_space(node: VersionedNode, op: Writer) -> Result:
    """The order of blocks that there was before."""
    return None if node.text("mode") == "CRD" else node.with_(drop="mode")


@down("CenterCropPad", version=18)
def center_crop_pad(node: VersionedNode, op: Writer) -> Result:
    """Slice, then Pad, so that the middle stays in the middle."""
    x, rank = node[0], node.need_rank(0)
    axes = node.attribute("axes")
    axes = list(range(rank)) if axes is None else positive(axes, rank)
    wanted = node.need_ints(1)
    starts, ends, pads = [], [], [0] * (2 * rank)
    for axis, size in zip(axes, wanted, strict=True):
        own = x.dim(axis)
        if not isinstance(own, int):
            raise RefusedError("the size of an axis is not known")
        starts.append(max(own - size, 0) // 2)
        ends.append(starts[-1] + min(own, size))
        pads[axis] = max(size - own, 0) // 2
        pads[axis + rank] = max(size - own, 0) - pads[axis]
    cut = op.Slice(x, starts, ends, axes)
    return op.Pad(cut, pads) if any(pads) else cut
