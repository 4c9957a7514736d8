"""The types that one node or function makes: as onnx says, but for names of sizes that nobody outside could know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, parser, shape_inference

import proto_schema as ps
from proto_schema.shape_inference import InferenceError, infer_function_output_types, infer_node_outputs

FLOAT, INT64 = 1, 7

# operator, version, types of its inputs, inputs that are known, outputs
NODES: list[tuple[str, int, list[tuple[int, Any]], dict[int, Any], int]] = [
    ("Add", 14, [(FLOAT, (None, 2)), (FLOAT, (2,))], {}, 1),
    ("Add", 14, [(FLOAT, ("n", "m")), (FLOAT, (1, "n", "m"))], {}, 1),
    ("Add", 14, [(FLOAT, ("n", 2)), (FLOAT, ("m", 2))], {}, 1),
    ("Reshape", 21, [(FLOAT, (5, 4)), (INT64, (3,))], {1: [2, 2, 5]}, 1),
    ("Dropout", 13, [(FLOAT, (5, "n"))], {}, 2),
    ("Relu", 14, [(FLOAT, None)], {}, 1),
]


def _call(package: Any, row: tuple[str, int, list[tuple[int, Any]], dict[int, Any], int], schema: Any) -> Any:
    op, version, types, data, outputs = row
    names = [f"x{place}" for place in range(len(types))]
    made = {name: package.helper.make_tensor_type_proto(*kind) for name, kind in zip(names, types, strict=True)}
    known = {names[place]: package.numpy_helper.from_array(np.array(value)) for place, value in data.items()}
    node = package.helper.make_node(op, names, [f"y{place}" for place in range(outputs)])
    imports = [package.helper.make_opsetid("", version)]
    function = infer_node_outputs if package is ps else shape_inference.infer_node_outputs
    return {
        name: kind.SerializeToString()
        for name, kind in function(schema, node, made, known, opset_imports=imports).items()
    }


@pytest.mark.parametrize("row", NODES, ids=[f"{row[0]}-{place}" for place, row in enumerate(NODES)])
def test_node(row: Any) -> None:
    official = _call(onnx, row, defs.get_schema(row[0], row[1]))
    assert _call(ps, row, SimpleNamespace(domain="", since_version=row[1])) == official


def test_errors_of_a_node() -> None:
    schema = SimpleNamespace(domain="", since_version=14)
    node = ps.helper.make_node("Add", ["a", "b"], ["c"])
    a, b = (ps.helper.make_tensor_type_proto(FLOAT, shape) for shape in ((2, 4), (3, 4)))
    with pytest.raises(KeyError, match="b"):
        infer_node_outputs(schema, node, {"a": a})
    with pytest.raises(InferenceError, match="broadcast"):
        infer_node_outputs(schema, node, {"a": a, "b": b})
    with pytest.raises(ps.CheckError, match="inputs"):
        infer_node_outputs(schema, ps.helper.make_node("Add", ["a"], ["c"]), {"a": a})


FUNCTION = '<opset_import: ["" : 18], domain: "my"> f <k> (x, y) => (a, b) { a = Add(x, y) b = Cast<to: int = @k>(x) }'


def test_function() -> None:
    official = parser.parse_function(FUNCTION)
    types = [onnx.helper.make_tensor_type_proto(FLOAT, ("n", 3))] * 2
    attribute = onnx.helper.make_attribute("k", INT64)
    expected = shape_inference.infer_function_output_types(official, types, [attribute])
    found = infer_function_output_types(
        ps.FunctionProto.FromString(official.SerializeToString()),
        [ps.TypeProto.FromString(item.SerializeToString()) for item in types],
        [ps.AttributeProto.FromString(attribute.SerializeToString())],
    )
    assert [item.SerializeToString() for item in found] == [item.SerializeToString() for item in expected]


def test_defaults_of_inputs_count_where_it_is_asked() -> None:
    shape = ps.numpy_helper.from_array(np.array([2, 3]), "shape")
    graph = ps.helper.make_graph(
        [ps.helper.make_node("Reshape", ["x", "shape"], ["y"])],
        "g",
        [
            ps.helper.make_tensor_value_info("x", FLOAT, [6]),
            ps.helper.make_tensor_value_info("shape", INT64, [2]),
        ],
        [ps.helper.make_empty_tensor_value_info("y")],
        [shape],
    )
    model = ps.helper.make_model(graph)
    sizes = []
    for use_defaults in (False, True):
        inferred = ps.shape_inference.infer_shapes(model, use_defaults=use_defaults)
        sizes.append([dim.dim_value for dim in inferred.graph.output[0].type.tensor_type.shape.dim])
    assert sizes == [[None, None], [2, 3]]
