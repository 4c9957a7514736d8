"""Operators of ONNX Runtime's domain com.microsoft, as its kernels for a CPU compute them."""
