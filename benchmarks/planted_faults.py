"""How often `purexport.compare` names the node that is at fault: faults planted into exports of twenty networks.

    python -m benchmarks.planted_faults                     1,000 faults
    python -m benchmarks.planted_faults --faults 100 --exporter torch

Each fault is a changed attribute, axis, constant or dtype, or two inputs exchanged (`tests/comparison/planting.py`).
One that changes no output in ONNX Runtime beyond the bounds is passed over; the comparison must agree there.
`--exporter torch` plants into files of `torch.onnx.export(dynamo=False)`, which are matched by their values.
"""

from __future__ import annotations

import argparse
import io
import warnings
from collections import Counter
from typing import Any

import torch
from torch.utils import _pytree as pytree

import proto_schema as ps
import purexport
from tests.comparison.planting import faults, matters
from tests.models.test_zoo import CASES
from tests.models.zoo import NETWORKS

OF_THE_TESTS = (
    "word-lstm", "word-transformer", "bert-sdpa", "gpt-triu", "llama-half-gqa-torch-norm", "unet-corners",
    "gan-generator", "experts-dense", "state-space-log", "wav2vec-parametrized", "whisper", "windows-batch",
    "graph-mean",
)  # fmt: skip
OF_VISION = (
    "squeezenet1_1",
    "mobilenet_v2",
    "resnet50",
    "googlenet",
    "mobilenet_v3_large",
    "dcgan",
    "super_resolution",
)


def networks() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """The networks by name, each with its example."""
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    for case in CASES:
        if case.name in OF_THE_TESTS:
            found[case.name] = case.model(), case.example()
    for network in NETWORKS:
        if network.name in OF_VISION:
            found[network.name] = network.make(), (network.example(2),)
    return found


def exported(model: Any, args: tuple[Any, ...], exporter: str) -> bytes:
    """The file of one network."""
    if exporter == "torch":
        buffer = io.BytesIO()
        torch.onnx.export(model, args, buffer, dynamo=False)  # type: ignore[arg-type]
        return buffer.getvalue()
    return bytes(purexport.export(model, args).model_proto.SerializeToString())


def searched(model: Any, args: tuple[Any, ...], data: bytes, count: int, seed: int, listed: bool) -> Counter[str]:
    """What became of `count` faults in one file that matter."""
    names = [item.name for item in purexport.compare(model, args, data).outputs]
    assert names
    tensors = [item for item in pytree.tree_leaves(args) if isinstance(item, torch.Tensor)]
    held = ps.loads(data)
    feed = {item.name or "": tensor.numpy() for item, tensor in zip(held.graph.input, tensors, strict=False)}
    seen: Counter[str] = Counter()
    for fault in faults(data, seed):
        if seen["faults"] >= count or seen["passed over"] > 20 * count:
            break
        if not matters(data, fault.data, feed):
            seen["passed over"] += 1
            continue
        seen["faults"] += 1
        found = purexport.compare(model, args, fault.data)
        what = "missed" if found.agrees else "named" if found.node_name in fault.nodes else "another node"
        seen[what] += 1
        if what != "named" and listed:
            print(f"  {what}: {fault.kind}, {fault.said}; found {found.node_name!r} ({found.at_fault}): {found.why}")
    return seen


def main() -> None:
    """Plant, search, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--exporter", choices=("purexport", "torch"), default="purexport")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="networks")
    parser.add_argument("--list", action="store_true", help="print each fault that was not named")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {name: row for name, row in networks().items() if not options.only or name in options.only}
    each = -(-options.faults // len(found))
    total: Counter[str] = Counter()
    rows = []
    for name, (model, args) in found.items():
        seen = searched(model, args, exported(model, args, options.exporter), each, options.seed, options.list)
        total += seen
        rows.append([name, *(str(seen[key]) for key in ("faults", "named", "another node", "missed", "passed over"))])
        print(" ".join(rows[-1]), flush=True)
    columns = ["network", "faults", "named", "another node", "missed", "passed over"]
    lines = [columns, ["---"] * len(columns), *rows, ["all", *(str(total[key]) for key in columns[1:])]]
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))


if __name__ == "__main__":
    main()
