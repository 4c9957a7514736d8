"""Padding, rolling, and the exchange of pixels with channels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from tests.harness import Row, boolean, f16, f32, f64, i8, i32, i64, layer, u8
from tests.row_plans import Plan, row_params, run_row

PIXELS = {0: {0: "batch", 2: "height", 3: "width"}}
# torch.export wants bounds declared for axes that these cut, which a row cannot say
TRACE = ("trace",)

PADS = [
    Row("pad", lambda x: F.pad(x, (1, 2)), f32(2, 3), dynamic="batch"),
    Row("pad-value", lambda x: F.pad(x, (1, 0, 0, 2), value=-1.5), f32(2, 3), dynamic={0: {0: "a", 1: "b"}}),
    Row("pad-negative", lambda x: F.pad(x, (-1, 1, 2, -1)), f32(3, 4), trap="a negative width cuts"),
    Row("pad-negative-dynamic", lambda x: F.pad(x, (-1, -1)), f32(3, 6), dynamic={0: {1: "n"}}, routes=TRACE),
    Row(
        "pad-sequence",
        lambda x, y, z: pad_sequence([x, y, z], batch_first=True, padding_value=2.0),
        f32(3, 2),
        f32(5, 2),
        f32(4, 2),
        dynamic={0: {0: "n"}, 1: {0: "m"}},
    ),
    Row(
        "pad-sequence-left",
        lambda x, y: pad_sequence([x, y], padding_side="left"),
        f32(3),
        f32(2),
        dynamic={0: {0: "n"}},
    ),
    Row("pad-nothing", lambda x: F.pad(x, (0, 0)) + 1, f32(2, 3)),
    Row("pad-empty", lambda x: F.pad(x, (1, 1)), f32(2, 0)),
    Row("pad-int", lambda x: F.pad(x, (1, 1), value=7), i64(2, 3), dynamic="batch", traced="found type 'int'"),
    Row("pad-int32", lambda x: F.pad(x, (1, 1), value=7), i32(2, 3), traced="found type 'int'"),
    Row("pad-int8", lambda x: F.pad(x, (1, 1), value=7), i8(2, 3), traced="found type 'int'"),
    Row("pad-uint8", lambda x: F.pad(x, (1, 1), value=7), u8(2, 3), traced="found type 'int'"),
    Row("pad-bool", lambda x: F.pad(x, (1, 1), value=True), boolean(2, 3)),
    Row("pad-half", lambda x: F.pad(x, (1, 1)), f16(2, 3)),
    Row("pad-double", lambda x: F.pad(x, (1, 1), value=0.1), f64(2, 3), rtol=0, atol=0),
    Row("pad-to-a-multiple", lambda x: F.pad(x, (0, x.shape[0])), f32(2, 3), dynamic="batch", opsets=(9, 13, 20)),
    Row("pad-module", layer(nn.ConstantPad2d, (1, 2, 0, 1), 3.0), f32(1, 2, 3, 4), dynamic=PIXELS),
    Row("zero-pad-module", layer(nn.ZeroPad2d, 1), f32(1, 2, 3, 4)),
    Row("constant-pad-nd", lambda x: torch.constant_pad_nd(x, (1, 1), 2), f32(2, 3)),
    Row("constant-pad-nd-tensor-value", lambda x: torch.ops.aten.constant_pad_nd(x, [1, 1], 2.5), f32(2, 3)),
    Row("reflect", lambda x: F.pad(x, (2, 1), mode="reflect"), f32(1, 2, 4), dynamic={0: {0: "batch"}}),
    Row(
        "reflect-dynamic", lambda x: F.pad(x, (2, 1), mode="reflect"), f32(1, 2, 4), dynamic={0: {2: "n"}}, routes=TRACE
    ),
    Row("reflect-2d", layer(nn.ReflectionPad2d, (1, 0, 2, 1)), f32(1, 2, 4, 3)),
    Row("reflect-int", lambda x: F.pad(x, (2, 1), mode="reflect"), i64(1, 2, 4)),
    Row("reflect-half", lambda x: F.pad(x, (2, 1), mode="reflect"), f16(1, 2, 4)),
    Row("reflect-negative", lambda x: F.pad(x, (2, -1), mode="reflect"), f32(1, 2, 4), routes=TRACE),
    Row("reflection-pad1d", lambda x: torch.ops.aten.reflection_pad1d(x, [1, 2]), f32(1, 2, 4)),
    Row("reflection-pad2d", lambda x: torch.ops.aten.reflection_pad2d(x, [1, 2, 1, 0]), f32(1, 2, 4, 3)),
    Row("reflection-pad3d", lambda x: torch.ops.aten.reflection_pad3d(x, [1, 1, 1, 0, 0, 1]), f32(1, 2, 4, 3, 2)),
    Row("replicate", lambda x: F.pad(x, (2, 1), mode="replicate"), f32(1, 2, 4), dynamic={0: {0: "a", 2: "n"}}),
    Row("replicate-2d", layer(nn.ReplicationPad2d, (5, 0, 2, 1)), f32(1, 2, 4, 3), dynamic=PIXELS),
    Row(
        "replicate-cut",
        lambda x: F.pad(x, (-3, 5, 2, -1), mode="replicate"),
        f32(1, 2, 4, 3),
        trap="the border is what stood there before the cut",
    ),
    Row("replicate-int", lambda x: F.pad(x, (3, 1), mode="replicate"), i64(1, 2, 4)),
    Row("replication-pad1d", lambda x: torch.ops.aten.replication_pad1d(x, [1, 2]), f32(1, 2, 4)),
    Row("replication-pad2d", lambda x: torch.ops.aten.replication_pad2d(x, [1, 2, 1, 0]), f32(1, 2, 4, 3)),
    Row("replication-pad3d", lambda x: torch.ops.aten.replication_pad3d(x, [1, 1, 1, 0, 0, 1]), f32(1, 2, 4, 3, 2)),
    Row("circular", lambda x: F.pad(x, (2, 1), mode="circular"), f32(1, 2, 4), dynamic="batch"),
    Row(
        "circular-dynamic",
        lambda x: F.pad(x, (2, 0), mode="circular"),
        f32(1, 2, 4),
        dynamic={0: {2: "n"}},
        opsets=(9, 13, 20),
        routes=TRACE,
    ),
    Row("circular-2d", layer(nn.CircularPad2d, (1, 0, 2, 1)), f32(1, 2, 4, 3)),
    Row("circular-whole-turn", lambda x: F.pad(x, (4, 4), mode="circular"), f32(1, 2, 4)),
    Row("pad-circular", lambda x: torch.ops.aten._pad_circular(x, [1, 1]), f32(1, 2, 4)),
    Row("pad-enum", lambda x: torch.ops.aten._pad_enum(x, [1, 1], 1), f32(1, 2, 4)),
]

ROLLS = [
    Row("roll", lambda x: torch.roll(x, 1, 0), f32(3, 4)),
    Row("roll-back", lambda x: torch.roll(x, -1, 1), f32(3, 4), dynamic="batch"),
    Row("roll-several", lambda x: torch.roll(x, (1, -2), (0, 1)), f32(3, 4)),
    Row("roll-same-axis-twice", lambda x: torch.roll(x, (1, 1), (0, 0)), f32(3, 4)),
    Row("roll-flat", lambda x: torch.roll(x, 5), f32(3, 4)),
    Row("roll-flat-dynamic", lambda x: torch.roll(x, 2), f32(3, 4), dynamic="batch", opsets=(9, 13, 20)),
    Row("roll-all-round", lambda x: torch.roll(x, 7, 0), f32(3, 4), trap="a shift past the size counts round"),
    Row("roll-all-round-dynamic", lambda x: torch.roll(x, -7, 0), f32(3, 4), dynamic="batch", opsets=(9, 13, 20)),
    Row("roll-nothing", lambda x: torch.roll(x, 3, 0) + 1, f32(3, 4)),
    Row(
        "roll-half-the-size",
        lambda x: torch.roll(x, (x.shape[0] // 2,), (0,)),
        f32(4, 2),
        dynamic="batch",
        opsets=(9, 13, 20),
        routes=TRACE,
    ),
    Row("roll-zero-dim", lambda x: torch.roll(x, 1), f32()),
    Row("roll-int", lambda x: torch.roll(x, 1, 0), i64(3)),
]

SHUFFLES = [
    Row("pixel-shuffle", lambda x: F.pixel_shuffle(x, 2), f32(1, 8, 2, 3), dynamic=PIXELS, opsets=(9, 11, 13, 20)),
    Row("pixel-shuffle-int", lambda x: F.pixel_shuffle(x, 2), i64(1, 8, 2, 3)),
    Row("pixel-shuffle-half", lambda x: F.pixel_shuffle(x, 2), f16(1, 8, 2, 3)),
    Row("pixel-shuffle-no-batch", lambda x: F.pixel_shuffle(x, 2), f32(8, 2, 3)),
    Row("pixel-shuffle-two-batches", lambda x: F.pixel_shuffle(x, 2), f32(2, 3, 4, 2, 3), dynamic="batch"),
    Row("pixel-unshuffle", lambda x: F.pixel_unshuffle(x, 2), f32(1, 2, 4, 6), dynamic="batch"),
    Row(
        "pixel-unshuffle-dynamic",
        lambda x: F.pixel_unshuffle(x, 2),
        f32(1, 2, 4, 6),
        dynamic=PIXELS,
        sizes={"height": 6, "width": 4},
        routes=TRACE,
    ),
    Row("pixel-unshuffle-no-batch", lambda x: F.pixel_unshuffle(x, 3), f32(2, 3, 6)),
    Row("channel-shuffle", lambda x: F.channel_shuffle(x, 2), f32(1, 6, 2, 3), dynamic=PIXELS),
    Row("native-channel-shuffle", lambda x: F.native_channel_shuffle(x, 3), f32(1, 6, 2, 3)),
]


# numbers that follow from a size, made into the dtype of the tensor
COMPUTED = [
    *(
        Row(
            f"pad-with-a-number-{inputs.dtype}".replace("torch.", ""),
            lambda x: torch.constant_pad_nd(x, [1, 2], x.size(0) * 0.29),
            inputs,
            dynamic={0: {0: "n"}},
            sizes={"n": 100},
            trap="0.29 of 100 is 28.999999999999996, and in float32 it is 29",
        )
        for inputs in (i64(4), u8(4), f16(4))
    ),
    Row(
        "pad-with-a-number",
        lambda x: (F.pad(x, [1, x.size(0)], value=x.size(0) * 0.29), F.pad(x, [1, 2], "constant", -x.size(0) * 1.0)),
        i64(4),
        dynamic={0: {0: "n"}},
        sizes={"n": 100},
        routes=("trace", "script"),  # torch.export holds the size
    ),
]


@pytest.mark.parametrize(("row", "plan"), row_params(PADS + ROLLS + SHUFFLES + COMPUTED))
def test_row(row: Row, plan: Plan) -> None:
    run_row(row, plan)
