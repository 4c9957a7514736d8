"""The ONNX messages and enums, in the order of the published schema (onnx-ml, onnx-data, onnx-operators-ml).

A new field goes here, and nowhere else: codec, repr, inspector, checker and printer derive from these rows.
Declaration order is the schema's; encoding goes by field number. Only the `*_data` lists of TensorProto are packed.
Messages on the way from a model to its nodes and sizes are typed as if they were there: few programs check.
`data_type`, `elem_type` and `key_type` are int32 in the schema, not enums. Late fields
carry the IR version that brought them.
https://github.com/onnx/onnx/blob/main/docs/IR.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proto_schema.external.payload import BytesLike
from proto_schema.wire.fields import (
    BYTES,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    PAYLOAD,
    STRING,
    UINT64,
    Enum,
    Message,
    optional,
    repeated,
)

if TYPE_CHECKING:
    from proto_schema.wire.fields import Assumed, Messages


class Version(Enum):
    """IR versions by the date of their release; IR_VERSION is the newest."""

    _START_VERSION = 0
    IR_VERSION_2017_10_10 = 1
    IR_VERSION_2017_10_30 = 2
    IR_VERSION_2017_11_3 = 3
    IR_VERSION_2019_1_22 = 4
    IR_VERSION_2019_3_18 = 5
    IR_VERSION_2019_9_19 = 6
    IR_VERSION_2020_5_8 = 7
    IR_VERSION_2021_7_30 = 8
    IR_VERSION_2023_5_5 = 9
    IR_VERSION_2024_3_25 = 10
    IR_VERSION_2025_05_12 = 11
    IR_VERSION_2025_08_26 = 12
    IR_VERSION_2025_11_06 = 13
    IR_VERSION = 14


class OperatorStatus(Enum):
    """Whether an operator's definition may still change."""

    EXPERIMENTAL = 0
    STABLE = 1


class AttributeProto(Message):
    """A named constant of a node: exactly one value field, which `type` names."""

    ALIKE = True

    class AttributeType(Enum):
        UNDEFINED = 0
        FLOAT = 1
        INT = 2
        STRING = 3
        TENSOR = 4
        GRAPH = 5
        SPARSE_TENSOR = 11
        TYPE_PROTO = 13
        FLOATS = 6
        INTS = 7
        STRINGS = 8
        TENSORS = 9
        GRAPHS = 10
        SPARSE_TENSORS = 12
        TYPE_PROTOS = 14

    name: str | None = optional(1, STRING)
    ref_attr_name: str | None = optional(21, STRING)
    doc_string: str | None = optional(13, STRING)
    type: int | None = optional(20, AttributeType)
    f: float | None = optional(2, FLOAT)
    i: int | None = optional(3, INT64)
    s: bytes | None = optional(4, BYTES)
    t: TensorProto | None = optional(5, "TensorProto")
    g: GraphProto | None = optional(6, "GraphProto")
    sparse_tensor: SparseTensorProto | None = optional(22, "SparseTensorProto")
    tp: TypeProto | None = optional(14, "TypeProto")
    floats: list[float] = repeated(7, FLOAT)
    ints: list[int] = repeated(8, INT64)
    strings: list[bytes] = repeated(9, BYTES)
    tensors: Messages[TensorProto] = repeated(10, "TensorProto")
    graphs: Messages[GraphProto] = repeated(11, "GraphProto")
    sparse_tensors: Messages[SparseTensorProto] = repeated(23, "SparseTensorProto")
    type_protos: Messages[TypeProto] = repeated(15, "TypeProto")


class ValueInfoProto(Message):
    """A value's name and type."""

    ON_DEMAND = True

    name: str | None = optional(1, STRING)
    type: Assumed[TypeProto] = optional(2, "TypeProto")
    doc_string: str | None = optional(3, STRING)
    metadata_props: Messages[StringStringEntryProto] = repeated(4, "StringStringEntryProto")  # IR 10


class NodeProto(Message):
    """One call of an operator or a model-local function. An empty string in `input` leaves an optional input out."""

    ON_DEMAND = True

    input: list[str] = repeated(1, STRING)
    output: list[str] = repeated(2, STRING)
    name: str | None = optional(3, STRING)
    op_type: str | None = optional(4, STRING)
    domain: str | None = optional(7, STRING)
    overload: str | None = optional(8, STRING)  # IR 10
    attribute: Messages[AttributeProto] = repeated(5, "AttributeProto")
    doc_string: str | None = optional(6, STRING)
    metadata_props: Messages[StringStringEntryProto] = repeated(9, "StringStringEntryProto")  # IR 10
    # IR 11
    device_configurations: Messages[NodeDeviceConfigurationProto] = repeated(
        10, "NodeDeviceConfigurationProto"
    )  # IR 11


class IntIntListEntryProto(Message):
    """An entry of a map from int to list of ints."""

    key: int | None = optional(1, INT64)
    value: list[int] = repeated(2, INT64)


class NodeDeviceConfigurationProto(Message):
    """How a node runs under one of the model's device configurations (IR 11)."""

    configuration_id: str | None = optional(1, STRING)
    sharding_spec: Messages[ShardingSpecProto] = repeated(2, "ShardingSpecProto")
    pipeline_stage: int | None = optional(3, INT32)


class ShardingSpecProto(Message):
    """How one input or output of a node is spread over devices."""

    tensor_name: str | None = optional(1, STRING)
    device: list[int] = repeated(2, INT64)
    index_to_device_group_map: Messages[IntIntListEntryProto] = repeated(3, "IntIntListEntryProto")
    sharded_dim: Messages[ShardedDimProto] = repeated(4, "ShardedDimProto")


class ShardedDimProto(Message):
    """How one axis is sharded."""

    axis: int | None = optional(1, INT64)
    simple_sharding: Messages[SimpleShardedDimProto] = repeated(2, "SimpleShardedDimProto")


class SimpleShardedDimProto(Message):
    """An axis (or a factor of it) cut into equal shards."""

    dim_value: int | None = optional(1, INT64, oneof="dim")
    dim_param: str | None = optional(2, STRING, oneof="dim")
    num_shards: int | None = optional(3, INT64)


class TrainingInfoProto(Message):
    """How to train the model: what initializes it, what one step computes, which outputs update which state."""

    initialization: GraphProto | None = optional(1, "GraphProto")
    algorithm: GraphProto | None = optional(2, "GraphProto")
    initialization_binding: Messages[StringStringEntryProto] = repeated(3, "StringStringEntryProto")
    update_binding: Messages[StringStringEntryProto] = repeated(4, "StringStringEntryProto")


class ModelProto(Message):
    """The outermost message of an .onnx file."""

    ir_version: int | None = optional(1, INT64)
    opset_import: Messages[OperatorSetIdProto] = repeated(8, "OperatorSetIdProto")
    producer_name: str | None = optional(2, STRING)
    producer_version: str | None = optional(3, STRING)
    domain: str | None = optional(4, STRING)
    model_version: int | None = optional(5, INT64)
    doc_string: str | None = optional(6, STRING)
    graph: Assumed[GraphProto] = optional(7, "GraphProto")
    metadata_props: Messages[StringStringEntryProto] = repeated(14, "StringStringEntryProto")
    training_info: Messages[TrainingInfoProto] = repeated(20, "TrainingInfoProto")
    functions: Messages[FunctionProto] = repeated(25, "FunctionProto")
    configuration: Messages[DeviceConfigurationProto] = repeated(26, "DeviceConfigurationProto")  # IR 11


class DeviceConfigurationProto(Message):
    """A named set of devices that the model may be spread over."""

    name: str | None = optional(1, STRING)
    num_devices: int | None = optional(2, INT32)
    device: list[str] = repeated(3, STRING)


class StringStringEntryProto(Message):
    """An entry of a map from string to string."""

    key: str | None = optional(1, STRING)
    value: str | None = optional(2, STRING)


class TensorAnnotation(Message):
    """Quantization parameters of a tensor: pairs of a parameter's role and the name of the tensor that holds it."""

    tensor_name: str | None = optional(1, STRING)
    quant_parameter_tensor_names: Messages[StringStringEntryProto] = repeated(2, "StringStringEntryProto")


class GraphProto(Message):
    """Nodes in topological order, with the constants they use."""

    node: Messages[NodeProto] = repeated(1, "NodeProto")
    name: str | None = optional(2, STRING)
    initializer: Messages[TensorProto] = repeated(5, "TensorProto")
    sparse_initializer: Messages[SparseTensorProto] = repeated(15, "SparseTensorProto")
    doc_string: str | None = optional(10, STRING)
    input: Messages[ValueInfoProto] = repeated(11, "ValueInfoProto")
    output: Messages[ValueInfoProto] = repeated(12, "ValueInfoProto")
    value_info: Messages[ValueInfoProto] = repeated(13, "ValueInfoProto")
    quantization_annotation: Messages[TensorAnnotation] = repeated(14, "TensorAnnotation")
    metadata_props: Messages[StringStringEntryProto] = repeated(16, "StringStringEntryProto")  # IR 10


class TensorProto(Message):
    """A constant: in `raw_data` (little-endian, sub-byte types packed low bits first), in a typed list, or in a file.

    `raw_data` is a memoryview of the input after decoding. `proto_schema.numpy_helper` converts to and from arrays.
    The note `origin` is the `external.Folder` of a tensor that was loaded with its data in another file.
    """

    __slots__ = NOTES = ("origin",)

    class DataType(Enum):
        UNDEFINED = 0
        FLOAT = 1
        UINT8 = 2
        INT8 = 3
        UINT16 = 4
        INT16 = 5
        INT32 = 6
        INT64 = 7
        STRING = 8
        BOOL = 9
        FLOAT16 = 10
        DOUBLE = 11
        UINT32 = 12
        UINT64 = 13
        COMPLEX64 = 14
        COMPLEX128 = 15
        BFLOAT16 = 16
        FLOAT8E4M3FN = 17
        FLOAT8E4M3FNUZ = 18
        FLOAT8E5M2 = 19
        FLOAT8E5M2FNUZ = 20
        UINT4 = 21
        INT4 = 22
        FLOAT4E2M1 = 23
        FLOAT8E8M0 = 24
        UINT2 = 25
        INT2 = 26
        FLOAT6E2M3 = 27
        FLOAT6E3M2 = 28

    class DataLocation(Enum):
        DEFAULT = 0
        EXTERNAL = 1

    class Segment(Message):
        """The part of a tensor that is stored here (never used by released tools)."""

        begin: int | None = optional(1, INT64)
        end: int | None = optional(2, INT64)

    dims: list[int] = repeated(1, INT64)
    data_type: int | None = optional(2, INT32)
    segment: TensorProto.Segment | None = optional(3, "TensorProto.Segment")
    float_data: list[float] = repeated(4, FLOAT, packed=True)
    int32_data: list[int] = repeated(5, INT32, packed=True)
    string_data: list[bytes] = repeated(6, BYTES)
    int64_data: list[int] = repeated(7, INT64, packed=True)
    name: str | None = optional(8, STRING)
    doc_string: str | None = optional(12, STRING)
    raw_data: BytesLike | None = optional(9, PAYLOAD)
    external_data: Messages[StringStringEntryProto] = repeated(13, "StringStringEntryProto")
    data_location: int | None = optional(14, DataLocation)
    double_data: list[float] = repeated(10, DOUBLE, packed=True)
    uint64_data: list[int] = repeated(11, UINT64, packed=True)
    metadata_props: Messages[StringStringEntryProto] = repeated(16, "StringStringEntryProto")  # IR 10


class SparseTensorProto(Message):
    """Non-zero `values` (rank 1, its name is the tensor's name) at `indices` (linear, or coordinates)."""

    values: TensorProto | None = optional(1, "TensorProto")
    indices: TensorProto | None = optional(2, "TensorProto")
    dims: list[int] = repeated(3, INT64)


class TensorShapeProto(Message):
    """A shape: no dimension at all is a scalar, a dimension with neither value nor name is unknown."""

    class Dimension(Message):
        dim_value: int | None = optional(1, INT64, oneof="value")
        dim_param: str | None = optional(2, STRING, oneof="value")
        denotation: str | None = optional(3, STRING)

    dim: Messages[TensorShapeProto.Dimension] = repeated(1, "TensorShapeProto.Dimension")


class TypeProto(Message):
    """The type of a value: one of six forms."""

    class Tensor(Message):
        elem_type: int | None = optional(1, INT32)
        shape: Assumed[TensorShapeProto] = optional(2, "TensorShapeProto")

    class Sequence(Message):
        elem_type: TypeProto | None = optional(1, "TypeProto")

    class Map(Message):
        key_type: int | None = optional(1, INT32)
        value_type: TypeProto | None = optional(2, "TypeProto")

    class Optional(Message):
        elem_type: TypeProto | None = optional(1, "TypeProto")

    class SparseTensor(Message):
        elem_type: int | None = optional(1, INT32)
        shape: Assumed[TensorShapeProto] = optional(2, "TensorShapeProto")

    class Opaque(Message):
        domain: str | None = optional(1, STRING)
        name: str | None = optional(2, STRING)

    tensor_type: Assumed[TypeProto.Tensor] = optional(1, "TypeProto.Tensor", oneof="value")
    sequence_type: Assumed[TypeProto.Sequence] = optional(4, "TypeProto.Sequence", oneof="value")
    map_type: TypeProto.Map | None = optional(5, "TypeProto.Map", oneof="value")
    optional_type: TypeProto.Optional | None = optional(9, "TypeProto.Optional", oneof="value")
    sparse_tensor_type: TypeProto.SparseTensor | None = optional(8, "TypeProto.SparseTensor", oneof="value")
    opaque_type: TypeProto.Opaque | None = optional(7, "TypeProto.Opaque", oneof="value")
    denotation: str | None = optional(6, STRING)


class OperatorSetIdProto(Message):
    """A domain ("" is the standard one) at a version."""

    domain: str | None = optional(1, STRING)
    version: int | None = optional(2, INT64)


class FunctionProto(Message):
    """An operator defined by nodes; `attribute` names its attributes without, `attribute_proto` (IR 9) with."""

    name: str | None = optional(1, STRING)
    input: list[str] = repeated(4, STRING)
    output: list[str] = repeated(5, STRING)
    attribute: list[str] = repeated(6, STRING)
    attribute_proto: Messages[AttributeProto] = repeated(11, "AttributeProto")
    node: Messages[NodeProto] = repeated(7, "NodeProto")
    doc_string: str | None = optional(8, STRING)
    opset_import: Messages[OperatorSetIdProto] = repeated(9, "OperatorSetIdProto")
    domain: str | None = optional(10, STRING)
    overload: str | None = optional(13, STRING)  # IR 10
    value_info: Messages[ValueInfoProto] = repeated(12, "ValueInfoProto")  # IR 10
    metadata_props: Messages[StringStringEntryProto] = repeated(14, "StringStringEntryProto")  # IR 10


class SequenceProto(Message):
    """A value of a sequence type, as test data holds it (onnx-data)."""

    class DataType(Enum):
        UNDEFINED = 0
        TENSOR = 1
        SPARSE_TENSOR = 2
        SEQUENCE = 3
        MAP = 4
        OPTIONAL = 5

    name: str | None = optional(1, STRING)
    elem_type: int | None = optional(2, INT32)
    tensor_values: Messages[TensorProto] = repeated(3, "TensorProto")
    sparse_tensor_values: Messages[SparseTensorProto] = repeated(4, "SparseTensorProto")
    sequence_values: Messages[SequenceProto] = repeated(5, "SequenceProto")
    map_values: Messages[MapProto] = repeated(6, "MapProto")
    optional_values: Messages[OptionalProto] = repeated(7, "OptionalProto")


class MapProto(Message):
    """A value of a map type: keys in one of two lists, values as a sequence (onnx-data)."""

    name: str | None = optional(1, STRING)
    key_type: int | None = optional(2, INT32)
    keys: list[int] = repeated(3, INT64)
    string_keys: list[bytes] = repeated(4, BYTES)
    values: SequenceProto | None = optional(5, "SequenceProto")


class OptionalProto(Message):
    """A value of an optional type; with none of its value fields it is empty (onnx-data)."""

    class DataType(Enum):
        UNDEFINED = 0
        TENSOR = 1
        SPARSE_TENSOR = 2
        SEQUENCE = 3
        MAP = 4
        OPTIONAL = 5

    name: str | None = optional(1, STRING)
    elem_type: int | None = optional(2, INT32)
    tensor_value: TensorProto | None = optional(3, "TensorProto")
    sparse_tensor_value: SparseTensorProto | None = optional(4, "SparseTensorProto")
    sequence_value: SequenceProto | None = optional(5, "SequenceProto")
    map_value: MapProto | None = optional(6, "MapProto")
    optional_value: OptionalProto | None = optional(7, "OptionalProto")


class OperatorProto(Message):
    """An operator of an operator set (onnx-operators)."""

    op_type: str | None = optional(1, STRING)
    since_version: int | None = optional(2, INT64)
    status: int | None = optional(3, OperatorStatus)
    doc_string: str | None = optional(10, STRING)


class OperatorSetProto(Message):
    """An operator set as a file (onnx-operators)."""

    magic: str | None = optional(1, STRING)
    ir_version: int | None = optional(2, INT64)
    ir_version_prerelease: str | None = optional(3, STRING)
    ir_build_metadata: str | None = optional(7, STRING)
    domain: str | None = optional(4, STRING)
    opset_version: int | None = optional(5, INT64)
    doc_string: str | None = optional(6, STRING)
    operator: Messages[OperatorProto] = repeated(8, "OperatorProto")
    functions: Messages[FunctionProto] = repeated(9, "FunctionProto")
