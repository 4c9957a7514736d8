"""What the operators of ai.onnx.ml compute. Where the specification says little, as ONNX Runtime does."""
