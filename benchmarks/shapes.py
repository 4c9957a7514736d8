"""Shape inference: proto_schema beside the official one (C++), and the memory that a large model takes.

    python benchmarks/shapes.py [--nodes 100000] [--gb 30]

The speed is measured on a chain of MatMul, Add, Relu and Reshape with dynamic batch and length, from a message to a
message: seconds of the processor, the best of several rounds.  The memory is the peak of a child process that infers a
file whose weights lie in external data.  That data is a sparse file: its size counts, and nobody wrote it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import proto_schema as ps
from proto_schema import helper
from proto_schema.numpy_helper import from_array

ROUNDS = 3
WIDTH = 64


def chain(count: int) -> ps.ModelProto:
    """A model of that many nodes, with a bias of its own for each Add."""
    weights = [from_array(np.ones((WIDTH, WIDTH), np.float32), "w"), from_array(np.array([0, -1, WIDTH]), "shape")]
    nodes, last = [], "x"
    for place in range(count // 4):
        weights.append(from_array(np.ones(WIDTH, np.float32), f"b{place}"))
        nodes += [
            helper.make_node("MatMul", [last, "w"], [f"m{place}"], name=f"m{place}"),
            helper.make_node("Add", [f"m{place}", f"b{place}"], [f"a{place}"], name=f"a{place}"),
            helper.make_node("Relu", [f"a{place}"], [f"r{place}"], name=f"r{place}"),
            helper.make_node("Reshape", [f"r{place}", "shape"], [f"z{place}"], name=f"z{place}"),
        ]
        last = f"z{place}"
    given = helper.make_tensor_value_info("x", ps.TensorProto.FLOAT, ["n", "t", WIDTH])
    graph = helper.make_graph(nodes, "chain", [given], [ps.ValueInfoProto(name=last)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def best(work: Callable[[], Any]) -> float:
    """Seconds of the processor in the fastest round."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def speed(count: int) -> None:
    """Print the seconds of both, and their ratio."""
    import onnx

    data = chain(count).SerializeToString()
    ours, theirs = ps.loads(data), onnx.ModelProto.FromString(data)
    mine = best(lambda: ps.shape_inference.infer_shapes(ours))
    official = best(lambda: onnx.shape_inference.infer_shapes(theirs, data_prop=True))
    print(f"{count} nodes: {mine:.2f} s, onnx {official:.2f} s, ratio {mine / official:.2f}")


def large(folder: Path, gb: int) -> Path:
    """A model of some layers whose external data is a sparse file of that many GB."""
    layers = 48
    width = int((gb * 2**30 / layers / 4) ** 0.5)
    size = width * width * 4
    nodes, weights, last = [], [], "x"
    for place in range(layers):
        entries = {"location": "w.data", "offset": str(place * size), "length": str(size)}
        weights.append(
            ps.TensorProto(
                name=f"w{place}",
                dims=[width, width],
                data_type=ps.TensorProto.FLOAT,
                data_location=ps.TensorProto.EXTERNAL,
                external_data=[ps.StringStringEntryProto(key=key, value=value) for key, value in entries.items()],
            )
        )
        nodes.append(helper.make_node("MatMul", [last, f"w{place}"], [f"h{place}"]))
        last = f"h{place}"
    with open(folder / "w.data", "wb") as file:
        file.truncate(layers * size)
    given = helper.make_tensor_value_info("x", ps.TensorProto.FLOAT, ["n", width])
    graph = helper.make_graph(nodes, "large", [given], [ps.ValueInfoProto(name=last)], weights)
    path = folder / "large.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


def memory(path: str) -> None:
    """Infer the file, write the result beside it, and print the peak of this process."""
    start = time.perf_counter()
    ps.shape_inference.infer_shapes_path(path, path.replace("large", "inferred"))
    # of this program: `ru_maxrss` would begin with that of the process which started it
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    written = ps.load(path.replace("large", "inferred")).graph
    values = len(written.value_info) if written is not None else 0
    print(f"peak {peak:.0f} MB, {time.perf_counter() - start:.2f} s, {values} values declared")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--gb", type=int, default=30)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        memory(args.memory_of)
        return
    speed(args.nodes)
    with tempfile.TemporaryDirectory() as folder:
        path = large(Path(folder), args.gb)
        print(f"{args.gb} GB of external data: ", end="", flush=True)
        subprocess.run([sys.executable, __file__, "--memory-of", str(path)], check=True)


if __name__ == "__main__":
    main()
