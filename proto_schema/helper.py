"""Makers of messages, with the names, arguments and bytes of onnx.helper.

A maker puts the messages it is given into the new one as they are: nothing is copied, so that building is fast and
tensors are never held twice. (onnx.helper copies; code that goes on changing a node after it was put into a graph
should put in a deep copy.) Attributes are made in `attributes`, tensors in
`tensor_helper`, the printed forms in `text`; all are offered here as well, so that code written for onnx.helper runs
after its import is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from proto_schema.onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    MapProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    OptionalProto,
    SequenceProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorProto,
    TensorShapeProto,
    TrainingInfoProto,
    TypeProto,
    ValueInfoProto,
    Version,
)
from proto_schema.operators import ir_version_for, newest_opset
from proto_schema.tensors.attributes import (
    attributes_text,
    get_attribute_value,
    get_node_attr_value,
    make_attribute,
    make_attribute_ref,
    make_attribute_ref_name,
)
from proto_schema.tensors.tensor_helper import (
    get_all_tensor_dtypes,
    make_tensor,
    np_dtype_to_tensor_dtype,
    tensor_dtype_to_field,
    tensor_dtype_to_np_dtype,
    tensor_dtype_to_storage_tensor_dtype,
    tensor_dtype_to_string,
)
from proto_schema.text import (
    printable_attribute,
    printable_dim,
    printable_graph,
    printable_node,
    printable_tensor_proto,
    printable_type,
    printable_value_info,
)
from proto_schema.wire.fields import MESSAGE, Message, present
from proto_schema.wire.texts import short_texts

__all__ = [
    "find_min_ir_version_for",
    "get_all_tensor_dtypes",
    "get_attribute_value",
    "get_node_attr_value",
    "make_attribute",
    "make_attribute_ref",
    "make_attribute_ref_name",
    "make_empty_tensor_value_info",
    "make_function",
    "make_graph",
    "make_map",
    "make_map_type_proto",
    "make_model",
    "make_model_gen_version",
    "make_node",
    "make_operatorsetid",
    "make_opsetid",
    "make_optional",
    "make_optional_type_proto",
    "make_sequence",
    "make_sequence_type_proto",
    "make_sparse_tensor",
    "make_sparse_tensor_type_proto",
    "make_sparse_tensor_value_info",
    "make_tensor",
    "make_tensor_sequence_value_info",
    "make_tensor_type_proto",
    "make_tensor_value_info",
    "make_training_info",
    "make_value_info",
    "np_dtype_to_tensor_dtype",
    "printable_attribute",
    "printable_dim",
    "printable_graph",
    "printable_node",
    "printable_tensor_proto",
    "printable_type",
    "printable_value_info",
    "set_metadata_props",
    "set_model_props",
    "strip_doc_string",
    "tensor_dtype_to_field",
    "tensor_dtype_to_np_dtype",
    "tensor_dtype_to_storage_tensor_dtype",
    "tensor_dtype_to_string",
]

Shape: TypeAlias = "Sequence[str | int | None]"

LOWEST_IR_VERSION = 3
"""What `find_min_ir_version_for` answers where no opset asks for more: the first version with opset imports."""


# -- nodes, graphs, models ---------------------------------------------------------------------------------------------


def make_node(
    op_type: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    name: str | None = None,
    doc_string: str | None = None,
    domain: str | None = None,
    overload: str | None = None,
    **kwargs: Any,
) -> NodeProto:
    """A node; `kwargs` are its attributes, sorted by name, as `make_attribute` takes them; a None is left out."""
    attributes: Any = None
    if kwargs:
        items = list(kwargs.items()) if len(kwargs) == 1 else sorted(kwargs.items())
        attributes = attributes_text(items)
        if attributes is None:
            attributes = [make_attribute(key, value) for key, value in items if value is not None]
    made: Any = NodeProto(
        op_type=op_type, name=name or None, doc_string=doc_string or None, domain=domain, overload=overload
    )
    made._input = short_texts(NodeProto, "input")(inputs if isinstance(inputs, list) else list(inputs))
    made._output = short_texts(NodeProto, "output")(outputs if isinstance(outputs, list) else list(outputs))
    made._attribute, made._siblings = attributes, None
    return made  # type: ignore[no-any-return]


def make_graph(
    nodes: Sequence[NodeProto],
    name: str,
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    initializer: Sequence[TensorProto] | None = None,
    doc_string: str | None = None,
    value_info: Sequence[ValueInfoProto] | None = None,
    sparse_initializer: Sequence[SparseTensorProto] | None = None,
) -> GraphProto:
    """A graph of these nodes, in this order."""
    return GraphProto(
        node=list(nodes),
        name=name,
        input=list(inputs),
        output=list(outputs),
        initializer=list(initializer or ()),
        sparse_initializer=list(sparse_initializer or ()),
        value_info=list(value_info or ()),
        doc_string=doc_string or None,
    )


def make_function(
    domain: str,
    fname: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    nodes: Sequence[NodeProto],
    opset_imports: Sequence[OperatorSetIdProto],
    attributes: Sequence[str] | None = None,
    attribute_protos: Sequence[AttributeProto] | None = None,
    doc_string: str | None = None,
    overload: str | None = None,
    value_info: Sequence[ValueInfoProto] | None = None,
) -> FunctionProto:
    """A model-local function; `attributes` are those without a default, `attribute_protos` those with one."""
    return FunctionProto(
        domain=domain,
        name=fname,
        input=list(inputs),
        output=list(outputs),
        node=list(nodes),
        opset_import=list(opset_imports),
        attribute=list(attributes or ()),
        attribute_proto=list(attribute_protos or ()),
        doc_string=doc_string or None,
        overload=overload,
        value_info=list(value_info or ()),
    )


def make_model(graph: GraphProto, **kwargs: Any) -> ModelProto:
    """A model of the newest IR version and, without `opset_imports`, of the newest opset.

    `kwargs`: `opset_imports`, `functions`, and any field of ModelProto (`producer_name="me"`, `ir_version=8`).
    """
    imports = kwargs.pop("opset_imports", None)
    functions = kwargs.pop("functions", None)
    model = ModelProto(
        ir_version=int(Version.IR_VERSION),
        graph=graph,
        opset_import=[OperatorSetIdProto(version=newest_opset())] if imports is None else list(imports),
        functions=list(functions or ()),
    )
    for name, value in kwargs.items():
        setattr(model, name, value)
    return model


def make_model_gen_version(graph: GraphProto, **kwargs: Any) -> ModelProto:
    """As `make_model`, with the lowest IR version that goes with `opset_imports` where none is given."""
    if "ir_version" not in kwargs:
        kwargs["ir_version"] = find_min_ir_version_for(kwargs.get("opset_imports", []))
    return make_model(graph, **kwargs)


def make_opsetid(domain: str, version: int) -> OperatorSetIdProto:
    """An opset import."""
    return OperatorSetIdProto(domain=domain, version=version)


make_operatorsetid = make_opsetid


def find_min_ir_version_for(opsetidlist: Sequence[OperatorSetIdProto], ignore_unknown: bool = False) -> int:
    """The lowest IR version that was released with all these opsets; 3 without any.

    Raises ValueError for an opset that no release had, unless `ignore_unknown`.
    """
    lowest = LOWEST_IR_VERSION
    for opset in opsetidlist:
        try:
            lowest = max(lowest, ir_version_for(opset.version or 0, opset.domain or ""))
        except ValueError:
            if not ignore_unknown:
                raise
    return lowest


def make_training_info(
    algorithm: GraphProto,
    algorithm_bindings: Sequence[tuple[str, str]],
    initialization: GraphProto | None,
    initialization_bindings: Sequence[tuple[str, str]] | None,
) -> TrainingInfoProto:
    """Training information; the bindings are (state variable, output that gives its new value)."""
    return TrainingInfoProto(
        algorithm=algorithm,
        update_binding=_entries(algorithm_bindings),
        initialization=initialization,
        initialization_binding=_entries(initialization_bindings or ()),
    )


def set_metadata_props(proto: Any, dict_value: dict[str, str]) -> None:
    """Replaces the metadata of a model, graph, function, node, tensor or value info."""
    proto.metadata_props[:] = _entries(dict_value.items())


def set_model_props(model: ModelProto, dict_value: dict[str, str]) -> None:
    """Replaces the metadata of a model."""
    set_metadata_props(model, dict_value)


def strip_doc_string(proto: Message) -> None:
    """Removes every `doc_string` in the message and in the messages inside it. TypeError for anything else."""
    if not isinstance(proto, Message):
        raise TypeError(f"strip_doc_string takes a message, not a {type(proto).__name__}")
    for field, value in present(proto):
        if field.name == "doc_string":
            proto.ClearField("doc_string")
        elif field.kind is MESSAGE:
            for inner in value if field.repeated else (value,):
                strip_doc_string(inner)


def _entries(pairs: Iterable[tuple[str, str]]) -> list[StringStringEntryProto]:
    return [StringStringEntryProto(key=key, value=value) for key, value in pairs]


# -- types and value infos ---------------------------------------------------------------------------------------------


def make_tensor_type_proto(
    elem_type: int, shape: Shape | None, shape_denotation: Sequence[str] | None = None
) -> TypeProto:
    """A tensor type; `shape` None is an unknown rank, a None in it an unknown dimension, a str a named one."""
    made = None if shape is None else _shape(shape, shape_denotation)
    return TypeProto(tensor_type=TypeProto.Tensor(elem_type=elem_type, shape=made))


def make_sparse_tensor_type_proto(
    elem_type: int, shape: Shape | None, shape_denotation: Sequence[str] | None = None
) -> TypeProto:
    """A sparse tensor type, with a shape as in `make_tensor_type_proto`."""
    made = None if shape is None else _shape(shape, shape_denotation)
    return TypeProto(sparse_tensor_type=TypeProto.SparseTensor(elem_type=elem_type, shape=made))


def make_sequence_type_proto(inner_type_proto: TypeProto) -> TypeProto:
    """The type of a sequence of such values."""
    return TypeProto(sequence_type=TypeProto.Sequence(elem_type=inner_type_proto))


def make_optional_type_proto(inner_type_proto: TypeProto) -> TypeProto:
    """The type of such a value, or none."""
    return TypeProto(optional_type=TypeProto.Optional(elem_type=inner_type_proto))


def make_map_type_proto(key_type: int, value_type: TypeProto) -> TypeProto:
    """The type of a map to such values; `key_type` is a TensorProto.DataType."""
    return TypeProto(map_type=TypeProto.Map(key_type=key_type, value_type=value_type))


def make_value_info(name: str, type_proto: TypeProto, doc_string: str = "") -> ValueInfoProto:
    """A named value of that type."""
    return ValueInfoProto(name=name, type=type_proto, doc_string=doc_string or None)


def make_empty_tensor_value_info(name: str) -> ValueInfoProto:
    """A named value of unknown type."""
    return ValueInfoProto(name=name)


def make_tensor_value_info(
    name: str,
    elem_type: int,
    shape: Shape | None,
    doc_string: str = "",
    shape_denotation: Sequence[str] | None = None,
) -> ValueInfoProto:
    """A named tensor, as in `make_tensor_type_proto`."""
    return make_value_info(name, make_tensor_type_proto(elem_type, shape, shape_denotation), doc_string)


def make_sparse_tensor_value_info(
    name: str,
    elem_type: int,
    shape: Shape | None,
    doc_string: str = "",
    shape_denotation: Sequence[str] | None = None,
) -> ValueInfoProto:
    """A named sparse tensor."""
    return make_value_info(name, make_sparse_tensor_type_proto(elem_type, shape, shape_denotation), doc_string)


def make_tensor_sequence_value_info(
    name: str,
    elem_type: int,
    shape: Shape | None,
    doc_string: str = "",
    elem_shape_denotation: Sequence[str] | None = None,
) -> ValueInfoProto:
    """A named sequence of tensors."""
    inner = make_tensor_type_proto(elem_type, shape, elem_shape_denotation)
    return make_value_info(name, make_sequence_type_proto(inner), doc_string)


def make_sparse_tensor(values: TensorProto, indices: TensorProto, dims: Sequence[int]) -> SparseTensorProto:
    """A sparse tensor of the dense shape `dims`: values (n,), indices (n,) linear or (n, rank)."""
    return SparseTensorProto(values=values, indices=indices, dims=list(dims))


def _shape(shape: Shape, denotation: Sequence[str] | None) -> TensorShapeProto:
    if denotation and len(denotation) != len(shape):
        raise ValueError(f"shape_denotation has {len(denotation)} entries for a shape of rank {len(shape)}")
    dims = [_dimension(size) for size in shape]
    for dim, text in zip(dims, denotation or (), strict=False):
        dim.denotation = text
    return TensorShapeProto(dim=dims)


def _dimension(size: str | int | None) -> TensorShapeProto.Dimension:
    if size is None:
        return TensorShapeProto.Dimension()
    if isinstance(size, int):
        return TensorShapeProto.Dimension(dim_value=size)
    if isinstance(size, str):
        return TensorShapeProto.Dimension(dim_param=size)
    raise ValueError(f"a dimension is an int, a str or None, not {size!r}")


# -- values of sequence, map and optional types ------------------------------------------------------------------------

_KINDS = {  # SequenceProto.DataType and OptionalProto.DataType alike -> the word in the name of the field
    SequenceProto.TENSOR: "tensor",
    SequenceProto.SPARSE_TENSOR: "sparse_tensor",
    SequenceProto.SEQUENCE: "sequence",
    SequenceProto.MAP: "map",
    SequenceProto.OPTIONAL: "optional",
}


def make_sequence(name: str, elem_type: int, values: Sequence[Any]) -> SequenceProto:
    """A sequence of tensors, sequences or maps; an UNDEFINED `elem_type` makes it empty. TypeError for another one."""
    made = SequenceProto(name=name, elem_type=elem_type)
    if elem_type != SequenceProto.UNDEFINED:
        setattr(made, f"{_kind(elem_type)}_values", list(values))
    return made


def make_optional(name: str, elem_type: int, value: Message | None) -> OptionalProto:
    """An optional that holds `value`; an UNDEFINED `elem_type` makes it empty. TypeError for another one."""
    made = OptionalProto(name=name, elem_type=elem_type)
    if elem_type != OptionalProto.UNDEFINED:
        setattr(made, f"{_kind(elem_type)}_value", value)
    return made


def make_map(name: str, key_type: int, keys: list[Any], values: SequenceProto) -> MapProto:
    """A map from `keys`, integers or strings as `key_type` (a TensorProto.DataType) says, to the items of `values`."""
    made = MapProto(name=name, key_type=key_type, values=values)
    if key_type == TensorProto.STRING:
        made.string_keys = [key.encode() if isinstance(key, str) else key for key in keys]
    else:
        made.keys = [int(key) for key in keys]
    return made


def _kind(elem_type: int) -> str:
    if elem_type not in _KINDS:
        raise TypeError(f"{elem_type} is not a kind of element; SequenceProto.DataType lists them")
    return _KINDS[elem_type]
