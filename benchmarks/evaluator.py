"""The evaluator beside the official one and ONNX Runtime.

    python -m benchmarks.evaluator cases       # how many of the official package's cases each evaluator computes
    python -m benchmarks.evaluator resnet50    # milliseconds of one image at one thread, beside ONNX Runtime

Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 for the second, which is the best of several runs.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def cases() -> None:
    """Count the cases that each evaluator computes within their tolerances, random operators by shape."""
    import onnx
    from onnx.reference import ReferenceEvaluator as Official

    from tests.compute import cases as official

    def theirs(case: official.Case) -> None:
        path = f"{case.folder}/model.onnx"
        session = Official(onnx.load(path) if case.folder else onnx.load_from_string(case.model))
        graph = onnx.load_from_string(case.model).graph
        for inputs, outputs in case.sets:
            given = [official.value(item) if case.folder else _array(item) for item in inputs]
            feed = {item.name: value for item, value in zip(graph.input, given, strict=False)}
            found = session.run(None, feed)
            if case.name in official.EXCUSED:
                continue
            for mine, wanted, item in zip(found, outputs, graph.output, strict=True):
                half = item.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
                official.same(official.value(mine), official.value(wanted), case.rtol, case.atol, half)

    every = (*official.node_cases(), *official.stored_cases())
    for name, run in (("proto_schema", official.run), ("onnx", theirs)):
        started = time.perf_counter()
        failed = [case.name for case in every if not _passes(case, run)]
        refused = [case for case in official.REFUSED if name == "proto_schema"]
        right = len(every) - len(failed) - len(refused)
        print(f"{name}: {right} of {len(every)} cases, {time.perf_counter() - started:.1f} s")
        print(f"  not: {', '.join([*refused, *failed]) or 'none'}"[:2000])


def _array(item: Any) -> Any:
    import onnx

    return onnx.numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def _passes(case: Any, run: Callable[[Any], None]) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(case)
    except Exception:  # whatever stops the other evaluator, it does not compute the case
        return False
    return True


def network(name: str, rounds: int) -> None:
    """Time one image of the usual size through a network of the tests, with random weights."""
    import onnxruntime
    import torch

    import proto_schema as ps
    import purexport
    from tests.models.zoo import NETWORKS

    row = next(row for row in NETWORKS if row.name == name)
    example = row.example(1, True)
    program = purexport.export(row.make(True), (example,), input_names=["x"], opset_version=20)
    data = program.model_proto.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    runtime = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    evaluator = ps.reference.ReferenceEvaluator(data)
    torch.set_num_threads(1)
    feed = {"x": example.numpy()}
    best = {}
    for title, session in (("ONNX Runtime", runtime), ("proto_schema", evaluator)):
        session.run(None, feed)
        times = []
        for _ in range(rounds):
            started = time.process_time()
            outputs = session.run(None, feed)
            times.append(time.process_time() - started)
        best[title] = (min(times), outputs[0])
        print(f"{title}: {1e3 * min(times):.1f} ms of processor time")
    (fast, expected), (ours, found) = best.values()
    print(f"{ours / fast:.2f} times; largest difference {np.abs(found - expected).max():.1e}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", help="cases, or the name of a network of tests/models/zoo.py")
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    if given.what == "cases":
        cases()
    else:
        network(given.what, given.rounds)


if __name__ == "__main__":
    main()
