"""`import torchvision` beside a CPU torch when the wheel's compiled operators cannot be loaded.

A torchvision wheel built for CUDA fails at import without the CUDA libraries, because it registers shape functions for
operators that its shared library did not get to declare.  `torchvision()` declares them first, with plain kernels (of
`tests/torchvision_kernels.py`), and imports the package.  Where the compiled operators load, nothing is declared and
the real ones are used.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch

from tests.torchvision_kernels import KERNELS

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
        # torchvision.ops asks this before each call
        for module in [module for name, module in sys.modules.items() if name.startswith("torchvision.")]:
            if hasattr(module, "_has_ops"):
                setattr(module, "_has_ops", _has_ops)  # noqa: B010  a name that is not declared
    return package


def _has_ops() -> bool:  # a function of its own, because torchvision's scripts call it
    return True


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
    for name, (kernel, shape) in KERNELS.items():
        library.impl(name, kernel, "CPU")
        if shape is not None:
            torch.library.register_fake(f"torchvision::{name}", shape, lib=library)
    return library
