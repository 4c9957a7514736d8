"""A class has a name of its own: in each of the two packages a name stands once at the top of a file.

So a reader who meets `FusionSite` knows which class it is, and a search finds one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import imports

ROOT = Path(__file__).parent.parent
PACKAGES = ("proto_schema", "purexport")
TEXTS = imports.sources(ROOT, PACKAGES)
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)

COMPAT = "proto_schema.compat.modules: a module of onnx has a class of this name, for protobuf's messages"
# the names that stand twice: why.  The list is to become empty, but for the names that onnx has
EXCEPTIONS: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        [
            ("proto_schema", name)
            for name in (
                *("CheckerContext", "ExternalDataInfo", "Extractor", "ModelContainer", "OpRun"),
                "ReferenceEvaluator",
            )
        ],
        COMPAT,
    ),
    ("proto_schema", "OpSchema"): "defs and compat have onnx's name; operators.OpSchema is the row of data of both",
    ("proto_schema", "Attribute"): "defs has onnx's name; operators.Attribute is the row of data, as OpSchema is",
    ("purexport", "Owner"): "of inspect, which is public, and of frontends.trace.numbers",
}


def names_twice(texts: Mapping[str, str]) -> dict[tuple[str, str], list[str]]:
    """(package, name): the modules, of each class whose name stands more than once in its package."""
    found: dict[tuple[str, str], list[str]] = {}
    for module, text in texts.items():
        for name in CLASS.findall(text):
            found.setdefault((module.partition(".")[0], name), []).append(module)
    return {key: modules for key, modules in found.items() if len(modules) > 1}


def test_a_name_of_a_class_stands_once() -> None:
    found = names_twice(TEXTS)
    wrong = [f"{name} is in {' and '.join(found[package, name])}" for package, name in set(found) - set(EXCEPTIONS)]
    assert not wrong, f"give each a telling name of its own: {'; '.join(sorted(wrong))}"
    assert set(EXCEPTIONS) <= set(found), "an exception that is none any more"


@pytest.mark.parametrize(
    ("other", "names"), [("purexport.b", [("purexport", "Site")]), ("proto_schema.b", []), ("purexport.a.b", [])]
)
def test_a_planted_class_is_seen(other: str, names: list[tuple[str, str]]) -> None:
    inner = "class Other:\n    class Site: ...\n" if other == "purexport.a.b" else "class Site(object): ...\n"
    assert list(names_twice({"purexport.a": "class Site:\n    pass\n", other: inner})) == names
