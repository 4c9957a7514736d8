"""How far two tensors are apart, and whether that is too far.

The outputs are held to the bounds of `verify`, element by element.  A value inside of the network is a sum whose terms
may cancel, so its bound also grows with the largest element of the tensor: a tenth of `rtol` of that.  What stands for
minus infinity in a mask does not count as such.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from purexport.runtime.sessions import as_real
from purexport.runtime.verification import Tolerance

_OF_LARGEST = 0.1
_INFINITE = 1e20


@dataclass(frozen=True)
class TensorDifference:
    """Two tensors side by side: the worst place with both values, the error, and whether it is within the bounds.

    `error` is the largest difference, relative to the largest element of torch's tensor.  `odd` has both dtypes or
    shapes where these differ, and then nothing else is known.
    """

    close: bool
    error: float = 0.0
    wrong: int = 0
    elements: int = 0
    place: tuple[int, ...] = ()
    mine: Any = None
    theirs: Any = None
    odd: tuple[str, str] | None = None

    def against(self, other: str) -> str:
        """In words; `other` is what the file is compared with."""
        if self.odd:
            return f"{self.odd[0]} in the file, {self.odd[1]} in {other}"
        at = f"at {self.place}: " if self.place else ""
        both = f"{at}{self.mine} in the file, {self.theirs} in {other}"
        return both if self.elements == 1 else f"{both}; {self.wrong} of {self.elements} elements differ"


def difference(
    mine: torch.Tensor, theirs: torch.Tensor, bounds: Tolerance, *, inside: bool = False
) -> TensorDifference:
    """How far `mine` is from `theirs`; `inside` for a value that is no output."""
    theirs = as_real(theirs).detach().cpu()
    if mine.dtype != theirs.dtype and not (mine.dtype == torch.float32 and theirs.dtype.is_floating_point):
        return TensorDifference(False, float("inf"), odd=(_name(mine.dtype), _name(theirs.dtype)))
    if mine.shape != theirs.shape:
        return TensorDifference(False, float("inf"), odd=(f"shape {list(mine.shape)}", str(list(theirs.shape))))
    if not mine.numel():
        return TensorDifference(True)
    wide, other = mine.double(), theirs.double()
    apart = (wide - other).abs()
    apart[(wide == other) | (wide.isnan() & other.isnan())] = 0
    apart = apart.nan_to_num(nan=float("inf"))
    finite = other[other.abs() < _INFINITE]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    close = bounds.close(mine, theirs)
    if inside and theirs.dtype.is_floating_point:
        close = close | (apart <= _OF_LARGEST * bounds.rtol * largest)
    worst = int(apart.argmax())
    place = tuple(int(at) for at in torch.unravel_index(torch.tensor(worst), apart.shape)) if apart.dim() else ()
    most = float(apart.flatten()[worst])
    error = 0.0 if most == 0 else most / largest if largest else float("inf")
    found = bool(close.all())
    return TensorDifference(
        found, error, int((~close).sum()), close.numel(), place, mine[place].item(), theirs[place].item()
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
