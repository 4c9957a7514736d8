"""onnx.backend: the interface that runtimes implement (`base`). The cases of `onnx.backend.test` are not here."""
