"""Passes over the ONNX graph, a file a pass.  Each is linear in the number of nodes."""
