"""docs/opsets.md says what needs a later opset: its examples are exported, and no other operator row is refused."""

from __future__ import annotations

import pytest

import purexport
from tests.harness import OPSETS
from tests.lowering.test_rules_have_rows import operator_modules, rows_of
from tests.row_plans import export_row
from tools.opsets import EXAMPLES, PAGE, page

# lists, and operators of ONNX that a row names itself: the page has a line for each
LISTED = ("sequence::", "purexport::onnx_symbolic")


def test_page_is_what_the_tool_writes() -> None:
    assert PAGE.read_text() == page(), "python -m tools.opsets --write"


@pytest.mark.sweep
@pytest.mark.parametrize("opset", range(OPSETS[0], max(example.lowest for example in EXAMPLES)))
def test_no_row_needs_a_later_opset_for_another_reason(opset: int) -> None:
    text = PAGE.read_text()
    unknown = []
    for row in (row for module in operator_modules() for row in rows_of(module)):
        try:
            export_row(row, row.routes[0], opset)
        except purexport.UnsupportedOperatorError as error:
            gaps = [gap for gap in error.gaps if gap.code == "opset-too-low" and not gap.target.startswith(LISTED)]
            unknown += [f"{row.name}: {gap}" for gap in gaps if _subject(gap.reason) not in text]
    assert not unknown, "\n".join(unknown)


def _subject(reason: str) -> str:
    """`ONNX SplitToSequence` of "needs opset 11 or later: ONNX SplitToSequence does not exist at opset 9"."""
    says = reason.partition(": ")[2]
    return " ".join(says.split()[:2])
