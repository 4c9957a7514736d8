"""A model that is never in memory: built on the meta device, its weights read from a checkpoint while they are written.

python examples/large_model_from_checkpoint.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import proto_schema as ps
import purexport


def network(width: int = 512) -> nn.Module:
    """Eight layers; here some 8 MB, elsewhere as many gigabytes."""
    return nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(width, width), nn.GELU())))


def main() -> None:
    torch.save(network().state_dict(), "checkpoint.pt")  # somebody else did, on a larger machine

    with torch.device("meta"):
        model = network().eval()
        example = torch.empty(1, 512)
    print("the model holds values:", not any(parameter.is_meta for parameter in model.parameters()))
    purexport.export(model, (example,), "large.onnx", weights="checkpoint.pt", external_data=True)

    for path in (Path("large.onnx"), Path("large.onnx.data")):
        print(f"{path}: {path.stat().st_size:,} bytes")
    first = ps.load("large.onnx").graph.initializer[0]  # a view into the file
    stored = torch.load("checkpoint.pt", mmap=True)[first.name]
    print(
        f"{first.name} is that of the checkpoint:", bool((ps.numpy_helper.to_array(first, ".") == stored.numpy()).all())
    )


if __name__ == "__main__":
    main()
