"""Where what was recorded of a model departs from what the model computes by itself.

A model may ask whether it is being traced or exported, draw random numbers, or keep state between calls.  The model
runs once more with hooks on its modules.  The first module, in the order in which they finish, that has a result which
nothing that was recorded of it equals is where the two part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from purexport.aten.graph import AtenGraph, AtenValue, Source
from purexport.comparison.closeness import difference
from purexport.runtime.verification import Tolerance
from purexport.torch_patches.torch_jit import ScriptModule

_ANOTHER_SEED = 4321  # with the seed of the first call, what a model draws would be the same


@dataclass(frozen=True)
class Ran:
    """A module that ran: its name, its class, the tensors that it was given, and those that it returned."""

    name: str
    kind: str
    given: tuple[torch.Tensor, ...]
    results: tuple[torch.Tensor, ...]

    @property
    def text(self) -> str:
        """Its name and class."""
        return f"module {self.name!r} ({self.kind})" if self.name else f"the model's own code ({self.kind})"


@dataclass(frozen=True)
class Departure:
    """The first module whose result is not what was recorded; no module where that is not known.

    `before` is the part of the module that already gets another tensor than was recorded, if there is one.  `certain`
    is false where a module before it could not be judged.  `random` says that two calls of the model differ.  `line`
    is where the module's first recorded call comes from; empty where nothing was recorded of it.
    """

    module: Ran | None = None
    before: str = ""
    certain: bool = True
    random: bool = False
    line: str = ""

    @property
    def text(self) -> str:
        """In words."""
        if self.random:
            return (
                "two calls of the model on the same arguments give different results, so no file can equal it: it "
                "draws random numbers, or keeps state between calls"
            )
        said = (
            "the model computes something else while it is captured than by itself: the file computes what was "
            "recorded, and the model gives another result"
        )
        if self.module is None:
            return f"{said}; it asks whether it is being traced or exported, or its code decides by data"
        start = "from" if self.certain else "at the latest from"
        place = f", before its part {self.before!r}" if self.before else f", at {self.line}" if self.line else ""
        absent = "" if self.line or self.before else ", of which nothing was recorded"
        return (
            f"{said}, {start} {self.module.text} on{place}{absent}; look there for code that asks whether it is being "
            "traced or exported (torch.jit.is_tracing, torch.compiler.is_exporting), or that decides by data"
        )


@dataclass(frozen=True)
class RecordedModel:
    """What was recorded of a model, torch's values for it, and a way to run the model again.

    `again` runs the model by itself, in the mode of the comparison, and returns what its outputs should be.
    """

    graph: AtenGraph
    known: Mapping[AtenValue, Any]
    model: Any
    again: Callable[[], Sequence[torch.Tensor]]

    def departure(self, expected: Sequence[torch.Tensor], bounds: Tolerance) -> Departure | None:
        """Where the model departs from what was recorded; None where no module is known to.

        `expected` are the results of a call before.
        """
        with _hooked(self.model) as ran, torch.random.fork_rng(devices=[]):
            torch.manual_seed(_ANOTHER_SEED)
            again = self.again()
        if any(not difference(mine, theirs, bounds).close for mine, theirs in zip(again, expected, strict=False)):
            return Departure(random=True)
        certain = True
        absent: Ran | None = None  # the first module without a record since the last one that was right
        scopes = self._scopes()
        for module in ran:
            calls = [item for scope, items in scopes.items() if _inside(scope, module.name) for item in items]
            tensors = [tensor for _, tensor in calls if tensor is not None]
            kinds = {(tensor.shape, tensor.dtype) for tensor in tensors}
            # a result that nothing needs is not recorded
            results = [item for item in module.results if (item.shape, item.dtype) in kinds]
            if results and _all_equal(results, tensors, bounds):
                absent = None
            elif not results:
                absent = absent or module
            elif any(tensor is None for _, tensor in calls):
                certain = False
            elif absent is not None:
                return Departure(absent, certain=certain)
            else:
                origin, before = self._origin(module, ran, bounds)
                return Departure(origin, before, certain, line="" if before else calls[0][0].line)
        return None

    def _origin(self, module: Ran, ran: Sequence[Ran], bounds: Tolerance) -> tuple[Ran, str]:
        """The module in whose own code the tensors are made that `module` gets otherwise than they were recorded.

        It is the module itself where these are as recorded; the name of the part that gets them comes with it.
        """
        every = [leaf for item in self.known.values() for leaf in pytree.tree_leaves(item)]
        tensors = [leaf for leaf in every if isinstance(leaf, torch.Tensor)]
        by_name = {item.name: item for item in ran}
        found, before = module, ""
        while found.name and not _all_equal(found.given, tensors, bounds):
            parent = found.name
            while parent:
                parent = parent.rpartition(".")[0]
                if parent in by_name:
                    break
            if parent not in by_name:
                break
            found, before = by_name[parent], found.name
        return found, before

    def _scopes(self) -> dict[str, list[tuple[Source, torch.Tensor | None]]]:
        """By module path: the source of each recorded call, with torch's tensor for it, None if it has none."""
        found: dict[str, list[tuple[Source, torch.Tensor | None]]] = {}
        for call in self.graph.calls:
            here = found.setdefault(call.source.scope, [])
            for output in call.outputs:
                if output not in self.known:
                    here.append((call.source, None))
                    continue
                tensors = [leaf for leaf in pytree.tree_leaves(self.known[output]) if isinstance(leaf, torch.Tensor)]
                here += [(call.source, tensor) for tensor in tensors]
        return found


def _inside(scope: str, name: str) -> bool:
    return not name or scope == name or scope.startswith(f"{name}.")


def _all_equal(wanted: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], bounds: Tolerance) -> bool:
    """Whether each tensor is one of the others."""
    return all(
        any(
            tensor.shape == theirs.shape and difference(tensor, theirs, bounds, inside=True).close
            for tensor in tensors
            if tensor.dtype == theirs.dtype
        )
        for theirs in wanted
    )


@contextmanager
def _hooked(model: Any) -> Iterator[list[Ran]]:
    """A list that gets each module of the model when it has run, the innermost first."""
    ran: list[Ran] = []
    handles = []

    def hook(name: str) -> Callable[[torch.nn.Module, Any, Any, Any], None]:
        def finished(module: torch.nn.Module, args: Any, kwargs: Any, results: Any) -> None:
            given = _tensors_of((args, kwargs))
            places = {tensor.data_ptr() for tensor in given}
            made = [tensor for tensor in _tensors_of(results) if tensor.data_ptr() not in places]
            if made:  # what gives its argument back does nothing
                ran.append(Ran(name, type(module).__name__, _copies(given), _copies(made)))

        return finished

    if isinstance(model, torch.nn.Module):
        for name, module in model.named_modules():
            if not isinstance(module, ScriptModule):
                handles.append(module.register_forward_hook(hook(name), with_kwargs=True))
    try:
        yield ran
    finally:
        for handle in handles:
            handle.remove()


def _tensors_of(tree: Any) -> list[torch.Tensor]:
    """The real tensors of more than one element."""
    leaves = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    return [leaf for leaf in leaves if leaf.numel() > 1 and not leaf.is_complex() and not leaf.is_quantized]


def _copies(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.detach().clone() for tensor in tensors)
