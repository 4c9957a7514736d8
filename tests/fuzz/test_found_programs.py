"""What random programs found, as small as it gets: each runs on every route (`python -m fuzz programs`)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import pytest

from fuzz.programs.program import Draw, Program, Step
from fuzz.programs.routes import ROUTES, run
from tests.tiers import dealt

Kind = tuple[str, tuple[int | str, ...]]


@dataclass(frozen=True)
class Found:
    """Statements, what they return, the tensors that they name, the sizes of named axes on two feeds; the trap."""

    name: str
    text: str
    outputs: str
    tensors: dict[str, Kind]
    sizes: tuple[dict[str, int], dict[str, int]] = field(default=({}, {}))
    opset: int = 20
    branches: bool = False
    refused: str = "the operator needs a later opset"

    def program(self) -> Program:
        draws = [
            # int64 buffers are indices
            Draw(name, dtype, shape, "below 2" if name[0] == "p" and dtype == "int64" else "lattice", 7)
            for name, (dtype, shape) in self.tensors.items()
        ]
        steps, rest = steps_of(self.text.strip("\n").split("\n"), 0)
        assert not rest
        return Program(
            tuple(draw for draw in draws if draw.name.startswith("x")),
            tuple(draw for draw in draws if draw.name.startswith("p")),
            steps,
            tuple(self.outputs.split()),
            self.sizes,
            self.opset,
            self.branches,
        )


def steps_of(lines: list[str], depth: int) -> tuple[tuple[Step, ...], list[str]]:
    """The steps of a block, and the lines after it; blocks are indented by four."""
    steps: list[Step] = []
    while lines and lines[0].startswith("    " * depth):
        text, lines = lines[0][4 * depth :], lines[1:]
        if text == "else:":
            other, lines = steps_of(lines, depth + 1)
            steps[-1] = Step(steps[-1].text, steps[-1].body, other)
        elif text.endswith(":"):
            body, lines = steps_of(lines, depth + 1)
            steps.append(Step(text, body))
        else:
            steps.append(Step(text))
    return tuple(steps), lines


X: Kind = ("float32", (2, 3))

INDEX: Kind = ("int64", (1, 2))
PLACES: Kind = ("int64", (2,))
ROW: Kind = ("float32", (3,))
SQUARE: Kind = ("float32", (2, 2))
LESS = ({"n": 6}, {"n": 3})

FOUND = [
    Found(
        "a-constant-of-one-element-and-any-stride",
        """
self.p0.scatter_(-1, torch.zeros_like(self.p0, dtype=torch.int64), -0.25)
self.p0.diagonal().fill_(2.0)
""",
        "self.p0",
        {"x0": X, "p0": ("float32", (1, 1))},
    ),
    Found("an-input-whose-shape-is-changed-in-place", "x0.squeeze_()", "x0", {"x0": ("float32", (1,))}),
    Found("an-input-transposed-in-place", "x0.t_()\nv0 = x0 + 1", "v0", {"x0": X}),
    Found("a-buffer-transposed-in-place", "self.p0.t_()\nv0 = self.p0 + 1", "v0", {"x0": X, "p0": X}),
    Found("a-weight-norm-of-one-axis", "v0 = torch._weight_norm(x0, x0 + 9.0)", "v0", {"x0": ("float32", (2,))}),
    Found("a-vector-product-of-numbers", "v0 = torch.linalg.vecdot(x0, x0)", "v0", {"x0": ("float32", ())}),
    Found("a-distance-of-numbers", "v0 = F.pairwise_distance(x0, x0 + 1.0)", "v0", {"x0": ("float32", ())}),
    Found("a-loss-of-numbers", "v0 = F.triplet_margin_loss(x0, x0 + 1.0, x0 - 3.0)", "v0", {"x0": ("float32", ())}),
    Found("a-similarity-of-numbers", "v0 = F.cosine_similarity(x0, x0 + 9.0, dim=0)", "v0", {"x0": ("float32", ())}),
    Found("a-power-in-place", "x0.pow_(2)\nx0.pow_(x0)", "x0", {"x0": ("float32", ("n",))}, ({"n": 2}, {"n": 3})),
    Found("a-wide-power-in-place", "x0.float_power_(2)", "x0", {"x0": ("float64", (2,))}),
    Found("a-sum-that-widens-in-place", "x0.cumsum_(0)", "x0", {"x0": ("int8", ("n",))}, ({"n": 2}, {"n": 3})),
    Found("a-product-that-widens-in-place", "x0.cumprod_(0)\nx0 *= x0", "x0", {"x0": ("uint8", (3,))}),
    Found("a-sum-of-constants-in-int32", "v0 = self.p0.sum(dtype=torch.int32)", "v0", {"x0": X, "p0": X}),
    Found("a-product-over-nothing", "v0 = x0 @ x1", "v0", {"x0": ("float32", (4, 0)), "x1": ("float32", (0,))}),
    Found("the-shape-of-a-number", "v0 = torch._shape_as_tensor(x0)", "v0", {"x0": ("float32", ())}),
    Found("a-slice-that-may-be-shorter", "v0 = x0[:6].reshape(-1)", "v0", {"x0": ("float32", ("n", 2))}, LESS),
    Found(
        "a-slice-that-may-be-shorter-and-its-size",
        "v0 = x0[:6]\nv1 = v0.reshape(v0.shape[0] * 2)",
        "v1",
        {"x0": ("float32", ("n", 2))},
        LESS,
    ),
    Found("the-last-that-may-be-fewer", "v0 = x0[-4:].flip(0) * 2", "v0", {"x0": ("float32", ("n", 2))}, LESS),
    Found("a-slice-that-may-be-empty", "v0 = x0[-2:3]", "v0", {"x0": ("float32", ("n",))}, ({"n": 3}, {"n": 5})),
    Found("a-slice-that-is-empty-here", "v0 = x0[-2:3]", "v0", {"x0": ("float32", ("n",))}, ({"n": 5}, {"n": 3})),
    Found("a-write-to-what-may-be-empty", "x0[0, -2:3] = 2", "x0", {"x0": ("float32", (2, "n"))}, LESS),
    Found(
        "a-write-with-steps-to-what-may-be-shorter",
        "x0[0:5:2, -5] = 3",
        "x0",
        {"x0": ("float32", ("n", 5, 2))},
        ({"n": 5}, {"n": 4}),
    ),
    Found(
        "branches-of-two-shapes-at-opset-10",
        """
if bool(x0.sum() > 0):
    v0 = x0 + 1
else:
    v0 = x0.t()
""",
        "v0",
        {"x0": X},
        opset=10,
        branches=True,
    ),
    Found(
        "sums-into-places-at-opset-10", "v0 = x0.scatter_add(0, self.p0, x0)", "v0", {"x0": X, "p0": INDEX}, opset=10
    ),
    Found("an-index-that-is-a-list", "v0 = torch.ops.aten.index(x0, [self.p0])", "v0", {"x0": X, "p0": INDEX}),
    Found("a-write-by-a-list", "x0.index_put_([torch.arange(2)], torch.ones(2, 3))", "x0", {"x0": X}),
    Found("a-write-to-one-row-of-an-expanded-tensor", "v0 = x0.expand(2, 3)\nv0[0].mul_(3)", "v0 x0", {"x0": ROW}),
    Found(
        "a-write-below-two-views-of-an-expanded-tensor",
        "v0 = x0.expand(2, 3)\nv1 = v0[:, 1:]\nv1[0].mul_(3)",
        "v0 v1 x0",
        {"x0": ROW},
    ),
    Found(
        "a-copy-of-what-was-transposed-in-place", "x0.t_()\nv0 = x0.contiguous()\nv0.mul_(3)", "x0 v0", {"x0": SQUARE}
    ),
    Found("a-distance-of-whole-numbers", "v0 = F.pairwise_distance(x0, x0 + 3, 2.0)", "v0", {"x0": ("int64", (2, 3))}),
    Found(
        "a-write-to-a-strided-view-that-overlaps-itself",
        "v0 = torch.as_strided(x0, (3, 2), (1, 1), 0)\nv0[2] = -0.25\nv0[0] *= 3",
        "v0 x0",
        {"x0": ("float32", (6,))},
    ),
    Found("a-border-of-half-floats", "v0 = F.pad(x0, (1, 0, 1, 0))", "v0", {"x0": ("float16", ("n", 2))}, LESS),
    Found("sums-of-half-floats", "x0.index_add_(0, self.p0, x0 * 2)", "x0", {"x0": ("float16", (2, 2)), "p0": PLACES}),
    Found("an-inner-product-of-nothing", "v0 = torch.inner(x0, x0)", "v0", {"x0": ("float32", (0,))}, opset=9),
    Found(
        "a-write-to-a-piece-of-unknown-size",
        "v0 = torch.unbind(x0, -1)[-1]\nv0 -= 1",
        "x0",
        {"x0": ("float32", ("n", 2))},
        LESS,
    ),
    Found("a-safe-softmax-of-a-number", "v0 = torch.ops.aten._safe_softmax(x0, -1)", "v0", {"x0": ("float32", ())}),
    Found(
        "a-write-through-windows-of-a-dynamic-axis",
        "v0 = x0.unfold(0, 1, 1)\nv0.add_(v0)",
        "x0",
        {"x0": ("float32", ("n", 2))},
        LESS,
        refused="a write through a view of unknown sizes",
    ),
    Found("a-square-buffer-transposed-in-place", "self.p0.t_()", "self.p0", {"x0": X, "p0": SQUARE}),
    Found(
        "a-copy-that-torch-export-made-of-a-name",
        "v0 = torch.ops.aten.lift_fresh(x0)\nx0.copy_(self.p0)",
        "v0",
        {"x0": ROW, "p0": ROW},
        refused="a write through what may be a copy",
    ),
    Found(
        "a-write-by-numbers-to-a-part-that-is-empty-here",
        "x0[-1:2:3, 0:1, self.p0] = 2.0",
        "x0",
        {"x0": ("float32", ("n", 1, 2)), "p0": PLACES},
        ({"n": 6}, {"n": 3}),
    ),
    Found(
        "a-write-by-indices-to-a-part-that-may-be-empty",
        "x0[self.p0, 4:, self.p1] += x1",
        "x0",
        {"x0": ("float32", (3, "n", 2)), "x1": ("float32", ()), "p0": ("int64", (2, 2)), "p1": PLACES},
        LESS,
    ),
    Found(
        "a-write-to-a-part-that-the-trace-takes-for-one-row",
        "x0[2:4:3, ..., self.p0] *= self.p1",
        "x0",
        {"x0": ("float32", ("n", 2)), "p0": PLACES, "p1": ("float32", ())},
        ({"n": 4}, {"n": 2}),
    ),
    Found(
        "chunks-of-a-short-axis", "v0 = x0.chunk(4, 0)[0]", "v0", {"x0": ("float32", ("n", 2))}, ({"n": 4}, {"n": 3})
    ),
    Found("a-number-transposed", "v0 = torch.ops.aten.mT(x0)", "v0", {"x0": ("float32", ())}),
    Found(
        "an-attention-that-drops-all",
        "v0 = F.scaled_dot_product_attention(x0, x0, x0, dropout_p=1.0)",
        "v0",
        {"x0": ("float32", (1, 2, 2, 3))},
    ),
    Found(
        "the-one-unique-number-squeezed", "v0 = torch.unique(x0)\nv1 = v0.squeeze(-1)", "v1", {"x0": ("float32", ())}
    ),
    Found(
        "a-shift-of-more-bits-than-there-are", "v0 = torch.bitwise_right_shift(0, x0)", "v0", {"x0": ("int32", (9,))}
    ),
    Found(
        "scales-as-they-lie-in-memory",
        "v0, v1 = torch.ops.aten._weight_norm_interface(x0, x1)",
        "v0 v1",
        {"x0": ("float32", (1,)), "x1": ("float32", ())},
        refused="scales that torch takes as they lie in memory",
    ),
    Found(
        "more-tolerances-than-matrices",
        "v0 = torch.ops.aten.linalg_pinv(x0, rtol=x0)",
        "v0",
        {"x0": ("float32", (2, 1))},
        refused="more tolerances than matrices",
    ),
    Found(
        "a-condition-asked-twice",
        """
if bool(x0.any()):
    pass
else:
    if bool(x0.any()):
        pass
    else:
        x0.zero_()
""",
        "x0",
        {"x0": ("bool", ())},
        branches=True,
    ),
    Found(
        "a-shape-changed-in-place-on-one-path",
        """
if bool(x0.max() > 0):
    v0 = x0 * 2.0
    x0 = v0
else:
    x0.unsqueeze_(0)
""",
        "x0",
        {"x0": ("float32", ())},
        branches=True,
    ),
    Found(
        "positions-of-no-axes-beside-others",
        "x0[self.p0, self.p1] *= self.p1",
        "x0",
        {"x0": SQUARE, "p0": PLACES, "p1": ("int64", ())},
    ),
    Found(
        "two-sizes-of-two-paths-beside-a-known-one",
        """
if bool(x1.sum() > 0):
    x0 = x0.amax([0], keepdim=True)
v0 = self.p0 + x0
v1 = v0 * x0.shape[0]
v2 = x0.reshape(-1)
""",
        "v1 v2",
        {"x0": ("float32", (3, 1)), "x1": ("float32", (2,)), "p0": ("float32", (3, 1))},
        branches=True,
    ),
    Found(
        "two-sizes-of-two-paths-beside-two-others",
        """
if bool(x1.sum() > 0):
    x0 = x0.amax([0], keepdim=True)
v0 = x0
if bool(x1.sum() > 1):
    v0 = torch.cat((x0, x0))[:3]
v0.mul_(2)
v1 = x0 + v0
v2 = v1.reshape(-1) * v0.shape[0]
""",
        "v1 v2",
        {"x0": ("float32", (3, 1)), "x1": ("float32", (2,))},
        branches=True,
    ),
    Found(
        "an-axis-that-one-path-takes-away-in-place",
        """
if int(x0.count_nonzero()) > 2:
    x0.squeeze_()
v0 = x1 + 1
""",
        "v0",
        {"x0": ("float32", (1, "n")), "x1": ("float32", ())},
        ({"n": 4}, {"n": 2}),
        branches=True,
    ),
    Found(
        "a-write-by-a-mask-to-its-own-rows",
        "x0[x0 > 0] *= -1\nx1[self.p0] *= self.p0",
        "x0 x1",
        {"x0": ("float32", (1, "n")), "x1": ("float32", (1, "n")), "p0": ("bool", (1,))},
        LESS,
        refused="a write through what may be a copy",
    ),
    Found("a-row-written-to-one", "x0[0] = x1", "x0", {"x0": ("float32", (3, "n")), "x1": ("float32", (1, "n"))}, LESS),
    Found(
        "a-row-written-to-some",
        "x0[0:2] = x1\nx0[..., None, 1:] = x1[:, None, 1:]",
        "x0",
        {"x0": ("float32", (3, "n")), "x1": ("float32", (1, "n"))},
        LESS,
    ),
    Found(
        "a-row-written-by-indices",
        "x0[:, self.p0, 1:] = x1[:, :, 1:]\nx0[1, self.p1] = x1[0]\nx0[self.p0] = x1[0]",
        "x0",
        {
            "x0": ("float32", (2, 2, "n")),
            "x1": ("float32", (1, 1, "n")),
            "p0": ("int64", (2,)),
            "p1": ("bool", (2,)),
        },
        LESS,
    ),
    Found(
        "another-name-that-flatten-gives",
        "v0 = x0.flatten(0)\nv0.unsqueeze_(0)",
        "x0",
        {"x0": ROW},
        refused="a shape changed in place, in a branch or loop or of a returned tensor",
    ),
    Found(
        "an-out-of-another-shape-on-one-path",
        """
if bool(x0.sum() > -1):
    torch.add(x0, 1, out=self.p0)
v0 = self.p0 * 2
""",
        "v0",
        {"x0": ("float32", (2, "n")), "p0": SQUARE},
        LESS,
        branches=True,
        refused="a shape changed in place in a branch or loop",
    ),
    Found(
        "a-shape-that-one-path-changes-and-another-call-takes",
        """
if bool(x0.abs().sum() > -99):
    v0 = x0 * 2
else:
    self.p0.transpose_(0, 1)
v1 = self.p0.expand(3, 0, 3, 2)
""",
        "v1",
        {"x0": X, "p0": ("float32", (0, 3, 2))},
        branches=True,
        refused="a shape changed in place in a branch or loop",
    ),
    Found("a-mask-of-bytes", "v0 = torch.ops.aten.index(x0, [x0])", "v0", {"x0": ("uint8", ("n",))}, LESS, opset=11),
    Found("a-tensor-written-to-itself", "x0[None, None, ..., :] = x0", "x0", {"x0": ("float32", ("n",))}, LESS),
    Found(
        "another-name-that-type-as-gives",
        "v0 = torch.ops.aten.type_as(x0, x0)\nv0.transpose_(0, 1)",
        "v0 x0",
        {"x0": ("float32", (2, "n"))},
        LESS,
        refused="a shape changed in place, in a branch or loop or of a returned tensor",
    ),
    Found(
        "rows-of-no-places-repeated", "v0 = torch.argwhere(x0).repeat_interleave(2, -2)", "v0", {"x0": ("float32", ())}
    ),
    Found(
        "half-floats-added-by-indices",
        "x0.index_put_((self.p0,), x0[:2] + 1, accumulate=True)\nx0.put_(self.p0, x0[:2] * 2, accumulate=True)",
        "x0",
        {"x0": ("float16", (3,)), "p0": PLACES},
    ),
    Found(
        "a-convolution-of-no-channels",
        "v0 = F.conv1d(x0, self.p0)",
        "v0",
        {"x0": ("float32", (1, 0, "n")), "p0": ("float32", (2, 0, 2))},
        LESS,
        refused="a convolution of no channels",
    ),
    Found(
        "a-product-of-every-two",
        "v0 = torch.kron(x0, self.p0)\nv0.fill_diagonal_(0.0)",
        "v0",
        {"x0": ("float32", ("m", "n")), "p0": ("float32", (2,))},
        ({"m": 3, "n": 4}, {"m": 2, "n": 3}),
    ),
    Found(
        "an-axis-that-is-held-after-it-was-used",
        "v0 = torch.kron(x0, self.p0)\nv1 = x0.unflatten(1, (2, 2))",
        "v0 v1",
        {"x0": ("float32", ("m", "n")), "p0": ("float32", (2,))},
        ({"m": 3, "n": 4}, {"m": 2, "n": 4}),
    ),
    Found(
        "another-name-that-lift-fresh-gives",
        "v0 = torch.ops.aten.lift_fresh(x0)\nx0.unsqueeze_(0)",
        "v0",
        {"x0": ("float32", ())},
        refused="a shape changed in place, in a branch or loop or of a returned tensor",
    ),
    Found(
        "all-that-unique-gives-along-the-last-axis",
        """
v1, v2, v3 = torch.unique_consecutive(x0, return_counts=True, return_inverse=True, dim=-1)
if bool((v1 > 0).any()):
    pass
else:
    v3 = v3.flatten(-1)
""",
        "v3",
        {"x0": X},
        branches=True,
    ),
    Found(
        "all-that-unique-gives-along-an-axis",
        "v0, v1, v2 = torch.ops.aten.unique_consecutive(x0, True, dim=0)",
        "v0 v1 v2",
        {"x0": SQUARE},
    ),
    Found(
        "differences-of-a-piece",
        "v0 = torch.diff(torch.ops.aten.tensor_split(x0, 3, 0)[0], dim=-1)",
        "v0",
        {"x0": ("float32", ("n",))},
        LESS,
    ),
    Found(
        "a-write-by-a-mask-and-a-place",
        "v0 = torch.stack([x0, x0], 0).transpose(-4, 2)\nv0[self.p0, self.p1, ...] *= self.p1",
        "v0",
        {"x0": ("float32", (2, 2, "n")), "p0": ("bool", (2,)), "p1": ("int64", ())},
        ({"n": 4}, {"n": 2}),
    ),
    Found(
        "windows-of-no-places",
        "v0 = F.adaptive_avg_pool2d(x0, [0, 2])\nv1, v2 = F.adaptive_max_pool2d(x0, [2, 0], return_indices=True)",
        "v0 v1 v2",
        {"x0": ("float32", ("n", 1, 2))},
        LESS,
    ),
    Found(
        "whole-numbers-between-bounds-that-are-not",
        """
v0 = torch.logspace(x0, 1, 3, dtype=torch.int64)
v1 = torch.linspace(x0 - 0.1, x0 + 2.9, 4, dtype=torch.int64)
""",
        "v0 v1",
        {"x0": ("float32", ())},
        opset=21,
    ),
    Found(
        "an-inner-product-of-two-types", "v0 = torch.inner(x0, x1)", "v0", {"x0": ("float32", ()), "x1": ("int64", ())}
    ),
    Found(
        "an-attention-that-drops-less-than-nothing",
        "v0 = torch.ops.aten.scaled_dot_product_attention(x0, x0, x0, x0, -1.0)",
        "v0",
        {"x0": ("float32", (3, 3))},
    ),
    Found("a-gate-of-nothing", "v0 = F.glu(x0[:, 2:-1], 1)", "v0", {"x0": ("float32", (1, 2))}),
    Found(
        "the-first-of-pieces-that-may-be-shorter",
        "v0 = torch.diag_embed(torch.tensor_split(x0, [6, 1, 2])[0])",
        "v0",
        {"x0": ("float32", ("n",))},
        ({"n": 4}, {"n": 9}),
    ),
    Found(
        "a-triangle-of-a-strided-view-that-overlaps-itself",
        "self.p0.add_(3)\nv0 = torch.as_strided(self.p0, (2, 2), (1, 1), 1)\nv0.tril_()",
        "self.p0",
        {"x0": ("float32", ("n",)), "p0": ("float32", (6,))},
        LESS,
        refused="a write through a view that overlaps itself",
    ),
    Found(
        "pieces-of-bytes-and-halves",
        "v0 = torch.unbind(x0, 0)[-1]\nv1 = x1.split(2, 0)[-1]\nv2 = x2.split(2, 0)[0]",
        "v0 v1 v2",
        {"x0": ("uint8", ("n", 1)), "x1": ("float16", ("n", 1)), "x2": ("bool", ("n",))},
        ({"n": 4}, {"n": 5}),
    ),
    Found(
        "a-product-of-every-two-of-what-a-mask-took",
        "v0 = x0[self.p0]\nv1 = torch.kron(v0, self.p1)",
        "v1",
        {"x0": ("float32", (2, "n")), "p0": ("bool", (2,)), "p1": ("float32", (2, 2))},
        ({"n": 4}, {"n": 5}),
    ),
    Found(
        "axes-beside-none-flattened",
        "v0 = x0[0:0, 0:3].flatten(-1)\nv1 = x0[:, 0:0].flatten(0, 0)",
        "v0 v1",
        {"x0": ("float32", (2, "n"))},
        ({"n": 3}, {"n": 6}),
    ),
    Found(
        "a-copy-that-shares-memory-at-size-1",
        "v1 = x0.permute(1, 0)\nv2 = v1.contiguous()\nv1.fill_(0)",
        "v2",
        {"x0": ("float32", ("n", 2))},
        ({"n": 4}, {"n": 1}),
        refused="a write to what a branch or loop may have renamed or copied",
    ),
    Found(
        "a-write-where-a-constant-mask-is",
        "x0[None, self.p0] += -0.25",
        "x0",
        {"x0": ("float32", (2, "n")), "p0": ("bool", (2,))},
        ({"n": 7}, {"n": 3}),
    ),
    Found(
        "kron-of-what-is-empty-at-some-sizes",
        "v0 = F.pad(x0, (-1, 0, 1, 0))\nv1 = torch.kron(v0, self.p0)",
        "v1",
        {"x0": ("float32", ("n", "m")), "p0": ("float32", ())},
        ({"n": 2, "m": 5}, {"n": 7, "m": 1}),
    ),
    Found(
        "the-last-few-of-fewer",
        "v0 = x0[:, -3:]\nv1 = v0 / v0.shape[1]",
        "v1",
        {"x0": ("float32", (2, "n"))},
        ({"n": 5}, {"n": 2}),
    ),
    Found(
        "parts-of-an-odd-size",
        "v0 = x0.tensor_split(2, 0)[0].tril()\nv1 = x0.tensor_split(3, 0)[2].tril()",
        "v0 v1",
        {"x0": ("float32", ("n", 2))},
        ({"n": 6}, {"n": 1}),
        opset=13,
    ),
    Found(
        "classes-of-so-many-rows-as-a-loop-left",
        """
for i in range(x0.size(0)):
    v0 = x0.sum([1, 0], keepdim=True)
    x0 = v0
v1 = F.cross_entropy(x0, torch.zeros_like(self.p0))
v1.neg_()
""",
        "v1",
        {"x0": ("float32", ("n", "m")), "p0": ("int64", (1,))},
        ({"n": 3, "m": 4}, {"n": 4, "m": 2}),
    ),
    Found(
        "reshapes-of-what-is-empty-at-some-sizes",
        """
v0 = x0.diagonal(1, 0, -1)
v1 = v0.reshape((1, v0.size(0),))
v2 = x0[self.p0, 2:100]
v2[None, ..., 2:-1, None, -1:2] += 3
""",
        "v1 v2",
        {"x0": ("float32", (2, "n")), "p0": PLACES},
        ({"n": 5}, {"n": 1}),
    ),
    Found(
        "a-write-by-positions-to-a-part-that-is-empty",
        "x0[self.p0 != self.p0, 0:3, self.p1, self.p2] *= self.p2",
        "x0",
        {"x0": ("float32", (1, 1, 2, 2)), "p0": ("bool", (1,)), "p1": ("int64", (2, 1)), "p2": ("int64", (1,))},
        opset=9,
    ),
    Found(
        "one-column-at-most-sizes",
        """
v0 = x0[:, 1:3:2]
v1 = v0[-2:0].cumsum(0)
v2 = torch.nn.functional.gelu(v0)
v3 = v0.flatten()
""",
        "v1 v2 v3",
        {"x0": ("float32", (2, "n"))},
        ({"n": 6}, {"n": 1}),
    ),
    Found(
        "writes-in-a-loop-to-one-column-at-most",
        "for i in range(x0.size(-1)):\n    x0[1:, -1:2] = i",
        "x0",
        {"x0": ("float32", ("n", "m"))},
        ({"n": 6, "m": 7}, {"n": 4, "m": 1}),
    ),
    Found(
        "columns-that-may-vanish-before-allowzero",
        "x0[self.p0, self.p1, -2:8:2] = 5",
        "x0",
        {"x0": ("float32", ("n", 2, "m")), "p0": ("int64", (1,)), "p1": PLACES},
        ({"n": 7, "m": 5}, {"n": 7, "m": 10}),
        opset=11,
    ),
    Found(
        "the-least-integer-taken-away",
        "if bool(self.p1.any()):\n    self.p0.mul_(self.p0)\nv0 = self.p0 ^ -1",
        "v0",
        {"x0": ROW, "p0": ("int64", ()), "p1": ("float32", ())},
        opset=16,
        branches=True,
    ),
    Found(
        "triplets-of-two-dtypes",
        "v0 = F.triplet_margin_loss(x0, x1, x1, swap=True)",
        "v0",
        {"x0": ("float64", (4, 3)), "x1": ("float32", (4, 3))},
    ),
    Found(
        "a-loss-of-whole-numbers",
        "v0 = torch.ops.aten.l1_loss(x0, x1, 2)",
        "v0",
        {"x0": ("int32", (4,)), "x1": ("int32", (4,))},
    ),
    Found(
        "adaptive-pools-without-channels",
        "v0 = F.adaptive_max_pool2d(torch.ops.aten.narrow_copy(x0, -3, 1, 0), 2)",
        "v0",
        {"x0": ("float32", (2, "m", 2))},
        ({"m": 7}, {"m": 4}),
    ),
]


def few(found: Found) -> tuple[str, ...]:
    """By trace and by one of the other routes; all routes, where one may refuse the program."""
    if found.refused != Found.refused:
        return ROUTES
    return "trace", ROUTES[1 + zlib.crc32(found.name.encode()) % 2]


ROWS = [
    pytest.param(found, routes, id=f"{found.name}{suffix}", marks=marks)
    for found in FOUND
    for routes, suffix, marks in [(few(found), "", ()), (ROUTES, "-all routes", pytest.mark.full)]
    if routes != few(found) or not marks
]


@pytest.mark.parametrize(("found", "routes"), dealt(ROWS, 3))
def test_found(found: Found, routes: tuple[str, ...]) -> None:
    outcome = run(found.program(), routes)
    assert outcome.findings == []
    assert set(outcome.routes.values()) & {"exported", found.refused}
