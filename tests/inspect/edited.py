"""The model that the tests of `purexport edit` change."""

from __future__ import annotations

from typing import Any

import numpy as np

import proto_schema as ps

FLOAT, BOOL = ps.TensorProto.FLOAT, ps.TensorProto.BOOL
make_node, value_info = ps.helper.make_node, ps.helper.make_tensor_value_info
Entry = ps.StringStringEntryProto


def branch(name: str, nodes: list[Any], inner: str) -> Any:
    made = ps.helper.make_graph(nodes, name, [], [value_info(inner, FLOAT, ["batch", 3])])
    made.doc_string = "a branch"
    return made


def model() -> Any:
    """Names in every place that has some: subgraphs (one with a value of its own called `t`), a function, value infos,
    annotations, sharding, a sparse initializer that nothing uses, dimensions that are expressions."""
    weight = ps.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    weight.doc_string = "the weight"
    then = branch("then", [make_node("HardSwish", ["h"], ["t"], name="act"), make_node("Add", ["t", "h"], ["a"])], "a")
    orelse = branch("else", [make_node("Neg", ["h"], ["e"], name="neg", doc_string="minus")], "e")
    nodes = [
        make_node("MatMul", ["x", "w"], ["h"], name="fc", doc_string="x times w"),
        make_node("If", ["c"], ["s"], name="if", then_branch=then, else_branch=orelse),
        make_node("Twice", ["s"], ["y"], name="call", domain="local"),
        make_node("Constant", [], ["k"], name="h", value=ps.numpy_helper.from_array(np.array([1], np.float32), "h")),
    ]
    spec = ps.ShardingSpecProto(tensor_name="x", device=[0])
    spec.sharded_dim.append(ps.ShardedDimProto(axis=0, simple_sharding=[ps.SimpleShardedDimProto(dim_param="batch")]))
    nodes[0].device_configurations.append(ps.NodeDeviceConfigurationProto(configuration_id="two", sharding_spec=[spec]))
    inputs = [value_info("x", FLOAT, ["batch", 4]), value_info("c", BOOL, [])]
    outputs = [value_info("y", FLOAT, ["batch", 3]), value_info("h", FLOAT, ["batch", 3])]
    graph = ps.helper.make_graph(nodes, "net", inputs, outputs, [weight], doc_string="the graph")
    graph.value_info.append(value_info("s", FLOAT, ["2*batch + N", 3]))
    graph.quantization_annotation.append(
        ps.TensorAnnotation(tensor_name="h", quant_parameter_tensor_names=[Entry(key="w", value="w")])
    )
    graph.metadata_props.append(Entry(key="h", value="h"))
    values = ps.helper.make_tensor("z", FLOAT, [1], [2.0])
    graph.sparse_initializer.append(ps.helper.make_sparse_tensor(values, ps.helper.make_tensor("z", 7, [1], [1]), [4]))
    inner = [make_node("Add", ["x", "x"], ["h"], name="add", doc_string="twice")]
    function = ps.helper.make_function("local", "Twice", ["x"], ["h"], inner, [ps.helper.make_opsetid("", 20)])
    opsets = [ps.helper.make_opsetid("", 20), ps.helper.make_opsetid("local", 1)]
    made = ps.helper.make_model(graph, producer_name="tests", functions=[function], opset_imports=opsets, ir_version=11)
    made.configuration.append(ps.DeviceConfigurationProto(name="two", num_devices=2, device=["a", "b"]))
    made.metadata_props = [Entry(key="author", value="Ada"), Entry(key="task", value="x")]
    made.doc_string = "the model"
    return made


WHOLE = ps.dumps(model())
