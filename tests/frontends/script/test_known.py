"""Small tensors whose content is known at export: sizes computed with tensors, and what makes the content unknown."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.frontends.script.scripted import Program, Programs, i64, run_program

programs = Programs()
X = torch.arange(6.0).view(2, 3)


@programs.row(X)
def sizes_by_tensors(x: Tensor) -> Tensor:
    """The size follows from a constant and a shape: no branch and no unknown axis is left."""
    size = torch.tensor([x.size(0), 4])
    wide = int(size.max() + 1)
    if int(size.min()) > 1:
        return torch.zeros(wide, 3) + x[0]
    return x


@programs.row(X, i64(3), others=[(X, i64(0)), (X, i64(1))])
def carried_from_a_constant(x: Tensor, n: Tensor) -> Tensor:
    """The counter is known before the loop, and not at its later steps."""
    count = torch.tensor(0)
    for _ in range(int(n)):
        if int(count) > 1:
            x = x * 2
        count = count + 1
    return x + count


@programs.row(X, i64(3), others=[(X, i64(0)), (X, i64(1))])
def written_after_it_is_read(x: Tensor, n: Tensor) -> Tensor:
    """The first step reads what is known, the second what the first wrote."""
    count = torch.zeros(3, dtype=torch.int64)
    first = count[0]
    for _ in range(int(n)):
        if int(first) > 0:
            x = x * 2
        count += 1
    return x + count


@programs.row(X, i64(3), others=[(X, i64(0)), (X, i64(1))])
def made_in_each_step(x: Tensor, n: Tensor) -> Tensor:
    for _ in range(int(n)):
        count = torch.zeros(2, dtype=torch.int64)
        count += 1
        x = x + count.sum()
    return x


@programs.row(X, others=[(-X,)])
def written_on_one_side(x: Tensor) -> Tensor:
    count = torch.ones(2, dtype=torch.int64)
    if bool(x.sum() > 0):
        count[0] = 4
    if int(count.max()) > 2:
        return x * 2
    return x


@programs.row(X)
def written_through_a_view(x: Tensor) -> Tensor:
    count = torch.ones(2, dtype=torch.int64)
    view = count[1:]
    view.fill_(3)
    return x * int(count.sum())


@pytest.mark.parametrize(("program", "opset"), programs.params())
def test_known(program: Program, opset: int) -> None:
    run_program(program, opset)


@torch.jit.script
def _keep(x: Tensor, least: float) -> Tensor:
    if x.numel() == 0:
        return x
    return x[x > least]


class Resized(nn.Module):
    """As torchvision's detection models compute sizes in a trace, beside a scripted function."""

    def forward(self, x: Tensor) -> Tensor:
        shape = torch._shape_as_tensor(x)[-2:]
        factor = torch.min(10.0 / torch.min(shape).float(), 20.0 / torch.max(shape).float())
        count = 0
        for size in x.shape:
            count += size
        x = nn.functional.interpolate(x[None], scale_factor=factor, recompute_scale_factor=True, mode="bilinear")[0]
        return _keep(x, 0.5) + count


def test_sizes_of_a_trace_are_known() -> None:
    """No size is computed at run time but that of the selection."""
    x = torch.rand(3, 5, 8)
    program = purexport.export(Resized(), (x,), capture="trace")
    kinds = [node.op_type for node in program.model_proto.graph.node]
    assert kinds.count("Resize") == 1 and "Floor" not in kinds and "Shape" not in kinds, kinds
    for example in (x, x * 0.9):
        torch.testing.assert_close(program(example)[0], Resized()(example))
