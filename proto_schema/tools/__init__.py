"""Small tools with the names of `onnx.tools`: `update_model_dims`, `replace_constants`."""
