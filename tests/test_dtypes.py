"""One row a data type: what torch, safetensors, storages, TorchScript and the command line call it is in that row."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from proto_schema.onnx import TensorProto
from proto_schema.tensors.dtypes import DTYPES, by_numpy_name
from purexport import dtypes, symbolic_helper
from purexport.cli import specs
from purexport.compat.symbolic.values import SymbolicType
from purexport.errors import UnsupportedDtypeError
from purexport.inspect.extract import SAFETENSORS
from purexport.weights import convert, safetensors, torchvalues
from tests import imports

ROOT = Path(__file__).parent.parent
TEXTS = imports.sources(ROOT, ("proto_schema", "purexport"))
ROWS = list(DTYPES.values())

# torch's dtypes by the name of an ONNX type that are not mapped, and why
UNMAPPED = {
    **dict.fromkeys(("uint2", "int2", "uint4", "int4"), "torch has the name, and no operator takes a tensor of it"),
    "float8_e8m0fnu": "ONNX rounds a cast to it by an attribute; tensors of it are weights only",
}
TORCH = {name: dtype for name, dtype in vars(torch).items() if isinstance(dtype, torch.dtype)}


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_row_fits_the_published_schema_and_numpy(row: Any) -> None:
    assert TensorProto.DataType(row.code).name == row.name
    assert row.native == (not row.ml_dtypes)
    if row.native:
        assert np.dtype(row.numpy).name == row.array
    assert by_numpy_name()[row.array] is row


@pytest.mark.parametrize("row", [row for row in ROWS if row.array in TORCH], ids=lambda row: row.name)
def test_every_dtype_of_torch_that_onnx_has_is_mapped(row: Any) -> None:
    dtype = TORCH[row.array]
    if row.array in UNMAPPED:
        with pytest.raises(UnsupportedDtypeError):
            dtypes.onnx_code(dtype)
        return
    assert (dtypes.onnx_code(dtype), dtypes.torch_dtype(row.code)) == (row.code, dtype)
    assert torch.empty(2, dtype=dtype).element_size() * 8 == row.bits
    assert (dtype.is_floating_point, dtype.is_complex) == (dtypes.is_floating(row.code), "COMPLEX" in row.name)
    assert SymbolicType(dtype, None).scalarType() == row.scalar
    assert symbolic_helper.cast_pytorch_to_onnx[row.scalar] == row.code
    assert specs.parse_input(f"x={row.torch}[2]").dtype == row.torch


@pytest.mark.parametrize("row", [row for row in ROWS if row.scalar], ids=lambda row: row.name)
def test_torch_calls_it_so(row: Any) -> None:
    """c10::ScalarType and the classes of storages, asked of torch itself."""
    if not hasattr(torch, row.torch):
        pytest.skip(f"this torch has no {row.torch}")
    value = torch.jit.trace(lambda x: x + x, torch.zeros(1)).graph.param_node()  # type: ignore[no-untyped-call]
    kind = next(value.outputs()).type().with_dtype(getattr(torch, row.torch))
    assert kind.scalarType() == row.scalar
    assert hasattr(torch, f"{row.scalar}Storage") == row.storage


def test_tables_follow_from_the_rows() -> None:
    assert {row.name for row in ROWS if row.safetensors} == set(SAFETENSORS)
    assert {SAFETENSORS[DTYPES[code].name]: code for code in safetensors.DATA_TYPES.values()} == safetensors.DATA_TYPES
    named = torchvalues.GLOBALS.items()
    unpickled = {name: made for name, made in named if isinstance(made, torchvalues.StorageType) and made.code}
    assert {f"torch.{row.torch}": row.code for row in ROWS if row.torch} == {
        name: made.code for name, made in unpickled.items() if not name.endswith("Storage")
    }
    assert {f"torch.{row.scalar}Storage": row.code for row in ROWS if row.storage} == {
        name: made.code for name, made in unpickled.items() if name.endswith("Storage")
    }
    for row in ROWS:
        assert dtypes.from_type_string(dtypes.type_string(row.code)) == row.code


def test_numbers_in_the_code_are_those_of_the_rows() -> None:
    named = {row.name: row.code for row in ROWS}
    for module in (dtypes, convert):
        for name, code in vars(module).items():
            if name in named:
                assert code == named[name], (module.__name__, name)


# a collection of so many names of data types is a table of its own, but for these
MOST_NAMES = 4
NAMES = {name for row in ROWS for name in (row.name, row.array, row.scalar, row.safetensors) if len(name) > 2}
OTHER_TABLES = {
    "proto_schema.quantization.scheme": "in which types weights can be stored, and in which blocks",
    "purexport.options": "the types of weights by name, as type checkers and editors need them",
    "purexport.aten.schema": "torch's own numbers of its dtypes, of which ONNX has few",
    "purexport.runtime.sessions": "which of torch's dtypes numpy has, where both can be asked only by trying",
    "purexport.runtime.verification": "how far results may be apart, by dtype",
}


WORDS = re.compile(rf"\b({'|'.join(NAMES)})\b")


@functools.cache
def tables(text: str) -> list[str]:
    """The collections of names of data types in a module."""
    if len(set(WORDS.findall(text))) < MOST_NAMES:
        return []
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Dict, ast.Tuple, ast.List, ast.Set)):
            parts = [*node.keys, *node.values] if isinstance(node, ast.Dict) else node.elts
            parts = [inner for part in parts for inner in (part.elts if isinstance(part, ast.Tuple) else [part])]
            names = {_name(part) for part in parts} & NAMES
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
            names = set(node.value.split()) & NAMES
        else:
            continue
        if len(names) >= MOST_NAMES:
            found.append(f"line {node.lineno}: {sorted(names)}")
    return found


def _name(node: ast.AST | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    # numbers of the table (dtypes.FLOAT, TensorProto.FLOAT) are no names; torch's and numpy's objects are
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("torch", "np"):
        return node.attr
    return ""


def second_tables(texts: imports.Sources) -> list[str]:
    return [
        f"{module}, {found}" for module, text in texts.items() for found in tables(text) if module not in OTHER_TABLES
    ]


@pytest.mark.full
def test_there_is_no_second_table() -> None:
    found = second_tables(TEXTS)
    assert not found, "\n".join(found)
    for module in OTHER_TABLES:
        assert tables(TEXTS[module]), f"{module} has no such table any more"


PLANTED = [
    'KNOWN = {"F16": 10, "BF16": 16, "F32": 1, "F64": 11}',
    'KNOWN = {torch.float16: "a", torch.int8: "b", torch.int16: "c", torch.bool: "d"}',
    'KNOWN = "float32 uint8 int8 uint16".split()',
    'KNOWN = ((1, "float", "float32"), (2, "uint8", "uint8"), (3, "int8", "int8"), (4, "uint16", "uint16"))',
]


@pytest.mark.parametrize("text", PLANTED)
def test_planted_tables_are_found(text: str) -> None:
    assert second_tables({"purexport.new": text})
