"""`op`, what rules write ONNX with: `op.Clip(x, min=0, max=6)` makes the node that this opset has.

An `op` is a frozen value of three parts (`context`): what the whole lowering shares, the body that is being
written, and the call that is being lowered.  A rule that calls a rule hands on its own, or one that it derives:
`op.giving(results)` for a call of other results, `op.subgraph()` for the body of an If or Loop.

The operator history is data (`proto_schema.operators`); the emitter binds a call to the version in force
(`binding`):

- Python numbers and lists become constants of the type that the other inputs bind;
- every node is checked against the operator's type constraints when it is made, and its output types follow from them;
- a dtype without a kernel in the target's runtime is computed in another one, or by other operators (`running`);
- arithmetic on small constants is done at once (`folding`), so a static model carries no shape arithmetic;
- what this opset's version cannot say is written by older operators where the table of older forms has a way.

Rules never look at the opset's number: they ask `op.has("Col2Im")` where no older form is known.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from proto_schema import operators
from proto_schema.inference.site import Scope
from proto_schema.legalization import Row
from proto_schema.legalization.operators import RefusedError
from proto_schema.operators import changes
from proto_schema.operators.runtimes import Release
from proto_schema.sizes import Size
from proto_schema.wire.records import dataclass
from purexport import dtypes
from purexport.aten.graph import Source, TensorType, Type
from purexport.errors import ExportError, OpsetError
from purexport.graph.ir import Graph, Node, Value
from purexport.lowering.core import binding, folding, inferring, running, versions
from purexport.lowering.core.context import Body, Builder, CallSite


@dataclass(frozen=True, eq=False, repr=False)
class Emitter:
    """Writes nodes into one body at one opset, for the call at `site`.  Assigning to it raises."""

    # written out, because with slots=True assigning to a property raises a TypeError that says nothing (Python 3.11)
    __slots__ = ("body", "builder", "site")

    builder: Builder
    body: Body
    site: CallSite

    @classmethod
    def of(
        cls,
        graph: Graph,
        opset: int,
        *,
        folds: bool = True,
        scope: Scope | None = None,
        older: Mapping[str, Sequence[Row]] | None = None,
        release: Release | None = None,
        of_runtime: bool = False,
    ) -> Emitter:
        """The `op` that begins a lowering into `graph`, at no call yet.

        Without `folds`, constants that may be weights are not computed with, only what sizes need.  `scope` knows the
        sizes that can change, `older` the operators that older ones can write, `release` the kernels of the runtime
        that the file is for.  With `of_runtime` the file may have operators of ONNX Runtime's domain com.microsoft.
        """
        known = scope or Scope()
        builder = Builder(
            opset, graph.inputs, folds, scope=known, older=older or {}, release=release, of_runtime=of_runtime
        )
        return cls(builder, Body(graph), CallSite())

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)
        return functools.partial(self.emit, op_type)

    # -- deriving

    def at(self, site: CallSite) -> Emitter:
        """The `op` of another call, which writes into the same body."""
        return Emitter(self.builder, self.body, site)

    def giving(self, results: Iterable[TensorType | None]) -> Emitter:
        """The `op` of this call as if torch gave it results of other types."""
        return self.at(replace(self.site, results=tuple(results)))

    def subgraph(self) -> Emitter:
        """The `op` that writes the body of an If or Loop, for this call; `op.subgraph().graph` is the attribute.

        The body sees outer values.  Sizes read inside are not seen outside, and what is learnt of sizes inside does not
        hold outside, because the body may not run.
        """
        builder = replace(self.builder, scope=self.builder.scope.inside())
        return Emitter(builder, self.body.inside(), self.site)

    # -- the call, the body and the opset

    @property
    def opset(self) -> int:
        """The opset of the file.  Rules ask `has` instead."""
        return self.builder.opset

    @property
    def of_runtime(self) -> bool:
        """Whether operators of ONNX Runtime's domain com.microsoft may be written."""
        return self.builder.of_runtime

    @property
    def graph(self) -> Graph:
        """The graph that is being written: the model's, or that of a body."""
        return self.body.graph

    @property
    def source(self) -> Source:
        """Where the call comes from."""
        return self.site.source

    @property
    def target(self) -> str:
        """The ATen name of the call with its overload."""
        return self.site.target

    @property
    def results(self) -> tuple[TensorType | None, ...]:
        """The types that torch gives the results of the call; None for what is no tensor."""
        return self.site.results

    @property
    def count(self) -> int | None:
        """How many results the call has in the example, where torch gives a list; None where that is not known."""
        return self.site.count

    @property
    def operands(self) -> Mapping[str, Type]:
        """torch's types of the call's arguments by name, with the strides, where these are values."""
        return self.site.operands

    def remark(self, text: str) -> None:
        """What the report shall say of the call that is being lowered."""
        self.builder.remarks.append(f"{self.target} at {self.source}: {text}")

    def warn(self, text: str) -> None:
        """What the user shall be warned of, of the call that is being lowered."""
        self.builder.warnings.append(f"{self.target} at {self.source}: {text}")

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
        """True when this opset's version of the operator takes `dtype` as its input number `argument`."""
        return versions.takes(operators.schema(op_type, self.opset), dtype, argument)

    def newest_takes(self, op_type: str, dtype: int | None, argument: int = 0) -> bool:
        """True when the newest version of the operator takes `dtype` as its input number `argument`."""
        return versions.takes(operators.schema(op_type, operators.newest_opset()), dtype, argument)

    def runs(self, op_type: str, dtype: int | None, argument: int = 0) -> bool:
        """True when it `takes` the dtype, and the runtime of the target has a kernel for it."""
        schema = operators.schema(op_type, self.opset)
        if schema is None or dtype is None:
            return False
        return running.runs(self.builder.release, schema, ((schema.inputs[argument].type, dtype),))

    def takes_sequences(self, op_type: str) -> bool:
        """True when this opset's version of the operator takes or gives sequences."""
        return versions.takes_sequences(operators.schema(op_type, self.opset))

    def means_today(self, op_type: str) -> bool:
        """False where this opset's version has the same signature as today's and computes something else."""
        return self.opset >= versions.MEANS_TODAY[op_type]

    @staticmethod
    def since_today(op_type: str) -> int:
        """The lowest opset whose version of such an operator computes what today's does."""
        return versions.MEANS_TODAY[op_type]

    @property
    def result(self) -> TensorType:
        """The type that torch gives the (first) result of the call being lowered."""
        type_ = self.results[0]
        if type_ is None:
            raise ExportError(f"the result of the call at {self.source} is not a tensor", code="rule-fault")
        return type_

    @property
    def result_dtype(self) -> int:
        """`result`'s dtype as an ONNX code."""
        return dtypes.onnx_code(self.result.dtype)

    # -- constants

    def const(self, value: Any, dtype: int | None = None, name: str = "") -> Value:
        """A constant of a number, nested list, array or tensor, exact in `dtype`.

        Numbers are int64 where no dtype is said; an array has its own, and a tensor always.
        """
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(value)
            value = value if dtype is None else value.to(dtypes.torch_dtype(dtype))
        kind = dtypes.torch_dtype(dtypes.INT64 if dtype is None else dtype)
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=kind)
        return Value(dtypes.onnx_code(tensor.dtype), tuple(tensor.shape), const=tensor, name=name)

    def like(self, value: Any, other: Value) -> Value:
        """A constant in `other`'s dtype; a value is cast to it."""
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
        """`value` in another dtype; itself when it is in that dtype already."""
        if dtype is None or value.dtype == dtype:
            return value
        # torch's own way with numbers that are too large for a float8 type
        saturate = 0 if dtype in dtypes.OVERFLOWING else None
        if dtype == dtypes.FLOAT8E5M2 and value.dtype in (dtypes.FLOAT, dtypes.FLOAT16):
            # ONNX Runtime (1.31) makes NaN of what rounds up to infinity
            value = self.Where(self.GreaterOrEqual(self.Abs(value), 61440.0), self.Mul(value, math.inf), value)
        return self.Cast(value, to=dtype, saturate=saturate)

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
        dims = self.body.dims
        if key not in dims:
            dims[key] = self.Gather(self.shape(value), self.const(axis), axis=0)
        return dims[key]

    def size(self, expression: Size | None) -> Value | None:
        """The value of a size, read from where it was read before or from a graph input; else None."""
        if expression is None:
            return None
        dims = self.body.dims
        if expression not in dims:
            for item in self.builder.inputs:
                if item.shape is not None and expression in item.shape:
                    self.dim(item, item.shape.index(expression))
                    break
        return dims.get(expression)

    @staticmethod
    def of_shape(value: Value, other: Value) -> Value:
        """The value, of which inference does not know that it has the shape of another one."""
        value.shape = other.shape
        return value

    def shape(self, value: Value) -> Value:
        """The shape as an int64 value of shape [rank]: a constant when it is static."""
        if value.is_static:
            return self.const(list(value.sizes))
        dims = self.body.dims
        if value not in dims:
            dims[value] = self.Shape(value)
        return dims[value]

    # -- nodes

    def loop(
        self, count: Value, going: Value, step: Callable[..., Sequence[Value]], carried: Sequence[Value]
    ) -> tuple[Value, ...]:
        """A Loop of at most `count` steps while `going`: `going, *carried = step(op, at, going, *carried)`."""
        number, condition = Value(dtypes.INT64, (), name="step"), Value(dtypes.BOOL, (), name="condition")
        inner = [Value(item.dtype, item.shape, name="carried") for item in carried]
        inside = self.subgraph()
        body = inside.graph
        body.inputs += [number, condition, *inner]
        results = step(inside, inside.Unsqueeze(number, [0]), condition, *inner)
        for result, was in zip(results, [condition, *carried], strict=True):
            own = result if result.node in body.nodes and result not in body.outputs else inside.Identity(result)
            own.dtype = was.dtype
            body.outputs.append(own)
        outputs = self.multi("Loop", count, going, *carried, outputs=len(carried), body=body)
        for output, was in zip(outputs, carried, strict=True):
            output.dtype = was.dtype
        return outputs

    def emit(self, op_type: str, *inputs: Any, domain: str = "", **named: Any) -> Value:
        """A node of `op_type` with one output; `op.Relu(x)` is short for `op.emit("Relu", x)`.

        Raises OpsetError when this opset cannot say it, ExportError when no version of the operator takes the types.
        """
        folded = folding.fold(op_type, inputs, named, self.builder.folds)
        if folded is not None:
            return self.const(folded)
        made = self.multi(op_type, *inputs, outputs=1, domain=domain, **named)[0]
        # an Identity is written where a value needs a name of its own
        return made if made.content is None or op_type == "Identity" else self._known_already(made)

    def _known_already(self, made: Value) -> Value:
        """A constant in place of a value whose content is numbers, or the value that has the same size already.

        The node that was just written is taken back then.
        """
        content, nodes = made.content or (), self.body.graph.nodes
        if made.dtype not in _WHOLE or not self.builder.folds or not nodes or nodes[-1] is not made.node:
            return made
        if made.is_static and all(isinstance(item, int) for item in content):
            nodes.pop()
            return self.const(torch.tensor(content, dtype=dtypes.torch_dtype(made.dtype)).reshape(made.sizes))
        if made.dtype != dtypes.INT64 or made.shape != () or not isinstance(content[0], Size):
            return made
        found = self.body.dims.setdefault(content[0], made)
        if found is not made:
            nodes.pop()
        return found

    @staticmethod
    def is_at_least(value: Value, least: int) -> bool:
        """True where no element of a whole number or size can be below `least`."""
        content = inferring.content_of(value) or (None,)
        lows = [item.low if isinstance(item, Size) else item for item in content]
        return all(isinstance(low, int) and low >= least for low in lows)

    def multi(self, op_type: str, *inputs: Any, outputs: int, domain: str = "", **named: Any) -> tuple[Value, ...]:
        """A node with several outputs: `op.multi("Split", x, outputs=2, axis=1)`.  Raises as `emit` does."""
        rows = () if domain else self.builder.older.get(op_type, ())
        before = [row for row in rows if self._is_asked_first(row, inputs[0] if inputs else None)]
        if before:
            found = self._older(before, op_type, inputs, outputs, named)
            if found is not None:
                return found
        try:
            return self._node(op_type, inputs, outputs, domain, named)
        except OpsetError:
            left = [row for row in rows if row.before > self.opset]
            found = self._older(left, op_type, inputs, outputs, named) if left else None
            if found is None:
                raise
            return found

    def _is_asked_first(self, row: Row, value: Any) -> bool:
        always = isinstance(value, Value) and value.dtype in row.of_dtypes
        return always or (row.is_asked_first and row.before > self.opset)

    def _older(
        self, rows: Sequence[Row], op_type: str, inputs: Sequence[Any], outputs: int, named: Mapping[str, Any]
    ) -> tuple[Value, ...] | None:
        """The operator written by others; None where they cannot say it.

        The form gets the arguments as the newest version has them, and its results the shapes of that version's.
        """
        newest = operators.newest_opset()
        schema = operators.schema(op_type, newest)
        assert schema is not None, op_type
        bound, attributes = binding.bind(schema, newest, inputs, named)
        if any(
            isinstance(item, Value) and item.dtype is not None and not self.takes("Cast", item.dtype)
            for item, _ in bound
        ):
            return None  # this opset computes nothing with that dtype
        given = binding.given_types(bound)
        wide = running.chosen(None, (op_type, newest), given, False)
        if wide:  # no version takes the dtype
            inputs = [self._widened(item, formal, wide) for item, formal in bound]
            found = self._older(rows, op_type, inputs, outputs, attributes)
            return found if found is None else self._as_given(found, schema, given, wide)
        types = binding.bound_types(schema, newest, bound, self.site.source)
        values = [self._constant(item, formal, types) for item, formal in bound]
        node = Node(op_type, values, [], attributes)
        node.outputs = [
            Value(binding.output_type(schema, index, types, attributes), node=node) for index in range(outputs)
        ]
        inferring.infer_outputs(node, schema, self.builder.scope)
        arguments: dict[str, Any] = {}
        for value, (_, formal) in zip(values, bound, strict=True):
            if formal.option == "variadic":
                arguments.setdefault(formal.name, []).append(value)
            elif value is not None:
                arguments[formal.name] = value
        results = self._by_rows(rows, {**arguments, **attributes}, outputs)
        if results is None:
            return None
        for result, known in zip(results, node.outputs, strict=True):
            if result.const is None:
                result.shape = known.shape
                result.content = known.content if result.content is None else result.content
        return results

    def _by_rows(self, rows: Sequence[Row], arguments: Mapping[str, Any], outputs: int) -> tuple[Value, ...] | None:
        for row in rows:
            try:
                found = row.write(self, arguments, outputs)
            except RefusedError:
                continue
            if found is not None:
                return found[:outputs]
        return None

    def _node(
        self, op_type: str, inputs: Sequence[Any], outputs: int, domain: str, named: Mapping[str, Any]
    ) -> tuple[Value, ...]:
        """The node as this opset's version has it.  Raises OpsetError where that cannot say it."""
        opset = self.builder.opset
        schema = operators.schema(op_type, opset, domain)
        if schema is None or schema.deprecated:
            wanted = [name for name, item in named.items() if item is not None]
            lowest = changes.first_version(op_type, domain, wanted)
            raise OpsetError(f"ONNX {op_type} does not exist at opset {opset}", lowest)
        bound, attributes = binding.bind(schema, opset, inputs, named)
        first = bound[0][0] if bound else None
        shape = first.shape if isinstance(first, Value) else None
        changes.from_the_front(schema, None if shape is None else len(shape), attributes)
        wide: Mapping[str, int] | None = {}
        given = binding.given_types(bound)
        if any(dtype != dtypes.FLOAT for _, dtype in given) or (op_type, None) in running.FORMS:
            adds = attributes.get("reduction", "none") not in ("none", b"none")
            wide = running.chosen(self.builder.release, (op_type, opset), given, adds) if not domain else {}
        if wide is None:
            dtype = given[0][1] if given else None
            found = running.FORMS.get((op_type, dtype)) or running.FORMS.get((op_type, None))
            if found is not None:
                several = {"outputs": outputs} if outputs > 1 else {}
                result = found(self, *inputs, **named, **several)
                return result if isinstance(result, tuple) else (result,)
            self._remark_no_kernel(op_type, given)
        bound = [(self._widened(item, formal, wide or {}), formal) for item, formal in bound] if wide else bound
        if len(bound) < schema.min_input:
            raise ExportError(
                f"ONNX {op_type} at {self.source} wants at least {schema.min_input} inputs, and got {len(bound)}; "
                "this is a mistake in a lowering rule, please report it",
                code="rule-fault",
            )
        types = binding.bound_types(schema, opset, bound, self.site.source)
        node = Node(op_type, [self._constant(item, formal, types) for item, formal in bound], [], attributes, domain)
        while node.inputs and node.inputs[-1] is None:
            node.inputs.pop()
        node.source = self.site.source
        node.outputs = [
            Value(binding.output_type(schema, index, types, attributes), node=node) for index in range(outputs)
        ]
        binding.check_output(schema, opset, node.outputs[0].dtype)
        inferring.infer_outputs(node, schema, self.builder.scope)
        self.body.graph.nodes.append(node)
        return self._as_given(node.outputs, schema, given, wide or {})

    def _as_given(
        self, found: Sequence[Value], schema: operators.OpSchema, given: running.Types, wide: Mapping[str, int]
    ) -> tuple[Value, ...]:
        """Results that were computed in wider dtypes, in those that the inputs have."""
        back, last = dict(given), len(schema.outputs) - 1
        formals = [schema.outputs[min(place, last)].type for place in range(len(found))]
        return tuple(
            self.cast(item, back[formal]) if formal in wide else item
            for item, formal in zip(found, formals, strict=True)
        )

    def _widened(self, item: Any, formal: operators.Formal, wide: Mapping[str, int]) -> Any:
        return self.cast(item, wide[formal.type]) if isinstance(item, Value) and formal.type in wide else item

    def _remark_no_kernel(self, op_type: str, given: running.Types) -> None:
        """Say that a node does not run, where the file may have it all the same."""
        release = self.builder.release
        schema = operators.schema(op_type, self.opset)
        if release is not None and schema is not None and running.runs(None, schema, given):
            names = ", ".join(dict.fromkeys(dtypes.type_string(dtype) for _, dtype in given))
            self.remark(
                f"ONNX Runtime {release.version} has no CPU kernel of {op_type} for {names}, and no other form is known"
            )

    def _constant(self, item: Any, formal: operators.Formal, types: dict[str, int]) -> Value | None:
        """An input as a value; numbers and lists take the type that the formal and the other inputs want."""
        if item is None or isinstance(item, Value):
            return item
        if isinstance(item, (list, tuple)) and any(isinstance(part, Value) for part in item):
            pieces = self.ints(item)
            return pieces if isinstance(pieces, Value) else self.const(pieces)
        dtype = dtypes.from_type_string(formal.type) or types.get(formal.type)
        if dtype is None:
            flat = torch.tensor(item)
            dtype = dtypes.FLOAT if flat.is_floating_point() else dtypes.onnx_code(flat.dtype)
        types.setdefault(formal.type, dtype)
        return self.const(item, dtype)


_WHOLE = (dtypes.INT64, dtypes.INT32, dtypes.BOOL)
