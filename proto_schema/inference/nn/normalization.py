"""Rows of normalizations, dropout and losses: mostly the shape of the data, and statistics beside it."""

from __future__ import annotations

from proto_schema.inference.rows import row
from proto_schema.inference.site import Outputs, Site
from proto_schema.inference.types import Type
from proto_schema.onnx import TensorProto


@row("BatchNormalization")
def batch_normalization(site: Site) -> Outputs:
    """The data's shape; the statistics have that of `scale`, which is one number a channel.

    Up to opset 8 `spatial=0` asks for statistics of each place, so that these have more axes.
    """
    data = site.shape(0)
    each_place = site.attribute("spatial", 1) == 0
    statistics = next((site.shape(place) for place in range(1, 5) if site.shape(place) is not None), None)
    if not each_place:
        for place in range(1, 5):
            shape = site.shape_of_rank(place, 1)
            if shape is not None and data is not None and len(data) > 1:
                site.same(shape[0], data[1], f"the size of input {site.schema.inputs[place].name!r} and of axis 1")
        if statistics is None:
            statistics = (data[1] if data is not None and len(data) > 1 else site.fresh(),)
    return [site.out(data), *[site.out(statistics) for _ in range(4)]]


@row("InstanceNormalization", "GroupNormalization")
def per_channel(site: Site) -> Type | None:
    """The data's shape; scale and bias have one number a channel, or a group of channels before opset 21."""
    data = site.shape(0)
    groups = site.attribute("num_groups") if site.schema.name == "GroupNormalization" and site.version < 21 else None
    if data is not None and len(data) > 1:
        for place in (1, 2):
            shape = site.shape_of_rank(place, 1)
            if shape is not None:
                what = f"the size of input {site.schema.inputs[place].name!r} and the number of "
                site.same(shape[0], groups or data[1], what + ("groups" if groups else "channels"))
    return site.out(data)


@row("LayerNormalization", "RMSNormalization")
def layer_normalization(site: Site) -> Outputs:
    """The data's shape; mean and deviation have size 1 from `axis` on, and the dtype of the computation."""
    data = site.shape(0)
    if data is None:
        return [site.out(None), *[site.out(None, _stashed(site)) for _ in range(2)]]
    axis = site.axis(site.attribute("axis", -1), len(data))
    _check_fits(site, data[axis:], 1, axis)
    if site.schema.name == "RMSNormalization":
        return [site.out(data)]
    _check_fits(site, data[axis:], 2, axis)
    statistics = data[:axis] + (1,) * (len(data) - axis)
    return [site.out(data), *[site.out(statistics, _stashed(site)) for _ in range(2)]]


def _stashed(site: Site) -> int:
    return int(site.attribute("stash_type", 0)) or TensorProto.FLOAT


def _check_fits(site: Site, normal: tuple[object, ...], place: int, axis: int) -> None:
    """Scale and bias broadcast to the normalized axes, from the right."""
    shape = site.shape(place)
    for one, other in zip(reversed(shape or ()), reversed(normal), strict=False):
        if isinstance(one, int) and isinstance(other, int) and one not in (1, other):
            name = site.schema.inputs[place].name
            site.fail(f"input {name!r} has size {one} where the data from axis {axis} on has size {other}")


@row("MeanVarianceNormalization", "LpNormalization", "LRN")
def normalization(site: Site) -> Type | None:
    """The data's shape."""
    data = site.shape(0)
    if data is not None and site.schema.name == "LpNormalization":
        site.axis(site.attribute("axis", -1), len(data))
    return site.out(data)


@row("Dropout")
def dropout(site: Site) -> Outputs:
    """The data's shape, and a mask of that shape."""
    for place in (1, 2):
        site.shape_of_rank(place, 0)
    return [site.out(site.shape(0)), site.out(site.shape(0))]


@row("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(site: Site) -> Outputs:
    """A number, or without reduction one for each target; the logarithms have the shape of the scores."""
    scores, target = site.shape(0), site.shape(1)
    if scores is not None:
        if len(scores) < 2:
            site.fail(f"the scores have rank {len(scores)}, and {site.schema.name} takes rank 2 or more")
        places = (scores[0], *scores[2:])
        if target is not None:
            if len(target) != len(places):
                site.fail(
                    f"the target has rank {len(target)}, and rank {len(places)} fits scores of rank {len(scores)}"
                )
            for one, other in zip(places, target, strict=True):
                site.same(one, other, "the sizes of the scores and of the target")
        target = places
    weights = site.shape_of_rank(2, 1)
    if weights is not None and scores is not None:
        site.same(weights[0], scores[1], "the number of weights and of classes")
    return [site.out(target if site.text("reduction") == "none" else ()), site.out(scores)]
