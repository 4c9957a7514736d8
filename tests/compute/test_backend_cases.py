"""The evaluator gives what the cases of the official package say: all of them, in one test, which takes seconds.

`pytest -m sweep tests/compute/test_backend_cases.py -k softmax` runs those with that word in the name one by one.
"""

from __future__ import annotations

import pytest

from tests.compute import cases, simplifying

SIMPLIFIED = 10  # every tenth goes through `ps.simplify`, too
FEWEST = 2_000  # the cases of the package, so that none gets lost


def every() -> list[cases.Case]:
    return [*cases.node_cases(), *cases.stored_cases()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Making all cases takes seconds, so that only a sweep lists them."""
    if "case" in metafunc.fixturenames:
        marked = metafunc.config.getoption("-m") or ""
        sweep = marked == "sweep"
        found = every() if sweep else []
        metafunc.parametrize("case", found, ids=[case.name for case in found])


@pytest.mark.sweep
def test_case(case: cases.Case) -> None:
    cases.run(case)


def test_every_case() -> None:
    found, known = [], every()
    folded = 0
    for at, case in enumerate(known):
        try:
            cases.run(case)
            if at % SIMPLIFIED == 0 and case.name not in (*cases.REFUSED, *cases.EXCUSED):
                folded += simplifying.check(case)
        except (AssertionError, ValueError, NotImplementedError) as error:
            found.append(f"{case.name}: {str(error)[:300]}")
    assert len(known) >= FEWEST
    assert {*cases.EXCUSED, *cases.REFUSED} <= {case.name for case in known}, "an excuse is of no case"
    assert folded > 60
    assert not found, f"{len(found)} cases fail:\n" + "\n".join(found)
