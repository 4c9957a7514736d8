"""The ONNX graph: its passes, its metadata, its printed form."""
