"""Rows of images: Resize and Upsample, GridSample, RoiAlign."""

from __future__ import annotations

import numpy as np

from proto_schema.conversion.adapters.nn.interpolation import resized
from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import Writer
from proto_schema.ir import Value

# Upsample and Resize --------------------------------------------------------------------------------------------------


@up("Upsample", version=9)
def scales_as_input(node: VersionedNode, op: Writer) -> Result:
    """The scales become an input."""
    return node.with_(inputs=[node[0], op.const(np.array(node.attribute("scales"), np.float32))], drop="scales")


@down("Upsample", version=9)
def scales_as_attribute(node: VersionedNode, op: Writer) -> Result:
    """Known scales as an attribute."""
    scales = node[1].array()
    if scales is None:
        raise RefusedError("its scales are computed when the model runs")
    return node.with_(inputs=[node[0]], scales=[float(item) for item in scales])


@up("Upsample", version=10)
def upsample_is_resize(node: VersionedNode, op: Writer) -> Result:
    """The operator has another name."""
    return node.with_(op_type="Resize")


@down("Resize", version=10)
def resize_is_upsample(node: VersionedNode, op: Writer) -> Result:
    """The operator had another name, and made nothing smaller."""
    scales = node[1].array()
    if scales is None or (scales < 1).any():
        return _by_matrices(node, op, old=True)
    return node.with_(op_type="Upsample")


@up("Resize", version=11)
def places_of_old(node: VersionedNode, op: Writer) -> Result:
    """The places are multiples of the scale, rounded down."""
    nearest = "floor" if node.text("mode") == "nearest" else None
    none = op.const(np.zeros(0, np.float32))
    return node.with_(
        inputs=[node[0], none, node[1]], coordinate_transformation_mode="asymmetric", nearest_mode=nearest
    )


@down("Resize", version=19)
def symmetric(node: VersionedNode, op: Writer) -> Result:
    """Places that are symmetric to the middle are new."""
    if node.text("coordinate_transformation_mode") == "half_pixel_symmetric":
        return _by_matrices(node, op, "coordinate_transformation_mode 'half_pixel_symmetric'")
    return None


@down("Resize", version=18)
def of_all_axes(node: VersionedNode, op: Writer) -> Result:
    """Axes, aspect ratios and antialiasing are new."""
    names = "antialias axes keep_aspect_ratio_policy"
    plain = node.text("keep_aspect_ratio_policy") == "stretch" or not node.has(3)
    axes = node.attribute("axes")
    rank = node[0].rank
    if axes is not None and rank is not None and [axis % rank for axis in axes] == list(range(rank)):
        axes = None
    if not node.attribute("antialias") and axes is None and plain:
        return node.with_(drop=names)
    if not node.attribute("antialias") and axes is not None and rank is not None and node.has(2) and not node.has(1):
        scales = node[2].array()
        if scales is not None:
            full = np.ones(rank, np.float32)
            full[list(axes)] = scales
            return node.with_(inputs=[node[0], node.input(1), op.const(full)], drop=names)
    new = {
        "antialias=1": bool(node.attribute("antialias")),
        f"axes={axes}": axes is not None,
        f"keep_aspect_ratio_policy {node.text('keep_aspect_ratio_policy')!r}": not plain,
    }
    return _by_matrices(node, op, " and ".join(name for name, given in new.items() if given))


@down("Resize", version=13)
def with_all_inputs(node: VersionedNode, op: Writer) -> Result:
    """Inputs that are not there are empty."""
    none = op.const(np.zeros(0, np.float32))
    inputs: list[Value | None] = [node[0], node.input(1) or none, node.input(2) or none]
    return node.with_(inputs=inputs if not node.has(3) else [*inputs, node[3]])


@down("Resize", version=11)
def resize_by_scales(node: VersionedNode, op: Writer) -> Result:
    """Scales alone, and places that are multiples of them, rounded down; else the sizes must be known."""
    mode = node.text("mode")
    given = node.has(2) and node[2].sizes != (0,)
    asymmetric = node.text("coordinate_transformation_mode") == "asymmetric"
    if given and asymmetric and (mode == "linear" or (mode == "nearest" and node.text("nearest_mode") == "floor")):
        names = "coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value nearest_mode"
        return node.with_(inputs=[node[0], node[2]], drop=names)
    return _by_matrices(node, op)


def _by_matrices(node: VersionedNode, op: Writer, new: str = "", *, old: bool = False) -> Value:
    """Known sizes: each axis by itself, by Gather or by a product with a matrix. `new` is what older versions lack."""
    made = resized(node, op, old)
    if made is None:
        why = f", and {new} is written out for known sizes only" if new else ""
        raise RefusedError(f"its sizes are not known{why}")
    return made


# GridSample, RoiAlign ------------------------------------------------------------------------------------------------


@up("GridSample", version=20)
def new_names(node: VersionedNode, op: Writer) -> Result:
    """Modes have other names."""
    mode = node.text("mode")
    return node.with_(mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


@down("GridSample", version=20)
def old_names(node: VersionedNode, op: Writer) -> Result:
    """Modes had other names, and images two axes."""
    if node.need_rank(0) != 4:
        return None
    mode = node.text("mode")
    return node.with_(mode={"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode))


@up("RoiAlign", version=16)
def old_places(node: VersionedNode, op: Writer) -> Result:
    """Places were not shifted by half a pixel."""
    return node.with_(coordinate_transformation_mode="output_half_pixel")


@down("RoiAlign", version=16)
def whole_places(node: VersionedNode, op: Writer) -> Result:
    """Places that are not shifted."""
    if node.text("coordinate_transformation_mode") != "output_half_pixel":
        raise RefusedError("its places are shifted by half a pixel")
    return node.with_(drop="coordinate_transformation_mode")
