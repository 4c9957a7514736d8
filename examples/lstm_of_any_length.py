"""A tagger whose sequences have any length and whose batch has any size, padded ones included.

python examples/lstm_of_any_length.py
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import torch
from torch import Tensor, nn

import purexport


class Tagger(nn.Module):
    """Word numbers [n, length] -> scores [n, length, 5]; what stands after a sequence's end is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 16)
        self.lstm = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.scores = nn.Linear(24, 5)

    def forward(self, ids: Tensor) -> Tensor:
        found, _ = self.lstm(self.words(ids))
        return self.scores(found) * (ids != 0).unsqueeze(-1)


def main() -> None:
    warnings.simplefilter("ignore", torch.jit.TracerWarning)  # LSTM asks in Python whether its sizes fit
    model = Tagger().eval()
    program = purexport.export(
        model,
        (torch.randint(1, 100, (2, 7)),),
        "tagger.onnx",
        input_names=["ids"],
        output_names=["scores"],
        dynamic_axes={"ids": {0: "n", 1: "length"}},  # those of the output follow
    )
    (output,) = program.model_proto.graph.output
    sizes = [dim.dim_param or dim.dim_value for dim in output.type.tensor_type.shape.dim]
    print(f"wrote tagger.onnx; {output.name} has the shape {sizes}")

    if find_spec("onnxruntime"):
        for shape in ((1, 1), (3, 4), (2, 50)):
            ids = torch.randint(0, 100, shape)
            with torch.no_grad():
                difference = (program(ids)[0] - model(ids)).abs().max()
            print(f"ids of shape {shape}: largest difference to torch {difference:.1e}")


if __name__ == "__main__":
    main()
