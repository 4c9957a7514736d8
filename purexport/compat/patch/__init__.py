"""`patch`: for a while, whoever calls torch.onnx in this process exports with purexport."""
