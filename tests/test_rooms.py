"""Every file stands where docs/architecture.md says: in a row of its table of rooms, or in the list that the row names.

A room whose files are listed in the code (rules, verbs, passes, ...) names that list, so that a new file of its kind
needs no change of the page.  Each check is a function of the folder's files, so that the planted rows can show it.
No room of `tools/rooms.py` has more lines than the page says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tools.rooms import TITLE, allowed_lines, beyond, lines_of_rooms, with_lines

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "purexport"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROW = re.compile(r"^\| `([\w/]+)/` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
THEMES = {"core", "forms", "older", "support"}  # folders of purexport/lowering that hold no rules


def files_in(folder: Path) -> set[str]:
    """The names of a folder's modules, without its own."""
    return {path.stem for path in folder.glob("*.py")} - {"__init__"}


def constant(path: str, name: str) -> ast.expr:
    """What is assigned to a name at the top of a file of the package."""
    for node in ast.parse((PACKAGE / path).read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return node.value
    raise LookupError(f"{path} has no {name}")


def names_in(node: ast.AST) -> set[str]:
    """The names and the words of the texts in an expression."""
    found = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    texts = (item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and isinstance(item.value, str))
    return found.union(*(text.split() for text in texts))


def rule_files() -> tuple[set[str], set[str]]:
    """A rule file imports the registry; what rules of its theme share may lie beside it."""
    folders = [path for path in (PACKAGE / "lowering").iterdir() if path.is_dir() and path.name not in THEMES]
    there = {f"{folder.name}/{file}" for folder in folders for file in files_in(folder) if _registers(folder / file)}
    table = constant("lowering/rules.py", "FILES")
    assert isinstance(table, ast.Dict)
    pairs = zip(filter(None, table.keys), table.values, strict=True)
    listed = {
        f"{ast.literal_eval(folder)}/{file}" for folder, files in pairs for file in ast.literal_eval(files).split()
    }
    return there, listed


def forms() -> tuple[set[str], set[str]]:
    return files_in(PACKAGE / "lowering" / "forms"), names_in(constant("lowering/rules.py", "FORMS"))


def verbs() -> tuple[set[str], set[str]]:
    return files_in(PACKAGE / "cli" / "verbs"), names_in(constant("cli/main.py", "VERBS"))


def handlers() -> tuple[set[str], set[str]]:
    listed = names_in(constant("frontends/script/handlers.py", "FILES"))
    folder = PACKAGE / "frontends" / "script" / "operators"
    return {name for name in files_in(folder) if _registers(folder / name)}, listed


def _registers(module: Path) -> bool:
    """Whether a file declares something in the registry of its kind."""
    return (
        re.search(r"^from purexport\.[\w.]+\.registry import ", module.with_suffix(".py").read_text(), re.M) is not None
    )


def facts() -> tuple[set[str], set[str]]:
    return files_in(PACKAGE / "facts") - {"fact", "table"}, names_in(constant("facts/table.py", "FILES"))


def imported_by(path: str, package: str) -> set[str]:
    """The modules of a package that a file imports, or of which it imports something."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{package}."):
            found.add(node.module.removeprefix(f"{package}."))
    return found


def passes() -> tuple[set[str], set[str]]:
    return files_in(PACKAGE / "graph" / "passes"), imported_by("stages/build.py", "purexport.graph.passes")


def readers() -> tuple[set[str], set[str]]:
    """A reader is a file of `weights/` with a function `read`."""
    folder = PACKAGE / "weights"
    there = {name for name in files_in(folder) if "\ndef read(" in (folder / f"{name}.py").read_text()}
    return there, imported_by("weights/source.py", "purexport.weights") & there


def routes() -> tuple[set[str], set[str]]:
    there = {path.parent.name for path in (PACKAGE / "frontends").glob("*/route.py")} - {"core"}
    listed = imported_by("frontends/choose.py", "purexport.frontends")
    return there, {name.removesuffix(".route") for name in listed} & there


LISTS: dict[str, Callable[[], tuple[set[str], set[str]]]] = {
    check.__name__: check for check in (rule_files, forms, verbs, handlers, facts, passes, readers, routes)
}


def misplaced(there: Collection[str], listed: Collection[str]) -> list[str]:
    return [f"{name} is in no list" for name in there if name not in listed] + [
        f"no file {name}" for name in listed if name not in there
    ]


@pytest.mark.parametrize("kind", LISTS)
def test_each_file_is_in_its_list(kind: str) -> None:
    there, listed = LISTS[kind]()
    assert there, kind
    assert not misplaced(there, listed)


@pytest.mark.parametrize("kind", LISTS)
def test_a_new_file_without_a_line_is_found(kind: str) -> None:
    there, listed = LISTS[kind]()
    assert misplaced({*there, "new_file"}, listed) == ["new_file is in no list"]
    assert misplaced(there, {*listed, "old_file"}) == ["no file old_file"]


def rooms() -> dict[str, set[str]]:
    """Folder -> the files that the page lists for it; none where it names the list in the code."""
    return {folder: set(re.findall(r"`(\w+)`", files)) for folder, _, files in ROW.findall(PAGE)}


def test_each_folder_has_a_row() -> None:
    folders = {path.parent.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")}
    assert misplaced(folders, rooms()) == []


@pytest.mark.parametrize("folder", rooms())
def test_the_page_lists_the_files_of_a_folder(folder: str) -> None:
    listed = rooms()[folder]
    row = next(row for row in ROW.findall(PAGE) if row[0] == folder)
    if "listed in" in row[2]:
        place = re.search(r"`([A-Z_]+)` of `([\w/]+\.py)`", row[2])
        assert place is None or constant(place.group(2), place.group(1)), row
        return
    assert misplaced(files_in(ROOT / folder), listed) == []


def test_no_room_grows_past_its_number_of_lines() -> None:
    grown = beyond(lines_of_rooms(ROOT), allowed_lines(PAGE))
    assert not grown, f"{grown}; make it smaller, or say `python -m tools.rooms --write` in the same commit"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ({"a": 1_000, "b": 2}, []),
        ({"a": 1_001, "b": 2}, ["a: 1,001, allowed 1,000"]),
        ({"a": 999, "b": 2, "c": 1}, ["c: 1, allowed 0"]),
        ({"a": 1_000}, ["b is no room"]),
    ],
)
def test_growth_is_seen(lines: dict[str, int], found: list[str]) -> None:
    page = with_lines(f"# Page\n{TITLE}\n\nText.\n\n| room | lines |\n\n## After\n", {"a": 1_000, "b": 2})
    assert (
        page == f"# Page\n{TITLE}\n\nText.\n\n| room | lines |\n|---|---|\n| `a` | 1,000 |\n| `b` | 2 |\n\n## After\n"
    )
    assert beyond(lines, allowed_lines(page)) == found
