"""Operators whose result has a different dtype from their operands."""

from __future__ import annotations

from purexport.facts.fact import Fact, ResultDtype, alike

_COMPARISONS = (
    "eq ne lt le gt ge logical_not logical_and logical_or logical_xor less less_equal greater greater_equal not_equal"
)

FACTS = (
    *alike(_COMPARISONS, Fact("aten::", result_dtype=ResultDtype.ALWAYS)),
    *alike("cumsum cumprod", Fact("aten::", result_dtype=ResultDtype.INTEGERS)),
)
