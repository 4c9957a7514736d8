"""Each public function of onnx gives the same under `import onnx` without onnx: the rows of `function_rows`, both ways.

`DIFFERENT` names the rows whose results differ on purpose, and says why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.import_onnx.beside import both
from tests.import_onnx.function_rows import ROWS

pytest.importorskip("ml_dtypes", reason="onnx gives arrays of ml_dtypes, and needs it itself")

DIFFERENT = {  # name -> (why, what is raised here, or None)
    "helper-strip": ("onnx 1.23 asks descriptors for a name that protobuf 7 has no longer", None),
    "numpy_helper-array-big-endian": ("onnx does not know the type of such an array", None),
    "numpy_helper-dict-text": ("onnx does not know the type of such a key", None),
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
