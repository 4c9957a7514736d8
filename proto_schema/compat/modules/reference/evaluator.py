"""ReferenceEvaluator, which takes and gives what that of onnx does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from proto_schema.compat.arrays import small_type
from proto_schema.compat.messages import mannered, plain
from proto_schema.compat.modules.model_container import ModelContainer
from proto_schema.dtypes import dtype_of
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.tensors import from_array

__all__ = ["ReferenceEvaluator"]

_ours: Any = import_module("proto_schema.reference")


class ReferenceEvaluator(_ours.ReferenceEvaluator):  # type: ignore[misc]
    """Runs a model in numpy; see `proto_schema.reference`. A ModelContainer can be run, too."""

    def __init__(
        self,
        proto: Any,
        opsets: Mapping[str, int] | None = None,
        functions: Iterable[Any] | None = None,
        verbose: int = 0,
        new_ops: Iterable[type[Any]] | None = None,
        optimized: bool = True,
    ) -> None:
        self.container_ = proto if isinstance(proto, ModelContainer) else None
        core = _inlined(proto) if isinstance(proto, ModelContainer) else plain(proto)
        called = None if functions is None else [plain(item) for item in functions]
        super().__init__(core, opsets, called, verbose, new_ops, optimized)

    @property
    def input_types(self) -> Any:
        return mannered(super().input_types)

    @property
    def output_types(self) -> Any:
        return mannered(super().output_types)

    def run(
        self,
        output_names: Sequence[str] | None,
        feed_inputs: Mapping[str, Any],
        attributes: Mapping[str, Any] | None = None,
        intermediate: bool | Callable[[str, Any], None] = False,
    ) -> Any:
        feed = {name: plain(value) for name, value in feed_inputs.items()}
        return super().run(output_names, feed, attributes, intermediate)

    def given_back(self, value: Any, code: int) -> Any:
        """An output of a type that numpy lacks, as an array of ml_dtypes."""
        small = small_type(dtype_of(code)) if code else None
        return value if small is None else np.asarray(value).astype(small)


def _inlined(container: ModelContainer) -> ModelProto:
    """The container's model with its arrays as tensors; their memory is shared."""
    from proto_schema.datafiles import with_data
    from proto_schema.external_data_helper import ExternalDataInfo, all_tensors, uses_external_data

    model = plain(container.model_proto)
    outside = [tensor for tensor in all_tensors(model) if uses_external_data(tensor)]
    data = {id(item): _bytes(container[ExternalDataInfo(item).location], item) for item in outside}
    made: ModelProto = with_data(model, data)
    return made


def _bytes(array: Any, tensor: TensorProto) -> Any:
    return from_array(np.asarray(array), tensor.name).raw_data
