"""Losses in all reductions, with weights, ignored classes and borders."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.harness import Row, f32, f64, i64, values
from tests.row_plans import Plan, row_params, run_row

FEW = (9, 13, 20)
WAYS = ("none", "mean", "sum")
PROBABILITIES = f32(3, 4, low=0.05, high=0.95)
CLASSES = values([1, 0, 3], torch.int64)
IGNORED = values([1, -100, 3], torch.int64)
SIGNS = values([1.0, -1.0, 1.0])


def each(name, loss, *inputs, traced="", **options):
    """A row for each reduction of a loss."""
    return [
        Row(f"{name}-{way}", lambda *x, way=way: loss(*x, reduction=way, **options), *inputs, opsets=FEW, traced=traced)
        for way in WAYS
    ]


def chunked(loss, *, dtype=torch.float32, **options):
    """The loss of a linear layer, which torch computes by pieces of the batch."""

    def run(x, matrix, target, **others):
        pieces = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
        return loss(x.to(dtype), matrix.to(dtype), target, options=pieces, **options, **others)

    return run


CHUNKED = {"opsets": FEW, "routes": ("export",)}  # under a trace torch computes them in one piece
linear_cross_entropy = getattr(functional, "linear_cross_entropy", None)  # torch 2.13 has it
LINEAR = [
    *(
        Row(
            f"linear-{way}",
            chunked(linear_cross_entropy, reduction=way, ignore_index=3),
            f32(3, 5),
            f32(4, 5),
            CLASSES,
            kwargs={"linear_bias": f32(4), "weight": f32(4, low=0)},
            **CHUNKED,
        )
        for way in WAYS
    ),
    Row("linear-plain", chunked(linear_cross_entropy), f32(3, 5), f32(4, 5), CLASSES, **CHUNKED),
    Row(
        "linear-half",
        chunked(linear_cross_entropy, dtype=torch.float16),
        f32(3, 5),
        f32(4, 5),
        CLASSES,
        opsets=(20,),
        routes=("export",),
        trap="summed up in float32",
    ),
]

ROWS = [
    *each("mse", functional.mse_loss, f32(3, 4), f32(3, 4)),
    *each("l1", functional.l1_loss, f32(3, 4), f32(3, 4)),
    *each("huber", functional.huber_loss, f32(3, 4), f32(3, 4), delta=0.7),
    *each("smooth-l1", functional.smooth_l1_loss, f32(3, 4), f32(3, 4), beta=0.5),
    Row("smooth-l1-sharp", lambda x, y: functional.smooth_l1_loss(x, y, beta=0.0), f32(3), f32(3), opsets=FEW),
    *each("poisson", functional.poisson_nll_loss, f32(3, 4), f32(3, 4, low=0, high=9), full=True),
    *each("poisson-plain", functional.poisson_nll_loss, PROBABILITIES, f32(3, 4, low=0, high=9), log_input=False),
    *each("binary", functional.binary_cross_entropy, PROBABILITIES, PROBABILITIES),
    Row(
        "binary-borders",
        lambda x, y: functional.binary_cross_entropy(x, y, reduction="none"),
        values([0.0, 1.0, 1.0]),
        values([1.0, 0.0, 1.0]),
        trap="logarithms end at -100",
    ),
    Row(
        "binary-weight",
        lambda x, y, w: functional.binary_cross_entropy(x, y, w),
        PROBABILITIES,
        PROBABILITIES,
        f32(4),
        opsets=FEW,
    ),
    Row(
        "binary-logits-of-two-dtypes",
        lambda x, y, w: functional.binary_cross_entropy_with_logits(x, y, w, pos_weight=w),
        f32(3, 4),
        f64(3, 4, low=0, high=1),
        f64(4, low=0, high=1),
        opsets=(13, 20),
        rtol=1e-6,
        loose="the logarithm of the sigmoid is a float32 in torch, too, and rounds in another way",
    ),
    Row(
        "kl-of-two-dtypes",
        lambda x, y: functional.kl_div(x, y, reduction="sum"),
        f32(3, 4),
        f64(3, 4, low=0, high=1),
        opsets=(13, 20),
    ),
    Row("huber-of-two-dtypes", functional.huber_loss, f32(3, 4), f64(3, 4), opsets=(13, 20), routes=("trace",)),
    *each("binary-logits", functional.binary_cross_entropy_with_logits, f32(3, 4), PROBABILITIES),
    Row(
        "binary-logits-large",
        lambda x, y: functional.binary_cross_entropy_with_logits(x, y, reduction="none"),
        values([200.0, -200.0]),
        values([0.0, 1.0]),
    ),
    Row(
        "binary-logits-weights",
        lambda x, y, w, p: functional.binary_cross_entropy_with_logits(x, y, w, pos_weight=p),
        f32(3, 4),
        PROBABILITIES,
        f32(4),
        f32(4, low=1, high=2),
        opsets=FEW,
    ),
    *each("kl", functional.kl_div, f32(3, 4), PROBABILITIES),
    Row("kl-zero", lambda x, y: functional.kl_div(x, y, reduction="none"), f32(3), values([0.0, 0.5, 1.0])),
    Row(
        "kl-logarithms",
        lambda x, y: functional.kl_div(x, y, log_target=True, reduction="batchmean"),
        f32(3, 4),
        f32(3, 4),
        opsets=FEW,
    ),
    *each("nll", functional.nll_loss, f32(3, 4), IGNORED),
    *each("nll-weight", functional.nll_loss, f32(3, 4), CLASSES, f32(4, low=0.5, high=2)),
    Row("nll-ignored-class", lambda x, y: functional.nll_loss(x, y, ignore_index=3), f32(3, 4), CLASSES, opsets=FEW),
    Row("nll-single", functional.nll_loss, f32(4), values(2, torch.int64), opsets=FEW),
    Row("nll-image", functional.nll_loss, f32(2, 3, 4, 5), i64(2, 4, 5, low=0, high=3), opsets=FEW),
    Row("nll-dynamic", functional.nll_loss, f32(3, 4), i64(3, low=0, high=4), dynamic="batch"),
    Row("nll-aten", lambda x, y: torch.ops.aten.nll_loss(x, y, None, 1, -100), f32(3, 4), CLASSES, opsets=FEW),
    Row(
        "nll-aten-2d",
        lambda x, y: torch.ops.aten.nll_loss2d(x, y, None, 1, -100),
        f32(2, 3, 4, 5),
        i64(2, 4, 5, low=0, high=3),
        opsets=FEW,
    ),
    Row(
        "nll-forward", lambda x, y: torch.ops.aten.nll_loss_forward(x, y, None, 1, -100), f32(3, 4), CLASSES, opsets=FEW
    ),
    Row(
        "nll-forward-2d",
        lambda x, y: torch.ops.aten.nll_loss2d_forward(x, y, None, 1, -100),
        f32(2, 3, 4, 5),
        i64(2, 4, 5, low=0, high=3),
        opsets=FEW,
    ),
    *each("cross-entropy", functional.cross_entropy, f32(3, 4), IGNORED),
    *each("cross-entropy-weight", functional.cross_entropy, f32(3, 4), CLASSES, f32(4, low=0.5, high=2)),
    *each("cross-entropy-smooth", functional.cross_entropy, f32(3, 4), IGNORED, label_smoothing=0.1),
    *each(
        "cross-entropy-smooth-weight",
        functional.cross_entropy,
        f32(3, 4),
        CLASSES,
        f32(4, low=0.5, high=2),
        label_smoothing=0.1,
    ),
    *each("cross-entropy-soft", functional.cross_entropy, f32(3, 4), PROBABILITIES),
    *each(
        "cross-entropy-soft-weight",
        functional.cross_entropy,
        f32(3, 4, 2),
        f32(3, 4, 2, low=0, high=1),
        f32(4, low=0.5, high=2),
        label_smoothing=0.1,
    ),
    Row("cross-entropy-image", functional.cross_entropy, f32(2, 3, 4, 5), i64(2, 4, 5, low=0, high=3), dynamic="batch"),
    Row("cross-entropy-single", functional.cross_entropy, f32(4), values(2, torch.int64), opsets=FEW),
    Row(
        "multi-margin-vector",
        lambda x, y: functional.multi_margin_loss(x, y, reduction="none"),
        f32(4),
        values([2], torch.int64),
        opsets=FEW,
    ),
    Row(
        "multi-margin-zero-dim",
        lambda x, y: functional.multi_margin_loss(x, y, reduction="none"),
        f32(4),
        values(2, torch.int64),
        routes=("trace",),
        opsets=FEW,
    ),
    Row("ranking-int", functional.margin_ranking_loss, i64(3), i64(3), values([1, -1, 1], torch.int64), opsets=FEW),
    Row("triplet-int", functional.triplet_margin_loss, i64(3, 4), i64(3, 4), i64(3, 4), opsets=FEW),
    Row("poisson-int", functional.poisson_nll_loss, i64(3, low=0, high=3), i64(3, low=0, high=3), opsets=FEW),
    *each("hinge", functional.hinge_embedding_loss, f32(3), SIGNS),
    *each("gaussian", functional.gaussian_nll_loss, f32(3, 4), f32(3, 4), f32(3, 4, low=0), traced="Comprehension ifs"),
    *each(
        "gaussian-rows",
        functional.gaussian_nll_loss,
        f32(3, 4),
        f32(3, 4),
        f32(3, low=0),
        full=True,
        eps=0.1,
        traced="Comprehension ifs",
    ),
    *each("gaussian-number", functional.gaussian_nll_loss, f32(3, 4), f32(3, 4), 0.5, traced="Comprehension ifs"),
    *each("ranking", functional.margin_ranking_loss, f32(3), f32(3), SIGNS, margin=0.2),
    *each("soft-margin", functional.soft_margin_loss, f32(3), SIGNS),
    *each("cosine", functional.cosine_embedding_loss, f32(3, 4), f32(3, 4), SIGNS, margin=0.1),
    *each("triplet", functional.triplet_margin_loss, f32(3, 4), f32(3, 4), f32(3, 4)),
    Row(
        "triplet-swap",
        lambda a, p, n: functional.triplet_margin_loss(a, p, n, swap=True, p=3),
        f32(3, 4),
        f32(3, 4),
        f32(3, 4),
        opsets=FEW,
        traced="found type 'int'",
    ),
    *each("multi-margin", functional.multi_margin_loss, f32(3, 4), CLASSES),
    Row(
        "multi-margin-weight",
        lambda x, y, w: functional.multi_margin_loss(x, y, p=2, margin=0.5, weight=w),
        f32(3, 4),
        CLASSES,
        f32(4, low=0.5, high=2),
        opsets=FEW,
    ),
    Row("multi-margin-single", functional.multi_margin_loss, f32(4), values(2, torch.int64), opsets=FEW),
]


@pytest.mark.parametrize(("row", "plan"), row_params(ROWS + (LINEAR if linear_cross_entropy else [])))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
