"""Completion: the scripts are run by the shells themselves, where they are installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from purexport.cli.main import VERBS, main

# the words before the cursor, the last one being completed; what must be offered; what must not
ROWS: list[tuple[Sequence[str], set[str], set[str]]] = [
    (["exp"], {"export"}, {"extract", "net.onnx"}),
    ([""], {*VERBS}, {"net.onnx"}),
    (["show", "--no"], {"--no-nodes"}, {"--json"}),
    (["export", "--capture", ""], {"auto", "trace", "export"}, {"net.onnx"}),
    (["html", "--histograms", "a"], {"auto", "all"}, {"none"}),
    (["show", "n"], {"net.onnx"}, {"nodes"}),
    (["show", "--json", "a f"], {"a file.onnx"}, {"net.onnx"}),
    (["diff", "net.onnx", ""], {"net.onnx", "a file.onnx", "folder"}, {"diff"}),
    (["salvage", "net.onnx", "-o", "net"], {"net.onnx"}, {"--output"}),
    (["export", "--external-data", "--cap"], {"--capture"}, {"net.onnx"}),
    (["export", "n"], {"net.onnx"}, {"--name"}),
    (["export", "--opset", ""], set(), {"net.onnx", "--opset"}),
    (["completion", ""], {"bash", "zsh", "fish"}, {"net.onnx"}),
]
IDS = [" ".join(words) or "nothing" for words, _, _ in ROWS]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("net.onnx", "a file.onnx"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    return tmp_path


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    return text


def answer(shell: str, code: str) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *options, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(("words", "there", "absent"), ROWS, ids=IDS)
def test_bash(words: Sequence[str], there: set[str], absent: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = " ".join(f"'{word}'" for word in ["purexport", *words])
    ask = f'\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _purexport; printf "%s\\n" "${{COMPREPLY[@]}}"'
    offered = {*answer("bash", script("bash", capsys) + ask)}
    assert there <= offered and not absent & offered


@pytest.mark.parametrize(("words", "there", "absent"), ROWS, ids=IDS)
def test_fish(words: Sequence[str], there: set[str], absent: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = " ".join(["purexport", *(word.replace(" ", "\\ ") for word in words)])
    lines = answer("fish", script("fish", capsys) + f"\ncomplete -C {json.dumps(line)}")
    offered = {line.partition("\t")[0].rstrip("/") for line in lines}
    assert there <= offered and not absent & offered


# what `_arguments` is told for a verb, by which zsh completes
ZSH = [
    ("show", ["1:FILE:_files", "--no-nodes[leave out the table of nodes]"]),
    ("export", ["--capture[how torch runs the model]:capture:(auto trace export)", "*--input["]),
    ("salvage", ["(-o --output)--output[the file", "(-o --output)-o[the file"]),
    ("diff", ["1:A:_files", "2:B:_files"]),
    ("completion", ["1::shell:(bash zsh fish)"]),
]


@pytest.mark.parametrize(("verb", "specifications"), ZSH, ids=[row[0] for row in ZSH])
def test_zsh(verb: str, specifications: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """zsh's own functions are replaced by ones that print what they are told."""
    stubs = 'compdef() {}\n_describe() { print -l -- "${(@P)2}" }\n_arguments() { print -l -- "$@" }\n'
    code = stubs + script("zsh", capsys)
    assert {line.partition(":")[0] for line in answer("zsh", f"{code}words=(purexport ''); CURRENT=2; _purexport")} == {
        *VERBS
    }
    told = answer("zsh", f"{code}words=(purexport {verb} ''); CURRENT=3; _purexport")
    for wanted in specifications:
        assert any(line.startswith(wanted) for line in told), told


def test_rows_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(VERBS)
    [show] = [row for row in rows if row["name"] == "show"]
    assert show["positionals"] == [
        {"flags": [], "help": "the .onnx file", "value": "FILE", "choices": [], "many": False, "optional": False}
    ]


def test_no_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion"]) == 2
    assert capsys.readouterr().err == "purexport completion: name a shell: bash, zsh, fish\n"
