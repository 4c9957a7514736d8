"""Every handler of a script's nodes is run by a row of this folder: what no row runs may be wrong, or dead."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import purexport
from purexport.frontends.script import handlers
from purexport.frontends.script.registry import COMPUTED, Form, Handler, Handlers
from tests.frontends.script import (
    test_elements,
    test_frozen,
    test_known,
    test_lists,
    test_loops,
    test_objects,
    test_python,
    test_refused,
    test_scripts,
)
from tests.frontends.script.scripted import Programs

# files of rows; the search begins with those that run the most
MODULES = (test_frozen, test_python, test_elements, test_objects, test_lists, test_loops, test_known)

# Nodes that no source of today's compiler makes, or that a test elsewhere has.
TESTED_ELSEWHERE = {
    "aten::concat": "the compiler writes aten::cat",
    "prim::NumToTensor": "test_known.py, in a trace that calls a script",
    "aten::wait": "test_mixed.py, of a list of futures",
    "prim::PythonOp": "tests/compat/test_export_types.py",
    "prim::TupleSlice": "the compiler takes it apart; older files hold it",
    "prim::unchecked_unwrap_optional": "the compiler writes prim::unchecked_cast; older files hold it",
}

Script = tuple[Any, tuple[Any, ...], Any]


def scripts() -> Iterator[Script]:
    """Every script of the rows, with its arguments and dynamic axes; those that are refused too."""
    for table in [item for module in MODULES for item in vars(module).values() if isinstance(item, Programs)]:
        yield from ((row.make(), row.args, row.axes) for row in table.rows)
    yield from ((program.make(), program.args, program.axes) for program in test_scripts.PROGRAMS.values())
    yield from ((torch.jit.script(script), args, None) for script, args, _ in test_refused.ROWS)


def never_run(monkeypatch: pytest.MonkeyPatch, table: Handlers, rows: Iterator[Script]) -> set[tuple[str, str]]:
    """The kind and the form of each handler that no row runs.  One that raises has run."""
    missing = {(kind, form.name) for form, kind, _ in table if kind not in TESTED_ELSEWHERE}
    find = Handlers.find

    def watched(self: Handlers, form: Form, kind: str) -> Handler | None:
        handler = find(self, form, kind)

        def run(*operands: Any) -> Any:
            assert handler is not None
            try:
                result = handler(*operands)
            except purexport.ExportError:
                missing.discard((kind, form.name))
                raise
            if result is not NotImplemented:
                missing.discard((kind, form.name))
            return result

        return handler and run

    monkeypatch.setattr(Handlers, "find", watched)
    for script, args, axes in rows:
        if not missing:
            break
        try:
            purexport.export(script, copy.deepcopy(args), dynamic_axes=axes and {k: dict(v) for k, v in axes.items()})
        except purexport.ExportError:
            continue
    return missing


@pytest.mark.full
def test_every_handler_is_run_by_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not never_run(monkeypatch, handlers.registered(), scripts())


def test_a_handler_without_a_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Handlers()
    table.include(handlers.registered())
    table.add(COMPUTED, "aten::planted", lambda machine, node: None)
    found = never_run(monkeypatch, table, iter([(torch.jit.script(test_python.lists), (test_python.X,), None)]))
    assert ("aten::planted", COMPUTED.name) in found
    assert ("aten::remove", "a list of known length, a tuple, dict or text") not in found
