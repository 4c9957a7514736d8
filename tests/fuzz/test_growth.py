"""No reader takes steps out of proportion to the file, whatever is repeated in it.

Strategy: `fuzz/patterns.py` repeats, `fuzz/readers.py` reads, `fuzz/counted.py` judges counts of steps, which
`fuzz/steps.py` gets from copies of our modules that count, work hidden in C included. Counts do not depend on the
machine, so small files suffice. By default each pair runs that was quadratic once, with `-m full` a part of all; the
rest is `pytest -m sweep tests/fuzz/test_growth.py`, or `python -m fuzz.counted`. The sweep also measures time on larger
files, with wide margins, for what counts do not see: regular expressions, comparisons in dictionaries, the system.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fuzz.counted import EXCUSED, NAMED, steep
from fuzz.patterns import PATTERNS
from fuzz.readers import DOCUMENTED, READERS, Files
from fuzz.steps import Steps, compiled

ROOT = Path(__file__).parents[2]
PARTS = 60
SMALL, TIMES = 1500, 4
STEEPEST, WORTH = 8.0, 0.5  # times as long for four times the file; seconds below which nothing is a finding


def counted(*arguments: str) -> str:
    command = [sys.executable, "-m", "fuzz.counted", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert not done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize(("size", "part"), [("32", "named"), ("48", f"0/{PARTS}")])
def test_steps_of_readers(size: str, part: str) -> None:
    shown = counted("--size", size, "--part", part)
    assert shown.endswith(" held, 0 are too steep\n"), shown


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(1, PARTS))
def test_steps_of_all_readers(part: int) -> None:
    shown = counted("--size", "64", "--part", f"{part}/{PARTS}")
    assert shown.endswith(" held, 0 are too steep\n"), shown


@pytest.mark.sweep
@pytest.mark.parametrize("pattern", PATTERNS)
def test_seconds(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "onnxruntime", None
    )  # `compare` takes our evaluator: the runtime has its own growth
    files = Files(tmp_path)

    def seconds(reader: str, size: int) -> float:
        files.write(PATTERNS[pattern](size))
        start = time.thread_time()
        with suppress(*DOCUMENTED):
            READERS[reader](files)
        return time.thread_time() - start

    def ratio(reader: str, again: int) -> float:
        brief, long = (min(seconds(reader, size) for _ in range(again)) for size in (SMALL, TIMES * SMALL))
        return long / brief if long > WORTH else 0.0

    readers = [reader for reader in READERS if (pattern, reader) not in EXCUSED]
    slow = [reader for reader in readers if ratio(reader, 1) > STEEPEST and ratio(reader, 3) > STEEPEST]
    assert slow == []


# The tables ---------------------------------------------------------------------------------------------------------


def test_tables() -> None:
    """What is named exists; what is read is read: patterns are models, broken ones, and grow in proportion."""
    assert {pattern for pattern, _ in [*NAMED, *EXCUSED]} <= PATTERNS.keys()
    assert {reader for _, reader in [*NAMED, *EXCUSED]} <= READERS.keys()
    for name, make in PATTERNS.items():
        sizes = [len(make(size)) for size in (256, 512, 1024)]
        assert sizes[2] - sizes[1] <= 2.5 * (sizes[1] - sizes[0]), name
        assert sizes[2] > 512, name


def test_every_verb_is_read() -> None:
    from purexport.cli.main import VERBS

    makers = {"demo", "export", "llm", "hf", "pipeline", "completion"}  # which read no model
    assert {name.split()[0] for name in READERS} >= set(VERBS) - makers


def test_the_page_says_how_many() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert f"gives {len(PATTERNS)} kinds of growing files, whole and broken ones, to {len(READERS)} readers" in page


# The counter --------------------------------------------------------------------------------------------------------

# what it does for each of n things, and whether that is quadratic
FORMS: list[tuple[str, str, bool]] = [
    ("a loop", "for x in v: pass", False),
    ("a loop in a loop", "for x in v:\n  for y in v: pass", True),
    ("in a list", "for x in v: -1 in v", True),
    ("in a set", "s = set(v)\nfor x in v: -1 in s", False),
    ("in values", "d = dict.fromkeys(v, 1)\nfor x in v: -1 in d.values()", True),
    ("list.index", "for x in v: v.index(x)", True),
    ("list.count", "for x in v: v.count(-1)", True),
    ("list.pop(0)", "while v: v.pop(0)", True),
    ("list.remove", "while v: v.remove(v[-1])", True),
    ("dict.pop", "d = dict.fromkeys(v)\nfor x in v: d.pop(x)", False),
    ("set.remove", "s = set(v)\nfor x in v: s.remove(x)", False),
    ("set.isdisjoint", "s = set(v)\nfor x in v: s.isdisjoint([-1])", False),
    ("list.pop()", "while v: v.pop()", False),
    ("list.insert", "o = []\nfor x in v: o.insert(0, x)", True),
    ("list.append", "o = []\nfor x in v: o.append(x)", False),
    ("del of the first", "while v: del v[0]", True),
    ("list +", "o = []\nfor x in v: o = o + [x]", True),
    ("list +=", "o = []\nfor x in v: o += [x]", False),
    ("bytes +=", "o = b''\nfor x in v: o += b'0123456789abcdef'", True),
    ("bytes of what is left", "o = bytes(16 * len(v))\nfor x in v: o = o[16:]", True),
    ("views of what is left", "o = memoryview(bytes(16 * len(v)))\nfor x in v: o = o[16:]", False),
    ("bytes(view)", "o = memoryview(bytes(16 * len(v)))\nfor x in v: bytes(o)", True),
    ("find", "o = 'a' * 16 * len(v)\nfor x in v: o.find('b')", True),
    ("starred", "o = ()\nfor x in v: o = (*o, x)", True),
    ("sorted", "for x in v: sorted(v)", True),
    ("sum", "for x in v: sum(v)", True),
    ("a product", "p = 1\nfor x in v: p *= 2**63", True),
    ("join", "o = ''\nfor x in v: o = ''.join([o, '0123456789abcdef'])", True),
    ("an f-string", "o = ''\nfor x in v: o = f'{o}0123456789abcdef'", True),
    ("== of lists", "w = list(v)\nfor x in v: v == w", True),
    ("map", "for x in v: any(map(abs, [0] * len(v)))", True),
    ("max", "for x in v: max(v)", True),
    ("a search", "import re\no = 'a' * 16 * len(v)\nfor x in v: re.compile('b').search(o)", True),
    ("all matches", "import re\nfor m in re.compile('a').finditer('a' * len(v)): m.group()", False),
    ("set minus", "s = set(v)\nfor x in v: s - {x}", True),
]


@pytest.mark.parametrize(("form", "source", "quadratic"), FORMS, ids=[row[0] for row in FORMS])
def test_what_is_counted(form: str, source: str, quadratic: bool) -> None:
    counts = []
    for size in (128, 256, 512):
        space: dict[str, Any] = {"__steps__": Steps(), "v": list(range(size))}
        exec(compiled(source, form, "exec"), space)
        counts.append(space["__steps__"].count)
    assert steep(counts) is quadratic, counts


@pytest.mark.full
def test_steps_do_not_depend_on_the_run() -> None:
    arguments = ("--size", "8", "--pattern", "chain", "--reader", "stat --duplicates", "--show")
    assert counted(*arguments) == counted(*arguments)
