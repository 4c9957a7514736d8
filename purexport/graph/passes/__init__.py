"""Passes over the ONNX graph, one file per pass.  Each is linear in the number of nodes."""
