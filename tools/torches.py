"""A fixed part of the tests with other releases of torch, each in an environment of its own.

    python tools/torches.py                        # all rows of ROWS: about 7 GB are downloaded for each
    python tools/torches.py 2.6.0 2.15.0           # some of them
    python tools/torches.py 2.6.0 --every 25       # a smaller part
    python tools/torches.py 2.6.0 --python .venv/bin/python   # an environment that is there already
    python tools/torches.py 2.6.0 --workers 0 --log logs      # by one process; failures are in the log as they come

Which tests: all folders of tests that depend on torch (`FOLDERS`), and of these every fifth test, by a checksum of its
name. So the part is the same at each run and with each release, and a new test does not change which others are in it.
What does not depend on torch is tested by tools/matrix.py.

pip takes the newest onnx, onnxruntime and torchvision that go with a release of torch. An environment is deleted
before the next one is made. Exits with 1 where a test fails.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("aten", "frontends", "cli", "comparison", "compat", "distributed", "facts", "functionalize", "graph")
FOLDERS += ("language", "lowering", "models", "shapes", "torch_patches", "weights")
FILES = ("test_dtypes", "test_export", "test_export_limits", "test_quantized_export", "test_verification")
PACKAGES = ("torchvision", "onnx", "onnxruntime", "rich", "pytest", "pytest-xdist", "setuptools")
EVERY = 5
WORKERS = 2

# torch, Python, numpy: the oldest Python with the oldest numpy, the newest with the newest, and what lies between
ROWS = (
    ("2.6.0", "3.10", "1.24.4"),
    ("2.7.1", "3.11", "1.26.4"),
    ("2.8.0", "3.12", "2.1.3"),
    ("2.9.1", "3.13", "2.2.6"),
    ("2.10.0", "3.10", ""),
    ("2.11.0", "3.13", ""),
    ("2.12.1", "3.12", ""),
    ("2.13.0", "3.11", ""),
    ("2.14.1", "3.11", ""),
    ("2.15.0", "3.14", ""),
)
HEAD = """\
| torch | Python | numpy | onnx | onnxruntime | every | passed | skipped | expected to fail | failed | s |
|---|---|---|---|---|---|---|---|---|---|---|"""
SHOW = """
import importlib.metadata, platform
names = "torch", "numpy", "onnx", "onnxruntime"
print(names[0], importlib.metadata.version(names[0]))
print("Python", platform.python_version())
for name in names[1:]:
    try:
        print(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        pass
"""


def pytest_addoption(parser: Any) -> None:
    """This file is the plugin of pytest, too, which leaves tests out."""
    parser.addoption("--every", type=int, default=EVERY, help="one test of so many")


@dataclass(frozen=True)
class Expected:
    """What fails for a reason that is not ours: at which versions of a package, with which text, and why."""

    package: str
    below: str
    text: str
    reason: str
    since: str = "0"

    def applies(self, said: str) -> bool:
        installed = numbers(importlib.metadata.version(self.package))
        return numbers(self.since) <= installed < numbers(self.below) and bool(re.search(self.text, said))


EXPECTED = (
    Expected(
        "torch",
        "2.8",
        r"(UnsupportedOperator|DynamicOutputShape|DataDependentOutput)Exception: aten\.",
        "torch's fake tensors lack the operator, so neither torch.export nor a script can be followed there",
    ),
    Expected("torch", "2.8", "NYI: querying is_contiguous inside of vmap", "torch's vmap does not have it yet"),
    Expected("torch", "2.8", "quantized nyi in meta tensors", "torch's fake tensors are never quantized"),
    Expected(
        "torch",
        "2.12",
        r"The tensor attributes? self\.(_flat_weights|weight\b)",
        "torch.export refuses the layers of RNN and the weight_norm of torch itself",
    ),
    Expected(
        "torch",
        "2.13",
        r"Could not guard on data-dependent expression|GuardOnDataDependentSymNode",
        "torch asks for the value of a size that data decides, where later releases do not",
    ),
    Expected(
        "torch",
        "2.13",
        r"no schema for aten::|'_OpNamespace' '\w+' object has no attribute|Found no matching schema"
        r"|module 'torch[\w.]*' has no attribute|'module' object is not callable at the model",
        "the test uses an operator that came with a later torch",
    ),
    Expected(
        "torch",
        "2.10",
        r"while_loop doesn't work unless it is captured completely",
        "torch.export does not take this loop yet",
    ),
    Expected(
        "torch",
        "2.9",
        r"Cond doesn't work unless it is captured completely|SpecViolationError: Invalid get_attr type"
        r"|carried_inputs to be a tuple of possibly nested|Unsupported value kind: Tensor"
        r"|FX to torch.jit.trace a dynamo-optimized function|goes backwards or along another axis than 0",
        "torch.cond, while_loop, scan, map and flex_attention are younger than this torch, or take less there",
    ),
    Expected(
        "torch",
        "2.12",
        r"(test_program\[map|llama-step-half-repeat-export)[\s\S]*Got invalid dimensions for input",
        "torch.export holds an axis at the example's size; a warning says so",
    ),
    Expected(
        "torch",
        "2.9",
        r"many_rows[\s\S]*assert 241 == 3",
        "a script that goes over the rows of a tensor is written out there; the file is right, and long",
    ),
    Expected("torch", "2.9", r"of_state_dict\[program-", "a program names a tied weight by its last name"),
    Expected(
        "torch",
        "2.9",
        r"loaded_inside_keeps_nothing_of_ours",
        "torch.onnx.utils makes its function itself, so that a second load makes another one",
    ),
    Expected(
        "torch",
        "2.9",
        r"Could not run 'aten::_grouped_mm'|assert isinstance\(a, FakeTensor\)",
        "torch has no kernel of it on the CPU, or its export stops in an assertion of its own (vmap in vmap)",
    ),
    Expected("torch", "2.9", r"plain_flexible_attention\]", "what is replaced for flex_attention has no such name yet"),
    Expected(
        "torch",
        "2.7",
        r"(small_sizes_counted|examples_asked_first)\]",
        "torch has no sizes of 0 and 1 in torch.export yet, and nothing to replace for them",
    ),
    Expected("torch", "2.9", r"Unsupported ONNX opset version: 3", "torch.onnx refuses it with another error"),
    Expected(
        "torch", "2.9", r"SymIntArrayRef expected to contain only concrete", "ones(out=) takes no symbolic size yet"
    ),
    Expected(
        "torch",
        "2.7",
        r"buf: input_names\[param_len \+ i\]",
        "torch.export fails for a module that has no parameters and a buffer that is None",
    ),
    Expected(
        "torch",
        "2.12",
        r"Expected reduction dim -?\d to have non-zero size",
        "torch refuses the 2-norm of a matrix without elements",
    ),
    Expected(
        "torch",
        "2.12",
        r"DataDependentOutputException: aten\.equal|Cannot call numel\(\) on tensor with symbolic"
        r"|aten::nanquantile\S* .*torch has no decomposition of it",
        "torch's own function of quantiles asks for the number, so neither torch.export nor a decomposition follows it",
    ),
    Expected(
        "torch",
        "2.10",
        r"row\[_solve-ex-[\s\S]*output 1, inputs of shape",
        "this function of torch's inside gives the factors of the transposed matrix there",
    ),
    Expected(
        "torch",
        "2.13",
        r"expected int at position 0, but got: Tensor",
        "torch's binary_cross_entropy with weights cannot be traced, by torch.jit.trace neither",
    ),
    Expected(
        "torch",
        "2.12",
        r"lu-unpack-any-script[\s\S]*indices element out of data bounds",
        "fake results of lu_factor take the smaller side of the example for that of every matrix; the file stops there",
    ),
    Expected("torch", "2.10", r"qint32-export[\s\S]*quantized nyi in meta", "torch's fake tensors are never quantized"),
    Expected(
        "torch",
        "2.13",
        r"Failed: DID NOT RAISE any of \(RuntimeError, FrontendError, AttributeError, CannotBeWrittenError",
        "torch.jit.script takes what later releases refuse",
    ),
    Expected(
        "torch",
        "999",
        r"was deprecated since version 1\.9 and is now removed|torch/_linalg_utils\.py",
        "torch does not have the function any more",
        since="2.14",
    ),
    Expected(
        "torch",
        "999",
        r"row\[(avg-pool3d|upsample-bilinear)[\s\S]*(violations|difference): 1\b",
        "builds of torch round what lies in the middle between two codes of eight bits differently",
    ),
    Expected(
        "torch",
        "999",
        r"row\[attention-bfloat16[\s\S]*Mismatched elements: \d / 96",
        "attention of bfloat16 is computed in another order: one number of 50 is the neighbour of what it was",
        since="2.14",
    ),
    Expected(
        "onnxruntime",
        "1.26",
        r"NOT_IMPLEMENTED|Unsupported model IR version|is under development|two nodes with same node name"
        r"|No corresponding Numpy type|Only 4b and 8b quantization is supported|rotary_embedding\.cc",
        "this ONNX Runtime has no kernel of it",
    ),
    Expected(
        "onnxruntime",
        "1.26",
        r"Type \(tensor\(int8\)\) of output arg \(QuantizeLinear",
        "this ONNX Runtime takes int8 codes without zero points for uint8 where a Transpose follows; with zero points "
        "newer ones would round the other operand of the product",
    ),
    Expected(
        "onnxruntime",
        "1.26",
        r"row\[avg-ceil-divisor[\s\S]*Mismatched elements: 8 / 32",
        "this ONNX Runtime is wrong where padding at the end counts: our evaluator agrees with torch",
    ),
    Expected(
        "onnxruntime",
        "1.26",
        r"row\[layer-half-small-eps-\w+-26[\s\S]*nan location mismatch",
        "onnx's own evaluator runs opsets that this ONNX Runtime does not load, in float16 where others take float32",
    ),
    Expected(
        "torch",
        "2.9",
        r"row\[fold-any-size-export[\s\S]*makes a size static",
        "torch.export asks whether the number of windows divides, and later releases do not",
    ),
    Expected(
        "onnxruntime",
        "1.26",
        r"Unknown activation function 'Relu'|Except for dimension 0, all dimensions of index and self",
        "onnx's own evaluator runs opsets that this ONNX Runtime does not load, and takes less",
    ),
)
"""Failures that count as expected: torch's and ONNX Runtime's own, which a newer release mended."""


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    """A failure of `EXPECTED` is one that was expected, with the reason."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and call.excinfo is not None:
        said = f"{item.nodeid}\n{report.longrepr}\n{call.excinfo.value}\n"
        row = next((row for row in EXPECTED if row.applies(said)), None)
        if row is not None:
            report.outcome, report.wasxfail = "skipped", row.reason


class AtOnce:
    """Says why a test failed as soon as it has: the whole takes long."""

    def __init__(self, config: Any) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: Any) -> None:
        terminal = self._plugins.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\n{report.nodeid} ({report.when})\n{report.longreprtext}\n")


def pytest_configure(config: Any) -> None:
    config.pluginmanager.register(AtOnce(config))


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    every = config.getoption("--every")
    taken = [item for item in items if zlib.crc32(item.nodeid.encode()) % every == 0]
    config.hook.pytest_deselected(items=[item for item in items if zlib.crc32(item.nodeid.encode()) % every])
    items[:] = taken


@dataclass
class Row:
    """What became of one release."""

    torch: str
    every: int
    versions: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    output: str = ""

    @property
    def failed(self) -> int:
        return sum(self.counts.get(word, 0) for word in ("failed", "error", "errors"))

    def __str__(self) -> str:
        names = ("Python", "numpy", "onnx", "onnxruntime")
        cells = [self.versions.get("torch", self.torch), *(self.versions.get(name, "-") for name in names)]
        counts = [self.counts.get(word, 0) for word in ("passed", "skipped", "xfailed")]
        return f"| {' | '.join(map(str, [*cells, self.every, *counts, self.failed]))} | {self.seconds:.0f} |"


def run(command: Sequence[object], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)


def found_python(version: str) -> str | None:
    """An interpreter of that version: on the path, or of pyenv."""
    on_path = shutil.which(f"python{version}")
    places = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    for path in [*([on_path] if on_path else []), *map(str, places)]:
        said = run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
        if said.returncode == 0 and said.stdout.strip() == version:
            return path
    return None


def environment(python: str, torch: str, numpy: str, home: Path) -> tuple[str, str]:
    """The Python of a new environment with torch and the packages; what went wrong."""
    made = run([python, "-m", "venv", home])
    inside = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [inside, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]
    wanted = [f"torch=={torch}", f"numpy=={numpy}" if numpy else "numpy", *PACKAGES]
    done = made if made.returncode else run([*pip, *wanted])
    return str(inside), done.stdout + done.stderr if done.returncode else ""


def tested(python: str, row: Row, workers: int, log: Path) -> None:
    """Run the part of the tests; the row gets what came out, and the log what pytest says, as it says it."""
    row.versions = dict(line.split() for line in run([python, "-c", SHOW]).stdout.splitlines())
    places = [f"tests/{folder}" for folder in FOLDERS] + [f"tests/{file}.py" for file in FILES]
    options = ["-q", "-p", "tools.torches", "-p", "no:cacheprovider", "--every", row.every, "-rfEx", "--tb=short"]
    options += ["-n", workers, "--continue-on-collection-errors"]
    start = time.monotonic()
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = list(map(str, [python, "-m", "pytest", *options, *places]))
    with log.open("w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False, cwd=ROOT, env=variables)
    row.seconds = time.monotonic() - start
    row.output = log.read_text(errors="replace")
    last = next((line for line in reversed(row.output.splitlines()) if re.search(r"\d+ \w+.* in [\d.]+s", line)), "")
    row.counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])}
    if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        row.counts = {"errors": 1}  # pytest itself stopped, so the counts are of a part


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", metavar="TORCH", help="releases of torch (default: all of ROWS)")
    parser.add_argument("--every", type=int, default=EVERY, metavar="N", help=f"one test of N (default: {EVERY})")
    parser.add_argument("--python", metavar="FILE", help="an environment that has torch and the packages: make none")
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="N", help=f"processes (default: {WORKERS})")
    parser.add_argument("--log", metavar="FOLDER", help="write what pytest says of each release there")
    args = parser.parse_args()
    rows = [row for row in ROWS if not args.releases or row[0] in args.releases]
    unknown = set(args.releases) - {row[0] for row in ROWS}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no row of ROWS; the rows are {', '.join(row[0] for row in ROWS)}")
    if args.log:
        Path(args.log).mkdir(parents=True, exist_ok=True)
    print(HEAD, flush=True)
    failed = 0
    for torch, version, numpy in rows:
        row = Row(torch, args.every)
        with tempfile.TemporaryDirectory(prefix="torches-") as home:
            python, problem = args.python or found_python(version), ""
            if python is None:
                problem = f"no Python {version} is here"
            elif not args.python:
                python, problem = environment(python, torch, numpy, Path(home))
            if python is None or problem:
                row.output = problem
            else:
                tested(python, row, args.workers, Path(args.log or home) / f"torch-{torch}.txt")
        print(row, flush=True)
        if row.failed or not row.counts.get("passed"):
            failed += 1
            print(row.output[-4000:], file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
