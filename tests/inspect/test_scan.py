"""`purexport scan`: each rule finds what it is for, and a plain model is left in peace."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema.parser import parse_model
from purexport.cli.main import main
from purexport.inspect import scan as scanning
from purexport.inspect.allowed import NOT_SAFE, Allowed, profile
from purexport.inspect.scan import RULES, SEVERITIES, scan

HEAD = '<ir_version: 10, opset_import: ["": 21]> '
PLAIN = HEAD + "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
PE = (b"MZ".ljust(0x3C, b"\0") + b"\x80").ljust(0x80, b"\0") + b"PE\0\0".ljust(128, b"\0")
MARK = b"\n#proto_schema data, 16 bytes, w.data of m.onnx\n"


def _number(octets: bytes) -> int:
    return int.from_bytes(octets, "little", signed=True)


def _float(octets: bytes) -> float:
    number: float = struct.unpack("<f", octets)[0]
    return number


def _with_data(content: bytes, length: int, *, offset: int = 0, second: int | None = None, checksum: str = "") -> bytes:
    """A weight of so many bytes in a data file, perhaps another one of as many, and the file."""
    Path("w.data").write_bytes(content)
    model = parse_model(PLAIN)
    model.graph.initializer = []
    for name, start in (("w", offset), ("v", second)):
        if start is not None:
            said = {"location": "w.data", "offset": str(start), "length": str(length)}
            said |= {"checksum": checksum} if checksum else {}
            tensor = ps.TensorProto(name=name, data_type=1, dims=[length // 4], data_location=1)
            tensor.external_data = [ps.StringStringEntryProto(key=key, value=value) for key, value in said.items()]
            model.graph.initializer.append(tensor)
    return model.SerializeToString()


def _context(**attributes: Any) -> bytes:
    model = parse_model(PLAIN)
    model.graph.node = [ps.helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", **attributes)]
    return model.SerializeToString()


OWN = '<domain: "{}", opset_import: ["": 21]> {} (a, b) => (c) {{ c = Sub(a, b) }}'
F = '<domain: "d", opset_import: ["": 21, "d": 1]> '


def _external(location: str, **more: str) -> str:
    entries = ", ".join(f'"{key}": "{value}"' for key, value in {"location": location, **more}.items())
    return HEAD + f"g (float[2] x) => (float[2] y) <float[2] w = [{entries}]> {{ y = Add(x, w) }}"


def _text(**fields: Any) -> Callable[[], bytes]:
    def build() -> bytes:
        model = parse_model(PLAIN)
        for name, value in fields.items():
            setattr(model, name, value)
        return model.SerializeToString()

    return build


def _attribute(data: bytes) -> bytes:
    model = parse_model(PLAIN)
    model.graph.node[0].attribute = [ps.AttributeProto(name="a", type=ps.AttributeProto.STRING, s=data)]
    return model.SerializeToString()


def _tensor(**fields: Any) -> bytes:
    model = parse_model(PLAIN)
    model.graph.initializer = [ps.TensorProto(**{"name": "w", "data_type": 1, "dims": [2], **fields})]
    return model.SerializeToString()


def _nested(levels: int) -> str:
    inside = "y = Neg(x)"
    for level in range(levels):
        inside = (
            f"y = If <then_branch = a{level} () => (y) {{ {inside} }}, else_branch = b () => (y) {{ y = Neg(x) }}> (c)"
        )
    return HEAD + f"g (bool c, float x) => (float y) {{ {inside} }}"


CHAIN = " ".join(F + f"f{at} (x) => (y) {{ t = d.f{at + 1}(x) y = d.f{at + 1}(t) }}" for at in range(30))
CHAIN += F + "f30 (x) => (y) { y = Neg(x) }"
PLANTED: list[tuple[str, Any, str]] = [  # (rule, the file, a part of what is said)
    ("external-path-escapes", _external("../w"), "location"),
    ("external-path-escapes", _external("/etc/passwd"), "location"),
    ("external-missing", _external("nothing.bin"), "'nothing.bin': No such file"),
    ("external-link", _external("link.bin"), "a link is on the way to 'link.bin'"),
    ("external-link", _external("folder"), "'folder' is not a regular file"),
    ("external-claim", _external("w.bin", offset="4", length="8"), "bytes up to 12 of 'w.bin', which has 8"),
    ("external-claim", _external("w.bin", offset="x"), "offset"),
    ("external-claim", _external("w.bin", colour="red"), "unknown key 'colour'"),
    ("external-data", _external("w.bin", length="8"), "1 tensor with data in it"),
    ("tensor-claim", _external("w.bin", length="4"), "its shape needs 8 bytes, and 4 are named"),
    ("tensor-claim", lambda: _tensor(dims=[1 << 40], raw_data=b"1234"), "needs 4,398,046,511,104 bytes, and 4 are"),
    ("tensor-claim", lambda: _tensor(dims=[-1], raw_data=b""), "a negative size in its shape [-1]"),
    ("executable-bytes", lambda: _attribute(b"\x7fELF\x02\x01\x01\x00"), "begins like an ELF program"),
    ("executable-bytes", lambda: _attribute(b"\x80\x04\x95\x10\x00\x00"), "begins like a pickle"),
    ("executable-bytes", lambda: _tensor(data_type=2, dims=[4], raw_data=b"PK\x03\x04"), "begins like a zip archive"),
    ("script-in-text", _text(doc_string="<script>alert(1)</script>"), "'<script' in"),
    ("script-in-text", lambda: _attribute(b"__import__('os').system('id')"), "'__import__' in"),
    ("url-in-text", _text(producer_name="see http://example.com/x"), "'http://example.com/x'"),
    ("deceptive-text", _text(domain="a\u202eb"), "the character U+202E in 'a\\u202eb'"),
    ("unknown-operator", PLAIN.replace("Add", "Addd"), "'Addd' of the domain 'ai.onnx', 1 node"),
    ("unknown-domain", PLAIN.replace("Add", "evil.Add"), "'Add' of the domain 'evil', 1 node"),
    ("runtime-domain", PLAIN.replace("Add", "com.microsoft.Gelu"), "'Gelu' of the domain 'com.microsoft'"),
    ("shadowed-operator", PLAIN + OWN.format("ai.onnx", "Add"), "'Add': runtimes compute the operator"),
    ("shadowed-operator", PLAIN + OWN.format("ai.onnx.ml", "Scaler"), "'Scaler': runtimes compute the operator"),
    ("function-of-runtime", PLAIN + OWN.format("com.microsoft", "Gelu"), "'Gelu' of the domain 'com.microsoft'"),
    ("executable-bytes", lambda: _tensor(dims=[16], raw_data=b"\x7fELF\x02\x01\x01" + bytes(57)), "begins like an ELF"),
    ("executable-bytes", lambda: _tensor(dims=[64], raw_data=PE), "begins like a Windows program"),
    ("executable-bytes", lambda: _tensor(data_type=7, dims=[1], int64_data=[_number(b"PK\x03\x04abcd")]), "a zip"),
    ("executable-bytes", lambda: _tensor(data_type=2, dims=[4], int32_data=list(b"PK\x03\x04")), "a zip archive"),
    ("executable-bytes", lambda: _tensor(dims=[3], float_data=[_float(b"\x80\x04\x95a"), 0.0, 0.0]), "like a pickle"),
    ("executable-bytes", lambda: _with_data(b"#! /bin/sh\nid\n  ", 16), "begins like a script"),
    ("executable-bytes", lambda: _with_data(bytes(16) + b"\x1f\x8b\x08\0\0\0\0\0\0\xffabc", 16), "bytes from 16 on"),
    ("unowned-data", lambda: _with_data(bytes(16) + b"secret", 16), "6 bytes from 16 on"),
    ("unowned-data", lambda: _with_data(bytes(16 + (1 << 17)), 16), "131,072 bytes from 16 on"),
    ("unowned-data", lambda: _with_data(b"abcd" + bytes(16), 16, offset=4), "4 bytes from 0 on"),
    ("unowned-data", lambda: _with_data(bytes(16) + MARK + b"more", 16), "from 16 on"),
    ("unowned-data", lambda: _with_data(bytes(16) + b"secret", 16, second=1000), "6 bytes from 16 on"),
    ("overlapping-data", lambda: _with_data(bytes(24), 16, second=8), "'v' has bytes from 8 on, which are of 'w'"),
    ("checksum", lambda: _with_data(bytes(16), 16, checksum="0" * 40), "and the model says 0000"),
    ("values-twice", lambda: _tensor(raw_data=bytes(8), float_data=[1.0, 2.0]), "in float_data and raw_data"),
    ("values-twice", lambda: _tensor(data_location=1, raw_data=bytes(8)), "in raw_data and external_data"),
    ("name-twice", PLAIN.replace("w = {1, 2}>", "w = {1, 2}, float[2] w = {3, 4}>"), "2 tensors are called 'w'"),
    ("training", _text(training_info=[ps.TrainingInfoProto()]), "is there"),
    ("unused-tensor", lambda: _tensor(name="v", dims=[999], raw_data=bytes(3996)), "'v': 3,996 bytes"),
    ("look-alike", _text(producer_name="x", domain="p\u0430ypal"), "'p\\u0430ypal' looks like 'paypal'"),
    ("look-alike", lambda: _tensor(name="\uff57"), "'\\uff57' looks like 'w'"),
    ("deceptive-text", _text(doc_string="see gnp\u202efdp.exe"), "the character U+202E in 'see gnp"),
    ("device-program", lambda: _context(embed_mode=0, ep_cache_context="a.bin"), "in the file 'a.bin'"),
    ("device-program", lambda: _context(embed_mode=1, ep_cache_context="x" * 5000), "5,000 bytes in the model"),
    ("external-path-escapes", lambda: _context(embed_mode=0, ep_cache_context="../a.bin"), "is in '../a.bin'"),
    ("external-path-escapes", lambda: _context(ep_cache_context="/tmp/a.bin"), "is in '/tmp/a.bin'"),
    ("recursive-functions", PLAIN.replace("Add(x, w)", "d.f(x)") + F + "f (x) => (y) { y = d.f(x) }", "d::f -> d::f"),
    ("call-expansion", PLAIN.replace("Add(x, w)", "d.f0(x)") + CHAIN, "1,073,741"),
    ("deep-nesting", _nested(9), "8 graphs around this one"),
    ("unknown-bytes", lambda: _text()() + b"\xfa\x7f\x03abc", "6 bytes of an unknown field"),
    ("repeated-field", lambda: _text()() + b"\x08\x09", "is there again"),
    ("unusual-form", lambda: _text()() + b"\x28\x81\x00", "not in its shortest form"),
    ("readers-disagree", lambda: _text()() + b"\x00\x00", "field number 0"),
    ("unreadable", lambda: _text()()[:-5], "truncated length"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.bin").write_bytes(bytes(8))
    os.symlink("w.bin", "link.bin")
    Path("folder").mkdir()


def _write(built: Any) -> None:
    data = built() if callable(built) else parse_model(built).SerializeToString()
    Path("m.onnx").write_bytes(data)


@pytest.mark.parametrize(("rule", "built", "said"), PLANTED, ids=[f"{row[0]}-{at}" for at, row in enumerate(PLANTED)])
def test_each_rule_finds_what_it_is_for(rule: str, built: Any, said: str) -> None:
    _write(built)
    found = [risk for risk in scan("m.onnx").risks if risk.rule == rule]
    assert found, [risk.rule for risk in scan("m.onnx").risks]
    assert said in found[0].text
    assert found[0].severity == RULES[rule][0]


def test_every_rule_is_planted() -> None:
    """The list of what is allowed has tests of its own."""
    assert {row[0] for row in PLANTED} == set(RULES) - {"not-allowed"}


# what looks like something, and is not
PEACE: dict[str, Callable[[], bytes]] = {
    "floats": lambda: _tensor(dims=[2], float_data=[1.0, -0.5]),
    "the mark of a save": lambda: _with_data(bytes(16) + MARK, 16),
    "tied weights": lambda: _with_data(bytes(16), 16, second=0),
    "weights behind each other": lambda: _with_data(bytes(32), 16, second=16),
    "padding": lambda: _with_data(bytes(4096), 16, second=4080),
    "its checksum": lambda: _with_data(bytes(16), 16, checksum=sha1(bytes(16)).hexdigest()),
    "another script": _text(doc_string="\u0441\u043b\u043e\u0439", producer_name="\U0001f468\u200d\U0001f4bb"),
    "a word of two scripts": lambda: _tensor(name="\u0441\u043b\u043e\u0439_out"),
    "a greek letter": lambda: _tensor(name="\u03b2_1"),
    "a small tensor that nothing reads": lambda: _tensor(name="v", dims=[2], raw_data=bytes(8)),
}


@pytest.mark.parametrize("name", PEACE)
def test_what_only_looks_like_it(name: str) -> None:
    _write(PEACE[name])
    assert {risk.rule for risk in scan("m.onnx").risks} <= {"external-data"}


def test_a_model_that_was_saved_is_left_in_peace(tmp_path: Path) -> None:
    """Also where the data of two models is in one file."""
    weights = [ps.numpy_helper.from_array(np.full(3000, at, np.float32), f"w{at}") for at in range(3)]
    graph = ps.helper.make_graph([ps.helper.make_node("Sum", ["w0", "w1", "w2"], ["y"])], "g", [], [], weights)
    ps.save(ps.helper.make_model(graph), "s.onnx", external_data=True)
    assert {risk.rule for risk in scan("s.onnx").risks} == {"external-data"}


ALLOW = "# the operators of our runtime\nAdd\nai.onnx::Relu\n\ncom.microsoft::Gelu  # one of theirs\nown::*\n"
MIX = PLAIN.replace("y = Add(x, w)", "t = Relu(x) y = OPERATOR(t, w)")


@pytest.mark.parametrize(
    ("lists", "operator", "said"),
    [
        ([ALLOW], "Add", ""),
        ([ALLOW], "own.Anything", ""),
        ([ALLOW], "com.microsoft.Gelu", ""),
        ([ALLOW], "Mul", "'Mul' of the domain 'ai.onnx', 1 node"),
        ([ALLOW], "com.microsoft.Attention", "'Attention' of the domain 'com.microsoft', 1 node"),
        (["Add"], "Add", "'Relu' of the domain 'ai.onnx', 1 node"),
        (["Relu", "Mul"], "Mul", ""),
        (["safe"], "Mul", ""),
        (["safe"], "Expand", "'Expand' of the domain 'ai.onnx', 1 node"),
        (["safe", "Expand"], "Expand", ""),
        (["safe"], "own.Add", "'Add' of the domain 'own', 1 node"),
    ],
)
@pytest.mark.parametrize("level", ["high", "never"])
def test_what_is_not_on_the_list_fails(
    level: str, lists: list[str], operator: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(MIX.replace("OPERATOR", operator))
    words = ["scan", "m.onnx", "--fail-on", level]
    for number, text in enumerate(lists):
        Path(f"list{number}").write_text(text)
        words += ["--allow", "safe" if text == "safe" else f"list{number}"]
    assert main(words) == (1 if said else 0)
    assert said in capsys.readouterr().out


def test_nodes_of_functions_and_branches_are_on_the_list_too() -> None:
    function = F + "f (a) => (b) { b = Exp(a) }"
    _write(PLAIN.replace("y = Add(x, w)", "y = d.f(x)") + function)
    allow = Allowed()
    found = [risk for risk in scan("m.onnx", allow).risks if risk.rule == "not-allowed"]
    assert [(risk.path, risk.text) for risk in found] == [
        ("functions[0].node[0]", "'Exp' of the domain 'ai.onnx', 1 node")
    ]
    _write(PLAIN.replace("Add(x, w)", "com.microsoft.Gelu(x)") + OWN.format("com.microsoft", "Gelu"))
    found = [risk for risk in scan("m.onnx", allow).risks if risk.rule == "not-allowed"]
    assert sorted(risk.text.partition(" ")[0] for risk in found) == ["'Gelu'", "'Sub'"]  # its own may run, or the nodes
    _write(_nested(1))
    found = [risk for risk in scan("m.onnx", allow).risks if risk.rule == "not-allowed"]
    assert sorted(risk.text.partition(" ")[0] for risk in found) == ["'If'", "'Neg'"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Add Mul", "list, line 1: 'Add Mul' is neither Operator nor domain::Operator nor domain::*"),
        ("Add\n*", "list, line 2: '*' is neither"),
        ("own::", "list, line 1: 'own::' is neither"),
        ("# nothing", "list allows nothing: write operators into it, one a line, or use 'safe'"),
        (None, "list: No such file or directory"),
    ],
)
def test_lists_that_are_none(text: str | None, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    _write(PLAIN)
    if text is not None:
        Path("list").write_text(text)
    assert main(["scan", "m.onnx", "--allow", "list"]) == 2
    assert said in capsys.readouterr().err


def test_every_operator_is_safe_or_has_a_reason() -> None:
    """A new operator of the standard must be decided on."""
    refused = [name for names in NOT_SAFE for name in names.split()]
    safe = [name for _, name in profile().operators]
    assert sorted(refused + safe) == sorted(ps.operators.names(""))


def test_a_plain_model_is_left_in_peace(capsys: pytest.CaptureFixture[str]) -> None:
    _write(PLAIN)
    assert scan("m.onnx").risks == []
    assert main(["scan", "m.onnx", "--fail-on", "info"]) == 0
    assert capsys.readouterr().out == "m.onnx: nothing found\n"


@pytest.mark.parametrize(("level", "status"), [("critical", 0), ("high", 1), ("low", 1), ("never", 0), (None, 1)])
def test_the_exit_status(level: str | None, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    _write(_text(doc_string="<script>"))
    assert main(["scan", "m.onnx", *(["--fail-on", level] if level else [])]) == status
    assert "m.onnx: 1 finding, the gravest is high" in capsys.readouterr().out


def test_json_and_sarif(capsys: pytest.CaptureFixture[str]) -> None:
    _write(lambda: _text(doc_string="<script> http://a.b")() + b"\x08\x09")
    assert main(["scan", "m.onnx", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert [risk["rule"] for risk in facts["findings"]][:2] == ["script-in-text", "repeated-field"]
    assert (facts["worst"], facts["fails"], facts["counts"]["url-in-text"]) == ("high", True, 1)
    assert main(["scan", "m.onnx", "--sarif", "--fail-on", "never"]) == 0
    log = json.loads(capsys.readouterr().out)
    run = log["runs"][0]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(RULES)
    repeated = next(result for result in run["results"] if result["ruleId"] == "repeated-field")
    place = repeated["locations"][0]
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "m.onnx"}
    assert place["physicalLocation"]["region"]["byteOffset"] == os.path.getsize("m.onnx") - 2
    assert place["logicalLocations"] == [{"fullyQualifiedName": "ir_version#2"}]
    assert {result["level"] for result in run["results"]} <= {"note", "warning", "error"}


def test_one_form_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "m.onnx", "--json", "--sarif"]) == 2
    assert "--json and --sarif are two forms of the answer" in capsys.readouterr().err


def test_findings_of_one_rule_are_counted_past_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "MOST", 2)
    _write(_text(doc_string=" ".join(f"http://a.b/{place}" for place in range(5))))
    made = scan("m.onnx")
    assert (len(made.risks), made.counts["url-in-text"], made.worst()) == (2, 5, "low")
    assert set(SEVERITIES) == {severity for severity, _ in RULES.values()}
