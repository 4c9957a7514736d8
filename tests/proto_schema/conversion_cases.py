"""Conversion of the node cases that the official package ships: converted, checked, run, and compared with their data.

A verdict is "converted" (the converted model gives the data of the case), "refused" (with the reason), "wrong", or
"unrun": converted and checked, and no evaluator here runs it, or none agrees with the case before conversion either.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import proto_schema as ps
from proto_schema import operators
from proto_schema.version_converter import ConversionError, convert_ir, convert_version, opset

TARGETS = range(7, 29)
RUNTIME = 26  # the newest opset of ONNX Runtime that is installed for tests
RANDOM = {
    "Bernoulli",
    "Dropout",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
}

Verdict = tuple[str, str]


@cache
def cases() -> list[Any]:
    """The node cases of the official package that have one data set and only official operators."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for case in collect_testcases(None) if case.data_sets]


def operator_of(case: Any) -> str:
    """The operator that a case is about: that of its first node, or of its name where several are written out."""
    return str(case.model.graph.node[0].op_type)


def is_plain(case: Any) -> bool:
    """Whether the case has nodes of ai.onnx alone, and is no expansion of another one."""
    domains = {node.domain for node in case.model.graph.node} | {item.domain for item in case.model.opset_import}
    return domains <= {"", "ai.onnx"} and "_expanded" not in case.name


def values_of(items: Sequence[Any]) -> list[Any]:
    """The data of a case as numpy arrays and lists."""
    return [_value(item) for item in items]


def _value(item: Any) -> Any:
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    if isinstance(item, onnx.SequenceProto):
        return numpy_helper.to_list(item)
    if isinstance(item, onnx.OptionalProto):
        return numpy_helper.to_optional(item)
    return item


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def run_in_runtime(model: bytes, feed: dict[str, Any]) -> list[Any] | None:
    """The outputs by ONNX Runtime; None where it cannot run the model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return list(session.run(None, feed))
    except Exception:  # what it has no kernel or no type for
        return None


def run_in_reference(model: bytes, feed: dict[str, Any]) -> list[Any] | None:
    """The outputs by onnx's evaluator; None where it cannot run the model."""
    from onnx.reference import ReferenceEvaluator

    try:
        with _quiet():
            return list(ReferenceEvaluator(onnx.ModelProto.FromString(model)).run(None, feed))
    except Exception:
        return None


EVALUATORS = (run_in_runtime, run_in_reference)


def equal(found: Any, wanted: Any, case: Any, shapes_only: bool = False) -> bool:
    """Whether an output is what the case says, at the tolerances of the case."""
    if isinstance(wanted, list) or isinstance(found, list):
        return (
            isinstance(wanted, list)
            and isinstance(found, list)
            and len(found) == len(wanted)
            and all(equal(one, other, case) for one, other in zip(found, wanted, strict=True))
        )
    if wanted is None or found is None:
        return found is wanted
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or (found.dtype != wanted.dtype and found.dtype.kind not in "OUS"):
        return False
    if shapes_only or found.dtype.kind in "OUS":
        return shapes_only or bool((found.astype(str) == wanted.astype(str)).all())
    if found.dtype.kind not in "biufc":
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    rtol, atol = case.rtol or 1e-3, case.atol or 1e-7
    if (
        found.dtype in (np.float32, np.float64, np.complex64) and wanted.size
    ):  # sums that cancel out keep the rounding of what was added
        finite = np.abs(wanted[np.isfinite(wanted)])
        atol = max(atol, 8 * float(np.finfo(found.dtype).eps) * float(finite.max(initial=0.0)))
    return bool(np.allclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True))


def agrees(model: bytes, version: int, case: Any, evaluators: Sequence[Any] = EVALUATORS) -> dict[Any, bool]:
    """Which evaluators run the model, and whether they give the data of the case. The first that does ends it."""
    verdicts: dict[Any, bool] = {}
    names = [item.name for item in case.model.graph.input]
    shapes_only = any(node.op_type in RANDOM for node in case.model.graph.node)
    for evaluator in evaluators:
        if evaluator is run_in_runtime and version > RUNTIME:
            continue
        good: bool | None = True
        for inputs, outputs in case.data_sets:
            given = dict(zip(names, values_of(inputs), strict=False))
            found = evaluator(model, given)
            if found is None:
                good = None
                break
            wanted = values_of(outputs)
            if not all(equal(one, other, case, shapes_only) for one, other in zip(found, wanted, strict=False)):
                good = False
                break
        if good is not None:
            verdicts[evaluator] = good
        if good:
            break
    return verdicts


def encoded(case: Any) -> bytes:
    """The model of a case."""
    model: bytes = case.model.SerializeToString()
    return model


def lowered(model: ps.ModelProto) -> ps.ModelProto:
    """The model in the oldest IR version that it can have, so that ONNX Runtime takes it."""
    with contextlib.suppress(ConversionError, ValueError):
        lowest = max(
            4, *[operators.ir_version_for(item.version or 1, item.domain or "") for item in model.opset_import]
        )
        if model.functions:
            lowest = max(lowest, 8)
        return convert_ir(model, min(lowest, model.ir_version or lowest))
    return model


def judged(case: Any, target: int, known: dict[Any, Verdict]) -> Verdict:
    """What becomes of a case at an opset. `known` has the verdicts of the case's models that were run before."""
    try:
        made = convert_version(encoded(case), target)
    except ConversionError as error:
        return "refused", error.refusals[0].reason if error.refusals else str(error)
    made = lowered(made)
    graph = made.graph
    assert graph is not None
    names = sorted({node.op_type or "" for node in graph.node})
    key = (
        b"".join(node.SerializeToString() for node in graph.node),
        tuple((getattr(operators.schema(name, target), "since_version", 0)) for name in names),
        target > RUNTIME,
    )
    if key in known:
        return known[key]
    known[key] = _checked(case, made, target)
    return known[key]


def with_constants(case: Any) -> Any:
    """The case with all inputs but the first as initializers, as models have axes, shapes and scales.

    A first input that is one integer is such a parameter, too.
    """
    from onnx.backend.test.case.test_case import TestCase

    model = onnx.ModelProto.FromString(encoded(case))
    (inputs, outputs), *_ = case.data_sets
    first = inputs[0]
    number = isinstance(first, (np.ndarray, np.generic)) and first.shape == () and first.dtype.kind in "iu"
    data = 0 if number else 1
    for item, value in zip(model.graph.input[data:], inputs[data:], strict=False):
        if not isinstance(value, (np.ndarray, np.generic, onnx.TensorProto)):
            return None
        tensor = value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value))
        held = model.graph.initializer.add()
        held.CopyFrom(tensor)
        held.name = item.name
        if tensor.data_type != item.type.tensor_type.elem_type:
            return None
    del model.graph.input[data:]
    fields = {name: getattr(case, name) for name in ("name", "model_name", "url", "model_dir", "kind", "rtol", "atol")}
    return TestCase(model=model, data_sets=[(inputs[:data], outputs)], **fields)


def judged_twice(case: Any, target: int, known: dict[Any, Verdict], constant: dict[Any, Verdict]) -> Verdict:
    """The verdict, and "constant" where the case converts with its parameters as constants only."""
    verdict = judged(case, target, known)
    if verdict[0] != "refused" or len(case.model.graph.input) < 2:
        return verdict
    fixed = with_constants(case)
    if fixed is None:
        return verdict
    second = judged(fixed, target, constant)
    return ("constant", verdict[1]) if second[0] == "converted" else verdict if second[0] == "refused" else second


def _checked(case: Any, made: ps.ModelProto, target: int) -> Verdict:
    data = made.SerializeToString()
    before = encoded(case)
    for check, fails in ((ps.checker.check_model, ps.CheckError), (_official, Exception)):
        try:
            check(data)
        except fails as error:
            try:
                check(before)
            except fails:
                continue  # as before
            return "wrong", f"{check.__module__}: {error}"
    verdicts = agrees(data, target, case)
    if any(verdicts.values()):
        return "converted", ""
    # an evaluator that contradicts the case before conversion, too, says nothing
    source = opset(ps.ModelProto.FromString(before))
    original = lowered(ps.ModelProto.FromString(before)).SerializeToString()
    for evaluator in verdicts:
        if agrees(original, source, case, [evaluator]).get(evaluator):
            return "wrong", f"other numbers ({evaluator.__name__})"
    return "unrun", "no evaluator runs it" if not verdicts else "no evaluator agrees before conversion"


def _official(data: bytes) -> None:
    onnx.checker.check_model(data, full_check=False)


if __name__ == "__main__":  # python -m tests.proto_schema.conversion_cases [name] [targets]
    import sys
    from collections import Counter

    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    targets = [int(item) for item in sys.argv[2].split(",")] if len(sys.argv) > 2 else TARGETS
    count: Counter[str] = Counter()
    for case in cases():
        if pattern in case.name and is_plain(case):
            known: dict[Any, Verdict] = {}
            constant: dict[Any, Verdict] = {}
            for target in targets:
                try:
                    verdict = judged_twice(case, target, known, constant)
                except Exception as error:
                    if os.environ.get("RAISE"):
                        raise
                    verdict = ("crash", f"{type(error).__name__}: {error}")
                count[verdict[0]] += 1
                if verdict[0] not in ("converted",):
                    print(case.name, target, *verdict)
    print(count)
