"""torch's symbolic sizes: they may be 0 and 1 too, and conditions on sizes that only the data decides are answered.

`sizes_hashed` lets them be keys, as in a function with `functools.lru_cache`.

torch.export takes every dynamic size to be 2 or more.  Inside `small_sizes_counted`, what the model's code asks of a
size is recorded for smaller ones as well.  Operators are recorded for the general case, without a question.  torch has
a setting for that.  But its symbols for sizes are positive all the same, and sympy answers `n > 0` by that.  So the
symbols are made non-negative.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import SymBool, SymInt

_SETTING = "backed_size_oblivious"
_MAKER = "make_symbol"
_ANSWER = "_guard_or"
_NOTE = "_extract_tensor_metadata"


def _modules() -> tuple[Any, Any]:
    """torch's settings of symbolic shapes, and the module that makes the symbols; loaded here, because of sympy."""
    from torch.fx.experimental import _config, symbolic_shapes

    return _config, symbolic_shapes


def hash_of_sizes() -> Any:
    """What makes a symbolic size a key, at the moment."""
    return SymInt.__hash__


@contextmanager
def sizes_hashed(hash_of: Callable[[Any], int | None]) -> Iterator[None]:
    """Inside, `hash_of(node)` is the hash of a symbolic size; where it is None, torch's own decides."""
    original: Any = SymInt.__hash__

    def of_size(self: Any) -> int:
        found = hash_of(self.node)
        return int(original(self)) if found is None else found

    SymInt.__hash__ = of_size  # type: ignore[method-assign]
    try:
        yield
    finally:
        SymInt.__hash__ = original  # type: ignore[method-assign]


def sizes_below_two() -> Any:
    """Whether torch takes sizes of 0 and 1 into account, and what makes its symbols; None in versions that cannot."""
    settings, maker = _modules()
    return getattr(settings, _SETTING, None), getattr(maker, _MAKER, None)


@contextmanager
def small_sizes_counted() -> Iterator[None]:
    """Inside, dynamic sizes may be 0 and 1, in the whole process; nothing changes in versions without the setting."""
    settings, maker = _modules()
    before, make = sizes_below_two()
    if before is None or make is None:
        yield
        return

    def symbol(*args: Any, positive: bool | None = None, **kwargs: Any) -> Any:
        assumed = {"nonnegative": True} if positive else {}
        return make(*args, **assumed, **kwargs)

    setattr(settings, _SETTING, True)
    setattr(maker, _MAKER, symbol)
    try:
        yield
    finally:
        setattr(settings, _SETTING, before)
        setattr(maker, _MAKER, make)


@contextmanager
def results_not_kept() -> Iterator[None]:
    """Inside, torch keeps no results of operators on fake tensors to give them again, in the whole process.

    To find one again takes torch longer than the operator where sizes are symbolic, and it checks each that it keeps.
    """
    from torch._dynamo import config

    before = keeps_results()
    config.fake_tensor_cache_enabled = False
    try:
        yield
    finally:
        config.fake_tensor_cache_enabled = before


def keeps_results() -> bool:
    """Whether torch keeps results of operators on fake tensors."""
    from torch._dynamo import config

    return bool(config.fake_tensor_cache_enabled)


@contextmanager
def layouts_not_noted() -> Iterator[None]:
    """Inside, torch does not note in its graph how each tensor lies in memory, in the whole process.

    Nobody reads that note, and torch asks several questions about sizes for each.
    """
    graph, note = _recorder(), noting()
    if "include_contiguity" not in inspect.signature(note).parameters:
        yield
        return
    setattr(graph, _NOTE, functools.partial(note, include_contiguity=False))
    try:
        yield
    finally:
        setattr(graph, _NOTE, note)


def noting() -> Any:
    """What notes how a tensor looks."""
    return getattr(_recorder(), _NOTE)


def _recorder() -> Any:
    """The module that writes the nodes of the graph."""
    from torch.fx.experimental import proxy_tensor

    return proxy_tensor


@contextmanager
def examples_asked_first() -> Iterator[None]:
    """Inside, a question whose answer is a default unless it is known is first asked of the example's sizes.

    `small_sizes_counted` makes torch prove that a condition holds for all sizes, or for none.  Otherwise it takes a
    default.  Where the example gives the default, no proof can give another answer, so none is searched for.
    """
    _, shapes = _modules()
    decide = answering()
    if decide is None:
        yield
        return

    def decided(condition: Any, default: bool) -> bool:
        counted = sizes_below_two()[0] and isinstance(condition, SymBool)
        if counted and getattr(condition.node, "hint", None) is default:  # some sizes have no example
            return bool(default)
        answer: bool = decide(condition, default)
        return answer

    setattr(shapes, _ANSWER, decided)
    try:
        yield
    finally:
        setattr(shapes, _ANSWER, decide)


def answering() -> Any:
    """What answers such a question; None in versions that do not ask it."""
    return getattr(_modules()[1], _ANSWER, None)


@contextmanager
def conditions_handed_to(handler: Callable[[Any], bool | None]) -> Iterator[None]:
    """Inside, a condition that torch cannot decide without the data is decided by `handler`, in the whole process.

    The handler gets the symbolic condition.  With None torch raises its error.
    """
    from torch.fx.experimental.sym_node import SymNode
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    decide = SymNode.guard_bool

    def guard_bool(node: Any, file: str, line: int) -> bool:
        try:
            return decide(node, file, line)
        except GuardOnDataDependentSymNode:
            answer = handler(node)
            if answer is None:
                raise
            return answer

    # torch names the innermost line outside of its own files, and this function is to be one of those
    guard_bool.__code__ = guard_bool.__code__.replace(co_filename=decide.__code__.co_filename)
    SymNode.guard_bool = guard_bool  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        SymNode.guard_bool = decide  # type: ignore[method-assign]


def deciding_conditions() -> Any:
    """What decides a symbolic condition."""
    from torch.fx.experimental.sym_node import SymNode

    return SymNode.guard_bool
