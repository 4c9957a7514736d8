"""`import torchvision` beside a CPU torch when the wheel's compiled operators cannot be loaded.

A torchvision wheel built for CUDA fails at import without the CUDA libraries, because it registers shape functions for
operators that its shared library did not get to declare.  `torchvision()` declares them first, with plain kernels for
the two operators that torchvision's models call (nms, roi_align), and imports the package.  Where the compiled
operators load, nothing is declared and the real ones are used.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor",
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, "
    "SymInt pooled_height, SymInt pooled_width, int sampling_ratio, SymInt batch_size, SymInt channels, "
    "SymInt height, SymInt width) -> Tensor",
    "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, "
    "SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) "
    "-> Tensor",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
    "_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


@functools.cache
def torchvision() -> ModuleType:
    """The torchvision package, imported with `torchvision.models` and `torchvision.ops`."""
    compiled = _load_compiled_operators()
    if not compiled:
        _declare_operators()
    package = importlib.import_module("torchvision")
    importlib.import_module("torchvision.models")
    if not compiled:
        # torchvision.ops asks this before each call; the two declared kernels answer, the others raise in torch.
        for module in [module for name, module in sys.modules.items() if name.startswith("torchvision.")]:
            if hasattr(module, "_has_ops"):
                module._has_ops = lambda: True
    return package


def _load_compiled_operators() -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("torchvision is not installed: pip install -c constraints.txt -e '.[test]'")
    libraries = sorted(Path(spec.submodule_search_locations[0]).glob("_C*.so"))
    try:
        for library in libraries:
            torch.ops.load_library(str(library))
    except OSError:  # a CUDA library that this machine does not have
        return False
    return bool(libraries)


@functools.cache
def _declare_operators() -> torch.library.Library:
    library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS:
        library.define(schema)
    library.impl("nms", _nms, "CPU")
    library.impl("roi_align", _roi_align, "CPU")
    torch.library.register_fake("torchvision::roi_align", _roi_align_shape, lib=library)
    return library


def _nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Greedy suppression: indices kept, by falling score.  dets [n, 4] as x1, y1, x2, y2; scores [n]."""
    area = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
    order = scores.argsort(descending=True, stable=True)
    kept = []
    while order.numel():
        best, order = order[0], order[1:]
        kept.append(best)
        low = torch.maximum(dets[best, :2], dets[order, :2])
        high = torch.minimum(dets[best, 2:], dets[order, 2:])
        overlap = (high - low).clamp(min=0).prod(dim=1)
        order = order[overlap / (area[best] + area[order] - overlap) <= iou_threshold]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.int64)


def _roi_align_shape(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    return input.new_empty((rois.shape[0], input.shape[1], pooled_height, pooled_width))


def _roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    """Mean of bilinear samples in each bin.  input [n, c, h, w]; rois [k, 5] as image index, x1, y1, x2, y2."""
    pooled = [
        _pool_one(input[int(roi[0])], roi[1:] * spatial_scale, (pooled_height, pooled_width), sampling_ratio, aligned)
        for roi in rois
    ]
    return torch.stack(pooled) if pooled else input.new_empty((0, input.shape[1], pooled_height, pooled_width))


def _pool_one(image: Tensor, box: Tensor, bins: tuple[int, int], sampling_ratio: int, aligned: bool) -> Tensor:
    x1, y1, x2, y2 = (box - (0.5 if aligned else 0.0)).tolist()
    smallest = 0.0 if aligned else 1.0
    weights = []
    for start, end, count, size in ((y1, y2, bins[0], image.shape[1]), (x1, x2, bins[1], image.shape[2])):
        extent = max(end - start, smallest)
        samples = sampling_ratio if sampling_ratio > 0 else max(1, -int(-extent // count))
        steps = (torch.arange(count * samples, dtype=image.dtype) + 0.5) * (extent / count / samples)
        weights.append(_linear_weights(start + steps, size).view(count, samples, size).mean(dim=1))
    return torch.einsum("yh,chw,xw->cyx", weights[0], image, weights[1])


def _linear_weights(at: Tensor, size: int) -> Tensor:
    """Row i interpolates a line of `size` values at at[i]; outside (-1, size) the value is zero."""
    inside = (at >= -1) & (at <= size)
    at = at.clamp(0, size - 1)
    low = at.floor().to(torch.int64)
    high = (low + 1).clamp(max=size - 1)
    share = at - low
    weights = torch.zeros(len(at), size, dtype=at.dtype)
    rows = torch.arange(len(at))
    weights.index_put_((rows, low), 1 - share, accumulate=True)
    weights.index_put_((rows, high), share, accumulate=True)
    return weights * inside[:, None]
