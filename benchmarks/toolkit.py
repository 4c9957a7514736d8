"""The verbs that change or judge a model, on one whose weights are far larger than memory: seconds and peak memory.

    python benchmarks/toolkit.py [--gb 30] [--folder /tmp]

Each of infer, convert, merge, simplify and scan runs as a process of its own on a model of --gb of external data, and
on one of a tenth of that with as many nodes: the time must not depend on the weights. The data is a sparse file: its
size counts, and nobody wrote it. Seconds are the best of some rounds, start of Python included; memory is the kernel's
high-water mark of the process, mapped pages included. merge joins the model with another one of the same size.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import proto_schema as ps
from proto_schema import helper

LAYERS = 48
ROUNDS = 3
MOST_MEMORY = 400
VERBS = {
    "infer": ["infer", "a.onnx", "-o", "made.onnx"],
    "convert": ["convert", "a.onnx", "--opset", "12", "-o", "made.onnx"],
    "merge": ["merge", "a.onnx", "b.onnx", "--map", "y:x", "--prefix", "a_", "--prefix", "b_", "-o", "made.onnx"],
    "simplify": ["simplify", "a.onnx", "-o", "made.onnx"],
    "scan": ["scan", "a.onnx"],
}


def layers(path: Path, gb: float) -> None:
    """Layers of a product, a bias, and what a simplifier takes out, with a sparse file of the weights."""
    width = int((gb * 1e9 / LAYERS / 4) ** 0.5)
    size, data = width * width * 4, f"{path.stem}.data"
    nodes, weights, last = [], [], "x"
    for place in range(LAYERS):
        weight = ps.TensorProto(name=f"w{place}", dims=[width, width], data_type=ps.TensorProto.FLOAT)
        ps.external.set_entries(weight, data, place * size, size)
        weights += [weight, helper.make_tensor(f"b{place}", ps.TensorProto.FLOAT, [1], [0.5])]
        nodes += [
            helper.make_node("MatMul", [last, f"w{place}"], [f"m{place}"]),
            helper.make_node("Identity", [f"b{place}"], [f"c{place}"]),
            helper.make_node("Add", [f"m{place}", f"c{place}"], [f"s{place}"]),
            helper.make_node("Transpose", [f"s{place}"], [f"t{place}"], perm=[1, 0]),
            helper.make_node("Transpose", [f"t{place}"], [f"u{place}"], perm=[1, 0]),
        ]
        last = f"u{place}"
    nodes.append(helper.make_node("Relu", [last], ["y"]))
    with open(path.with_name(data), "wb") as file:
        file.truncate(LAYERS * size)
    given = helper.make_tensor_value_info("x", ps.TensorProto.FLOAT, ["n", width])
    made = helper.make_tensor_value_info("y", ps.TensorProto.FLOAT, ["n", width])
    graph = helper.make_graph(nodes, path.stem, [given], [made], weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def peak_of(words: list[str]) -> int:
    """Run a verb in this process, and tell its peak to whoever started it."""
    from purexport.cli.main import main as verb

    status = verb(words)
    # of this program: `ru_maxrss` would begin with that of the process which started it
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))
    print(f"peak {peak}", file=sys.stderr)
    return status


def measured(folder: Path, words: list[str]) -> tuple[float, int]:
    """Seconds and MB of a verb, the best of the rounds."""
    found = []
    for _ in range(ROUNDS):
        (folder / "made.onnx").unlink(missing_ok=True)
        start = time.perf_counter()
        command = [sys.executable, str(Path(__file__).resolve()), "--verb", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        found.append((seconds, int(done.stderr.rsplit("peak ", 1)[1])))
    return min(seconds for seconds, _ in found), max(peak for _, peak in found)


def main() -> int:
    """Print a row a verb. 1 where one needs more memory than it may."""
    if sys.argv[1:2] == ["--verb"]:
        return peak_of(sys.argv[2:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--gb", type=float, default=30)
    parser.add_argument("--folder", type=Path, help="where the files are made for a while (default: a temporary one)")
    args = parser.parse_args()
    sizes = (args.gb / 10, args.gb)
    rows: dict[str, list[tuple[float, int]]] = {name: [] for name in VERBS}
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=args.folder) as place:
            folder = Path(place)
            for name in ("a.onnx", "b.onnx"):
                layers(folder / name, size)
            for name, words in VERBS.items():
                rows[name].append(measured(folder, words))
    print("| verb | " + " | ".join(f"{size:g} GB: s | MB" for size in sizes) + " |\n|---" + "|---" * 4 + "|")
    for name, found in rows.items():
        print(f"| {name} | " + " | ".join(f"{seconds:.2f} | {peak}" for seconds, peak in found) + " |")
    return int(any(peak > MOST_MEMORY for found in rows.values() for _, peak in found))


if __name__ == "__main__":
    raise SystemExit(main())
