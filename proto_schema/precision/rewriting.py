"""The casts: every node reads the type that was decided for it, and each value is cast once for all its readers.

A value has the type in which its node computes (`native`). A reader of the other type gets a `Cast` right behind that
node, which all further readers share. A constant is stored in the type of its readers, in both where they differ. The
model's own casts to float32 are no computations: what reads one gets a cast of what it casts, or that itself.
"""

from __future__ import annotations

import copy

import numpy as np

from proto_schema import operators
from proto_schema.inference.types import Tensor, to_proto
from proto_schema.ir import Graph, Model, Node, Value
from proto_schema.numpy_helper import from_array
from proto_schema.onnx import TensorProto
from proto_schema.precision.constants import converted
from proto_schema.precision.kept import KeptNodes, Types, held_by
from proto_schema.precision.options import Options
from proto_schema.precision.signatures import ANY, BODIES, FLOAT32, HALF, TYPED

_CLIP_OF_INPUTS = 11  # the opset since which the ends of Clip are inputs
_TENSORS_ALONE = 4  # the IR version since which a tensor of the file need not be an input, too


class CastRewriter:
    """One rewriting of one model. `stored` has the names of the constants that are in the other type afterwards."""

    def __init__(self, model: Model, options: Options, types: Types, kept: KeptNodes) -> None:
        self.model = model
        self.options = options
        self.code = options.code
        self.kept = kept
        self.types = types
        self.floats = {value for graph in model.graph.nested() for value in _values(graph) if types(value) == FLOAT32}
        self.native: dict[Value, int] = {}
        self.made: dict[tuple[Value, int], Value] = {}
        self.same: dict[Value, Value] = {}  # results of casts to the type that is there
        self.old: list[Node] = []  # casts of the model
        self.casts: list[Node] = []
        self.stored: set[str] = set()

    def run(self) -> int:
        """Rewrite the model; how many casts there are that were not."""
        graph = self.model.graph
        self._inputs(graph)
        self._graph(graph)
        self._outputs(graph)
        self._finish()
        return sum(node.graph is not None for node in self.casts)

    # -- nodes

    def _graph(self, graph: Graph) -> None:
        for node in list(graph.nodes):
            if node.op_type in BODIES and not operators.canonical(node.domain):
                self._with_bodies(node)
            elif node.op_type == "Cast" and not node.domain:
                self._cast(node)
            else:
                self._node(node)

    def _node(self, node: Node) -> None:
        found, stays = self.kept.signatures[node], self.kept.stays(node)
        for place, (value, form) in enumerate(zip(node.inputs, found.inputs, strict=True)):
            if value is None or not form:
                continue
            if form == ANY and not stays:
                node.set_input(place, self._root(value))
            else:
                node.set_input(place, self._as(value, self.code if form == HALF and not stays else FLOAT32))
        if stays or HALF not in found.outputs or node.op_type == "Constant":
            return
        for value, form in zip(node.outputs, found.outputs, strict=True):
            if value is not None and form == HALF:
                self._mark(value, self.code)
        if node.op_type == "ConstantOfShape":
            filler = node.attributes.get("value")
            self.stored.add(node.output.name)
            zero = from_array(np.zeros(1, np.float32))
            node.attributes["value"] = converted(filler if isinstance(filler, TensorProto) else zero, self.code)
        elif node.op_type in TYPED and not node.domain:
            name, usual = TYPED[node.op_type]
            if node.attributes.get(name, usual) in (FLOAT32, None):
                node.attributes[name] = self.code

    def _cast(self, node: Node) -> None:
        value, result = node.input(0), node.outputs[0]
        if value is None or result is None:
            return
        self.old.append(node)
        if value not in self.floats:
            return
        if result in self.floats:
            self.same[result] = value
            node.set_input(0, self._root(value))
        elif node.attributes.get("to") == self.code:
            half = self._as(value, self.code)
            result.replace_uses(half, [use for use in result.uses if isinstance(use[0], Node)])
            node.set_input(0, half)
            if result.is_output:
                node.op_type = "Identity"
                node.attributes.clear()
        else:
            node.set_input(0, self._root(value))

    def _with_bodies(self, node: Node) -> None:
        stays = self.kept.stays(node)
        wanted = FLOAT32 if stays else self.code
        for place, value in enumerate(node.inputs):
            if value is not None and value in self.floats:
                node.set_input(place, self._as(value, wanted))
        for body in node.bodies:
            for value in body.inputs:
                if value in self.floats and not stays:
                    self._mark(value, wanted)
            self._graph(body)
            for place, value in enumerate(body.outputs):
                if value in self.floats:
                    self._give_back(body, place, value, wanted)
        for value in node.outputs:
            if value is not None and value in self.floats and not stays:
                self._mark(value, wanted)

    def _give_back(self, body: Graph, place: int, value: Value, wanted: int) -> None:
        result = self._as(value, wanted)
        if result is value:
            return
        if result.graph is not body:  # what a body gives back is its own
            result = body.nodes.append(Node("Identity", [result])).output
        body.set_output(place, result)
        self._retype(result, wanted, value)

    # -- borders

    def _inputs(self, graph: Graph) -> None:
        changes = self.options.io == "convert" or (self.model.message.ir_version or 0) < _TENSORS_ALONE
        for value in graph.inputs:
            if value not in self.floats:
                continue
            if value.tensor is None:
                if self.options.io == "convert":
                    self._mark(value, self.code)
            elif isinstance(value.tensor, TensorProto) and changes and not self._any_stays(value):
                value.tensor = converted(value.tensor, self.code)
                self.stored.add(value.name)
                self._mark(value, self.code)

    def _any_stays(self, value: Value) -> bool:
        """Whether a reader takes float32."""
        for user, place in value.uses:
            if not isinstance(user, Node):
                return True
            found = self.kept.signatures.get(user)
            if self.kept.stays(user) or (found is not None and found.inputs[place] not in (HALF, ANY)):
                return True
        return False

    def _outputs(self, graph: Graph) -> None:
        wanted = FLOAT32 if self.options.io == "keep" else self.code
        done: dict[Value, Value] = {}
        for place, value in enumerate(graph.outputs):
            if value not in self.floats:
                continue
            if value not in done:
                result = self._as(value, wanted)
                if result is not value and not self._is_remade(value, result):
                    result = self._named(graph, value, result)
                done[value] = result
            if done[value] is not value:
                graph.set_output(place, done[value])
                self._retype(done[value], wanted, value)

    def _is_remade(self, value: Value, result: Value) -> bool:
        """Whether a constant stands for another one, whose name it gets at the end."""
        return held_by(value) is not None and not value.is_input and result.tensor is not None

    def _named(self, graph: Graph, value: Value, result: Value) -> Value:
        """A value with the name of an output."""
        if result.producer not in self.casts or result.is_output:
            result = graph.nodes.append(Node("Identity", [result])).output
        result.name, result.declared = value.name, copy.copy(value.declared)
        if not value.is_input:
            value.name = self.model.new_name(f"{value.name}_{self.options.dtype}")
        return result

    # -- values

    def _root(self, value: Value) -> Value:
        while value in self.same:
            value = self.same[value]
        return value

    def _as(self, value: Value, wanted: int) -> Value:
        """The value in a type."""
        value = self._root(value)
        if value not in self.floats or self.native.get(value, FLOAT32) == wanted:
            return value
        if (value, wanted) not in self.made:
            self.made[value, wanted] = self._make(value, wanted)
        return self.made[value, wanted]

    def _make(self, value: Value, wanted: int) -> Value:
        graph, node = value.graph, value.producer
        assert graph is not None  # what nothing makes has no type
        tensor = held_by(value)
        name = self.model.new_name(f"{value.name}_{self.options.dtype if wanted == self.code else 'float32'}")
        if tensor is not None and not value.is_input:
            self.stored.add(value.name)
            remade = converted(tensor, wanted)
            if node is None:
                return graph.add_initializer(remade, name)
            return self._behind(value, Node("Constant", attributes={"value": remade}), name)
        source = after = value
        if node is not None and node.op_type == "Cast" and not node.domain and value not in self.native:
            inner = node.input(0)
            if inner is not None and self.types(inner) == wanted:
                return inner
            source = inner or value
        if wanted == self.code and value in self.kept.beyond:
            source = after = self._saturated(value)
        made = Node("Cast", [source], {"to": wanted})
        self.casts.append(made)
        return self._behind(after, made, name)

    def _saturated(self, value: Value) -> Value:
        """The value within the type's range: a cast would make infinities of what is beyond it."""
        largest = self.options.largest
        name = self.model.new_name(f"{value.name}_within")
        if self.types.opsets.get("", 0) < _CLIP_OF_INPUTS:
            return self._behind(value, Node("Clip", [value], {"min": -largest, "max": largest}), name)
        low, high = (
            self._behind(value, Node("Constant", attributes={"value": from_array(np.array(end, np.float32))}), which)
            for end, which in ((-largest, f"{name}_low"), (largest, f"{name}_high"))
        )
        return self._behind(low, Node("Clip", [value, low, high]), name)

    def _behind(self, value: Value, node: Node, name: str) -> Value:
        """The result of a new node right behind the one that makes a value, or at the beginning of its graph."""
        graph = value.graph
        assert graph is not None
        graph.nodes.insert_after(value.producer, node)
        node.output.name = name
        return node.output

    def _mark(self, value: Value, code: int) -> None:
        self.native[value] = code
        if value.declared is not None or value.is_output:
            self._retype(value, code, value)

    @staticmethod
    def _retype(value: Value, code: int, like: Value) -> None:
        """Declare a value of a type, with the sizes that the file declares of another."""
        said = like.declared.type if like.declared is not None else None
        value.type = Tensor(code, like.shape)
        if value.declared is None:
            return
        declared = copy.copy(value.declared)
        if said is not None and said.tensor_type is not None and said.tensor_type.shape is not None:
            declared.type = copy.copy(said)
            declared.type.tensor_type = copy.copy(said.tensor_type)
            declared.type.tensor_type.elem_type = code
        else:
            declared.type = to_proto(Tensor(code, like.shape))
        value.declared = declared

    # -- the end

    def _finish(self) -> None:
        for (value, _), made in self.made.items():
            if held_by(value) is None or value.is_input or value.uses:
                continue
            graph = value.graph
            if graph is not None and value.producer is None:
                graph.remove_initializer(value)
            elif graph is not None and value.producer is not None:
                graph.nodes.remove(value.producer)
            made.name = value.name
        for node in (*reversed(self.casts), *reversed(self.old)):
            if node.graph is not None and not node.output.uses:
                node.graph.nodes.remove(node)


def _values(graph: Graph) -> list[Value]:
    made = [value for node in graph.nodes for value in node.outputs if value is not None]
    return [*graph.inputs, *graph.initializers, *made]
