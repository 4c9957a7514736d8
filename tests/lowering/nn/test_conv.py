"""Convolutions: spatial ranks, borders, groups, transposed, with and without a batch axis."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.harness import CAPTURES, Row, f32, layer
from tests.row_plans import Plan, row_params, run_row

GROUPS = "its ConvTranspose takes no groups"

aten = torch.ops.aten

PLAIN = [
    Row("conv1d", layer(nn.Conv1d, 3, 4, 3), f32(2, 3, 8), dynamic={0: {0: "batch", 2: "length"}}),
    Row("conv2d", layer(nn.Conv2d, 3, 4, 3, stride=2, padding=1), f32(2, 3, 7, 8), dynamic="batch"),
    Row(
        "conv2d-any-size",
        layer(nn.Conv2d, 3, 4, (3, 2), stride=(1, 2), padding=(0, 1)),
        f32(1, 3, 6, 7),
        dynamic={0: {0: "batch", 2: "height", 3: "width"}},
    ),
    Row("conv3d", layer(nn.Conv3d, 2, 3, (1, 2, 3), padding=(0, 1, 1)), f32(2, 2, 4, 5, 4), dynamic="batch"),
    Row("no-bias", layer(nn.Conv2d, 2, 3, 3, bias=False), f32(1, 2, 5, 5)),
    Row("dilated", layer(nn.Conv2d, 2, 3, 3, dilation=(2, 1)), f32(1, 2, 7, 6)),
    Row("groups", layer(nn.Conv2d, 4, 6, 3, groups=2), f32(1, 4, 5, 5)),
    Row("depthwise", layer(nn.Conv1d, 3, 6, 3, groups=3), f32(2, 3, 7)),
    Row("conv1d-no-batch", layer(nn.Conv1d, 3, 4, 3), f32(3, 8)),
    Row("conv2d-no-batch", layer(nn.Conv2d, 3, 4, 3), f32(3, 8, 6), dynamic={0: {2: "width"}}),
    Row("conv3d-no-batch", layer(nn.Conv3d, 2, 3, 2), f32(2, 4, 3, 3)),
    Row("weight-as-input", lambda x, w, b: functional.conv2d(x, w, bias=b), f32(1, 2, 5, 5), f32(3, 2, 3, 3), f32(3)),
    Row("circular", layer(nn.Conv1d, 2, 2, 3, padding=1, padding_mode="circular"), f32(1, 2, 6), opsets=(13, 20)),
    Row("reflect", layer(nn.Conv2d, 2, 2, 3, padding=1, padding_mode="reflect"), f32(1, 2, 6, 5)),
]

SAME = [
    Row("same-1d", layer(nn.Conv1d, 2, 3, 3, padding="same"), f32(1, 2, 7), dynamic="batch"),
    Row(
        "same-even-kernel",
        layer(nn.Conv2d, 2, 3, (2, 4), padding="same"),
        f32(1, 2, 6, 5),
        trap="the odd one goes to the end",
    ),
    Row("same-dilated", layer(nn.Conv2d, 2, 3, (2, 3), padding="same", dilation=(3, 2)), f32(1, 2, 6, 5)),
    Row("same-3d-no-batch", layer(nn.Conv3d, 2, 3, 2, padding="same"), f32(2, 3, 3, 4)),
    Row("same-weight-as-input", lambda x, w: functional.conv1d(x, w, padding="same"), f32(1, 2, 7), f32(3, 2, 4)),
    Row("valid", layer(nn.Conv2d, 2, 3, 2, padding="valid", stride=2), f32(1, 2, 6, 5)),
]

TRANSPOSED = [
    Row("transpose1d", layer(nn.ConvTranspose1d, 3, 2, 3), f32(2, 3, 6), dynamic={0: {0: "batch", 2: "length"}}),
    Row(
        "transpose2d-output-padding",
        layer(nn.ConvTranspose2d, 3, 2, 3, stride=2, padding=1, output_padding=1),
        f32(1, 3, 4, 5),
        dynamic="batch",
    ),
    Row(
        "transpose2d-output-padding-one-axis",
        layer(nn.ConvTranspose2d, 3, 2, (3, 2), stride=(2, 3), output_padding=(0, 2)),
        f32(1, 3, 4, 3),
    ),
    Row("transpose3d", layer(nn.ConvTranspose3d, 2, 3, 2, stride=2), f32(1, 2, 3, 2, 3)),
    Row("transpose-groups", layer(nn.ConvTranspose2d, 4, 6, 2, groups=2), f32(1, 4, 3, 3), unjudged=GROUPS),
    Row("transpose-dilated", layer(nn.ConvTranspose1d, 2, 2, 3, dilation=2, padding=1), f32(1, 2, 5)),
    Row("transpose-no-bias", layer(nn.ConvTranspose1d, 2, 2, 3, bias=False), f32(1, 2, 5)),
    Row(
        "transpose-more-than-stride",
        layer(nn.ConvTranspose2d, 2, 3, 3, stride=(2, 1), output_padding=(1, 2), dilation=3, padding=1),
        f32(1, 2, 4, 4),
        trap="runtimes want less than the stride, torch less than the stride or the dilation",
    ),
    Row("transpose1d-no-batch", layer(nn.ConvTranspose1d, 2, 2, 3, stride=2, output_padding=1), f32(2, 5)),
    Row("transpose2d-no-batch", layer(nn.ConvTranspose2d, 2, 2, 2), f32(2, 3, 4)),
    Row("transpose3d-no-batch", layer(nn.ConvTranspose3d, 2, 2, 2), f32(2, 2, 3, 2)),
    Row(
        "transpose-output-size-computed",
        lambda x, y: nn.functional.conv_transpose1d(
            x, torch.ones(2, 3, 3), stride=2, output_padding=[y.shape[2] - 2 * x.shape[2]], dilation=3
        ),
        f32(1, 2, 4),
        f32(1, 2, 9),
        dynamic={0: {2: "n"}, 1: {2: "m"}},
        sizes={"n": 6, "m": 14},
        routes=CAPTURES,  # torch.jit.trace itself holds the number
    ),
    Row(
        "transpose-output-size",
        lambda x, w: functional.conv_transpose1d(x, w, stride=3, output_padding=2, groups=2),
        f32(1, 4, 4),
        f32(4, 1, 3),
        unjudged=GROUPS,
    ),
]

# The operators that front ends and decompositions show in place of the ones above.
INNER = [
    Row(
        "convolution",
        lambda x, w, b: aten.convolution(x, w, b, [2], [1], [1], False, [0], 1),
        f32(1, 2, 6),
        f32(3, 2, 3),
        f32(3),
    ),
    Row(
        "convolution-transposed",
        lambda x, w: aten.convolution(x, w, None, [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
        f32(1, 2, 4, 3),
        f32(2, 3, 3, 3),
    ),
    Row(
        "_convolution",
        lambda x, w: aten._convolution(x, w, None, [1], [0], [1], False, [0], 1, False, False, False, False),
        f32(1, 2, 6),
        f32(3, 2, 3),
    ),
    Row(
        "_convolution.deprecated",
        lambda x, w: aten._convolution.deprecated(x, w, None, [1], [0], [1], False, [0], 1, False, False, False),
        f32(1, 2, 6),
        f32(3, 2, 3),
    ),
    Row(
        "_convolution_mode",
        lambda x, w: aten._convolution_mode(x, w, None, [1], "same", [1], 1),
        f32(1, 2, 6),
        f32(3, 2, 3),
    ),
    Row("conv_tbc", lambda x, w, b: torch.conv_tbc(x, w, b, 1), f32(5, 2, 3), f32(3, 3, 4), f32(4)),
    Row(
        "kernel-of-any-size",
        lambda x, w: functional.conv2d(x, w, padding=(1, 0)),
        f32(2, 3, 8, 9),
        f32(4, 3, 3, 2),
        dynamic={0: {0: "batch"}, 1: {2: "height", 3: "width"}},
        routes=("trace", "script"),
    ),
    Row(
        "same-kernel-of-any-size",
        lambda x, w: functional.conv1d(x, w, padding="same"),
        f32(2, 3, 9),
        f32(4, 3, 3),
        dynamic={0: {0: "batch", 2: "length"}, 1: {2: "kernel"}},
        sizes={"kernel": 4},
        trap="the odd zero goes to the end",
    ),
    Row(
        "padding-of-any-size",
        lambda x, w: functional.conv1d(x, w, padding=w.shape[2] // 2),
        f32(2, 3, 9),
        f32(4, 3, 3),
        dynamic={1: {2: "kernel"}},
        routes=CAPTURES,
        trap="the tracer would hold the padding of the example, and not say so",
    ),
    Row(
        "padding-list-of-any-size",
        lambda x: functional.conv2d(x, torch.ones(2, 3, 3, 3), None, 1, (x.shape[2] // 4, 1)),
        f32(2, 3, 8, 9),
        dynamic={0: {2: "height"}},
        sizes={"height": 16},
        routes=CAPTURES,
    ),
    Row("conv3d-same", layer(nn.Conv3d, 1, 1, 3, padding="same"), f32(1, 1, 3, 3, 3)),
]


@pytest.mark.parametrize(("row", "plan"), row_params([*PLAIN, *SAME, *TRANSPOSED, *INNER]))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
