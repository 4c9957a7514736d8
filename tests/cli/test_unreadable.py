"""What the machine does not let a verb read is no answer about the model: status 2, with the file and the cause."""

from __future__ import annotations

import builtins
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.errors import UnreadableDataError
from proto_schema.external.payload import FileMap
from proto_schema.ir import Value
from purexport.cli.main import WHERE, main

DATA = "m.onnx.data"
VERBS: dict[str, list[str]] = {
    "show": ["show", "m.onnx"],
    "inspect": ["inspect", "m.onnx"],
    "locate": ["locate", "m.onnx", "9"],
    "stat": ["stat", "m.onnx", "--duplicates"],
    "check": ["check", "m.onnx"],
    "check --full": ["check", "m.onnx", "--full"],
    "check --parsers": ["check", "m.onnx", "--parsers"],
    "infer": ["infer", "m.onnx", "-o", "out.onnx"],
    "convert": ["convert", "m.onnx", "--opset", "13", "-o", "out.onnx"],
    "canonicalize": ["canonicalize", "m.onnx", "-o", "out.onnx"],
    "diff": ["diff", "m.onnx", "other.onnx"],
    "diff --html": ["diff", "m.onnx", "other.onnx", "--html", "out.html"],
    "edit": ["edit", "m.onnx", "--metadata", "k=v", "-o", "out.onnx"],
    "merge": ["merge", "m.onnx", "other.onnx", "--map", "y:x", "--prefix", "a_", "-o", "out.onnx"],
    "run": ["run", "m.onnx"],
    "scan": ["scan", "m.onnx"],
    "simplify": ["simplify", "m.onnx", "-o", "out.onnx"],
    "extract": ["extract", "m.onnx", "--outputs", "y", "-o", "out.onnx"],
    "extract --tensor": ["extract", "m.onnx", "--tensor", "w", "-o", "out.npy"],
    "salvage": ["salvage", "m.onnx", "-o", "out.onnx"],
    "html": ["html", "m.onnx", "-o", "out.html", "--histograms", "all"],
    "quantize": ["quantize", "m.onnx", "--type", "int8", "-o", "out.onnx"],
    "quantize --dry-run": ["quantize", "m.onnx", "--type", "int8", "--dry-run"],
    "share": ["share", "m.onnx", "other.onnx", "-o", "out"],
    "compare": ["compare", "m.onnx", "other.onnx", "--input", "x=float32[2,64]"],
}
CODES = ["ENOMEM", "EMFILE", "ENFILE", "EACCES", "EIO", "ESTALE"]
# each verb with two of them in turn; all where a verdict is asked for
CROSSED = [
    (verb, code)
    for place, verb in enumerate(VERBS)
    for number, code in enumerate(CODES)
    if verb in ("check", "merge") or (place - number) % 3 == 0
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    weight = ps.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    values = [helper.make_tensor_value_info(name, 1, ["n", 64]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    ps.save(model, "m.onnx", external_data=True)
    Path("other.onnx").write_bytes(Path("m.onnx").read_bytes())  # with the same data file
    return tmp_path


def refusing(name: str, code: int) -> Callable[..., Any]:
    """os.open for which a file of that name cannot be opened."""
    real = os.open

    def opened(path: Any, *args: Any, **kwargs: Any) -> int:
        if os.path.basename(os.fspath(path)) == name:
            raise OSError(code, os.strerror(code), path)
        return real(path, *args, **kwargs)

    return opened


def answered(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = main(words)
    told = "".join(capsys.readouterr())
    assert WHERE not in told
    assert "not valid" not in told or status == 0
    return status, told


@pytest.mark.parametrize("verb", VERBS)
def test_what_the_verbs_do_without_faults(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, told = answered(VERBS[verb], capsys)
    assert status == 0, told


@pytest.mark.parametrize(("verb", "code"), CROSSED)
def test_a_model_that_cannot_be_opened(
    verb: str, code: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    number, real = getattr(errno, code), builtins.open

    def opened(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, (str, Path)) and os.path.basename(path) == "m.onnx":
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", opened)
    status, told = answered(VERBS[verb], capsys)
    assert status == 2 and os.strerror(number) in told and "m.onnx" in told, told


@pytest.mark.parametrize(("verb", "code"), CROSSED)
def test_a_data_file_that_cannot_be_opened(
    verb: str, code: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verb that does not read it answers, and any other says why not."""
    number = getattr(errno, code)
    monkeypatch.setattr(os, "open", refusing(DATA, number))
    status, told = answered(VERBS[verb], capsys)
    assert status in (0, 2), told
    assert status == 0 or (os.strerror(number) in told and DATA in told), told
    assert status == 2 or verb not in ("check", "check --full", "check --parsers", "run", "quantize --dry-run"), told


@pytest.mark.parametrize("verb", ["check", "check --full", "run", "merge", "extract --tensor", "html"])
def test_a_data_file_that_cannot_be_mapped(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int, path: str) -> FileMap:
        if os.path.basename(path) == DATA:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path)
        return real(descriptor, path)

    real = FileMap.of
    monkeypatch.setattr(FileMap, "of", refused)
    status, told = answered(VERBS[verb], capsys)
    assert (status == 2 and "Cannot allocate memory" in told) or (verb == "html" and status == 0), told


def test_a_data_file_that_goes_away(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there when the model is loaded, so that the model is not to blame. One that never was is a finding."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing(DATA, errno.ENOENT))
        status, told = answered(VERBS["check"], capsys)
    assert status == 2 and "m.onnx.data has changed or been replaced since it was opened" in told
    os.unlink(DATA)
    assert main(VERBS["check"]) == 1
    assert "not valid" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["checksum", "infer", "convert"])
def test_other_data_that_cannot_be_read(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checksum is of the whole file, and a conversion reads small constants."""
    model = ps.load("m.onnx")
    assert model.graph is not None
    if kind == "checksum":
        model.graph.initializer[0].external_data.append(ps.StringStringEntryProto(key="checksum", value="0" * 40))
        Path("m.onnx").write_bytes(ps.dumps(model))
        monkeypatch.setattr("proto_schema.checking.checksums.read_chunks", failing)
        status, told = answered(["check", "m.onnx"], capsys)
    else:
        sizes = ps.numpy_helper.from_array(np.array([-1, 64]), "sizes")
        model.graph.initializer.append(sizes)
        model.graph.node.append(helper.make_node("Reshape", ["y", "sizes"], ["z"]))
        ps.save(model, "small.onnx", external_data=True, size_threshold=1)
        monkeypatch.setattr(os, "open", refusing("small.onnx.data", errno.EIO))
        more = ["--opset", "9", "-o", "out.onnx"] if kind == "convert" else []
        status, told = answered([kind, "small.onnx", *more], capsys)
        with pytest.raises(UnreadableDataError, match="Input/output error"):
            Value("w", tensor=ps.load("small.onnx").graph.initializer[0]).array()
    assert status == 2 and "Input/output error" in told, told


def test_a_data_file_that_scan_cannot_ask_about(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if os.path.basename(os.fspath(path)) == DATA:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, *args, **kwargs)

    real = os.lstat
    monkeypatch.setattr(os, "lstat", asked)
    status, told = answered(VERBS["scan"], capsys)
    assert status == 2 and "Permission denied" in told and "m.onnx.data" in told


def failing(*_: Any) -> Any:
    from proto_schema.external.copying import reading

    with reading():
        raise OSError(errno.EIO, os.strerror(errno.EIO), DATA)


def test_no_memory_has_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise MemoryError("Unable to allocate 8.00 GiB")

    monkeypatch.setattr(ps.checker, "check_model", refused)
    status, told = answered(VERBS["check"], capsys)
    assert status == 2
    assert "there is not enough memory for this (Unable to allocate 8.00 GiB); free some, or raise its limit" in told


LIMITED = """
import os, resource, sys
from purexport.cli.main import main
import proto_schema.checker
kind, number = sys.argv[1:3]
if kind == "NOFILE":
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
    number = max(held) + 2  # one is left, for the model
else:
    pages = int(open("/proc/self/statm").read().split()[0])
    number = pages * resource.getpagesize() + int(number)
resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (int(number), int(number)))
sys.exit(main(["check", "big.onnx"]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits as Linux has them")
@pytest.mark.parametrize(("kind", "cause"), [("AS", "Cannot allocate memory"), ("NOFILE", "Too many open files")])
def test_real_limits(kind: str, cause: str) -> None:
    """`ulimit -v` beside two gigabytes of data, which are mapped at once; a process without descriptors."""
    entries = {"location": "big.data", "length": str(1 << 31)}
    tensor = ps.TensorProto(name="w", data_type=ps.TensorProto.INT8, dims=[1 << 31], data_location=1)
    tensor.external_data = [ps.StringStringEntryProto(key=key, value=value) for key, value in entries.items()]
    graph = helper.make_graph([], "g", [], [helper.make_tensor_value_info("w", 3, [1 << 31])], [tensor])
    Path("big.onnx").write_bytes(ps.dumps(helper.make_model(graph, ir_version=8)))
    with open("big.data", "wb") as file:
        file.truncate(1 << 31)
    words = [sys.executable, "-c", LIMITED, kind, str(1 << 28)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 2 and cause in done.stderr and "not valid" not in done.stdout, done
