"""Calls of functions that `torch.vmap` made: recorded as the plain operators that torch makes of them.

The tracer cannot follow such a call itself.  So torch writes down its operators as a program (torch.fx), on fakes whose
sizes are symbols, while nothing is traced.  Then the program runs under the tracer.  What it computes with sizes is
recorded as with any size; where the tracer would take the number of the example, or the function asked for a number,
traces at other sizes find that out (`specialized_axes`), and must be made, because Python got numbers unseen.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from purexport.errors import ExportError
from purexport.torch_patches.torch_jit import is_tracing
from purexport.torch_patches.tracer import untraced

# a size that stands for any
_ANY = 12
# of these the tracer keeps what sizes as tensors give
_KEPT = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg)


def called(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of `original(*args, **kwargs)`, recorded as plain operators."""
    if not is_tracing():
        return original(*args, **kwargs)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    forms: list[Any] = []

    def run(*tensors: torch.Tensor) -> list[Any]:
        given = dict(enumerate(leaves)) | dict(zip(places, tensors, strict=True))
        args, kwargs = pytree.tree_unflatten(given.values(), spec)
        found, form = pytree.tree_flatten(original(*args, **kwargs))
        forms[:] = [form]
        return found

    tensors = [leaves[place] for place in places]
    with untraced():
        program = _program(run, tensors)
    return pytree.tree_unflatten(_results(program, tensors), forms[0])


def _program(run: Callable[..., list[Any]], tensors: list[torch.Tensor]) -> torch.fx.GraphModule:
    """The operators of a run, with sizes computed from those of the tensors."""
    if any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return _recorded(run, tensors)
    if not any(size < 2 for tensor in tensors for size in tensor.shape):
        return _recorded(run, _with_symbols(tensors))
    # torch has operators of its own for sizes of 0 and 1, where those for all other sizes mostly do
    with suppress(RuntimeError, ValueError, IndexError, TypeError):
        program = _recorded(run, _with_symbols(tensors, _ANY))
        if _computes(program, run, tensors):
            return program
    return _recorded(run, _with_symbols(tensors))


def _recorded(run: Callable[..., list[Any]], examples: list[torch.Tensor]) -> torch.fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx  # it loads sympy, and most models batch nothing

    program = make_fx(run, tracing_mode="real", _allow_non_fake_inputs=True)(*examples)
    written = next(filter(_writes_outside, program.graph.nodes), None)
    if written is not None:
        raise ExportError(
            f"a function under torch.vmap writes to a tensor from outside ({written.target}), and a trace has no form "
            "for that; return the new value, or use capture='export'",
            code="trace-cannot-record",
        )
    return program


def _writes_outside(node: torch.fx.Node) -> bool:
    is_write = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
    return is_write and any(one.op == "get_attr" for one in node.all_input_nodes[:1])


def _with_symbols(tensors: list[torch.Tensor], small: int | None = None) -> list[torch.Tensor]:
    """Fakes of the tensors, by whose sizes torch decides; `small` stands for sizes of 0 and 1."""
    from purexport.shapes.fakes import FakeMachine

    machine = FakeMachine(distinct=False)
    with machine.running():
        return [
            torch.empty(
                [
                    machine.symbol(f"{place}_{axis}", small if small is not None and size < 2 else size)
                    for axis, size in enumerate(tensor.shape)
                ],
                dtype=tensor.dtype,
                device=tensor.device,
            )
            for place, tensor in enumerate(tensors)
        ]


def _computes(program: torch.fx.GraphModule, run: Callable[..., list[Any]], tensors: list[torch.Tensor]) -> bool:
    """Whether a program gives what the function gives."""
    random = torch.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        wanted = run(*(tensor.clone() for tensor in tensors))
        torch.set_rng_state(random)
        found = program(*(tensor.clone() for tensor in tensors))
    return all(
        one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
        for one, other in zip(wanted, found, strict=True)
    )


def _results(program: torch.fx.GraphModule, tensors: list[torch.Tensor]) -> list[Any]:
    """Run the program under the tracer."""
    given = iter(tensors)
    found: dict[torch.fx.Node, Any] = {}
    sizes: set[torch.fx.Node] = set()
    for node in program.graph.nodes:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), found.__getitem__)
        if node.op == "placeholder":
            found[node] = next(given)
        elif node.op == "get_attr":
            found[node] = getattr(program, node.target)
        elif node.op == "output":
            return list(args[0])
        elif node.target is torch.ops.aten.sym_size.int:
            found[node] = args[0].size(args[1])
            sizes.add(node)
        elif sizes.isdisjoint(node.all_input_nodes):
            found[node] = node.target(*args, **kwargs)
        elif node.target in _KEPT:
            found[node] = node.target(*args)
            sizes.add(node)
        else:
            function = _python_form(node.target)
            if function is None:
                numbers = found | {one: _number(found[one]) for one in sizes}
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), numbers.__getitem__)
            found[node] = (function or node.target)(*args, **kwargs)
    raise AssertionError("a program of torch.fx ends with its output")


def _python_form(target: Any) -> Any:
    """A function of Python's interface with the arguments of an operator that takes sizes.

    The tracer keeps sizes that Python's interface gets, and drops those that the operator gets.  None without one.
    """
    if not isinstance(target, torch._ops.OpOverload):
        return None
    if target in _FORMS:
        return _FORMS[target]
    name = target._schema.name.removeprefix("aten::")
    return getattr(torch.Tensor, name, None) or getattr(torch, name, None)


def _sliced(tensor: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> torch.Tensor:
    axis = dim % tensor.dim()
    return tensor[(slice(None),) * axis + (slice(start, end, step),)]


def _copied(size: torch.Tensor, *, dtype: torch.dtype | None = None, **others: Any) -> torch.Tensor:
    return size.to(dtype or size.dtype)


_FORMS: dict[Any, Any] = {
    torch.ops.aten.slice.Tensor: _sliced,
    torch.ops.aten._unsafe_view.default: torch.Tensor.reshape,
    torch.ops.aten._to_copy.default: _copied,
}


def _number(size: torch.Tensor) -> Any:
    with untraced():
        return size.item()
