"""Random graphs out of a stream of choices, with what real ones have.

Strategy: a graph grows node by node. Each node is run by our evaluator on the values that its inputs have, at two sizes
of the dynamic axis `n`, and one that does not run is left out again. So no row of `operators` knows shapes, and every
graph runs. What is exact is followed: a value is rough once its operator rounds, and rough values are decided on by no
operator, so that a tool that rounds in another order changes no integer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import proto_schema as ps
from fuzz.build import Choices
from fuzz.harness import Violation
from proto_schema import operators
from proto_schema.graphs.names import bodies, free_names
from proto_schema.reference import EvaluationError, ReferenceEvaluator, UnsupportedOperatorError
from proto_schema.tensors.dtypes import DTYPES

SIZES = (2, 5)  # of the axis n
LARGEST = 2000.0  # of a number: float16 must have room for what is computed of it
MOST = 4000  # elements
LARGE = 8  # of so many graphs one is large, and takes three times as long; most faults need few nodes
OPSETS = (13, 15, 17, 18, 20, 21, 23)
FLOATS = ("float32", "float64", "float16")
CODES = {np.dtype(row.numpy): code for code, row in DTYPES.items() if row.native and row.bits}
NAMES = {dtype: str(dtype) for dtype in CODES}
DOMAIN = "my.functions"
Array = Any


@dataclass(frozen=True)
class Value:
    """One value: what it is at each of SIZES, and whether all that led to it is exact."""

    name: str
    arrays: tuple[Array, ...]
    exact: bool = True

    @property
    def dtype(self) -> str:
        return NAMES[self.arrays[0].dtype]

    @property
    def rank(self) -> int:
        return int(self.arrays[0].ndim)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


@dataclass
class Function:
    """A function of the model, and the value that its first input had when it was made."""

    proto: ps.FunctionProto
    exact: bool


@dataclass
class Builder:
    """A graph, a body, or a function that grows."""

    choices: Choices
    opset: int
    prefix: str = "v"
    outer: Builder | None = None
    initializers_allowed: bool = True
    is_function: bool = False
    functions: list[Function] = field(default_factory=list)
    nodes: list[ps.NodeProto] = field(default_factory=list)
    initializers: list[ps.TensorProto] = field(default_factory=list)
    sparse: list[ps.SparseTensorProto] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    constants: list[Value] = field(default_factory=list)
    count: int = 0

    # What is there ----------------------------------------------------------------------------------------------------

    def visible(self) -> Iterator[Value]:
        """The values that a node may take: of this graph, then those around it."""
        yield from reversed(self.values)
        if self.outer is not None:
            yield from self.outer.visible()

    def pick(self, dtypes: Sequence[str] | None = None, rank: int | None = None, exact: bool = False) -> Value | None:
        """One of the values, the newest more often; None where there is none of the kind."""
        found = [
            value
            for value in self.visible()
            if (dtypes is None or value.dtype in dtypes)
            and (rank is None or value.rank == rank)
            and (value.exact or not exact)
        ]
        if not found:
            return None
        at = min(self.choices.below(len(found[:16])), self.choices.below(len(found[:16])))
        return found[at]

    def name(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    @property
    def in_function(self) -> bool:
        """Whether this is the body of a function, or within one."""
        return self.is_function or (self.outer is not None and self.outer.in_function)

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else 1 + self.outer.depth

    # What comes in ----------------------------------------------------------------------------------------------------

    def constant(self, array: Array, *, shared: bool = True) -> str:
        """A tensor of the file, or the result of a Constant; perhaps one that is there already."""
        array = np.asarray(array)
        for known in self.constants if shared and self.choices.below(2) else ():
            same = known.arrays[0]
            if same.dtype == array.dtype and same.shape == array.shape and same.tobytes() == array.tobytes():
                return known.name
        name = self.name()
        self.constants.append(Value(name, (array,) * len(SIZES)))
        if array.size and array.ndim and array.dtype.kind in "fi" and not self.choices.below(12):
            self._sparse(array, name)
            return name
        tensor = ps.numpy_helper.from_array(array, name)
        if self.initializers_allowed and self.choices.below(4):
            self.initializers.append(tensor)
        else:
            self.nodes.append(ps.helper.make_node("Constant", [], [name], value=tensor))
        return name

    def _sparse(self, array: Array, name: str) -> None:
        """A tensor of which only what is not zero is stored, each with its place among all or on each axis."""
        kept = (array != 0) | np.signbit(array)
        places = np.flatnonzero(kept) if self.choices.below(2) or array.ndim == 1 else np.argwhere(kept)
        stored = ps.SparseTensorProto(
            values=ps.numpy_helper.from_array(array[kept], name),
            indices=ps.numpy_helper.from_array(places.astype(np.int64)),
            dims=list(array.shape),
        )
        if self.initializers_allowed and self.choices.below(4):
            self.sparse.append(stored)
            return
        assert stored.values is not None
        stored.values.name = None
        self.nodes.append(ps.helper.make_node("Constant", [], [name], sparse_value=stored))

    def numbers(self, shape: Sequence[int], dtype: str = "float32", most: int = 8) -> Array:
        """Numbers on a lattice, which small sums and products keep exactly; zeros of both signs among them."""
        count = int(np.prod(shape, dtype=np.int64))
        raw = np.random.default_rng(self.choices.below(256)).integers(-most, most + 1, count)
        if dtype in FLOATS:
            found = (raw / 4).astype(dtype)
            found[::4] = 0.0
            found[::8] = -0.0
            return found.reshape(shape)
        if dtype == "bool":
            return (raw > 0).reshape(shape)
        return (np.abs(raw) if dtype.startswith("u") else raw).astype(dtype).reshape(shape)

    # Nodes ------------------------------------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        inputs: Sequence[str | Value | None],
        outputs: int | Sequence[bool] = 1,
        *,
        rough: bool = False,
        domain: str = "",
        overload: str = "",
        refer: dict[str, str] | None = None,
        of_tensor: bool = True,
        **attributes: Any,
    ) -> Value | None:
        """The first result of a new node; None where the node does not run on these values, and is left out.

        An input of None is a value that was not found; one that the node leaves out is "". `outputs` says how many, or
        which of them have a name. `refer`: attributes that the function's own give. Not `of_tensor`: what looks like a
        tensor here is an optional one, and only who made it takes it.
        """
        if any(item is None for item in inputs):
            return None
        names = [item.name if isinstance(item, Value) else item or "" for item in inputs]
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        made = [self.name() if named else "" for named in wanted]
        node = ps.helper.make_node(op, names, made, domain=domain or None, **attributes)
        node.overload = overload or None
        known = {value.name: value for value in (*self.visible(), *self._constants())}
        known.update((item.name, item) for item in inputs if isinstance(item, Value))
        taken = sorted(_free(node) & known.keys())
        results = self._run(node, {name: known[name].arrays for name in taken})
        if results is None:
            return None
        exact = not rough and all(known[name].exact for name in taken)
        for item in node.attribute:
            if refer and item.name in refer:
                item.f = None
                item.ref_attr_name = refer[item.name]
        self.nodes.append(node)
        places = [name for name in made if name]
        news = [Value(name, tuple(row[at] for row in results), exact) for at, name in enumerate(places)]
        self.values += [value for value in news if of_tensor and isinstance(value.arrays[0], np.ndarray)]
        return news[0]

    def _constants(self) -> Iterator[Value]:
        yield from self.constants
        if self.outer is not None:
            yield from self.outer._constants()

    def _run(self, node: ps.NodeProto, given: Mapping[str, Sequence[Array]]) -> list[list[Array]] | None:
        """What the node makes at each of SIZES; None where it does not run, or makes something unusual."""
        graph = ps.GraphProto(
            name="one",
            node=[node],
            input=[ps.ValueInfoProto(name=name) for name in given],
            output=[ps.ValueInfoProto(name=name) for name in node.output if name],
        )
        functions = [item.proto for item in self.functions]
        found: list[list[Array]] = []
        try:
            evaluator = ReferenceEvaluator(graph, {"": self.opset, DOMAIN: 1}, functions)
            for at in range(len(SIZES)):
                found.append(evaluator.run(None, {name: arrays[at] for name, arrays in given.items()}))
                if not all(map(_usual, found[at])):
                    return None
        except (EvaluationError, UnsupportedOperatorError) as error:
            if isinstance(error.__cause__, (TypeError, AttributeError)):  # the node is right, and a row is not
                raise Violation(f"evaluator: {node.op_type}: {error.__cause__}") from error
            return None
        return found


def _usual(array: Any) -> bool:
    if isinstance(array, list):
        return all(map(_usual, array))
    if not isinstance(array, np.ndarray) or array.dtype not in CODES or array.size > MOST or array.ndim > 6:
        return False
    if array.dtype.kind not in "fiu" or not array.size:
        return True
    return bool(array.max() < LARGEST and array.min() > -LARGEST)  # not so of a NaN


def _free(node: ps.NodeProto) -> set[str]:
    return set(free_names(node))


# Whole models ---------------------------------------------------------------------------------------------------------


@dataclass
class Made:
    """A model, its inputs at each of SIZES, and which outputs are exact."""

    model: ps.ModelProto
    feeds: list[dict[str, Array]]
    exact: dict[str, bool]
    values: dict[str, Value]

    @property
    def sparse(self) -> bool:
        """Whether tensors of the file are sparse: to inference, as to onnx's, these are of a type that few nodes take.

        ONNX Runtime and the evaluator take them as the tensors that they stand for.
        """
        graph = self.model.graph or ps.GraphProto()
        return _sparse(graph) or any(_sparse_inside(function.node) for function in self.model.functions)


def _sparse(graph: ps.GraphProto) -> bool:
    return bool(graph.sparse_initializer) or _sparse_inside(graph.node)


def _sparse_inside(nodes: Iterable[ps.NodeProto]) -> bool:
    return any(_sparse(body) for node in nodes for body in bodies(node))


def make(choices: Choices) -> Made | None:
    """A random model; None where nothing came of the choices."""
    from fuzz.meaning.operators import INSIDE, ROWS, grow

    opset = choices.one_of(OPSETS)
    functions: list[Function] = []
    for number in range(max(0, choices.below(8) - 4)):  # most have none: a function costs as much as the rest
        made = _function(choices, opset, number, functions)
        functions += [made] if made is not None else []
    main = Builder(choices, opset, functions=functions)
    inputs: list[Value] = []
    for number, dtype in enumerate(
        [
            "float32",
            *(
                ("float32", "int64", "bool", *FLOATS, "int32", "uint8")[choices.below(8)]
                for _ in range(choices.below(4))
            ),
        ]
    ):
        sizes = [choices.one_of(("n", 2, 1, 3, "n", 4)) for _ in range((2, 3, 4, 1, 0)[choices.below(5)])]
        shapes = [[n if size == "n" else size for size in sizes] for n in SIZES]
        seed = choices.below(200)
        arrays = [
            main.numbers(shape, dtype) if not at else np.roll(main.numbers(shape, dtype), seed)
            for at, shape in enumerate(shapes)
        ]
        inputs.append(Value(f"x{number}", tuple(arrays)))
    main.values += inputs
    for _ in range(3 + choices.below(14) if not choices.below(LARGE) else 2 + choices.below(5)):
        grow(main, ROWS if choices.below(2) else INSIDE)
    made_values = [value for value in main.values if value not in inputs]
    if not made_values:
        return None
    outputs = {made_values[-1].name: made_values[-1]}
    if choices.below(2):  # nothing is left over; otherwise much of the graph is needed by nobody
        read = {name for node in main.nodes for name in _free(node)}
        outputs.update((value.name, value) for value in made_values if value.name not in read)
    for _ in range(choices.below(4)):
        picked = choices.one_of(made_values[-200:])
        outputs[picked.name] = picked
    results = [declared(value, choices) for value in outputs.values()]
    infos = [declared(value, choices) for value in made_values if value.name not in outputs and not choices.below(3)]
    graph = ps.GraphProto(
        name="g",
        node=main.nodes,
        input=[declared(value, choices, of_input=True) for value in inputs],
        output=results,
        initializer=main.initializers,
        sparse_initializer=main.sparse,
        value_info=infos,
    )
    if not choices.below(6):  # an input with a default, which is not what is fed
        last = inputs[-1]
        if not any(array.shape != last.arrays[0].shape for array in last.arrays):
            graph.initializer.append(ps.numpy_helper.from_array(np.zeros_like(last.arrays[0]), last.name))
    if not choices.below(3):  # nothing reads it
        graph.initializer.append(ps.numpy_helper.from_array(np.arange(3.0), "unused"))
    imports = [ps.helper.make_opsetid("", opset)]
    if functions:
        imports.append(ps.helper.make_opsetid(DOMAIN, 1))
    model = ps.ModelProto(
        ir_version=(8, 9, 10)[choices.below(3)],
        opset_import=imports,
        graph=graph,
        functions=[f.proto for f in functions],
    )
    if opset >= 21:
        model.ir_version = 10
    feeds = [{value.name: value.arrays[at] for value in inputs} for at in range(len(SIZES))]
    exact = {name: value.exact for name, value in outputs.items()}
    return Made(model, feeds, exact, {value.name: value for value in (*inputs, *made_values)})


def _function(choices: Choices, opset: int, number: int, others: list[Function]) -> Function | None:
    """A function of one tensor, with an attribute; it may call those before it.

    It may import another opset, in which its operators are the same, and may be an overload of the one before it.
    """
    from fuzz.meaning.operators import INSIDE, grow

    own = choices.one_of(OPSETS) if not choices.below(3) else opset
    body = Builder(choices, own, "v", initializers_allowed=False, is_function=True, functions=list(others))
    example = Value("x0", (body.numbers((2, 3)), body.numbers((5, 3))))
    body.values.append(example)
    for _ in range(1 + choices.below(4)):
        grow(body, INSIDE)
    alpha = body.add("LeakyRelu", [body.pick(FLOATS)], refer={"alpha": "alpha"}, alpha=0.5)
    if alpha is None or not all(_same(node, own, opset) for node in body.nodes):
        return None
    if not all(
        _same(node, _opset(function), own) for function in _called(body.nodes, others) for node in function.node
    ):
        return None
    overloaded = bool(others and opset >= 21 and choices.below(2))
    proto = ps.FunctionProto(
        name=others[-1].proto.name if overloaded else f"F{number}",
        overload=f"o{number}" if overloaded else None,
        domain=DOMAIN,
        input=["x0"],
        output=[alpha.name],
        node=body.nodes,
        opset_import=[ps.helper.make_opsetid("", own), ps.helper.make_opsetid(DOMAIN, 1)],
        attribute_proto=[ps.helper.make_attribute("alpha", 0.5)],
    )
    return Function(proto, alpha.exact)


def _opset(function: ps.FunctionProto) -> int:
    return next(item.version or 0 for item in function.opset_import if not item.domain)


def _called(nodes: list[ps.NodeProto], others: list[Function]) -> list[ps.FunctionProto]:
    """The functions that nodes call, and those that these call: with any overload of a name."""
    found = []
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        waiting.extend(inner for graph in bodies(node) for inner in graph.node)
        for other in others if node.domain == DOMAIN else ():
            if other.proto.name == node.op_type and other.proto not in found:
                found.append(other.proto)
                waiting.extend(other.proto.node)
    return found


def _same(node: ps.NodeProto, one: int, other: int) -> bool:
    """Whether the operators of a node are the same at both opsets, which a function needs whose opset is another."""
    schemas = [operators.schema(node.op_type or "", opset, "") for opset in (one, other)]
    if not node.domain and (
        None in schemas or len({schema.since_version for schema in schemas if schema is not None}) > 1
    ):
        return False
    return all(_same(inner, one, other) for graph in bodies(node) for inner in graph.node)


def declared(value: Value, choices: Choices, of_input: bool = False) -> ps.ValueInfoProto:
    """What the file says of a value: numbers, n, or nothing where the size is neither; now and then less."""
    if len({array.ndim for array in value.arrays}) > 1:  # a Squeeze of what has one element at some sizes
        return ps.helper.make_tensor_value_info(value.name, CODES[value.arrays[0].dtype], None)
    sizes: list[int | str | None] = []
    for row in zip(*(array.shape for array in value.arrays), strict=True):
        size: int | str | None = row[0] if len(set(row)) == 1 else "n" if row == SIZES else None
        sizes.append(None if not choices.below(12) and not of_input else size)
    kind = ps.helper.make_tensor_value_info(value.name, CODES[value.arrays[0].dtype], sizes)
    for dim in kind.type.tensor_type.shape.dim:
        if dim.dim_value is None and not dim.dim_param and not choices.below(2):
            dim.dim_value = -1
    return kind
