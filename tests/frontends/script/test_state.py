"""The state of an interpretation is a value: a fork shares nothing that can change, and nobody sets it from outside."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

import purexport.frontends.script
from purexport.aten.graph import AtenValue, Call, ScalarType
from purexport.errors import ExportError
from purexport.frontends.script.recorder import ScriptRecorder
from purexport.frontends.script.state import ScriptState
from purexport.frontends.script.values import ScriptList
from purexport.shapes.fakes import FakeMachine

FILES = sorted(Path(*purexport.frontends.script.__path__).rglob("*.py"))
NAMES = {"machine", "recorder", "state"}


def flag() -> AtenValue:
    return AtenValue(ScalarType(bool))


def shared(one: ScriptState, other: ScriptState) -> list[str]:
    """The fields in which two states hold the very same container."""
    containers = [
        field.name for field in fields(ScriptState) if isinstance(getattr(one, field.name), (list, dict, set))
    ]
    return [name for name in containers if getattr(one, name) is getattr(other, name)]


def test_a_fork_shares_no_container() -> None:
    state = ScriptState()
    assert not shared(state, state.fork(0))


@pytest.mark.parametrize("name", ["env", "numbers", "assumptions", "calls", "remarks", "made", "before", "after"])
def test_a_shared_container_is_found(name: str) -> None:
    state = ScriptState()
    fork = state.fork(0)
    setattr(fork, name, getattr(state, name))
    assert shared(state, fork) == [name]


def test_a_fork_knows_what_is_known_before() -> None:
    number, condition = AtenValue(ScalarType(int)), flag()
    state = ScriptState(env={1: 2}, numbers={"s0": number}, assumptions={condition: True}, remarks=["said"])
    fork = state.fork(3)
    assert (fork.env, fork.numbers, fork.assumptions) == (state.env, state.numbers, state.assumptions)
    assert (fork.calls, fork.remarks, fork.first, fork.is_fork) == ([], [], 3, True)


def test_changes_of_a_body_are_put_back() -> None:
    """Also when the body ends by an error."""
    recorder = ScriptRecorder(FakeMachine(distinct=True))
    items, own = ScriptList([1]), ScriptList()
    with pytest.raises(ExportError, match="stop"), recorder.body() as body:
        recorder.own(own)
        for item in (items, own):
            recorder.touch(item, Call("", {}, []).source)
            item.append(2)
        recorder.remark("inside")
        raise ExportError("stop", code="script-raises")
    assert (list(items), list(own)) == ([1], [2])
    assert [list(content) for _, content in body.after.values()] == [[1, 2]]
    assert (recorder.state.remarks, recorder.state.is_fork) == ([], False)


@pytest.mark.parametrize(
    ("base", "holds", "known"),
    [
        ("aten::__and__", True, [True, True]),
        ("aten::__and__", False, [None, None]),
        ("aten::__or__", False, [False, False]),
        ("aten::__or__", True, [None, None]),
    ],
)
def test_an_assumption_says_what_it_is_made_of(base: str, holds: bool, known: list[bool | None]) -> None:
    parts, condition, state = [flag(), flag()], flag(), ScriptState()
    state.assume(condition, holds, {condition: Call(f"{base}.bool", {"a": parts[0], "b": parts[1]}, [condition])})
    assert state.assumptions[condition] is holds
    assert [state.assumptions.get(part) for part in parts] == known


def test_the_opposite_of_a_condition_is_known() -> None:
    part, condition, state = flag(), flag(), ScriptState()
    state.assume(condition, True, {condition: Call("aten::__not__", {"self": part}, [condition])})
    assert state.assumptions == {condition: True, part: False}


# Who sets what --------------------------------------------------------------------------------------------------------


def set_from_outside(text: str) -> list[str]:
    """The assignments to attributes of a machine or a state, under whatever path: `self.machine.state = ...`."""
    targets = [
        target
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.With, ast.Delete))
        for target in ast.walk(node)
        if isinstance(target, ast.Attribute) and not isinstance(target.ctx, ast.Load)
    ]
    return [ast.unparse(target) for target in targets if _last(target.value) in NAMES]


def _last(node: ast.expr) -> str:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.strip("_")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nobody_sets_the_state_from_outside(path: Path) -> None:
    assert not set_from_outside(path.read_text())


@pytest.mark.parametrize(
    "planted",
    [
        "def f(machine):\n    machine.state = machine.state.fork(0)",
        "def f(machine):\n    outer, machine.state = machine.state, None",
        "class Join:\n    def f(self):\n        self.machine.state.calls = []",
        "def f(machine):\n    machine.steps += 1",
        "def f(machine):\n    del machine.state.env",
    ],
)
def test_a_state_set_from_outside_is_found(planted: str) -> None:
    assert set_from_outside(planted)
