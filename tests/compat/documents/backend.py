"""ONNX Runtime under the interface of the Caffe2 backends that the documents of torch.onnx show; Caffe2 is gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime

KINDS = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


class Prepared:
    """A model ready to run, on one array or on a tuple of them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

    def run(self, inputs: Any) -> list[Any]:
        """The outputs, in order."""
        arrays = inputs if isinstance(inputs, tuple) else (inputs,)
        feeds = {
            item.name: array.astype(KINDS[item.type])
            for item, array in zip(self.session.get_inputs(), arrays, strict=True)
        }
        found: list[Any] = self.session.run(None, feeds)
        return found


def prepare(model: onnx.ModelProto, device: str = "CPU") -> Prepared:
    """`device` is that of the documents; what runs here runs on the CPU."""
    assert device in {"CPU", "CUDA:0"}
    return Prepared(model)


def run(prepared: Prepared, inputs: Any) -> list[Any]:
    """As the oldest documents call it."""
    return prepared.run(inputs)
