"""onnx.helper: `proto_schema.helper`, with messages as protobuf has them, and what onnx does otherwise.

What a maker is given is copied into what it makes. Data types that numpy lacks are those of ml_dtypes where that
package is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from proto_schema import helper as ours
from proto_schema.compat.arrays import array_type
from proto_schema.compat.crossing import crossed, crossing
from proto_schema.compat.messages import PROTOS, Mannered, mannered
from proto_schema.external.payload import contiguous
from proto_schema.tensors.dtypes import DTYPES

globals().update(crossed(ours))
__all__ = ["OP_SET_ID_VERSION_MAP", "VERSION_TABLE"]
__all__ += ours.__all__

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


# release, IR version, and the opsets of ai.onnx, ai.onnx.ml and (later) ai.onnx.training
# https://github.com/onnx/onnx/blob/main/docs/Versioning.md#released-versions
_RELEASES = """
1.0 3 1 1; 1.1 3 5 1; 1.1.2 3 6 1; 1.2 3 7 1; 1.3 3 8 1; 1.4.1 4 9 1; 1.5.0 5 10 1; 1.6.0 6 11 2; 1.7.0 7 12 2 1;
1.8.0 7 13 2 1; 1.8.1 7 13 2 1; 1.9.0 7 14 2 1; 1.10.0 8 15 2 1; 1.10.1 8 15 2 1; 1.10.2 8 15 2 1; 1.11.0 8 16 3 1;
1.12.0 8 17 3 1; 1.13.0 8 18 3 1; 1.13.1 8 18 3 1; 1.14.0 9 19 3 1; 1.14.1 9 19 3 1; 1.15.0 9 20 4 1; 1.16.0 10 21 5 1;
1.16.1 10 21 5 1; 1.16.2 10 21 5 1; 1.17.0 10 22 5 1; 1.18.0 11 23 5 1; 1.19.0 12 24 5 1; 1.19.1 12 24 5 1;
1.20.0 13 25 5 1; 1.20.1 13 25 5 1; 1.21.0 13 26 5 1; 1.22.0 13 27 5 1; 1.23.0 14 28 5 1
"""
VERSION_TABLE: list[tuple[Any, ...]] = [
    (name, *map(int, versions)) for name, *versions in map(str.split, _RELEASES.split(";"))
]


def _version_map() -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for _, ir_version, *opsets in VERSION_TABLE:
        for domain, opset in zip(("ai.onnx", "ai.onnx.ml", "ai.onnx.training"), opsets, strict=False):
            found.setdefault((domain, opset), ir_version)
            twin = {"ai.onnx": "ai.onnx.preview", "ai.onnx.training": "ai.onnx.preview.training"}.get(domain)
            if twin is not None:
                found.setdefault((twin, opset), ir_version)
    return found


OP_SET_ID_VERSION_MAP = _version_map()


def make_tensor(name: str, data_type: int, dims: Any, vals: Any, raw: bool = False) -> Any:
    """A tensor of shape `dims`; see `proto_schema.helper`. Raw values are copied."""
    if raw and not isinstance(vals, (bytes, np.ndarray)) and data_type != PROTOS["TensorProto"].STRING:
        raise TypeError(f"Raw data must be bytes or numpy.ndarray, but got {type(vals)}.")
    made = ours.make_tensor(name, data_type, list(dims), vals, raw)
    if made.raw_data is not None:
        made.raw_data = bytes(contiguous(made.raw_data))
    return mannered(made)


def make_model(graph: Any, **kwargs: Any) -> Any:
    """A model of the newest versions; `kwargs` are `opset_imports`, `functions`, and fields of ModelProto."""
    fields = {name: value for name, value in kwargs.items() if name not in ("opset_imports", "functions")}
    made = crossing(ours.make_model)(graph, **{name: kwargs[name] for name in kwargs if name not in fields})
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def make_model_gen_version(graph: Any, **kwargs: Any) -> Any:
    """As `make_model`, with the lowest IR version that goes with `opset_imports`."""
    lowest = crossing(ours.find_min_ir_version_for)(list(kwargs.get("opset_imports") or []))
    return make_model(graph, **{"ir_version": lowest, **kwargs})


def strip_doc_string(proto: Any) -> None:
    """Removes every `doc_string` in a message. TypeError for anything else."""
    if not isinstance(proto, Mannered):
        raise TypeError(f"proto must be an instance of a message, not {type(proto)}")
    crossing(ours.strip_doc_string)(proto)


def tensor_dtype_to_np_dtype(tensor_dtype: int) -> np.dtype[Any]:
    """The numpy type of the arrays that hold a data type: of ml_dtypes for those that numpy lacks, if it is there."""
    return array_type(tensor_dtype)


def get_all_tensor_dtypes() -> Any:
    """The codes of all data types."""
    return DTYPES.keys()


def _attr_type_to_str(attr_type: int) -> str:
    kinds = PROTOS["AttributeProto"].AttributeType
    return str(kinds.Name(attr_type)) if attr_type in kinds.values() else str(kinds.Name(0))
