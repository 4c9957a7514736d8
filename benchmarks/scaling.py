"""Does the time of an export grow as its graph does?  Ten times the calls, by each route and stage.

    python benchmarks/scaling.py [--calls 1000] [--factor 10] [--routes trace script export]

The model is a chain of products, sums, views, slices, reductions and writes in place, some through views.  A line is
a stage: its CPU seconds for the small and for the large graph, and their ratio.  Linear is `factor`; 1.2 times that
is the limit, and the exit status is 1 where the whole of a route passes it.  The example is tiny, so that the graph is
measured.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import proto_schema as ps
from proto_schema.wire.collection import paused_collection
from purexport.options import Options
from purexport.stages.build import build_program
from purexport.stages.capture import capture_model
from purexport.stages.functionalize import make_pure
from purexport.stages.lower import lower_to_onnx
from purexport.stages.run import opened

ROUTES = ("trace", "script", "export")
OPSET = 20
SLACK = 1.2
STAGES = ("capture", "functionalize", "lower", "build")


class Chain(torch.nn.Module):
    """Rounds of ten calls, two of which write."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        for _ in range(self.rounds):
            z = (y * 0.5).tanh() + x
            z.add_(1.0)
            row = z[0]
            row.mul_(0.5)
            y = z.transpose(0, 1).reshape(2, 2) - z.sum(0)
        return y


def stages(route: str, calls: int) -> list[float]:
    """Seconds of each stage."""
    model: Any = Chain(calls // 10).eval()
    x = torch.ones(2, 2)
    if route == "script":
        model = torch.jit.script(model)
    seconds = []

    def timed(function: Callable[[], Any]) -> Any:
        gc.collect()
        start = time.process_time()
        result = function()
        seconds.append(time.process_time() - start)
        return result

    options = Options(capture="auto" if route == "script" else route, opset_version=OPSET)
    with opened(model, x, None, options) as run:
        captured = timed(lambda: capture_model(run))
        pure = timed(lambda: make_pure(run, captured))
        onnx = timed(lambda: lower_to_onnx(run, pure))
        timed(lambda: ps.dumps(build_program(run, onnx).model_proto))
    return seconds


def best(route: str, calls: int, repeat: int) -> list[float]:
    """Seconds of each stage, the best of several times."""
    return [min(times) for times in zip(*(stages(route, calls) for _ in range(repeat)), strict=True)]


def tracer_alone(calls: int) -> float:
    """Seconds of torch.jit.trace on the same model: what a trace costs at least."""
    model = Chain(calls // 10).eval()
    gc.collect()
    with paused_collection(), torch.no_grad():
        start = time.process_time()
        torch.jit.trace(model, torch.ones(2, 2), check_trace=False)
        return time.process_time() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """The table; the exit status says whether all is linear."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--factor", type=int, default=10)
    parser.add_argument(
        "--repeat", type=int, default=3, help="each is measured so often, the best of each stage counts"
    )
    parser.add_argument("--routes", nargs="*", choices=ROUTES, default=ROUTES)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    linear = True
    for route in options.routes:
        stages(route, 100)  # what is made once, such as tables of schemas
        small, large = (best(route, options.calls * factor, options.repeat) for factor in (1, options.factor))
        lines = [*zip(STAGES, small, large, strict=True), ("all", sum(small), sum(large))]
        if route == "trace":
            tracer_alone(100)
            alone = [
                min(tracer_alone(options.calls * factor) for _ in range(options.repeat))
                for factor in (1, options.factor)
            ]
            lines.append(("(jit.trace)", *alone))
        for stage, few, many in lines:
            sys.stdout.write(f"{route:8}{stage:15}{few:8.2f} s{many:9.2f} s{many / few:8.1f}\n")
        sys.stdout.flush()
        linear = linear and sum(large) / sum(small) <= SLACK * options.factor
    return 0 if linear else 1


if __name__ == "__main__":
    sys.exit(main())
