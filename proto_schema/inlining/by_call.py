"""Operators that the standard defines by others, where what they consist of depends on the call.

A row takes the node and gives (lowest opset, text), as the rows of `standard` have them; None where it has no form for
that call. The texts follow the definitions in docs/Operators.md of ONNX. Types are not looked at: what is computed in
another type comes back by CastLike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proto_schema.onnx import NodeProto
from proto_schema.tensors.attributes import get_attribute_value

__all__ = ["ROWS"]

Form = tuple[int, str] | None


def _has(node: NodeProto, place: int) -> bool:
    return place < len(node.input) and bool(node.input[place])


def _attribute(node: NodeProto, name: str, default: Any) -> Any:
    """The value of an attribute; None for one that is a parameter of a function around the call."""
    for item in node.attribute:
        if item.name == name:
            return None if item.ref_attr_name else get_attribute_value(item)
    return default


def _number(name: str, value: float) -> str:
    return f"{name}_f = Constant <value_float = {value!r}> () {name} = CastLike ({name}_f, X) "


def _gelu(node: NodeProto) -> Form:
    kind = _attribute(node, "approximate", b"none")
    if kind is None:
        return None
    if kind == b"none":
        inner = _number("root", 0.7071067811865476) + "scaled = Mul (X, root) curve = Erf (scaled) "
    else:
        inner = (
            f"{_number('root', 0.7978845608028654)}{_number('third', 0.044715)}"
            "square = Mul (X, X) cube = Mul (square, X) "
            "bent = Mul (third, cube) sum = Add (X, bent) scaled = Mul (root, sum) curve = Tanh (scaled) "
        )
    ends = (
        f"{_number('one', 1.0)}{_number('half', 0.5)}more = Add (one, curve) part = Mul (X, more) Y = Mul (half, part)"
    )
    return 20, inner + ends


def _clip(node: NodeProto) -> Form:
    low = "low = Max (input, min) " if _has(node, 1) else "low = Identity (input) "
    return 13, low + ("output = Min (low, max)" if _has(node, 2) else "output = Identity (low)")


def _axes_from(node: NodeProto) -> str | None:
    """The axes from `axis` to the last."""
    axis = _attribute(node, "axis", -1)
    if axis is None:
        return None
    start = "start = Add (first, rank)" if axis < 0 else "start = Identity (first)"
    return (
        f"shape = Shape (X) rank = Size (shape) first = Constant <value_int = {axis}> () {start} "
        "unit = Constant <value_int = 1> () axes = Range (start, rank, unit) "
    )


_WIDE = "wide = Cast <to: int = @stash_type> (X) "
_ROOT = (
    "small_f = Constant <value_float: float = @epsilon> () small = CastLike (small_f, wide) "
    "more = Add (variance, small) deviation = Sqrt (more) "
)
_CENTERED = (
    "mean = ReduceMean <keepdims = 1> (wide, axes) away = Sub (wide, mean) square = Mul (away, away) "
    f"variance = ReduceMean <keepdims = 1> (square, axes) {_ROOT} normal = Div (away, deviation) "
)


def _layer_normalization(node: NodeProto) -> Form:
    axes = _axes_from(node)
    if axes is None:
        return None
    ends = "Y = Add (scaled, B) " if _has(node, 2) else "Y = Identity (scaled) "
    return 18, (
        f"{axes}{_WIDE}{_CENTERED}narrow = CastLike (normal, X) scaled = Mul (narrow, Scale) {ends}"
        "Mean = Identity (mean) InvStdDev = Reciprocal (deviation)"
    )


def _rms_normalization(node: NodeProto) -> Form:
    axes = _axes_from(node)
    if axes is None:
        return None
    return 23, (
        f"{axes}{_WIDE}square = Mul (wide, wide) variance = ReduceMean <keepdims = 1> (square, axes) {_ROOT}"
        "normal = Div (wide, deviation) narrow = CastLike (normal, X) Y = Mul (narrow, scale)"
    )


def _group_normalization(node: NodeProto) -> Form:
    groups = _attribute(node, "num_groups", None)
    if groups is None:
        return None
    return 21, (
        f"{_WIDE.replace('wide', 'whole')}shape = Shape (X) groups = Constant <value_ints = [0, {groups}, -1]> () "
        f"wide = Reshape (whole, groups) axes = Constant <value_ints = [2]> () {_CENTERED}"
        "channels = Constant <value_ints = [0, 0, -1]> () again = Reshape (normal, shape) "
        "narrow = CastLike (again, X) columns = Reshape (narrow, channels) last = Constant <value_ints = [1]> () "
        "factors = Unsqueeze (scale, last) terms = Unsqueeze (bias, last) scaled = Mul (columns, factors) "
        "moved = Add (scaled, terms) Y = Reshape (moved, shape)"
    )


def _bernoulli(node: NodeProto) -> Form:
    names = {item.name for item in node.attribute}
    seed = " <seed: float = @seed>" if "seed" in names else ""
    back = "Cast <to: int = @dtype> (hit)" if "dtype" in names else "CastLike (hit, input)"
    return 15, f"drawn = RandomUniformLike{seed} (input) hit = Less (drawn, input) output = {back}"


def _blocks(node: NodeProto, deep: bool) -> Form:
    """Channels to blocks of an image, or back: six axes, of which two are a block."""
    block, mode = _attribute(node, "blocksize", None), _attribute(node, "mode", b"DCR")
    if block is None or mode is None:
        return None
    sizes = (
        f"shape = Shape (input) n, c, h, w = Split <axis = 0, num_outputs = 4> (shape) "
        f"b = Constant <value_ints = [{block}]> () area = Constant <value_ints = [{block * block}]> () "
    )
    if deep:  # DepthToSpace
        split = "n, b, b, d, h, w" if mode == b"DCR" else "n, d, b, b, h, w"
        order = [0, 3, 4, 1, 5, 2] if mode == b"DCR" else [0, 1, 4, 2, 5, 3]
        sizes += "d = Div (c, area) p = Mul (h, b) q = Mul (w, b) "
    else:
        split, order = "n, c, p, b, q, b", [0, 3, 5, 1, 2, 4] if mode == b"DCR" else [0, 1, 3, 5, 2, 4]
        sizes += "d = Mul (c, area) p = Div (h, b) q = Div (w, b) "
    return 28, (
        f"{sizes}parts = Concat <axis = 0> ({split}) six = Reshape <allowzero = 1> (input, parts) "
        f"turned = Transpose <perm = {order}> (six) made = Concat <axis = 0> (n, d, p, q) "
        "output = Reshape <allowzero = 1> (turned, made)"
    )


ROWS: dict[str, Callable[[NodeProto], Form]] = {
    "Bernoulli": _bernoulli,
    "Clip": _clip,
    "DepthToSpace": lambda node: _blocks(node, True),
    "Gelu": _gelu,
    "GroupNormalization": _group_normalization,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "SpaceToDepth": lambda node: _blocks(node, False),
}
