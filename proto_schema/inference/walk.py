"""Inference over the messages of a model: graphs, subgraphs and functions, in the order of the nodes.

What a graph declares of a value is compared with what its node makes, and the better known of the two is kept.  A
subgraph sees the values around it; what is learnt of sizes inside of it does not hold outside.  A function of the model
is inferred again for each of its calls, with the types of their inputs, and the body of a loop until its types settle.
Each time but the first counts against a budget; past it nothing is known of the results.  Constants are read only where
they are small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proto_schema import operators
from proto_schema.budget import INFERENCE, NODE, BudgetLike, Cost, ExceededError, budget_of
from proto_schema.errors import UnreadableDataError, bounded
from proto_schema.graphs.calls import callable_functions, callee
from proto_schema.inference import rows
from proto_schema.inference.site import ABSENT, Misfit, Scope, Site, check_inputs
from proto_schema.inference.types import (
    MOST,
    MOST_AXES,
    Content,
    MapOf,
    OptionalOf,
    SequenceOf,
    Shape,
    Sparse,
    Tensor,
    Type,
    content_of,
    followed,
    from_proto,
    says_more,
    to_proto,
)
from proto_schema.onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
)
from proto_schema.operators import OpSchema
from proto_schema.sizes import ContradictionError, Dim, Size, parse, symbol
from proto_schema.tensors.attributes import get_attribute_value
from proto_schema.tensors.dtypes import element_count

_NO_ATTRIBUTES: dict[str, Any] = {}
_DEFAULTS = 4  # since this IR version the initializer of an input is a default
DEEPEST = 100  # calls of functions inside of one another; a graph inside of a node counts as three
_GRAPH = 3


class InferenceError(ValueError):
    """A node or a declaration contradicts what is inferred.  The text names the node, `path` the place in the model."""

    code = "shapes-contradict"

    def __init__(self, text: str, *steps: str) -> None:
        """`steps` lead from the innermost message outwards, as far as the graph."""
        super().__init__(bounded(text))
        self.steps = list(steps)

    @property
    def path(self) -> str:
        """The place, such as `graph.node[3].output[0]`."""
        return ".".join(["graph", *reversed(self.steps)])


class Values:
    """Name -> type of a graph's values; a name that is not here is looked up in the graph around it."""

    __slots__ = ("outer", "types")

    def __init__(self, outer: Values | None = None) -> None:
        self.outer = outer
        self.types: dict[str, Type | None] = {}

    def get(self, name: str) -> Type | None:
        """The type of a name, None where nothing is known of it."""
        scope: Values | None = self
        while scope is not None:
            if name in scope.types:
                return scope.types[name]
            scope = scope.outer
        return None


class Walk:
    """One inference over one model.

    `strict`: an error of a node ends it; otherwise the node's outputs are unknown, and `problems` says why.
    `check`: an input of a type that its operator does not take is such an error, strict or not.
    `propagate`: the content of small integer tensors is followed.
    `defaults`: an initializer counts as the value of its input, though another one may be given.
    `budget`: of what is inferred again.
    """

    def __init__(
        self,
        model: ModelProto,
        *,
        strict: bool,
        check: bool,
        propagate: bool,
        defaults: bool = False,
        budget: BudgetLike = None,
    ) -> None:
        self.model = model
        self.strict = strict
        self.check = check
        self.propagate = propagate
        self.defaults = defaults
        self.budget = budget_of(budget, INFERENCE).fresh()
        self.level = 0  # of graphs inside of nodes, whatever functions they are in
        self.met: set[int] = set()  # lists of nodes, which the model keeps alive
        self.scope = Scope()
        self.called: dict[Any, list[Type | None]] = {}
        self.problems: list[str] = []
        self.functions = callable_functions(model.functions)
        self.opsets = _opsets(model.opset_import)
        self.names: frozenset[str] = frozenset()
        self.schemas: dict[tuple[str, int, str], OpSchema | None] = {}
        # what a row made of the same objects, which are kept so that their ids stay theirs; nothing with a fresh size
        self.inferred: dict[tuple[Any, ...], tuple[Sequence[Type | None], list[Type | None]]] = {}
        self.types: dict[Tensor, Tensor] = {}

    def run(self) -> None:
        """Infer the model's graph, and declare what was found in its `value_info` and outputs."""
        graph = self.model.graph
        if graph is None:
            return
        self.scope.taken |= _labels(self.model)
        self.names = frozenset(self.scope.taken)
        self.graph(graph, None, None, self.opsets, {}, 0)

    # -- graphs

    def graph(
        self,
        graph: GraphProto,
        outer: Values | None,
        given: Sequence[Type | None] | None,
        opsets: Mapping[str, int],
        references: Mapping[str, Any],
        depth: int,
        *,
        declare: bool = True,
    ) -> list[Type | None]:
        """The types of the graph's outputs; `given` are those of its inputs, where an operator passes them."""
        values = Values(outer)
        for place, item in enumerate(graph.input):
            known = self._type(item)
            passed = given[place] if given is not None and place < len(given) else None
            agreed = self.agreed(known, passed, f"input {item.name!r}", f"input[{place}]")
            values.types[item.name or ""] = self.shared(agreed)
        for place, tensor in enumerate(graph.initializer):
            name = tensor.name or ""
            held = self.constant(tensor)
            if name in values.types:
                # an initializer of an input is only its default; before IR 4 all initializers are inputs
                if (self.model.ir_version or 0) >= _DEFAULTS and not self.defaults:
                    held = Tensor(held.dtype, held.shape)
                step = f"initializer[{place}]"
                values.types[name] = self.agreed(values.types[name], held, f"initializer {name!r}", step)
            else:
                values.types[name] = held
        for sparse in graph.sparse_initializer:
            name = (sparse.values.name if sparse.values is not None else None) or ""
            values.types.setdefault(name, followed(Sparse(_dtype_of(sparse), tuple(sparse.dims))))
        declared = {item.name or "": item for item in (*graph.value_info, *graph.output)}
        self.nodes(graph.node, values, declared, opsets, references, depth, declare)
        found = []
        for place, item in enumerate(graph.output):
            made = values.get(item.name or "")
            type_ = self.agreed(self._type(item), made, f"output {item.name!r}", f"output[{place}]")
            found.append(type_)
            if declare:
                _declare(item, type_)
        if declare:
            self._declare_values(graph, values)
        return found

    def nodes(
        self,
        nodes: Sequence[NodeProto],
        values: Values,
        declared: Mapping[str, ValueInfoProto],
        opsets: Mapping[str, int],
        references: Mapping[str, Any],
        depth: int,
        declare: bool,
    ) -> None:
        """Add the types of the nodes' outputs to `values`."""
        types = values.types
        for index, node in enumerate(nodes):
            try:
                made = self.node(node, values, opsets, references, depth, declare)
            except InferenceError as error:  # of a graph inside of the node
                error.steps.append(f"node[{index}]")
                raise
            except Misfit as problem:
                text = f"{_named(node)}: {problem}"
                if self.strict:
                    raise InferenceError(text, f"node[{index}]") from None
                self.problems.append(text)
                made = [None] * len(node.output)
            title = ""
            for place, name in enumerate(node.output):
                if not name:
                    continue
                found = followed(made[place]) if place < len(made) else None
                said = declared.get(name)
                if said is not None:
                    title = title or _named(node)
                    what = f"{title}: output {name!r}"
                    found = self.agreed(self._type(said), found, what, f"output[{place}]", f"node[{index}]")
                types[name] = found

    def node(
        self,
        node: NodeProto,
        values: Values,
        opsets: Mapping[str, int],
        references: Mapping[str, Any],
        depth: int,
        declare: bool,
    ) -> list[Type | None]:
        """The types of the node's outputs.  Raises Misfit."""
        domain = node.domain or ""
        name = node.op_type or ""
        types = values.types
        inputs = [(types[item] if item in types else values.get(item)) if item else ABSENT for item in node.input]
        function = self.functions.get(callee(node)) if self.functions else None
        if function is not None:
            return self._call(function, node, inputs, references, depth)
        domain = operators.canonical(domain)
        schema = self.schema(name, opsets.get(domain, 0), domain)
        attributes = _attributes(node, references) if node.attribute else _NO_ATTRIBUTES
        if schema is None:
            for value in attributes.values():
                if isinstance(value, GraphProto):
                    self.graph(value, values, None, opsets, references, depth, declare=declare)
            return [None] * len(node.output)

        def body(graph: Any, given: Sequence[Type | None], last: bool, runs: bool) -> list[Type | None]:
            if depth + self.level > DEEPEST or not self.affords(graph.node):
                return [None] * len(graph.output)
            # what is learnt inside of a branch or an iteration does not hold outside of it
            equations, strict, known = self.scope.equations, self.strict, len(self.problems)
            inferred, self.inferred = self.inferred, {}
            self.scope.equations = equations.copy()
            self.strict = strict and runs
            self.level += _GRAPH
            try:
                return self.graph(graph, values, given, opsets, references, depth, declare=declare and last)
            except InferenceError as error:
                name = next((name for name, value in attributes.items() if value is graph), "")
                error.steps.append(f'attribute["{name}"].g')
                raise
            finally:
                self.level -= _GRAPH
                self.scope.equations, self.strict, self.inferred = equations, strict, inferred
                if not runs:
                    del self.problems[known:]

        key = _key(schema, inputs, attributes, len(node.output))
        known = self.inferred.get(key) if key is not None else None
        if known is not None:
            return known[1]
        site = Site(schema, inputs, attributes, len(node.output), self.scope, body)
        if self.check:
            check_inputs(site)
        count = self.scope.count
        found = rows.infer(site)
        if not self.propagate:
            found = [_without_content(item) for item in found]
        found = [self.shared(item) for item in found]
        if key is not None and count == self.scope.count:
            self.inferred[key] = (inputs, found)
        return found

    def shared(self, type_: Type | None) -> Type | None:
        """One object for equal types, so that equal nodes are inferred once."""
        if isinstance(type_, Tensor) and (type_.content is None or type_.dtype == TensorProto.INT64):
            return self.types.setdefault(type_, type_)
        return type_

    def affords(self, nodes: Sequence[NodeProto]) -> bool:
        """Whether nodes may be inferred: the first time they may, later where the budget allows it."""
        if id(nodes) not in self.met:
            self.met.add(id(nodes))
            return True
        try:
            self.budget.charge(Cost(NODE * (1 + len(nodes))))
        except ExceededError:
            return False
        return True

    def schema(self, name: str, opset: int, domain: str) -> OpSchema | None:
        """The operator's version in force."""
        key = (name, opset, domain)
        if key not in self.schemas:
            self.schemas[key] = operators.schema(name, opset, domain)
        return self.schemas[key]

    def _call(
        self,
        function: FunctionProto,
        node: NodeProto,
        inputs: Sequence[Type | None],
        references: Mapping[str, Any],
        depth: int,
    ) -> list[Type | None]:
        if depth + self.level >= DEEPEST:
            raise Misfit(f"functions call one another more than {DEEPEST} times deep")
        named = _attributes(node, references)
        known = self._key(function, inputs, named)
        if known in self.called:
            return self.called[known]
        if not self.affords(function.node):
            return [None] * len(function.output)
        fresh = self.scope.count
        given = {item.name or "": get_attribute_value(item) for item in function.attribute_proto}
        given.update(named)
        values = Values()
        for place, name in enumerate(function.input):
            passed = inputs[place] if place < len(inputs) else ABSENT
            values.types[name] = None if passed is ABSENT else passed
        opsets = _opsets(function.opset_import) or self.opsets
        declared = {item.name or "": item for item in function.value_info}
        try:
            self.nodes(function.node, values, declared, opsets, given, depth + 1, declare=False)
        except InferenceError as error:
            error.steps.clear()  # the place is that of the call
            raise
        found = [values.get(name) for name in function.output]
        if known is not None and self.scope.count == fresh:  # symbols of its own are of one call alone
            self.called[known] = found
        return found

    @staticmethod
    def _key(function: FunctionProto, inputs: Sequence[Type | None], named: Mapping[str, Any]) -> Any:
        """What the types of the results of a call follow from; None where that is more than can be compared."""
        if not all(isinstance(item, (int, float, str, bytes)) for item in named.values()):
            return None
        given = (None if item is ABSENT else item for item in inputs)
        return (id(function), tuple(named.items()), *given)

    # -- constants and declarations

    def constant(self, tensor: TensorProto) -> Tensor:
        """The type of a tensor that the file holds, with its content if it is small."""
        shape = tuple(tensor.dims)
        dtype = tensor.data_type or 0
        if len(shape) > MOST_AXES:
            return Tensor(dtype)
        content = stored_content(tensor, shape) if self.propagate else None
        held = Tensor(dtype, shape, content)
        return held if content is not None else self.types.setdefault(held, held)

    def _type(self, item: ValueInfoProto) -> Type | None:
        return from_proto(item.type, self._size)

    def _size(self, label: str) -> Dim:
        if not label:
            return self.scope.fresh()
        # an expression only where all names in it are names of the file: other texts are labels
        return symbol(label) if label.isidentifier() else parse(label, self.names - {label})

    def agreed(self, said: Type | None, found: Type | None, what: str, *steps: str) -> Type | None:
        """What two sources say of one value.  Raises InferenceError, or notes the problem, where they contradict."""
        try:
            return merged(said, found, self.scope)
        except Misfit as problem:
            text = f"{what}: {problem}"
            if self.strict:
                raise InferenceError(text, *steps) from None
            self.problems.append(text)
            return said

    @staticmethod
    def _declare_values(graph: GraphProto, values: Values) -> None:
        held = {item.name for item in (*graph.input, *graph.output)} | {item.name for item in graph.initializer}
        held |= {item.values.name for item in graph.sparse_initializer if item.values is not None}
        infos = {item.name: item for item in graph.value_info}
        added = graph.value_info
        for name, type_ in values.types.items():  # in the order of the nodes
            if name in held:
                continue
            if name in infos:
                _declare(infos[name], type_)
            elif (proto := to_proto(type_)) is not None:
                added.append(ValueInfoProto(name=name, type=proto))


def merged(said: Type | None, found: Type | None, scope: Scope) -> Type | None:
    """The better known of two types of one value.  Raises Misfit where they contradict."""
    if said is None or found is None:
        return found if said is None else said
    if isinstance(said, (Tensor, Sparse)) and type(said) is type(found):
        if said.dtype and found.dtype and said.dtype != found.dtype:
            raise Misfit(f"is declared with data type {_dtype(said.dtype)}, and its node makes {_dtype(found.dtype)}")
        dtype = found.dtype or said.dtype
        shape = _merged_shape(said.shape, found.shape, scope)
        return Tensor(dtype, shape, found.content) if isinstance(found, Tensor) else Sparse(dtype, shape)
    if isinstance(said, SequenceOf) and isinstance(found, SequenceOf):
        return SequenceOf(merged(said.element, found.element, scope))
    if isinstance(said, OptionalOf) and isinstance(found, OptionalOf):
        return OptionalOf(merged(said.element, found.element, scope))
    if isinstance(said, MapOf) and isinstance(found, MapOf) and said.key == found.key:
        return MapOf(said.key, merged(said.value, found.value, scope))
    if type(said) is type(found) and said == found:
        return said
    raise Misfit("is declared with another kind of type than its node makes")


def _merged_shape(said: Shape, found: Shape, scope: Scope) -> Shape:
    if said is None or found is None:
        return found if said is None else said
    if len(said) != len(found):
        raise Misfit(f"is declared with rank {len(said)}, and its node makes rank {len(found)}")
    return tuple([_merged_size(one, other, scope, said, found) for one, other in zip(said, found, strict=True)])


def _merged_size(said: Dim, found: Dim, scope: Scope, whole: Shape, other: Shape) -> Dim:
    if said == found:
        return said
    if isinstance(said, int) and isinstance(found, int):
        raise Misfit(f"is declared with shape {_shown(whole)}, and its node makes {_shown(other)}")
    try:
        scope.equations.learn(said, found)
    except ContradictionError:
        # a label that stands for several sizes is no error: runtimes do not look at labels
        return said if isinstance(said, int) else found
    if isinstance(said, int) or isinstance(found, int):
        return said if isinstance(said, int) else found
    # what the user said is better than an expression, and that is better than a name that means nothing
    return found if _is_fresh(said, scope) and not _is_fresh(found, scope) else said


def _is_fresh(size: Size, scope: Scope) -> bool:
    return size.name is not None and size.name.startswith(scope.prefix)


def _shown(shape: Shape) -> str:
    return "?" if shape is None else "[" + ", ".join(map(str, shape)) + "]"


def _dtype(code: int) -> str:
    known = TensorProto.DataType._value2member_map_
    return TensorProto.DataType(code).name if code in known else str(code)


def _declare(item: ValueInfoProto, type_: Type | None) -> None:
    proto = to_proto(type_)
    if proto is not None and not says_more(item.type):
        if item.type is not None and item.type.denotation is not None:
            proto.denotation = item.type.denotation
        item.type = proto


def _without_content(type_: Type | None) -> Type | None:
    return Tensor(type_.dtype, type_.shape) if isinstance(type_, Tensor) else type_


def _key(
    schema: OpSchema, inputs: Sequence[Type | None], attributes: Mapping[str, Any], outputs: int
) -> tuple[Any, ...] | None:
    """Equal keys have equal results, as long as the inputs live; None for attributes that are messages."""
    said: list[Any] = []
    for name, value in attributes.items():
        if isinstance(value, list):
            if value and not isinstance(value[0], _PLAIN):
                return None
            value = tuple(value)  # noqa: PLW2901 - a list has no hash
        elif not isinstance(value, _PLAIN):
            return None
        said += (name, value)
    return (id(schema), outputs, *said, *map(id, inputs))


_PLAIN = (int, float, bytes, str)


def _named(node: NodeProto) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"the {node.op_type} that makes {_outputs(node)}"


def _outputs(node: NodeProto) -> str:
    """The first outputs: a node may have very many, and each of them may bring a problem that names the node."""
    names = [repr(name) for name in node.output[:_SHOWN] if name]
    return ", ".join(names + ["..."] * (len(node.output) > _SHOWN)) or "nothing"


_SHOWN = 4


def _opsets(imports: Sequence[Any]) -> dict[str, int]:
    return {operators.canonical(item.domain or ""): item.version or 0 for item in imports}


def _attributes(node: NodeProto, references: Mapping[str, Any]) -> dict[str, Any]:
    """The node's attributes as Python values; those of a function's body that the call leaves out are not there."""
    found = {}
    for item in node.attribute:
        if item.ref_attr_name:
            if item.ref_attr_name in references:
                found[item.name or ""] = references[item.ref_attr_name]
        else:
            found[item.name or ""] = get_attribute_value(item)
    return found


def _labels(model: ModelProto) -> set[str]:
    """The names of all symbolic sizes that the model declares, in graphs inside of graphs and in functions, too."""
    found: set[str] = set()

    def note(size: str) -> Dim:
        found.add(size)
        return 0

    def nodes(items: Sequence[NodeProto]) -> None:
        for node in items:
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    if inner is not None:
                        graph(inner)

    def graph(given: GraphProto) -> None:
        for item in (*given.input, *given.output, *given.value_info):
            from_proto(item.type, note)
        nodes(given.node)

    if model.graph is not None:
        graph(model.graph)
    for function in model.functions:
        for item in function.value_info:
            from_proto(item.type, note)
        nodes(function.node)
    return found - {""}


def _dtype_of(sparse: SparseTensorProto) -> int:
    return (sparse.values.data_type if sparse.values is not None else None) or 0


_INTEGERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
MOST_FLOATS = 16  # factors and limits of sizes; biases are no content


def stored_content(tensor: TensorProto, shape: tuple[int, ...]) -> Content:
    """The elements of a small tensor of numbers; None for others, and where its data cannot be read."""
    size = element_count(shape)
    floats = tensor.data_type not in _INTEGERS
    if (
        size > (MOST_FLOATS if floats else MOST)
        or not 0 < (tensor.data_type or 0) < 14
        or tensor.data_type == TensorProto.STRING
    ):
        return None
    from proto_schema.numpy_helper import to_array

    try:
        return content_of(to_array(tensor))
    except UnreadableDataError:
        raise
    except ValueError:  # external data that is not there: the shape is all that is known
        return None
