"""One rewrite rule by `ps.rewrite` and by the rewriter of onnxscript: what is left, and how long it takes.

    pip install onnxscript
    python benchmarks/rewrite_rules.py [--nodes 4000]

The rule makes Gemm of MatMul and Add. Seconds are processor time, from a message to a message, the best of three.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import proto_schema as ps
from proto_schema import helper
from proto_schema.numpy_helper import from_array

WIDTH = 16


def pattern(op: Any, x: Any, w: Any, b: Any) -> Any:
    """Both rewriters take these two functions as they are."""
    return op.Add(op.MatMul(x, w), b)


def replacement(op: Any, x: Any, w: Any, b: Any) -> Any:
    """What stands for it."""
    return op.Gemm(x, w, b)


def network(count: int) -> ps.ModelProto:
    """So many nodes: products, sums and Relu in turn."""
    weights = [from_array(np.eye(WIDTH, dtype=np.float32), "w"), from_array(np.ones(WIDTH, np.float32), "b")]
    nodes, last = [], "x"
    for place in range(count // 3):
        nodes.append(helper.make_node("MatMul", [last, "w"], [f"m{place}"]))
        nodes.append(helper.make_node("Add", [f"m{place}", "b"], [f"a{place}"]))
        nodes.append(helper.make_node("Relu", [f"a{place}"], [f"r{place}"]))
        last = f"r{place}"
    ends = [helper.make_tensor_value_info(name, 1, ["n", WIDTH]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the seconds of the processor."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        made = work()
        best = min(best, time.process_time() - start)
    return made, best


def main() -> None:
    """Print a row for each rewriter."""
    import onnx
    from onnxscript.rewriter import pattern as theirs
    from onnxscript.rewriter import rewrite

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=4000)
    given = network(parser.parse_args().nodes)
    official = onnx.load_from_string(given.SerializeToString())
    mine = [ps.rewrite.rule(pattern, replacement)]
    other = theirs.RewriteRuleSet([theirs.RewriteRule(pattern, replacement)])
    rows = {
        "ps.rewrite": lambda: ps.rewrite.apply(given, mine).model,
        "onnxscript": lambda: rewrite(official, pattern_rewrite_rules=other),
    }
    for name, work in rows.items():
        made, seconds = timed(work)
        print(f"{name}: {dict(Counter(node.op_type for node in made.graph.node))}, {seconds:.2f} s")


if __name__ == "__main__":
    main()
