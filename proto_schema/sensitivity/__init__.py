"""What the quantization of each weight alone costs in the outputs, and a plan: which weight in how many bits.

costs = sensitivities(ps.load("m.onnx"), "samples/")
plan = costs.plan(size=40_000_000)
small = plan.apply(ps.load("m.onnx"))
"""

from proto_schema.sensitivity.measuring import Sensitivities, WeightCost, sensitivities
from proto_schema.sensitivity.plan import QuantizationPlan

__all__ = ["QuantizationPlan", "Sensitivities", "WeightCost", "sensitivities"]
