"""onnx.gen_proto: made the schema files of onnx's own build. There is nothing to make here."""
