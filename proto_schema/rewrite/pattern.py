"""Patterns: what a function writes with an `op` that only records.

Parameters stand for values. A parameter in the place of an attribute stands for that, and `**rest` for all attributes
that are not named. A parameter with the default None may be an input that is left out. Numbers and arrays are constants
that must be there. An attribute that the pattern does not name must have its default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from proto_schema.ir.calls import LAST_AXIS, BuildError, newest_form
from proto_schema.ir.graph import Node
from proto_schema.operators import canonical
from proto_schema.operators.changes import newest


class RewriteError(ValueError):
    """A rule that cannot be one, or that cannot be applied. The text names the rule and what to do."""


class Parameter:
    """Stands for a value or an attribute; for the rest of the attributes as `**parameter`."""

    __slots__ = ("is_optional", "name")

    def __init__(self, name: str, is_optional: bool) -> None:
        self.name = name
        self.is_optional = is_optional

    def keys(self) -> Sequence[str]:
        """What `**parameter` asks for: one name that no attribute has."""
        return [f"**{self.name}"]

    def __getitem__(self, name: str) -> Parameter:
        return self

    def __repr__(self) -> str:
        return self.name


class PatternCall:
    """One node of a pattern: inputs in the order of the newest form, attributes that are named, and who takes the rest.

    `commutes`: its two inputs may change places.
    """

    __slots__ = ("attributes", "commutes", "domain", "inputs", "op_type", "outputs", "rest", "says_more")

    def __init__(self, op_type: str, domain: str, inputs: Sequence[Any], attributes: dict[str, Any]) -> None:
        self.op_type = op_type
        self.domain = canonical(domain)
        self.inputs = list(inputs)
        while self.inputs and self.inputs[-1] is None:
            self.inputs.pop()
        self.rest: Parameter | None = None
        self.attributes: dict[str, Any] = {}
        for name, item in attributes.items():
            if name.startswith("**"):
                self.rest = item
            else:
                self.attributes[name] = item
        self.commutes = not self.domain and op_type in COMMUTATIVE and len(self.inputs) == 2
        self.says_more = bool(attributes) or op_type in LAST_AXIS
        self.outputs: tuple[Made, ...] = ()

    def may_be(self, node: Node) -> bool:
        """Whether the first input comes from the operator that the pattern has there: a question that costs nothing."""
        first = self.inputs[0] if self.inputs and not self.commutes else None
        if not isinstance(first, Made):
            return True
        value = node._reads[0] if node._reads else None
        return value is not None and value.producer is not None and value.producer.op_type == first.call.op_type

    def __repr__(self) -> str:
        shown = [repr(item.call if isinstance(item, Made) else item) for item in self.inputs]
        return f"{self.op_type}({', '.join(shown)})"


class Made:
    """An output of a node of a pattern."""

    __slots__ = ("call", "place")

    def __init__(self, call: PatternCall, place: int) -> None:
        self.call = call
        self.place = place


COMMUTATIVE = frozenset(
    {"Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"}
)


class _Recorder:
    """The `op` of a pattern."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[:1].isupper():
            raise AttributeError(f"op has no {op_type!r}; names of operators begin with a capital letter")
        return partial(self.op, op_type)

    def op(self, op_type: str, *inputs: Any, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        """A node of any operator, as of `ps.ir.Builder`."""
        schema = newest(op_type, domain)
        if schema is not None:
            named = {name: item for name, item in attributes.items() if not name.startswith("**")}
            given, variadic, plain = newest_form(schema, inputs, named)
            fixed = [formal.name for formal in schema.inputs if formal.option != "variadic"]
            inputs = (*(given.get(name) for name in fixed), *variadic)
            rest = {name: item for name, item in attributes.items() if name.startswith("**")}
            outputs, attributes = max(outputs, schema.min_output), {**plain, **rest}
        elif not domain:
            raise BuildError(f"ai.onnx has no operator {op_type!r}; say domain= for one of another domain")
        call = PatternCall(op_type, domain, inputs, attributes)
        call.outputs = tuple(Made(call, place) for place in range(outputs))
        return call.outputs[0] if outputs == 1 else call.outputs


class GraphPattern:
    """The results of a pattern function, and the calls at which a match begins: those that no other call reads."""

    def __init__(self, function: Callable[..., Any]) -> None:
        names = list(inspect.signature(function).parameters.values())[1:]
        self.parameters = [Parameter(item.name, item.default is None) for item in names]
        try:
            made = function(_Recorder(), *self.parameters)
        except BuildError as error:
            raise RewriteError(f"the pattern {function.__name__!r} cannot match: {error}") from error
        self.results: tuple[Made, ...] = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        wrong = [item for item in self.results if not isinstance(item, Made)]
        if wrong or not self.results:
            raise RewriteError(
                f"the pattern {function.__name__!r} returns {wrong or 'nothing'}; return what its operators make"
            )
        inner = {item.call for result in self.results for item in _inputs(result.call)}
        self.anchors = [call for call in dict.fromkeys(result.call for result in self.results) if call not in inner]

        self.is_one_call = len(self.anchors) == 1 and not any(isinstance(item, Made) for item in self.anchors[0].inputs)

    @property
    def text(self) -> str:
        """The pattern in short: `Relu(MatMul(x, w))`."""
        return ", ".join(map(repr, self.anchors))


def _inputs(call: PatternCall) -> Iterator[Made]:
    for item in call.inputs:
        if isinstance(item, Made):
            yield item
            yield from _inputs(item.call)
