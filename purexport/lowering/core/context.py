"""What an `op` is made of: three values, each with one job.

- `Builder` is what all of one lowering share: the opset, whether constants are folded, the inputs of the model, the
  remarks for the report, and the older forms of operators.
- `Body` is one graph that is being written, the model's or that of an If or Loop, with the sizes read in it.
- `CallSite` is the call that is being lowered.

Each is frozen: a rule that needs another body or another site gets another `op` (`op.subgraph()`, `op.at(site)`).
What grows in them are the lists of a graph, the sizes and the remarks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from proto_schema.inference.site import Scope
from proto_schema.legalization import Row
from proto_schema.operators.runtimes import Release
from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.aten.graph import AtenValue, Call, ListType, Source, TensorType, Type
from purexport.graph.ir import Graph, Value


@dataclass(frozen=True, slots=True, eq=False)
class Builder:
    """What one lowering shares, whichever call and body it is at."""

    opset: int
    inputs: list[Value]  # of the model's graph: sizes can be read from them anywhere
    folds: bool = True  # False: only what sizes need
    remarks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    scope: Scope = field(default_factory=Scope)
    release: Release | None = None  # of the runtime whose kernels decide the form; None where any form will do
    older: Mapping[str, Sequence[Row]] = field(default_factory=dict)  # by the name of the ONNX operator
    of_runtime: bool = False  # whether operators of ONNX Runtime's domain com.microsoft may be written


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A graph that is being written, and the sizes that were read in it.

    The keys of `dims` are expressions of axis names, pairs of a value and an axis, and values (their whole shape).
    """

    graph: Graph
    dims: dict[object, Value] = field(default_factory=dict)

    def inside(self) -> Body:
        """A new body inside of this one: it sees the sizes that were read here, and what it reads is not seen here."""
        return Body(Graph(), dict(self.dims))


@dataclass(frozen=True, slots=True)
class CallSite:
    """The call that is being lowered.

    `results` are torch's types of its results: None for what is no tensor, the type of its integers for a quantized
    tensor.  `count` is how many results a list had when it was recorded; None where that is not known.  `operands` are
    torch's types of its arguments by name, with the strides, where these are values.
    """

    source: Source = field(default_factory=Source)
    target: str = ""
    results: tuple[TensorType | None, ...] = ()
    operands: Mapping[str, Type] = field(default_factory=dict)
    count: int | None = None


def site_of(call: Call, type_of: Callable[[AtenValue], Type]) -> CallSite:
    """The site of a neutral call, with the types that `type_of` gives its operands and results."""
    operands = {name: type_of(arg) for name, arg in call.args.items() if isinstance(arg, AtenValue)}
    known = [type_of(value) for value in call.outputs]
    results = tuple(map(_stored, known))
    count = next((type_.count for type_ in known if isinstance(type_, ListType)), None)
    return CallSite(call.source, call.target, results, MappingProxyType(operands), count)


def _stored(type_: Type) -> TensorType | None:
    """A result's type, of a quantized tensor that of its integers."""
    if not isinstance(type_, TensorType):
        return None
    if not dtypes.is_quantized(type_.dtype):
        return type_
    return TensorType(dtypes.stored_dtype(type_.dtype), type_.shape, type_.strides)
