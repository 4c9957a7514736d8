"""Loops over the rows that the data chose (`for expert in hit.nonzero():`), recorded for all rows there may be.

A recording knows the rows of the example only.  So the loop runs once for each position of the vector that `nonzero`
searched.  A step may write into tensors, and what it wrote stays only where the position was chosen.  The file then
does what the loop does, whatever the steps compute.
Invariant: a loop is taken only where nothing but such writes leaves a step, which the code of the loop shows.  No name
that it binds is read by a later step or behind it, it does not end early, and no list and no attribute changes.  Every
other loop is recorded as it was before.
"""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from purexport.errors import ExportError

Tensor = torch.Tensor

NAMES = frozenset(["nonzero", "unbind"])
"""The functions that `Rows.call` is to get."""

_MOST = 1024  # positions; a file with more steps than that takes longer to write than anyone waits
_LEAVES = frozenset(["STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "DELETE_ATTR", "DELETE_FAST"])
_LEAVES |= {"LIST_APPEND", "SET_ADD", "MAP_ADD", "YIELD_VALUE"}
_GROWING = frozenset(["append", "extend", "insert", "setdefault", "pop", "remove", "popitem", "clear"])
_ENDS = frozenset(["RETURN_VALUE", "RETURN_CONST"])
_NO_NEXT = _ENDS | {"RAISE_VARARGS", "RERAISE"}
_JUMPS = frozenset([*dis.hasjrel, *dis.hasjabs])
_ALWAYS = frozenset(["JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"])
_ITERATING = frozenset(["torch._tensor", "purexport.frontends.trace.tensors"])
_LOCAL = re.compile("(LOAD|STORE)_FAST")


Step = tuple[CodeType, int]  # the code of a loop, and a position


class Rows:
    """The loops of one recording.  They leave `without` out, positions at which the model does not run."""

    def __init__(self, without: set[Step] | None = None) -> None:
        self.without = set[Step]() if without is None else without
        self._at: list[Step] = []  # the running step of each loop
        self._chosen: dict[int, tuple[Tensor, Tensor]] = {}  # by identity: what `nonzero` found, and where
        self._written: list[dict[int, tuple[Tensor, Tensor]]] = []  # of each loop: what a step wrote to, what was there

    @property
    def runs(self) -> bool:
        """Whether a step of such a loop is running."""
        return bool(self._written)

    def call(self, function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of `function`; an iterator over all rows there may be where a loop over rows begins."""
        steps = self.steps_over(args[0]) if name == "unbind" and args else None
        if steps is not None:
            return steps
        found = function(*args, **kwargs)
        searched = args[0] if args else kwargs.get("input")
        if name == "nonzero" and isinstance(found, Tensor) and isinstance(searched, Tensor):
            self.found(found, searched)
        return found

    def found(self, rows: Tensor, searched: Tensor) -> None:
        """Learn that the rows are the places of the elements of a tensor that are not zero."""
        size = searched.shape[0] if searched.dim() == 1 else None
        if isinstance(size, int) and size <= _MOST:
            self._chosen[id(rows)] = rows, searched

    def steps_over(self, rows: Tensor) -> Iterator[Tensor] | None:
        """All rows there may be, where the code that is running loops over rows that were found; None elsewhere."""
        if id(rows) not in self._chosen:
            return None
        frame = _looping(sys._getframe(1))
        if frame is None or not leaves_only_writes(frame.f_code, frame.f_lasti, _has_containers(frame)):
            return None
        return self._steps(self._chosen[id(rows)][1], frame)

    def must_leave_out(self, error: BaseException | None) -> bool:
        """Whether a recording stopped at a position beyond those that the model has, as in a table of spare rows.

        The loop never gets there, so it is left out of the next recording.
        """
        if not isinstance(error, IndexError) or not self._at or not self._at[-1][1] or self._at[-1] in self.without:
            return False
        self.without.add(self._at[-1])
        return True

    def writes(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the content of the tensors that a call in a step is about to write to."""
        out = kwargs.get("out")
        targets = list(out) if isinstance(out, (list, tuple)) else [out]
        if args and (name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or name[:3] == "__i"):
            targets.append(args[0])
        for target in targets:
            if isinstance(target, Tensor):
                self.keep(target)

    def keep(self, target: Tensor) -> None:
        """Keep the content of a tensor that is about to be written."""
        for written in self._written:
            if id(target) not in written:
                written[id(target)] = target, target.clone()

    def _steps(self, searched: Tensor, frame: FrameType) -> Iterator[Tensor]:
        """Each position as a row, and after its step the writes undone where it was not chosen."""
        chosen = searched != 0
        for position in range(int(searched.shape[0])):
            step = frame.f_code, position
            if step in self.without:
                continue
            versions = _versions(frame)
            self._written.append({})
            self._at.append(step)
            yield torch.tensor([position], device=searched.device)
            self._at.pop()
            written = self._written.pop()
            for tensor, before in written.values():
                tensor.copy_(torch.where(chosen[position], tensor, before))
            changed = [name for name, (tensor, version) in versions.items() if _version(tensor) != version]
            seen = {_memory(tensor) for tensor, _ in written.values()} if changed else set()
            unseen = [name for name in changed if _memory(versions[name][0]) not in seen]
            if unseen:
                names = ", ".join(map(repr, unseen))
                raise ExportError(
                    f"a loop over the rows that the data chose writes to {names} in a way that the capture does not "
                    f"see, at {frame.f_code.co_filename}:{frame.f_lineno}; write with an operator such as index_add_",
                    code="loop-writes-unseen",
                )


def _looping(frame: FrameType | None) -> FrameType | None:
    """The code whose `for` asks a tensor for its rows, seen from the call of `unbind`; None for any other caller."""
    while frame is not None:
        if frame.f_code.co_name == "__iter__" and frame.f_globals.get("__name__") in _ITERATING:
            return frame.f_back
        frame = frame.f_back
    return None


def _has_containers(frame: FrameType) -> bool:
    return any(isinstance(item, (list, dict, set)) for item in frame.f_locals.values())


def _versions(frame: FrameType) -> dict[str, tuple[Tensor, int]]:
    """The tensors that the code has at hand, with torch's counts of the writes to them."""
    tensors = [(name, item) for name, item in frame.f_locals.items() if isinstance(item, Tensor)]
    return {name: (tensor, _version(tensor)) for name, tensor in tensors}


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def leaves_only_writes(code: CodeType, at: int, has_containers: bool) -> bool:
    """Whether the loop whose iterator is made at the offset `at` leaves nothing behind but writes into tensors.

    With `has_containers` an element that is written may be one of a list.
    """
    steps = list(dis.get_instructions(code))
    places = {step.offset: place for place, step in enumerate(steps)}
    head = first = places[at] + 1
    while steps[first].opname == "EXTENDED_ARG":  # a long loop
        first += 1
    if steps[first].opname != "FOR_ITER":
        return False
    end = places.get(steps[first].argval, len(steps))
    bound = {name for step in steps[first:end] for kind, name in _locals(step) if kind == "STORE"}
    for place in range(first + 1, end):
        step = steps[place]
        if step.opname in _LEAVES or step.opname in _ENDS or (step.opname == "STORE_SUBSCR" and has_containers):
            return False
        if step.opname in ("LOAD_METHOD", "LOAD_ATTR") and step.argval in _GROWING:
            return False
        if any(not head <= other < end for other in _followers(steps, places, place)):
            return False  # a break
    return not _read_unbound(steps, places, first, bound)


def _locals(step: dis.Instruction) -> list[tuple[str, str]]:
    """The local names that an instruction takes and sets, in order; newer versions of Python join two in one."""
    kinds = _LOCAL.findall(step.opname)
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,) * len(kinds)
    if len(kinds) < len(names) and kinds:  # STORE_FAST_LOAD_FAST is found as one
        kinds = re.findall("LOAD|STORE", step.opname)
    return list(zip(kinds, names, strict=False))


def _followers(steps: list[dis.Instruction], places: dict[int, int], place: int) -> list[int]:
    step = steps[place]
    found = [] if step.opname in _NO_NEXT or step.opname in _ALWAYS else [place + 1]
    return found + ([places[step.argval]] if step.opcode in _JUMPS else [])


def _read_unbound(steps: list[dis.Instruction], places: dict[int, int], first: int, bound: set[str]) -> bool:
    """Whether, from the loop on, one of its names may be read before it is set again."""
    sure: dict[int, frozenset[str]] = {}  # by place: the names that are set on every way there
    todo = [(first, frozenset[str]())]
    while todo:
        place, names = todo.pop()
        known = sure.get(place)
        names = names if known is None else known & names
        if place >= len(steps) or known == names:
            continue
        sure[place] = names
        for kind, name in _locals(steps[place]):
            if kind == "LOAD" and name in bound and name not in names:
                return True
            names = names | {name} if kind == "STORE" else names
        # the next step of the loop begins with what it had at the first
        names = frozenset() if place == first else names
        todo += [(other, names) for other in _followers(steps, places, place)]
    return False
