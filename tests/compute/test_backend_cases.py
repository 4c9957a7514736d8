"""The evaluator gives what the cases of the official package say.

By default a sample runs: one case of each operator, and some of the files. `pytest -m sweep tests/compute/
test_backend_cases.py -k softmax` runs all cases with that word in the name, without `-k` all there are.
"""

from __future__ import annotations

import pytest

from tests.compute import cases

SOME = 5  # every so many of the cases in files


def sample() -> list[cases.Case]:
    """The first case of each set of operators that are used, and every few of those in files."""
    first: dict[frozenset[str], cases.Case] = {}
    for case in cases.node_cases():
        if "_expanded" not in case.name:
            first.setdefault(case.operators, case)
    return [*first.values(), *cases.stored_cases()[::SOME]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Making all cases takes seconds, so that only a sweep lists them."""
    if "case" in metafunc.fixturenames:
        marked = metafunc.config.getoption("-m") or ""
        sweep = "sweep" in marked and "not sweep" not in marked
        found = (*cases.node_cases(), *cases.stored_cases()) if sweep else ()
        metafunc.parametrize("case", found, ids=[case.name for case in found])


@pytest.mark.sweep
def test_case(case: cases.Case) -> None:
    cases.run(case)


def test_sample() -> None:
    found = []
    for case in sample():
        try:
            cases.run(case)
        except (AssertionError, ValueError, NotImplementedError) as error:
            found.append(f"{case.name}: {str(error)[:300]}")
    known = {case.name for case in (*cases.node_cases(), *cases.stored_cases())}
    assert {*cases.EXCUSED, *cases.REFUSED} <= known, "an excuse is of no case"
    assert not found, f"{len(found)} cases fail:\n" + "\n".join(found)
