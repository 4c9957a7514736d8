"""Decisions that Python made from sizes while a model was traced: which may be others at sizes that were not tried.

A decision is in doubt unless both answers were seen with the same calls, or sizes of all magnitudes give one answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from purexport.frontends.trace.shape_plan import ShapePlan
from purexport.frontends.trace.torchscript import Decision


def in_doubt(
    made: Sequence[Decision],
    harmless: Collection[int],
    plan: ShapePlan | None,
    shapes: Iterable[Sequence[Sequence[int]]],
) -> Iterator[str]:
    """The lines of decisions whose answers may change with an effect, in order.

    `harmless` are the places of those that changed without one.  `plan` computes the answers at other shapes of the
    inputs; None where they do not follow from shapes alone.
    """
    rows = [] if plan is None else [plan.at([tuple(shape) for shape in row]) for row in shapes]
    for decision in made:
        answers = [row[decision.place] for row in rows if decision.place < len(row)]
        is_constant = bool(answers) and all(answer == decision.value for answer in answers)
        if decision.place not in harmless and not is_constant:
            yield decision.line
