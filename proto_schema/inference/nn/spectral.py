"""Rows of Fourier transforms.  Complex numbers are pairs along the last axis, real ones are along a last axis of 1."""

from __future__ import annotations

from proto_schema.inference.rows import row
from proto_schema.inference.site import Site
from proto_schema.inference.types import Type
from proto_schema.sizes import Dim

_AXIS_IS_AN_INPUT = 20


@row("DFT")
def fourier(site: Site) -> Type | None:
    """The length asked for along the axis, or about half of it.  The result is pairs, but for the inverse of a half."""
    shape = site.shape(0)
    if shape is None:
        return site.out(None)
    if len(shape) < 2:
        site.fail(f"the input has rank {len(shape)}, and must have 2 or more")
    one_sided, inverse = bool(site.attribute("onesided", 0)), bool(site.attribute("inverse", 0))
    _check_last(site, shape[-1])
    real = one_sided and inverse
    if one_sided and shape[-1] == (1 if inverse else 2):
        given, taken = ("real", "complex") if inverse else ("complex", "real")
        way = "the inverse of a half" if inverse else "a half"
        site.fail(f"the input is {given}, and with onesided=1 {way} is taken of {taken} numbers")
    if site.version < _AXIS_IS_AN_INPUT:
        said: int | None = site.attribute("axis", 1)
    else:
        numbers = site.ints(2) if site.has(2) else (-2,)
        said = numbers[0] if numbers else None
    last = 1 if real else 2
    if said is None:
        kept = not site.has(1) and not one_sided  # whatever the axis
        return site.out((*(shape[:-1] if kept else site.unknown(len(shape) - 1)), last))
    axis = site.axis(said, len(shape))
    if axis == len(shape) - 1:
        site.fail(f"axis {said} is the last one, which holds the parts of complex numbers")
    length = _length(site, shape[axis], real)
    made = length // 2 + 1 if one_sided and not inverse else length
    return site.out((*shape[:axis], made, *shape[axis + 1 : -1], last))


def _check_last(site: Site, size: Dim) -> None:
    if isinstance(size, int) and size not in (1, 2):
        site.fail(f"the last axis has size {size}, and must have 1 or 2: the parts of real or complex numbers")


def _length(site: Site, size: Dim, real: bool) -> Dim:
    if site.has(1):
        asked = site.sizes(1)
        return asked[0] if asked else site.fresh()
    return 2 * (size - 1) if real else size


@row("STFT")
def short_time_fourier(site: Site) -> Type | None:
    """(batch, length, 1 or 2) to (batch, frames, length of a frame or about half of it, 2)."""
    signal = site.shape_of_rank(0, 3)
    window = site.shape_of_rank(2, 1)
    batch, length = signal[:2] if signal is not None else site.unknown(2)
    if signal is not None:
        _check_last(site, signal[2])
    asked = site.sizes(3) if site.has(3) else None
    if asked:
        frame = asked[0]
        if window is not None:
            site.same(frame, window[0], "frame_length and the length of the window")
    elif window is not None:
        frame = window[0]
    else:
        frame = site.fresh() if site.has(2) or site.has(3) else length
    step = site.sizes(1)
    if step and step[0] == 0:
        site.fail("frame_step is 0")
    frames = (length - frame) // step[0] + 1 if step else site.fresh()
    return site.out((batch, frames, frame // 2 + 1 if site.attribute("onesided", 1) else frame, 2))
