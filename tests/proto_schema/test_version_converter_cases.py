"""Conversion of the official node cases: converted, checked, run, and equal to the data of the case, or refused.

By default a sample of cases and opsets. `pytest -m sweep` takes all, and compares the upward way with onnx's converter.
`python -m tools.conversion --write` writes the table of docs/opset-conversion.md.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
import pytest
from onnx import version_converter

import proto_schema as ps
from proto_schema.version_converter import ConversionError, convert_version
from tests.proto_schema import conversion_cases as sweep

CHUNKS = 8
SAMPLED = (9, 13, 28)


def plain() -> list[Any]:
    return [case for case in sweep.cases() if sweep.is_plain(case)]


def sampled() -> list[Any]:
    """Two cases of each operator: the first, and one from the middle."""
    by_name: dict[str, list[Any]] = {}
    for case in plain():
        by_name.setdefault(sweep.operator_of(case), []).append(case)
    return [
        item for found in by_name.values() for item in {id(x): x for x in (found[0], found[len(found) // 2])}.values()
    ]


def verdicts(cases: list[Any], targets: Any) -> tuple[Counter[str], list[str]]:
    count: Counter[str] = Counter()
    wrong = []
    for case in cases:
        known: dict[Any, Any] = {}
        constant: dict[Any, Any] = {}
        for target in targets:
            verdict, reason = sweep.judged_twice(case, target, known, constant)
            count[verdict] += 1
            if verdict == "wrong":
                wrong.append(f"{case.name} to opset {target}: {reason}")
    return count, wrong


def test_a_sample_of_the_cases() -> None:
    count, wrong = verdicts(sampled(), SAMPLED)
    assert not wrong, "\n".join(wrong)
    good = count["converted"] + count["constant"]
    assert good >= 0.88 * count.total(), count


@pytest.mark.sweep
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_all_cases(chunk: int) -> None:
    _, wrong = verdicts(plain()[chunk::CHUNKS], sweep.TARGETS)
    assert not wrong, "\n".join(wrong)


def upward(case: Any, sources: Any, targets: Any) -> tuple[Counter[str], list[str]]:
    """Older forms of a case, converted upwards by us and by onnx: who can; and what is wrong or only onnx can."""
    count: Counter[str] = Counter()
    bad = []
    known: dict[Any, Any] = {}
    for source in sources:
        try:
            older = sweep.lowered(convert_version(sweep.encoded(case), source))
        except ConversionError:
            continue
        data = older.SerializeToString()
        changed = type(case)(**{**vars(case), "model": onnx.ModelProto.FromString(data)})
        for target in targets:
            if target <= source:
                continue
            verdict, reason = sweep.judged(changed, target, known)
            theirs = _by_onnx(data, target)
            count[f"{verdict}, onnx {'converts' if theirs else 'refuses'}"] += 1
            if verdict == "wrong" or (verdict == "refused" and theirs):
                bad.append(f"{case.name} from {source} to {target}: {verdict}: {reason}")
    return count, bad


def _by_onnx(data: bytes, target: int) -> bool:
    try:
        version_converter.convert_version(onnx.ModelProto.FromString(data), target)
    except (RuntimeError, IndexError, UnicodeDecodeError):
        return False
    return True


@pytest.mark.full
def test_a_sample_upwards() -> None:
    total: Counter[str] = Counter()
    bad: list[str] = []
    for case in sampled()[::5]:
        count, found = upward(case, (9, 17), (13, 21))
        total += count
        bad += found
    assert not bad, "\n".join(bad)
    assert total["converted, onnx converts"] > 50, total


@pytest.mark.sweep
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_all_cases_upwards(chunk: int) -> None:
    bad: list[str] = []
    for case in plain()[chunk::CHUNKS]:
        bad += upward(case, (7, 9, 10, 11, 12, 13, 15, 17, 19, 20, 22), (9, 11, 13, 14, 16, 18, 21, 24, 28))[1]
    assert not bad, "\n".join(bad)


@pytest.mark.full
def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that forgets the bias of a layer norm is noticed."""
    from proto_schema.conversion import rows

    key = ("", "LayerNormalization", 17, False)
    row = rows.table()[key]

    def forgetful(node: Any, op: Any) -> Any:
        node.node.inputs = node.inputs[:2]
        return row(node, op)

    monkeypatch.setitem(rows._ROWS, key, forgetful)
    case = next(item for item in plain() if item.name == "test_layer_normalization_2d_axis0")
    assert sweep.judged(case, 13, {})[0] == "wrong"


def test_official_models_keep_their_checks() -> None:
    """A model that the official converter takes upwards goes up here, and ends at the same opset."""
    text = '<ir_version: 7, opset_import: ["" : 9]> g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }'
    model = onnx.parser.parse_model(text)
    theirs = version_converter.convert_version(model, 21)
    ours = convert_version(ps.ModelProto.FromString(model.SerializeToString()), 21)
    assert [item.version for item in theirs.opset_import] == [item.version for item in ours.opset_import]
