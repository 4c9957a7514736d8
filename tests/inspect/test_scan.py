"""`purexport scan`: each rule finds what it is for, and a plain model is left in peace."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import proto_schema as ps
from proto_schema.parser import parse_model
from purexport.cli.main import main
from purexport.inspect import scan as scanning
from purexport.inspect.scan import RULES, SEVERITIES, scan

HEAD = '<ir_version: 10, opset_import: ["": 21]> '
PLAIN = HEAD + "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
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
    model.graph.initializer = [ps.TensorProto(name="w", **{"data_type": 1, "dims": [2], **fields})]
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
    ("external-link", _external("folder"), "'folder' is no regular file"),
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
    assert {row[0] for row in PLANTED} == set(RULES)


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
