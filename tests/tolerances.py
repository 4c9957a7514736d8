"""How far a result may be from torch's: one table by dtype, for the tests and for the random programs of `fuzz`.

A bound is relative and absolute, as numpy takes them: |found - wanted| <= absolute + relative * |wanted|.  Each row is
some units in the last place of its dtype, and far below the rounding of the next lower one, so that a result computed
in float32 and called float64 is refused.  Integers and booleans are equal.

A wider bound says why, in words: `Bounds(rtol=1e-2, loose="...")` raises ValueError without them.  A narrower one may
stand alone.  The table is by the names that torch, numpy and ml_dtypes share, so neither is imported for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# relative, absolute
TABLE: dict[str, tuple[float, float]] = {
    "float64": (1e-9, 1e-12),
    "float32": (2e-5, 2e-6),
    "float16": (2e-3, 2e-3),
    "bfloat16": (2e-2, 2e-2),
    # two units in the last place; below the smallest normal number two steps
    "float8_e4m3fn": (2**-2, 2**-8),
    "float8_e4m3fnuz": (2**-2, 2**-9),
    "float8_e5m2": (2**-1, 2**-15),
    "float8_e5m2fnuz": (2**-1, 2**-16),
}
# a complex number is compared by its distance, or as two numbers of its part's dtype
TABLE |= {"complex128": TABLE["float64"], "complex64": TABLE["float32"], "complex32": TABLE["float16"]}


@dataclass(frozen=True)
class Bounds:
    """The table's bounds, or others: `rtol` and `atol` for any floating dtype, or `times` those of the table.

    loose   why they may be wider than the table's: which rounding, and whose
    """

    rtol: float | None = None
    atol: float | None = None
    times: float = 1.0
    loose: str = ""

    def __post_init__(self) -> None:
        if self.loose and (self.rtol, self.atol, self.times) == (None, None, 1.0):
            raise ValueError(f"a reason for bounds that are the table's: {self.loose!r}; leave it out")

    def of(self, dtype: Any) -> tuple[float, float]:
        """(relative, absolute) for a dtype of torch or numpy, or its name; zeros for integers and booleans.

        Raises ValueError where they are wider than the table's and no reason is given, KeyError for a dtype without
        a row.
        """
        name = name_of(dtype)
        if name.startswith(("bool", "int", "uint")):
            return 0.0, 0.0
        if name not in TABLE:
            raise KeyError(f"no tolerance for {name}; add a row to TABLE in tests/tolerances.py")
        relative, absolute = (number * self.times for number in TABLE[name])
        found = (relative if self.rtol is None else self.rtol, absolute if self.atol is None else self.atol)
        wider = any(mine > usual for mine, usual in zip(found, TABLE[name], strict=True))
        if wider and not self.loose:
            raise ValueError(
                f"rtol={found[0]:g}, atol={found[1]:g} is wider than {TABLE[name]}, the table's for {name}, without a "
                f"reason; say loose='...', or mend what is inexact"
            )
        return found


USUAL = Bounds()
EXACT = Bounds(rtol=0.0, atol=0.0)
CHAIN = Bounds(times=5, loose="a chain of operations: each rounds in its own way, and the errors add up")


def name_of(dtype: Any) -> str:
    """The name of a dtype: "float64" of torch.float64, numpy's or its own name."""
    return getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")


def assert_near(found: Any, wanted: Any, bounds: Bounds = USUAL, where: str = "") -> None:
    """AssertionError unless two tensors or arrays have one dtype and shape, and values within the bounds of it.

    NaN is equal to NaN, and an infinity to itself only.  `where` is put into the message.
    """
    one, other = (_array(value) for value in (found, wanted))
    names = name_of(getattr(found, "dtype", one.dtype)), name_of(getattr(wanted, "dtype", other.dtype))
    assert names[0] == names[1], f"{where}: dtype {names[0]}, and {names[1]} is wanted"
    assert one.shape == other.shape, f"{where}: shape {one.shape}, and {other.shape} is wanted"
    relative, absolute = bounds.of(names[1])
    if other.dtype.kind in "biu":  # numpy's bounds are floats, which do not hold every int64
        np.testing.assert_array_equal(one, other, err_msg=where)
        return
    np.testing.assert_allclose(one, other, rtol=relative, atol=absolute, equal_nan=True, err_msg=where)


def _array(value: Any) -> np.ndarray[Any, Any]:
    """An array in which numpy computes the bound itself without rounding: floating point numbers as float64."""
    if hasattr(value, "detach"):
        tensor = value.detach().cpu().resolve_conj().resolve_neg()
        value = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    array = np.asarray(value)
    return array if array.dtype.kind in "biuc" else array.astype(np.float64)
