"""The rows of tests/lowering by dispatch, at the opset that is the default or nearest to it.

What the route does not record yet is listed with its reason.  A row that is listed and passes is an error.
"""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from purexport.options import DEFAULT_OPSET
from tests.harness import ORT_NEWEST_OPSET, Case, Row, judge
from tests.row_plans import capture_row

ROOT = Path(__file__).parents[3]
FILES = sorted(path.relative_to(ROOT) for path in (ROOT / "tests/lowering").rglob("test_*.py"))
FIRST = ("tests/lowering/elementwise/test_numbers.py", "tests/lowering/tensor/test_layout.py")

STATIC = r"Got invalid dimensions for input"
# a row, and what is said of it
OPEN = {
    "unbound": STATIC,
    "split, the last smaller": "Cannot split using values",  # as many pieces as in the example
}


def rows_of(path: Path) -> list[Row]:
    """The rows in the lists of a file."""
    module = importlib.import_module(".".join(path.with_suffix("").parts))
    lists = (value for value in vars(module).values() if isinstance(value, (list, tuple)))
    return [row for rows in lists for row in rows if isinstance(row, Row)]


def run(row: Row) -> None:
    least = row.min_opset or 0
    able = [opset for opset in row.opsets if least <= opset <= ORT_NEWEST_OPSET] or [least]
    opset = min(able, key=lambda opset: abs(opset - DEFAULT_OPSET))
    data = bytes(capture_row(row, "trace").to_onnx(opset_version=opset).model_proto.SerializeToString())
    judge(data, [Case.of(row.make_model(), *given) for given in row.cases()], opset, row.bounds)


def in_tier(path: Path) -> Any:
    return pytest.param(path, id=path.stem, marks=pytest.mark.full if str(path) in FIRST else pytest.mark.sweep)


@pytest.mark.parametrize("path", [in_tier(path) for path in FILES])
def test_rows(path: Path) -> None:
    wrong: dict[str, str] = {}
    for row in rows_of(path):
        said = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run(row)
        except Exception as error:  # all that a row can raise, to list every row
            said = f"{type(error).__name__}: {error}"
        known = OPEN.get(row.name)
        if known is None and said:
            wrong[row.name] = said
        elif row.name in OPEN and not said:
            wrong[row.name] = "passes, and is listed as open"
        elif known is not None and said and not re.search(known, said):
            wrong[row.name] = said
    assert not wrong, "\n".join(f"{name}: {said[:300]}" for name, said in wrong.items())
