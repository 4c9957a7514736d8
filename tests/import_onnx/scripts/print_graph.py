"""Prints what a model consists of."""

import sys

import onnx

model = onnx.load(sys.argv[1])
print("ir", model.ir_version, {entry.domain or "ai.onnx": entry.version for entry in model.opset_import})
print({entry.key: entry.value for entry in model.metadata_props}, model.HasField("doc_string"), repr(model.doc_string))


def shape_of(value):
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims]


for kind in ("input", "output", "value_info"):
    for value in getattr(model.graph, kind):
        print(kind, value.name, onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type), shape_of(value))
for node in model.graph.node:
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    print(node.op_type, list(node.input), "->", list(node.output), attributes)
print(model.graph.node[0])
for field, value in model.graph.node[1].ListFields():
    print(field.name, field.number, value)
print(onnx.printer.to_text(model.graph))
