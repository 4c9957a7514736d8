"""ReferenceEvaluator, which takes and gives what that of onnx does.

Otherwise than in `proto_schema.reference`, inputs that the model does not have are left out, numbers of another type
than the model declares are cast, and outputs of types that numpy lacks are arrays of ml_dtypes where that package is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from proto_schema.compat.arrays import small_type
from proto_schema.compat.messages import mannered, plain
from proto_schema.compat.modules.model_container import ModelContainer
from proto_schema.compat.modules.reference.op_run import OpRunExpand
from proto_schema.compat.modules.reference.shape_annotation_checker import SymbolBindings, check_value_against_type
from proto_schema.onnx import ModelProto, TensorProto, TypeProto
from proto_schema.tensors.arrays import from_array
from proto_schema.tensors.dtypes import dtype_of

__all__ = ["ReferenceEvaluator"]

_ours: Any = import_module("proto_schema.reference.evaluator")
_values: Any = import_module("proto_schema.reference.values")
_failures: Any = import_module("proto_schema.reference.failures")
_typed: Any = import_module("proto_schema.compute.call").Typed


class ReferenceEvaluator(_ours.ReferenceEvaluator):  # type: ignore[misc]
    """Runs a model in numpy; see `proto_schema.reference`. A ModelContainer can be run, too.

    With `check_shape_annotations` each value is compared with the type that the model declares of it; a name of a size
    means one number throughout a run. What contradicts raises ShapeAnnotationError.
    """

    def __init__(
        self,
        proto: Any,
        opsets: Mapping[str, int] | None = None,
        functions: Iterable[Any] | None = None,
        verbose: int = 0,
        new_ops: Iterable[type[Any]] | None = None,
        optimized: bool = True,
        check_shape_annotations: bool = False,
    ) -> None:
        self.container_ = proto if isinstance(proto, ModelContainer) else None
        self.check_shape_annotations = check_shape_annotations
        core = _inlined(proto) if isinstance(proto, ModelContainer) else plain(proto)
        called = None if functions is None else [plain(item) for item in functions]
        # an operator to be expanded by its function is computed as a whole here, which is the same
        custom = [item for item in new_ops or () if not issubclass(item, OpRunExpand)]
        super().__init__(core, opsets, called, verbose, custom, optimized)

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
        check_shape_annotations: bool | None = None,
    ) -> Any:
        """The outputs, in the order of `output_names`; see `proto_schema.reference`."""
        graph = self._graph
        declared: dict[str, TypeProto | None] = {}
        if graph is not None:
            declared = {item.name: item.type for item in (*graph.input, *graph.value_info, *graph.output)}
        # what nothing makes can be fed, too, though the graph does not declare it
        held = {*self._program.inputs, *self._program.constants, *self._program.captures}
        feed = {name: _fitting(value, declared.get(name)) for name, value in feed_inputs.items() if name in held}
        if self.check_shape_annotations if check_shape_annotations is None else check_shape_annotations:
            intermediate = _checked(declared, feed, intermediate)
        outputs = list(self._program.outputs) if output_names is None else list(output_names)
        if intermediate is True:
            return super().run(output_names, feed, attributes, intermediate)
        return self._results(outputs, feed, dict(attributes or {}), intermediate)

    def _results(self, outputs: list[str], feed: dict[str, Any], attributes: dict[str, Any], watched: Any) -> list[Any]:
        """As `run` of the base class, with the types of the results."""
        given = self._feed(feed)
        defaults = getattr(self.proto, "attribute_proto", ())
        known = {item.name: _ours_value(item) for item in defaults}
        self._check_outputs(outputs)
        try:
            with np.errstate(all="ignore"):
                found = self._program.run(given, outputs, None, {**known, **attributes}, self._watch(watched, {}))
        except _failures.EvaluationError as error:
            if isinstance(error.__cause__, TypeError):  # as onnx has it for operators that users bring
                raise TypeError(str(error)) from error
            raise
        return [_given_back(value) for value in found]


def _ours_value(attribute: Any) -> Any:
    from proto_schema.tensors.attributes import get_attribute_value

    return get_attribute_value(attribute)


def _given_back(value: Any) -> Any:
    """A result as callers get it."""
    if isinstance(value, _typed):
        small = small_type(dtype_of(value.dtype))
        return value.array if small is None else np.asarray(value.array).astype(small)
    return [_given_back(item) for item in value] if isinstance(value, list) else _values.plain(value)


def _fitting(value: Any, declared: TypeProto | None) -> Any:
    """An input; numbers become those of the type that the model declares."""
    value = plain(value)
    kind = declared.tensor_type if declared is not None else None
    if not isinstance(value, np.ndarray) or kind is None or not kind.elem_type or value.dtype.kind not in "biuf":
        return value
    row = dtype_of(kind.elem_type)
    wanted = np.dtype(row.numpy)
    if row.bits == 0 or value.dtype == wanted or wanted.kind == "c":
        return value
    return value.astype(wanted)


def _checked(declared: Mapping[str, TypeProto | None], feed: Mapping[str, Any], watched: Any) -> Any:
    """A callback that compares each result with its declaration, as the inputs are compared here."""
    bindings = SymbolBindings()
    for name, value in feed.items():
        check_value_against_type(mannered(declared.get(name)), value, bindings, name)

    def check(name: str, value: Any) -> None:
        check_value_against_type(mannered(declared.get(name)), value, bindings, name)
        if callable(watched):
            watched(name, value)

    return check


def _inlined(container: ModelContainer) -> ModelProto:
    """The container's model with its arrays as tensors; their memory is shared."""
    from proto_schema.external.datafiles import with_data
    from proto_schema.external_data_helper import ExternalDataInfo, all_tensors, uses_external_data

    model: ModelProto = plain(container.model_proto)
    outside = [tensor for tensor in all_tensors(model) if uses_external_data(tensor)]
    data = {id(item): _bytes(container[ExternalDataInfo(item).location], item) for item in outside}
    return with_data(model, data)


def _bytes(array: Any, tensor: TensorProto) -> Any:
    return from_array(np.asarray(array), tensor.name).raw_data
