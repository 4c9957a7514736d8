"""What torch assumed of the dynamic sizes while it recorded the model, in the user's terms.

torch records each question about sizes that it answered, as a guard.  What follows depends on the guard:

- Sizes that must be equal become one size with one name.  If one of them is the sum of others, it becomes that sum.
- An inequality, or an equation between sizes, holds on the example's side.  A remark says so.
- An equation that no large size fulfils fixes a size that is computed from an axis.  The graph then holds a number that
  would be wrong for other sizes, so this is refused.

An operator asks about sizes of 0 and 1 only to lay out memory.  Such a question is a remark only where the model's own
code asks it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
from torch.export import ExportedProgram
from torch.utils._sympy.functions import Max, Min
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from purexport.aten.axes import Axes, Specialised, own_name
from purexport.aten.graph import Source
from purexport.errors import ExportError
from purexport.frontends.export import reader
from purexport.frontends.export.refusals import Watch
from purexport.shapes.guards import holds_at, share_of_sizes
from purexport.shapes.symbols import Symbols

_MOST = 4  # assumptions that the remark names
_LARGE = (997, 1000, 1024, 1155, 2310, 4096, 5040)  # with many divisors and without
_SMALL = range(2, 10)
_SQUARES = (1024, 4096, 2048**2)

_SIZES = (0, 1, 2, 3, 5, 8, 13, 64, 1000)
_TRIED_TOGETHER = 3

Guard = tuple[Any, str]  # an expression, and the line where it comes from


class Assumptions:
    """What torch assumed for `program`; `labels` names the declared axes of each input."""

    def __init__(
        self, program: ExportedProgram, watch: Watch, names: Sequence[str], labels: Mapping[str, Axes]
    ) -> None:
        self.watch = watch
        self.axes = [
            (name, axis, label, tensor.shape[axis])
            for name, tensor in zip(names, reader.user_tensors(program), strict=True)
            for axis, label in labels.get(name, {}).items()
        ]
        sums = _sums(watch)
        self.symbols = reader.symbols_of(program, names, labels, sums)
        self.unlabelled = Symbols(self.symbols.names, sums)
        self.bounds = self._bounds()

    def remarks(self) -> list[str]:
        """One sentence for each specialized axis, for axes that depend on others, and for all that is left.

        Raises ExportError where a size that is computed from an axis is specialized and the axis is not.
        """
        remarks = list(dict.fromkeys(self._of_axes()))
        if self.watch.free and not self.watch.small:
            remarks.append(
                "torch.export takes every dynamic size of this model to be 2 or more; for smaller ones the file may "
                "compute something else"
            )
        for condition, (holds, place) in self.watch.decided.items():
            remarks.append(
                f"the model asks at {place} whether {self._text(condition)}, for sizes that the data decides; "
                f"the file takes it that this is {'so' if holds else 'not so'}, as it is for all but the smallest sizes"
            )
        found = list(self._open())
        for expression, line in found:
            if _fixes(expression):
                raise ExportError(
                    "torch.export makes a size static that follows from a dynamic axis: "
                    f"{self._text(expression)}{line}; "
                    "compute it by torch operators from x.shape, or declare the axis static",
                    code="dynamic-axis-held",
                )
        said = [f"{self._text(expression)}{line}" for expression, line in _without_implied(found)]
        if said:
            more = f" and {len(said) - _MOST} more" if len(said) > _MOST else ""
            remarks.append(
                f"torch.export holds that {'; '.join(said[:_MOST])}{more}; for sizes where it does not hold, the file "
                "may compute something else"
            )
        return remarks

    def _of_axes(self) -> Iterator[str]:
        seen: dict[Any, str] = {}
        for name, axis, label, size in self.axes:
            expression = sympy.Integer(size) if isinstance(size, int) else self.symbols.expression(size)
            if expression.is_Integer:
                yield str(Specialised(label, int(expression), str(self.watch.place(name, axis))))
                continue
            first = seen.setdefault(expression, label)
            taken = self.unlabelled.text(expression)
            if first != label:
                yield f"axes {first!r} and {label!r} were declared apart, and the model takes them for one size"
            elif not expression.is_Symbol and taken != label != own_name(name, axis):
                yield f"axis {label!r} was declared apart, and the model takes it for {taken}"

    def _open(self) -> Iterator[Guard]:
        """The guards that not all sizes fulfil which were declared, each once."""
        found: dict[Any, str] = {}
        for guard, asked in _guards(self.watch):
            expression = guard.expr.xreplace(self.symbols.sizes)
            ranges = {symbol: self._range(symbol, 0 if asked else 2) for symbol in expression.free_symbols}
            if ranges and not _always(expression, ranges):
                for part in _parts(expression):
                    found.setdefault(part, _line(guard))
        yield from found.items()

    def _text(self, expression: Any) -> str:
        relation = {"Eq": "==", "Ne": "!="}.get(type(expression).__name__, getattr(expression, "rel_op", ""))
        if not relation or not isinstance(expression, sympy.core.relational.Relational):
            return self.symbols.text(expression)
        return f"{self.symbols.text(expression.lhs)} {relation} {self.symbols.text(expression.rhs)}"

    def _bounds(self) -> dict[Any, Any]:
        """The declared range of each free size."""
        relations = {relation.place: relation for relation in self.watch.relations}
        found: dict[Any, Any] = {}
        for name, axis, _, size in self.axes:
            relation = relations.get((name, axis))
            if relation is not None and not isinstance(size, int):
                high = int_oo if relation.high is None else relation.high
                own = ValueRanges(relation.low, high)
                expression = self.symbols.expression(size)
                found[expression] = found.get(expression, own) & own
        return found

    def _range(self, symbol: Any, least: int) -> Any:
        return self.bounds.get(symbol, ValueRanges(0, int_oo)) & ValueRanges(least, int_oo)


def _guards(watch: Watch) -> Iterator[tuple[Any, bool]]:
    """The guards that concern sizes which are still free, and whether the model's own code asked for them."""
    if watch.shapes is None:
        return
    for place, guard in enumerate(watch.shapes.guards):
        expression = guard.expr.xreplace(watch.shapes.replacements)
        if place >= watch.declared and expression.free_symbols:
            yield guard._replace(expr=expression), place in watch.asked


def _parts(expression: Any) -> list[Any]:
    """Several plain ones in its place: no factor of a product is 0, and the least of some sizes is below the others."""
    if isinstance(expression, sympy.Ne) and 0 in expression.args:
        product = expression.lhs + expression.rhs
        factors = [factor for factor in sympy.Mul.make_args(product) if factor.free_symbols]
        return [sympy.Ne(factor, 0) for factor in factors]
    if isinstance(expression, sympy.Eq):
        for size, least in (expression.args, expression.args[::-1]):
            if isinstance(least, Min) and size in least.args:
                bounds = [sympy.Le(size, other) for other in least.args if other != size]
                return [bound for bound in bounds if bound != sympy.true]
    return [expression]


def _always(expression: Any, ranges: dict[Any, Any]) -> bool:
    """Whether an assumption holds for all sizes in these ranges.

    Bounds do not show that for minima and maxima.  Those are linear between a few edges, so many sizes are tried.
    """
    found = bound_sympy(expression, ranges)
    if found.is_singleton():
        return bool(found.lower == sympy.true)
    if not expression.has(Min, Max) or len(ranges) > _TRIED_TOGETHER:
        return False
    tried = ([size for size in _SIZES if range_.lower <= size <= range_.upper] for range_ in ranges.values())
    return all(holds_at(expression, dict(zip(ranges, sizes, strict=True))) for sizes in itertools.product(*tried))


def _without_implied(found: Sequence[Guard]) -> Iterator[Guard]:
    kept: list[Any] = []
    for expression, line in found:
        if len(expression.free_symbols) == 1 and share_of_sizes(expression, kept) == 1:
            continue
        kept.append(expression)
        yield expression, line


def _fixes(expression: Any) -> bool:
    """Whether an assumption is an equation with a number that neither large sizes nor most small ones fulfil."""
    if not isinstance(expression, sympy.Eq) or (expression.lhs.free_symbols and expression.rhs.free_symbols):
        return False
    symbols = sorted(expression.free_symbols, key=str)
    difference = _linear(expression.lhs - expression.rhs)
    if difference is not None:
        signs = {coefficient > 0 for term, coefficient in difference.items() if term != 1}
        return len(signs) == 1
    shifted = (itertools.islice(itertools.cycle(_LARGE), shift, shift + len(symbols)) for shift in range(len(_LARGE)))
    equal = ((size,) * len(symbols) for size in (*_LARGE, *_SQUARES))
    if any(holds_at(expression, dict(zip(symbols, sizes, strict=True))) for sizes in (*equal, *shifted)):
        return False
    # a table of positions takes all sizes up to its own
    return sum(holds_at(expression, dict.fromkeys(symbols, size)) for size in _SMALL) < len(_SMALL) // 2


# Sums -----------------------------------------------------------------------------------------------------------------


def _sums(watch: Watch) -> dict[Any, Any]:
    """The sizes that must be the sum of others, as torch found out: by an equation or by two inequalities."""
    if watch.shapes is None:
        return {}
    bounds: set[Any] = set()
    equal = [symbol - value for symbol, value in watch.shapes.replacements.items() if not value.is_Symbol]
    for guard, _ in _guards(watch):
        expression = guard.expr
        if not isinstance(expression, sympy.core.relational.Relational):
            continue
        difference = sympy.expand(expression.lhs - expression.rhs)
        if isinstance(expression, sympy.Eq):
            equal.append(difference)
        elif isinstance(expression, (sympy.Le, sympy.Ge)):
            difference = difference if isinstance(expression, sympy.Le) else -difference
            if -difference in bounds:
                equal.append(difference)
            bounds.add(difference)
    found: dict[Any, Any] = {}
    for difference in equal:
        solved = _solved(sympy.expand(difference.xreplace(found)))
        if solved is not None:
            symbol, value = solved
            found = {other: size.xreplace({symbol: value}) for other, size in found.items()}
            found[symbol] = value
    return found


def _solved(difference: Any) -> tuple[Any, Any] | None:
    """The symbol in an equation `difference == 0` that is a sum of the others, and the sum."""
    terms = _linear(difference) or {}
    for symbol, coefficient in terms.items():
        if symbol == 1 or abs(coefficient) != 1:
            continue
        others = {term: -coefficient * other for term, other in terms.items() if term != symbol}
        if others and all(other > 0 for other in others.values()):
            return symbol, sum(term * other for term, other in others.items())
    return None


def _linear(expression: Any) -> dict[Any, int] | None:
    """The coefficients of a sum of symbols and a number; None for any other expression."""
    terms = sympy.expand(expression).as_coefficients_dict()
    plain = all((term == 1 or term.is_Symbol) and factor.is_Integer for term, factor in terms.items())
    return {term: int(factor) for term, factor in terms.items()} if plain else None


def _line(guard: Any) -> str:
    """The line of a guard that comes from the user's own Python code; torch does not keep the line of other guards."""
    frame = guard.sloc.framework_loc
    path = getattr(frame, "filename", "")
    line = Source("", lambda: [(path, frame.lineno)]).line if path and not re.search(r"[/\\]torch[/\\]", path) else ""
    return f" at {line}" if line else ""
