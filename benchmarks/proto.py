"""Bytes, files and messages: proto_schema beside the official onnx (C runtime) and protobuf's pure-Python runtime.

    python benchmarks/proto.py [--mb 1024] [--nodes 100000] [--trees 1000000] [--only WORD]

Every measurement runs in a process of its own; the peers run in the same session, one right after the other, and what
counts are the ratios. Seconds are the best of several rounds: of the clock for files, of the processor for work in
memory, so that a busy machine disturbs them less. Memory is the growth of the process's anonymous
pages (on Linux), so that a mapped file does not count.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 3
TENSOR_MB = 64


def anonymous_mb() -> float:
    """Memory of this process that no file backs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0


def best(
    work: Callable[[], Any], rounds: int = ROUNDS, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Seconds of the fastest round, and the growth of memory over the first."""
    seconds, grown = [], 0.0
    for index in range(rounds):
        gc.collect()
        before, start = anonymous_mb(), clock()
        result = work()
        seconds.append(clock() - start)
        grown = anonymous_mb() - before if index == 0 else grown
        del result
    return {"seconds": min(seconds), "mb": grown}


# ---- the jobs; each runs in its own process


def weights(mb: int) -> list[Any]:
    import numpy as np

    count = max(mb // TENSOR_MB, 1)
    return [np.full((TENSOR_MB // 4, 1 << 20), index, np.float32) for index in range(count)]


def ours_load(folder: Path, **_: int) -> dict[str, float]:
    import proto_schema as ps

    def work() -> Any:
        model = ps.load(folder / "big.onnx")
        assert model.graph is not None
        return model, ps.numpy_helper.to_array(model.graph.initializer[0])

    return best(work)


def onnx_load(folder: Path, **_: int) -> dict[str, float]:
    import onnx
    from onnx import numpy_helper

    def work() -> Any:
        model = onnx.load(folder / "big.onnx")
        return model, numpy_helper.to_array(model.graph.initializer[0])

    return best(work, 2)


def raw_write(folder: Path, mb: int, **_: int) -> dict[str, float]:
    arrays = weights(mb)

    def work() -> None:
        path = folder / "raw.tmp"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for array in arrays:
            view = memoryview(array).cast("B")
            while view:
                view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
        os.close(descriptor)
        os.replace(path, folder / "raw.bin")

    return best(work)


def ours_save(folder: Path, mb: int, **_: int) -> dict[str, float]:
    import proto_schema as ps

    arrays = weights(mb)

    def work() -> None:
        tensors = [ps.numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(arrays)]
        ps.save(ps.ModelProto(ir_version=8, graph=ps.GraphProto(name="g", initializer=tensors)), folder / "big.onnx")

    return best(work)


def onnx_save(folder: Path, mb: int, **_: int) -> dict[str, float]:
    import onnx
    from onnx import helper, numpy_helper

    arrays = weights(mb)

    def work() -> None:
        tensors = [numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(arrays)]
        onnx.save(helper.make_model(helper.make_graph([], "g", [], [], tensors)), folder / "onnx.onnx")

    return best(work, 2)


def build(helper: Any, nodes: int) -> Any:
    made = [
        helper.make_node(
            "Conv" if i % 3 else "Add", [f"value_{i}", f"weight_{i}"], [f"value_{i + 1}"], name=f"node_{i}", axis=i % 4
        )
        for i in range(nodes)
    ]
    return helper.make_model(helper.make_graph(made, "g", [], []))


def ours_build(nodes: int, **_: Any) -> dict[str, float]:
    from proto_schema import helper

    return best(lambda: build(helper, nodes).SerializeToString(), clock=time.process_time)


def onnx_build(nodes: int, **_: Any) -> dict[str, float]:
    from onnx import helper

    return best(lambda: build(helper, nodes).SerializeToString(), clock=time.process_time)


def ours_decode(folder: Path, **_: int) -> dict[str, float]:
    import proto_schema as ps

    data = (folder / "nodes.onnx").read_bytes()

    def work() -> Any:
        model = ps.ModelProto.FromString(data)
        assert model.graph is not None
        return model, [node.op_type for node in model.graph.node]

    return best(work, clock=time.process_time)


def onnx_decode(folder: Path, **_: int) -> dict[str, float]:
    from onnx.onnx_ml_pb2 import ModelProto

    data = (folder / "nodes.onnx").read_bytes()

    def work() -> Any:
        model = ModelProto.FromString(data)
        return model, [node.op_type for node in model.graph.node]

    return best(work, 2, time.process_time)


def ours_open(folder: Path, **_: int) -> dict[str, float]:
    import proto_schema as ps

    data = (folder / "nodes.onnx").read_bytes()

    def work() -> Any:
        model = ps.ModelProto.FromString(data)
        return model, [item.name for item in model.graph.input]

    return best(work, clock=time.process_time)


def onnx_open(folder: Path, **_: int) -> dict[str, float]:
    from onnx.onnx_ml_pb2 import ModelProto

    data = (folder / "nodes.onnx").read_bytes()
    return best(lambda: ModelProto.FromString(data), 2, time.process_time)


def ours_walk(folder: Path, **_: int) -> dict[str, float]:
    import proto_schema as ps

    data = (folder / "nodes.onnx").read_bytes()
    return best(lambda: _walked(ps.ModelProto.FromString(data)), clock=time.process_time)


def onnx_walk(folder: Path, **_: int) -> dict[str, float]:
    from onnx.onnx_ml_pb2 import ModelProto

    data = (folder / "nodes.onnx").read_bytes()
    return best(lambda: _walked(ModelProto.FromString(data)), 2, time.process_time)


def _walked(model: Any) -> Any:
    return model, [(node.op_type, [item.name for item in node.attribute]) for node in model.graph.node]


def ours_changed(folder: Path, **_: int) -> dict[str, float]:
    import proto_schema as ps

    model = ps.load(folder / "nodes.onnx")
    model.graph.node[5].name = "changed"
    return best(model.SerializeToString, clock=time.process_time)


def ours_encode(folder: Path, **_: int) -> dict[str, float]:
    import proto_schema as ps

    model = ps.load(folder / "nodes.onnx")
    assert list(model.graph.node)  # else the bytes would be copied
    return best(model.SerializeToString, clock=time.process_time)


def ours_fresh(nodes: int, **_: Any) -> dict[str, float]:
    from proto_schema import helper

    return best(build(helper, nodes).SerializeToString, clock=time.process_time)


def onnx_fresh(nodes: int, **_: Any) -> dict[str, float]:
    from onnx import helper

    return best(build(helper, nodes).SerializeToString, clock=time.process_time)


def onnx_encode(folder: Path, **_: int) -> dict[str, float]:
    from onnx.onnx_ml_pb2 import ModelProto

    model = ModelProto.FromString((folder / "nodes.onnx").read_bytes())
    return best(model.SerializeToString, 2, time.process_time)


def ensemble(helper: Any, trees: int) -> Any:
    """A model of one tree ensemble with so many tree nodes, in trees of 63, as converters of LightGBM write it."""
    import numpy as np

    rng = np.random.default_rng(0)
    nodes = np.arange(trees)
    numbers = {
        "nodes_treeids": nodes // 63,
        "nodes_nodeids": nodes % 63,
        "nodes_featureids": rng.integers(0, 200, trees),
        "nodes_truenodeids": nodes * 2 % 63,
        "nodes_falsenodeids": (nodes * 2 + 1) % 63,
        "nodes_missing_value_tracks_true": nodes % 2,
        "target_treeids": nodes[::2] // 63,
        "target_nodeids": nodes[::2] % 63,
        "target_ids": nodes[::2] * 0,
        "nodes_values": rng.standard_normal(trees).astype(np.float32),
        "target_weights": rng.standard_normal(len(nodes[::2])).astype(np.float32),
    }
    attributes: dict[str, Any] = {name: values.tolist() for name, values in numbers.items()}
    attributes["nodes_modes"] = ["LEAF" if at % 2 else "BRANCH_LEQ" for at in range(trees)]
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], "trees", domain="ai.onnx.ml", **attributes)
    return helper.make_model(helper.make_graph([node], "g", [], []))


def peak_mb() -> float:
    """The most memory that this process has had so far, pages of mapped files too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def with_peak(work: Callable[[], Any], rounds: int) -> dict[str, float]:
    """As `best`; the memory is the growth of the peak over the first round."""
    before, start = peak_mb(), time.process_time()
    result = work()
    seconds, grown = time.process_time() - start, peak_mb() - before
    del result
    return {"seconds": min(seconds, best(work, rounds, time.process_time)["seconds"]), "mb": grown}


def ours_trees_load(folder: Path, **_: int) -> dict[str, float]:
    import proto_schema as ps

    return with_peak(lambda: ps.load(folder / "trees.onnx"), 3)


def onnx_trees_load(folder: Path, **_: int) -> dict[str, float]:
    import onnx

    return with_peak(lambda: onnx.load(folder / "trees.onnx"), 2)


def ours_trees_dumps(folder: Path, **_: int) -> dict[str, float]:
    import proto_schema as ps

    model = ps.load(folder / "trees.onnx")
    return best(model.SerializeToString, clock=time.process_time)


def ours_trees_lists(folder: Path, **_: int) -> dict[str, float]:
    import proto_schema as ps

    model = ps.load(folder / "trees.onnx")
    for attribute in model.graph.node[0].attribute:
        assert attribute.ints or attribute.floats or attribute.strings
    return best(model.SerializeToString, clock=time.process_time)


def onnx_trees_dumps(folder: Path, **_: int) -> dict[str, float]:
    import onnx

    return best(onnx.load(folder / "trees.onnx").SerializeToString, 2, time.process_time)


def ours_trees_arrays(folder: Path, **_: int) -> dict[str, float]:
    """Every value as an element of an array, or in a list of texts."""
    import proto_schema as ps
    from proto_schema.wire.fields import numbers

    def work() -> Any:
        found = ps.load(folder / "trees.onnx").graph.node[0].attribute
        return [numbers(item, "floats" if item.type == item.FLOATS else "ints") for item in found if item.type != 8]

    return best(work, clock=time.process_time)


def onnx_trees_arrays(folder: Path, **_: int) -> dict[str, float]:
    import numpy as np
    import onnx

    def work() -> Any:
        found = onnx.load(folder / "trees.onnx").graph.node[0].attribute
        return [np.array(item.floats if item.type == item.FLOATS else item.ints) for item in found if item.type != 8]

    return best(work, 2, time.process_time)


def ours_import(**_: Any) -> dict[str, float]:
    return _import("proto_schema")


def onnx_import(**_: Any) -> dict[str, float]:
    return _import("onnx")


def _import(name: str) -> dict[str, float]:
    import numpy as np

    assert np.array(0).shape == ()
    start = time.perf_counter()
    __import__(name)
    return {"seconds": time.perf_counter() - start, "mb": 0.0}


# ---- the table


def measure(job: str, pure: bool = False, **settings: Any) -> dict[str, float]:
    environment = dict(os.environ, PYTHONPATH=str(Path(__file__).parent.parent))
    if pure:
        environment["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
    command = [sys.executable, __file__, "--job", job, "--settings", json.dumps(settings)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def line(what: str, ours: dict[str, float], peers: dict[str, dict[str, float]], goal: str) -> str:
    """One row: our time and memory, then each peer's time and how many times ours it is."""
    cells = [f"{name} {r['seconds']:8.4f} s ({r['seconds'] / ours['seconds']:6.2f}x)" for name, r in peers.items()]
    return f"{what:34} ours {ours['seconds']:8.4f} s {ours['mb']:6.0f} MB   {'   '.join(cells)}   goal: {goal}"


def table(folder: Path, mb: int, nodes: int, trees: int, only: str) -> None:
    settings = {"folder": str(folder), "mb": mb, "nodes": nodes}

    def row(what: str, ours: str, peers: dict[str, tuple[str, bool]], goal: str) -> None:
        if only in what:
            mine = measure(ours, **settings)
            found = {name: measure(job, pure, **settings) for name, (job, pure) in peers.items()}
            print(line(what, mine, found, goal), flush=True)

    official, pure = "onnx", "pure protobuf"
    row("import beyond numpy", "ours_import", {official: ("onnx_import", False)}, "30 ms")
    save_peers = {"raw": ("raw_write", False), official: ("onnx_save", False)}
    row(f"save {mb} MB from arrays", "ours_save", save_peers, "raw 0.87x, onnx 3x")
    if only in "load":
        measure("ours_save", **settings)
    row(f"load {mb} MB, first weight", "ours_load", {official: ("onnx_load", False)}, "50x, 20 MB")
    row(f"build {nodes} nodes, serialize", "ours_build", {official: ("onnx_build", False)}, "1x")
    peers = (False, True)
    decode = {name: ("onnx_decode", slow) for name, slow in zip((official, pure), peers, strict=True)}
    encode = {name: ("onnx_encode", slow) for name, slow in zip((official, pure), peers, strict=True)}
    write_nodes(folder, nodes)
    row(f"decode {nodes} nodes, read op_type", "ours_decode", decode, "pure 5x")
    row(f"open {nodes} nodes, read inputs", "ours_open", {official: ("onnx_open", False)}, "0.1x of onnx")
    row(f"decode {nodes} nodes, read attributes", "ours_walk", {official: ("onnx_walk", False)}, "none")
    row(f"encode {nodes} nodes", "ours_encode", encode, "pure 5x")
    row(f"encode {nodes} nodes, just made", "ours_fresh", {official: ("onnx_fresh", False)}, "4x of onnx")
    row(f"encode {nodes} nodes, one changed", "ours_changed", {official: ("onnx_encode", False)}, "1x of onnx")
    for count in (trees, 8 * trees):
        if only not in f"trees {count}":
            continue
        write_trees(folder, count)
        size = (folder / "trees.onnx").stat().st_size
        of_file = f"1x, {1.5 * size / 2**20:.0f} MB: 1.5 files"
        row(f"load trees {count}, {size >> 20} MB", "ours_trees_load", {official: ("onnx_trees_load", False)}, of_file)
        row(f"dumps trees {count}", "ours_trees_dumps", {official: ("onnx_trees_dumps", False)}, "1x")
        row(f"dumps trees {count}, lists", "ours_trees_lists", {official: ("onnx_trees_dumps", False)}, "none")
        row(f"load trees {count}, arrays", "ours_trees_arrays", {official: ("onnx_trees_arrays", False)}, "none")


def write_nodes(folder: Path, nodes: int) -> None:
    from proto_schema import helper

    (folder / "nodes.onnx").write_bytes(build(helper, nodes).SerializeToString())


def write_trees(folder: Path, trees: int) -> None:
    from proto_schema import helper

    (folder / "trees.onnx").write_bytes(ensemble(helper, trees).SerializeToString())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mb", type=int, default=1024, help="megabytes of weights")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--trees", type=int, default=1_000_000, help="nodes of the trees of an ensemble")
    parser.add_argument("--only", default="", help="run the rows whose name has this word")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        settings = json.loads(options.settings)
        settings["folder"] = Path(settings["folder"])
        print(json.dumps(globals()[options.job](**settings)))
        return
    with tempfile.TemporaryDirectory() as folder:
        table(Path(folder), options.mb, options.nodes, options.trees, options.only)


if __name__ == "__main__":
    main()
