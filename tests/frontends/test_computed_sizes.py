"""What Python computes from sizes while a model is captured: the file computes it from its own input's sizes.

A row is a function of images [batch, 4, height, width] with a dynamic height and width.  One export serves all the
results of a row, and runs at odd and even sizes, because a number that follows from the parity of a size looks fixed
where sizes are doubled.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import purexport
from tests.harness import CAPTURES, compare_with_torch, run_ort
from tests.tiers import in_turn
from tests.tolerances import CHAIN

EXAMPLE = (2, 4, 12, 16)
ANY = ((2, 4, 9, 14), (2, 4, 17, 12), (2, 4, 24, 23))
EVEN = ((2, 4, 8, 14), (2, 4, 18, 12))
Function = Callable[[Tensor], Any]


def rounded(x: Tensor) -> Any:
    """Python's rounding asks a tensor for its float."""
    height, width = x.shape[-2:]
    up, down = math.ceil(height / 5), math.floor(width / 5)
    return x[:, :, :up], x[..., : down * 2], x[:, :, round(height / 4) :], x[..., math.trunc(width / 3) :]


def exactly(x: Tensor) -> Any:
    """In float32, which the tracer takes, 0.29 of 100 is 29, and 0.3 of it is more than 30."""
    height, width = x.shape[-2:]
    down, up = math.floor(height * 0.29), math.ceil(width * 0.3)
    both = math.floor(height * 0.29 // 1.0 + (1 + height * 0.29) / 3)
    smaller = functional.interpolate(x, scale_factor=(0.29, 0.25), mode="bilinear", recompute_scale_factor=True)
    return x[:, :, :down], x[..., :up], x[..., :both], torch.ones_like(smaller), x[0].to(torch.int64) * (width * 0.3)


def padded_to_windows(x: Tensor) -> Tensor:
    height, width = x.shape[-2:]
    high, wide = math.ceil(height / 5) * 5, math.ceil(width / 5) * 5
    padded = functional.pad(x, (0, wide - width, 0, high - height))
    return padded.view(2, 4, high // 5, 5, wide // 5, 5).amax((3, 5))


def made_of_sizes(x: Tensor) -> Any:
    """`torch.tensor` makes a constant of what it gets."""
    height, width = x.shape[-2:]
    scale = torch.tensor([width, height, width, height], dtype=torch.float32)
    mixed = torch.tensor([[width, 1], [0, height / 2]])
    return x * scale[:, None, None], torch.as_tensor(x.shape), x.new_tensor([height, 3]), mixed


def spaced(x: Tensor) -> Any:
    """The shape functions of these take a symbolic number of steps for the example's."""
    height, width = x.shape[-2:]
    grid = functional.affine_grid(torch.eye(2, 3).expand(2, 2, 3), list(x.shape), align_corners=False)
    return torch.linspace(-1, 1, height), torch.linspace(0.5, width - 0.5, width), grid


def resized(x: Tensor) -> Any:
    """torch computes this size with tensors, while it is traced."""
    options = {"mode": "bilinear", "recompute_scale_factor": True}
    ratio = x.shape[2] / 8
    return functional.interpolate(x, scale_factor=1.7, **options), functional.interpolate(
        x, None, (1.5, ratio), **options
    )


def rolled(x: Tensor) -> Any:
    """A size alone in the place of a list of numbers is taken by its number, without a warning of the tracer."""
    return x.roll(x.shape[2] // 2, 2), x.roll(shifts=x.shape[3] // 3, dims=3), x.roll((x.shape[2] // 3, 1), (2, 3))


def halves(x: Tensor) -> Any:
    one, other = torch.split(x, x.shape[2] // 2, dim=2)
    left, right = x.split(x.shape[3] // 2, 3)
    return one - other, left + right


def transposed(x: Tensor) -> Any:
    """The padding at the end is 0 or 1, by the parity of the size; the model does not run on a single pixel."""
    weight = torch.arange(18.0).reshape(1, 2, 3, 3) / 9
    small = functional.max_pool2d(x, 2, 2)[:, :1]
    extra = [x.shape[2 + axis] - small.shape[2 + axis] * 2 for axis in range(2)]
    wide = functional.conv_transpose2d(small, weight, None, 2, 1, [extra[0] + 1, 1 - extra[1]], dilation=3)
    return wide, functional.conv_transpose2d(small, weight, stride=2, padding=1, output_padding=extra)


def put_back(x: Tensor) -> Any:
    """torch checks the sizes here by `torch._check_value`, which takes no tensors."""
    pooled, places = functional.max_pool2d(x, 2, return_indices=True)
    return functional.max_unpool2d(pooled, places, 2, output_size=x.shape[-2:])


def _image(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


ROWS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "rounded": (rounded, ANY),
    "exactly": (exactly, ((2, 4, 100, 100), (2, 4, 50, 30))),
    "padded to windows": (padded_to_windows, ANY),
    "made of sizes": (made_of_sizes, ANY),
    "spaced": (spaced, ANY),
    "resized": (resized, ANY),
    "rolled": (rolled, ANY),
    "halves": (halves, EVEN),
    "transposed": (transposed, ANY),
    "put back": (put_back, ANY),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "route"), in_turn(ROWS, CAPTURES))
def test_sizes(name: str, route: str) -> None:
    function, others = ROWS[name]
    images = [_image(shape) for shape in (EXAMPLE, *others)]
    program = purexport.export(
        function, (images[0],), dynamic_axes={"x": {2: "height", 3: "width"}}, capture=route, opset_version=18
    )
    data = program.model_proto.SerializeToString()
    for image in images:
        compare_with_torch(function, data, (image,), {}, CHAIN)


def test_rounding_without_dynamic_axes() -> None:
    """Sizes that cannot change are rounded to Python's integers."""
    seen = []

    def function(x: Tensor) -> Tensor:
        seen.extend([math.ceil(x.shape[0] / 2), round(x.shape[0] / 2)])
        return x[: seen[-1]]

    program = purexport.export(function, (torch.ones(3),), capture="trace")
    assert set(map(type, seen)) == {int}
    compare_with_torch(function, program.model_proto.SerializeToString(), (torch.rand(3),), {})


def test_numbers_of_sizes_without_dynamic_axes() -> None:
    """Python gets what it would compute without a trace; float32 has 29, and more than 30."""
    seen = []

    def function(x: Tensor) -> Tensor:
        size = x.shape[0]
        seen.append(
            [int(size * 0.29), math.floor(size * 0.29), size * 0.3 > 30.0, float(size * 0.29), size * 0.29 < 29]
        )
        return x[: int(size * 0.29)]

    program = purexport.export(function, (torch.ones(100),), capture="trace")
    assert [*map(float, seen[0])] == [28, 28, 0, 100 * 0.29, 1]
    compare_with_torch(function, program.model_proto.SerializeToString(), (torch.rand(100),), {})


def converted(x: Tensor) -> Any:
    """The builtins give numbers, whatever a tensor says."""
    height, width = x.shape[-2:]
    larger = functional.interpolate(x, size=(int(height * 1.3), int(width / 3)), mode="bilinear")
    pieces = [x[:, :, : int(height * 0.29)], x[..., : math.ceil(float(width) / 5.0)], x[..., : len(x[0, 0]) // 2]]
    return torch.ones_like(larger), *pieces, x / float(height), x[0].to(torch.int64) * float(width)


def kinds(x: Tensor) -> Tensor:
    """All else that the names stand for is as ever."""
    size, kind = int(x.shape[2]), type(x.dim())
    assert isinstance(3, int) and issubclass(bool, int) and kind == int and int("11", 2) == 3  # noqa: E721
    assert int.from_bytes(b"a", "big") == 97 and {int: 1}[kind] == 1 and float("0.5") == 0.5 and len([1]) == 1
    return x[:, :, : size // 2] * float(torch.tensor(2.0))


def numbers_wanted(x: Tensor) -> Tensor:
    """No tensor does here: the axis becomes static."""
    if not isinstance(float(x.shape[2]), float):
        raise TypeError
    return x / float(x.shape[2])


def told_apart(x: Tensor) -> Tensor:
    size = float(x.shape[2])
    return x / size if type(size) is float else x * size


def _elsewhere() -> Function:
    """A function of a module that the model's own imports from."""
    namespace: dict[str, Any] = {"__name__": "elsewhere"}
    exec("def divided(x):\n    return x / float(x.shape[2])", namespace)
    function: Function = namespace["divided"]
    return function


divided = _elsewhere()


CONVERTED: dict[str, tuple[Function, bool]] = {
    "converted": (converted, True),
    "kinds": (kinds, True),
    "in another module": (lambda x: divided(x), True),
    "numbers wanted": (numbers_wanted, False),
    "told apart": (told_apart, False),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "route"), in_turn(CONVERTED, CAPTURES))
def test_conversions(name: str, route: str) -> None:
    function, is_dynamic = CONVERTED[name]
    images = [_image(shape) for shape in (EXAMPLE, (2, 4, 100, 10), (2, 4, 9, 14), (2, 4, 10, 31))]
    program = purexport.export(
        function, (images[0],), dynamic_axes={"x": {2: "height", 3: "width"}}, capture=route, opset_version=18
    )
    data = program.model_proto.SerializeToString()
    for image in images if is_dynamic else images[:1]:
        compare_with_torch(function, data, (image,), {}, CHAIN)
    size = program.model_proto.graph.input[0].type.tensor_type.shape.dim[2]
    assert (size.dim_param or size.dim_value) == ("height" if is_dynamic else EXAMPLE[2])
    assert int is builtins.int and float is builtins.float and len is builtins.len


class _Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x / float(x.shape[0]) + self.count


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_conversions_leave_the_model_as_it_was() -> None:
    """torch's program and the model are run to compare them."""
    model = _Counting()
    program = purexport.export(model, (torch.ones(3),), dynamic_axes={"x": {0: "n"}}, capture="export")
    assert model.count == 0
    found = run_ort(program.model_proto.SerializeToString(), [torch.ones(4).numpy()])
    assert found[0].tolist() == [1.25] * 4


def test_the_example_has_the_size_that_the_file_has() -> None:
    def function(x: Tensor) -> Tensor:
        down, also = math.floor(x.shape[0] * 0.29), math.floor(float(x.shape[0]) * 0.29)
        return x[:down] + x[:also] if down < 29 else x

    program = purexport.export(function, (torch.ones(100),), dynamic_axes={"x": {0: "n"}}, capture="trace")
    for size in (100, 10):
        compare_with_torch(function, program.model_proto.SerializeToString(), (torch.rand(size),), {})


def test_rounding_of_other_numbers() -> None:
    """A number in a tensor that is no size is rounded as ever; so are tensors outside of an export."""
    seen = []

    def function(x: Tensor) -> Tensor:
        seen.append(type(math.ceil(x.sum())))
        return x * 2

    with pytest.warns(UserWarning, match="that the data decides"):
        purexport.export(function, (torch.ones(3),), dynamic_axes={"x": {0: "n"}}, capture="trace")
    assert set(seen) == {int}
    assert math.ceil(torch.tensor(2.5)) == 3
    with pytest.raises(TypeError):
        round(torch.tensor(2.5))


# Pieces -------------------------------------------------------------------------------------------------------------


def scaled(x: Tensor) -> Tensor:
    return torch.cat([piece * (place + 1) for place, piece in enumerate(x.split(4))])


def halved(x: Tensor) -> Tensor:
    kept = x.clone()
    for piece in kept.split(4)[1:]:
        piece.mul_(0.5)
    return kept


def in_one(x: Tensor) -> Tensor:
    return torch.stack([piece.amax(0) for piece in x.split(8)])


def thirds(x: Tensor) -> Tensor:
    return torch.stack([piece.amax(0) for piece in x.chunk(3)])


# a function of [n, 3] and sizes of which torch makes as many pieces as of 8, or fewer or more
PIECES = {
    "split": (scaled, (7, 5), (4, 3, 0, 9, 12, 16)),
    "written": (halved, (7, 5), (4, 3, 9, 12)),
    "one piece": (in_one, (7, 1), (9, 16)),
    "chunk": (thirds, (7, 9, 3), (4, 2)),
}


@pytest.mark.parametrize("opset", [11, pytest.param(18, marks=pytest.mark.full)])
@pytest.mark.parametrize("route", CAPTURES)
@pytest.mark.parametrize("name", PIECES)
def test_pieces(name: str, route: str, opset: int) -> None:
    """The file makes as many pieces as the example has, and stops where torch makes another number."""
    function, same, others = PIECES[name]
    rows = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
    program = purexport.export(function, (rows[:8],), dynamic_axes={"x": {0: "n"}}, capture=route, opset_version=opset)
    assert any("chunks" in text and "stops with an error" in text for text in program.report.warnings)
    data = program.model_proto.SerializeToString()
    for count in (8, *same):
        compare_with_torch(function, data, (rows[:count],), {}, CHAIN)
    for count in others:
        with pytest.raises(Exception, match=r"Split|Reshape"):
            run_ort(data, [rows[:count].numpy()])
