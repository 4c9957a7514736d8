"""Weights in fewer bits: what becomes of which weight (`Scheme`), the numbers, and the nodes that read them.

    model = ps.quantization.quantize(ps.load("m.onnx"), "int4")
    ps.save(model, "q.onnx", external_data=True)

Nothing is computed before the save: a quantized weight is a payload, which reads its source piece by piece.
"""

from proto_schema.quantization.dequantized import dequantized
from proto_schema.quantization.model import needed_opset, quantize
from proto_schema.quantization.report import Entry, Report, measured, planned
from proto_schema.quantization.scheme import TYPES, Scheme

__all__ = ["TYPES", "Entry", "Report", "Scheme", "dequantized", "measured", "needed_opset", "planned", "quantize"]
