"""The tests of proto_schema by every Python that is here, with the wheel installed in an environment of its own.

    python tools/matrix.py [PYTHON ...] [--keep FOLDER] [--without test_killed test_faults ...]

Without arguments: every python3.10 to python3.15, free-threaded ones and pypy3 on the path, and those of pyenv. The
wheel is built once, from this checkout. In each environment: the wheel, numpy, pytest; onnx where there is a wheel.
A test file is run where all that it imports is there; the table says how many are left out, and for want of what.
The sources are not on the path: what is tested is what is in the wheel. Exits with 1 where a test fails.
"""

from __future__ import annotations

import argparse
import ast
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAMES = ("python3.10", "python3.11", "python3.12", "python3.13", "python3.14", "python3.15")
FREE = ("python3.13t", "python3.14t", "python3.15t")
SUITE = "tests/proto_schema"
OF_THE_CHECKOUT = ("test_the_data_file_is_what_the_tool_makes", "test_the_data_loads_from_a_zip")  # not of the wheel
_NOR = " and not ".join(OF_THE_CHECKOUT)
EXTRAS = ("onnx", "ml_dtypes")
SHOW = "import sys, platform; print(platform.python_implementation(), platform.python_version(), sep=' ', end='')"
LOCKED = "import sys; print('' if getattr(sys, '_is_gil_enabled', lambda: True)() else ' free-threaded', end='')"
VERSIONS = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        pass
"""
HEAD = """\
| Python | numpy | onnx | test files | passed | skipped | failed | left out | s |
|---|---|---|---|---|---|---|---|---|"""


@dataclass
class Row:
    """What became of one Python."""

    python: str
    numpy: str = "-"
    onnx: str = "-"
    files: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    left_out: str = ""
    seconds: float = 0.0
    output: str = ""

    @property
    def failed(self) -> int:
        return sum(self.counts.get(word, 0) for word in ("failed", "error", "errors"))

    def __str__(self) -> str:
        passed, skipped = self.counts.get("passed", 0), self.counts.get("skipped", 0)
        cells = [self.python, self.numpy, self.onnx, self.files, passed, skipped, self.failed, self.left_out or "-"]
        return f"| {' | '.join(map(str, cells))} | {self.seconds:.0f} |"


def pythons() -> list[str]:
    """Those that are here, each of them once."""
    found = [path for name in (*NAMES, *FREE, "pypy3") if (path := shutil.which(name))]
    found += sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python")))
    seen: dict[str, str] = {}
    for path in found:
        done = subprocess.run([path, "-c", SHOW + "\n" + LOCKED], capture_output=True, text=True, check=False)
        version = re.search(r" 3\.(\d+)", done.stdout)
        if done.returncode == 0 and version and int(version[1]) >= 10:
            seen.setdefault(done.stdout, path)
    return list(seen.values())


def imports(path: Path, seen: set[Path]) -> Iterator[str]:
    """The outermost packages that a test file imports, itself or by files of the tests and of fuzz."""
    if path in seen or not path.exists():
        return
    seen.add(path)
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.partition(".")[0] in ("tests", "fuzz"):
                yield from imports(ROOT / f"{name.replace('.', '/')}.py", seen)
            else:
                yield name.partition(".")[0]


def run(command: Sequence[object], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def tested(python: str, wheel: Path, folder: Path, without: Sequence[str]) -> Row:
    """The row of one Python, whose environment is made in the folder."""
    row = Row(run([python, "-c", SHOW + "\n" + LOCKED]).stdout)
    start, home = time.monotonic(), folder / re.sub(r"\W+", "-", row.python)
    made = run([python, "-m", "venv", home])
    inside = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    done = made if made.returncode else run([*pip, wheel, "pytest"])
    if done.returncode:
        row.left_out, row.output = "no environment", done.stdout + done.stderr
        return row
    pinned = ["-c", str(ROOT / "constraints.txt")]
    if run([*pip, *pinned, *EXTRAS]).returncode:
        run([*pip, *EXTRAS])
    work = home / "work"
    for name in ("tests", "fuzz"):
        shutil.copytree(ROOT / name, work / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    installed = dict(line.split() for line in run([inside, "-c", VERSIONS, "numpy", "onnx"]).stdout.splitlines())
    row.numpy, row.onnx = installed.get("numpy", "-"), installed.get("onnx", "-")
    there = "import importlib.util as u, sys\nprint(*[n for n in sys.argv[1:] if u.find_spec(n) is None])"
    chosen, missing = [], set()
    files = [path for path in sorted((ROOT / SUITE).glob("test_*.py")) if path.stem not in without]
    for path in files:
        absent = run([inside, "-c", there, *sorted(set(imports(path, set())))], cwd=home).stdout.split()
        missing.update(absent)
        chosen += [] if absent else [path.relative_to(ROOT)]
    row.files = len(chosen)
    row.left_out = f"{len(files) - len(chosen)} files ({', '.join(sorted(missing))})" if missing else ""
    options = ["-q", "-c", os.devnull, "--rootdir", work, "-p", "no:cacheprovider", "--import-mode=importlib"]
    options += ["-m", "not sweep", "-W", "ignore::pytest.PytestUnknownMarkWarning", "-k", f"not {_NOR}"]
    done = run([inside, "-m", "pytest", *options, *chosen], cwd=work, env=_environment(work))
    row.output = done.stdout + done.stderr
    row.counts = {
        word: int(count) for count, word in re.findall(r"(\d+) (\w+)", row.output.strip().rpartition("\n")[2])
    }
    row.seconds = time.monotonic() - start
    return row


def _environment(work: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(work), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": ""}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--keep", metavar="FOLDER", help="where the environments are made, and stay")
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="test files to leave out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.keep or temporary).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "proto_schema", "purexport"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(temporary) / name)
        built = run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", temporary, temporary])
        wheels = list(Path(temporary).glob("*.whl"))
        if not wheels:
            sys.exit(built.stdout + built.stderr)
        failed = 0
        print(HEAD, flush=True)
        for python in args.pythons or pythons():
            row = tested(python, wheels[0], folder, args.without)
            print(row, flush=True)
            if row.failed or not row.counts.get("passed"):
                failed += 1
                print(row.output[-6000:], file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
