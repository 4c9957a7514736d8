"""What torch.export does not get through by itself: checks of arguments, which a remark names, and verdicts on data."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn import functional

import purexport

X = torch.arange(12.0).reshape(3, 4)


@dataclass(frozen=True)
class Checked:
    """A function with a check of its arguments, and what the report says of the check."""

    name: str
    function: Callable[..., Any]
    said: str


CHECKED = [
    Checked("variance", lambda x: functional.gaussian_nll_loss(x, x, x), "negative variance"),
    Checked("variance-number", lambda x: functional.gaussian_nll_loss(x, x, 0.5), ""),
    Checked("weights", lambda x: torch.cov(x, aweights=x[0]), "negative weights"),
    Checked("no-weights", lambda x: torch.cov(x), ""),
]


@pytest.mark.parametrize("row", CHECKED, ids=lambda row: row.name)
def test_left_out_checks_are_said(row: Checked) -> None:
    report = purexport.export(row.function, (X,), capture="export").report
    assert [row.said in warning for warning in report.warnings] == ([True] if row.said else [])


def _decides(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.equal(x, x * 2) else x


def test_a_branch_on_equal_is_refused_by_export() -> None:
    with pytest.raises(purexport.ExportError, match=r"decides on the content of a tensor at .*_calls\.py:\d+"):
        purexport.export(_decides, (X,), capture="export")


def test_a_branch_on_equal_is_warned_of_by_trace() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = purexport.export(_decides, (X,), capture="trace").report
    assert any("takes a truth value at" in warning for warning in report.warnings)
