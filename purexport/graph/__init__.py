"""The ONNX graph in memory: values, nodes, passes over them, and the messages made from them."""
