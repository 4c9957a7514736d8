"""What an export spends on capture, and what on all that follows: functionalization, lowering, passes, messages.

    python benchmarks/stages.py [--models resnet50 ...] [--routes trace export]

CPU seconds, the best of five after one to warm up.  The aim is that what follows costs less than the capture, most of
which is the model running; the exit status is 1 where it costs more.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from purexport.options import Options  # noqa: E402
from purexport.stages.build import build_program  # noqa: E402
from purexport.stages.capture import capture_model  # noqa: E402
from purexport.stages.functionalize import make_pure  # noqa: E402
from purexport.stages.lower import lower_to_onnx  # noqa: E402
from purexport.stages.run import opened  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

MODELS = ("alexnet", "resnet50", "densenet121")
ROUTES = ("trace", "export")
OPSET = 18


def stages(model: Any, route: str) -> tuple[float, float]:
    """CPU seconds of the capture, and of what follows."""
    gc.collect()
    options = Options(capture=route, opset_version=OPSET)
    with opened(model, torch.randn(1, 3, 224, 224), None, options) as run:
        start = time.process_time()
        captured = capture_model(run)
        middle = time.process_time()
        build_program(run, lower_to_onnx(run, make_pure(run, captured)))
        return middle - start, time.process_time() - middle


def main(arguments: Sequence[str] | None = None) -> int:
    """The table; the exit status says whether the capture is the larger part everywhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--routes", nargs="*", choices=ROUTES, default=ROUTES)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    fine = True
    sys.stdout.write("model        route    capture    the rest   ratio\n")
    for name in options.models:
        model = getattr(torchvision().models, name)(weights=None).eval()
        for route in options.routes:
            stages(model, route)
            first, second = (min(column) for column in zip(*(stages(model, route) for _ in range(5)), strict=True))
            sys.stdout.write(f"{name:12} {route:8} {first:6.3f} s   {second:6.3f} s   {second / first:5.2f}\n")
            sys.stdout.flush()
            fine = fine and second < first
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
