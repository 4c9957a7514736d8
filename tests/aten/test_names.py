"""Names of operators and of values: the parts, the operators behind them, and that nobody else takes them apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from purexport.aten.graph import AtenValue, Call, TensorType
from purexport.aten.memory import share_memory, storage_of, written_by
from purexport.aten.names import (
    OperatorName,
    base_of,
    name_of,
    operator_of,
    overloads_of,
    parsed,
    schema_of,
    without_underscore,
)
from purexport.aten.unique_names import UniqueNames, distinct

ROOT = Path(__file__).parent.parent.parent

# (a name, its parts, without its overload, without its underscore)
NAMES = [
    ("aten::sum", ("aten", "sum", ""), "aten::sum", "aten::sum"),
    ("aten::add_.Tensor", ("aten", "add_", "Tensor"), "aten::add_", "aten::add.Tensor"),
    ("aten::__iand__.Tensor", ("aten", "__iand__", "Tensor"), "aten::__iand__", "aten::__iand_.Tensor"),
    ("quantized::conv2d.new", ("quantized", "conv2d", "new"), "quantized::conv2d", "quantized::conv2d.new"),
    ("cov", ("", "cov", ""), "cov", "cov"),
]


@pytest.mark.parametrize(("name", "parts", "base", "plain"), NAMES)
def test_parts(name: str, parts: tuple[str, str, str], base: str, plain: str) -> None:
    found = parsed(name)
    assert found == OperatorName(*parts) and str(found) == name
    assert base_of(name) == found.base == base
    assert without_underscore(name) == plain


@pytest.mark.parametrize("target", ["aten::sum", "aten::sum.dim_IntList", "aten::size.int", "prim::max.int"])
def test_a_schema_has_the_name_that_it_was_asked_by(target: str) -> None:
    assert name_of(schema_of(target)) == target
    assert target in overloads_of(base_of(target))


@pytest.mark.parametrize("target", ["aten::summ", "aten::sum.nothing", "nowhere::sum"])
def test_what_torch_does_not_have(target: str) -> None:
    assert operator_of(target) is None
    with pytest.raises(LookupError, match=f"torch has no schema for {target}"):
        schema_of(target)


def test_the_operator_of_a_name() -> None:
    assert operator_of("aten::sum") is torch.ops.aten.sum.default
    assert operator_of("aten::sum.dim_IntList") is torch.ops.aten.sum.dim_IntList
    assert overloads_of("aten::summ") == []


# What only `names` may do, and where else it is something else.
OWN = re.compile(
    r"getattr\(torch\.ops|torch\.ops,|partition\(\"::\"\)|_C\._get_schema|_jit_get_schemas|_jit_get_operation"
)
ELSEWHERE = {
    "compat/symbolic/context.py": "names of ONNX operators with a domain",
    "inspect/allowed.py": "names of ONNX operators with a domain",
    "torch_patches/before_composites.py": "kernels are registered by namespace, and `names` lies above that folder",
    "torch_patches/torch_jit.py": "offers torch's functions, which only `names` calls",
}


def taken_apart(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if OWN.search(line)]


def test_names_are_taken_apart_in_one_place() -> None:
    found = {
        path.relative_to(ROOT / "purexport").as_posix(): taken_apart(path.read_text())
        for path in (ROOT / "purexport").rglob("*.py")
    }
    assert {path for path, lines in found.items() if lines} - set(ELSEWHERE) == {"aten/names.py"}


@pytest.mark.parametrize(
    "line", ['getattr(torch.ops, "aten")', 'target.partition("::")', 'torch._C._get_schema("aten::add", "")']
)
def test_another_place_is_found(line: str) -> None:
    assert taken_apart(f"found = {line}")


# Names of values ------------------------------------------------------------------------------------------------------

DISTINCT = [
    (["a", "b"], ["a", "b"]),
    (["a", "a", "a"], ["a", "a_1", "a_2"]),
    (["a", "a_1", "a"], ["a", "a_1", "a_2"]),
    (["a_1", "a", "a", "a_1"], ["a_1", "a", "a_2", "a_1_1"]),
]


@pytest.mark.parametrize(("names", "given"), DISTINCT)
def test_distinct(names: list[str], given: list[str]) -> None:
    assert distinct(names) == given


def test_taken_names_make_way() -> None:
    assert UniqueNames(["x", "x_1"]).unique("x") == "x_2"


# Memory ---------------------------------------------------------------------------------------------------------------


def test_memory() -> None:
    x = torch.zeros(2, 3)
    assert share_memory(x, x[0]) and not share_memory(x, x.clone())
    assert share_memory(x.to("meta")[0], x.to("meta")) is False
    meta = torch.empty(2, device="meta")
    assert share_memory(meta, meta.view(1, 2))
    sparse = x.to_sparse()
    assert storage_of(sparse) is None and not share_memory(sparse, sparse)
    assert storage_of([x]) is None


def test_what_a_call_writes() -> None:
    x, y = (AtenValue(TensorType(torch.float32, (2,))) for _ in range(2))
    assert written_by(Call("aten::add_.Tensor", {"self": x, "other": y, "alpha": 1}, [])) == [x]
    assert written_by(Call("aten::add.Tensor", {"self": x, "other": y, "alpha": 1}, [])) == []
    assert written_by(Call("prim::getitem", {"list": x, "index": 0}, [])) == []
