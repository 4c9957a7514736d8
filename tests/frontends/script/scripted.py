"""Small scripts as rows: each is exported, run in ONNX Runtime on the example and on other arguments, and compared.

    programs = Programs()

    @programs.row(ones(2, 3), i64(3), others=[(ones(2, 3), i64(0))], min_opset=13)
    def grows(x: Tensor, n: Tensor) -> Tensor: ...

The other arguments take another number of steps, the other side of a branch, or other sizes on the dynamic axes.
`min_opset` says what the script needs: the opset 11 below it must refuse, naming it.  `finish` makes another module of
the scripted one, such as a frozen one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import purexport
from tests.tolerances import assert_near

OLDEST, NEWER = 11, (13, 17, 20, 23)
SEED = 11  # with these weights the decoders of test_scripted_models.py end after different numbers of words


def i64(*data: int) -> Tensor:
    """A zero-dim int64 tensor of one number, a vector of several."""
    return torch.tensor(data[0] if len(data) == 1 else list(data))


@dataclass(frozen=True)
class Program:
    """A script, its arguments, the others that the same file must take, and the axes that are dynamic."""

    name: str
    make: Callable[[], Any]
    args: tuple[Any, ...]
    others: Sequence[tuple[Any, ...]]
    axes: Mapping[str, Mapping[int, str]] | None
    min_opset: int
    remark: str


class Programs:
    """The rows of a file; `params` gives each at two opsets, the lowest and one of the newer in turn.

    By default one of them runs, and the lowest where the opset below must refuse.
    """

    def __init__(self) -> None:
        self.rows: list[Program] = []

    def row(
        self,
        *args: Any,
        others: Sequence[tuple[Any, ...]] = (),
        axes: Mapping[str, Mapping[int, str]] | None = None,
        min_opset: int = OLDEST,
        remark: str = "",
        finish: Callable[[Any], Any] | None = None,
    ) -> Callable[[Any], Any]:
        def register(script: Any) -> Any:
            name = script.__name__ if finish is None else f"{script.__name__}-{finish.__name__}"
            self.rows.append(Program(name, lambda: _made(script, finish), args, others, axes, min_opset, remark))
            return script

        return register

    def params(self) -> list[Any]:
        found = []
        for index, row in enumerate(self.rows):
            opsets = sorted({row.min_opset, NEWER[index % len(NEWER)]})
            first = 0 if row.min_opset > OLDEST else index % len(opsets)
            for place, opset in enumerate(opsets):
                marks = () if place == first else pytest.mark.full
                found.append(pytest.param(row, opset, id=f"{row.name}-{opset}", marks=marks))
        return found


def _made(script: Any, finish: Callable[[Any], Any] | None) -> Any:
    made = _scripted(script)
    return made if finish is None else finish(made)


def _scripted(script: Any) -> Any:
    torch.manual_seed(SEED)
    if isinstance(script, type) and issubclass(script, nn.Module):
        return torch.jit.script(script().eval())
    return torch.jit.script(script)


def run_program(program: Program, opset: int) -> None:
    """One row at one opset."""
    model = program.make()
    axes = {name: dict(named) for name, named in (program.axes or {}).items()} or None
    if opset == program.min_opset > OLDEST:
        with pytest.raises(purexport.UnsupportedOperatorError, match=f"needs opset {opset}"):
            purexport.export(model, copy.deepcopy(program.args), dynamic_axes=axes, opset_version=OLDEST)
    exported = purexport.export(model, copy.deepcopy(program.args), dynamic_axes=axes, opset_version=opset)
    assert program.remark in "\n".join(exported.report.warnings)
    data = exported.model_proto.SerializeToString()
    onnx.checker.check_model(data, full_check=True)
    session = _session(data)
    for args in (program.args, *program.others):
        _compare(model, session, args)


def _session(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _compare(model: Any, session: onnxruntime.InferenceSession, args: tuple[Any, ...]) -> None:
    tensors = [leaf.detach().clone().numpy() for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor)]
    fed = {item.name: tensor for item, tensor in zip(session.get_inputs(), tensors, strict=True)}
    # a module that counts its calls starts anew each time
    fresh = copy.deepcopy(model) if isinstance(model, nn.Module) else model
    with torch.no_grad():
        wanted = pytree.tree_leaves(fresh(*copy.deepcopy(args)))
    got = pytree.tree_leaves(session.run(None, fed))
    assert len(got) == len(wanted), f"torch gives {len(wanted)} tensors, the file {len(got)}, for {args}"
    for mine, theirs in zip(got, map(torch.as_tensor, wanted), strict=True):
        assert_near(mine, theirs, where=f"for {args}")
