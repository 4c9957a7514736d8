"""``op``, what rules write ONNX with: ``op.Clip(x, min=0, max=6)`` makes the node that this opset has.

The operator history is data (``proto_schema.operators``); the emitter binds a call to the version in force:

- an argument that moved from attribute to input (or exists in one of them only from some opset on) goes where this
  version wants it; one that this version does not know is dropped when it says what the operator does anyway,
  otherwise it is refused with the lowest opset that knows it;
- Python numbers and lists become constants of the type that the other inputs bind;
- every node is checked against the operator's type constraints when it is made, and its output types follow from them;
- arithmetic on small constants is done at once (``folding``), so a static model carries no shape arithmetic.

Rules never look at the opset's number: they ask ``op.has("Gelu")``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from proto_schema import operators
from purexport import dtypes
from purexport.aten.graph import Source, TensorType, Type
from purexport.errors import ExportError, OpsetError
from purexport.graph.ir import Graph, Node, Value
from purexport.lowering.core import folding

# the same argument under an older name: attribute of old versions -> input of new ones
_RENAMED = {("TopK", "k"): "K", ("Pad", "value"): "constant_value"}
# from which version on an operator of the same signature means what it means today
_MEANS_TODAY = {"Softmax": 13, "LogSoftmax": 13, "GridSample": 20, "If": 11}
_HALVES = (dtypes.FLOAT16, dtypes.BFLOAT16)
# where the output type is said by an attribute
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")


class Emitter:
    """Writes nodes into ``graph`` at one opset.

    ``source``, ``target`` and ``results`` belong to the call that is being lowered.
    """

    def __init__(self, graph: Graph, opset: int) -> None:
        self.graph = graph
        self.opset = opset
        self.source = Source()
        self.target = ""
        self.results: list[TensorType | None] = []
        self.operands: dict[str, Type] = {}  # torch's types of the arguments, with the strides
        self.remarks: list[str] = []
        self.folds = True  # False: only what sizes need
        self._inputs = graph.inputs
        self._dims: dict[object, Value] = {}

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)
        return functools.partial(self.emit, op_type)

    def remark(self, text: str) -> None:
        """What the report shall say of the call that is being lowered."""
        self.remarks.append(f"{self.target} at {self.source}: {text}")

    # -- asking

    def has(self, op_type: str, argument: str | None = None) -> bool:
        """True when this opset has the operator (and, if asked, an input or attribute of that name)."""
        schema = operators.schema(op_type, self.opset)
        if schema is None or schema.deprecated:
            return False
        return argument is None or argument in schema.attributes or argument in [item.name for item in schema.inputs]

    def optional(self, op_type: str, argument: str) -> bool:
        """True when this opset's version may leave that input out."""
        schema = operators.schema(op_type, self.opset)
        return schema is not None and any(i.name == argument and i.option == "optional" for i in schema.inputs)

    def takes(self, op_type: str, dtype: int | None, argument: int = 0) -> bool:
        """True when this opset's version of the operator takes ``dtype`` as its input number ``argument``."""
        schema = operators.schema(op_type, self.opset)
        return schema is not None and dtype is not None and _allowed(schema, schema.inputs[argument].type, dtype)

    def takes_sequences(self, op_type: str) -> bool:
        """True when this opset's version of the operator takes or gives sequences."""
        return _knows_sequences(operators.schema(op_type, self.opset))

    def means_today(self, op_type: str) -> bool:
        """False where this opset's version has the same signature as today's and computes something else."""
        return self.opset >= _MEANS_TODAY[op_type]

    @staticmethod
    def since_today(op_type: str) -> int:
        """The lowest opset whose version of such an operator computes what today's does."""
        return _MEANS_TODAY[op_type]

    @property
    def result(self) -> TensorType:
        """The type that torch gives the (first) result of the call being lowered."""
        type_ = self.results[0]
        if type_ is None:
            raise ExportError(f"the result of the call at {self.source} is no tensor", code="rule-fault")
        return type_

    @property
    def result_dtype(self) -> int:
        """``result``'s dtype as an ONNX code."""
        return dtypes.onnx_code(self.result.dtype)

    # -- constants

    def const(self, value: Any, dtype: int = dtypes.INT64, name: str = "") -> Value:
        """A constant of a number, nested list or tensor, exact in ``dtype`` (a tensor keeps its own)."""
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=dtypes.torch_dtype(dtype))
        return Value(dtypes.onnx_code(tensor.dtype), tuple(tensor.shape), const=tensor, name=name)

    def like(self, value: Any, other: Value) -> Value:
        """A constant in ``other``'s dtype; a value is cast to it."""
        if isinstance(value, Value):
            return self.cast(value, other.dtype)
        return self.const(value, other.dtype or dtypes.FLOAT)

    def ints(self, items: Sequence[Any] | Any) -> list[int] | Value:
        """A list of sizes or positions: Python ints when all are known, else one int64 value of shape [n]."""
        if isinstance(items, Value):
            return items
        known = [self.known(item) for item in items]
        if all(isinstance(item, int) for item in known):
            return [item for item in known if isinstance(item, int)]
        pieces: list[Any] = [
            self.const([item]) if isinstance(item, int) else self.Reshape(self.cast(item, dtypes.INT64), [1])
            for item in known
        ]
        return pieces[0] if len(pieces) == 1 else self.Concat(*pieces, axis=0)

    def known(self, item: Any) -> int | Value:
        """A Python int when it is known."""
        if isinstance(item, Value) and item.const is not None and item.const.numel() == 1:
            return int(item.const.item())
        return item if isinstance(item, Value) else int(item)

    # -- types and shapes

    def cast(self, value: Value, dtype: int | None) -> Value:
        """``value`` in another dtype; itself when it is in that dtype already."""
        if dtype is None or value.dtype == dtype:
            return value
        # torch's own way with numbers that are too large for a float8 type
        saturate = 0 if dtype in dtypes.OVERFLOWING else None
        if dtype == dtypes.FLOAT8E5M2 and value.dtype in (dtypes.FLOAT, dtypes.FLOAT16):
            # ONNX Runtime (1.31) makes NaN of what rounds up to infinity
            value = self.Where(self.GreaterOrEqual(self.Abs(value), 61440.0), self.Mul(value, math.inf), value)
        result: Value = self.Cast(value, to=dtype, saturate=saturate)
        result.shape = value.shape
        return result

    def dim(self, value: Value, axis: int) -> int | Value:
        """One dimension: an int only if it cannot change, otherwise a zero-dim int64 value computed in the graph."""
        if value.shape is not None:
            axis %= max(len(value.shape), 1)
            size = value.shape[axis]
            if isinstance(size, int):
                return size
            # equal expressions are equal sizes, whichever tensor they are read from
            key: object = size if size is not None else (value, axis)
        else:
            key = (value, axis)
        if key not in self._dims:
            self._dims[key] = self.Gather(self.shape(value), self.const(axis), axis=0)
        return self._dims[key]

    def size(self, expression: str | None) -> Value | None:
        """The value of an axis expression, read from where it was read before or from a graph input; else None."""
        if expression is None:
            return None
        if expression not in self._dims:
            for item in self._inputs:
                if item.shape is not None and expression in item.shape:
                    self.dim(item, item.shape.index(expression))
                    break
        return self._dims.get(expression)

    def shape(self, value: Value) -> Value:
        """The shape as an int64 value of shape [rank]: a constant when it is static."""
        if value.is_static:
            return self.const(list(value.sizes))
        if value not in self._dims:
            self._dims[value] = self.Shape(value)
        return self._dims[value]

    # -- subgraphs

    @contextmanager
    def subgraph(self) -> Iterator[Graph]:
        """Write into the body of an If or Loop.  Sizes read inside are not seen outside."""
        outer, dims = self.graph, self._dims
        self.graph, self._dims = Graph(), dict(dims)
        try:
            yield self.graph
        finally:
            self.graph, self._dims = outer, dims

    # -- nodes

    def emit(self, op_type: str, *inputs: Any, domain: str = "", **named: Any) -> Value:
        """A node of ``op_type`` with one output; ``op.Relu(x)`` is short for ``op.emit("Relu", x)``.

        Raises OpsetError when this opset cannot say it, ExportError when no version of the operator takes the types.
        """
        folded = folding.fold(op_type, inputs, named, self.folds)
        if folded is not None:
            return self.const(folded)
        return self.multi(op_type, *inputs, outputs=1, domain=domain, **named)[0]

    def multi(self, op_type: str, *inputs: Any, outputs: int, domain: str = "", **named: Any) -> tuple[Value, ...]:
        """A node with several outputs: ``op.multi("Split", x, outputs=2, axis=1)``.  Raises as ``emit`` does."""
        schema = operators.schema(op_type, self.opset, domain)
        if schema is None or schema.deprecated:
            lowest = _first_version(op_type, domain, [name for name, item in named.items() if item is not None])
            raise OpsetError(f"ONNX {op_type} does not exist at opset {self.opset}", lowest)
        bound, attributes = self._bind(schema, inputs, named)
        if any(_wants_float(schema, item, formal) for item, formal in bound):
            return self._in_float(op_type, inputs, outputs, domain, named)
        if len(bound) < schema.min_input:
            raise ExportError(
                f"ONNX {op_type} at {self.source} wants at least {schema.min_input} inputs, and got {len(bound)}; "
                "this is a mistake in a lowering rule, please report it",
                code="rule-fault",
            )
        binding = self._check_types(schema, bound)
        node = Node(op_type, [self._constant(item, formal, binding) for item, formal in bound], [], attributes, domain)
        while node.inputs and node.inputs[-1] is None:
            node.inputs.pop()
        node.source = self.source
        node.outputs = [
            Value(self._output_type(schema, index, binding, attributes), node=node) for index in range(outputs)
        ]
        self._check_result(schema, node.outputs[0].dtype)
        self.graph.nodes.append(node)
        return tuple(node.outputs)

    def _in_float(
        self, op_type: str, inputs: Sequence[Any], outputs: int, domain: str, named: dict[str, Any]
    ) -> tuple[Value, ...]:
        """A half float that this version does not take: computed in float32 and rounded, as torch's kernels do."""
        halves = [
            item.dtype for item in (*inputs, *named.values()) if isinstance(item, Value) and item.dtype in _HALVES
        ]
        wider = [_as_float(self, item) for item in inputs]
        options = {name: _as_float(self, item) for name, item in named.items()}
        results = self.multi(op_type, *wider, outputs=outputs, domain=domain, **options)
        return tuple(self.cast(item, halves[0]) if item.dtype == dtypes.FLOAT else item for item in results)

    def _check_result(self, schema: operators.OpSchema, dtype: int | None) -> None:
        """Refuses a result of a dtype that only later versions make, which a Cast can ask for."""
        formal = schema.outputs[0]
        if dtype is None or _allowed(schema, formal.type, dtype):
            return
        lowest = _first_making(schema, dtype)
        if lowest is not None:
            text = f"ONNX {schema.name} makes no {dtypes.type_string(dtype)} at opset {self.opset}"
            raise OpsetError(text, lowest)

    def _bind(
        self, schema: operators.OpSchema, inputs: Sequence[Any], named: dict[str, Any]
    ) -> tuple[list[tuple[Any, operators.Formal]], dict[str, Any]]:
        """Inputs in order with their formals, and attributes, as this version of the operator wants them."""
        formals = schema.inputs
        places = {formal.name: position for position, formal in enumerate(formals)}
        slots: list[Any] = list(inputs)
        attributes: dict[str, Any] = {}
        newest = operators.schema(schema.name, operators.newest_opset(schema.domain), schema.domain) or schema
        # an input of newer versions that is an attribute here
        for position in range(len(formals), len(slots)):
            if formals and formals[-1].option == "variadic":
                break
            named.setdefault(newest.inputs[position].name, slots[position])
        if not (formals and formals[-1].option == "variadic"):
            del slots[len(formals) :]
        for name, value in named.items():
            if value is None:
                continue
            old = next((old for (op, old), new in _RENAMED.items() if op == schema.name and new == name), name)
            new = _RENAMED.get((schema.name, name), name)
            if new in places:
                slots += [None] * (places[new] + 1 - len(slots))
                slots[places[new]] = value
            elif name in schema.attributes or old in schema.attributes:
                attribute = name if name in schema.attributes else old
                attributes[attribute] = self._static(schema, attribute, value)
            elif not _says_nothing(newest, name, value):
                lowest = _first_with(schema, name)
                raise OpsetError(f"ONNX {schema.name} has no {name!r} at opset {self.opset}", lowest)
        if len(slots) > len(formals) and not (formals and formals[-1].option == "variadic"):
            raise ExportError(
                f"ONNX {schema.name} takes {len(formals)} inputs, {len(slots)} were given", code="rule-fault"
            )
        return [(value, formals[min(i, len(formals) - 1)]) for i, value in enumerate(slots)], attributes

    def _static(self, schema: operators.OpSchema, name: str, value: Any) -> Any:
        """An attribute's value; a computed one only newer versions take, as an input."""
        if isinstance(value, Value):
            if value.const is None:
                lowest = _first_with(schema, _RENAMED.get((schema.name, name), name), as_input=True)
                raise OpsetError(f"ONNX {schema.name} takes a computed {name!r} only later", lowest)
            value = value.const.tolist()
        if isinstance(value, (list, tuple)):
            return [self._static(schema, name, item) for item in value]
        return value

    def _check_types(self, schema: operators.OpSchema, bound: Sequence[tuple[Any, operators.Formal]]) -> dict[str, int]:
        """Which dtype each constraint variable stands for.  Refuses what the operator does not take."""
        binding: dict[str, int] = {}
        for value, formal in bound:
            if not isinstance(value, Value) or value.dtype is None:
                continue
            if not _allowed(schema, formal.type, value.dtype):
                lowest = _first_taking(schema, formal, value.dtype)
                text = f"ONNX {schema.name} takes no {dtypes.type_string(value.dtype)} as {formal.name!r}"
                raise OpsetError(f"{text} at opset {self.opset}", lowest)
            if formal.option == "variadic" and not formal.homogeneous:
                continue
            known = binding.setdefault(formal.type, value.dtype)
            if known != value.dtype:
                raise ExportError(
                    f"ONNX {schema.name} at {self.source} wants one type for {formal.type}, and got "
                    f"{dtypes.type_string(known)} and {dtypes.type_string(value.dtype)}; "
                    "this is a mistake in a lowering rule, please report it",
                    code="rule-fault",
                )
        return binding

    def _constant(self, item: Any, formal: operators.Formal, binding: dict[str, int]) -> Value | None:
        """An input as a value; numbers and lists take the type that the formal and the other inputs want."""
        if item is None or isinstance(item, Value):
            return item
        if isinstance(item, (list, tuple)) and any(isinstance(part, Value) for part in item):
            pieces = self.ints(item)
            return pieces if isinstance(pieces, Value) else self.const(pieces)
        dtype = dtypes.from_type_string(formal.type) or binding.get(formal.type)
        if dtype is None:
            flat = torch.tensor(item)
            dtype = dtypes.FLOAT if flat.is_floating_point() else dtypes.onnx_code(flat.dtype)
        binding.setdefault(formal.type, dtype)
        return self.const(item, dtype)

    @staticmethod
    def _output_type(
        schema: operators.OpSchema, index: int, binding: dict[str, int], attributes: dict[str, Any]
    ) -> int | None:
        formal = schema.outputs[min(index, len(schema.outputs) - 1)]
        allowed = schema.constraints.get(formal.type, (formal.type,))
        if len(allowed) == 1:
            return dtypes.from_type_string(next(iter(allowed)))
        for name in _TYPE_ATTRIBUTES:
            if name in attributes and formal.type not in binding:
                return int(attributes[name])
        if schema.name == "ConstantOfShape":
            value = attributes.get("value")
            return dtypes.FLOAT if value is None else dtypes.onnx_code(value.dtype)
        return binding.get(formal.type)


def _wants_float(schema: operators.OpSchema, item: Any, formal: operators.Formal) -> bool:
    """True for a half float where this version takes float32 instead."""
    if not isinstance(item, Value) or item.dtype not in _HALVES or schema.name == "Cast":
        return False
    return not _allowed(schema, formal.type, item.dtype) and _allowed(schema, formal.type, dtypes.FLOAT)


def _as_float(op: Emitter, item: Any) -> Any:
    return op.cast(item, dtypes.FLOAT) if isinstance(item, Value) and item.dtype in _HALVES else item


def _allowed(schema: operators.OpSchema, type_: str, dtype: int) -> bool:
    text = dtypes.type_string(dtype)
    return text in schema.constraints.get(type_, (type_,))


def _knows_sequences(schema: operators.OpSchema | None) -> bool:
    types = schema.constraints.values() if schema is not None else ()
    return any(text.startswith("seq(") for allowed in types for text in allowed)


def first_with_sequences(op_type: str) -> int | None:
    """The lowest opset whose version of the operator takes or gives sequences."""
    return next((v for v in operators.versions(op_type) if _knows_sequences(operators.schema(op_type, v))), None)


def _first_version(op_type: str, domain: str, arguments: Sequence[str]) -> int | None:
    """The lowest opset that has the operator with those arguments."""
    found = operators.versions(op_type, domain)
    schema = operators.schema(op_type, operators.newest_opset(domain), domain) if found else None
    first = operators.schema(op_type, found[0], domain) if found else None
    if schema is None or first is None or schema.deprecated:
        return None
    known = [*first.attributes, *[item.name for item in first.inputs]]
    later = [_first_with(first, _RENAMED.get((op_type, name), name)) for name in arguments if name not in known]
    return max([found[0], *[version for version in later if version is not None]])


def _first_with(schema: operators.OpSchema, name: str, as_input: bool = False) -> int | None:
    """The lowest later opset whose version has an argument of that name."""
    for version in operators.versions(schema.name, schema.domain):
        later = operators.schema(schema.name, version, schema.domain)
        if later is None or version <= schema.since_version:
            continue
        if name in [item.name for item in later.inputs] or (name in later.attributes and not as_input):
            return version
    return None


def _first_taking(schema: operators.OpSchema, formal: operators.Formal, dtype: int) -> int | None:
    """The lowest later opset whose version takes ``dtype`` in the place of ``formal``."""
    position = schema.inputs.index(formal)
    for version in operators.versions(schema.name, schema.domain):
        later = operators.schema(schema.name, version, schema.domain)
        if later is None or version <= schema.since_version or position >= len(later.inputs):
            continue
        if _allowed(later, later.inputs[position].type, dtype):
            return version
    return None


def _first_making(schema: operators.OpSchema, dtype: int) -> int | None:
    """The lowest later opset whose version can have a result of ``dtype``."""
    for version in operators.versions(schema.name, schema.domain):
        later = operators.schema(schema.name, version, schema.domain)
        if later is not None and version > schema.since_version and _allowed(later, later.outputs[0].type, dtype):
            return version
    return None


def _says_nothing(newest: operators.OpSchema, name: str, value: Any) -> bool:
    """True when an argument only spells out the operator's default."""
    attribute = newest.attributes.get(name)
    if attribute is None:
        return False
    default = attribute.default.decode() if isinstance(attribute.default, bytes) else attribute.default
    return bool(default == (tuple(value) if isinstance(value, list) else value))
