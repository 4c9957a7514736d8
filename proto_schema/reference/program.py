"""A graph as a list of steps, made once, and its runs.

`Linker` turns graphs, functions and nodes into a `Program`. It finds what computes each node (a function of the model,
an operator that the user brings, a row of `proto_schema.compute`), and after which step each value is needed no more.
What nothing computes is collected, so that one error names it all before anything runs. A graph inside of a node is a
program of its own, which sees the values around it through the `RunningGraph` that it runs in. A frame is of one run;
programs hold nothing but the tensors of the file, which are read when a run first needs them.

What a node costs is charged to the budget of the run before it is computed, and its results count until the last node
that takes them is done.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from proto_schema import operators
from proto_schema.budget import NODE, Budget, Cost, ExceededError
from proto_schema.compute.call import Call, MisuseError, Typed, Value
from proto_schema.compute.costs import WIDE, CostOf, weight
from proto_schema.compute.rows import MICROSOFT, Row, cost_of, table
from proto_schema.errors import ExternalDataError
from proto_schema.graphs.calls import callee
from proto_schema.onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, SparseTensorProto, TensorProto
from proto_schema.operators import UNBOUNDED, OpSchema
from proto_schema.reference.failures import BudgetError, EvaluationError
from proto_schema.reference.values import code_of, described, settled, typed
from proto_schema.tensors.arrays import to_array
from proto_schema.tensors.attributes import get_attribute_value
from proto_schema.tensors.dtypes import DTYPES, element_count
from proto_schema.tensors.sparse import dense

__all__ = ["Linker", "Program", "RunningGraph", "Step"]

DEEPEST = 100  # functions and graphs inside of one another
KEPT = 16 << 20  # bytes of a converted tensor of the file that are kept between runs
_CAUSES = (
    *(ValueError, IndexError, KeyError, TypeError, ZeroDivisionError, OverflowError, AttributeError),
    *(MemoryError, RecursionError),
)
_CODES = {f"tensor({row.text})": row.code for row in DTYPES.values()}
Watch = Callable[[str, Any], None]
Custom = Callable[..., Sequence[Any]]


class Constant:
    """A tensor of the file, read when it is first used. Its array is a view of the file where its type allows."""

    __slots__ = ("_held", "message")

    def __init__(self, message: TensorProto | SparseTensorProto) -> None:
        self.message = message
        self._held: Value = None

    def value(self, budget: Budget) -> Value:
        """The tensor. Raises what `to_array` raises for one that cannot be read."""
        if self._held is not None:
            return self._held
        if isinstance(self.message, SparseTensorProto):
            count = element_count(self.message.dims)  # of which the file has only some
            budget.charge(Cost(count, WIDE * count))
            array, code = dense(self.message)
        else:
            array, code = to_array(self.message), self.message.data_type or 0
        if not array.flags.aligned:  # numpy would copy it in each product
            array = array.copy()
        found = typed(array, code)
        if not isinstance(found, Typed) or array.nbytes <= KEPT:
            self._held = found
        return found


@dataclass(slots=True)
class Step:
    """One node and what computes it: a row with its schema, a function's program, or a custom operator."""

    node: NodeProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    references: tuple[tuple[str, str], ...]
    opsets: Mapping[str, int]
    row: Row | None = None
    cost: CostOf | None = None
    schema: OpSchema | None = None
    function: Program | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    custom: Custom | None = None
    bodies: dict[int, Program] = field(default_factory=dict)
    types: tuple[int | tuple[int, ...], ...] = ()
    done: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The node in words."""
        node = self.node
        if node.name:
            return f"node {node.name!r} ({node.op_type})"
        made = ", ".join(repr(name) for name in node.output if name) or "nothing"
        return f"the {node.op_type} that makes {made}"


class RunningGraph:
    """The values of one run of one program; a name that is not here is looked up in the frame around it."""

    __slots__ = ("budget", "depth", "outer", "references", "sizes", "values", "watch")

    def __init__(
        self,
        outer: RunningGraph | None,
        references: Mapping[str, Any],
        budget: Budget,
        depth: int = 0,
        watch: Watch | None = None,
    ) -> None:
        self.outer = outer
        self.references = references
        self.budget = budget
        self.depth = depth
        self.watch = watch
        self.values: dict[str, Any] = {}
        self.sizes: dict[str, int] = {}  # bytes of what was made here

    def hold(self, name: str, value: Value) -> None:
        """Keep a result. Raises ExceededError where it is one too many."""
        self.values[name] = value
        size = weight(value)
        if size:
            self.release(name)
            self.budget.hold(size)
            self.sizes[name] = size

    def release(self, name: str) -> None:
        """The value is not needed any more."""
        size = self.sizes.pop(name, 0)
        if size:
            self.budget.release(size)

    def get(self, name: str) -> Value:
        """The value of a name. Raises LookupError for one that nothing has made."""
        frame: RunningGraph | None = self
        while frame is not None:
            if name in frame.values:
                found = frame.values[name]
                if isinstance(found, Constant):
                    return found.value(self.budget)
                result: Value = found
                return result
            frame = frame.outer
        raise LookupError(name)


@dataclass(slots=True)
class Program:
    """The steps of a graph, function or node."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, Constant]
    steps: list[Step]
    captures: frozenset[str]

    def run(
        self,
        feed: Mapping[str, Value],
        outputs: Sequence[str],
        budget: Budget,
        outer: RunningGraph | None = None,
        references: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
        depth: int = 0,
    ) -> list[Value]:
        """The values of `outputs`. Raises EvaluationError, which names the node, ExternalDataError for a data file."""
        if depth > DEEPEST:
            raise MisuseError(f"functions and graphs are inside of one another more than {DEEPEST} levels deep")
        frame = RunningGraph(outer, references or {}, budget, depth, watch)
        frame.values.update(self.constants)
        budget.charge(Cost(NODE))
        try:
            if outer is None:
                frame.values.update(feed)
            else:  # of a loop: what one iteration gives to the next is held nowhere else
                for name, value in feed.items():
                    frame.hold(name, value)
            self._run(frame, set(outputs))
            return [_output(frame, name) for name in outputs]
        finally:
            budget.release(sum(frame.sizes.values()))

    def _run(self, frame: RunningGraph, wanted: set[str]) -> None:
        for step in self.steps:
            try:
                results = _computed(step, frame)
                for name, result in zip(step.outputs, results, strict=False):
                    if name:
                        frame.hold(name, result)
                        if frame.watch is not None:
                            frame.watch(name, result)
            except (EvaluationError, ExternalDataError):
                raise
            except ExceededError as error:
                raise BudgetError(
                    f"{step.name} is past the budget: {error}. Give the run more with --budget (budget= in Python)"
                ) from None
            except _CAUSES as error:
                raise EvaluationError(_failure(step, frame, error)) from error
            for name in step.done:
                if name not in wanted:
                    frame.values.pop(name, None)
                    frame.release(name)


def _output(frame: RunningGraph, name: str) -> Value:
    try:
        return frame.get(name)
    except LookupError:
        raise EvaluationError(f"no node makes the output {name!r}; the graph is not complete") from None
    except (ExceededError, MemoryError) as error:
        cause = str(error) if isinstance(error, ExceededError) else _NO_MEMORY
        raise BudgetError(f"the tensor {name!r} of the file cannot be an output: {cause}; see --budget") from None


def _computed(step: Step, frame: RunningGraph) -> Sequence[Value]:
    """The values of the node's outputs."""
    values = frame.values
    inputs: list[Any] = []
    codes: list[int] = []
    for name in step.inputs:
        if not name:
            inputs.append(None)
            codes.append(0)
            continue
        found = values.get(name)
        if found is None or isinstance(found, Constant):
            try:
                found = frame.get(name)
            except LookupError:
                why = f"nothing makes its input {name!r} before it; order the nodes topologically"
                raise MisuseError(why) from None
        if isinstance(found, Typed):
            inputs.append(found.array)
            codes.append(found.dtype)
        else:
            inputs.append(found)
            codes.append(code_of(found))
    attributes = step.attributes
    if step.references:
        held = frame.references
        attributes = {**attributes, **{name: held[other] for name, other in step.references if other in held}}
    if step.function is not None:
        return _called(step, step.function, attributes, inputs, codes, frame)
    if step.custom is not None:
        frame.budget.charge(Cost(NODE))
        return [typed(item, 0) for item in step.custom(attributes, inputs, frame)]
    return _of_row(step, attributes, inputs, codes, frame)


def _of_row(
    step: Step, attributes: Mapping[str, Any], inputs: list[Any], codes: list[int], frame: RunningGraph
) -> Sequence[Value]:
    assert step.schema is not None and step.row is not None and step.cost is not None

    def body(graph: GraphProto, given: Sequence[Value]) -> list[Value]:
        program = step.bodies.get(id(graph))
        if program is None:
            raise MisuseError("a graph that is passed through an attribute of a function is not one of this node")
        feed = dict(zip(program.inputs, given, strict=False))
        return program.run(feed, program.outputs, frame.budget, frame, frame.references, depth=frame.depth + 1)

    budget = frame.budget
    named = [bool(name) for name in step.outputs]
    call = Call(step.schema, attributes, codes, named, body if step.bodies else None, budget)
    while inputs and inputs[-1] is None:
        inputs.pop()
    cost = step.cost(call, *inputs)
    budget.charge(Cost(NODE + cost.work, cost.results, cost.scratch))
    try:
        results = step.row(call, *inputs)
    finally:
        budget.release(call.kept)
    if not isinstance(results, tuple):
        results = (results,)
    settle = []
    for place, result in enumerate(results[: len(step.outputs)]):
        if isinstance(result, Typed):
            settle.append(typed(_as(result), result.dtype))
            continue
        if result is None or isinstance(result, (list, dict)) or not hasattr(result, "dtype"):
            settle.append(result)
            continue
        told = step.types[place] if place < len(step.types) else 0
        code = told if isinstance(told, int) else next((codes[at] for at in told if at < len(codes) and codes[at]), 0)
        settle.append(typed(settled(result, code), code) if code else _array(result))
    if len(settle) < len([name for name in step.outputs if name]):
        raise MisuseError(f"{step.node.op_type} has no more than {len(settle)} outputs here")
    return settle


def _as(result: Typed) -> Any:
    array = np.asarray(result.array)
    row = DTYPES[result.dtype]
    return array if array.dtype == row.numpy or not row.bits else array.astype(row.numpy)


def _array(result: Any) -> Any:
    return np.asarray(result)


def _called(
    step: Step,
    program: Program,
    attributes: Mapping[str, Any],
    inputs: list[Any],
    codes: list[int],
    frame: RunningGraph,
) -> Sequence[Value]:
    feed = {}
    for place, name in enumerate(program.inputs):
        if place < len(inputs):
            feed[name] = typed(inputs[place], codes[place])
        else:
            feed[name] = None
    known = ChainMap(dict(attributes), step.defaults)
    return program.run(feed, program.outputs, frame.budget, None, known, depth=frame.depth + 1)


def _failure(step: Step, frame: RunningGraph, error: Exception) -> str:
    seen = []
    for name in step.inputs:
        try:
            seen.append(described(frame.get(name)) if name else "none")
        except (LookupError, ValueError, OSError):
            seen.append("unknown")
    if isinstance(error, MemoryError):
        return f"{step.name} cannot be computed: {_NO_MEMORY}. Its inputs are {', '.join(seen) or 'none'}"
    if isinstance(error, RecursionError):
        cause = "it is nested more deeply than Python can follow"
    else:
        cause = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return (
        f"{step.name} cannot be computed: {cause}. Its inputs are {', '.join(seen) or 'none'}; "
        f"compare them with the specification of {step.node.op_type}"
    )


_NO_MEMORY = "the system has not enough memory for it; run smaller inputs, or on a machine with more"


class Linker:
    """Makes programs. `missing` collects the operators that nothing computes, with a node each."""

    def __init__(
        self,
        functions: Mapping[tuple[str, str, str], FunctionProto],
        custom: Mapping[tuple[str, str], Callable[[NodeProto, Mapping[str, int]], Custom]],
    ) -> None:
        self.functions = functions
        self.custom = custom
        self.missing: dict[str, str] = {}
        self._depth = 0
        self._linked: dict[int, Program | None] = {}
        self._defaults: dict[int, dict[str, Any]] = {}

    def graph(self, graph: GraphProto, opsets: Mapping[str, int]) -> Program:
        """The program of a graph."""
        constants = {tensor.name or "": Constant(tensor) for tensor in graph.initializer}
        for sparse in graph.sparse_initializer:
            constants[(sparse.values.name if sparse.values is not None else None) or ""] = Constant(sparse)
        names = [item.name or "" for item in graph.input]
        return self.program(names, [item.name or "" for item in graph.output], constants, graph.node, opsets)

    def function(self, function: FunctionProto, opsets: Mapping[str, int]) -> Program:
        """The program of a function, one for all its calls. `opsets` serve where it imports none."""
        known = self._linked.get(id(function))
        if known is not None:
            return known
        if id(function) in self._linked:
            raise EvaluationError(f"the function {function.domain}.{function.name} calls itself, which ONNX forbids")
        self._linked[id(function)] = None
        own = {operators.canonical(item.domain or ""): item.version or 0 for item in function.opset_import}
        made = self.program(function.input, function.output, {}, function.node, own or opsets)
        self._linked[id(function)] = made
        return made

    def _defaults_of(self, function: FunctionProto) -> dict[str, Any]:
        """The values of attributes that calls may leave out, once for all calls."""
        found = self._defaults.get(id(function))
        if found is None:
            found = {item.name or "": get_attribute_value(item) for item in function.attribute_proto}
            self._defaults[id(function)] = found
        return found

    def program(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        constants: dict[str, Constant],
        nodes: Iterable[NodeProto],
        opsets: Mapping[str, int],
    ) -> Program:
        """The program of some nodes. Raises EvaluationError for what is nested too deeply."""
        if self._depth > DEEPEST:
            raise EvaluationError(
                f"functions and graphs are inside of one another more than {DEEPEST} levels deep; inline the functions"
            )
        self._depth += 1
        steps = [self.step(node, opsets) for node in nodes]
        self._depth -= 1
        here = {*inputs, *constants}
        captures: set[str] = set()
        used: list[set[str]] = []
        for step in steps:
            names = {name for name in step.inputs if name}
            names.update(*[body.captures for body in step.bodies.values()])
            used.append(names)
            captures |= names - here
            here.update(name for name in step.outputs if name)
        captures.update(name for name in outputs if name not in here)
        seen = set(outputs)
        for step, names in zip(reversed(steps), reversed(used), strict=True):
            step.done = tuple((names | {name for name in step.outputs if name}) - seen)
            seen |= names
        return Program(tuple(inputs), tuple(outputs), constants, steps, frozenset(captures))

    def step(self, node: NodeProto, opsets: Mapping[str, int]) -> Step:
        """The step of a node; what nothing computes is noted."""
        attributes, references = _attributes(node.attribute)
        step = Step(node, tuple(node.input), tuple(node.output), attributes, references, opsets)
        domain, name = node.domain or "", node.op_type or ""
        function = self.functions.get(callee(node))
        if function is None:
            for value in attributes.values():
                for graph in value if isinstance(value, list) else [value]:
                    if isinstance(graph, GraphProto):
                        step.bodies[id(graph)] = self.graph(graph, opsets)
        domain = operators.canonical(domain)
        custom = self.custom.get((domain, name))
        if function is not None:
            step.function = self.function(function, opsets)
            step.defaults = self._defaults_of(function)
        elif custom is not None:
            step.custom = custom(node, opsets)
        elif domain not in opsets:
            why = f"{step.name}, whose domain the model does not import"
            self.missing.setdefault(f"{domain or 'ai.onnx'}.{name}", why)
        else:
            step.schema = operators.schema(name, opsets[domain], domain)
            step.row = table().get((domain, name))
            step.cost = cost_of(domain, name) if step.row is not None else None
            if step.row is not None and domain == MICROSOFT:
                step.schema = OpSchema(name, domain, 1, False, (), (), {}, {}, 0, UNBOUNDED, 0, UNBOUNDED, False)
            if step.schema is None or step.row is None:
                self.missing.setdefault(f"{domain or 'ai.onnx'}.{name}", f"{step.name} at opset {opsets[domain]}")
            else:
                step.types = _types(step.schema, len(step.inputs), len(step.outputs))
        return step


def _attributes(given: Sequence[AttributeProto]) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """The attributes with values, and those that name an attribute of the function around the node."""
    references = tuple((item.name or "", item.ref_attr_name) for item in given if item.ref_attr_name)
    return {item.name or "": get_attribute_value(item) for item in given if not item.ref_attr_name}, references


def _types(schema: OpSchema, inputs: int, outputs: int) -> tuple[int | tuple[int, ...], ...]:
    """For each output the code of its type, the places of inputs of the same type, or 0 where nothing tells it."""
    found: list[int | tuple[int, ...]] = []
    for place in range(outputs):
        formal = schema.outputs[min(place, len(schema.outputs) - 1)] if schema.outputs else None
        if formal is None or not formal.homogeneous:
            found.append(0)
            continue
        if formal.type not in schema.constraints:
            found.append(_CODES.get(formal.type, 0))
            continue
        allowed = schema.constraints[formal.type]
        if len(allowed) == 1:
            found.append(_CODES.get(next(iter(allowed)), 0))
            continue
        places = []
        for at in range(inputs):
            taken = schema.inputs[min(at, len(schema.inputs) - 1)] if schema.inputs else None
            if taken is not None and taken.type == formal.type and taken.homogeneous:
                places.append(at)
        found.append(tuple(places) or 0)
    return tuple(found)
