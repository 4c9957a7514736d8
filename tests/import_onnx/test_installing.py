"""`import onnx` where there is no onnx: scripts give what they give with onnx; install leaves an installed one alone.

The processes of these tests have no onnx, protobuf or ml_dtypes: a `sitecustomize` says that there are none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = Path(__file__).parent / "scripts"
WITHOUT = "import sys\nfor name in ('onnx', 'google', 'ml_dtypes'):\n    sys.modules[name] = None\n"


def run(folder: Path, *arguments: str, without: bool) -> str:
    """What a Python process prints, in `folder`."""
    path = [str(ROOT)]
    if without:
        (folder / "without").mkdir(exist_ok=True)
        (folder / "without" / "sitecustomize.py").write_text(WITHOUT)
        path.insert(0, str(folder / "without"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_scripts_give_the_same(tmp_path: Path) -> None:
    printed, models = [], []
    for name, command, without in (("official", [], False), ("ours", ["-m", "proto_schema.compat"], True)):
        folder = tmp_path / name
        folder.mkdir()
        printed.append(
            [
                run(folder, *command, str(SCRIPTS / "make_model.py"), "made.onnx", without=without),
                run(folder, *command, str(SCRIPTS / "print_graph.py"), "made.onnx", without=without),
                run(
                    folder,
                    *command,
                    str(SCRIPTS / "edit_initializers.py"),
                    "made.onnx",
                    f"{folder}/new.onnx",
                    without=without,
                ),
                run(folder, *command, str(SCRIPTS / "print_graph.py"), "new.onnx", without=without),
            ]
        )
        models.append([(folder / file).read_bytes() for file in ("made.onnx", "new.onnx", "weights.bin")])
    assert printed[1] == printed[0]
    assert models[1] == models[0]


ABSENT = """
import proto_schema as ps
try:
    import onnx
except ImportError:
    pass
else:
    raise SystemExit("onnx can be imported: the test shows nothing")
assert ps.compat.install() is True and ps.compat.install() is True
import onnx, onnx.helper
from onnx import TensorProto, numpy_helper
from onnx.onnx_pb import ModelProto
import importlib.util
assert onnx.ModelProto is ModelProto and onnx.__version__ and onnx.helper.make_node
assert importlib.util.find_spec("onnx") is not None and importlib.util.find_spec("onnx.helper") is not None
assert numpy_helper.to_array(onnx.helper.make_tensor("t", TensorProto.BFLOAT16, [1], [1.0])).dtype == "float32"
for name in ("onnx.nonsense", "onnx.helper.nonsense"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        assert "onnx" in str(error), error
    else:
        raise SystemExit(name)
import onnx.hub
try:
    onnx.hub.load("resnet50")
except NotImplementedError as error:
    assert "downloads" in str(error)
from onnx.backend.test.loader import _im2col
try:
    _im2col()
except NotImplementedError as error:
    assert "inner part" in str(error)
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError, Message
node = onnx.helper.make_node("Relu", ["x"], ["y"], op_kind=1)
assert isinstance(node, Message) and text_format.MessageToString(node) == str(node)
assert text_format.Parse(str(node), onnx.NodeProto()) == node
assert json_format.Parse(json_format.MessageToJson(node), onnx.NodeProto()) == node
assert json_format.MessageToDict(node)["opType"] == "Relu"
for call, kind in ((lambda: onnx.load_from_string(b"\\xff"), DecodeError),
                   (lambda: text_format.Parse("nonsense: 1", node), text_format.ParseError)):
    try:
        call()
    except kind:
        pass
    else:
        raise SystemExit(kind)
assert ps.compat.uninstall() is True and ps.compat.uninstall() is False
for name in ("onnx", "google.protobuf"):
    try:
        __import__(name)
    except ImportError:
        pass
    else:
        raise SystemExit(name)
print("gone")
"""

PRESENT = """
import onnx as official
import proto_schema as ps
assert ps.compat.install() is False
import onnx
assert onnx is official
assert ps.compat.install(force=True) is True
import onnx, onnx.checker
assert onnx is not official and "proto_schema" in onnx.checker.__name__
assert official.helper.make_node("Relu", ["x"], ["y"]).op_type == "Relu"
made = onnx.helper.make_node("Relu", ["x"], ["y"])
core = ps.compat.plain(made)
assert isinstance(core, ps.NodeProto) and ps.compat.mannered(core) is made
core.name = "seen"
assert made.name == "seen"
assert ps.compat.uninstall() is True
import onnx
assert onnx is official
import onnx.checker
assert "proto_schema" not in onnx.checker.__name__
print("back")
"""


@pytest.mark.parametrize(("code", "without", "word"), [(ABSENT, True, "gone"), (PRESENT, False, "back")])
def test_install_and_uninstall(code: str, without: bool, word: str, tmp_path: Path) -> None:
    assert run(tmp_path, "-c", code, without=without) == f"{word}\n"


COMMANDS = [
    (["-c", "import onnx, sys; print(onnx.__name__, sys.argv)", "a"], "proto_schema.compat.modules ['-c', 'a']\n"),
    (["script.py", "a", "-b"], "proto_schema.compat.modules ['script.py', 'a', '-b'] __main__\n"),
    (["-m", "script", "a"], "proto_schema.compat.modules"),
]


@pytest.mark.parametrize(("arguments", "expected"), COMMANDS)
def test_command(arguments: list[str], expected: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import onnx, sys; print(onnx.__name__, sys.argv, __name__)\n")
    assert run(tmp_path, "-m", "proto_schema.compat", *arguments, without=True).startswith(expected)


@pytest.mark.parametrize("arguments", [[], ["-c"], ["-m"]])
def test_command_without_script(arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "proto_schema.compat", *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "usage" in done.stdout + done.stderr
