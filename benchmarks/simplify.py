"""`ps.simplify` beside onnxsim: how many nodes are left of files of torch.onnx (dynamo=False), and how long it takes.

    pip install timm onnxsim
    python benchmarks/simplify.py [NETWORK ...]

The networks have random weights, biases too, since a bias of zeros could be left out. Both results run in ONNX Runtime
without its optimizations, and their largest difference from the file as it was is printed. Seconds are processor time.
"""

from __future__ import annotations

import argparse
import io
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

NETWORKS = (
    "resnet50", "mobilenetv3_small_100", "efficientnet_b0", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224",
)  # fmt: skip
SIZE = 224
FOLDED = 64 << 20  # bytes: onnxsim has no bound, and convolutions take up normalizations only where they are read


def written(name: str) -> bytes:
    """The file of a network, before anything simplifies it."""
    import timm
    import torch

    torch.manual_seed(0)
    network = timm.create_model(name).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.01 * torch.randn_like(parameter))
    file = io.BytesIO()
    example = (torch.randn(1, 3, SIZE, SIZE),)
    options: Any = {"dynamo": False, "do_constant_folding": False, "opset_version": 17, "input_names": ["x"]}
    torch.onnx.export(network, example, file, **options)
    return file.getvalue()


def run(data: bytes, x: Any) -> Any:
    """The first output by ONNX Runtime as the file is."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options).run(None, {"x": x})[0]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the seconds of the processor."""
    start = time.process_time()
    made = work()
    return made, time.process_time() - start


def main() -> None:
    """Print a row a network."""
    import onnx
    import onnxsim

    import proto_schema as ps

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print("| network | nodes | ours | s | differs by | onnxsim | s | differs by |\n|---|---|---|---|---|---|---|---|")
    for name in parser.parse_args().networks:
        data = written(name)
        ours, mine = timed(lambda data=data: ps.simplify(data, fold_bytes=FOLDED))
        official = onnx.load_from_string(data)
        (theirs, _), other = timed(lambda official=official: onnxsim.simplify(official)[:2])
        x = np.random.default_rng(0).standard_normal((1, 3, SIZE, SIZE)).astype(np.float32)
        wanted = run(data, x)
        parts = [f"| {name} | {len(official.graph.node)}"]
        for made, seconds in ((ours, mine), (theirs, other)):
            away = np.abs(run(made.SerializeToString(), x) - wanted).max()
            parts.append(f"{len(made.graph.node)} | {seconds:.2f} | {away:.1e}")
        print(" | ".join(parts) + " |", flush=True)


if __name__ == "__main__":
    main()
