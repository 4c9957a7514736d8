"""A program as typed code of users is: mypy checks it with all others, and `test_typed` runs it.

Nothing is asserted to be there that a program of an export always has.  What must be an error says so, and mypy finds
a comment that has no effect.
"""

from __future__ import annotations

import io
from typing import Any

import torch
import torch.onnx
from typing_extensions import assert_type

import proto_schema as ps
import purexport


def main() -> list[Any]:
    """What the program sees."""
    model, x = torch.nn.Linear(4, 2), torch.ones(3, 4)
    program = purexport.export(model, (x,), dynamo=True, optimize=True, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    assert_type(program, purexport.ONNXProgram)
    graph = program.model_proto.graph
    assert_type(graph, ps.GraphProto)
    assert_type(graph.node[0], ps.NodeProto)
    assert_type(ps.loads(b"").graph, ps.GraphProto)
    assert_type(ps.GraphProto().node.add(op_type="Relu"), ps.NodeProto)
    seen: list[Any] = [node.op_type for node in graph.node]
    seen += [dim.dim_param or dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim]
    seen += [item.name for item in graph.initializer]
    file = io.BytesIO()
    program.save(file, include_initializers=True, external_data=False)
    loaded = ps.loads(file.getvalue())
    seen.append(loaded.graph.output[0].type.tensor_type.elem_type == ps.TensorProto.FLOAT)
    seen.append(program(x)[0].shape)
    # as older code calls it
    mode, kind = torch.onnx.TrainingMode.EVAL, torch.onnx.OperatorExportTypes.ONNX
    purexport.export(model, x, io.BytesIO(), True, False, mode, ["x"], ["y"], kind, 13, strip_doc_string=True)
    purexport.export(model, x, training=mode, operator_export_type=kind, verify=[(x,)], rtol=1e-3)
    seen.append(purexport.export_to_pretty_string(model, x).splitlines()[0][:5])
    with purexport.patch() as held:
        seen.append("until .undo()" in repr(held))
    purexport.patch().undo()

    @purexport.patch()
    def patched(number: int) -> str:
        return str(number)

    assert_type(patched(3), str)
    return seen


def mistakes(model: torch.nn.Module, x: torch.Tensor) -> None:
    """What a type checker finds; nobody calls it."""
    purexport.export(model, x, inptu_names=["x"])  # type: ignore[call-arg]
    purexport.export(model, x, dynamic="yes")  # type: ignore[arg-type]
    purexport.export(model, x, capture="tracing")  # type: ignore[arg-type]
    purexport.export(model, x, mutated_state="ignore")  # type: ignore[arg-type]
    purexport.export(model, x, 5)  # type: ignore[arg-type]
    purexport.language_model(model, "out", "tensorrt")  # type: ignore[arg-type]
    purexport.patch().undoes()  # type: ignore[attr-defined]
