"""TorchScript's graph of a trace becomes the neutral graph.

The trace wraps numbers in tensors: `x.size(0)` becomes `prim::NumToTensor`, and a literal becomes a zero-dim constant.
They are unwrapped here, because type promotion and constant folding must know that they are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from purexport.aten import scalars
from purexport.aten.graph import (
    AtenGraph,
    AtenValue,
    Call,
    Frame,
    Input,
    ListType,
    Recording,
    ScalarType,
    Source,
    TensorType,
    Type,
)
from purexport.aten.names import base_of
from purexport.aten.schema import bind, is_wrapped_number, target_of
from purexport.frontends.core import prepacked
from purexport.frontends.core.frames import traced_frames
from purexport.frontends.trace.nodes import inputs_of, outputs_of

_SCALARS = {"IntType": int, "FloatType": float, "BoolType": bool, "NumberType": float}
_CASTS = {"aten::Int": int, "aten::Float": float, "aten::Bool": bool}
_CASTS |= {"aten::IntImplicit": int, "aten::FloatImplicit": float}


class TraceReader:
    """Reads one TorchScript graph.  It keeps the graph alive, because sources are made on demand from its nodes."""

    def __init__(self, graph: Any, inputs: list[Input], objects: Sequence[Any] = ()) -> None:
        self.script = graph
        self.objects = objects
        self.unpacked: dict[int, list[Any]] = {}
        self.graph = Recording(list(inputs))
        self.env: dict[int, Any] = {}

    def read(self) -> AtenGraph:
        """The neutral graph."""
        for place, value in enumerate(self.script.inputs()):
            found = self.env[value.unique()] = AtenValue(_type(value.type()))
            self.graph.inputs[place] = replace(self.graph.inputs[place], value=found)
        self._block(self.script)
        outputs: list[Any] = []
        for output in self.script.outputs():
            result = self.env[output.unique()]
            outputs += result if isinstance(result, list) else [result]
        return self.graph.graph(outputs)

    def _block(self, block: Any) -> None:
        for node in block.nodes():
            handler = _PRIM.get(node.kind())
            if handler is not None:
                handler(self, node)
            else:
                self._call(node)

    def _args(self, node: Any) -> list[Any]:
        return [self.env[value.unique()] for value in inputs_of(node)]

    def _source(self, node: Any) -> Source:
        # "(root)/l/l.0": the last element is the module's whole path
        scope = node.scopeName().rpartition("/")[2]
        graph = self.script  # the node belongs to it

        def frames() -> Iterator[Frame]:
            assert graph is not None
            return traced_frames(node.sourceRange())

        return Source("" if scope == "(root)" else scope, frames)

    def _emit(self, node: Any, target: str, args: dict[str, Any], as_number: Type | None = None) -> None:
        """Record a call; its first result is a number of the kind of `as_number`, where that is given."""
        outputs: list[AtenValue] = []
        for output in outputs_of(node):
            known = _type(output.type()) if as_number is None or outputs else _as_scalar(as_number)
            value = AtenValue(ListType(_taken_apart(output)) if isinstance(known, ListType) else known)
            self.env[output.unique()] = value
            outputs.append(value)
        self.graph.calls.append(Call(target, args, outputs, self._source(node)))

    def _call(self, node: Any) -> None:
        schema = node.schema()
        args = self._args(node)
        kind = node.kind()
        if schema == "(no schema)":
            self._emit(node, kind, {str(position): arg for position, arg in enumerate(args)})
            return
        if kind in _CASTS and self._is_number(args[0]):
            cast = _CASTS[kind]
            converted = args[0]
            same = isinstance(converted, AtenValue) and converted.type == ScalarType(cast)
            if same or not isinstance(converted, AtenValue):
                self.env[node.output().unique()] = converted if same else cast(converted)
                return
        target = target_of(schema)
        if args and self._is_number(args[0]) and args[0] is not None:
            target = scalars.without_write(target)
            kind = base_of(target)
        bound = bind(target, args, {})
        if target == "aten::to.dtype" and bound["dtype"] is torch.int64 and self._is_number(args[0]):
            # a size that Python rounds (`purexport.torch_patches.rounding`)
            target, kind, bound = "aten::Int.Scalar", "aten::Int", {"a": args[0]}
            args = args[:1]
        number: Type | None = None
        if scalars.is_scalar_operator(kind) and all(self._is_number(arg) for arg in args):
            number = _type(outputs_of(node)[0].type())
        elif kind == "aten::ScalarImplicit":  # a tensor where a number is declared: a number of the tensor's kind
            number = args[0].type
        self._emit(node, target, bound, number)

    @staticmethod
    def _is_number(arg: Any) -> bool:
        if isinstance(arg, AtenValue):
            return isinstance(arg.type, ScalarType)
        return arg is None or isinstance(arg, (bool, int, float, str))

    def _constant(self, node: Any) -> None:
        output = node.output()
        if output.type().kind() == "TensorType" and node.hasAttribute("value"):
            tensor = node.t("value")
            number = is_wrapped_number(tensor)
            self.env[output.unique()] = tensor.item() if number else self.graph.constant(tensor)
        else:
            self.env[output.unique()] = output.toIValue()

    def _object(self, node: Any) -> None:
        """Packed weights.  They are unpacked once, however often they are used."""
        found = self.objects[node.i(prepacked.ATTRIBUTE)]
        if id(found) not in self.unpacked:
            scope = self._source(node).scope
            self.unpacked[id(found)] = prepacked.unpacked(found, scope, self.graph.constant)
        self.env[node.output().unique()] = self.unpacked[id(found)]

    def _list(self, node: Any) -> None:
        self.env[node.output().unique()] = self._args(node)

    def _unpack(self, node: Any) -> None:
        container = self.env[node.inputsAt(0).unique()]
        for index, output in enumerate(outputs_of(node)):
            if isinstance(container, list):
                self.env[output.unique()] = container[index]
                continue
            value = AtenValue(_type(output.type()))
            self.env[output.unique()] = value
            args = {"list": container, "index": index}
            self.graph.calls.append(Call("prim::getitem", args, [value], self._source(node)))

    def _alias(self, node: Any) -> None:
        self.env[node.output().unique()] = self.env[node.inputsAt(0).unique()]

    def _python(self, node: Any) -> None:
        """An autograd Function is replaced by its recorded inner graph."""
        if not node.hasAttribute("Subgraph"):
            self._emit(node, "prim::PythonOp", {str(i): arg for i, arg in enumerate(self._args(node))})
            return
        inner, outer = node.g("Subgraph"), self.env
        # its values are numbered on their own
        self.env = {value.unique(): arg for value, arg in zip(inner.inputs(), self._args(node), strict=True)}
        self._block(inner)
        results = [self.env[value.unique()] for value in inner.outputs()]
        self.env = outer
        outputs = outputs_of(node)
        if len(outputs) == 1 and len(results) > 1:  # a tuple, which the next node takes apart
            results = [results]
        self.env |= {output.unique(): result for output, result in zip(outputs, results, strict=True)}


_PRIM: dict[str, Callable[[TraceReader, Any], None]] = {
    "prim::Constant": TraceReader._constant,
    prepacked.NODE: TraceReader._object,
    "prim::ListConstruct": TraceReader._list,
    "prim::TupleConstruct": TraceReader._list,
    "prim::ListUnpack": TraceReader._unpack,
    "prim::TupleUnpack": TraceReader._unpack,
    "prim::NumToTensor": TraceReader._alias,
    "prim::PythonOp": TraceReader._python,
}


def _taken_apart(value: Any) -> int | None:
    """Into how many elements a list is taken apart; None where it is not."""
    users = (use.user for use in value.uses())
    return next((len(outputs_of(user)) for user in users if user.kind().endswith("Unpack")), None)


def _type(type_: Any) -> Type:
    kind = type_.kind()
    if kind == "TensorType":
        sizes, strides, dtype = type_.sizes(), type_.strides(), type_.dtype()
        shape = None if sizes is None else tuple(sizes)
        # a tensor without a recorded type (an undefined one) is never read; float32 stands for its dtype
        return TensorType(dtype or torch.float32, shape, tuple(strides) if strides else () if shape == () else None)
    if kind in _SCALARS:
        return ScalarType(_SCALARS[kind])
    return ListType()


def _as_scalar(type_: Type) -> Type:
    if not isinstance(type_, TensorType):
        return type_
    if type_.dtype is torch.bool:
        return ScalarType(bool)
    if type_.dtype.is_complex:
        return ScalarType(complex)
    return ScalarType(float if type_.dtype.is_floating_point else int)
