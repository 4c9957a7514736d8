"""How much of the results is lost by each algorithm at 4 bits, and what it takes, beside ONNX Runtime's own tools?

    python benchmarks/quantization_algorithms.py [--only NAME] [--width 4096]

Networks of products with random weights, of which few are large, and inputs of which few elements are large and that go
together: two small networks, and one layer of a real size. The error of the outputs is on data that no sample has,
relative, with `MatMulNBits` in blocks of 32. Ours are codes without and with zero points; ONNX Runtime's tools
(matmul_nbits_quantizer: its default, HQQ, k_quant and GPTQ) have zero points but for the default. Each runs in a
process of its own, whose peak memory over that of the import is counted, with the model and its samples.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import proto_schema as ps  # noqa: E402
from proto_schema import helper  # noqa: E402
from proto_schema.quantization import quantize  # noqa: E402

BLOCK = 32
SAMPLES, ROWS = 16, 128


def inputs(width: int, count: int, seed: int) -> np.ndarray[Any, Any]:
    made, random = np.random.default_rng(1), np.random.default_rng(seed)
    basis, sizes = made.normal(size=(width // 8, width)), np.exp(made.normal(size=width) * 1.2)
    shared = random.normal(size=(count, width // 8)) @ basis * (2.0 / width**0.5)
    made_of: np.ndarray[Any, Any] = (shared + random.normal(size=(count, width))) * sizes
    return made_of.astype(np.float32)


def network(*widths: int) -> ps.ModelProto:
    """Products with Gelu between them."""
    random, nodes, tensors, value = np.random.default_rng(0), [], [], "x"
    for place, (rows, columns) in enumerate(itertools.pairwise(widths)):
        weight = (random.standard_t(4, (rows, columns)) / rows**0.5).astype(np.float32)
        tensors.append(ps.numpy_helper.from_array(weight, f"w{place}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{place}"], [f"p{place}"]))
        value = f"p{place}"
        if place + 2 < len(widths):
            nodes.append(helper.make_node("Gelu", [value], [f"g{place}"]))
            value = f"g{place}"
    given = helper.make_tensor_value_info("x", 1, ["n", widths[0]])
    made = helper.make_tensor_value_info(value, 1, ["n", widths[-1]])
    graph = helper.make_graph(nodes, "g", [given], [made], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def ours(kind: str, algorithm: str) -> Callable[[Any, Any], bytes]:
    def made(model: ps.ModelProto, samples: Any) -> bytes:
        scheme = {"type": kind, "block_size": BLOCK, "algorithm": algorithm}
        calibration = samples if algorithm in ("gptq", "awq") else None
        return ps.dumps(quantize(model, scheme, target="onnxruntime", calibration=calibration))

    return made


def theirs(name: str) -> Callable[[Any, Any], bytes]:
    def made(model: ps.ModelProto, samples: Any) -> bytes:
        import onnx
        from onnxruntime.quantization import CalibrationDataReader
        from onnxruntime.quantization import matmul_nbits_quantizer as tool

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.left = iter(samples)

            def get_next(self) -> Any:
                return next(self.left, None)

        official = onnx.load_from_string(ps.dumps(model))
        symmetric = name == "rtn"
        config = {
            "rtn": lambda: tool.DefaultWeightOnlyQuantConfig(BLOCK, is_symmetric=True),
            "rtn-zeros": lambda: tool.DefaultWeightOnlyQuantConfig(BLOCK, is_symmetric=False),
            "hqq": lambda: tool.HQQWeightOnlyQuantConfig(BLOCK),
            "k-quant": tool.KQuantWeightOnlyQuantConfig,
            "gptq": lambda: tool.GPTQWeightOnlyQuantConfig(Reader()),
        }[name]()
        quantizer = tool.MatMulNBitsQuantizer(official, BLOCK, is_symmetric=symmetric, algo_config=config)
        quantizer.process()
        done: bytes = quantizer.model.model.SerializeToString()
        return done

    return made


def rows() -> Iterator[tuple[str, Callable[[Any, Any], bytes]]]:
    for kind in ("int4", "uint4"):
        for algorithm in ("rtn", "k-quant", "hqq", "awq", "gptq"):
            yield f"{kind} {algorithm}", ours(kind, algorithm)
    for name in ("rtn", "rtn-zeros", "k-quant", "hqq", "gptq"):
        yield f"onnxruntime {name}", theirs(name)


def results(data: bytes, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    found: Any = session.run(None, {"x": x})[0]
    return np.asarray(found, np.float64)


def run(widths: tuple[int, ...], label: str, queue: Any) -> None:
    """What one row makes of a network: error, seconds, peak memory, bytes; or what it raised."""
    import onnxruntime  # noqa: F401

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = network(*widths)
    samples = [{"x": inputs(widths[0], ROWS, seed)} for seed in range(SAMPLES)]
    try:
        start = time.perf_counter()
        data = dict(rows())[label](model, samples)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        x = inputs(widths[0], 512, 99)
        wanted = results(ps.dumps(model), x)
        error = float(np.linalg.norm(results(data, x) - wanted) / np.linalg.norm(wanted))
        queue.put((error, seconds, peak / 1024, len(data)))
    except Exception as failed:  # of a tool, whatever it is
        queue.put(f"{type(failed).__name__}: {failed}"[:100])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="a part of the names of rows")
    parser.add_argument("--width", type=int, default=4096)
    args = parser.parse_args()
    width = args.width
    networks = {"narrow": (256, 512, 256, 64), "deep": (128, *[128] * 8, 64), f"{width} x {width}": (width, width)}
    context = multiprocessing.get_context("spawn")
    for name, widths in networks.items():
        for label, _ in rows():
            if args.only is not None and args.only not in f"{name} {label}":
                continue
            queue = context.Queue()
            process = context.Process(target=run, args=(widths, label, queue))
            process.start()
            found = queue.get()
            process.join()
            if isinstance(found, str):
                print(f"{name:12} {label:22} {found}", flush=True)
                continue
            error, seconds, peak, size = found
            print(
                f"{name:12} {label:22} error {error:.4f}  {seconds:7.1f} s  {peak:6.0f} MB  {size:>9} bytes", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
