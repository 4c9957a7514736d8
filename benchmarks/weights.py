"""How long does it take to open a checkpoint, and to convert its weights while they are written?

    python benchmarks/weights.py [--tensors 100000] [--megabytes 256] [--repeat 3]

Opening: CPU seconds for a checkpoint of many tensors, beside `torch.load(mmap=True)` of the same file. Converting: the
rate at which a tensor's bytes are produced, and the memory that it takes at its peak, as Python's allocator sees it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from proto_schema.onnx import TensorProto
from purexport.weights import Stored, cast, open_weights, transposed


def seconds(work: Callable[[], object], repeat: int) -> float:
    """The least CPU time of several runs."""
    taken = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def produce(stored: Stored) -> int:
    """Makes all bytes, a piece at a time."""
    return sum(len(chunk) for chunk in stored.payload.chunks())


def peak(stored: Stored) -> int:
    tracemalloc.start()
    try:
        produce(stored)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def safetensors(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(array.data)
    return path


def opening(folder: Path, tensors: int, repeat: int) -> None:
    arrays = {f"model.layers.{at}.weight": np.zeros(1, np.float32) for at in range(tensors)}
    plain = safetensors(folder / "many.safetensors", arrays)
    archive = folder / "many.pt"
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, archive)
    for what, work in (
        ("open_weights, safetensors", lambda: open_weights(plain)),
        ("open_weights, torch.save", lambda: open_weights(archive)),
        ("torch.load(mmap=True)", lambda: torch.load(archive, mmap=True)),
    ):
        sys.stdout.write(f"{what:28} {tensors} tensors  {seconds(work, repeat):6.2f} s\n")


def converting(folder: Path, megabytes: int, repeat: int) -> None:
    side = int((megabytes * (1 << 20) / 4) ** 0.5)
    array = np.random.default_rng(0).standard_normal((side, side), np.float32)
    stored = open_weights(safetensors(folder / "large.safetensors", {"w": array}))["w"]
    for what, made in (
        ("as it is", stored),
        ("cast to bfloat16", cast(stored, TensorProto.BFLOAT16)),
        ("cast to float16", cast(stored, TensorProto.FLOAT16)),
        ("transposed", transposed(stored, (1, 0))),
        ("transposed, to bfloat16", cast(transposed(stored, (1, 0)), TensorProto.BFLOAT16)),
    ):
        rate = stored.nbytes / seconds(lambda made=made: produce(made), repeat) / 1e6
        sys.stdout.write(
            f"{what:28} {side} x {side} float32  {rate:6.0f} MB/s  {peak(made) / 1e6:5.1f} MB at the peak\n"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure open_weights and conversions.")
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        opening(Path(folder), asked.tensors, asked.repeat)
        converting(Path(folder), asked.megabytes, asked.repeat)


if __name__ == "__main__":
    main()
