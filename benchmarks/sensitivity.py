"""Are plans by sensitivity better than one type for all weights, and than other plans of the same size?

    python benchmarks/sensitivity.py [--plans 200]

Three networks with random weights of unequal spread: an MLP, a small vision network and a small transformer.  For each
the size and the error of the outputs: all weights in int4, all in int8, the plan for the size in the middle between
these, and the best and the median of random plans of int4 and int8 of at most that size.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import purexport  # noqa: E402
from proto_schema.sensitivity import QuantizationPlan, sensitivities  # noqa: E402
from proto_schema.sensitivity.measuring import outputs_differ  # noqa: E402

SAMPLES = 4


def networks() -> Iterator[tuple[str, nn.Module, tuple[int, ...]]]:
    wide = [nn.Linear(128, 256), *(layer for _ in range(6) for layer in (nn.GELU(), nn.Linear(256, 256)))]
    yield "MLP", nn.Sequential(*wide, nn.LayerNorm(256), nn.Linear(256, 64)), (4, 128)
    seen = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()]
    seen += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 40)]
    yield "vision", nn.Sequential(*seen), (2, 3, 32, 32)
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
    yield "transformer", nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), (2, 16, 64)


def uneven(model: nn.Module) -> nn.Module:
    """Weights as trained ones are: some layers have few large elements, which 4 bits pay for."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for at, parameter in enumerate(item for item in model.parameters() if item.dim() > 1):
            large = torch.rand(parameter.shape, generator=generator) < 0.002 * (at % 4)
            parameter.mul_(torch.where(large, 12.0, 1.0))
    return model.eval()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    worse = 0
    for name, model, shape in networks():
        program = purexport.export(uneven(model), (torch.rand(shape),), opset_version=21)
        proto, random = program.model_proto, np.random.default_rng(0)
        feeds: Any = [{proto.graph.input[0].name: random.normal(size=shape).astype(np.float32)} for _ in range(SAMPLES)]
        costs = sensitivities(proto, feeds)
        sizes = {kind: {key: _bytes(rows, kind) for key, rows in costs.weights.items()} for kind in ("int4", "int8")}
        whole = {kind: sum(found.values()) for kind, found in sizes.items()}
        size = (whole["int4"] + whole["int8"]) // 2

        def error(types: dict[str, str], proto: Any = proto, feeds: Any = feeds) -> float:
            return outputs_differ(proto, QuantizationPlan(types, 0, 0.0).rounded(proto), feeds)

        for kind in ("int4", "int8"):
            print(
                f"{name:12} all {kind}: {whole[kind]:>9} bytes, error {error(dict.fromkeys(costs.weights, kind)):.2e}"
            )
        plan = costs.plan(size)
        mine = error(dict(plan.weights))
        print(f"{name:12} plan    : {plan.bytes:>9} bytes, error {mine:.2e} (expected {plan.error:.2e})")
        errors = [error(_random_plan(sizes, size, random)) for _ in range(args.plans)]
        print(f"{name:12} {args.plans} random plans: best {min(errors):.2e}, median {statistics.median(errors):.2e}")
        worse += mine > min(errors)
    return int(bool(worse))


def _bytes(rows: Any, kind: str) -> int:
    """The bytes in a type, or as the weight is, where the type does not take it."""
    found = {one.type: one.bytes for one in rows}
    return int(found.get(kind, found[""]))


def _random_plan(sizes: dict[str, dict[str, int]], size: int, random: np.random.Generator) -> dict[str, str]:
    """As many weights as fit become int8, in a random order."""
    types = dict.fromkeys(sizes["int4"], "int4")
    total = sum(sizes["int4"].values())
    for name in random.permutation(list(types)):
        more = sizes["int8"][name] - sizes["int4"][name]
        if total + more <= size:
            types[str(name)], total = "int8", total + more
    return types


if __name__ == "__main__":
    sys.exit(main())
