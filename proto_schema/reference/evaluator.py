"""`ReferenceEvaluator`: runs a model, graph, function or node with numpy alone.

All checks that need no values are made when it is made: an operator that nothing computes is an error then. Tensors of
the file are read when a run first needs them. A value is freed after the last node that takes it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from proto_schema import operators
from proto_schema.budget import Budget, BudgetLike, ExceededError, budget_of
from proto_schema.compute.call import NOTHING, Typed, Value
from proto_schema.graphs.calls import callable_functions
from proto_schema.onnx import FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TypeProto
from proto_schema.reference.failures import BudgetError, EvaluationError, UnsupportedOperatorError
from proto_schema.reference.op_run import OpRun, python_value
from proto_schema.reference.program import Custom, Linker, Program, RunningGraph, Watch
from proto_schema.reference.values import described, given, plain
from proto_schema.wire.fields import Message

__all__ = ["ReferenceEvaluator"]

_MESSAGES: dict[str, type[Message]] = {
    "ModelProto": ModelProto,
    "GraphProto": GraphProto,
    "FunctionProto": FunctionProto,
    "NodeProto": NodeProto,
}


class ReferenceEvaluator:
    """A model that can be run, with the constructor and methods of `onnx.reference.ReferenceEvaluator`."""

    def __init__(
        self,
        proto: Any,
        opsets: Mapping[str, int] | None = None,
        functions: Iterable[ReferenceEvaluator | FunctionProto] | None = None,
        verbose: int = 0,
        new_ops: Iterable[type[OpRun]] | None = None,
        optimized: bool = True,
        budget: BudgetLike = None,
    ) -> None:
        """`proto` is a path, an encoded model, or a message: ModelProto, GraphProto, FunctionProto or NodeProto.

        Messages of the package `onnx` are understood, too. `opsets` (domain -> version) is for a graph or node that
        stands alone; without it the newest hold. `functions` are those that a graph, function or node calls. `new_ops`
        are classes derived from `op_run.OpRun`; they go before what is known here. `verbose=1` writes each node and its
        results to stdout. `optimized` is taken as onnx.reference took it; there is one way to compute an operator here.
        `budget` is what a run may ask for: a `Budget`, or its memory in bytes (default: 16 GiB).

        Raises UnsupportedOperatorError for operators that nothing computes, ValueError for opsets beside a model,
        TypeError for what is no model, and what `load` raises for a path.
        """
        self.verbose = int(verbose)
        self.optimized = bool(optimized)
        self.budget = budget_of(budget)
        self.proto = proto = _message(proto)
        called = [item.proto if isinstance(item, ReferenceEvaluator) else _message(item) for item in functions or ()]
        if isinstance(proto, ModelProto):
            if opsets is not None:
                raise ValueError("a model says its opsets itself: leave out opsets=")
            called = [*called, *proto.functions]
        self._opsets = _opsets(proto, opsets)
        self.functions = callable_functions(called)
        self.new_ops = list(new_ops or ())
        linker = Linker(self.functions, self._custom())
        self._program = self._linked(linker)
        if linker.missing:
            names = "; ".join(f"{name} ({where})" for name, where in linker.missing.items())
            many = "operators" if len(linker.missing) > 1 else "operator"
            raise UnsupportedOperatorError(
                f"{len(linker.missing)} {many} cannot be computed: {names}. Pass functions= with their definitions, or "
                "new_ops= with classes that compute them"
            )

    def _linked(self, linker: Linker) -> Program:
        proto = self.proto
        if isinstance(proto, ModelProto):
            return linker.graph(proto.graph or GraphProto(), self._opsets)
        if isinstance(proto, GraphProto):
            return linker.graph(proto, self._opsets)
        if isinstance(proto, FunctionProto):
            return linker.function(proto, self._opsets)
        inputs = list(dict.fromkeys(name for name in proto.input if name))
        return linker.program(inputs, [name for name in proto.output if name], {}, [proto], self._opsets)

    def _custom(self) -> dict[tuple[str, str], Callable[[NodeProto, Mapping[str, int]], Custom]]:
        found: dict[tuple[str, str], Callable[[NodeProto, Mapping[str, int]], Custom]] = {}
        for kind in self.new_ops:
            if not (isinstance(kind, type) and issubclass(kind, OpRun)):
                raise TypeError(f"new_ops takes classes derived from proto_schema.reference.op_run.OpRun, not {kind!r}")
            found.setdefault((operators.canonical(kind.op_domain), kind.__name__), self._made(kind))
        return found

    def _made(self, kind: type[OpRun]) -> Callable[[NodeProto, Mapping[str, int]], Custom]:
        def make(node: NodeProto, opsets: Mapping[str, int]) -> Custom:
            schema = operators.schema(node.op_type or "", opsets.get(node.domain or "", 0), node.domain or "")
            operator = kind(node, {"opsets": dict(opsets), "verbose": self.verbose}, schema)
            declared = schema.attributes if schema is not None else {}
            defaults = {name: item.default for name, item in declared.items() if item.default is not None}

            def run(attributes: Mapping[str, Any], inputs: Sequence[Any], frame: RunningGraph) -> Sequence[Any]:
                known = {name: self._attribute(value, opsets) for name, value in {**defaults, **attributes}.items()}
                context = _surroundings(frame) if operator.need_context() else None
                return operator.run(*inputs, context=context, **known)

            return run

        return make

    def _attribute(self, value: Any, opsets: Mapping[str, int]) -> Any:
        if isinstance(value, GraphProto):
            return ReferenceEvaluator(value, dict(opsets), list(self.functions.values()), 0, self.new_ops)
        return python_value(value)

    # -- what it is

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs."""
        return list(self._program.inputs)

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs."""
        return list(self._program.outputs)

    @property
    def input_types(self) -> list[TypeProto | None] | None:
        """The declared types of a graph's inputs; None for a function or node."""
        graph = self._graph
        return None if graph is None else [item.type for item in graph.input]

    @property
    def output_types(self) -> list[TypeProto | None] | None:
        """The declared types of a graph's outputs; None for a function or node."""
        graph = self._graph
        return None if graph is None else [item.type for item in graph.output]

    @property
    def opsets(self) -> dict[str, int]:
        """Domain -> version."""
        return dict(self._opsets)

    @property
    def _graph(self) -> GraphProto | None:
        if isinstance(self.proto, ModelProto):
            return self.proto.graph or GraphProto()
        return self.proto if isinstance(self.proto, GraphProto) else None

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.input_names)}) -> {', '.join(self.output_names)}"

    # -- running

    def run(
        self,
        output_names: Sequence[str] | None,
        feed_inputs: Mapping[str, Any],
        attributes: Mapping[str, Any] | None = None,
        intermediate: bool | Callable[[str, Any], None] = False,
        *,
        budget: Budget | None = None,
    ) -> Any:
        """The outputs, in the order of `output_names` (None: all of the graph).

        `feed_inputs` maps names of inputs to arrays, numbers, lists (sequences), dicts (maps) or None (an optional
        without an element); arrays of ml_dtypes are understood. `attributes` are those of a function. `intermediate`
        is called with the name and value of each result of the graph as it is made; True returns a dict of all values.
        `budget` is one that several runs share, in place of the evaluator's own.

        Outputs are numpy arrays (float32 for bfloat16 and the smaller floats, int8 and uint8 for integers below 8
        bits), lists, dicts or None; one that is an input or a tensor of the file shares its memory.
        Raises EvaluationError, which is a ValueError: for a node that cannot be computed, and for inputs that are
        missing, unknown, or of another type than the model declares. BudgetError is one, for a node that asks for more
        work or memory than is left.
        """
        outputs = list(self._program.outputs) if output_names is None else list(output_names)
        every: dict[str, Any] = {}
        watch = self._watch(intermediate, every)
        feed = self._feed(feed_inputs)
        if intermediate is True:
            every.update((name, plain(value)) for name, value in feed.items())
        given_attributes = dict(attributes or {})
        if isinstance(self.proto, FunctionProto):
            from proto_schema.tensors.attributes import get_attribute_value

            defaults = {item.name or "": get_attribute_value(item) for item in self.proto.attribute_proto}
            given_attributes = {**defaults, **given_attributes}
        self._check_outputs(outputs)
        with np.errstate(all="ignore"):
            spent = self.budget.fresh() if budget is None else budget
            try:
                found = self._program.run(feed, outputs, spent, None, given_attributes, watch)
            except ExceededError as error:  # before the first node
                raise BudgetError(
                    f"the run is past the budget: {error}. Give it more with --budget (budget= in Python)"
                ) from None
        if intermediate is True:
            return every
        return [plain(value) for value in found]

    def _check_outputs(self, outputs: Sequence[str]) -> None:
        known = {*self._program.inputs, *self._program.constants}
        known.update(name for step in self._program.steps for name in step.outputs)
        for name in outputs:
            if name not in known:
                raise EvaluationError(
                    f"the model has no value {name!r}; its outputs are {', '.join(map(repr, self._program.outputs))}"
                )

    def _feed(self, inputs: Mapping[str, Any]) -> dict[str, Value]:
        graph = self._graph
        declared = {item.name: item.type for item in graph.input} if graph is not None else {}
        feed: dict[str, Value] = {}
        names = {*self._program.inputs, *self._program.constants}
        for name, value in inputs.items():
            if name not in names:
                known = ", ".join(map(repr, self._program.inputs)) or "none"
                raise EvaluationError(f"the model has no input {name!r}; its inputs are {known}")
            try:
                feed[name] = given(value, declared.get(name)) if value is not None or graph is not None else None
            except (TypeError, ValueError) as error:
                raise EvaluationError(f"input {name!r} does not fit: {error}") from None
        for name in self._program.inputs:
            if name not in feed and name not in self._program.constants:
                kind = declared.get(name)
                if kind is not None and kind.optional_type is not None:
                    feed[name] = NOTHING
                    continue
                if graph is not None:
                    raise EvaluationError(f"the input {name!r} is missing; pass a value for each of {self.input_names}")
                feed[name] = None
        return feed

    def _watch(self, intermediate: bool | Callable[[str, Any], None], every: dict[str, Any]) -> Watch | None:
        callbacks: list[Callable[[str, Any], None]] = []
        if intermediate is True:
            callbacks.append(every.__setitem__)
        elif callable(intermediate):
            callbacks.append(intermediate)
        shown = bool(self.verbose)
        if not callbacks and not shown:
            return None

        def watch(name: str, value: Any) -> None:
            if shown:
                sys.stdout.write(f" + {name}: {_shown(value, self.verbose)}\n")
            for callback in callbacks:
                callback(name, plain(value))

        return watch


def _shown(value: Any, verbose: int) -> str:
    array = value.array if isinstance(value, Typed) else value
    text = described(value)
    if not isinstance(array, np.ndarray) or not array.size or array.dtype.kind not in "biuf":
        return text
    if verbose >= 4:
        return f"{text} {np.array2string(array, threshold=20)}"
    return f"{text} in [{array.min()}, {array.max()}]"


def _surroundings(frame: RunningGraph) -> dict[str, Any]:
    found: dict[str, Any] = {}
    around: RunningGraph | None = frame
    while around is not None:
        for name in around.values:
            if name not in found:
                found[name] = plain(around.get(name))
        around = around.outer
    return found


def _message(proto: Any) -> Any:
    """The message that a path, bytes, or a message of ours or of the package onnx stands for."""
    if isinstance(proto, (str, os.PathLike)):
        from proto_schema.files.models import load

        return load(proto)
    if isinstance(proto, (bytes, bytearray, memoryview)):
        return ModelProto.FromString(proto)
    if isinstance(proto, tuple(_MESSAGES.values())):
        return proto
    kind = _MESSAGES.get(type(proto).__name__)
    if kind is not None and hasattr(proto, "SerializeToString"):
        return kind.FromString(proto.SerializeToString())
    raise TypeError(f"a {type(proto).__name__} cannot be run; pass a path, bytes, or a {', '.join(_MESSAGES)}")


def _opsets(proto: Any, given: Mapping[str, int] | None) -> dict[str, int]:
    imports: Sequence[OperatorSetIdProto] = getattr(proto, "opset_import", ())
    if given is not None:
        return {operators.canonical(domain): version for domain, version in given.items()}
    if imports:
        return {operators.canonical(item.domain or ""): item.version or 1 for item in imports}
    if isinstance(proto, ModelProto):
        return {"": 1}  # before IR version 3 a model imported nothing
    return {domain: operators.newest_opset(domain) for domain in operators.domains()}
