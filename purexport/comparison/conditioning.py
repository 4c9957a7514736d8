"""Whether a difference is what rounding explains: how far the results move when the inputs move by one unit.

Two programs that round in another order compute the exact results of inputs that are a few units in the last place
apart.  Where a file makes much of so little (a recurrent model near a threshold, a sum whose terms cancel), its results
may differ by more than the usual bounds, and neither side is wrong.  So each element has a bound of its own: what it
moves where each input is a unit in the last place away, up or down at random.  An element that does not move so has
none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from purexport.comparison.evidence import Evidence
from purexport.comparison.file_values import outputs_of
from purexport.runtime.sessions import as_real

_DRAWS = 8
_UNITS = 4.0  # of the inputs, for which the arithmetic of a runtime counts
_DTYPES = (torch.float32, torch.float64)


def explained(evidence: Evidence, feed: Mapping[str, torch.Tensor], expected: Sequence[torch.Tensor]) -> float | None:
    """How far the outputs are apart at most where they are too far, as a multiple of what they move.

    None where rounding does not explain one of the elements, where no input can move, or where the file does not run.
    """
    if not any(tensor.dtype in _DTYPES and tensor.numel() for tensor in feed.values()):
        return None
    file, budget = evidence.file, evidence.budget
    names = [item.name or "" for item in file.graph.output]
    first = outputs_of(file, feed, budget=budget).values
    draw = torch.Generator().manual_seed(0)
    beside = [{name: _beside(tensor, draw) for name, tensor in feed.items()} for _ in range(_DRAWS)]
    others = [outputs_of(file, given, budget=budget).values for given in beside]
    worst = 0.0
    for name, tensor in zip(names, expected, strict=False):
        theirs, mine = as_real(tensor).detach().cpu(), first.get(name)
        if mine is None or mine.shape != theirs.shape:
            return None
        far = ~evidence.bounds.close(mine, theirs)
        if not bool(far.any()):
            continue
        if not all(name in made and made[name].shape == mine.shape for made in others):
            return None
        steps = torch.stack([(made[name].double() - mine.double()).abs()[far] for made in others])
        ratios = (mine.double() - theirs.double()).abs()[far] / steps.nan_to_num(nan=0.0, posinf=0.0).amax(0)
        if not mine.is_floating_point() or not bool((ratios <= _UNITS).all()):  # not so of a NaN
            return None
        worst = max(worst, float(ratios.max()))
    return worst


def _beside(tensor: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """Each element one unit in the last place away, up or down; another type, and an infinity, stay as they are."""
    if tensor.dtype not in _DTYPES:
        return tensor
    up = torch.rand(tensor.shape, generator=draw) < 0.5
    infinite = torch.full_like(tensor, float("inf"))
    made = torch.nextafter(tensor, torch.where(up, infinite, -infinite))
    return torch.where(tensor.isfinite() & made.isfinite(), made, tensor)
