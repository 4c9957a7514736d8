"""The tables of handlers: each operator has one handler for a form, under a name that TorchScript writes."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from types import ModuleType

import pytest
import torch

from purexport.frontends.script import handlers, operators
from purexport.frontends.script.registry import ANY, COMPUTED, FORMS, PYTHON, Form, Handlers

# nodes without a schema, which torch's compiler makes of the language itself
NODES = {
    "prim::Constant",
    "prim::CreateObject",
    "prim::DictConstruct",
    "prim::Enter",
    "prim::Exit",
    "prim::GetAttr",
    "prim::If",
    "prim::ListConstruct",
    "prim::ListUnpack",
    "prim::Loop",
    "prim::PythonOp",
    "prim::SetAttr",
    "prim::TupleConstruct",
    "prim::TupleSlice",
    "prim::isinstance",
    "prim::tolist",
}


def unknown_kinds(table: Handlers) -> list[str]:
    """The kinds that are no operator of torch and no node of TorchScript, or that name an overload."""
    names = {schema.name for schema in torch._C._jit_get_all_schemas()}
    return sorted({kind for _, kind, _ in table} - names - NODES)


def wrong_parameters(table: Handlers) -> list[str]:
    """The kinds whose handler is no `f(machine, node, *operands)`."""
    rows = [(kind, list(inspect.signature(handler).parameters)[:2]) for _, kind, handler in table]
    return sorted({kind for kind, names in rows if names != ["machine", "node"]})


def unlisted_files(package: ModuleType, listed: str) -> set[str]:
    """The files with a table that the list lacks, and those that it has and that do not exist or have none."""
    files = {module.name for module in pkgutil.iter_modules(package.__path__)}
    tables = {name for name in files if hasattr(import_module(f"{package.__name__}.{name}"), "handles")}
    return tables ^ set(listed.split())


def test_names_are_those_of_torch() -> None:
    assert not unknown_kinds(handlers.registered())


def test_handlers_take_a_machine_and_a_node() -> None:
    assert not wrong_parameters(handlers.registered())


def test_all_files_are_listed() -> None:
    assert not unlisted_files(operators, handlers.FILES)


# Planted faults -------------------------------------------------------------------------------------------------------


def handler(machine: object, node: object, item: object) -> object:
    return item


@pytest.mark.parametrize("kind", ["aten::appendd", "aten::append.t", "prim::Iff"])
def test_a_wrong_name_is_found(kind: str) -> None:
    table = Handlers()
    table.add(COMPUTED, kind, handler)
    assert unknown_kinds(table) == [kind]


def test_a_wrong_signature_is_found() -> None:
    table = Handlers()
    table.add(ANY, "prim::If", lambda node, operands: None)
    assert wrong_parameters(table) == ["prim::If"]


def test_a_file_that_is_not_listed_is_found() -> None:
    assert unlisted_files(operators, handlers.FILES.replace("tensors", "tensor")) == {"tensors", "tensor"}


@pytest.mark.parametrize(
    ("first", "second"),
    [(PYTHON, PYTHON), (ANY, ANY), (ANY, PYTHON), (COMPUTED, ANY)],
    ids=["one form", "no form", "a form after none", "none after a form"],
)
def test_a_second_handler_is_refused(first: Form, second: Form) -> None:
    """Also when it comes from the table of another file."""
    table, other = Handlers(), Handlers()
    table.add(first, "aten::append", handler)
    other("aten::append", on=second)(handler)
    with pytest.raises(ValueError, match="aten::append has two handlers"):
        table.include(other)


def test_forms_have_names_of_their_own() -> None:
    names = [form.name for form in (ANY, *FORMS)]
    assert len(set(names)) == len(names)
