"""onnx.external_data_helper: `proto_schema.external_data_helper`, whose refusals are ValidationErrors here."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from proto_schema import external_data_helper as ours
from proto_schema.compat.crossing import crossing
from proto_schema.compat.messages import mannered, plain
from proto_schema.errors import CheckError, ExternalDataError
from proto_schema.external import KEYS

_ALLOWED_EXTERNAL_DATA_KEYS = frozenset(KEYS)
_SORTED_ALLOWED_KEYS = sorted(KEYS)
_MAX_EXTERNAL_DATA_PADDING = ours.MAX_PADDING


class ExternalValidationError(CheckError, ExternalDataError):
    """External data that must not be read or written."""


def _validating(function: Callable[..., Any]) -> Callable[..., Any]:
    crossed = crossing(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return crossed(*args, **kwargs)
        except ExternalDataError as error:
            raise ExternalValidationError(str(error)) from error

    return call


class ExternalDataInfo(ours.ExternalDataInfo):
    """What a tensor's `external_data` says; see `proto_schema.external_data_helper`."""

    def __init__(self, tensor: Any) -> None:
        super().__init__(plain(tensor))


convert_model_from_external_data = _validating(ours.convert_model_from_external_data)
convert_model_to_external_data = _validating(ours.convert_model_to_external_data)
load_external_data_for_model = _validating(ours.load_external_data_for_model)
load_external_data_for_tensor = _validating(ours.load_external_data_for_tensor)
remove_external_data_field = _validating(ours.remove_external_data_field)
save_external_data = _validating(ours.save_external_data)
set_external_data = _validating(ours.set_external_data)
uses_external_data = _validating(ours.uses_external_data)
write_external_data_tensors = _validating(ours.write_external_data_tensors)
_read_external_data_bytes = _validating(ours.read_external_data)


def _get_all_tensors(onnx_model_proto: Any) -> Any:
    return map(mannered, ours.all_tensors(plain(onnx_model_proto)))


def _get_initializer_tensors(onnx_model_proto: Any) -> Any:
    return map(mannered, ours.initializer_tensors(plain(onnx_model_proto)))


__all__ = [
    "ExternalDataInfo",
    "convert_model_from_external_data",
    "convert_model_to_external_data",
    "load_external_data_for_model",
    "load_external_data_for_tensor",
    "remove_external_data_field",
    "save_external_data",
    "set_external_data",
    "uses_external_data",
    "write_external_data_tensors",
]
