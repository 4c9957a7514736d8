"""What verbs print: plain text in a pipe; colour, and columns by rich where it is installed, on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

import proto_schema as ps
from purexport.cli.main import main
from purexport.cli.warned import told
from tests.inspect.test_tree import SAMPLE_BYTES, sample_model

ROOT = Path(__file__).parents[2]
END = "-- end --"
# the command lines are one text for all, since Python and numpy take longer to start than each of them to run
RUN = f"""
import json, sys
from purexport.cli.main import main
for argv in json.loads(sys.argv[1]):
    status = main(argv)
    sys.stdout.flush(), sys.stderr.flush()
    print({END!r}, flush=True)
sys.exit(status)
"""
WITHOUT_RICH = f"import sys; sys.modules['rich'] = None; {RUN}"
needs_rich = pytest.mark.skipif(find_spec("rich") is None, reason="rich is not installed (pip install rich)")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(SAMPLE_BYTES)
    return tmp_path / "m.onnx"


def command(argvs: Sequence[Sequence[object]], code: str) -> list[str]:
    return [sys.executable, "-c", code, json.dumps([[str(word) for word in argv] for argv in argvs])]


def parted(text: str) -> list[str]:
    """What each command line has printed."""
    return text.split(f"{END}\n")[:-1]


def environment(**more: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS", "FORCE_COLOR")
    }
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TERM": "xterm",
        **more,
    }


def in_pipe(*argvs: Sequence[object], code: str = RUN) -> list[str]:
    """What a pipe gets of each of the command lines."""
    done = subprocess.run(command(argvs, code), env=environment(), capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return parted(done.stdout)


def on_terminal(*argvs: Sequence[object], code: str = RUN, **more: str) -> list[str]:
    """What a terminal of 100 columns gets of each of them, stderr too."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        command(argvs, code), env=environment(COLUMNS="100", **more), stdin=slave, stdout=slave, stderr=slave
    ):
        os.close(slave)
        parts = []
        try:
            while part := os.read(master, 65536):
                parts.append(part)
        except OSError:  # how a terminal says that nobody writes any more
            pass
    os.close(master)
    return parted(b"".join(parts).decode().replace("\r\n", "\n"))


def bare(text: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


VERBS = [("show",), ("stat",), ("inspect",), ("check", "--parsers")]


@pytest.mark.full
def test_a_pipe_gets_the_same_with_and_without_rich(file: Path) -> None:
    argvs = [(*verb, file) for verb in VERBS]
    texts = in_pipe(*argvs)
    assert len(texts) == len(VERBS) and all(texts) and texts == in_pipe(*argvs, code=WITHOUT_RICH)
    assert "\x1b" not in "".join(texts) and "".join(texts).isascii()
    assert "MatMul  x, fc.weight -> h\n" in texts[0] and "Pad     h -> y: float32[...]" in texts[0]


def test_a_terminal_without_rich(file: Path) -> None:
    """The lines of the pipe, cut to its width, with colours."""
    argvs = [(*verb, file) for verb in VERBS]
    texts = on_terminal(*argvs, code=WITHOUT_RICH)
    without_colours = on_terminal(*argvs, code=WITHOUT_RICH, NO_COLOR="1")
    for text, plain, bleak in zip(texts, in_pipe(*argvs), without_colours, strict=True):
        assert "\x1b[" in text
        for shown, whole in zip(bare(text).splitlines(), plain.splitlines(), strict=True):
            assert shown == whole or (shown.endswith("...") and whole.startswith(shown[:-3]))
        assert bare(text) == bleak


# what a terminal with rich shows of a verb, whatever lies between
TABLES = [
    (
        "show",
        [
            "m.onnx,",
            "inputs",
            "name type",
            "x float32[batch, 64]",
            "operator count",
            "MatMul 1 ####",
            "operator from to type attributes",
            "0 MatMul x, fc.weight h ? 1 Pad h y float32[...] mode=",
        ],
    ),
    (
        "stat",
        ["m.onnx, ", "bytes by use", "weights 16.4 kB 98", "largest of 2 tensors", "fc.weight FLOAT[64, 64]"],
    ),
]


@needs_rich
def test_a_terminal_with_rich(file: Path) -> None:
    argvs = [(verb, file) for verb, _ in TABLES]
    texts, without_colours = on_terminal(*argvs), on_terminal(*argvs, NO_COLOR="1")
    for (verb, parts), text, bleak in zip(TABLES, texts, without_colours, strict=True):
        assert "\x1b[" in text, verb
        flat = " ".join(bare(text).split())
        for part in parts:
            assert part in flat, (part, flat)
        assert max(map(len, bare(text).splitlines())) <= 100
        assert " ".join(bleak.split()) == flat  # columns without colours


@pytest.mark.full
@needs_rich
def test_a_terminal_that_can_do_nothing_gets_what_a_pipe_gets(file: Path) -> None:
    assert on_terminal(("show", file), TERM="dumb") == in_pipe(("show", file))


@pytest.mark.parametrize("code", [pytest.param(RUN, marks=needs_rich), WITHOUT_RICH], ids=["rich", "without"])
def test_names_do_not_move_the_cursor(code: str, tmp_path: Path) -> None:
    model = sample_model()
    assert model.graph is not None
    model.graph.node[0].output[0] = model.graph.input[0].name = "[red]a[/red]\x1b[2J\x07"
    (tmp_path / "m.onnx").write_bytes(ps.dumps(model))
    texts = on_terminal(*((verb, tmp_path / "m.onnx") for verb in ("show", "stat", "inspect")), code=code)
    assert len(texts) == 3
    for text in texts:
        assert "\x1b[2J" not in text and "\x07" not in text
    assert "[red]a[/red]\\x1b[2J\\x07" in bare(texts[0])


EVIL = "a\u202eb\u2066\u200b\ufeff\u061c\u2028\U000e0041\xad\x1b[2J\x85\nforged"

# the command line; {evil} stands for the text above, which is also every name in evil.onnx and the other files
SAID = [
    "show evil.onnx",
    "inspect evil.onnx --depth 9",
    "inspect evil.onnx graph.node[0] --hex",
    "inspect evil.onnx graph.nod[0]",
    "inspect evil.onnx {evil}",
    "inspect broken.onnx",
    "locate evil.onnx 0x40",
    "locate evil.onnx graph.node",
    "locate external.onnx 0 --data {evil}",
    "stat evil.onnx --duplicates",
    "stat external.onnx",
    "check evil.onnx --parsers",
    "check undefined.onnx",
    "check undefined.onnx --full --traceback",
    "check external.onnx",
    "infer evil.onnx",
    "infer evil.onnx -o {evil}",
    "infer undefined.onnx",
    "convert evil.onnx --opset 12 --dry-run",
    "simplify evil.onnx --dry-run --json",
    "simplify evil.onnx -o {evil}",
    "run evil.onnx --trace",
    "run evil.onnx --input {evil}=float32[1]",
    "run evil.onnx --dim {evil}",
    "convert evil.onnx --opset {evil} --dry-run",
    "convert evil.onnx --opset 21 -o {evil}",
    "quantize evil.onnx --dry-run",
    "quantize evil.onnx --type {evil} --dry-run",
    "quantize evil.onnx --type float16 -o {evil}",
    "diff evil.onnx broken.onnx",
    "diff evil.onnx twice.onnx",
    "edit evil.onnx --set producer_name=me -o out",
    "edit evil.onnx --rename-value {evil}=y -o out",
    "edit evil.onnx --rename-value nothing={evil} -o out",
    "edit evil.onnx --drop-doc-strings -o out",
    "edit evil.onnx --drop-doc-strings -o {evil}",
    "extract evil.onnx --tensor nothing -o out",
    "extract evil.onnx --tensor nothing -o out --traceback",
    "extract evil.onnx --tensor {evil} -o {evil}",
    "extract evil.onnx --outputs nothing -o out",
    "extract evil.onnx --outputs y --inputs nothing -o out",
    "extract strings.onnx --tensors -o out",
    "extract external.onnx --tensors -o out",
    "extract twice.onnx --tensors -o out --traceback",
    "salvage evil.onnx -o out",
    "salvage broken.onnx -o {evil}",
    "salvage {evil} -o out",
    "html broken.onnx -o {evil}",
    "canonicalize evil.onnx -o {evil}",
    "canonicalize {evil} -o out --traceback",
    "completion {evil}",
    "show evil.onnx {evil}",
    "show evil.onnx --{evil}",
    "{evil}",
    "export {evil}:Net",
    "export os:{evil}",
    "export torch.nn:ReLU --input {evil}=float32[1] -o {evil}",
    "export torch.nn:ReLU --input x=@{evil}",
    "export torch.nn:ReLU --input x=float32[1] --weights {evil}",
    "export torch.nn:ReLU --input x=float32[1] --weights evil.safetensors -o out",
    "export torch.nn:ReLU --input x=float32[1] --weights evil.safetensors --partial -o out",
    "export torch.nn:ReLU --input x=float32[1] --dynamic x:0={evil} -o out",
]


def _evil_model() -> ps.ModelProto:
    """As many texts as there are say EVIL."""
    model = sample_model()
    assert model.graph is not None
    node, weight = model.graph.node[0], model.graph.initializer[0]
    node.name = node.input[1] = weight.name = model.graph.name = model.producer_name = model.doc_string = EVIL
    node.output[0] = model.graph.node[1].input[0] = f"h{EVIL}"
    node.attribute.append(ps.helper.make_attribute(EVIL, EVIL))
    model.graph.input[0].type = ps.helper.make_tensor_type_proto(ps.TensorProto.FLOAT, [EVIL, 64])
    model.metadata_props.append(ps.StringStringEntryProto(key=EVIL, value=EVIL))
    model.opset_import.append(ps.helper.make_opsetid(EVIL, 1))
    return model


@pytest.fixture
def evil_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = ps.dumps(_evil_model())
    Path("evil.onnx").write_bytes(data)
    Path("broken.onnx").write_bytes(data[:-200])

    def changed(name: str, change: Callable[[ps.GraphProto, ps.TensorProto], None]) -> None:
        model = ps.loads(data)
        assert model.graph is not None
        change(model.graph, model.graph.initializer[0])
        Path(name).write_bytes(ps.dumps(model))

    def strings(_: ps.GraphProto, tensor: ps.TensorProto) -> None:
        tensor.data_type, tensor.raw_data, tensor.string_data = ps.TensorProto.STRING, None, [b"x"] * 4096

    def external(_: ps.GraphProto, tensor: ps.TensorProto) -> None:
        tensor.raw_data, tensor.data_location = None, ps.TensorProto.EXTERNAL
        tensor.external_data = [ps.StringStringEntryProto(key="location", value=EVIL)]

    changed("undefined.onnx", lambda graph, _: graph.node[0].input.append(f"{EVIL}2"))
    changed("twice.onnx", lambda graph, tensor: graph.initializer.append(tensor))
    changed("strings.onnx", strings)
    changed("external.onnx", external)
    head = json.dumps({EVIL: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    Path("evil.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(4))


@pytest.mark.parametrize("argv", SAID)
def test_no_text_of_a_file_does_more_than_be_shown(
    argv: str, evil_files: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """No verb, error or usage writes a control, an invisible character, one that turns others around, or a new line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main([word.replace("{evil}", EVIL) for word in argv.split()])
    out, err = capfd.readouterr()
    assert out + err
    assert [char for char in out + err if not char.isprintable() and char != "\n"] == []
    assert "\nforged" not in out + err


WARNS = """
import warnings, torch

class Net(torch.nn.Module):
    def forward(self, x):
        for _ in range(3):
            warnings.warn("first\\n  second")
            if x.sum() > 0:
                x = x + 1
        return x
"""


WARNED = [
    "purexport export: warning: net.py:7: first second",
    "purexport export: warning: the model takes a truth value at net.py:8 that the data decides; the file has that of "
    "the example; script the function or use torch.cond for both",
]
WARNING = ["export", "net.py:Net", "--input", "x=float32[2]", "--capture", "trace", "-o", "m.onnx"]


def test_a_warning_is_one_line_in_our_words_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "net", raising=False)
    (tmp_path / "net.py").write_text(WARNS)
    assert main(WARNING) == 0
    # the second has its own place; the one before it is that of the caller, of this test here
    lines = capsys.readouterr().err.replace(f"{__file__}:", "here:").splitlines()
    assert [re.sub(r"here:\d+: ", "", line) for line in lines] == WARNED


def test_a_warning_of_the_script_that_calls_us_has_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "purexport"
    script.write_text("main()\n")
    monkeypatch.setattr(sys, "argv", [str(script)])
    with told("export"):
        warnings.warn_explicit("said", UserWarning, str(script), 1)
    assert capsys.readouterr().err == "purexport export: warning: said\n"


@pytest.mark.full
def test_a_warning_where_a_progress_line_is_drawn(tmp_path: Path) -> None:
    """The warning takes its place, and it is drawn again below; in a pipe there are the warnings alone."""
    (tmp_path / "net.py").write_text(WARNS)
    code = f"import os; os.chdir({str(tmp_path)!r})\n{RUN}"
    done = subprocess.run(command([WARNING], code), env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()) == (0, WARNED)
    [text] = on_terminal([*WARNING, "--force"], code=code)
    drawn = [part for part in re.split(r"[\r\n]+", bare(text)) if part.strip()]
    assert drawn[0] == "capture (1/6)"
    assert drawn[1] == WARNED[0]
    assert drawn[2].startswith("functionalize")
    assert drawn[3] == WARNED[1]


def test_an_error_begins_in_red(tmp_path: Path) -> None:
    [text] = on_terminal(("show", tmp_path / "none.onnx"))
    assert text.startswith("\x1b[31mpurexport show:\x1b[0m ") and "none.onnx: No such file" in text
    [text] = on_terminal(("show", tmp_path / "none.onnx"), NO_COLOR="1")
    assert text.startswith("purexport show: ")
