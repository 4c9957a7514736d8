"""onnx.model_container: `proto_schema.model_container`, with messages as protobuf has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from proto_schema import model_container as ours
from proto_schema.compat.crossing import crossing
from proto_schema.compat.messages import mannered, plain

__all__ = ["ModelContainer", "make_large_model", "make_large_tensor_proto"]

make_large_tensor_proto = crossing(ours.make_large_tensor_proto)


class ModelContainer(ours.ModelContainer):
    """A model and the arrays of its large tensors; see `proto_schema.model_container`."""

    @property
    def model_proto(self) -> Any:
        return mannered(self._model())

    @model_proto.setter
    def model_proto(self, model_proto: Any) -> None:
        self.model_proto_ = plain(model_proto)

    def enumerate_graph_protos(self) -> Iterator[Any]:
        return map(mannered, ours.ModelContainer.enumerate_graph_protos(self))

    def save(self, file_path: str | os.PathLike[str], all_tensors_to_one_file: bool = False) -> Any:
        return mannered(super().save(file_path, all_tensors_to_one_file))


def make_large_model(graph: Any, large_initializers: dict[str, Any] | None = None, **kwargs: Any) -> ModelContainer:
    """A container of the model that `make_model(graph, **kwargs)` makes, with the arrays of its large tensors."""
    from proto_schema.compat.modules import helper

    made = ModelContainer()
    made.model_proto = helper.make_model(graph, **kwargs)
    if large_initializers:
        made.set_large_initializers(large_initializers)
        made.check_large_initializers()
    return made
