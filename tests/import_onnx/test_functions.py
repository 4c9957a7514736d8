"""Each public function of onnx gives the same under `import onnx` without onnx: the rows of `function_rows`, both ways.

`DIFFERENT` names the rows whose results differ on purpose, and says why.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from tests.import_onnx import function_rows, graph_rows
from tests.import_onnx.beside import OFFICIAL, both

pytest.importorskip("ml_dtypes", reason="onnx gives arrays of ml_dtypes, and needs it itself")

ROWS = [*function_rows.ROWS, *graph_rows.ROWS]

DIFFERENT = {  # name -> (why, what is raised here, or None)
    "helper-strip": ("onnx 1.23 asks descriptors for a name that protobuf 7 has no longer", None),
    "numpy_helper-array-big-endian": ("onnx does not know the type of such an array", None),
    "numpy_helper-dict-text": ("onnx does not know the type of such a key", None),
    "compose-expand-symbol": ("onnx leaves the name of a size out of the output that it expands", None),
    "compose-expand-last": (
        "onnx declares the new axis before the last one, and its Unsqueeze makes it the last",
        None,
    ),
    "converter-down": ("onnx has no adapter for Relu below opset 14", None),
    "inliner-local-convert": ("onnx inlines what it converts only where each type is declared", None),
    "files-external-short": ("here it is a ValidationError, which is a ValueError", "ValidationError"),
}


@pytest.mark.parametrize(("name", "code"), ROWS, ids=[name for name, _ in ROWS])
def test_same_as_onnx(name: str, code: str, tmp_path: Path) -> None:
    official, ours = both(code, tmp_path)
    if name in DIFFERENT:
        reason, error = DIFFERENT[name]
        assert official != ours, f"the same now: {reason}"
        assert (ours[1] if ours[0] == "raised" else None) == error
        return
    assert ours == official


PUBLIC = (
    "helper", "numpy_helper", "checker", "compose", "parser", "printer", "inliner", "utils", "tools.update_model_dims",
    "tools.replace_constants", "defs", "model_container", "external_data_helper", "version_converter",
    "shape_inference",
)  # fmt: skip


def _names(module: str) -> list[str]:
    """The public functions and classes of a module of onnx: what it lists, else what it defines."""
    found = importlib.import_module(f"{OFFICIAL.__name__}.{module}")
    listed = getattr(found, "__all__", None)
    if listed is None:
        here = (inspect.isfunction, inspect.isclass)
        listed = [
            name
            for name, value in vars(found).items()
            if any(kind(value) for kind in here) and value.__module__ == found.__name__ and not name.startswith("_")
        ]
    return [name for name in listed if callable(getattr(found, name))]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_name_has_a_row(module: str) -> None:
    names = _names(module)
    assert names
    text = "\n".join(code for _, code in ROWS)
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []
