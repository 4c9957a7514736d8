"""ONNX operators written by older operators, for opsets that do not have them yet: see `table`."""
