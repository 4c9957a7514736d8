"""The fuzz harnesses, shortly and always alike: each holds on some inputs, and each notices when its invariant breaks.

`python -m fuzz HARNESS` runs them for as long as one likes (docs/development/fuzzing.md).
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random
from typing import Any

import pytest

import proto_schema as ps
from fuzz import bounds, checker, checkpoints, differential, engine, external, growth, inspector, tools
from fuzz.__main__ import HARNESSES, main
from fuzz.engine import Session, outcome, plain
from fuzz.harness import CLASSES, difference, joined, split
from fuzz.mutate import mutated
from fuzz.seeds import models
from proto_schema import external as external_data
from proto_schema.wire import codec, generate, interpret
from tests.proto_schema.checker_models import valid, value
from tests.proto_schema.checker_rows_data import STRICTER, STRICTER_FULL

ROOT = Path(__file__).parents[2]

# harness: executions, and the ways of behaving that they, and a third of them, must at least reach
RUNS = {
    "decoder": (600, 20, 12),
    "differential": (2000, 120, 120),
    "codecs": (500, 100, 20),
    "messages": (1500, 150, 100),
    "growth": (40, 30, 10),
    "safetensors": (1200, 30, 25),
    "torchzip": (1200, 40, 100),
    "torchlegacy": (1200, 40, 90),
    "gguf": (600, 20, 15),
    "checkpoints": (1200, 30, 120),
    "external": (250, 70, 45),
    "inspect": (250, 80, 35),
    "tools": (400, 60, 50),
    "checker": (400, 50, 30),
    "folders": (60, 15, 7),
}
ROWS = [
    *(pytest.param(name, runs // 3, few, id=name) for name, (runs, _, few) in RUNS.items()),
    *(pytest.param(name, *row[:2], id=f"{name}-all", marks=pytest.mark.full) for name, row in RUNS.items()),
]


@pytest.mark.parametrize(("name", "runs", "words"), ROWS)
def test_invariant_holds(name: str, runs: int, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "SMALL", growth.SMALL // 16)
    harness = HARNESSES[name]
    seen = []

    class Recorded(Session):
        def execute(self, data: bytes) -> str:
            seen.append(super().execute(data))
            return seen[-1]

    session = Recorded(harness, runs)
    plain(session, seed=1)
    assert session.findings == {}
    assert session.executions == runs
    assert len(set(seen)) >= words


def refuse(*_: Any) -> Any:
    raise ps.DecodeError("no", 0)


def refuse_outside(*_: Any) -> Any:
    raise ps.DecodeError("no", 1 << 40)


def accept(cls: type[ps.Message], *_: Any) -> ps.Message:
    return cls()


def crash(*_: Any) -> Any:
    raise IndexError("out of range")


def ignore(*_: Any) -> None:
    """Neither a check nor a result."""


def nothing(*_: Any) -> Any:
    return iter(())


def emptied(path: Path, *_: Any) -> None:
    path.write_bytes(b"")


MODEL = models()[1]
VALID = ps.dumps(valid())
NODE = joined(ps.NodeProto, bytes.fromhex("0a01611a0162"))
BAD = joined(ps.NodeProto, bytes.fromhex("0a0261"))
OUTSIDE = bytes([checkpoints.PART]) + b'{"a":{"dtype":"U8","shape":[97],"data_offsets":[0,97]}}'
TENSOR = bytes([checkpoints.PART]) + checkpoints.PICKLES[0]
LEGACY = bytes([checkpoints.PART]) + checkpoints.LEGACY_PICKLES[0]
GGUF = bytes([checkpoints.PART]) + checkpoints.GGUF_HEADERS[3]
BEFORE = TENSOR.replace(b"tQK\0", b"tQJ\0\0\0\x80")
MEASURED = next(data for end in range(99) if zlib.crc32(data := b"\0{" + b" " * end) % bounds.MEASURED == 0)

VALID_MODEL, NO_MODEL = bytes([*bytes(7), 1]), bytes([*bytes(7), 12])


def at(location: str, dims: int = 0) -> bytes:
    """One tensor of floats at this location, whose values are asked for."""
    return bytes([0, 0, 0, 1, 0, external.PIECES.index(location), 0, 0, dims, 0, 5, 0])


def room(name: str) -> Any:
    """A module of purexport.inspect, some of which are called as a function in it."""
    return importlib.import_module(f"purexport.inspect.{name}")


def tool(number: int, *arguments: int, content: bytes = MODEL) -> bytes:
    """A file for a tool of the inspector."""
    return bytes([number, *arguments]).ljust(inspector.HEAD, b"\0") + content


def changed(number: int, *arguments: int) -> bytes:
    """A valid model for a tool that changes models."""
    return bytes([number, *arguments]).ljust(tools.HEAD, b"\0") + VALID


def renamed(model: ps.ModelProto, *_: Any) -> ps.ModelProto:
    model.producer_name = "another"
    return model


def unchanged(model: ps.ModelProto, *_: Any) -> ps.ModelProto:
    return model


def careless(target: Any, *_: Any) -> None:
    Path(target.path).write_bytes(b"")
    Path(target.path).with_name("w.bin").unlink()


def is_no_name(_: Any, child: Any) -> bool:
    return bool(child.field.name != "producer_name")


def complain(*_: Any) -> None:
    raise ps.CheckError("no")


# (harness, input, what to replace by what, how the finding begins)
BROKEN = [
    ("decoder", MODEL, ("proto_schema.files.models.decode", crash), "IndexError"),
    ("decoder", MODEL, ("proto_schema.files.models.decode", refuse_outside), "Violation: the offset"),
    ("decoder", MODEL, ("proto_schema.wire.codec.size", lambda _: 7), "Violation: ByteSize"),
    ("decoder", MODEL, ("proto_schema.files.models.encode", lambda _: b"\xff" * 3), "Violation: ByteSize"),
    ("differential", NODE, ("proto_schema.wire.codec.decode", refuse), "Violation: only upb accepts it"),
    ("differential", BAD, ("proto_schema.wire.codec.decode", accept), "Violation: only ours accepts it"),
    ("differential", NODE, ("proto_schema.wire.codec.decode", accept), "Violation: the two write different bytes"),
    ("codecs", NODE, ("proto_schema.wire.codec.decode", accept), "Violation: FromString, untouched: the generated"),
    ("codecs", NODE, ("proto_schema.wire.interpret.decode", refuse), "Violation: only generated code (narrow"),
    ("codecs", NODE, ("proto_schema.wire.interpret.encode", lambda _: b""), "Violation: FromString, untouched: the"),
    ("codecs", BAD, ("proto_schema.wire.codec.decode", refuse), "Violation: FromString and the interpreter word"),
    (
        "messages",
        bytes(range(200)),
        ("proto_schema.wire.interpret.encode", lambda _: b"\0"),
        "Violation: the generated",
    ),
    (
        "messages",
        bytes(range(200)),
        ("proto_schema.wire.codec.decode", accept),
        "Violation: encoding and decoding changed",
    ),
    ("growth", NODE, ("fuzz.growth.SLACK", -(1 << 40)), "Violation: it takes more than 512 bytes of memory"),
    (
        "safetensors",
        OUTSIDE,
        ("purexport.weights.safetensors._check_cover", lambda *_: None),
        "Violation: a range lies out",
    ),
    ("safetensors", OUTSIDE, ("purexport.weights.safetensors._row", crash), "IndexError"),
    (
        "safetensors",
        MEASURED,
        ("fuzz.bounds.SLACK", -(1 << 40)),
        "Violation: it takes more than 512 bytes of memory a",
    ),
    ("torchzip", BEFORE, ("purexport.weights.torchvalues.is_size", lambda _: True), "OSError: [Errno 22]"),
    ("torchzip", TENSOR, ("purexport.weights.torchvalues._row", refuse), "DecodeError"),
    ("torchzip", TENSOR, ("fuzz.bounds.SLOWEST", -1.0), "Violation: it takes more than -1.0 seconds"),
    (
        "torchlegacy",
        LEGACY,
        ("purexport.weights.torchlegacy._LegacyStorages.begin", lambda *_: 1 << 20),
        "Violation: a range lies out",
    ),
    ("gguf", GGUF, ("purexport.weights.gguf.payload.whole", lambda *_: ()), "Violation: a tensor has another size"),
    ("gguf", GGUF, ("purexport.weights.gguffile._infos", crash), "IndexError"),
    ("checkpoints", MEASURED, ("purexport.weights.index.parsed", crash), "IndexError"),
    ("external", at("../outside/w.bin"), (external_data, "_check_location", ignore), "Violation: bytes from outside"),
    ("external", at("linked"), (external_data, "_FILE", os.O_NONBLOCK), "Violation: a file outside of the folder is o"),
    (
        "external",
        at("hard", 3),
        (external_data.Folder, "_refuse_foreign_links", ignore),
        "Violation: a file that has",
    ),
    ("external", at("w.bin"), (external, "to_array", crash), "IndexError"),
    ("external", at("w.bin"), (bounds, "SLOWEST", -1.0), "Violation: it takes more than -1.0 seconds"),
    (
        "external",
        b"\x0d",
        ("proto_schema.files.commit.OutputFile.write", careless),
        "Violation: a file that is not the result",
    ),
    ("inspect", tool(0), (room("elements").Bytes, "children", nothing), "Violation: elements do not end where"),
    ("inspect", tool(1, 1, 9), (room("locate"), "_part", ignore), "Violation: an unknown part"),
    ("inspect", tool(3), (inspector, "_model", ignore), "Violation: the findings and the decoder give two verdicts"),
    ("inspect", tool(3), (ps, "dumps", ignore), "Violation: findings and encoder disagree"),
    ("inspect", tool(4), (room("sizes"), "_use", lambda *_: "weights in data files"), "Violation: the bytes by use"),
    ("inspect", tool(5), (ps.checker, "check_model", emptied), "Violation: the file itself was changed"),
    ("inspect", tool(6, 0, 1), (room("compare"), "_by_key", lambda _: {}), "Violation: two files are said to be"),
    ("inspect", tool(7), (room("orders"), "_record", lambda *_: b""), "Violation: an edit does other than"),
    ("inspect", tool(9), (room("forms"), "encode_parts", lambda _: ([], 0)), "Violation: it is not the model's"),
    ("inspect", tool(11), (room("salvage")._Keeper, "_sound", is_no_name), "Violation: something of a sound file"),
    ("inspect", tool(12), (room("html"), "parts", lambda *_: [b"\xe9"]), "Violation: the page is not what"),
    ("tools", changed(14), (tools, "scan", crash), "IndexError"),
    ("tools", changed(0), (bounds, "SLOWEST", -1.0), "Violation: it takes more than -1.0 seconds"),
    ("tools", changed(1, 6), (ps.version_converter, "convert_version", unchanged), "Violation: the result is at anoth"),
    ("tools", changed(8), (ps.compose, "add_prefix", renamed), "Violation: the given model was changed"),
    ("tools", changed(8), (ps.compose, "add_prefix", lambda *_: ps.ModelProto()), "Violation: of a valid model an inv"),
    (
        "tools",
        changed(0),
        (tools, "infer_with_problems", lambda *_, **__: (ps.ModelProto(), [])),
        "Violation: inference c",
    ),
    (
        "inspect",
        tool(13),
        ("purexport.cli.verbs.show.ps.load", crash),
        "Violation: a verb has no words of its own for a",
    ),
    (
        "tools",
        changed(15, 1),
        ("proto_schema.conversion.engine.Engine.run", crash),
        "Violation: a verb has no words of",
    ),
    ("tools", changed(16), ("proto_schema.reference.evaluator.given", crash), "IndexError"),
    ("checker", NO_MODEL, (ps.checker, "check_model", ignore), "Violation: ours: valid; the official one: The model"),
    ("checker", VALID_MODEL, (ps.checker, "check_model", complain), "Violation: ours: no; the official one: valid"),
    ("checker", VALID_MODEL, (ps.checker, "check_model", crash), "IndexError"),
]


@pytest.mark.parametrize(("name", "data", "change", "finding"), BROKEN, ids=[row[3] for row in BROKEN])
def test_broken_invariant_is_found(
    name: str, data: bytes, change: tuple[Any, ...], finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome(HARNESSES[name], data)[1] == ""
    monkeypatch.setattr(*change)
    assert outcome(HARNESSES[name], data)[1].startswith(finding)


def test_merging_unknown_fields_is_linear() -> None:
    pattern = bytes.fromhex("3a2ba20628") + bytes(40)  # graph, with an unknown field in it
    assert outcome(growth.HARNESS, joined(ps.ModelProto, pattern))[1] == ""


def test_quadratic_work_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that counts squares stands in for a decoder that takes that long."""
    sizes = []
    monkeypatch.setattr(growth, "_run", lambda _, data: sizes.append(len(data)) or ("accepted", len(data) ** 2 / 1e11))
    assert "eight times the input" in outcome(growth.HARNESS, NODE)[1]
    assert max(sizes) > 7 * min(sizes)


def test_what_is_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of the table of known disagreements excuses something, and none excuses other refusals."""
    monkeypatch.setattr(codec, "BUDGET_BASE", 0)
    monkeypatch.setattr(codec, "BUDGET_RATE", 0)
    assert outcome(differential.HARNESS, NODE) == (
        "NodeProto its messages need more than  MiB: hostile, or no model at all",
        "",
    )
    assert [reason for excused, reason in differential.KNOWN if excused(ps.DecodeError("no", 0))] == []
    assert len(differential.KNOWN) == 1


def test_what_the_checkers_may_disagree_on() -> None:
    """The rows of where we are stricter are those of the table, which has some more of the official checker's own."""
    used = set()
    for full, (name, change, _) in [*((False, row) for row in STRICTER), *((True, row) for row in STRICTER_FULL)]:
        model = valid()
        change(model)
        theirs = checker.official(model.SerializeToString(), full)
        with pytest.raises(ps.CheckError) as caught:
            ps.checker.check_model(model, full)
        reason = checker.excused(str(caught.value), theirs, model)
        assert reason or theirs, name
        used.add(reason)
    others = [
        ('graph.node[5].attribute["body"].g.output: has 3 outputs; Loop takes 2', ""),
        ("", "Data of TensorProto ( tensor name: n) should be stored in a.bin, but it is not regular file."),
        (
            "",
            "[TypeInferenceError] Cannot infer type and shape for node name . No opset import for domain  optype Relu",
        ),
        ("", "Invalid tensor data type 0."),
        ("", "[TypeInferenceError] Input type for input at index 0 is null"),
        ("", "[TypeInferenceError] type case mismatch. existing=sequence_type inferred=tensor_type"),
        ("", "[ShapeInferenceError] Inferred shape and existing shape differ in rank: (2) vs (4)"),
        (
            "",
            "[ShapeInferenceError] Inference error(s): (op_type:Twice, node name: call): [ShapeInferenceError] "
            "Inference error(s): (op_type:Add): [TypeInferenceError] Input 0 expected to have type but instead is null",
        ),
    ]
    used.update(checker.excused(*pair, valid()) for pair in others)
    again = valid()
    again.graph.output.append(value("x", code=7))
    used.add(checker.excused("graph.node[0].input[0]: is tensor(int64)", "", again))
    clipped = "graph.node[4].output[0]: is declared as tensor(bfloat16), but Clip makes tensor(float)"
    used.add(checker.excused(clipped, "", valid()))
    assert used - {""} == {reason for _, reason in checker.KNOWN}
    for pair in (("graph.name: is required", ""), ("", "Field 'name' is required"), ("calls are nested more", "too")):
        assert not checker.excused(*pair, valid())


def test_a_finding_is_written_shown_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interpret, "decode", refuse)
    arguments = ["codecs", "--runs", "3", "--seed", "5", "--plain", "--out", str(tmp_path)]
    assert main(arguments) == 1
    shown = capsys.readouterr().out
    assert "3 executions" in shown and "/s, 1 findings" in shown and HARNESSES["codecs"].invariant in shown
    (written,) = tmp_path.iterdir()
    assert f"input: {written.read_bytes().hex()}" in shown
    assert main(["codecs", "--replay", str(written)]) == 1
    monkeypatch.undo()
    assert main(["codecs", "--replay", str(written)]) == 0
    assert main(["messages", "--runs", "3", "--plain"]) == 0
    assert "3 executions" in capsys.readouterr().out


def test_findings_are_made_small() -> None:
    def check(data: bytes) -> str:
        if 7 in data:
            raise ValueError("seven")
        return ""

    harness = engine.Harness("seven", "no byte is 7", KeyError, check, list)
    assert engine.smaller(harness, bytes(range(50)), "ValueError: seven") == b"\x07"


def test_mutation_is_deterministic_and_varied() -> None:
    first, again = ([mutated(MODEL, MODEL, rng, 4096) for _ in range(300)] for rng in (Random(3), Random(3)))
    assert first == again
    assert len(set(first)) > 280
    assert sum(outcome(HARNESSES["decoder"], data)[0].startswith("accepted") for data in first) > 60
    assert max(len(mutated(MODEL, MODEL, Random(seed), 100)) for seed in range(50)) <= 100


def test_every_class_is_reached() -> None:
    assert CLASSES[0] is ps.ModelProto and len(CLASSES) == 33
    assert all(split(joined(cls, b"x")) == (cls, b"x") for cls in CLASSES)
    assert split(b"") == (ps.ModelProto, b"")
    assert {split(data)[0] for data in HARNESSES["codecs"].seeds()} == set(CLASSES)


# (a field's value and another, where they differ): types and NaN bits that == would not tell apart
NAN, OTHER_NAN = (ps.AttributeProto.FromString(bytes.fromhex(f"15{bits}c07f")).f for bits in ("0000", "0100"))
DIFFERENT = [
    (ps.AttributeProto(i=1), ps.AttributeProto(i=True), "message.i"),
    (ps.AttributeProto(f=0.0), ps.AttributeProto(f=-0.0), "message.f"),
    (ps.AttributeProto(f=NAN), ps.AttributeProto(f=OTHER_NAN), "message.f"),
    (ps.AttributeProto(ints=[1]), ps.AttributeProto(ints=[1, 1]), "message.ints: the lengths"),
    (ps.AttributeProto(t=ps.TensorProto(raw_data=b"a")), ps.AttributeProto(t=ps.TensorProto()), "message.t.raw_data"),
    (ps.AttributeProto(), ps.NodeProto(), "message: AttributeProto and NodeProto"),
    (ps.NodeProto.FromString(bytes.fromhex("a00601")), ps.NodeProto(), "message.unknown_fields"),
    (ps.AttributeProto(f=NAN), ps.AttributeProto(f=NAN), ""),
    (ps.TensorProto(raw_data=b"a"), ps.TensorProto(raw_data=memoryview(b"a")), ""),
]


@pytest.mark.parametrize(("mine", "theirs", "expected"), DIFFERENT)
def test_difference(mine: ps.Message, theirs: ps.Message, expected: str) -> None:
    assert difference(mine, theirs) == expected


@pytest.mark.skipif(not engine.has_atheris(), reason="atheris, which guides by coverage, is not installed")
def test_guided_run_ends_and_sums_up(tmp_path: Path) -> None:
    """In a process of its own, which libFuzzer takes over."""
    command = [sys.executable, "-m", "fuzz", "messages", "--runs", "200", "--out", str(tmp_path / "findings")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    line = r"messages: 200 executions, \d+/s, coverage of [1-9]\d* branches, \d+ with counts, 0 findings\n"
    assert re.fullmatch(line, done.stdout)
    assert list(tmp_path.iterdir()) == []


def test_generated_functions_can_be_instrumented() -> None:
    """What the coverage of atheris must see: no import hook ever passes the generated functions."""
    from fuzz import guided

    found = list(guided.functions())
    assert generate.decoder(ps.NodeProto, True) in found and generate.encoder(ps.NodeProto) in found
    assert {interpret.decode, codec.decode} < set(found)
    assert len({function.__qualname__ for function in found}) > 150
