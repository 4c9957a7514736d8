"""Parts of models, with the names of `onnx.utils`: `Extractor` on messages, `extract_model` on files.

    ps.utils.extract_model("model.onnx", "head.onnx", ["hidden"], ["scores"])

What is needed is found through subgraphs as well, and an input that is missing is an error. Weights are shared with the
model; those of a file go to the new one in chunks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from proto_schema.graphs.calls import callable_functions, callee
from proto_schema.graphs.names import bodies
from proto_schema.graphs.subgraphs import subgraph
from proto_schema.onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

__all__ = ["Extractor", "extract_model"]


class Extractor:
    """Takes parts out of one model. `model` and its parts are shared, never changed."""

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.graph = model.graph if model.graph is not None else GraphProto()
        self.initializers: dict[str, TensorProto] = _by_name(self.graph.initializer)
        self.value_infos: dict[str, ValueInfoProto] = _by_name(
            [*self.graph.value_info, *self.graph.input, *self.graph.output]
        )
        self.outmap = {name: place for place, node in enumerate(self.graph.node) for name in node.output if name}

    def extract_model(self, input_names: Sequence[str], output_names: Sequence[str]) -> ModelProto:
        """The model between these values, in this order, with the functions that it calls.

        Raises ValueError for a value that the graph does not have or whose type it does not say, and where the
        outputs need another input.
        """
        made = subgraph(self.model, output_names, input_names, all_inputs=True)
        kept = _called(made.graph.node if made.graph is not None else [], self.model.functions)
        return ModelProto(
            ir_version=self.model.ir_version,
            opset_import=self.model.opset_import,
            producer_name="onnx.utils.extract_model",
            graph=made.graph,
            functions=kept,
            configuration=self.model.configuration,
        )


def extract_model(
    input_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    input_names: Sequence[str],
    output_names: Sequence[str],
    check_model: bool = True,
    infer_shapes: bool = True,
) -> None:
    """Writes the part of the model at `input_path` between these values to `output_path`.

    `check_model` checks both models. `infer_shapes` finds the types that the file does not say. External data of the
    part becomes its own: inline, or a data file beside it where it would pass 2 GiB.
    Raises ValueError for paths and names that are empty, missing or given twice and as `Extractor.extract_model` does,
    CheckError for a model that is not valid, and what `load` and `save` raise.
    """
    from proto_schema.checker import check_model as check
    from proto_schema.files.models import load, save
    from proto_schema.shape_inference import infer_shapes as infer

    if not os.path.exists(input_path):
        raise ValueError(f"there is no model at {os.fspath(input_path)!r}")
    if not output_path:
        raise ValueError("the path of the part is empty")
    for what, names in (("input", input_names), ("output", output_names)):
        if not names:
            raise ValueError(f"name at least one {what} of the part")
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"these {what}s of the part are named twice: {', '.join(twice)}")
    if check_model:
        check(input_path)
    model = infer(input_path) if infer_shapes else load(input_path)
    save(Extractor(model).extract_model(input_names, output_names), output_path)
    if check_model:
        check(output_path)


def _by_name(items: Iterable[Any]) -> dict[str, Any]:
    return {item.name or "": item for item in items}


def _called(nodes: Iterable[NodeProto], functions: Iterable[FunctionProto]) -> list[FunctionProto]:
    """The functions that these nodes call, also through others, in the order of the model."""
    known = callable_functions(functions)
    called: set[Any] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        for graph in bodies(node):
            todo += graph.node
        name = callee(node)
        if name in known and name not in called:
            called.add(name)
            todo += known[name].node
    return [function for name, function in known.items() if name in called]
