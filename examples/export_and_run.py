"""Export a small network with a dynamic batch, look at the file, and run it where onnxruntime is installed.

python examples/export_and_run.py
"""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

import proto_schema as ps
import purexport


class Classifier(nn.Module):
    """Images [n, 1, 28, 28] -> class scores [n, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU())
        self.scores = nn.Linear(16 * 12 * 12, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.scores(self.features(images).flatten(1))


def main() -> None:
    model, example = Classifier().eval(), torch.randn(2, 1, 28, 28)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "classifier.onnx"
        program = purexport.export(
            model, (example,), path, output_names=["scores"], dynamic_axes={"images": {0: "batch"}}, opset_version=17
        )
        print(f"captured by {program.report.route}, rules: {', '.join(program.report.rules)}")
        for node in ps.load(path).graph.node:
            print(f"{node.op_type:20} {', '.join(node.input)} -> {', '.join(node.output)}")

    if find_spec("onnxruntime"):
        more = torch.randn(5, 1, 28, 28)  # another batch than the exported one
        with torch.no_grad():
            difference = (program(more)[0] - model(more)).abs().max()
        print(f"largest difference to torch: {difference:.1e}")


if __name__ == "__main__":
    main()
