"""The ONNX graph in memory: its values and nodes, the passes over it, and the messages that are made from it."""
