"""A library that knows torch.onnx only, exporting with purexport: its code stays as it is.

python examples/code_of_others.py
"""

from __future__ import annotations

import torch
from torch import nn
from torch.onnx import export, is_in_onnx_export

import proto_schema as ps
import purexport


class Detector(nn.Module):
    """Of the library: in an export it leaves out what a runtime does better."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 6, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = self.layer(image).sigmoid()
        return found if is_in_onnx_export() else found.round()


def export_detector(model: nn.Module, path: str) -> None:
    """Of the library: calls what it imported before anyone could replace it."""
    export(
        model,
        (torch.randn(1, 3, 32, 32),),
        path,
        training=torch.onnx.TrainingMode.EVAL,
        do_constant_folding=True,
        opset_version=17,
        input_names=["image"],
        output_names=["found"],
        dynamic_axes={"image": {0: "n", 2: "height", 3: "width"}},
        dynamo=False,
    )


def main() -> None:
    with purexport.patch():
        export_detector(Detector(), "detector.onnx")
    model = ps.load("detector.onnx")
    print("written by", model.producer_name, "with", [node.op_type for node in model.graph.node])
    print("torch.onnx.export is torch's again:", torch.onnx.export is export)


if __name__ == "__main__":
    main()
