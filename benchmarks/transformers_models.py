"""How many models of transformers that generate no text `pretrained_model` writes, and whether they are right.

    python benchmarks/transformers_models.py [--task fill-mask ...] [--only NAME ...] [--part 1/2]

The classes are those of tests/models/pretrained.py, with tiny random configs.  Each is saved with `save_pretrained`.
The folder is written and verified: onnxruntime and torch at two sizes of each axis that may vary.  One line is printed
for each class, then a summary.  Each class runs in a process forked from this one.  Needs Linux, transformers and
onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import warnings
from collections import Counter
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from purexport.language.pretrained import pretrained_model  # noqa: E402
from tests.models import decoders, pretrained  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

SECONDS = 240  # for one class


def line_of(name: str, task: str) -> str:
    """What became of a class, in a line that begins with a word for it."""
    try:
        model = pretrained.made(name)
    except decoders.LeftOutError as error:
        return f"left    {name}: {error}"
    with tempfile.TemporaryDirectory() as place:
        try:
            model.save_pretrained(Path(place, "folder"))
            report = pretrained_model(Path(place, "folder"), Path(place, "out"), verify=True)
        except Exception as error:  # whatever happens is the result
            first = str(error).partition("\n")[0][:400]
            word = "WRONG" if "differ" in first else "refused" if getattr(error, "code", "") else "fails"
            return f"{word:7} {name}: {type(error).__name__}: {first}"
    if report.task != task:
        return f"fails   {name}: its task is {report.task}, not {task}"
    ports = [f"{port} [{', '.join(map(str, shape))}]" for port, shape in report.inputs.items()]
    results = [f"{port} [{', '.join(map(str, shape))}]" for port, shape in report.outputs.items()]
    said = f"{' '.join(ports)} -> {' '.join(results)}; {len(report.verified)} sizes, {report.difference:.1e}"
    return f"right   {name}: {said}" + "".join(f"; {remark}" for remark in report.warnings)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--task", nargs="+", choices=list(pretrained.CLASSES), default=list(pretrained.CLASSES))
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--part", default="1/1", help="of the classes, as in 1/2")
    chosen = parser.parse_args()
    torchvision()
    decoders.library()
    warnings.simplefilter("ignore")
    place, parts = map(int, chosen.part.split("/"))
    # task by task in turns, so that a run that is ended early has seen all of them
    turns = zip_longest(*([(task, name) for name in pretrained.CLASSES[task]] for task in chosen.task))
    rows = [row for turn in turns for row in turn if row is not None]
    rows = [row for row in rows if not chosen.only or row[1] in chosen.only][place - 1 :: parts]
    words: Counter[str] = Counter()
    for task, name in rows:
        said = _in_a_fork(name, task)
        words[said.split()[0]] += 1
        print(f"{task}: {said}", flush=True)
    print(dict(words), flush=True)


def _in_a_fork(name: str, task: str) -> str:
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        signal.alarm(SECONDS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(writing, line_of(name, task).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return f"slow    {name}: not done after {SECONDS} s"
    return said or f"fails   {name}: the process ended"


if __name__ == "__main__":
    main()
