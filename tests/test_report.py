"""What a report says in ten lines, and in full."""

from __future__ import annotations

import pytest
import torch

import purexport
from purexport.runtime.report import AS_EXAMPLE

CACHE = {f"past_{place}": {0: "batch", 2: "length"} for place in range(24)}
HELD = {f"past_{place}": {1: "8: the model does not run at other sizes", 3: f"64: {AS_EXAMPLE}"} for place in range(24)}
LONG = purexport.Report(
    "export",
    "the trace failed: first\nsecond",
    23,
    ["aten::add"],
    ["aten::inner"],
    [f"remark {place} {'x' * 300}" for place in range(9)],
    {**CACHE, "ids": {0: "batch"}, "a": {0: "a"}, "b": {1: "b"}},
    HELD,
    1234,
    5 * 10**9,
)
SHORT = """\
route: export (the trace failed: first ...)
file: opset 23, 1,234 nodes, 5 GB
dynamic: past_0, past_1, past_2 and 21 more: axis 0 is batch, axis 2 is length
dynamic: ids axis 0 is batch ... and 2 more; as_text(rules=True) has all
static: past_0, past_1, past_2 and 21 more: axis 1 is 8: the model does not run at other sizes
static: the other axes have the sizes of the example
verified: no (verify=True compares the file with the model)"""


def test_a_long_report_in_ten_lines() -> None:
    lines = str(LONG).splitlines()
    assert "\n".join(lines[:7]) == SHORT and len(lines) == 10
    assert lines[7].startswith("warning: remark 0 xxx") and all(len(line) < 300 for line in lines)
    assert lines[9].endswith(" ... and 6 more; as_text(rules=True) has all")
    whole = LONG.as_text(rules=True)
    assert "rules: aten::add" in whole and "decomposed by torch: aten::inner" in whole and "\nsecond" in whole
    assert whole.count("warning: ") == 9 and whole.count("dynamic: ") == 51 and "x" * 300 in whole
    assert repr(LONG) == "Report(export, opset 23, 1,234 nodes, 5 GB, not verified, 9 warnings)"
    page = LONG._repr_html_()
    assert page.count("<tr>") == 10 and "past_0, past_1" in page


X = torch.ones(2, 3)
# options, lines of the report
SAID = [
    ({}, ["static: all axes have the sizes of the example (dynamic=True lets vary what can)"]),
    (
        {"dynamic_axes": {"x": {0: "n"}}},
        ["dynamic: x axis 0 is n", "static: the other axes have the sizes of the example"],
    ),
    ({"dynamic_axes": {"x": [0, 1]}}, ["dynamic: x axis 0 is x_dim_0, axis 1 is x_dim_1"]),
    ({"dynamic": True}, ["dynamic: x axis 0 is batch, axis 1 is x_dim_1"]),
]


@pytest.mark.parametrize(("options", "lines"), SAID, ids=[str(options) for options, _ in SAID])
def test_axes(options: dict[str, object], lines: list[str]) -> None:
    report = purexport.export(lambda x: x + 1, (X,), **options).report  # type: ignore[arg-type]
    said = [line for line in str(report).splitlines() if line.startswith(("dynamic", "static"))]
    assert [line.partition(" is ")[0] for line in said] == [line.partition(" is ")[0] for line in lines]
    assert report.nodes == 1


def test_it_says_what_was_verified() -> None:
    program = purexport.export(lambda x: x + 1, (X,), verify=[(X + 1,)], dynamic_axes={"x": {0: "n"}})
    said = "the file gives torch's results in onnxruntime on the example and on 1 more call (rtol=0.001, atol=1e-05)"
    assert program.report.verified == said and f"verified: {said}" in str(program.report)
    before = program.report.size
    program.model_proto = purexport.export(torch.nn.Linear(3, 300), (X,)).model_proto
    assert program.report.size > before + 3600


def test_a_comparison_in_a_notebook() -> None:
    found = purexport.compare(lambda x: x + 1, (X,), purexport.export(lambda x: x + 1, (X,)))
    wrong = purexport.compare(lambda x: x + 2, (X,), purexport.export(lambda x: x + 1, (X,)))
    assert repr(found).startswith("Comparison(the file agrees with torch in onnxruntime: 1 output")
    assert "agrees with torch in onnxruntime" in found._repr_html_()
    assert "differs from torch in onnxruntime" in wrong._repr_html_() and "6 of 6 elements" in wrong._repr_html_()
    assert len(repr(wrong)) < 400 and "_growth" not in dir(found)
