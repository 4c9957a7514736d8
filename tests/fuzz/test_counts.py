"""The counts of the harnesses: runs add to one file, whoever comes at once, and the docs say what is in it."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from fuzz import counts, every
from fuzz.__main__ import HARNESSES, main
from fuzz.engine import Session
from tools import fuzz_counts

ROW = counts.Row(executions=100, seconds=10, findings=1, open=0, last_date="2026-01-01", last_seed="7")


def test_the_pages_say_what_the_file_says() -> None:
    found = counts.read()
    assert set(found["present"]) <= set(HARNESSES)
    for path, text in fuzz_counts.pages(found).items():
        assert path.read_text() == text, "python -m tools.fuzz_counts --write"


@pytest.mark.parametrize("page", list(fuzz_counts.pages(counts.read())), ids=lambda path: path.name)
def test_a_page_that_says_something_else_is_found(page: Path) -> None:
    found = counts.read()
    for name in ("decoder", "folders"):
        found["present"][name] = {**ROW, "executions": 123_456_789}
    assert fuzz_counts.pages(found)[page] != page.read_text()


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        fuzz_counts.with_part("text", "part")


def test_runs_that_end_at_once_are_all_counted(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    with ProcessPoolExecutor(4) as pool:
        tasks = [pool.submit(counts.record, f"h{at % 3}", 1, 0.5, at % 2, at, path) for at in range(60)]
        for task in tasks:
            task.result()
    found = counts.read(path)["present"]
    assert [found[name]["executions"] for name in sorted(found)] == [20, 20, 20]
    assert sum(row["findings"] for row in found.values()) == sum(row["open"] for row in found.values()) == 30
    assert list(tmp_path.iterdir()) == [path]


def test_shares_are_what_is_missing() -> None:
    half = counts.Row(**{**ROW, "executions": counts.GOAL // 2})
    done = counts.Counts(earlier={"b": counts.GOAL, "c": counts.GOAL // 4}, present={"a": half, "c": half})
    assert every.shares(["a", "b", "c"], done) == {"a": 2 / 3, "b": 0.0, "c": 1 / 3}
    assert every.shares(["b"], done) == {"b": 1.0}
    assert every.shares(["folders"], counts.Counts(earlier={}, present={})) == {"folders": 1.0}


def test_all_run_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "counts.json"
    done = {name: counts.GOALS.get(name, counts.GOAL) for name in HARNESSES if name not in ("codecs", "messages")}
    path.write_text(json.dumps({"earlier": done, "present": {}}))
    arguments = ["all", "--minutes", "0.01", "--seed", "3", "--record", "--counts", str(path), "--out", str(tmp_path)]

    def twice(session: Session, _: int) -> None:
        session.execute(b"")
        session.execute(b"a")

    monkeypatch.setattr(every, "plain", twice)
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["codecs", "messages"]
    found = counts.read(path)
    assert set(found["present"]) == {"codecs", "messages"}
    assert found["present"]["codecs"]["executions"] == 2 and found["present"]["codecs"]["last_seed"] == "3"

    def interrupted(session: Session, _: int) -> None:
        session.executions = 5
        session.findings = {"a way": b""}
        raise KeyboardInterrupt

    monkeypatch.setattr(every, "plain", interrupted)
    assert main(arguments) == 1
    assert capsys.readouterr().out.startswith("codecs: 5 executions")
    assert counts.read(path)["present"]["codecs"]["open"] == 1
    assert counts.total(counts.read(path), "codecs") == found["present"]["codecs"]["executions"] + 5
    assert counts.read(path)["present"]["messages"] == found["present"]["messages"]


def test_one_run_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    assert main(["messages", "--runs", "3", "--plain", "--record", "--counts", str(path)]) == 0
    assert counts.read(path)["present"]["messages"]["executions"] == 3
