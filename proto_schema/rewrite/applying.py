"""Rules, and what applies them to all graphs of a model."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from proto_schema.budget import BudgetLike
from proto_schema.inference.types import Tensor, known_shape
from proto_schema.ir import Builder, BuildError, Changes, Function, Graph, Model, Node, Value, from_message
from proto_schema.ir.builder import can_take_name
from proto_schema.ir.opened import opened
from proto_schema.onnx import ModelProto
from proto_schema.operators import canonical
from proto_schema.rewrite.matching import Match, Matcher, Read, small_constant
from proto_schema.rewrite.pattern import GraphPattern, RewriteError
from proto_schema.rewrite.proof import ProofError, difference, feeds_of

_FOR_A_NODE = 20  # changes, at most


class Rule:
    """A pattern, what replaces it, and a condition; made by `rule`."""

    __slots__ = ("_condition", "_replacement", "name", "pattern", "shared")

    def __init__(
        self, pattern: GraphPattern, replacement: Callable[..., Any], condition: Any, name: str, shared: bool
    ) -> None:
        self.pattern = pattern
        self.shared = shared
        self.name = name
        known = {item.name for item in pattern.parameters} | {"match"}
        self._replacement = _Function(replacement, known, name, skipped=1)
        self._condition = None if condition is None else _Function(condition, known, name)

    def __repr__(self) -> str:
        return f"<Rule {self.name}>"

    def allows(self, match: Match) -> bool:
        """Whether the condition holds."""
        return self._condition is None or bool(self._condition(match))

    def made(self, op: Builder, match: Match) -> Any:
        """What the replacement returns."""
        return self._replacement(match, op)


class _Function:
    """A function of the user, which gets the parameters that it names."""

    __slots__ = ("function", "names")

    def __init__(self, function: Callable[..., Any], known: set[str], rule: str, skipped: int = 0) -> None:
        self.function = function
        self.names = list(inspect.signature(function).parameters)[skipped:]
        unknown = [name for name in self.names if name not in known]
        if unknown:
            raise RewriteError(
                f"rule {rule!r}: {function.__name__!r} has the parameter {unknown[0]!r}, and the pattern has "
                f"{', '.join(sorted(known))}; name one of these"
            )

    def __call__(self, match: Match, *before: Any) -> Any:
        given = {name: match if name == "match" else match.values[name] for name in self.names}
        return self.function(*before, **given)


def rule(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    condition: Callable[..., Any] | None = None,
    *,
    name: str = "",
    shared: bool = False,
) -> Rule:
    """A rule: what `pattern(op, x, ...)` writes becomes what `replacement(op, x, ...)` writes.

    Both are functions over the operators, in their newest form; a replacement may also return a parameter or a number.
    `condition(x, ...)` gets values by the names of the pattern's parameters, and says whether the rule applies. Both it
    and the replacement may ask for `match`, too. Where the replacement returns None, nothing is changed. A value inside
    of the pattern that others read forbids a match; with `shared` it stays for these, and so does what makes it.
    Raises RewriteError for a pattern that cannot match and for parameters that it does not have.
    """
    made = GraphPattern(pattern)
    function = getattr(pattern, "__name__", "")
    known = made.text if function in ("", "pattern", "<lambda>") else function
    return Rule(made, replacement, condition, name or known, shared)


def apply(
    model: Model | ModelProto | bytes | str | os.PathLike[str],
    rules: Rule | Iterable[Rule],
    prove: int | Sequence[Mapping[str, Any]] = 0,
    *,
    budget: BudgetLike = None,
) -> Changes:
    """Apply rules until none matches any more, in bodies and functions, too.

    A `ps.ir.Model` is changed in place; of a message, bytes or path, `.model` of the result is a new message. `prove`
    runs the model before and after by our evaluator: on so many random inputs, or on these.
    Raises RewriteError where a replacement is of another type than what it replaces, or rules go on for ever, and
    ProofError where the numbers differ, which names the rule.
    """
    given = [rules] if isinstance(rules, Rule) else list(rules)
    work, result = opened(model)
    before = work.to_message() if prove else None
    counts = _applied(work, given)
    changes = Changes(result(), counts)
    if before is not None and changes:
        _prove(before, work.to_message(), [item for item in given if item.name in changes], prove, budget)
    return changes


def _prove(
    before: ModelProto,
    after: ModelProto,
    rules: Sequence[Rule],
    prove: int | Sequence[Mapping[str, Any]],
    budget: BudgetLike,
) -> None:
    feeds = feeds_of(before, prove, budget)
    found = difference(before, after, feeds, budget)
    if not found:
        return
    for count in range(1, len(rules) + 1):
        work = from_message(before)
        _applied(work, rules[:count])
        if count == len(rules) or difference(before, work.to_message(), feeds, budget):
            raise ProofError(f"rule {rules[count - 1].name!r} changes the numbers: {found}; give it a condition")


def _applied(work: Model, rules: Sequence[Rule]) -> Counter[str]:
    work.infer()
    counts: Counter[str] = Counter()
    functions = {(item.domain, item.name, item.overload) for item in work.functions}
    owners: list[Graph] = [work.graph, *work.functions]
    rewriters = [
        Rewriter(rules, (owner.opsets if isinstance(owner, Function) else None) or work.opsets, functions)
        for owner in owners
    ]
    most = _FOR_A_NODE * (1 + sum(len(graph.nodes) for owner in owners for graph in owner.nested()))
    changed = True
    while changed:
        changed = False
        for owner, rewriter in zip(owners, rewriters, strict=True):
            for graph in list(owner.nested()):
                for node in graph.nodes:
                    found = rewriter.visit(node)
                    if found is None:
                        continue
                    changed = True
                    counts[found.name] += 1
                    if counts.total() > most:
                        raise RewriteError(
                            f"rule {found.name!r} still changes the model after {most} changes: its replacement has "
                            "its pattern in it, or that of a rule that undoes it; give it a condition"
                        )
    return counts


class Rewriter:
    """Applies rules at nodes of graphs that have these opsets."""

    def __init__(
        self,
        rules: Iterable[Rule],
        opsets: dict[str, int],
        functions: Iterable[tuple[str, str, str]] = (),
        read: Read = small_constant,
    ) -> None:
        """`read` gives the elements of small constants, None for other values."""
        self.opsets = opsets
        self.functions = frozenset(functions)
        self.matcher = Matcher(opsets, read)
        self.written: list[Node] = []  # by the last rule that was applied
        self._rules: dict[tuple[str, str], list[Rule]] = {}
        self._builder: Builder | None = None
        for item in rules:
            first = item.pattern.anchors[0]
            self._rules.setdefault((first.domain, first.op_type), []).append(item)

    def visit(self, node: Node) -> Rule | None:
        """Apply the first rule that matches with the node as its last one, and return it."""
        for item in self._rules.get((canonical(node.domain), node.op_type), ()):
            for match in self.matcher.matches(item.pattern, node, item.shared):
                if self.functions and any(map(self._calls_function, match.nodes)):
                    continue
                if item.allows(match) and self._apply(item, match, node):
                    return item
        return None

    def _calls_function(self, node: Node) -> bool:
        return (node.domain, node.op_type, node.overload) in self.functions

    def _apply(self, item: Rule, match: Match, node: Node) -> bool:
        place = node if len(match.outputs) == 1 else _place(match)
        if place is None:
            return False
        if self._builder is None:
            self._builder = _Writer(node.graph, self.opsets)  # type: ignore[arg-type]  # a match is in a graph
        op = self._builder.instead_of(place)
        assert isinstance(op, _Writer)
        op.written, op.constants = [], []
        try:
            made = item.made(op, match)
            results = [made] if not isinstance(made, (tuple, list)) else list(made)
            if made is not None and len(results) != len(match.outputs):
                wanted = len(match.outputs)
                raise RewriteError(f"returns {len(results)} values for {wanted} of the pattern; return as many")
            if made is None or _only_renames(results, match):
                op.undo()
                return False
            values = [
                value if isinstance(value, Value) else op.constant(value, old.dtype or None)
                for value, old in zip(results, match.outputs, strict=True)
            ]
            for value, old in zip(values, match.outputs, strict=True):
                _check_type(value, old)
        except (BuildError, RewriteError) as error:
            op.undo()
            raise RewriteError(f"rule {item.name!r}: {error}") from error
        self.written = op.written
        for made in op.written:
            if made.domain and made.domain not in self.opsets and canonical(made.domain):
                self.opsets[made.domain] = 1
        if len(op.written) == 1 and not op.written[0].name:
            op.written[0].name = node.name
        for value, old in zip(values, match.outputs, strict=True):
            _keep_type(value, old)
            op.stand_in(value, old)
        _remove(match.nodes, item.shared)
        return True


class _Writer(Builder):
    """A builder that knows what it wrote, to take it back."""

    written: list[Node]
    constants: list[Value]

    def _insert(self, node: Node) -> Node:
        self.written.append(super()._insert(node))
        return node

    def constant(self, value: Any, dtype: int | None = None, name: str = "") -> Value:
        """As of a builder."""
        self.constants.append(super().constant(value, dtype, name))
        return self.constants[-1]

    def _take_back(self, value: Value) -> None:
        if value in self.constants and value.producer is None:
            self.constants.remove(value)
            super()._take_back(value)

    def undo(self) -> None:
        """Nothing was written."""
        for node in reversed(self.written):
            if node.graph is not None:
                node.graph.nodes.remove(node)
        for value in self.constants:
            if value.producer is None and value.graph is not None:
                value.graph.remove_initializer(value)


def _only_renames(results: Sequence[Any], match: Match) -> bool:
    """Whether all that comes of it is an Identity in the place of a node."""
    if len(match.nodes) > 1:
        return False
    pairs = [(value, old) for value, old in zip(results, match.outputs, strict=False) if isinstance(value, Value)]
    return any(old.is_output and not can_take_name(value, old) for value, old in pairs)


def _place(match: Match) -> Node | None:
    """The node in front of which results that several nodes make can be made; None where there is no such place."""
    makers = {value.producer for value in match.outputs}
    graph = match.nodes[0].graph
    if graph is None:
        return None
    order = {node: place for place, node in enumerate(graph.nodes)}
    first, *_, last = sorted((node for node in makers if node in order), key=order.__getitem__) * 2
    read = [value for value in match.values.values() if isinstance(value, Value) and value.graph is graph]
    if all(value.producer is None or order[value.producer] < order[first] for value in read):
        return first
    going = set(match.nodes)
    for value in match.outputs:
        for user, _ in value.uses:
            around = user
            while isinstance(around, Node) and around.graph is not graph and around.graph is not None:
                around = around.graph.node  # type: ignore[assignment]
            if isinstance(around, Node) and around not in going and order.get(around, -1) < order[last]:
                return None
    return last


def _check_type(value: Value, old: Value) -> None:
    """Raises RewriteError where a value is known to be of another type than what it stands for."""
    mine, theirs = value.type, old.type
    if mine is None or theirs is None:
        return
    wrong = type(mine) is not type(theirs)
    if isinstance(mine, Tensor) and isinstance(theirs, Tensor):
        wrong = bool(mine.dtype and theirs.dtype and mine.dtype != theirs.dtype)
        if mine.shape is not None and theirs.shape is not None:
            pairs = list(zip(mine.shape, theirs.shape, strict=False))
            wrong |= len(mine.shape) != len(theirs.shape)
            wrong |= any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
    if wrong:
        raise RewriteError(
            f"makes {_text(mine)} of {old.name!r}, which was {_text(theirs)}; give it a condition, or cast the result"
        )


def _text(type_: Any) -> str:
    if not isinstance(type_, Tensor):
        return type(type_).__name__
    from proto_schema.tensors.dtypes import type_name

    return f"{type_name(type_.dtype).lower()}[{', '.join(map(str, type_.shape)) if type_.shape is not None else '...'}]"


def _keep_type(value: Value, old: Value) -> None:
    """What was known of a result is known of what stands for it."""
    if value.producer is None or value.tensor is not None:
        return
    mine, theirs = value.type, old.type
    known = isinstance(mine, Tensor) and bool(mine.dtype) and known_shape(mine.shape) is not None
    says_more = isinstance(theirs, Tensor) and bool(theirs.dtype) and theirs.shape is not None
    if mine is None or (says_more and not known):
        value._type = theirs


def _remove(nodes: Iterable[Node], shared: bool) -> None:
    """Remove nodes that read one another."""
    left = list(nodes)
    while left:
        kept = []
        for node in left:
            if any(value is not None and value._uses for value in node.outputs):
                kept.append(node)
            elif node.graph is not None:
                node.graph.nodes.remove(node)
        if len(kept) == len(left) and shared:
            return
        if len(kept) == len(left):
            raise RewriteError(f"{left[0]!r} is still read; this is a mistake in ps.rewrite, please report it")
        left = kept
