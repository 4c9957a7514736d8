"""The table of kernels against the installed runtime, and the questions that it answers."""

from __future__ import annotations

import onnxruntime
import pytest

from proto_schema.operators import runtimes
from tools import make_kernels

FLOAT, INT64, FLOAT16, DOUBLE, BFLOAT16 = 1, 7, 10, 11, 16

# operator, version, dtypes by constraint, whether the newest release runs it
KNOWN = [
    ("Elu", 6, {"T": FLOAT}, True),
    ("Elu", 6, {"T": DOUBLE}, False),
    ("Elu", 6, {"T": FLOAT16}, True),  # the runtime casts
    ("Add", 14, {"T": BFLOAT16}, False),
    ("Add", 14, {"T": INT64}, True),
    ("Gemm", 13, {"T": INT64}, False),
    ("Gather", 13, {"T": BFLOAT16, "Tind": INT64}, True),
    ("LSTM", 14, {"T": DOUBLE}, False),  # registered, and refused when it runs
    ("Madeup", 1, {"T": DOUBLE}, True),  # nothing is known of it
]


@pytest.mark.parametrize(("op_type", "version", "types", "wanted"), KNOWN)
def test_runs(op_type: str, version: int, types: dict[str, int], wanted: bool) -> None:
    assert runtimes.newest().runs(op_type, version, types) is wanted


def test_a_version_stands_for_the_newest_release_that_is_not_newer() -> None:
    known = runtimes.releases()
    assert [runtimes.release(item.version) for item in known] == list(known)
    assert runtimes.release("1.18").version == known[0].version
    assert runtimes.release(known[0].version.rpartition(".")[0]) == known[0]


@pytest.mark.parametrize(
    ("version", "words"),
    [("1.3", "are not known; the known versions are 1.17.3 to"), ("9.0", "are not known"), ("new", "is not a version")],
)
def test_versions_that_are_not_known(version: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        runtimes.release(version)


@pytest.mark.full
def test_the_file_is_that_of_the_installed_runtime() -> None:
    if onnxruntime.__version__ != runtimes.newest().version:
        pytest.skip(f"the table ends with {runtimes.newest().version}, installed is {onnxruntime.__version__}")
    found = make_kernels.asked()
    assert found["opset"] == runtimes.newest().newest_opset
    kept = [item for item in make_kernels.known_releases() if item["version"] != found["version"]]
    assert make_kernels.render([*kept, found]) == make_kernels.TARGET.read_text()
