"""Activations in eight bits: the ranges that samples show, and `QuantizeLinear`/`DequantizeLinear` pairs with them.

    model = ps.quantization.quantize(ps.load("m.onnx"), activations="uint8", calibration="samples/")

The model runs once for each sample (twice for a method that counts), by ONNX Runtime where it is installed, else by
`proto_schema.reference`. With the default options the scales and zero points are those of ONNX Runtime's own
`quantize_static`.
"""

from proto_schema.calibration.model import Calibrated, calibrated
from proto_schema.calibration.options import METHODS, CalibrationOptions
from proto_schema.calibration.ranges import Range

__all__ = ["METHODS", "Calibrated", "CalibrationOptions", "Range", "calibrated"]
