"""Every lowering rule is exercised by a row of tests/lowering, and names its arguments as ATen does.

A run of all tests says at its end whether every rule was run (tests/conftest.py); the search here is for itself.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import pytest
import torch

import tests.lowering
from purexport.lowering.core.registry import COMPLEX, LAYOUT_ARGUMENTS, QUANTIZED, TRAINING
from purexport.lowering.rules import registered
from tests.harness import ROUTES, Row
from tests.lowering.test_numbers import TARGETS as NUMBERS
from tests.row_plans import export_row

OPSET = 20

# Rules that no operator row can reach, and the test that does.
TESTED_ELSEWHERE: dict[str, str] = dict.fromkeys(NUMBERS, "tests/lowering/test_numbers.py") | {
    "prim::Uninitialized": "tests/functionalize/test_blocks.py",
    "aten::batch_norm@training": "tests/models/test_training.py",
    "purexport_llm::attention_with_past": "tests/language/test_fusion.py",
    "purexport_llm::group_query_attention": "tests/language/test_fusion.py",
    "purexport_llm::linear_attention": "tests/language/test_fusion.py",
    "purexport_llm::mixture": "tests/language/test_fusion.py",
    "purexport_llm::rotary_embedding": "tests/language/test_fusion.py",
    "purexport_llm::skip_norm": "tests/language/test_fusion.py",
    "purexport_llm::swiglu": "tests/language/test_fusion.py",
}


def rows_of(module: ModuleType) -> list[Row]:
    """The rows in every list at the top of a module, each once."""
    lists = [value for value in vars(module).values() if isinstance(value, (list, tuple))]
    return list({id(row): row for rows in lists for row in rows if isinstance(row, Row)}.values())


def operator_modules() -> list[ModuleType]:
    """The files of rows: those in the folders of tests/lowering, each as one of purexport/lowering."""
    found = [module.name for module in pkgutil.walk_packages(tests.lowering.__path__, "tests.lowering.")]
    return [importlib.import_module(name) for name in found if name.count(".") == 3]


def rules_wanted() -> set[str]:
    """The rules that rows of tests/lowering must run."""
    return set(registered()) - set(TESTED_ELSEWHERE)


class Search:
    """The rules that no row has run yet; a row is exported at most once by a route."""

    def __init__(self) -> None:
        self.missing = rules_wanted()
        self.rows = [(module.__name__, row) for module in operator_modules() for row in rows_of(module)]
        self._run: set[tuple[int, str]] = set()

    def by_name(self, rule: str) -> list[Row]:
        """The rows that are called as the rule's operator: the likeliest to run it."""
        operator = rule.partition("::")[2].partition(".")[0].strip("_")
        return [row for _, row in self.rows if operator in (row.name, row.name.partition("-")[0])]

    def by_theme(self, rule: str) -> list[Row]:
        """The rows in the folder of the rule's file."""
        theme = inspect.unwrap(registered()[rule].function).__module__.split(".")[2]
        return [row for module, row in self.rows if module.split(".")[2] == theme]

    def run(self, rows: list[Row], rule: str) -> None:
        """Exports these, by each route in turn, until the rule is run; where it is empty, until all are."""
        for route in ROUTES:
            for row in rows:
                if not (rule in self.missing if rule else self.missing):
                    return
                if route in row.routes and (id(row), route) not in self._run:
                    self._run.add((id(row), route))
                    self.missing -= rules_run_by(row, route)


def rules_run_by(row: Row, route: str) -> set[str]:
    """The ATen names whose rules an export of this row runs; none where it fails, which the row's own test tells."""
    try:
        program = export_row(row, route, max(OPSET, row.min_opset or OPSET))
    except Exception:
        return set()
    return set(program.report.rules)


@pytest.mark.sweep
def test_every_rule_has_a_row() -> None:
    """First the rows that are called as a rule, those of its folder, then all: most need never be exported."""
    search = Search()
    for likely in (search.by_name, search.by_theme):
        for rule in sorted(search.missing):
            search.run(likely(rule), rule)
    search.run([row for _, row in search.rows], "")
    missing = search.missing
    assert not missing, f"{len(missing)} rules have no row in tests/lowering: {', '.join(sorted(missing))}"


def test_exceptions_are_rules() -> None:
    assert set(TESTED_ELSEWHERE) <= set(registered())


def test_rows_of_a_file_have_different_names() -> None:
    for module in operator_modules():
        names = [row.name for row in rows_of(module)]
        twice = {name for name in names if names.count(name) > 1}
        assert not twice, f"{module.__name__}: {sorted(twice)}"


def test_rules_name_their_arguments_as_aten_does() -> None:
    """A rule's arguments are those of the ATen schemas that it serves, by name, and it takes all that have no default.

    But for those that say how torch lays data out or which of its kernels computes.
    Operators of other namespaces are declared by packages that are not loaded here.
    """
    schemas = {_full_name(schema): schema for schema in torch._C._jit_get_all_schemas()}
    served: dict[int, set[str]] = {}
    suffixes = re.compile(f"({QUANTIZED}|{COMPLEX}|{TRAINING})$")
    rules = [(suffixes.sub("", target), rule) for target, rule in registered().items()]
    for target, rule in rules:
        names = {argument.name for argument in schemas[target].arguments} if target in schemas else set()
        served.setdefault(id(inspect.unwrap(rule.function)), set()).update(names)
    wrong = []
    for target, rule in rules:
        taken = set(rule.parameters)
        if target in schemas:
            required = {argument.name for argument in schemas[target].arguments if not argument.has_default_value()}
            wrong += [
                f"{target}: the rule does not take {name}" for name in sorted(required - taken - LAYOUT_ARGUMENTS)
            ]
            wrong += [
                f"{target}: no such argument: {name}"
                for name in sorted(taken - served[id(inspect.unwrap(rule.function))])
            ]
        elif target.startswith(("aten::", "prims::")):
            wrong.append(f"{target} is not an operator of torch {torch.__version__}")
    assert not wrong, "\n".join(wrong)


def _full_name(schema: torch.FunctionSchema) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
