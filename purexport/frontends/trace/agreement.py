"""Whether a recorded trace makes, at other sizes, exactly the calls that the model makes there.

Another number that Python gets of a size need not matter: a window is padded by what a size lacks, and the padding is
recorded with the size.  So the model is run at the new sizes, and then the trace.  The operators that reach the kernels
must be the same one by one, with the same numbers, on the same tensors: each comes from an argument, from what the
model owns, or from an earlier operator.  Then the trace is right at those sizes.  Where anything differs nothing is
known, and the model must be traced again.

Where they differ, the lines of the model say more: at which of them which operators ran, how often, and with which
numbers that are no whole ones.

This takes a fifth of the time of a trace, because the tracer writes down the Python stack for each call, and because
costly operators run for their shapes alone: those that multiply large matrices, and those of what follows from the
arguments.  Tables that a model keeps do not follow from the elements of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.graph import Frame
from purexport.frontends.core.frames import users_line
from purexport.frontends.core.shape_functions import UnfitError
from purexport.frontends.trace.replay import Kernels, is_large_product
from purexport.torch_patches.calls import operators_handed_to
from purexport.torch_patches.torch_jit import run_graph

_ATEN = torch.ops.aten
# what a factory is told of its result, which is compared itself
_OF_RESULT = frozenset(["dtype", "layout", "device", "pin_memory", "memory_format"])
_SAME = frozenset([_ATEN.detach.default, _ATEN.alias.default, _ATEN.lift_fresh.default])
# elements up to which a constant is compared by its values
_MOST = 1 << 16
_FEW = 64
# results of the operators of a run; a loop over each position of a long axis has more
_MOST_RESULTS = 1 << 14


# for each operator at each line of the model: the numbers of each call but whole ones, which may be sizes
Lines = dict[tuple[Any, Frame], list[list[Any]]]


@dataclass(frozen=True)
class Compared:
    """Whether the trace does what the model does, and the lines of the model; None where it did not run."""

    same: bool
    lines: Lines | None


class _Run:
    """What a run does: the operators with their numbers and with where the tensors come from.

    A trace and Python write some things in two ways.  A size is a tensor without axes in a trace, and a number else.
    Python makes no slice of a whole axis.  A copy is taken for the tensor itself while nothing is written to either.
    """

    def __init__(self, known: Sequence[torch.Tensor], state: Sequence[torch.Tensor], shapes: dict[Any, Any]) -> None:
        self.kernels = Kernels(state, is_large_product)
        self.kernels.shapes = shapes
        for tensor in known:
            if tensor.is_floating_point():
                self.kernels.unwritten[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        self.calls: list[Any] = []
        self.lines: Lines = {}
        self.copied: set[int] = set()  # storages of copies, and those that were copied
        self.unclear = False
        self.made = 0
        self.kept: list[Any] = []  # alive, so that no other tensor gets the identity
        self.origins: dict[int, Any] = {id(item): ("given", place) for place, item in enumerate((*known, *state))}
        self.sizes: set[int] = set()

    def operator(self, overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.made > _MOST_RESULTS:
            raise UnfitError("the model makes too many calls")
        result = self.kernels.run(overload, args, kwargs)
        self.kept.append((args, kwargs, result))
        results = _tensors(result)
        self.made += len(results)
        operands = _tensors((args, tuple(kwargs.values())))
        if overload is _ATEN._convolution.default:
            overload, args = _ATEN.convolution.default, args[:9]
        if operands and all(map(self._is_size, operands)) and all(item.dim() == 0 for item in results):
            self.sizes |= {id(item) for item in results}
        elif overload in _SAME or (overload is _ATEN.slice.Tensor and result.shape == args[0].shape):
            self.origins[id(result)] = self.origin(args[0])
        elif overload is _ATEN.clone.default:
            self.origins[id(result)] = self.origin(args[0])
            self.copied |= {item.untyped_storage()._cdata for item in (args[0], result)}
        else:
            if overload._schema.is_mutable:  # a write that may tell a copy from what it is a copy of
                self.unclear |= not self.copied.isdisjoint(item.untyped_storage()._cdata for item in operands)
            options = {name: self.origin(item) for name, item in kwargs.items() if name not in _OF_RESULT}
            types = [(tuple(item.shape), item.dtype) for item in results]
            call = (overload, self.origin(args), options, types)
            for place, item in enumerate(results):
                self.origins.setdefault(id(item), (len(self.calls), place))
            self.calls.append(call)
        return result

    def results(self, model: Callable[..., Sequence[Any]], given: Sequence[torch.Tensor]) -> list[Any] | None:
        """What the model gives; None where it fails, and what that means is found out by a trace."""
        try:
            with torch.no_grad(), operators_handed_to(self.with_line):
                return list(model(*given))
        except Exception:  # of any kind, out of the model
            return None

    def with_line(self, overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operator; the line of the model is noted."""
        numbers = list(self._numbers((args, tuple(kwargs.values()))))
        self.lines.setdefault((overload, users_line()), []).append(numbers)
        return self.operator(overload, args, kwargs)

    def _numbers(self, item: Any) -> Iterator[Any]:
        if isinstance(item, (list, tuple)):
            for part in item:
                yield from self._numbers(part)
        elif isinstance(item, torch.Tensor):
            size = item.dim() == 0 and item.dtype is torch.int64
            if item.numel() <= _FEW and not size and id(item) not in self.origins:
                yield item.tolist()
        elif isinstance(item, (bool, float)):
            yield item

    def _is_size(self, tensor: torch.Tensor) -> bool:
        return tensor.dim() == 0 and (id(tensor) in self.sizes or id(tensor) not in self.origins)

    def origin(self, item: Any) -> Any:
        """Where a tensor comes from; what else is compared as it is."""
        if isinstance(item, (list, tuple)):
            return [self.origin(part) for part in item]
        if not isinstance(item, torch.Tensor):
            return type(item), item
        if id(item) in self.origins:
            return self.origins[id(item)]
        if self._is_size(item):
            return type(item.item()), item.item()
        self.kept.append(item)
        if item.numel() <= _MOST and item.layout is torch.strided and item.device.type == "cpu":
            return item.dtype, tuple(item.shape), item.tolist()
        return id(item)


class _Beside(_Run):
    """A run that ends where it does something else than another one."""

    def __init__(self, other: _Run, *given: Any) -> None:
        super().__init__(*given)
        self.other = other
        self.differs = False

    def operator(self, overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = super().operator(overload, args, kwargs)
        place = len(self.calls)
        if self.differs or (place and self.calls[place - 1 :] != self.other.calls[place - 1 : place]):
            self.differs = True
            raise UnfitError(f"the trace does something else at {overload}")
        return result


def compared(
    graph: Any,
    model: Callable[..., Sequence[Any]],
    tensors: Sequence[torch.Tensor],
    state: Sequence[torch.Tensor],
) -> Compared:
    """Whether `graph`, which takes `tensors` and `state`, makes the calls that `model` makes of `tensors`."""
    shapes: dict[Any, Any] = {}
    run = _Run(given := _copies(tensors), state, shapes)
    expected = run.results(model, given)
    if expected is None:
        return Compared(False, None)
    trace = _Beside(run, given := _copies(tensors), state, shapes)
    try:
        with torch.no_grad(), operators_handed_to(trace.operator):
            found = list(run_graph(graph, (*given, *state)))
    except Exception:  # the trace does not fit these sizes, or does something else
        return Compared(False, run.lines)
    same = not trace.differs and len(trace.calls) == len(run.calls) and not (trace.unclear or run.unclear)
    return Compared(same and trace.origin(found) == run.origin(expected), run.lines)


def lines_of(
    model: Callable[..., Sequence[Any]], tensors: Sequence[torch.Tensor], state: Sequence[torch.Tensor]
) -> Lines | None:
    """At which lines of the model which operators run; None where it does not run."""
    run = _Run(given := _copies(tensors), state, {})
    return None if run.results(model, given) is None else run.lines


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _tensors(item: Any) -> list[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        return [item]
    return [tensor for part in item for tensor in _tensors(part)] if isinstance(item, (list, tuple)) else []
