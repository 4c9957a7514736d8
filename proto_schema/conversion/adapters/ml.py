"""Rows of ai.onnx.ml."""

from __future__ import annotations

from proto_schema.conversion.errors import RefusedError
from proto_schema.conversion.rows import Result, down, up
from proto_schema.conversion.versioned import VersionedNode
from proto_schema.conversion.writer import Writer
from proto_schema.numpy_helper import to_array
from proto_schema.onnx import TensorProto

ML = "ai.onnx.ml"


@up("LabelEncoder", version=2, domain=ML)
def keys_and_values(node: VersionedNode, op: Writer) -> Result:
    """A list of classes becomes keys and values: from text to places, or from places to text."""
    classes = node.attribute("classes_strings", [])
    places = list(range(len(classes)))
    if node.need_dtype(0) == TensorProto.STRING:
        return node.with_(
            drop="classes_strings default_string", keys_strings=classes, values_int64s=places,
            default_int64=node.attribute("default_int64"),
        )  # fmt: skip
    return node.with_(
        drop="classes_strings default_int64", keys_int64s=places, values_strings=classes,
        default_string=node.attribute("default_string"),
    )  # fmt: skip


@down("LabelEncoder", version=4, domain=ML)
def lists(node: VersionedNode, op: Writer) -> Result:
    """Tensors of keys and values as lists, where the older version has such."""
    given = {}
    for name in ("keys", "values"):
        tensor = node.attribute(f"{name}_tensor")
        if tensor is None:
            continue
        kind = _LISTS.get(tensor.data_type)
        if kind is None:
            raise RefusedError(f"its {name} are of a type that older versions have no list of")
        given[f"{name}_{kind}"] = to_array(tensor).reshape(-1).tolist()
    default = node.attribute("default_tensor")
    if default is not None:
        kind = _LISTS.get(default.data_type)
        if kind is None:
            raise RefusedError("its default is of a type that older versions have none of")
        given[f"default_{kind.removesuffix('s')}"] = to_array(default).reshape(-1).tolist()[0]
    return node.with_(drop="keys_tensor values_tensor default_tensor", **given) if given else None


_LISTS = {TensorProto.FLOAT: "floats", TensorProto.INT64: "int64s", TensorProto.STRING: "strings"}
