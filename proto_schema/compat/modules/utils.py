"""onnx.utils: `proto_schema.utils`, with messages as protobuf has them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from proto_schema.compat.messages import mannered, plain
from proto_schema.compat.mirrors import mirror

__all__ = ["Extractor"]


class Extractor:
    """Takes parts out of a model; see `proto_schema.utils`."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.graph = model.graph
        self._inner = import_module("proto_schema.utils").Extractor(plain(model))

    def extract_model(self, input_names: Sequence[str], output_names: Sequence[str]) -> Any:
        """The model between these values, a copy."""
        return mannered(self._inner.extract_model(list(input_names), list(output_names)).__deepcopy__({}))


def __getattr__(name: str) -> Any:
    return getattr(mirror("utils"), name)
