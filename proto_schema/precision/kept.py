"""Which nodes stay in float32, and why.

A node stays if it is asked for, if its operator has no such type, if a constant or a value of the samples does not fit
into the type, or if it computes sizes and positions. Then nodes that only move what stays, or compare it, stay, too, so
that a value is not cast down and up again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from proto_schema import operators
from proto_schema.errors import ExternalDataError
from proto_schema.inference.types import Sparse, Tensor
from proto_schema.ir import Graph, Model, Node, Value
from proto_schema.onnx import TensorProto
from proto_schema.precision.constants import INFINITE, MASK, Fit, fit_of_tensor
from proto_schema.precision.options import Options, text_of
from proto_schema.precision.signatures import (
    BODIES,
    FLOAT,
    FLOAT32,
    HALF,
    Signature,
    forms_of,
    schema_of,
    signature,
    variables,
)
from proto_schema.quantization.hoisted import constant_of

MOVES = frozenset(
    [
        "Identity",
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Slice",
        "Gather",
        "GatherElements",
        "GatherND",
        "Concat",
        "Split",
        "Expand",
        "Tile",
        "Pad",
        "DepthToSpace",
        "SpaceToDepth",
        "Dropout",
        "ReverseSequence",
        "Where",
        "ScatterND",
        "ScatterElements",
        "Max",
        "Min",
        "Clip",
        "Compress",
        "Trilu",
    ]
)
_COMPARES = frozenset(
    ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf", "NonZero", "ArgMax", "ArgMin"]
)
_SELECTS = MOVES | {"Add", "Sub", "ConstantOfShape"}  # a large number in these is there to win or to lose
_WHOLE = frozenset({TensorProto.INT32, TensorProto.INT64, TensorProto.UINT32, TensorProto.UINT64})
_ANGLES = frozenset({"Sin", "Cos"})
_NO_FIT = Fit()


class Types:
    """The data type of each value of a model, also behind operators of which inference knows nothing."""

    def __init__(self, model: Model, opsets: Mapping[str, int]) -> None:
        self.opsets = opsets
        self.found: dict[Value, int] = {}
        for graph in model.graph.nested():
            for node in graph.nodes:
                self._deduce(node)

    def __call__(self, value: Value | None) -> int:
        if value is None:
            return 0
        known = value.type
        if isinstance(known, (Tensor, Sparse)) and known.dtype:
            return known.dtype
        return self.found.get(value, 0)

    def _deduce(self, node: Node) -> None:
        if not any(value is not None and value.type is None and not self(value) for value in node.outputs):
            return
        schema, forms = schema_of(node, self.opsets), forms_of(node)
        if schema is not None:
            of_inputs, of_outputs = variables(node, schema)
        elif forms is not None:
            of_inputs, of_outputs = (list(letters) for letters in forms)
        else:
            return
        bound = {name: self(value) for name, value in zip(of_inputs, node.inputs, strict=False) if self(value)}
        for name, value in zip(of_outputs, node.outputs, strict=False):
            if value is not None and name != "." and name in bound:
                self.found[value] = bound[name]


@dataclass
class KeptNodes:
    """The decision. `reasons` has a node that stays with its reason; `clamped` the constants whose large numbers become
    the type's largest; `beyond` values that hold numbers which the type does not have.
    """

    signatures: dict[Node, Signature] = field(default_factory=dict)
    reasons: dict[Node, str] = field(default_factory=dict)
    clamped: dict[str, int] = field(default_factory=dict)
    beyond: dict[Value, str] = field(default_factory=dict)

    def stays(self, node: Node) -> bool:
        """Whether a node stays in float32."""
        return node in self.reasons


def decided(
    model: Model,
    options: Options,
    types: Types,
    seen: Mapping[str, Fit],
    search: Collection[int],
) -> KeptNodes:
    """Which nodes of an inferred model stay. `seen` says how the values of samples fit, by name.

    `search` has numbers of nodes of the main graph that have to stay.
    """
    return _Judge(model, options, types, seen, search).run()


class _Judge:
    def __init__(
        self, model: Model, options: Options, types: Types, seen: Mapping[str, Fit], search: Collection[int]
    ) -> None:
        self.model = model
        self.options = options
        self.types = types
        self.code = options.code
        self.seen = seen
        self.search = frozenset(search)
        self.kept = KeptNodes()
        self.fits: dict[tuple[int, float], Fit] = {}

    def run(self) -> KeptNodes:
        graph = self.model.graph
        self.positions = self._positions()
        for number, node in enumerate(graph.nodes):
            if number in self.search:
                self.kept.reasons[node] = "is needed in float32 by the outputs, as the search found"
        self._judge(graph)
        self._grow()
        for value in graph.outputs if self.options.io == "convert" else ():
            tensor = held_by(value)
            why = "" if tensor is None else self._does_not_fit(value.name, tensor, INFINITE)
            if why:
                raise ValueError(f"the output {value.name!r} is a constant {why}; leave inputs and outputs (io='keep')")
        return self.kept

    def is_float(self, value: Value | None) -> bool:
        return self.types(value) == FLOAT32

    # -- one node

    def _judge(self, graph: Graph, outer: str = "") -> None:
        for node in graph.nodes:
            reason = outer or self.kept.reasons.get(node, "") or self._asked(node)
            if node.op_type in BODIES and not operators.canonical(node.domain):
                touches = any(self.is_float(value) for value in (*node.inputs, *node.outputs))
                reason = reason or self._by_constants(node)
                if reason and touches:
                    self.kept.reasons[node] = reason
                for body in node.bodies:
                    self._judge(body, reason)
                continue
            found = signature(node, self.types, self.types.opsets, self.code)
            self.kept.signatures[node] = found
            if not found.is_float or node.op_type == "Constant":
                self.kept.reasons.pop(node, None)
                continue
            if node.op_type == "Cast" and not node.domain:
                self.kept.reasons.pop(node, None)  # its readers say which type it makes
                continue
            if not found.reason and HALF not in (*found.inputs, *found.outputs) and FLOAT not in found.inputs:
                continue  # it reads what is there
            reason = reason or found.reason or self._by_values(node, found)
            if reason:
                self.kept.reasons[node] = reason

    def _asked(self, node: Node) -> str:
        by = self.options.kept_by(node.op_type, node.name)
        return f"is named by keep ({by})" if by else ""

    def _by_values(self, node: Node, found: Signature) -> str:
        if node in self.positions:
            return "computes sizes or positions, which are integers that the type may not have"
        text, reason, over = text_of(self.code), "", False
        infinite = MASK if node.op_type in _SELECTS and not node.domain else INFINITE
        for value, form in zip(node.inputs, found.inputs, strict=True):
            if value is None or form != HALF:
                continue
            if value in self.kept.beyond:
                reason, over = reason or f"reads {value.name!r}, which {self.kept.beyond[value]}", True
                continue
            tensor = held_by(value)
            if tensor is None:
                continue
            why = self._does_not_fit(value.name, tensor, infinite)
            reason, over = reason or (f"reads the constant {value.name!r}, {why}" if why else ""), over or bool(why)
        filled = node.attributes.get("value") if node.op_type == "ConstantOfShape" else None
        if isinstance(filled, TensorProto):
            why = self._does_not_fit(node.output.name, filled, infinite)
            reason, over = reason or (f"makes a constant {why}" if why else ""), over or bool(why)
        for value, form in zip(node.outputs, found.outputs, strict=True):
            fit = self.seen.get(value.name) if value is not None and form == HALF else None
            if value is None or fit is None or fit.fits:
                continue
            what = (
                f"reaches {fit.over:.3g} on the samples"
                if fit.over
                else f"loses {fit.loss:.0%} in {text} on the samples"
            )
            self.kept.beyond[value] = what
            reason = reason or f"makes {value.name!r}, which {what}"
        if over and (node.op_type in MOVES or node.op_type == "ConstantOfShape"):
            for value in node.outputs:
                if value is not None and self.is_float(value):
                    self.kept.beyond.setdefault(value, "has numbers beyond the type")
        return reason

    def _by_constants(self, node: Node) -> str:
        """Why a node with bodies stays: a constant that goes into it, or comes out of a body."""
        for value in (*node.inputs, *(value for body in node.bodies for value in body.outputs)):
            tensor = None if value is None else held_by(value)
            if value is not None and tensor is not None:
                why = self._does_not_fit(value.name, tensor, INFINITE)
                if why:
                    return f"passes the constant {value.name!r}, {why}"
        return ""

    def _does_not_fit(self, name: str, tensor: TensorProto, infinite: float) -> str:
        key = id(tensor), infinite
        if key not in self.fits:
            self.fits[key] = _fit(tensor, self.code, infinite)
        fit, text = self.fits[key], text_of(self.code)
        if fit.over:
            return f"which reaches {fit.over:.3g}, beyond the {self.options.largest:.6g} of {text}"
        if fit.loss and not fit.fits:
            return f"of which {text} loses {fit.loss:.0%}"
        if fit.masks:
            self.kept.clamped[name] = fit.masks
        return ""

    # -- sizes and positions

    def _positions(self) -> frozenset[Node]:
        """The nodes between integers and angles, sizes or comparisons: their float32 numbers come of integers, sizes,
        constants and inputs of at most one axis alone.
        """
        pure: set[Value] = {value for value in self.model.graph.inputs if self._is_number(value)}
        nodes: list[Node] = []
        for graph in self.model.graph.nested():
            for node in graph.nodes:
                if node.op_type in BODIES or not any(map(self.is_float, node.outputs)):
                    continue
                whole_numbers = node.op_type == "Cast" and self.types(node.input(0)) in _WHOLE
                read = [value for value in node.inputs if value is not None and self.is_float(value)]
                moving = [value for value in read if held_by(value) is None]
                if whole_numbers or (moving and all(value in pure for value in moving)):
                    nodes.append(node)
                    pure.update(value for value in node.outputs if value is not None)
        wanted: set[Node] = set()
        members = frozenset(nodes)
        for node in reversed(nodes):
            if (
                node.op_type in _ANGLES
                or any(self._needs_all(user, place) for user, place in self._uses(node))
                or any(isinstance(user, Node) and user in wanted and user in members for user, _ in self._uses(node))
            ):
                wanted.add(node)
        return frozenset(wanted)

    def _is_number(self, value: Value) -> bool:
        return self.is_float(value) and value.rank is not None and value.rank <= 1 and value.tensor is None

    @staticmethod
    def _uses(node: Node) -> Iterator[tuple[object, int]]:
        for value in node.outputs:
            if value is not None:
                yield from value.uses

    def _needs_all(self, user: object, place: int) -> bool:
        """Whether a reader makes integers of a number, or takes float32 only."""
        if not isinstance(user, Node):
            return False
        if user.op_type in {"Cast", "CastLike"} and not place:
            return self.types(user.outputs[0] if user.outputs else None) in _WHOLE
        if user.op_type in {"Floor", "Ceil", "Round", "Range"} and not user.domain:
            return True
        found = signature(user, self.types, self.types.opsets, self.code) if user.op_type not in BODIES else None
        return found is not None and found.inputs[place] == FLOAT and HALF in (*found.inputs, *found.outputs)

    # -- what is between

    def _grow(self) -> None:
        """Nodes that move or compare only what stays."""
        candidates = [
            node
            for graph in self.model.graph.nested()
            for node in graph.nodes
            if (node.op_type in MOVES or node.op_type in _COMPARES)
            and not node.domain
            and node not in self.kept.reasons
        ]
        grown = True
        while grown:
            grown = False
            for node in candidates:
                if node not in self.kept.reasons and self._is_between(node):
                    self.kept.reasons[node] = "moves or compares only what stays"
                    grown = True

    def _is_between(self, node: Node) -> bool:
        found = self.kept.signatures.get(node)
        if found is None or not found.can_change:
            return False
        read = [v for v, form in zip(node.inputs, found.inputs, strict=True) if v and form == HALF and not held_by(v)]
        if not read or not all(value.producer is not None and value.producer in self.kept.reasons for value in read):
            return False
        uses = list(self._uses(node))
        made = any(form == HALF for form in found.outputs)
        return not made or (bool(uses) and all(self._stays_at(user) for user, _ in uses))

    def _stays_at(self, user: object) -> bool:
        if isinstance(user, Node):
            return user in self.kept.reasons
        return user is self.model.graph and self.options.io == "keep"


def held_by(value: Value) -> TensorProto | None:
    """The float32 tensor that the file holds for a value, as an initializer or in a Constant node."""
    tensor = value.tensor if value.producer is None else None
    if isinstance(tensor, TensorProto):
        return tensor if tensor.data_type == FLOAT32 else None
    node = value.producer
    if node is None or node.op_type != "Constant" or node.domain:
        return None
    tensor = constant_of(node)
    if tensor is None:
        number = node.attributes.get("value_float", node.attributes.get("value_floats"))
        if isinstance(number, (float, list)):
            from proto_schema.helper import make_tensor

            numbers = number if isinstance(number, list) else [number]
            return make_tensor(value.name, FLOAT32, [len(numbers)] if isinstance(number, list) else [], numbers)
    return tensor if tensor is not None and tensor.data_type == FLOAT32 else None


def _fit(tensor: TensorProto, code: int, infinite: float) -> Fit:
    try:
        return fit_of_tensor(tensor, code, infinite)
    except ExternalDataError:
        raise
    except ValueError:  # its bytes are not there: the checker says so
        return _NO_FIT
