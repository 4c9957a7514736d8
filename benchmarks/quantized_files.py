"""Weights in fewer bits at large sizes: seconds and memory beside `cp` of the source and ONNX Runtime's quantizer.

    python benchmarks/quantized_files.py [--works 7b casts 1b] [--repeat 1] [--layers 32] [--folder DIR]

`7b` has the sizes of Llama 2 7B in bfloat16, `casts` some layers of it in float32, both with random values. (A file
with holes would not do: `cp` does not read them.) A file `model.onnx` beside the checkpoint refers to it, and
`purexport quantize` makes another file of that; `llm` is `language_model(quantize="int4")` of the checkpoint itself.
What is written is brought to the disk in all cases. How much of the source the kernel still holds differs from run to
run: repeat.
`1b` has the sizes of Llama 3.2 1B in float16 with random values, as products `[K, N]`, which ONNX Runtime's
`MatMulNBitsQuantizer` takes; codes and scales of both files are compared.
Each measurement is a process of its own, whose seconds, processor time and peak (all of the process, interpreter and
imports included) the kernel counts; they take turns, and the least of each counts. Needs Linux, transformers and onnx,
35 GB of disk, and 8 GB of memory for the peer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import proto_schema as ps  # noqa: E402
from proto_schema.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info  # noqa: E402
from proto_schema.onnx import TensorProto  # noqa: E402

Command = list[str]
Row = dict[str, Any]

GOALS = {
    "7b": "int4 and llm at most 2.0 of cp, int8 at most 1.3, all under 400 MB",
    "casts": "at most 1.3 of cp, under 400 MB",
    "1b": "beside ONNX Runtime's quantizer",
}
PEER = """
import sys
import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
made = MatMulNBitsQuantizer(onnx.load(sys.argv[1]), block_size=32, is_symmetric=True)
made.process()
onnx.save(made.model.model, sys.argv[2], save_as_external_data=True, location="q.onnx.data")
"""
MAKE = """
import sys
from pathlib import Path
from tests.torchvision_shim import torchvision
torchvision()
import torch
import purexport
from benchmarks.language_large import checkpoint
folder = Path(sys.argv[1])
checkpoint(folder, int(sys.argv[2]), getattr(torch, sys.argv[3]))
purexport.language_model(folder, folder, external_data="reference")
"""
LLM = """
import sys
from tests.torchvision_shim import torchvision
torchvision()
import purexport
purexport.language_model(sys.argv[1], sys.argv[2], **dict(item.split("=") for item in sys.argv[3:]))
"""


def quantizing(source: Path, out: Path, kind: str, *more: str) -> Command:
    """The verb on one file."""
    verb = [sys.executable, "-m", "purexport", "quantize", str(source), "-o", str(out / "q.onnx"), "--type", kind]
    return [*verb, *more]


def measured(command: Command, out: Path) -> Row:
    """One run in a folder of its own, with what it wrote brought to the disk."""
    out.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{said.decode()}")
    files = [path for path in out.rglob("*") if path.is_file()]
    if "cp" in command or PEER in command:  # a save of ours does so itself
        subprocess.run(["sync", *map(str, files)], check=True)
    return {
        "seconds": time.perf_counter() - begun,
        "processor": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss * 1024 / 1e6,
        "written_gb": sum(path.stat().st_size for path in files) / 1e9,
    }


def layout_of_7b(folder: Path, layers: int, dtype: str) -> Path:
    """The checkpoint, and the file that refers to it; made by another process, so that this one stays small."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", MAKE, str(folder), str(layers), dtype], check=True, env=environment)
    return folder / "model.onnx"


def layout_of_1b(folder: Path) -> Path:
    """Products with the weights of Llama 3.2 1B, of one random block."""
    folder.mkdir()
    width, inner, keys = 2048, 8192, 512
    layer = {"q": (width, width), "k": (width, keys), "v": (width, keys), "o": (width, width)}
    layer |= {"gate": (width, inner), "up": (width, inner), "down": (inner, width)}
    shapes = {f"layers.{at}.{name}.weight": shape for at in range(16) for name, shape in layer.items()}
    shapes["lm_head.weight"] = (width, 128256)
    block = (np.random.default_rng(0).standard_normal(1 << 20, np.float32) * 0.02).astype(np.float16)
    path = folder / "m.onnx"
    nodes, inputs, outputs, tensors, at = [], {}, [], [], 0
    with (folder / "m.bin").open("wb") as file:
        for name, (rows, columns) in shapes.items():
            count = rows * columns
            for start in range(0, count, block.size):
                file.write(np.roll(block, at % 977)[: count - start].data)
                at += 1
            inputs[f"x{rows}"] = make_tensor_value_info(f"x{rows}", TensorProto.FLOAT16, ["n", rows])
            outputs.append(make_tensor_value_info(f"{name}.y", TensorProto.FLOAT16, ["n", columns]))
            nodes.append(make_node("MatMul", [f"x{rows}", name], [f"{name}.y"], name.removesuffix(".weight")))
            offset = file.tell() - 2 * count
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=[rows, columns])
            tensor.data_location = TensorProto.EXTERNAL
            pairs = {"location": "m.bin", "offset": str(offset), "length": str(2 * count)}
            tensor.external_data = [ps.StringStringEntryProto(key=key, value=value) for key, value in pairs.items()]
            tensors.append(tensor)
    graph = make_graph(nodes, "g", list(inputs.values()), outputs, tensors)
    path.write_bytes(ps.dumps(make_model(graph, opset_imports=[make_opsetid("", 21)], ir_version=10)))
    return path


def alike(ours: Path, theirs: Path) -> bool:
    """Whether two files have the same codes and scales, read a product at a time."""
    sides = []
    for path in (ours, theirs):
        graph = ps.load(path).graph
        assert graph is not None
        tensors = {item.name: item for item in graph.initializer}
        products = sorted((node for node in graph.node if node.op_type == "MatMulNBits"), key=lambda node: node.output)
        sides.append([[tensors[name] for name in node.input[1:] if name in tensors] for node in products])
    if len(sides[0]) != len(sides[1]) or not sides[0]:
        return False
    pairs = ((a, b) for left, right in zip(*sides, strict=True) for a, b in zip(left, right, strict=True))
    arrays = ([ps.numpy_helper.to_array(item).reshape(-1) for item in pair] for pair in pairs)
    return all(np.array_equal(*pair) for pair in arrays)


def contenders(work: str, top: Path, layers: int) -> Iterator[tuple[str, Command]]:
    """What runs, with its command; `OUT` stands for the folder that it writes to."""
    source, out = top / "from", Path("OUT")
    if work == "1b":
        model = layout_of_1b(source)
        yield "cp", ["cp", str(source / "m.bin"), str(out)]
        yield "int4 MatMulNBits", quantizing(model, out, "int4", "--target", "onnxruntime", "--block-size", "32")
        yield "ONNX Runtime", [sys.executable, "-c", PEER, str(model), str(out / "q.onnx")]
        return
    model = layout_of_7b(source, layers, "bfloat16" if work == "7b" else "float32")
    checkpoint = [str(path) for path in sorted(source.glob("*.safetensors"))]
    yield "cp", ["cp", *checkpoint, str(out)]
    if work == "casts":
        yield from ((kind, quantizing(model, out, kind)) for kind in ("float16", "bfloat16", "int8"))
        return
    yield from ((kind, quantizing(model, out, kind)) for kind in ("int4", "int8", "float8e4m3fn"))
    llm = [sys.executable, "-c", LLM, str(source), str(out), "target=onnxruntime", "quantize=int4"]
    yield "int4, llm", llm


def rows_of(work: str, top: Path, layers: int, repeat: int) -> Iterator[Row]:
    """The least of each contender's runs."""
    commands = list(contenders(work, top, layers))
    best: dict[str, Row] = {}
    ours = top / "ours"
    for _ in range(repeat):
        for name, command in commands:
            out = ours if work == "1b" and name.startswith("int4") else top / "out"
            found = measured([part.replace("OUT", str(out)) for part in command], out)
            print(f"{work}, {name}: {found['seconds']:.1f} s", file=sys.stderr)
            old = best.get(name, found)
            best[name] = {key: min(value, old[key]) for key, value in found.items()}
            if name == "ONNX Runtime":
                best[name]["alike"] = alike(ours / "q.onnx", out / "q.onnx")
            if out != ours:
                shutil.rmtree(out)
        shutil.rmtree(ours, ignore_errors=True)
    for name, row in best.items():
        yield {"work": work, "contender": name, **row, "ratio": row["seconds"] / best["cp"]["seconds"]}


def table(rows: list[Row]) -> str:
    """For people."""
    lines = [("work", "contender", "seconds", "of cp", "processor s", "peak MB", "written GB", "same numbers")]
    for row in rows:
        same = "" if "alike" not in row else "yes" if row["alike"] else "NO"
        figures = (f"{row[key]:.{places}f}" for key, places in FIGURES.items())
        lines.append((row["work"], row["contender"], *figures, same))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*text, "", *(f"goal, {work}: {GOALS[work]}" for work in dict.fromkeys(r["work"] for r in rows))])


FIGURES = {"seconds": 1, "ratio": 2, "processor": 1, "peak_mb": 0, "written_gb": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--works", nargs="+", default=list(GOALS), choices=list(GOALS), metavar="WORK")
    parser.add_argument("--repeat", type=int, default=1, help="measurements of each (default: 1)")
    parser.add_argument("--layers", type=int, default=32, help="of the 7B layout (default: 32, which is all)")
    parser.add_argument("--folder", type=Path, help="where the files are written (default: for temporary files)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    args = parser.parse_args()
    rows: list[Row] = []
    for work in args.works:
        with tempfile.TemporaryDirectory(dir=args.folder) as top:
            layers = max(args.layers // 4, 1) if work == "casts" else args.layers
            rows += rows_of(work, Path(top), layers, args.repeat)
    print(table(rows))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
