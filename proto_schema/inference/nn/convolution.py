"""Rows of convolutions and pools.

All of them move a window along the spatial axes.  `Windows` reads the attributes that describe it, and says how many
places it has: `(size + pads - window)//stride + 1`, where the window is the kernel with its dilation.

The size after pooling with `ceil_mode` depends on the version.  Since opset 22 a window must not start in the padding
behind the data; before, the text of the specification lets it, and ONNX Runtime does not.  Where the two disagree the
size is a symbol of its own.
"""

from __future__ import annotations

from proto_schema.inference.rows import row
from proto_schema.inference.site import LARGEST, Outputs, Site
from proto_schema.inference.types import Shape, Type
from proto_schema.sizes import Dim
from proto_schema.sizes.size import less

_CEIL_MODE_AGREED = 22


class Windows:
    """The window of a node, for that many spatial axes."""

    def __init__(self, site: Site, axes: int, kernel: tuple[Dim, ...]) -> None:
        self.site = site
        self.kernel = kernel
        self.strides = self._list("strides", axes, 1)
        self.dilations = self._list("dilations", axes, 1)
        self.auto_pad = site.text("auto_pad", "NOTSET")
        self.padded = "pads" in site.attributes
        self.pads = self._list("pads", 2 * axes, 0)
        self.ceil = bool(site.attribute("ceil_mode", 0))

    def _list(self, name: str, count: int, default: int) -> list[int]:
        given = self.site.attribute(name)
        if not given:
            return [default] * count
        if len(given) != count:
            self.site.fail(f"{name} has {len(given)} numbers, and {count} are needed")
        if min(given) < (0 if name == "pads" else 1):
            self.site.fail(
                f"{name} are {list(given)}, and must {'not be negative' if name == 'pads' else 'be above 0'}"
            )
        return list(given)

    def width(self, axis: int) -> Dim:
        """The length of the window along a spatial axis."""
        width = (self.kernel[axis] - 1) * self.dilations[axis] + 1
        if isinstance(width, int) and width > LARGEST:
            self.site.fail(f"the window of {width} along spatial axis {axis} overflows int64")
        return width

    @property
    def same(self) -> bool:
        """Whether as much is padded as keeps the size, but for the stride."""
        return self.auto_pad in ("SAME_UPPER", "SAME_LOWER") and not self.padded

    def places(self, axis: int, size: Dim) -> Dim:
        """How many places the window has along a spatial axis of that size."""
        stride = self.strides[axis]
        if self.same:
            return -(-size // stride)
        before, after = self.pads[axis], self.pads[axis + len(self.kernel)]
        room = size + before + after - self.width(axis)
        if isinstance(room, int) and room < 0:
            return self._without_room(axis, size)
        if not self.ceil:
            return room // stride + 1
        last = -(-room // stride)  # the place of the last window
        started = -(-(size + before) // stride) - 1  # the last one that starts in the data or before it
        # as far as the kernel is at least as long as the stride and the padding, it is never in doubt
        if less(self.width(axis), after + stride) is False or less(last, started + 1):
            return last + 1
        return started + 1 if self.site.version >= _CEIL_MODE_AGREED else self.site.fresh()

    def _without_room(self, axis: int, size: Dim) -> Dim:
        if self.site.schema.name not in _POOLS:
            self.site.fail(
                f"the window of {self.width(axis)} along spatial axis {axis} does not fit into {size} with pads "
                f"{self.pads[axis]} and {self.pads[axis + len(self.kernel)]}"
            )
        return self.site.fresh()  # runtimes differ: no element, or an error


_POOLS = ("AveragePool", "MaxPool", "LpPool")


def _kernel(site: Site, axes: int | None, weight: Shape = None) -> tuple[Dim, ...] | None:
    """The kernel's sizes, by the attribute or those of the weight behind its first two axes."""
    said = site.attribute("kernel_shape")
    kernel = weight[2:] if weight is not None else None
    if said:
        count = axes if axes is not None else len(kernel) if kernel is not None else len(said)
        if len(said) != count:
            site.fail(f"kernel_shape has {len(said)} numbers, and there are {count} spatial axes")
        if min(said) < 1:
            site.fail(f"kernel_shape is {list(said)}, and must be above 0")
        if kernel is not None:
            for axis, size in enumerate(said):
                site.same(size, kernel[axis], f"kernel_shape and the kernel along spatial axis {axis}")
        return tuple(said)
    return kernel


def _rank(site: Site, data: Shape, *others: Shape) -> int | None:
    """The rank that data and weights share; None where it is not known."""
    name = site.schema.name
    ranks = [len(shape) for shape in (data, *others) if shape is not None]
    if not ranks:
        said = site.attribute("kernel_shape")
        return len(said) + 2 if said else None
    if max(ranks) != min(ranks):
        site.fail(f"the data has rank {ranks[0]}, and the weight tensor rank {ranks[-1]}: {name} takes equal ranks")
    if ranks[0] < 2 + (name != "MaxUnpool"):
        site.fail(f"the data has rank {ranks[0]}, and {name} takes rank 3 or more")
    return ranks[0]


# Convolutions --------------------------------------------------------------------------------------------------------

_WEIGHT_PLACES = {"QLinearConv": 3}
_BIAS_PLACES = {"Conv": 2, "ConvTranspose": 2, "QLinearConv": 8, "DeformConv": 3}


@row("Conv", "ConvInteger", "QLinearConv", "DeformConv")
def convolution(site: Site) -> Type | None:
    """(N, C, sizes) and (M, C/group, kernel) to (N, M, places of the window)."""
    data, weight = site.shape(0), site.shape(_WEIGHT_PLACES.get(site.schema.name, 1))
    rank = _rank(site, data, weight)
    if rank is None:
        return site.out(None)
    _check_channels(site, data, weight)
    batch = data[0] if data is not None else site.fresh()
    channels = weight[0] if weight is not None else site.fresh()
    kernel = _kernel(site, rank - 2, weight)
    if data is None or kernel is None:
        return site.out((batch, channels, *site.unknown(rank - 2)))
    windows = Windows(site, rank - 2, kernel)
    return site.out((batch, channels, *[windows.places(axis, size) for axis, size in enumerate(data[2:])]))


def _check_channels(site: Site, data: Shape, weight: Shape) -> None:
    group = site.attribute("group", 1)
    if group < 1:
        site.fail(f"group is {group}")
    if weight is None:
        return
    if data is not None:
        site.same(data[1], weight[1] * group, f"the data's channels and the weight's with group {group}")
    if isinstance(weight[0], int) and weight[0] % group:
        site.fail(f"the weight makes {weight[0]} channels, which are not a multiple of group {group}")
    _check_bias(site, weight[0])


def _check_bias(site: Site, channels: Dim) -> None:
    place = _BIAS_PLACES.get(site.schema.name)
    bias = site.shape_of_rank(place, 1) if place is not None else None
    # official inference says nothing of a bias, and DeformConv's bias is the fourth input
    if bias is not None:
        site.same(bias[0], channels, "the sizes of the bias and of the output channels")


@row("ConvTranspose")
def convolution_transpose(site: Site) -> Type | None:
    """(N, C, sizes) and (C, M/group, kernel) to (N, M, sizes spread by the stride)."""
    data, weight = site.shape(0), site.shape(1)
    rank = _rank(site, data, weight)
    if rank is None:
        return site.out(None)
    group = site.attribute("group", 1)
    if data is not None and weight is not None:
        site.same(data[1], weight[0], "the channels of the data and of the weight")
    if weight is not None and isinstance(weight[0], int) and group > 0 and weight[0] % group:
        site.fail(f"input channels C must be divisible by group: C is {weight[0]}, group is {group}")
    channels = weight[1] * group if weight is not None else site.fresh()
    if weight is not None:
        _check_bias(site, channels)
    batch = data[0] if data is not None else site.fresh()
    asked = site.attribute("output_shape")
    kernel = _kernel(site, rank - 2, weight)
    if asked:
        if len(asked) != rank - 2:
            site.fail(f"output_shape has {len(asked)} numbers, and there are {rank - 2} spatial axes")
        return site.out((batch, channels, *asked))
    if data is None or kernel is None:
        return site.out((batch, channels, *site.unknown(rank - 2)))
    windows = Windows(site, rank - 2, kernel)
    if windows.padded and windows.auto_pad != "NOTSET":
        site.fail(f"pads and auto_pad {windows.auto_pad!r} are both given, and say the same thing twice")
    extra = site.attribute("output_padding") or [0] * (rank - 2)
    if len(extra) != rank - 2:
        site.fail(f"output_padding has {len(extra)} numbers, and there are {rank - 2} spatial axes")
    if extra and min(extra) < 0:
        site.fail(f"output_padding is {list(extra)}, and must not be negative")
    return site.out(
        (batch, channels, *[_spread(windows, axis, size, extra[axis]) for axis, size in enumerate(data[2:])])
    )


def _spread(windows: Windows, axis: int, size: Dim, extra: int) -> Dim:
    """The size from which a window that moves makes `size` places."""
    stride, width = windows.strides[axis], windows.width(axis)
    if not windows.same:
        pads = windows.pads[axis] + windows.pads[axis + len(windows.kernel)]
        return (size - 1) * stride + width + extra - pads
    # ONNX Runtime leaves `output_padding` out here, which official inference adds
    if extra or not isinstance(width, int):
        return windows.site.fresh()
    return (size - 1) * stride + min(width, stride)


@row("CausalConvWithState")
def causal_convolution(site: Site) -> Outputs:
    """The data's shape; the state holds one place less than the kernel is long."""
    activation = site.text("activation", "none")
    if activation not in ("none", "silu", "swish"):
        site.fail(f"activation is {activation!r}, and must be none, silu or swish")
    data, weight = site.shape_of_rank(0, 3), site.shape_of_rank(1, 3)
    past = site.shape_of_rank(3, 3)
    known = data if data is not None else past
    batch = known[0] if known is not None else site.fresh()
    channels = next((shape[at] for shape, at in ((data, 1), (weight, 0), (past, 1)) if shape is not None), None)
    channels = site.fresh() if channels is None else channels
    if weight is not None:
        site.same(channels, weight[0], "the channels of the data and of the kernel")
        if past is not None:
            site.same(past[2], weight[2] - 1, "the length of the past state and of the kernel less one")
    held = weight[2] - 1 if weight is not None else past[2] if past is not None else site.fresh()
    length = data[2] if data is not None else site.fresh()
    return [site.out((batch, channels, length)), site.out((batch, channels, held))]


# Pools ---------------------------------------------------------------------------------------------------------------


@row("AveragePool", "MaxPool", "LpPool")
def pool(site: Site) -> Outputs:
    """(N, C, sizes) to (N, C, places of the window); the indices of MaxPool have that shape, too."""
    data = site.shape(0)
    rank = _rank(site, data)
    if rank is None:
        return [site.out(None), site.out(None)]
    kernel = _kernel(site, rank - 2)
    if kernel is None:
        # only LpPool and AveragePool of opset 1 may leave it out
        site.fail("kernel_shape is missing")
    if data is None:
        shape = site.unknown(rank)
    else:
        windows = Windows(site, rank - 2, kernel)
        shape = (*data[:2], *[windows.places(axis, size) for axis, size in enumerate(data[2:])])
    return [site.out(shape), site.out(shape)]


@row("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(site: Site) -> Type | None:
    """(N, C, sizes) to (N, C, 1, ...)."""
    data = site.shape(0)
    if data is None:
        return site.out(None)
    if len(data) < 2:
        site.fail(f"the data has rank {len(data)}, and {site.schema.name} takes rank 2 or more")
    return site.out((*data[:2], *(1,) * (len(data) - 2)))


@row("MaxUnpool")
def max_unpool(site: Site) -> Type | None:
    """The size that is asked for, else the one from which the pool makes this one."""
    data = site.shape(0)
    rank = _rank(site, data)
    indices = site.shape(1)
    if data is not None and indices is not None:
        if len(indices) != len(data):
            site.fail(f"the data has rank {len(data)}, and the indices have rank {len(indices)}")
        for one, other in zip(data, indices, strict=True):
            site.same(one, other, "the sizes of the data and of the indices")
    if site.has(2):
        asked = site.sizes(2)
        if asked is not None:
            if rank is not None and len(asked) != rank:
                site.fail(f"output_shape has {len(asked)} numbers, and the data has rank {rank}")
            return site.out(asked)
        return site.out(site.unknown(rank) if rank is not None else None)
    if rank is None:
        return site.out(None)
    kernel = _kernel(site, rank - 2)
    if data is None or kernel is None:
        return site.out(site.unknown(rank))
    windows = Windows(site, rank - 2, kernel)
    return site.out((*data[:2], *[_spread(windows, axis, size, 0) for axis, size in enumerate(data[2:])]))
