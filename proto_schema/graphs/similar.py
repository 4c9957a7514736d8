"""Names that somebody may have meant, for the ends of error messages, out of as many as a file has.

The comparison of two names takes their lengths multiplied, so only names that begin nearly alike are compared, and no
long ones.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable

_COMPARED = 1000
_LONGEST = 100
_LEAST = 0.3  # of 1


def similar(name: str, known: Iterable[str]) -> list[str]:
    """Up to three of the known names, the most similar first; none for a long name."""
    if len(name) > _LONGEST:
        return []
    names = sorted({other for other in known if isinstance(other, str) and len(other) <= _LONGEST})  # or no UTF-8
    middle = bisect_left(names, name)
    first = max(0, middle - _COMPARED // 2)
    return difflib.get_close_matches(name, names[first : first + _COMPARED], 3, _LEAST)


__all__ = ["similar"]
