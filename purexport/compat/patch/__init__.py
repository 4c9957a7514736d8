"""`patch`: while it is open, calls of torch.onnx in this process export with purexport."""
