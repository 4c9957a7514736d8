"""What code written for torch.onnx expects."""
