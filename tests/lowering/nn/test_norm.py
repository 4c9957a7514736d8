"""Normalizations with and without weights, native and as arithmetic, in every dtype that models use."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.harness import Row, f16, f32, f64, layer
from tests.row_plans import Plan, row_params, run_row

aten = torch.ops.aten


class Used(nn.Module):
    """A batch norm whose running statistics and weights are not what they began with."""

    def __init__(self, kind: type[nn.Module], *args: int, **kwargs: object) -> None:
        super().__init__()
        self.norm = kind(*args, **kwargs)
        for name, tensor in self.norm.state_dict().items():
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5) if "var" in name else tensor.normal_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def _weight_normed() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))


def batch_norms(name, *options):
    """The operator on copies of the running statistics, which it writes to; they are results too."""

    def run(x, mean, var):
        mean, var = mean.clone(), var.clone()
        return *getattr(aten, name)(x, None, None, mean, var, *options)[:3], mean, var

    return run


BATCH = [
    Row("batch1d", layer(Used, nn.BatchNorm1d, 3), f32(4, 3), dynamic="batch"),
    Row("batch1d-length", layer(Used, nn.BatchNorm1d, 3), f32(2, 3, 5), dynamic={0: {0: "batch", 2: "length"}}),
    Row("batch2d", layer(Used, nn.BatchNorm2d, 3, eps=0.1), f32(2, 3, 4, 5), dynamic="batch"),
    Row("batch3d", layer(Used, nn.BatchNorm3d, 2), f32(1, 2, 2, 3, 2)),
    Row("batch-no-affine", layer(Used, nn.BatchNorm2d, 3, affine=False), f32(2, 3, 4, 5)),
    Row("batch-no-statistics", layer(Used, nn.BatchNorm2d, 3, track_running_stats=False), f32(2, 3, 4, 5)),
    Row(
        "batch-double",
        lambda x, m, v: functional.batch_norm(x, m, v, eps=1e-3),
        f64(2, 3, 4),
        f64(3),
        f64(3, low=1, high=2),
    ),
    Row(
        "batch-half-beside-float",
        lambda x, m, v, w, b: functional.batch_norm(x, m, v, w, b, eps=1e-3),
        f16(2, 3, 4),
        f32(3),
        f32(3, low=1, high=2),
        f32(3),
        f32(3),
        trap="statistics and weights are wider than the input",
    ),
    Row(
        "batch-any-channels",
        lambda x, m, v: functional.batch_norm(x, m, v, eps=1e-3),
        f32(2, 3, 4),
        f32(3),
        f32(3, low=1, high=2),
        dynamic={0: {1: "c"}, 1: {0: "c"}, 2: {0: "c"}},
    ),
    Row(
        "batch-training",
        lambda x, m, v: functional.batch_norm(x, m, v, training=True),
        f32(4, 3, 2),
        f32(3),
        f32(3, low=1, high=2),
        dynamic={0: {0: "batch"}},
    ),
    Row(
        "_native_batch_norm_legit_no_training",
        lambda x, m, v: aten._native_batch_norm_legit_no_training(x, None, None, m, v, 0.1, 1e-5)[0],
        f32(2, 3, 4),
        f32(3),
        f32(3, low=1, high=2),
    ),
    Row(
        "_native_batch_norm_legit.no_stats",
        lambda x, w: aten._native_batch_norm_legit.no_stats(x, w, None, True, 0.1, 1e-5),
        f32(2, 3, 4),
        f32(3),
    ),
    Row(
        "_native_batch_norm_legit_functional",
        lambda x, m, v: aten._native_batch_norm_legit_functional(x, None, None, m, v, True, 0.2, 1e-5),
        f32(2, 3, 4),
        f32(3),
        f32(3, low=1, high=2),
        trap="the running variance is the unbiased one",
    ),
    Row("native-training", batch_norms("native_batch_norm", True, 0.1, 1e-5), f32(2, 3, 4), f32(3), f32(3, low=1)),
    Row("native-given", batch_norms("native_batch_norm", False, 0.1, 1e-5), f32(2, 3, 4), f32(3), f32(3, low=1)),
    Row(
        "legit-training", batch_norms("_native_batch_norm_legit", True, 0.1, 1e-5), f32(2, 3, 4), f32(3), f32(3, low=1)
    ),
    Row("legit-given", batch_norms("_native_batch_norm_legit", False, 0.1, 1e-5), f32(2, 3, 4), f32(3), f32(3, low=1)),
    Row(
        "with-update",
        batch_norms("_batch_norm_with_update", 0.1, 1e-5),
        f32(2, 3, 4),
        f32(3),
        f32(3, low=1),
        routes=["trace"],
    ),
]

INSTANCE = [
    Row("instance1d", layer(nn.InstanceNorm1d, 3), f32(2, 3, 5), dynamic={0: {0: "batch", 2: "length"}}),
    Row("instance2d-affine", layer(Used, nn.InstanceNorm2d, 3, affine=True), f32(2, 3, 4, 5), dynamic="batch"),
    Row("instance3d", layer(nn.InstanceNorm3d, 2), f32(1, 2, 2, 3, 2)),
    Row("instance-no-batch", layer(nn.InstanceNorm1d, 3), f32(3, 5)),
    Row(
        "instance-statistics",
        layer(Used, nn.InstanceNorm2d, 3, affine=True, track_running_stats=True),
        f32(2, 3, 4, 5),
    ),
    Row("instance-double", functional.instance_norm, f64(2, 3, 4)),
    Row("instance-half", functional.instance_norm, f16(2, 3, 4)),
    Row("instance-any-channels", functional.instance_norm, f32(2, 3, 4), dynamic={0: {1: "c"}}),
]

LAYER = [
    Row("layer", layer(Used, nn.LayerNorm, 5), f32(2, 3, 5), dynamic={0: {0: "batch", 1: "length"}}),
    Row("layer-two-axes", layer(Used, nn.LayerNorm, (3, 5)), f32(2, 3, 5), dynamic="batch"),
    Row("layer-no-affine", layer(nn.LayerNorm, 5, elementwise_affine=False), f32(2, 5)),
    Row("layer-no-bias", layer(Used, nn.LayerNorm, 5, bias=False), f32(2, 5)),
    Row("layer-eps", layer(nn.LayerNorm, 5, eps=0.5), f32(2, 5)),
    Row("layer-double", functional.layer_norm, f64(2, 5), [5]),
    Row(
        "layer-half-small-eps",
        lambda x: functional.layer_norm(x * 0, [4], eps=1e-9),
        f16(2, 4),
        trap="an eps that float16 rounds to 0",
    ),
    Row("layer-half", lambda x, w, b: functional.layer_norm(x, [4], w, b), f16(2, 4), f16(4), f16(4)),
    Row("layer-any-width", lambda x: functional.layer_norm(x, x.shape[1:]), f32(2, 5), dynamic={0: {0: "b", 1: "w"}}),
    Row("native_layer_norm", lambda x, w, b: aten.native_layer_norm(x, [4], w, b, 1e-5), f32(2, 4), f32(4), f32(4)),
    Row("rms", layer(Used, nn.RMSNorm, 5), f32(2, 3, 5), dynamic={0: {0: "batch", 1: "length"}}),
    Row("rms-eps", layer(Used, nn.RMSNorm, (3, 5), eps=0.5), f32(2, 3, 5)),
    Row("rms-no-affine", layer(nn.RMSNorm, 5, elementwise_affine=False), f32(2, 5)),
    Row("rms-double", lambda x, w: functional.rms_norm(x, [5], w), f64(2, 5), f64(5)),
    Row("rms-half", lambda x, w: functional.rms_norm(x, [5], w), f16(2, 5), f16(5)),
    Row("rms-small", lambda x: functional.rms_norm(x * 1e-4, [5]), f32(2, 5), trap="without eps torch takes finfo.eps"),
]

GROUP = [
    Row("group", layer(Used, nn.GroupNorm, 2, 4), f32(2, 4, 3, 3), dynamic={0: {0: "batch", 2: "h", 3: "w"}}),
    Row("group-no-affine", layer(nn.GroupNorm, 2, 4, affine=False), f32(2, 4, 3), dynamic="batch"),
    Row("group-of-all", layer(Used, nn.GroupNorm, 1, 4), f32(2, 4, 3)),
    Row("group-flat", layer(Used, nn.GroupNorm, 2, 4), f32(3, 4), dynamic="batch"),
    Row("group-double", lambda x: functional.group_norm(x, 2), f64(2, 4, 3)),
    Row("group-half", lambda x, w: functional.group_norm(x, 2, w), f16(2, 4, 3), f16(4)),
    Row(
        "native_group_norm",
        lambda x, w, b: aten.native_group_norm(x, w, b, 2, 4, 3, 2, 1e-5),
        f32(2, 4, 3),
        f32(4),
        f32(4),
    ),
    Row("local-response", layer(nn.LocalResponseNorm, 2), f32(1, 4, 3, 3)),
]

WEIGHTS = [
    Row("weight-norm", lambda v, g: aten._weight_norm(v, g, 0), f32(3, 2, 2), f32(3, 1, 1)),
    Row("weight-norm-last", lambda v, g: aten._weight_norm(v, g, 2), f32(3, 2, 2), f32(1, 1, 2)),
    Row("weight-norm-all", lambda v, g: torch._weight_norm(v, g, -1), f32(3, 2), f32()),
    Row("_weight_norm_interface", lambda v, g: aten._weight_norm_interface(v, g, 0), f32(3, 2), f32(3, 1)),
    Row("weight-norm-layer", layer(_weight_normed), f32(2, 3), routes=("trace", "export")),  # it refuses scripts
    Row("norm_except_dim", lambda v: torch.norm_except_dim(v, 2, 1), f32(3, 2, 2)),
    Row("norm_except_dim-back", lambda v: torch.norm_except_dim(v, 2, -3), f32(3, 2, 2)),
    Row("norm_except_dim-back-2", lambda v: torch.norm_except_dim(v, 2, -2), f32(3, 2, 2)),
    Row("norm_except_dim-3", lambda v: torch.norm_except_dim(v, 3, 0), f32(3, 2, 2)),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*BATCH, *INSTANCE, *LAYER, *GROUP, *WEIGHTS]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
