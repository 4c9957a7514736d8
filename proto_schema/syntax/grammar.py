"""The grammar of the textual syntax (docs/Syntax.md of ONNX): one method a construct, messages as results.

Invariants: a method begins at its construct and ends right after it. Only fields that the text names are set, with the
exceptions that the official parser makes: the domain of a node, the name of a tensor, the shape of a scalar.
What stands in an attribute is read by the type that is annotated; without one, by how it begins. What the official
parser would lose or change without a word is kept or refused here: lists of tensors, graphs and types, elements below
a byte (packed, as the format asks), numbers that do not fit their type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from proto_schema.external.payload import contiguous
from proto_schema.onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    StringStringEntryProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)
from proto_schema.syntax.cursor import Cursor
from proto_schema.syntax.numbers import float32, float64, int64, numbers, whole
from proto_schema.tensors.arrays import from_codes
from proto_schema.tensors.attributes import FIELD_OF_TYPE
from proto_schema.tensors.dtypes import DTYPES, DType, element_count

__all__ = ["Grammar"]

T = TypeVar("T")

_Attr = AttributeProto.AttributeType
_ATTRIBUTE_TYPES = {name.lower(): int(member) for name, member in _Attr.__members__.items()}
_MANY = {_Attr.FLOAT: _Attr.FLOATS, _Attr.INT: _Attr.INTS, _Attr.STRING: _Attr.STRINGS, _Attr.TENSOR: _Attr.TENSORS}
_MANY |= {_Attr.GRAPH: _Attr.GRAPHS, _Attr.TYPE_PROTO: _Attr.TYPE_PROTOS, _Attr.SPARSE_TENSOR: _Attr.SPARSE_TENSORS}
_ONE = {many: one for one, many in _MANY.items()}
_DTYPES = {row.text: row for row in DTYPES.values()}
_KEYWORDS = frozenset(("seq", "map", "optional", "sparse_tensor", "opaque"))
_LEVELS_OF_GRAPH, _LEVELS_OF_TYPE = 3, 2  # messages in each other: graph, node, attribute; type, sequence
_INT64 = (-(2**63), 2**63 - 1)


class Grammar(Cursor):
    """The constructs, each from the place on."""

    __slots__ = ()

    # -- models, functions, graphs -------------------------------------------------------------------------------------

    def model(self) -> ModelProto:
        """`<ir_version: 10, ...> graph functions`."""
        model = ModelProto()
        self._header("model", model, self._model_row)
        model.graph = self.graph()
        while self.peek():
            model.functions.append(self.function())
        return model

    def _model_row(self, model: ModelProto, key: str) -> bool:
        if key in ("ir_version", "model_version"):
            setattr(model, key, int64(self, f"the number of {key}"))
        elif key in ("producer_name", "producer_version", "domain", "doc_string"):
            setattr(model, key, self.string(f"the text of {key}, in quotes"))
        elif key == "opset_import":
            model.opset_import = self._opsets()
        elif key == "metadata_props":
            model.metadata_props += self._entries()
        else:
            return False
        return True

    def function(self) -> FunctionProto:
        """`<domain: "d", opset_import: [...]> name <attributes> (inputs) => (outputs) { nodes }`."""
        function = FunctionProto()
        self._header("function", function, self._function_row)
        function.name = self.name("the name of a function")
        if self.take("<"):
            self._commas(lambda: self._declared(function))
            self.expect(">", "after the attributes of the function")
        function.input = self._parameters(function, "inputs")
        self._arrow()
        function.output = self._parameters(function, "outputs")
        if self.take("<") and not self.take(">"):
            function.value_info += self._commas(self.value_info)
            self.expect(">", "after the types of values")
        function.node = self._nodes()
        return function

    def _function_row(self, function: FunctionProto, key: str) -> bool:
        if key in ("domain", "overload", "doc_string"):
            setattr(function, key, self.string(f"the text of {key}, in quotes"))
        elif key == "opset_import":
            function.opset_import = self._opsets()
        elif key == "metadata_props":
            function.metadata_props += self._entries()
        else:
            return False
        return True

    def _declared(self, function: FunctionProto) -> None:
        """An attribute of a function: a name, or a name with a type and a default."""
        name = self.name("the name of an attribute of the function")
        if self.peek() in (":", "="):
            function.attribute_proto.append(self._attribute_after(name))
        else:
            function.attribute.append(name)

    def _header(self, what: str, message: T, row: Callable[[T, str], bool]) -> None:
        if not self.take("<"):
            return

        def entry() -> None:
            self.blanks()
            start = self.at
            key = self.word() or self.expected(f"a field of the {what}, such as opset_import")
            self.expect(":", f"after {key}")
            if not row(message, key):
                self.fail(f"a {what} has no field {key!r} in its header", start)

        self._commas(entry)
        self.expect(">", f"after the header of the {what}, or a comma and its next field")

    def _parameters(self, function: FunctionProto, what: str) -> list[str]:
        """Names, each after its type if it is known, which goes to the function's value infos."""

        def parameter() -> str:
            known = self.type() if self._type_is_next() else None
            name = self.name(f"the name of one of the {what}")
            if known is not None:
                function.value_info.append(ValueInfoProto(name=name, type=known))
            return name

        self.expect("(", f"before the {what} of the function")
        if self.take(")"):
            return []
        names = self._commas(parameter)
        self.expect(")", f"after the {what} of the function")
        return names

    def graph(self) -> GraphProto:
        """`name (inputs) => (outputs) <initializers and types> { nodes }`."""
        self.inside(_LEVELS_OF_GRAPH)
        graph = GraphProto(name=self.name("the name of a graph"))
        if self.take("(") and not self.take(")"):
            self._commas(lambda: graph.input.append(self._value(graph)[0]))
            self.expect(")", "after the inputs of the graph, or a comma and the next one")
        self._arrow()
        self.expect("(", "before the outputs of the graph")
        if not self.take(")"):
            graph.output = self._commas(self.value_info)
            self.expect(")", "after the outputs of the graph, or a comma and the next one")
        if self.take("<") and not self.take(">"):
            self._commas(lambda: self._constant(graph))
            self.expect(">", "after the initializers and types of the graph, or a comma and the next one")
        graph.node = self._nodes()
        self.depth += _LEVELS_OF_GRAPH
        return graph

    def _value(self, graph: GraphProto) -> tuple[ValueInfoProto, bool]:
        """A value; with `= {...}` also an initializer, which the graph gets."""
        value = self.value_info()
        if not self.take("="):
            return value, False
        graph.initializer.append(self._tensor_after(value.name or "", value.type))
        return value, True

    def _constant(self, graph: GraphProto) -> None:
        value, initialized = self._value(graph)
        if not initialized:
            graph.value_info.append(value)

    def _arrow(self) -> None:
        self.expect("=>", "between inputs and outputs")

    # -- nodes and attributes ------------------------------------------------------------------------------------------

    def _nodes(self) -> list[NodeProto]:
        self.expect("{", "before the nodes")
        nodes: list[NodeProto] = []
        while not self.take("}"):
            if not self.peek():
                self.expected("a node, or '}' after the last one")
            nodes.append(self.node())
        return nodes

    def node(self) -> NodeProto:
        """`[name] outputs = domain.Operator:overload <attributes> (inputs)`; attributes may also stand last."""
        node = NodeProto()
        if self.take("["):
            node.name = self.string("the name of a node") if self.peek() == '"' else self.word()
            self.expect("]", "after the name of the node")
        node.output = self._names()
        self.expect("=", "between the outputs of a node and its operator")
        path = [self._operator()]
        while self.take("."):
            path.append(self._operator() or self.expected("the rest of the operator's name"))
        *domain, node.op_type = path
        node.domain = ".".join(part for part in domain if part)
        if self.take(":"):
            node.overload = self.name("the overload of the function")
        node.attribute = self._attributes()
        self.expect("(", f"before the inputs of {node.op_type or 'the node'}")
        node.input = self._names()
        self.expect(")", f"after the inputs of {node.op_type or 'the node'}, or a comma and the next one")
        if not node.attribute:
            node.attribute = self._attributes()
        return node

    def _operator(self) -> str:
        return self.string("an operator") if self.peek() == '"' else self.word()

    def _names(self) -> list[str]:
        """Names of values, of which any may be missing: `x`, `x, y`, `, y`, `"", y`; a comma may stand last."""
        names: list[str] = []
        while True:
            if self.peek() == '"':
                names.append(self.string("a value"))
            elif name := self.word():
                names.append(name)
            elif self.peek() == ",":
                names.append("")
            else:
                return names
            if not self.take(","):
                return names

    def _attributes(self) -> list[AttributeProto]:
        if not self.take("<"):
            return []
        found = self._commas(self.attribute)
        self.expect(">", "after the attributes, or a comma and the next one")
        return found

    def attribute(self) -> AttributeProto:
        """`name: type = value`, the type being optional."""
        return self._attribute_after(self.name("the name of an attribute"))

    def _attribute_after(self, name: str) -> AttributeProto:
        attribute = AttributeProto(name=name)
        kind = 0
        if self.take(":"):
            self.blanks()
            start = self.at
            word = self.word() or self.expected(f"the type of the attribute {name!r}")
            if word not in _ATTRIBUTE_TYPES:
                self.fail(
                    f"{word!r} is not a type of attributes: these are {', '.join(list(_ATTRIBUTE_TYPES)[1:])}", start
                )
            kind = _ATTRIBUTE_TYPES[word]
            attribute.type = kind or None
        self.expect("=", f"and the value of the attribute {name!r}")
        if self.take("@"):
            attribute.ref_attr_name = self.name("the name of an attribute of the function")
        elif self.take("["):
            self._list(attribute, kind, f"an element of the attribute {name!r}")
        elif kind in _ONE:
            self.expected(f"'[' before the {_Attr(kind).name.lower()} of the attribute {name!r}")
        else:
            attribute.type, value = self._attribute_value(kind, f"the value of the attribute {name!r}")
            setattr(attribute, FIELD_OF_TYPE[attribute.type], value)
        return attribute

    def _list(self, attribute: AttributeProto, kind: int, what: str) -> None:
        if self.take("]"):
            if kind not in _ONE:
                self.fail("an empty list says no type: annotate one of lists, as in `axes: ints = []`", self.at - 1)
            return
        one: int = _ONE[_Attr(kind)] if kind in _ONE else kind
        asked = one  # `x: int = [1]` is a list of ints, as the official parser reads it
        values: list[Any] = []
        while True:
            self.blanks()
            start = self.at
            found, value = self._attribute_value(asked, what)
            if values and found != one:
                if {found, one} != {_Attr.INT, _Attr.FLOAT}:
                    self.fail(f"a {_Attr(found).name.lower()} in a list of {_Attr(one).name.lower()}s", start)
                found, value = int(_Attr.FLOAT), float(value)
                values = [float(item) for item in values]
            one = found
            values.append(value)
            if not self.take(","):
                break
        self.expect("]", "after the list, or a comma and its next element")
        attribute.type = int(_MANY[_Attr(one)])
        setattr(attribute, FIELD_OF_TYPE[attribute.type], values)

    def _attribute_value(self, kind: int, what: str) -> tuple[int, Any]:
        """The type and value of one element: of type `kind`, or by how it begins where that is 0."""
        self.blanks()
        start = self.at
        found = kind or self._kind()
        if found == _Attr.GRAPH:
            return found, self.graph()
        if found in (_Attr.TENSOR, _Attr.TYPE_PROTO):
            made = self._tensor_or_type(found == _Attr.TENSOR)
            found_kind = int(_Attr.TENSOR if isinstance(made, TensorProto) else _Attr.TYPE_PROTO)
            if kind and found_kind != kind:
                self.fail(f"expected {what}, a {_Attr(kind).name.lower()}", start)
            return found_kind, made
        if found == _Attr.FLOAT:
            return found, float32(self, f"{what}, a float")
        if found == _Attr.INT:
            return found, int64(self, f"{what}, an int")
        if found == _Attr.STRING:
            return found, _bytes(self.string(f"{what}, a string in quotes"))
        if kind:
            self.fail(f"the syntax has no form for the values of a {_Attr(kind).name.lower()} attribute")
        return self.expected(what)

    def _kind(self) -> int:
        """The type of an attribute value by how it begins, 0 where it begins like none."""
        following = self.peek()
        if following == '"':
            return int(_Attr.STRING)
        if following == "-" or following.isdigit():
            start = self.at
            text = self.number()
            self.at = start
            return int(_Attr.INT if text.lstrip("-").isdigit() else _Attr.FLOAT)
        if self._type_is_next():
            return int(_Attr.TYPE_PROTO)
        word = self.next_word()
        if word.lower() in ("inf", "infinity", "nan"):
            return int(_Attr.FLOAT)
        return int(_Attr.GRAPH) if word else 0

    # -- types and tensors ---------------------------------------------------------------------------------------------

    def value_info(self) -> ValueInfoProto:
        """`type name`, the type being optional."""
        known = self.type() if self._type_is_next() else None
        return ValueInfoProto(name=self.name("a type and the name of a value"), type=known)

    def _type_is_next(self) -> bool:
        word = self.next_word()
        return word in _DTYPES or word in _KEYWORDS

    def type(self) -> TypeProto:
        """`float[N,3]`, `float` (a scalar), `float[]` (of any rank), `seq(...)`, `map(key, ...)`, and others."""
        self.inside(_LEVELS_OF_TYPE)
        self.blanks()
        start = self.at
        word = self.word()
        if word in _DTYPES:
            made = TypeProto(tensor_type=TypeProto.Tensor(elem_type=_DTYPES[word].code, shape=self._shape()))
        elif word in _KEYWORDS:
            self.expect("(", f"after {word}")
            made = _TYPES[word](self)
            self.expect(")", f"after the {word} type")
        else:
            self.at = start
            self.expected("a type")
        self.depth += _LEVELS_OF_TYPE
        return made

    def _dtype(self, what: str) -> DType:
        self.blanks()
        start = self.at
        row = _DTYPES.get(self.word())
        if row is None:
            self.at = start
            self.expected(what)
        return row

    def _map(self) -> TypeProto:
        key = self._dtype("a data type for the keys of a map")
        self.expect(",", "before the type of the map's values")
        return TypeProto(map_type=TypeProto.Map(key_type=key.code, value_type=self.type()))

    def _sparse(self) -> TypeProto:
        row = self._dtype("a data type for a sparse tensor")
        return TypeProto(sparse_tensor_type=TypeProto.SparseTensor(elem_type=row.code, shape=self._shape()))

    def _opaque(self) -> TypeProto:
        opaque = TypeProto.Opaque()
        if self.peek() != ")":
            path = [self.name("the name of an opaque type")]
            while self.take("."):
                path.append(self.name("the rest of a domain"))
            if self.take(","):
                opaque.domain = ".".join(path)
                opaque.name = self.name("the name of an opaque type")
            else:
                opaque.name = ".".join(path)
        return TypeProto(opaque_type=opaque)

    def _shape(self) -> TensorShapeProto | None:
        """The shape in brackets: none for a scalar, empty brackets where the rank is unknown."""
        if not self._brackets():
            return TensorShapeProto()
        if self.take("]"):
            return None
        dims = self._commas(self._dim)
        self.expect("]", "after the shape, or a comma and the next size")
        return TensorShapeProto(dim=dims)

    def _brackets(self) -> bool:
        """Whether a shape is next, and not the external data of a tensor, `["location": "w.data"]`."""
        if not self.take("["):
            return False
        if self.peek() != '"':
            return True
        start = self.at
        self.string("a size")
        entries = self.peek() == ":"
        self.at = start
        if entries:
            self.at = self.text.rindex("[", 0, start)
        return not entries

    def _dim(self) -> TensorShapeProto.Dimension:
        if self.take("?"):
            return TensorShapeProto.Dimension()
        if self.peek() == '"':
            return TensorShapeProto.Dimension(dim_param=self.string("a size"))
        if word := self.word():
            return TensorShapeProto.Dimension(dim_param=word)
        return TensorShapeProto.Dimension(dim_value=int64(self, "a size: a number, a name, or ?"))

    def _tensor_or_type(self, tensor: bool) -> TensorProto | TypeProto:
        """A type, and a tensor where elements follow, or with `tensor`."""
        known = self.type()
        following = self.peek()
        if not tensor and not (following in ("{", "=", "[", '"') or self.next_word()):
            return known
        name = self.name("") if following == '"' or self.next_word() else ""
        self.take("=")
        return self._tensor_after(name, known)

    def _tensor_after(self, name: str, known: TypeProto | None) -> TensorProto:
        """The tensor of that name and type whose elements or external data follow."""
        if known is None or known.tensor_type is None:
            self.fail(f"the tensor {name!r} needs a data type and a shape, as in float[2,3]")
        shape = known.tensor_type.shape
        if shape is None:
            self.fail(f"the tensor {name!r} needs a shape: the type says nothing of its rank")
        sizes = [dim.dim_value for dim in shape.dim if dim.dim_value is not None]
        if len(sizes) != len(shape.dim):
            self.fail(f"the tensor {name!r} needs numbers as its sizes")
        made = TensorProto(name=name, data_type=known.tensor_type.elem_type, dims=sizes)
        if self.take("{"):
            if not self.take("}"):
                self._elements(made, f"an element of {name!r}" if name else "an element of the tensor")
                self.expect("}", "after the elements, or a comma and the next one")
        elif self.peek() == "[":
            made.data_location = TensorProto.EXTERNAL
            made.external_data = self._entries()
        return made

    def _elements(self, tensor: TensorProto, what: str) -> None:
        row = DTYPES[tensor.data_type or 0]
        if row.field == "string_data":
            tensor.string_data = self._commas(lambda: _bytes(self.string(f"{what}, a string in quotes")))
        elif row.field == "float_data":
            tensor.float_data = numbers(self, float32, what, 0, 0)
        elif row.field == "double_data":
            tensor.double_data = numbers(self, float64, what, 0, 0)
        else:
            low, high, meaning = _range(row)
            self.blanks()
            start = self.at
            read = partial(whole, low=low, high=high)
            found = numbers(self, lambda _, text: read(self, what=text), f"{what}, {meaning}", low, high)
            setattr(tensor, row.field, self._packed(row, tensor, found, start) if row.bits < 8 else found)

    def _packed(self, row: DType, tensor: TensorProto, found: list[int], start: int) -> list[int]:
        """Elements below a byte as the bytes that the format has in `int32_data`, low bits first.

        As many numbers as such bytes are the bytes themselves.
        """
        count = element_count(tensor.dims)
        if len(found) == count and (count > 1 or found[0] < 0):
            codes = np.array(found) & ((1 << row.bits) - 1)
            return list(contiguous(from_codes(codes.astype(row.codes), row.code).raw_data or b""))
        if len(found) > 1 and len(found) != row.nbytes(count):
            self.fail(f"{len(found)} numbers for {count} elements of type {row.text}", start)
        if min(found) < 0:
            self.fail(f"negative numbers for {count} elements of type {row.text}: write each element, or bytes", start)
        return found

    # -- lists ---------------------------------------------------------------------------------------------------------

    def _commas(self, item: Callable[[], T]) -> list[T]:
        """One or more, with commas between."""
        found = [item()]
        while self.take(","):
            found.append(item())
        return found

    def _opsets(self) -> list[OperatorSetIdProto]:
        self.expect("[", "before the domains and versions")
        if self.take("]"):
            return []
        found = self._commas(self._opset)
        self.expect("]", "after the domains and versions, or a comma and the next one")
        return found

    def _opset(self) -> OperatorSetIdProto:
        domain = self.string('a domain in quotes, as in "" : 17')
        self.expect(":", "between a domain and its version")
        return OperatorSetIdProto(domain=domain, version=int64(self, "the version of a domain"))

    def _entries(self) -> list[StringStringEntryProto]:
        self.expect("[", "before keys and values")
        if self.take("]"):
            return []
        found = self._commas(self._entry)
        self.expect("]", "after keys and values, or a comma and the next pair")
        return found

    def _entry(self) -> StringStringEntryProto:
        key = self.string("a key in quotes")
        self.expect(":", "between a key and its value")
        return StringStringEntryProto(key=key, value=self.string("a value in quotes"))


_TYPES: dict[str, Callable[[Grammar], TypeProto]] = {
    "seq": lambda at: TypeProto(sequence_type=TypeProto.Sequence(elem_type=at.type())),
    "optional": lambda at: TypeProto(optional_type=TypeProto.Optional(elem_type=at.type())),
    "map": Grammar._map,
    "sparse_tensor": Grammar._sparse,
    "opaque": Grammar._opaque,
}


def _range(row: DType) -> tuple[int, int, str]:
    """The least and the greatest number that an element may be written as, and what it is called."""
    if row.field == "int64_data":
        return *_INT64, "an integer"
    if row.bits < 8:
        return -(1 << row.bits - 1), 255, f"a number of {row.bits} bits"
    if row.codes == row.numpy or row.name == "BOOL":
        return 0, (1 << row.bits) - 1, "an integer that is not negative"
    if row.numpy.strip("<|")[0] == "i":
        return -(1 << row.bits - 1), (1 << row.bits - 1) - 1, "an integer"
    return 0, (1 << row.bits) - 1, f"the bits of a {row.text} as an integer"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
