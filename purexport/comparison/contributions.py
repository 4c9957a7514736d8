"""How much each part of a file departs from the reference by itself: what its inputs explain is taken off.

The values that both sides have cut the file into parts.  Each part is computed alone by our evaluator, on the
reference's values, and its result is compared with the reference's.  So an error that merely passes through a part is
none of that part, and a small one at its origin stands out from rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from purexport.comparison.closeness import TensorDifference, difference
from purexport.comparison.evidence import Evidence, Judged
from purexport.comparison.file_values import evaluated, part_of
from purexport.runtime.sessions import as_real

_STANDS_OUT = 4.0  # times the next largest
_ROUNDING = 16.0  # steps of the dtype at the largest element


@dataclass(frozen=True)
class Contribution:
    """The part of the file that makes one value, and how far its own result is from the reference's.

    `nodes` are the places of the part's nodes.
    """

    judged: Judged
    difference: TensorDifference
    nodes: tuple[int, ...]

    @property
    def error(self) -> float:
        """The largest difference, relative to the largest element."""
        return self.difference.error

    @property
    def is_too_far(self) -> bool:
        """Whether it is beyond the bounds, and more than rounding."""
        return too_far(self.difference, self.judged.anchor.tensor)


def too_far(apart: TensorDifference, tensor: torch.Tensor) -> bool:
    """Whether a difference from `tensor` is beyond the bounds, and more than rounding, which bounds may be below."""
    return not apart.close and apart.error > rounding_of(tensor)


def rounding_of(tensor: torch.Tensor) -> float:
    """What rounding may do to a tensor, relative to its largest element."""
    return _ROUNDING * torch.finfo(tensor.dtype).eps if tensor.dtype.is_floating_point else 0.0


def contributions(evidence: Evidence, judged: Sequence[Judged], names: Sequence[str]) -> list[Contribution]:
    """Of all values that `names` follow from, themselves included, in the order of the file.

    A part that our evaluator does not compute is left out.
    """
    reference = _reference(evidence)
    behind = set(evidence.behind(names))
    found = []
    for item in judged:
        if item.place not in behind:
            continue
        nodes = evidence.behind([item.name], frozenset(reference) - {item.name})
        made = _computed(evidence, nodes, reference, item.name)
        if made is not None:
            apart = difference(made, item.anchor.tensor, evidence.bounds, inside=True)
            found.append(Contribution(item, apart, tuple(nodes)))
    return found


def most(found: Sequence[Contribution]) -> Contribution | None:
    """The first part that is too far off by itself, else the one that stands out from all others; None without one."""
    first = next((item for item in found if item.is_too_far), None)
    if first is not None or not found:
        return first
    largest, *others = sorted(found, key=lambda item: item.error, reverse=True)
    next_largest = others[0].error if others else 0.0
    rounding = rounding_of(largest.judged.anchor.tensor)
    return largest if largest.error > max(_STANDS_OUT * next_largest, rounding) else None


def on_reference(evidence: Evidence, name: str) -> torch.Tensor | None:
    """A value as it follows from the reference's values: the reference's own, or computed from them; else None."""
    reference = _reference(evidence)
    if name in reference:
        return reference[name]
    return _computed(evidence, evidence.behind([name], frozenset(reference)), reference, name)


def _reference(evidence: Evidence) -> Mapping[str, torch.Tensor]:
    """The reference's values in the types of the file's, the inputs of the model among them."""
    inputs = [item.name or "" for item in evidence.file.graph.input]
    values = evidence.found.values
    found = {name: values[name] for name in inputs if name in values}
    for name, anchor in evidence.anchors.items():
        if name in evidence.makers and not anchor.tensor.is_complex():
            tensor = as_real(anchor.tensor).detach().cpu()
            mine = values.get(name)
            found[name] = tensor if mine is None else tensor.to(mine.dtype)
    return found


def _computed(
    evidence: Evidence, nodes: Sequence[int], reference: Mapping[str, torch.Tensor], name: str
) -> torch.Tensor | None:
    made = part_of(
        evidence.file, [evidence.file.graph.node[place] for place in nodes], reference, evidence.constants, [name]
    )
    if isinstance(made, str):
        return None
    part, feed = made
    return evaluated(part, feed, budget=evidence.budget).values.get(name)
