"""Networks on our evaluator, beside ONNX Runtime on one thread.

    OMP_NUM_THREADS=1 python benchmarks/evaluated_networks.py [--only resnet50 ...] [--rows]

A line for each network of torchvision, float32, one image of 224 x 224: processor seconds of one run of the thread (the
best of five, so that a busy machine changes little), the ratio, and how far the results are apart. The statistics of
batch normalization are of random images, so that numbers stay in the middle of the range. `--rows` adds the operators
that took longest.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402

import proto_schema as ps  # noqa: E402
import purexport  # noqa: E402
from proto_schema.compute.rows import table  # noqa: E402
from tests.torchvision_shim import torchvision  # noqa: E402

NETWORKS = ("resnet50", "mobilenet_v2", "resnext50_32x4d", "densenet121", "vgg16", "efficientnet_b0", "vit_b_16")


def seconds(run: Callable[[], Any], times: int = 5) -> float:
    """The least processor time of the thread, after one run that is not counted."""
    run()
    found = []
    for _ in range(times):
        start = time.thread_time()
        run()
        found.append(time.thread_time() - start)
    return min(found)


def exported(name: str, folder: Path) -> tuple[Path, Any]:
    """The file of a network, and an image."""
    torch.manual_seed(0)
    model = getattr(torchvision().models, name)(weights=None).train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean of all batches
    with torch.no_grad():
        model(torch.randn(4, 3, 224, 224))
    image = torch.randn(1, 3, 224, 224)
    path = folder / f"{name}.onnx"
    purexport.export(model.eval(), (image,), path)
    return path, image.numpy()


def measure(name: str, folder: Path, rows: bool) -> None:
    """Print the line of a network."""
    path, image = exported(name, folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ours = ps.reference.ReferenceEvaluator(path)
    feed = {session.get_inputs()[0].name: image}
    theirs, mine = seconds(lambda: session.run(None, feed)), seconds(lambda: ours.run(None, feed))
    wanted, found = session.run(None, feed)[0], ours.run(None, feed)[0]
    apart = np.abs(wanted - found).max() / max(np.abs(wanted).max(), 1e-30)
    print(
        f"{name:20} {theirs * 1e3:8.1f} ms {mine * 1e3:8.1f} ms {mine / theirs:6.2f}x   apart {apart:.1e}", flush=True
    )
    if rows:
        print_rows(path, feed)


def print_rows(path: Path, feed: dict[str, Any]) -> None:
    """The operators that took longest in one run."""
    spent, kept = Counter[str](), dict(table())

    def timed(name: str, row: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            start = time.thread_time()
            result = row(*args)
            spent[name] += time.thread_time() - start  # type: ignore[assignment]
            return result

        return run

    try:
        table().update({key: timed(key[1], row) for key, row in kept.items()})
        session = ps.reference.ReferenceEvaluator(path)
        session.run(None, feed)
        spent.clear()
        session.run(None, feed)
    finally:
        table().update(kept)
    for name, time_ in spent.most_common(6):
        print(f"    {name:24} {time_ * 1e3:8.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=NETWORKS)
    parser.add_argument("--rows", action="store_true")
    chosen = parser.parse_args()
    print(f"{'network':20} {'ONNX Runtime':>11} {'ours':>11}")
    with tempfile.TemporaryDirectory() as place:
        for network in chosen.only:
            measure(network, Path(place), chosen.rows)
