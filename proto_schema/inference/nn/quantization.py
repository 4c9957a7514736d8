"""Rows of quantization: the shape of the data, and the dtype that the zero point or an attribute says."""

from __future__ import annotations

from proto_schema.inference.rows import row
from proto_schema.inference.site import Outputs, Site
from proto_schema.inference.types import Type, elements
from proto_schema.onnx import TensorProto


@row("QuantizeLinear")
def quantize(site: Site) -> Type | None:
    """The data's shape, in the dtype of the zero point, else of `output_dtype`, else uint8."""
    said = int(site.attribute("output_dtype", 0))
    if site.has(2):
        dtype = site.dtype(2)
        if said and dtype and said != dtype:
            site.fail(f"output_dtype is {said}, and the zero point has data type {dtype}")
        dtype = dtype or said
    else:
        dtype = said or TensorProto.UINT8
    _check_scale(site)
    return site.out(site.shape(0), dtype)


@row("DequantizeLinear")
def dequantize(site: Site) -> Type | None:
    """The data's shape, in `output_dtype`, else the dtype of the scale."""
    _check_scale(site)
    return site.out(site.shape(0), int(site.attribute("output_dtype", 0)) or site.dtype(1))


def _check_scale(site: Site) -> None:
    """A scale of one axis has the size of the data there; scale and zero point have one shape, or one element each."""
    data, scale, zero = site.shape(0), site.shape(1), site.shape(2)
    if scale is not None and zero is not None and not (elements(scale) == elements(zero) == 1):
        if len(scale) != len(zero):
            site.fail(f"the scale has rank {len(scale)}, and the zero point rank {len(zero)}")
        for one, other in zip(scale, zero, strict=True):
            site.same(one, other, "the sizes of the scale and of the zero point")
    blocked = site.attribute("block_size", 0) > 0
    if data is None or scale is None or len(scale) != 1 or blocked or scale[0] == 1:
        return
    axis = site.axis(site.attribute("axis", 1), len(data))
    if isinstance(scale[0], int) and isinstance(data[axis], int):
        site.same(scale[0], data[axis], f"the sizes of the scale and of axis {axis}")


@row("DynamicQuantizeLinear")
def dynamic_quantize(site: Site) -> Outputs:
    """The data's shape, and a scale and a zero point of one element each."""
    return [site.out(site.shape(0)), site.out(()), site.out(())]
