"""Mutation testing (`python -m tools.mutate`): each change of a small module and nothing else of it, a change found
again in another state of a module, the rooms and what notices changes in them, and how tests on a changed tree end."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tools.mutants import changes, found_again, found_changes, located
from tools.mutate import Mutant, Reached, allotted, compare, drawn, phases, report
from tools.planted import FAULTS, Fault
from tools.reached import marked
from tools.rooms import ROOMS, Room, found_in, mirrors, modules_of, path_in

ROOT = Path(__file__).parents[2]

# (what stands there, every other form that is tried; "pass" where it is left out)
ROWS = [
    ("y = a < b", ["pass", "y = a <= b", "y = a >= b"]),
    ("y = a is None", ["pass", "y = a is not None"]),
    ("y = a and b", ["pass", "y = a or b", "y = b", "y = a"]),
    ("y = not a", ["pass", "y = a"]),
    ("y = a + 1", ["pass", "y = a - 1", "y = a + 2", "y = a + 0"]),
    ("y += a", ["y -= a", "pass"]),
    ("y = a if b else c", ["pass", "y = a", "y = c"]),
    ("y = True", ["pass", "y = False"]),
    ("call()", ["pass"]),
    ("raise Error", ["pass"]),
    ("raise Error(f'{a + 1} words', a)", ["pass"]),
    ("if a:\n    return\nelse:\n    return b", ["if True:", "if False:", "return None"]),
    ("while a:\n    break", ["while False:", "pass"]),
    ("while True:\n    continue", ["while False:", "pass"]),
    ("def f(a: int=2) -> int:\n    'Two, 2.'\n    return a", ["def f(a: int=3)", "def f(a: int=1)", "return None"]),
    ("@cache(1)\ndef f():\n    return None", []),
    ("import a", []),
    ("a: int = 1", []),
    ("__all__ = ['a', 'b']", []),
    ("if TYPE_CHECKING:\n    call()", []),
    ("y = 'if n < 1'", ["pass"]),
]


@pytest.mark.parametrize(("source", "others"), ROWS, ids=[row[0].splitlines()[0] for row in ROWS])
def test_every_change(source: str, others: list[str]) -> None:
    tree = ast.parse(source)
    before = ast.unparse(tree)
    made = [change.source(tree) for change in changes(tree)]
    assert ast.unparse(tree) == before
    assert before not in made
    assert len(made) == len(others)
    for other in others:
        assert any(other in found for found in made), (other, made)
    for found in made:
        ast.parse(found)


def test_code_in_strings_is_changed_where_a_module_writes_code() -> None:
    tree = ast.parse("y = ['if n < 128:', f'    size += n + {a}']")
    made = {change.source(tree).removeprefix("y = ") for change in changes(tree, texts=True)}
    assert made == {
        "pass",
        "['if n <= 128:', f'    size += n + {a}']",
        "['if n < 129:', f'    size += n + {a}']",
        "['if n < 127:', f'    size += n + {a}']",
        "['if n < 128:', f'    size = n + {a}']",
        "['if n < 128:', f'    size += n - {a}']",
    }


BEFORE = "def f(a):\n    return a + 1\n\n\nclass C:\n    def f(self, a):\n        b = a + 1\n        return a + 1\n"
MOVED = f"import this\n\n\ndef g(a):\n    return a + 1\n\n\n{BEFORE}"


def test_a_change_is_found_again_in_another_state_of_its_module() -> None:
    """By the function, the text of the line and the number among the same: not by the number of the line."""
    found = found_changes(BEFORE)
    sums = [one for one in found if one.text == "a + 1  =>  a - 1"]
    assert [(one.line, one.scope) for one in sums] == [(2, "f"), (7, "C.f"), (8, "C.f")]
    assert len({one.key for one in found}) == len(found)
    for one in sums:
        made = found_again(MOVED, one)
        assert made is not None
        line = next(at for at, text in enumerate(made.splitlines()) if "a - 1" in text)
        assert ast.unparse(ast.parse(MOVED)).splitlines()[line].strip() == one.code
    assert found_again(MOVED.replace("b = a + 1", "b = 1 + a"), sums[1]) is None


def test_the_same_change_twice_in_a_line() -> None:
    found = [one for one in found_changes("y = a + a + a") if "+ a  =>" in one.text or one.text.startswith("a + a  =>")]
    texts = {found_again("y = a + a + a", one) for one in found} - {"pass"}
    assert texts == {"y = a + a - a", "y = a - a + a"}


def test_every_module_is_in_one_room() -> None:
    owners: dict[str, list[str]] = {}
    for name, room in ROOMS.items():
        for module in modules_of(room, ROOT):
            owners.setdefault(module, []).append(name)
    assert {module: names for module, names in owners.items() if len(names) > 1} == {}
    paths = [path for package in ("purexport", "proto_schema") for path in (ROOT / package).rglob("*.py")]
    changed = {path.relative_to(ROOT).as_posix() for path in paths if path.name != "__init__.py"}
    assert sorted(changed - set(owners)) == []


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_names_what_exists(name: str) -> None:
    room = ROOMS[name]
    for pattern in (*room.modules, *room.tests, *room.further, *room.texts):
        assert found_in(ROOT, [pattern]), pattern


def test_mirrors() -> None:
    tests = ["tests/a/test_pool.py", "tests/a/test_norm.py", "tests/a/test_losses.py"]
    assert mirrors("a/pooling.py", tests) == ["tests/a/test_pool.py"]
    assert mirrors("a/losses.py", tests) == ["tests/a/test_losses.py"]
    assert mirrors("a/other.py", tests) == ["tests/a/test_pool.py"]


def test_changes_are_shared_out_by_lines() -> None:
    assert allotted({"a": 100, "b": 300}, 216) == {"a": 58, "b": 158}
    shares = allotted({str(number): number for number in range(60)}, 601)
    assert sum(shares.values()) == 601
    assert min(shares.values()) == 8
    assert sum(allotted({"a": 1, "b": 1, "c": 1}, 7).values()) == 7


def test_the_same_changes_are_drawn_again() -> None:
    rooms = {name: ROOMS[name] for name in ("derived", "side_by_side")}
    one, other = drawn(rooms, 40, 7, []), drawn(rooms, 40, 7, [])
    assert one == other
    assert len({mutant.name for mutant in one}) == 40
    assert {mutant.name for mutant in drawn(rooms, 20, 7, [])} < {mutant.name for mutant in one}
    assert one != drawn(rooms, 40, 8, [])
    at = drawn(rooms, 1, 7, ["proto_schema/derived/cast.py"])
    assert len(at) > 1 and {mutant.module for mutant in at} == {"proto_schema/derived/cast.py"}


def test_phases(tmp_path: Path) -> None:
    """The files that mirror a module come first; a tree from before the tiers has one, under the names of that time."""
    room = Room(("purexport/frontends/*.py",), ("tests/frontends/test_*.py",), ("tests/test_far.py",))
    tiers = {"default": [], "full": []}
    for folder in ("tests/capture", "tests"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name in ("tests/capture/test_one.py", "tests/capture/test_two.py", "tests/test_far.py"):
        (tmp_path / name).touch()
    found = phases(room, "purexport/capture/two.py", tmp_path, [])
    assert [(phase.tier, phase.marks, phase.once, *phase.files) for phase in found] == [
        ("default", "not sweep", True, "tests/capture/test_two.py"),
        ("default", "not sweep", True, "tests/capture/test_one.py"),
        ("default", "not sweep", False, "tests/capture/test_two.py"),
        ("default", "not sweep", True, "tests/test_far.py"),
    ]
    (tmp_path / "tests" / "tiers.py").touch()
    for phase in phases(room, "purexport/capture/two.py", tmp_path, ["tests/capture/test_one.py"]):
        tiers[phase.tier] += phase.files
    assert path_in(tmp_path, "tests/frontends/test_one.py") == "tests/capture/test_one.py"
    assert tiers["default"] == ["tests/capture/test_one.py", "tests/capture/test_two.py"] * 2
    assert set(tiers["full"]) == {*tiers["default"], "tests/test_far.py"}


MARKED = """
TABLE = {"a": lambda x: x + 1}
LIMIT = 5

def f(n):
    if n > 3:
        n -= 1
    elif n == 2:
        return "two"
    for i in range(n):
        with open(i):
            call(n
                 * 7)
    while n < 0:
        n += 1
    return f
"""


def test_places_that_tests_come_to() -> None:
    """Every call of `__hit__` that a run makes is that of a change on a line that ran, and of all changes there."""
    found = found_changes(MARKED)
    source, left_out = marked(MARKED, list(enumerate(located(MARKED, found))))
    assert {found[number].line for number in left_out} == {2, 3}  # `TABLE = ...` itself, but not its lambda
    assert len(source.splitlines()) == len(MARKED.splitlines())
    hits: set[int] = set()
    names: dict[str, Any] = {"__hit__": hits.add, "open": lambda _: memoryview(b""), "call": lambda _: None}
    exec(compile(source, "marked", "exec"), names)
    assert not hits
    for argument, lines in [(2, {6, 8, 9}), (1, {6, 8, 10, 11, 12, 13, 14, 16}), (-1, {6, 8, 10, 14, 15, 16})]:
        hits.clear()
        names["f"](argument)
        there = {number for number, one in enumerate(found) if one.line in lines}
        assert hits == there - left_out
    hits.clear()
    assert names["TABLE"]["a"](1) == 2
    assert {found[number].text for number in hits} == {"x + 1  =>  x - 1", "1  =>  2", "1  =>  0"}


def test_what_runs_for_a_change_that_tests_come_to(tmp_path: Path) -> None:
    """What noticed others before, then one of each file in turn, the fast ones first, up to so many seconds."""
    mutant = Mutant("codec", "proto_schema/wire/__init__.py", found_changes("x = 1")[0])
    took = {"a.py::1": 2.0, "a.py::2": 1.0, "b.py::1": 3.0, "b.py::2": 12.0, "b.py::3": 20.0}
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "tiers.py").touch()
    full = ["a.py::1", "b.py::2"]
    reached = Reached({mutant.name: {"default": list(took), "full": full}}, took)
    found = reached.phases(mutant, tmp_path, Counter(["b.py::1"])) or []
    assert [(phase.tier, phase.files, sorted(phase.tests or ())) for phase in found] == [
        ("default", ("b.py", "a.py"), ["a.py::1", "a.py::2", "b.py::1", "b.py::2", "b.py::3"]),
        ("default", (), []),
        ("full", ("a.py", "b.py"), full),
        ("full", (), []),
    ]
    assert Reached({mutant.name: None}, took).phases(mutant, tmp_path, Counter()) is None


def _line(name: str, **verdict: Any) -> dict[str, Any]:
    return {"room": "codec", "name": name, "module": "m.py", "line": 1, "change": name, "cpu": 2.0, **verdict}


def test_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        _line("one", verdict="killed", tier="default", test="t::1"),
        _line("two", verdict="killed", tier="full", test="t::2"),
        _line("three", verdict="timed out", tier="default", test="t::3"),
        _line("four", verdict="survived"),
    ]
    log = tmp_path / "log"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert report(log, None) == 1
    shown = capsys.readouterr().out
    assert "all                                 4        2        1        1        1      2.0" in shown
    assert "only full: m.py:1: two  by t::2\nsurvived: m.py:1: four\n" in shown
    before = [
        *(_line(name, verdict="killed", tier="default", test="t::0") for name in ("one", "two", "four")),
        _line("three", verdict="absent"),
    ]
    compare(lines, before)
    shown = capsys.readouterr().out
    assert "in both logs 3; noticed 2, in the other log 3\n" in shown
    assert "the default tests notice 1 (33.3 %)\nlost: m.py:1: four  by t::0\n" in shown


ENDINGS = """
import json, sys
from pathlib import Path
from tools.children import Slot
from tools.mutate import Phase
tree = Path(sys.argv[1])
slot = Slot(tree, tree.with_suffix(".note"))
phases = [Phase("default", ("test_one.py",), "not full"), Phase("full", ("test_one.py",), "full")]
def run(source, limit=60.0):
    with slot.changed({"module.py": source}):
        ended = slot.run(phases, "left_out", limit)
    return ended.status, ended.phase, ended.failed, ended.running, ended.late
found = [
    run("x = 1"),
    run("x = 2"),
    run("x = 3"),
    run("x = "),
    run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
    run("import time; time.sleep(60); x = 1", 1.0),
]
print(json.dumps([found, (tree / "module.py").read_text()]))
"""
TESTS = """
import pytest
from module import x
def test_left_out():
    assert False
def test_small():
    assert x != 2
@pytest.mark.full
def test_large():
    assert x < 3
"""


@pytest.mark.full
def test_how_tests_on_a_changed_tree_end(tmp_path: Path) -> None:
    """All pass; one of the default tests fails; one of `full` does; no import; killed; late."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "test_one.py").write_text(TESTS)
    (tree / "module.py").write_text("x = 0")
    (tree / "pytest.ini").write_text("[pytest]\nmarkers = full\n")
    command = [sys.executable, "-c", ENDINGS, str(tree)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found, after = json.loads(ran.stdout)
    assert after == "x = 0"
    assert found == [
        [0, 1, [], "test_one.py::test_large", False],
        [1, 0, ["test_one.py::test_small"], "test_one.py::test_small", False],
        [1, 1, ["test_one.py::test_large"], "test_one.py::test_large", False],
        [2, 0, ["test_one.py"], "collection", False],
        [-9, 0, [], "collection", False],
        [-9, 0, [], "collection", True],
    ]


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_has_its_place(fault: Fault) -> None:
    """Python that is planted compiles, and the tests that must see it exist."""
    (name, text), *others = fault.planted(ROOT).items()
    assert not others and text != (ROOT / name).read_text()
    if name.endswith(".py"):
        ast.parse(text)
    for test in fault.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


def test_a_fault_without_its_place_is_refused() -> None:
    with pytest.raises(ValueError, match="lost: 'not there' stands 0 times in "):
        Fault("lost", "tools/rooms.py", "not there", "", ()).planted(ROOT)
