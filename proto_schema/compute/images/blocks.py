"""Rows that move whole blocks of pixels, and the decoder of image files."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import copied, made, sizes_in
from proto_schema.compute.rows import row


@row("DepthToSpace", cost=copied)
def depth_to_space(call: Call, data: Array) -> Array:
    """(N, C, H, W) to (N, C / b^2, H b, W b); the block comes first in the channels (DCR), or last (CRD)."""
    block = call.attribute("blocksize")
    batch, channels, height, width = _image(call, data)
    if block < 1 or channels % (block * block):
        call.fail(f"{channels} channels do not make blocks of {block} x {block}")
    made = channels // (block * block)
    if call.text("mode", "DCR") == "CRD":
        split = data.reshape(batch, made, block, block, height, width).transpose(0, 1, 4, 2, 5, 3)
    else:
        split = data.reshape(batch, block, block, made, height, width).transpose(0, 3, 4, 1, 5, 2)
    return np.asarray(split.reshape(batch, made, height * block, width * block))


@row("SpaceToDepth", cost=copied)
def space_to_depth(call: Call, data: Array) -> Array:
    """(N, C, H, W) to (N, C b^2, H / b, W / b), the inverse of DepthToSpace in its mode."""
    block = call.attribute("blocksize")
    batch, channels, height, width = _image(call, data)
    if block < 1 or height % block or width % block:
        call.fail(f"{height} x {width} does not split into blocks of {block} x {block}")
    split = data.reshape(batch, channels, height // block, block, width // block, block)
    order = (0, 1, 3, 5, 2, 4) if call.text("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return np.asarray(split.transpose(order).reshape(batch, channels * block * block, height // block, width // block))


def _image(call: Call, data: Array) -> tuple[int, ...]:
    if data.ndim != 4:
        call.fail(f"the data has rank {data.ndim}, and {call.schema.name} takes rank 4")
    return data.shape


def _crop_cost(call: Call, data: Array, asked: Array) -> Cost:
    axes = call.attribute("axes")
    axes = range(data.ndim) if axes is None else [call.axis(axis, data.ndim) for axis in axes]
    shape = list(data.shape)
    for axis, size in zip(axes, sizes_in(asked), strict=False):
        shape[axis] = size
    return made(shape, data.itemsize, scratch=0)


@row("CenterCropPad", cost=_crop_cost)
def center_crop_pad(call: Call, data: Array, asked: Array) -> Array:
    """The middle of each axis, or the axis with zeros around it, so that it has the size that is asked for."""
    axes = call.attribute("axes")
    axes = range(data.ndim) if axes is None else [call.axis(axis, data.ndim) for axis in axes]
    if asked.shape != (len(axes),):
        call.fail(f"shape has {asked.size} numbers, and there are {len(axes)} axes")
    made, into, out_of = list(data.shape), [slice(None)] * data.ndim, [slice(None)] * data.ndim
    for axis, size in zip(axes, asked.tolist(), strict=True):
        old, made[axis] = data.shape[axis], size
        kept, start = min(old, size), abs(old - size) // 2
        into[axis] = slice(start, start + kept) if size > old else slice(0, kept)
        out_of[axis] = slice(start, start + kept) if size < old else slice(0, kept)
    result = np.full(made, "", object) if data.dtype == object else np.zeros(made, data.dtype)
    result[tuple(into)] = data[tuple(out_of)]
    return result


def _decoder_cost(call: Call, data: Array) -> Cost:
    """The header of the file says the size of the image."""
    try:
        pillow: Any = import_module("PIL.Image")
        with pillow.open(io.BytesIO(data.tobytes())) as image:
            return made([image.width, image.height, 4], 1, times=20, scratch=4)
    except (ImportError, OSError, ValueError):
        return Cost()  # the row refuses it


@row("ImageDecoder", cost=_decoder_cost)
def image_decoder(call: Call, data: Array) -> Array:
    """The pixels (height, width, channels) of an image file. It needs Pillow, which nothing here requires."""
    try:
        pillow: Any = import_module("PIL.Image")
    except ImportError:
        call.fail("decoding image files needs the package Pillow; install it, or decode the image before the model")
    order = call.text("pixel_format", "RGB")
    with pillow.open(io.BytesIO(data.tobytes())) as image:
        if order == "Grayscale":
            return np.asarray(image.convert("L"))[:, :, None]
        pixels = np.asarray(image.convert("RGB"))
    if order not in ("RGB", "BGR"):
        call.fail(f"pixel_format is {order!r}, and may be RGB, BGR or Grayscale")
    return pixels if order == "RGB" else pixels[:, :, ::-1]
