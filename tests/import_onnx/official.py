"""The official tests of onnx, run from outside against `import onnx` without onnx, beside the same against onnx.

    pip download --no-deps --no-binary onnx onnx==1.23.2 && tar xzf onnx-1.23.2.tar.gz
    python -m tests.import_onnx.official onnx-1.23.2/tests/python

Both sides run the same files with the same command of pytest. What is counted as failed includes tests that say that
something cannot be done which can be done here, and tests of functions inside of onnx's own operators. Tests that
collect the package's cases (`backend_test`) and those of its documentation are left out: `benchmarks.evaluator` runs
the cases. Needs onnx, ml_dtypes, parameterized and pytest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("backend_test.py", "backend_reference_test.py", "onnx_sphinx_test.py", "version_utils.py")
NAMED = (
    "basic", "checker", "compose", "external_data", "helper", "inliner", "model_container", "numpy_helper", "parser",
    "printer", "reference_evaluator", "serialization", "shape_inference", "utils", "version_converter",
)  # fmt: skip
"""The modules of onnx whose own test files count as such in the last lines."""


def run(folder: Path, files: list[str], ours: bool) -> dict[str, Counter[str]]:
    """File -> how many tests passed, failed and were skipped."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place, "report.xml")
        start = ["-m", "proto_schema.compat", "-m", "pytest"] if ours else ["-m", "pytest"]
        options = ["-q", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-W", "ignore", f"--junitxml={report}"]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        subprocess.run(
            [sys.executable, *start, *files, *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        found: dict[str, Counter[str]] = {}
        for case in ElementTree.parse(report).iter("testcase"):
            name = next((part for part in case.get("classname", "").split(".") if part.endswith("_test")), "")
            kinds = {child.tag for child in case}
            verdict = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            found.setdefault(name, Counter())[verdict] += 1
    return found


def main() -> int:
    """Print a row a file, and the sums."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path, help="tests/python of the source of onnx")
    folder = parser.parse_args().folder.resolve()
    files = sorted(path.name for path in folder.glob("*_test.py") if path.name not in LEFT_OUT)
    files += sorted(f"version_converter/{path.name}" for path in folder.glob("version_converter/*_test.py"))
    theirs, mine = run(folder, files, False), run(folder, files, True)
    sys.stdout.write("| file | onnx passes | proto_schema passes | fails | skips |\n|---|---|---|---|---|\n")
    for name in sorted(theirs):
        found = mine.get(name, Counter())
        row = (name, theirs[name]["passed"], found["passed"], found["failed"], found["skipped"])
        sys.stdout.write("| " + " | ".join(map(str, row)) + " |\n")
    for title, names in (("all", set(theirs)), ("of the modules named", {f"{name}_test" for name in NAMED})):
        sums = [sum(side[name]["passed"] for name in names if name in side) for side in (theirs, mine)]
        sys.stdout.write(f"{title}: onnx {sums[0]:,}, proto_schema {sums[1]:,}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
