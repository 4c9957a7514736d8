"""Abstract execution: the neutral graph run once on fake tensors whose declared axes are symbols.

A trace records the example's sizes everywhere, and a rule that took them as constants would be wrong for every other
size.  With dynamic axes, this pass replaces each recorded type by what torch's own shape functions say of symbolic
sizes.  A symbol that the model forces to one size is reported with the call that did it.

The recorded sizes remain as a cross-check: at the example's sizes both must agree, otherwise the trace holds a size
fixed in a way that no shape function shows, and exporting it would be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import Source as GuardSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from purexport import scalars
from purexport.capture.aten import AtenGraph, Call, ScalarType, TensorType, Value, values_in
from purexport.capture.exported import Symbols
from purexport.errors import ExportError
from purexport.recurrent import shape_function

Axes = Mapping[int, str]

_PRIMES = (13, 17, 19, 23, 29, 31, 37, 41, 43, 47)


# Operators whose result's size depends on their input's content; the example's size means nothing for another input.
_DATA_DEPENDENT = frozenset(
    f"aten::{name}"
    for name in [
        "nonzero",
        "nonzero_numpy",
        "argwhere",
        "masked_select",
        "unique",
        "_unique",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
        "unique_dim_consecutive",
        "bincount",
        "repeat_interleave",
    ]
) | {"torchvision::nms"}


def has_data_dependent_sizes(graph: AtenGraph) -> bool:
    """True when a size in the graph follows from the content of a tensor."""
    return any(call.base in _DATA_DEPENDENT or _has_mask(call) for call in graph.calls)


def _has_mask(call: Call) -> bool:
    if call.target != "aten::index.Tensor":
        return False
    types = [value.type for value in values_in(call.args["indices"])]
    return any(isinstance(type_, TensorType) and type_.dtype in (torch.bool, torch.uint8) for type_ in types)


@dataclass(frozen=True)
class _Axis(GuardSource):
    """Says where a symbol comes from, as torch's guards want to know."""

    text: str

    @property
    def _name_template(self) -> str:
        return self.text


@dataclass
class Specialised:
    """An axis that was declared dynamic and that the model makes static."""

    axis: str
    size: int
    place: str

    def __str__(self) -> str:
        return (
            f"axis {self.axis!r} was declared dynamic, but the model holds it at {self.size} at {self.place}; "
            "the file takes that size only"
        )


@dataclass
class Inference:
    """What the abstract execution found out beside the types."""

    specialised: list[Specialised] = field(default_factory=list)


def infer_types(graph: AtenGraph, axes: Mapping[str, Axes]) -> Inference:
    """Give every value of ``graph`` its symbolic type, in place.

    ``axes`` maps an input's name to its dynamic axes and their names; axes of one name have one size.
    Sizes that equal nothing else come first.  Where the program does not run on them (they may be larger than a table
    of positions, say), it runs on the example's own; an axis that the model then holds at one size becomes static and
    is reported.
    Raises ExportError where the program runs in neither way.
    """
    values = [item.value for item in graph.inputs] + [value for call in graph.calls for value in call.outputs]
    recorded = [value.type for value in values]
    try:
        return _Abstract(graph, axes, distinct=True).run()
    except ExportError:
        for value, type_ in zip(values, recorded, strict=True):
            value.type = type_
        return _Abstract(graph, axes, distinct=False).run()


class _Abstract:
    def __init__(self, graph: AtenGraph, axes: Mapping[str, Axes], distinct: bool) -> None:
        self.graph = graph
        self.axes = axes
        self.distinct = distinct
        self.shapes = ShapeEnv(specialize_zero_one=False, duck_shape=False, allow_dynamic_output_shape_ops=True)
        self.mode = FakeTensorMode(shape_env=self.shapes, allow_non_fake_inputs=True)
        self.symbols: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.examples: dict[Any, int] = {}
        self.env: dict[Value, Any] = {}
        self.found = Inference()

    def run(self) -> Inference:
        # the Python dispatcher brings the shape functions that keep symbols where the C++ kernels want numbers
        with self.mode, enable_python_dispatcher(), torch.no_grad():
            for item in self.graph.inputs:
                self.env[item.value] = self._fake(item.value.tensor, self.axes.get(item.name, {}))
            for item in self.graph.inputs:
                if item.kind == "user":
                    item.value.type = self._type(self.env[item.value])
            for call in self.graph.calls:
                self._run(call)
        # a symbol fixed late is a number in the types that were recorded before
        for value, result in self.env.items():
            value.type = self._type(result, value)
        return self.found

    def _fake(self, type_: TensorType, axes: Axes) -> torch.Tensor:
        shape: list[Any] = list(type_.shape or ())
        for axis, name in axes.items():
            shape[axis] = self._symbol(name, shape[axis])
        if not axes and type_.strides is not None:
            return torch.empty_strided(shape, type_.strides, dtype=type_.dtype)
        return torch.empty(shape, dtype=type_.dtype)

    def _symbol(self, name: str, example: int) -> Any:
        if name not in self.symbols:
            # The example's own size may equal another one by chance, or be 1, and "are they equal?" would then fix it.
            # A multiple by a prime of its own equals nothing else and divides by all that the example divides by.
            factor = _PRIMES[len(self.symbols) % len(_PRIMES)] if self.distinct else 1
            hint = max(example, 1) * factor
            source = _Axis(name)
            symbol = self.shapes.create_symbol(hint, source, DimDynamic.DYNAMIC, None, do_not_specialize_zero_one=True)
            self.symbols[name] = self.shapes.create_symintnode(symbol, hint=hint, source=source)
            self.names[str(symbol)] = name
            self.examples[symbol] = example
        return self.symbols[name]

    def _run(self, call: Call) -> None:
        recorded = [value.type for value in call.outputs]
        before = len(self.shapes.replacements)
        try:
            results = self._evaluate(call)
        except ExportError:
            raise
        except Exception as error:
            reason = self._named(str(error).strip().partition("\n")[0].rstrip(".)") or type(error).__name__)
            raise ExportError(
                f"{call.target} at {call.source} does not run with other sizes on the dynamic axes: {reason}. "
                "Declare these axes static, or change the line so that it takes any size"
            ) from error
        for value, result, old in zip(call.outputs, results, recorded, strict=True):
            self.env[value] = result
            value.type = self._type(result, value)
            self._cross_check(call, value.type, old, result)
        if len(self.shapes.replacements) != before:
            self._note_specialised(call)

    def _evaluate(self, call: Call) -> list[Any]:
        args = {name: self._argument(arg) for name, arg in call.args.items()}
        if call.target == "prim::getitem":
            return [args["list"][args["index"]]]
        if call.outputs and all(isinstance(value.type, ScalarType) for value in call.outputs):
            operands = [arg for arg in args.values() if isinstance(arg, torch.Tensor)]
            if scalars.is_scalar_operator(call.base) and not operands:
                return [scalars.evaluate(call.base, args)]
        if call.target == "aten::size.int":
            return [args["self"].size(args["dim"])]
        result = _operator(call)(**_as_tensors(call.target, args))
        return list(result) if len(call.outputs) != 1 else [result]

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, Value):
            return self.env[arg]
        if isinstance(arg, (list, tuple)):
            return [self._argument(item) for item in arg]
        return arg

    def _type(self, result: Any, value: Value | None = None) -> Any:
        if value is not None and isinstance(value.type, ScalarType) and isinstance(result, torch.Tensor):
            return value.type
        return Symbols(self.names).type(result)

    def _named(self, text: str) -> str:
        """torch's symbols in a message replaced by the names of the axes."""
        return re.sub(r"\bs\d+\b", lambda match: self.names.get(match.group(), match.group()), text)

    def _cross_check(self, call: Call, type_: Any, old: Any, result: Any) -> None:
        if not isinstance(type_, TensorType) or not isinstance(old, TensorType) or old.shape is None:
            return
        sizes = tuple(self._at_example(size) for size in result.shape)
        fits = len(sizes) == len(old.shape) and all(
            size is None or size == recorded for size, recorded in zip(sizes, old.shape, strict=True)
        )
        if not fits or type_.dtype != old.dtype:
            raise ExportError(
                f"{call.target} at {call.source} was recorded as {old}, and its shape function says {type_}; "
                "the trace holds a size fixed that was declared dynamic"
            )

    def _at_example(self, size: Any) -> int | None:
        if isinstance(size, int):
            return size
        number = size.node.expr.subs(self.examples)
        return int(number) if number.is_Integer else None

    def _note_specialised(self, call: Call) -> None:
        known = {item.axis for item in self.found.specialised}
        for name, symbol in self.symbols.items():
            expression = symbol.node.expr
            if expression.is_Integer and name not in known:
                self.found.specialised.append(Specialised(name, int(expression), str(call.source)))


def _operator(call: Call) -> Any:
    namespace, _, rest = call.target.partition("::")
    name, _, overload = rest.partition(".")
    recurrent = shape_function(call.target)
    if recurrent is not None:
        return recurrent
    if call.target == "aten::max_pool1d":
        return lambda **arguments: torch.ops.aten.max_pool1d_with_indices(**arguments)[0]  # keeps symbols
    if call.target == "aten::view":
        name = "reshape"  # fakes have plain strides, which may refuse a view that the model's own strides allowed
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    except AttributeError:
        raise ExportError(
            f"{call.target} at {call.source} has no shape function, so its sizes under dynamic axes are unknown"
        ) from None


def _as_tensors(target: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that the trace had wrapped become zero-dim tensors where the schema wants a tensor."""
    if target == "aten::view":
        return {"self": args["self"], "shape": args["size"]}
    kinds = _tensor_parameters(target)
    return {
        name: torch.scalar_tensor(arg, dtype=_number_dtype(arg)) if name in kinds and _is_number(arg) else arg
        for name, arg in args.items()
    }


def _tensor_parameters(target: str) -> Sequence[str]:
    from purexport.capture.bind import signature

    return [item.name for item in signature(target).parameters if re.fullmatch(r"(Optional\[)?Tensor\]?", item.type)]


def _is_number(arg: Any) -> bool:
    return isinstance(arg, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _number_dtype(number: Any) -> torch.dtype:
    if isinstance(number, (bool, torch.SymBool)):
        return torch.bool
    return torch.int64 if isinstance(number, (int, torch.SymInt)) else torch.get_default_dtype()
