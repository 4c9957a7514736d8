"""How far the values of a file are from what they should be: what a comparison found, for the page of `html`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Apart:
    """How far a value is from what it should be: `error` relative to the largest element, None where it is infinite.

    `close` says whether it is within the bounds, `text` has both values at the worst place, `origin` who computes it.
    """

    error: float | None
    close: bool
    text: str
    origin: str = ""


@dataclass(frozen=True)
class Errors:
    """What a comparison found: `text` is its report, `values` has the values of the main graph by name.

    `other` is what the file was compared with. `fault` is the place of the node to blame, -1 for none, and `why` the
    reason. `first` is the first wrong value, and `layers` the largest error by module.
    """

    agrees: bool
    other: str
    text: list[str]
    values: dict[str, Apart]
    layers: dict[str, float | None]
    fault: int = -1
    why: str = ""
    first: str = ""
