"""What weights in fewer bits cost: the relative error of logits, scheme by scheme, against the float model.

    python benchmarks/quantization_errors.py [--write] [--seed 0]

The model is a Llama of 4 layers with width 512. Its weights have the tails of trained ones: they are drawn from
Student's t with 4 degrees of freedom, and one input channel in 64 is 8 times as large. Each file runs in ONNX Runtime,
which is told to compute products in float32. Where ONNX Runtime has no kernel for the type of the
codes, the numbers that they stand for run in its place. `--write` puts the table into docs/large-models.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import proto_schema as ps  # noqa: E402
import purexport  # noqa: E402
from proto_schema.quantization import dequantized, measured, quantize  # noqa: E402
from purexport.runtime.sessions import Sessions, exact_session_of  # noqa: E402
from tests.models.llama import Llama, Shape  # noqa: E402

Array = np.ndarray[Any, Any]

PAGE = ROOT / "docs" / "large-models.md"
BEGIN = "<!-- written by `python benchmarks/quantization_errors.py --write` -->"
END = "<!-- end of what is written -->"
OPSET = 25  # the first with all types
TOKENS = 96
SHARES = {"words": 512**0.5, "o": 8**-0.5, "down": 8**-0.5, "q": 0.5}  # numbers of size 1, to which 8 parts are added

SCHEMES: tuple[dict[str, Any], ...] = (
    {"type": "float16"},
    {"type": "bfloat16"},
    {"type": "float8e4m3fn"},
    {"type": "float8e5m2"},
    {"type": "int8"},
    {"type": "uint8"},
    {"type": "int8", "block_size": 32},
    {"type": "int4"},
    {"type": "int4", "clip": True},
    {"type": "int4", "symmetric": False},
    {"type": "uint4"},
    {"type": "uint4", "clip": True},
    {"type": "int4", "block_size": 128},
    {"type": "uint4", "block_size": 128},
    {"type": "int4", "block_size": 16},
    {"type": "float4e2m1"},
    {"type": "nvfp4"},
    {"type": "mxfp4"},
    {"type": "int2"},
    {"type": "int2", "clip": True},
    {"type": "uint2"},
    {"type": "uint2", "clip": True},
)


def trained_like(seed: int) -> Llama:
    """The model. A matrix gives results of the size of its inputs, or of a share of that."""
    model = Llama(Shape(width=512, heads=8, groups=4, layers=4, inner=1408, vocabulary=1024)).eval()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim != 2:
                continue
            share = SHARES.get(name.split(".")[-2], 1.0)
            drawn = rng.standard_t(4, tuple(parameter.shape))
            drawn[:, rng.permutation(parameter.shape[1])[: parameter.shape[1] // 64]] *= 8
            drawn *= share * parameter.shape[1] ** -0.5 / drawn.std()
            parameter.copy_(torch.from_numpy(drawn.astype(np.float32)))
    return model


def logits(model: ps.ModelProto, words: Array) -> Array:
    """[tokens, vocabulary]. Raises what ONNX Runtime raises for a type that it lacks."""
    with Sessions() as sessions:
        session = sessions.open(model, exact_session_of)
        found: Array = session.run(None, {session.get_inputs()[0].name: words})[0]
        return found.reshape(-1, found.shape[-1])


def row(model: ps.ModelProto, scheme: dict[str, Any], words: Array, wanted: Array) -> tuple[str, ...]:
    """One line of the table."""
    report = measured(model, scheme)
    taken = [entry for entry in report.entries if entry.form]
    elements = sum(int(np.prod(entry.shape)) for entry in taken)
    errors = [entry.error for entry in taken if entry.error is not None]
    try:
        found, runs = logits(quantize(model, scheme), words), "the file"
    except Exception:  # of ONNX Runtime: it has no base class for what it cannot run
        found, runs = logits(dequantized(model, scheme), words), "its numbers"
    error = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
    kind, block = scheme["type"], report.scheme.block
    what = [] if report.scheme.kind.family == "cast" else [f"blocks of {block}" if block else "by channel"]
    what += ["zero points"] * report.scheme.has_zero_points + ["clip search"] * report.scheme.clip
    return (
        f"`{kind}`",
        ", ".join(what),
        f"{8 * sum(entry.after for entry in taken) / elements:.2f}",
        f"{np.mean(errors):.1e}" if errors else "",
        f"{error:.1e}",
        runs,
    )


def table(seed: int) -> str:
    """In Markdown."""
    program = purexport.export(
        trained_like(seed), (torch.zeros(1, TOKENS, dtype=torch.int64),), opset_version=OPSET, capture="trace"
    )
    model = program.model_proto
    words = np.random.default_rng(seed + 1).integers(0, 1024, (1, TOKENS))
    wanted = logits(model, words)
    lines = [("type", "scales", "bits a weight", "error of weights", "error of logits", "what ran")]
    lines += [row(model, scheme, words, wanted) for scheme in SCHEMES]
    texts = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([texts[0], f"|{'---|' * len(lines[0])}", *texts[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="put the table into docs/large-models.md")
    args = parser.parse_args()
    made = table(args.seed)
    print(made)
    if args.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
