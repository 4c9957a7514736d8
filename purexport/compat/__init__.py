"""What code written for torch.onnx expects: past options, symbolic functions, and torch.onnx patched."""
