"""Abstract execution: the neutral graph runs once on fake tensors whose dynamic axes have symbolic sizes.

A trace records the example's sizes everywhere, and a rule that took them as constants would be wrong for every other
size.  With dynamic axes, this pass replaces each recorded type by what torch's own shape functions give for symbolic
sizes.  A specialized axis, whose symbol the model forces to one size, is reported with the call that did it.

Invariant: at the example's sizes, the computed and the recorded sizes agree.  Otherwise the trace has specialized a
size in a way that no shape function shows.  Then the export is refused, because the file would be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from purexport.aten.axes import Axes, Specialised
from purexport.aten.graph import AtenGraph, Call, ScalarType, TensorType, Value
from purexport.dtypes import is_quantized
from purexport.errors import ExportError
from purexport.facts.table import has_data_dependent_size
from purexport.shapes.failures import code_of


def has_data_dependent_sizes(graph: AtenGraph) -> bool:
    """True when a size in the graph is data-dependent, so that the example's size does not hold for other inputs."""
    return any(map(has_data_dependent_size, graph.calls))


@dataclass
class Inference:
    """What the abstract execution found out besides the types."""

    specialised: list[Specialised] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)

    def remarks(self) -> list[str]:
        """All findings, one sentence each."""
        held = [
            f"the trace holds that {'; '.join(self.assumed)}; for sizes where it does not hold, the file may not run"
        ]
        return [*map(str, self.specialised), *self.merged, *(held if self.assumed else [])]


def infer_types(graph: AtenGraph, axes: Mapping[str, Axes]) -> Inference:
    """Give every value of `graph` its symbolic type, in place.

    `axes` maps an input's name to its dynamic axes and their names; axes of one name have one size.
    The program runs first on sizes that equal no other size.  It may fail there or specialize an axis, for example
    because such a size is larger than a table of positions.  Then the program runs on the example's own sizes.  An axis
    that is specialized there too becomes static and is reported.
    Raises ExportError where the second run fails too.
    """
    values = [item.value for item in graph.inputs] + [value for call in graph.calls for value in call.outputs]
    recorded = [value.type for value in values]
    try:
        found = _Abstract(graph, axes, distinct=True).run()
        if not found.specialised:
            return found
    except ExportError:
        pass
    for value, type_ in zip(values, recorded, strict=True):
        value.type = type_
    return _Abstract(graph, axes, distinct=False).run()


class _Abstract:
    def __init__(self, graph: AtenGraph, axes: Mapping[str, Axes], distinct: bool) -> None:
        self.graph = graph
        self.axes = axes
        # imported here, because it loads sympy, which a graph with static sizes does not need
        from purexport.shapes.fakes import FakeMachine

        self.machine = FakeMachine(distinct)
        self.env: dict[Value, Any] = {}
        self.found = Inference()

    def run(self) -> Inference:
        with self.machine.running():
            for item in self.graph.inputs:
                if item.kind == "constant" and item.tensor is not None:
                    self.env[item.value] = self.machine.constant(item.tensor)
                else:
                    self.env[item.value] = self.machine.tensor(item.value.tensor, self.axes.get(item.name, {}))
            for item in self.graph.inputs:
                if item.kind == "user":
                    item.value.type = self.machine.type(self.env[item.value])
            for call in self.graph.calls:
                self._run(call)
        # a symbol that was specialized late becomes a number in the types from before, too
        for value, result in self.env.items():
            value.type = self._type(result, value)
        self.found.merged = self.machine.merged()
        self.found.assumed = self.machine.assumed()
        return self.found

    def _run(self, call: Call) -> None:
        recorded = [value.type for value in call.outputs]
        try:
            results = self._squeezed_at_example(call) if call.base == "aten::squeeze" else None
            if results is None:
                results = self.machine.evaluate(call, self.env.__getitem__)
        except ExportError:
            raise
        except Exception as error:
            reason = self.machine.named(str(error).strip().partition("\n")[0].rstrip(".)") or type(error).__name__)
            if code_of(error, "other-sizes-do-not-run") == "data-dependent-size":
                raise ExportError(
                    f"{call.target} at {call.source} needs a size that depends on data, as a Python loop over such a "
                    "tensor does; the file would hold that of the example. Script the function, or write it so that "
                    f"no size depends on data ({reason})",
                    code="data-dependent-size",
                ) from error
            raise ExportError(
                f"{call.target} at {call.source} does not run with other sizes on the dynamic axes: {reason}. "
                "Declare these axes static, or change the line so that it takes any size",
                code=code_of(error, "other-sizes-do-not-run"),
            ) from error
        for value, result, old in zip(call.outputs, results, recorded, strict=True):
            self.env[value] = result
            value.type = self._type(result, value)
            self._cross_check(call, value.type, old, result)
        known = {item.axis for item in self.found.specialised}
        for axis, size in self.machine.fixed().items():
            if axis not in known:
                self.found.specialised.append(Specialised(axis, size, str(call.source)))

    def _squeezed_at_example(self, call: Call) -> list[Any] | None:
        """The result of a squeeze that removes a dynamic axis, whose size is 1 in the example; None for other calls.

        The call then names all axes that it removes, so that the file has a Squeeze that fails for other sizes.
        """
        fake = self.env[call.args["self"]]
        dims = call.args.get("dim", range(fake.dim()))
        axes = sorted({dim % max(fake.dim(), 1) for dim in (dims if isinstance(dims, (list, range)) else [dims])})
        axes = [axis for axis in axes if fake.dim() and self.machine.at_example(fake.shape[axis]) == 1]
        if all(isinstance(fake.shape[axis], int) for axis in axes):
            return None
        call.target, call.args = "aten::squeeze.dims", {"self": call.args["self"], "dim": axes}
        for axis in reversed(axes):
            fake = fake.select(axis, 0)
        return [fake]

    def _type(self, result: Any, value: Value) -> Any:
        # a number stays a number, also where torch computed it as a zero-dim tensor
        is_number = isinstance(value.type, ScalarType) and isinstance(result, torch.Tensor)
        found = value.type if is_number else self.machine.type(result)
        if isinstance(found, TensorType) and isinstance(value.type, TensorType) and is_quantized(value.type.dtype):
            return TensorType(value.type.dtype, found.shape)  # its fake tensor is float32
        return found

    def _cross_check(self, call: Call, type_: Any, old: Any, result: Any) -> None:
        if not isinstance(type_, TensorType) or not isinstance(old, TensorType) or old.shape is None:
            return
        sizes = tuple(self.machine.at_example(size) for size in result.shape)
        fits = len(sizes) == len(old.shape) and all(
            size is None or size == recorded for size, recorded in zip(sizes, old.shape, strict=True)
        )
        if not fits or type_.dtype != old.dtype:
            raise ExportError(
                f"{call.target} at {call.source} was recorded as {old}, and its shape function says {type_}; "
                "the trace holds a size fixed that was declared dynamic",
                code="dynamic-axis-held",
            )
