"""The elements of a tensor, when Python asks for them: the recorded calls that lead to it run on the example.

A call runs once at most.  Besides the calls whose results are needed, those run that write into memory which one of the
needed tensors may share.  What the model owns is read where it is, and a copy is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from weakref import ref

import torch

from proto_schema.sizes import Size
from purexport.frontends.trace.arguments import leaves, tensors_in
from purexport.frontends.trace.numbers import SYMBOLIC
from purexport.frontends.trace.operators import Operator
from purexport.frontends.trace.tensors import Recorded
from purexport.torch_patches.before_composites import below


class Entry:
    """A recorded call with its tensors; `done` once it has run.

    The results are not kept alive.  Nobody else asks for one that the model has dropped; and to a tensor that only the
    model has, torch gives its flags where it would make another one through Python, for which it loads seconds of code.
    """

    __slots__ = ("args", "done", "kwargs", "operands", "operator", "results", "written")

    def __init__(
        self,
        operator: Operator,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        written: list[Any],
        operands: list[Any],
    ) -> None:
        self.operator = operator
        self.args = args
        self.kwargs = kwargs
        self.results: list[ref[Any] | None] = []
        self.written = written
        self.operands = operands
        self.done = False

    def made(self, results: Sequence[Any]) -> None:
        """Learn what the model gets of the call."""
        self.results = [ref(item) if type(item) is Recorded else None for item in leaves(results, {})]

    def gives(self, wanted: Collection[int]) -> bool:
        """Whether one of the results has one of these identities."""
        return any(item is not None and id(item()) in wanted for item in self.results)

    def ran(self, found: Sequence[Any]) -> None:
        """Keep what the call gave."""
        self.done = True
        for item, real in zip(self.results, leaves(found, {}), strict=False):
            tensor = item() if item is not None else None
            if tensor is not None:
                tensor.elements = real


class Elements:
    """Runs recorded calls; `owner` is the recorder.

    Before a call that writes, those run that take what was there.
    """

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._copies: dict[int, torch.Tensor] = {}

    def of(self, tensor: Recorded) -> torch.Tensor:
        """The elements of a tensor as they are now.  The result is a copy."""
        with below(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            self._run([tensor])
            return self._real(tensor).clone()

    def number_of(self, tensor: Recorded) -> Any:
        """The number in a tensor of one element."""
        with below():
            return self.of(tensor).item()

    def result_of(self, operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a call gives that is not recorded yet."""
        needed = tensors_in(args, kwargs)
        with below(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            self._run(needed)
            return operator.kernel(*self._reals(args), **{name: self._reals(item) for name, item in kwargs.items()})

    def reals(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors themselves that calls run on."""
        return [self._real(item) for item in tensors]

    def _run(self, needed: Sequence[Any]) -> None:
        wanted = {id(item) for item in needed}
        memory: set[int] = set().union(*(self.owner.memory_of(item) for item in needed)) if needed else set()
        overwritten: set[int] = set()
        chosen = []
        for entry in reversed(self.owner.log):
            if entry.done:
                continue
            gives = entry.gives(wanted)
            writes = any(memory & self.owner.memory_of(item) for item in entry.written)
            before_a_write = any(overwritten & self.owner.memory_of(item) for item in entry.operands)
            if not (gives or writes or before_a_write):
                continue
            for item in entry.written:
                overwritten |= self.owner.memory_of(item)
            chosen.append(entry)
            for item in entry.operands:
                wanted.add(id(item))
                memory |= self.owner.memory_of(item)
        for entry in reversed(chosen):
            self._run_entry(entry)

    def _run_entry(self, entry: Entry) -> None:
        entry.done = True
        args = self._reals(entry.args)
        kwargs = {name: self._reals(item) for name, item in entry.kwargs.items()}
        found = entry.operator.kernel(*args, **kwargs)
        entry.ran(found if isinstance(found, (list, tuple)) else [found])

    def _reals(self, items: Any) -> Any:
        if type(items) in (list, tuple):
            return [self._reals(item) for item in items]
        if isinstance(items, torch.Tensor):
            return self._real(items)
        return items.node.example if isinstance(items, SYMBOLIC) else items

    def _real(self, tensor: torch.Tensor) -> torch.Tensor:
        if type(tensor) is Recorded:
            elements = tensor.elements
            if elements is None:
                self.owner.refuse("asks for elements that cannot be computed")
            assert elements is not None
            if tensor.place < 0 and id(tensor) not in self._copies:  # an argument, which may be written
                self._copies[id(tensor)] = tensor.elements = elements = elements.clone()
            return elements
        if tensor.is_meta or id(tensor) in self.owner.valueless:
            self.owner.refuse("asks for elements that follow from a weight without values")
        if id(tensor) not in self._copies:
            self._copies[id(tensor)] = (
                tensor.detach().clone() if not tensor.is_leaf or not tensor.requires_grad else tensor.detach()
            )
        return self._copies[id(tensor)]


class AnotherExample:
    """What the recorded calls give for other arguments than those that they were recorded with.

    `arguments` are theirs by name, and `sizes` those of the declared axes.
    """

    def __init__(self, owner: Any, arguments: Mapping[str, torch.Tensor], sizes: Mapping[str, int]) -> None:
        self.owner = owner
        self.arguments = {id(item.value): arguments.get(item.name) for item in owner.graph.inputs}
        self.sizes = {**owner.sizes, **sizes}
        self.unknown = owner.sizes.keys() - owner.declared
        self._reals: dict[int, Any] = {}

    def results(self, wanted: Sequence[Any]) -> list[Any] | None:
        """The results; None where a number in a call does not follow from the sizes, or where chance decides."""
        with below(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            for entry in self.owner.log:
                args, kwargs = self._real(entry.args), {name: self._real(item) for name, item in entry.kwargs.items()}
                if any(item is _UNKNOWN for item in leaves(args, kwargs)):
                    return None
                chance = torch.get_rng_state() if entry.operator.random else None
                found = entry.operator.kernel(*args, **kwargs)
                if chance is not None and not torch.equal(chance, torch.get_rng_state()):
                    return None
                for item, real in zip(entry.results, leaves([found], {}), strict=False):
                    tensor = item() if item is not None else None
                    if tensor is not None:
                        self._reals[id(tensor)] = real
            return [self._real(item) for item in wanted]

    def _real(self, item: Any) -> Any:
        if type(item) in (list, tuple):
            return [*map(self._real, item)]
        if isinstance(item, torch.Tensor):
            if id(item) not in self._reals:
                self._reals[id(item)] = self._given(item)
            return self._reals[id(item)]
        if not isinstance(item, SYMBOLIC) or item.node.fixed:
            return item.node.example if isinstance(item, SYMBOLIC) else item
        size = item.node.size
        return _UNKNOWN if not isinstance(size, Size) or size.symbols & self.unknown else size.at(self.sizes)

    def _given(self, tensor: torch.Tensor) -> Any:
        """A tensor that no call gives: an argument, or one of the model, of which calls get a copy."""
        if type(tensor) is Recorded:
            found = self.arguments.get(id(tensor.value))
            return _UNKNOWN if found is None else found.clone()
        if tensor.is_meta or id(tensor) in self.owner.valueless:
            return _UNKNOWN
        return tensor.detach() if isinstance(tensor, torch.nn.Parameter) else tensor.detach().clone()


_UNKNOWN = object()
