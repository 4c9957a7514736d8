"""The numbers that Python would get at other sizes, out of a recorded trace, in plain Python.

What Python asks of sizes follows from shapes.  So the part of a trace that the numbers follow from is read once, as a
plan: its steps in order.  A tensor is its shape there, a tuple, and a number of the trace is a Python number.  A step
of an operator that has a row in `shape_functions` costs a microsecond or two.  For any other, torch is asked on the
meta device, once for each kind of operands.  What follows from elements has no shape there, so there is no plan.

A plan is made only where it gives, at the sizes of the example, every shape and every number that was recorded.  It
ends at operands that do not fit each other: sizes at which the model does not run must not pass for sizes at which
nothing differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.names import operator_of
from purexport.aten.schema import Parameter, changes_shape, dtype_from_code, is_wrapped_number, signature, target_of
from purexport.frontends.core.shape_functions import INTEGERS, SHAPES, Shape, UnfitError, broadcast, shape_of
from purexport.frontends.trace.nodes import inputs_of, outputs_of

_FAILURES = (RuntimeError, ValueError, IndexError, TypeError, LookupError, ArithmeticError)

Function = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class ShapePlan:
    """Steps from the shapes of the inputs to numbers.

    `values` holds what follows from nothing that changes, and has a place for everything else.  A step is a function,
    the places of its operands, and the places of its results, or one place.  `numbers` are places, with the type in
    which Python got each.
    """

    inputs: list[int]
    values: list[Any]
    steps: list[tuple[Function, tuple[int, ...], int | tuple[int, ...]]]
    numbers: list[tuple[int, type]]

    def at(self, shapes: Sequence[Shape]) -> list[Any]:
        """The numbers at these shapes of the inputs, in order, up to the first that cannot be found out there."""
        values = self.values.copy()
        for place, shape in zip(self.inputs, shapes, strict=True):
            values[place] = shape
        try:
            for function, operands, results in self.steps:
                found = function(*[values[place] for place in operands])
                if type(results) is int:
                    values[results] = found
                else:
                    for place, item in zip(results, found, strict=True):  # type: ignore[arg-type]
                        values[place] = item
        except _FAILURES:
            pass  # the operands do not fit each other; what comes before is known
        numbers = []
        for place, kind in self.numbers:
            if values[place] is _MISSING:
                break
            numbers.append(kind(values[place]))
        return numbers


_MISSING: Any = object()


def plan_of(graph: Any, state: Sequence[torch.Tensor], numbers: Sequence[Any]) -> ShapePlan | None:
    """The plan of a trace whose results are numbers that Python got.

    None where a number follows from elements, and where the plan would not give what was recorded.
    """
    try:
        plan = _Reader(graph, state).read([type(number) for number in numbers])
        found = plan.at([tuple(value.type().sizes()) for value in list(graph.inputs())[: len(plan.inputs)]])
    except _FAILURES:
        return None
    return plan if found == list(numbers) else None


class _Reader:
    """Reads a graph of TorchScript, and evaluates it at the sizes of the example on the way."""

    def __init__(self, graph: Any, state: Sequence[torch.Tensor]) -> None:
        self.graph = graph
        self.state = state
        self.places: dict[int, int] = {}
        self.values: list[Any] = []
        self.changing: set[int] = set()
        self.steps: list[tuple[Function, tuple[int, ...], int | tuple[int, ...]]] = []

    def read(self, kinds: Sequence[type]) -> ShapePlan:
        """The plan.  Raises one of `_FAILURES` for what is no matter of shapes."""
        inputs = list(self.graph.inputs())
        count = len(inputs) - len(self.state)
        for value in inputs[:count]:
            self.changing.add(self._new(value, tuple(value.type().sizes())))
        for value, tensor in zip(inputs[count:], self.state, strict=True):
            self._new(value, tuple(tensor.shape))
        for node in self.graph.nodes():
            if not self._is_constant(node):
                self._step(node)
        results = next(self.graph.outputs()).node()
        places = [self.places[value.unique()] for value in inputs_of(results)]
        if any(isinstance(self.values[place], tuple) for place in places):
            raise UnfitError("a number follows from elements")
        numbers = list(zip(places, kinds, strict=True))
        values = [_MISSING if place in self.changing else value for place, value in enumerate(self.values)]
        return ShapePlan(list(range(count)), values, self.steps, numbers)

    def _new(self, value: Any, content: Any) -> int:
        self.places[value.unique()] = place = len(self.values)
        self.values.append(content)
        return place

    def _is_constant(self, node: Any) -> bool:
        if node.kind() != "prim::Constant":
            return False
        output = node.output()
        if output.type().kind() != "TensorType" or not node.hasAttribute("value"):
            self._new(output, output.toIValue())
            return True
        tensor = node.t("value")
        self._new(output, tensor.item() if is_wrapped_number(tensor) else tuple(tensor.shape))
        return True

    def _step(self, node: Any) -> None:
        operands = tuple(self.places[value.unique()] for value in inputs_of(node))
        if node.kind() == "prim::NumToTensor":
            self.places[node.output().unique()] = operands[0]
            return
        args = [self.values[place] for place in operands]
        function = _PRIM.get(node.kind()) or self._function(node, args)
        outputs = outputs_of(node)
        found = function(*args)
        several = len(outputs) != 1
        places = [self._new(output, item) for output, item in zip(outputs, found if several else [found], strict=True)]
        for output, place in zip(outputs, places, strict=True):
            _refuse_other(output.type(), self.values[place], node)
        if not self.changing.isdisjoint(operands):
            self.changing.update(places)
            self.steps.append((function, operands, tuple(places) if several else places[0]))

    def _function(self, node: Any, args: Sequence[Any]) -> Function:
        """What gives the result of a node of these operands: a row of ours, else torch."""
        schema = node.schema()
        if schema == "(no schema)":
            raise UnfitError(f"{node.kind()} is not an operator")
        target = target_of(schema)
        integers = INTEGERS.get(node.kind())
        if integers is not None and all(isinstance(arg, int) or arg is None for arg in args[:2]):
            return integers
        overload = operator_of(target)
        if overload is None or not target.startswith("aten::") or changes_shape(target):
            raise UnfitError(f"the shape that {target} gives is not known")
        if target in SHAPES:
            return SHAPES[target]
        types = [_types(value, arg) for value, arg in zip(inputs_of(node), args, strict=True)]
        kinds = [item.type for item in signature(target).parameters]
        tensors = [arg for arg, kind in zip(args, kinds, strict=True) if kind == "Tensor"]
        of_numbers = bool(tensors) and not any(isinstance(arg, tuple) for arg in tensors)
        if torch.Tag.pointwise in overload.tags and not of_numbers:
            return _written if signature(target).writes else _pointwise
        return _Asked(overload, target, types, of_numbers)


def _types(value: Any, arg: Any) -> list[torch.dtype | None]:
    """The dtypes of the tensors that a value is; None for a literal, which has no say in the type of a result."""
    node = value.node()
    if value.type().kind() == "TensorType":
        return [None if node.kind() == "prim::Constant" and not isinstance(arg, tuple) else value.type().dtype()]
    if node.kind() != "prim::ListConstruct":
        return []
    return [kind for item, part in zip(inputs_of(node), arg, strict=True) for kind in _types(item, part)]


def _refuse_other(kind: Any, found: Any, node: Any) -> None:
    """Raise UnfitError where a shape is another than was recorded, and where a tensor takes the place of a number."""
    if kind.kind() == "TensorType":
        recorded = kind.sizes()
        if recorded is not None and shape_of(found) != tuple(recorded):
            raise UnfitError(f"{node.kind()} gave {tuple(recorded)}, not {found}")
    elif kind.kind() in ("IntType", "FloatType", "BoolType", "NumberType") and isinstance(found, tuple):
        raise UnfitError(f"{node.kind()} takes its number from elements")


class _Asked:
    """An operator whose shape torch is asked for, once for each kind of operands.

    Where all operands are numbers, the operator computes.
    """

    def __init__(self, overload: Any, target: str, types: Sequence[Sequence[Any]], of_numbers: bool) -> None:
        self.overload = overload
        self.parameters = signature(target).parameters
        self.types = types
        self.device = "cpu" if of_numbers else "meta"
        self.known: dict[Any, Any] = {}

    def __call__(self, *args: Any) -> Any:
        key = repr(args)
        if key not in self.known:
            self.known[key] = self._found(args)
        return self.known[key]

    def _found(self, args: Sequence[Any]) -> Any:
        of = zip(self.parameters, args, self.types, strict=True)
        given = {item.name: self._given(item.type, arg, types) for item, arg, types in of if not _is_of_memory(item)}
        result = self.overload(**given)
        if self.device == "cpu" and isinstance(result, torch.Tensor) and not result.dim():
            return result.item()
        return _shapes(result)

    def _given(self, kind: str, arg: Any, types: Sequence[Any]) -> Any:
        if "Tensor" in kind and isinstance(arg, list):
            return [self._tensor(item, dtype) for item, dtype in zip(arg, types, strict=True)]
        if "Tensor" in kind:
            return self._tensor(arg, types[0] if types else None)
        if "Device" in kind:
            return self.device
        return dtype_from_code(arg) if "ScalarType" in kind and isinstance(arg, int) else arg

    def _tensor(self, item: Any, dtype: torch.dtype | None) -> Any:
        if item is None:
            return None
        if not isinstance(item, tuple):
            return item if dtype is None else torch.tensor(item, dtype=dtype, device=self.device)
        return torch.empty(item, dtype=dtype, device=self.device)


def _is_of_memory(parameter: Parameter) -> bool:
    """Whether it says how a result lies in memory."""
    return any(word in parameter.type for word in ("Layout", "MemoryFormat")) or parameter.name == "pin_memory"


def _shapes(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return tuple(item.shape)
    return [_shapes(part) for part in item] if isinstance(item, (list, tuple)) else item


def _pointwise(*args: Any) -> Shape:
    return broadcast(*(arg for arg in args if isinstance(arg, tuple)))


def _written(target: Shape, *args: Any) -> Shape:
    if _pointwise(target, *args) != target:
        raise UnfitError(f"{args} are larger than what is written to")
    return target


def _listed(*args: Any) -> list[Any]:
    return list(args)


def _itself(item: Any) -> Any:
    return item


_PRIM: dict[str, Function] = {
    "prim::ListConstruct": _listed,
    "prim::TupleConstruct": _listed,
    "prim::ListUnpack": _itself,
    "prim::TupleUnpack": _itself,
}
