"""Reads the JSON of a checkpoint's header, index or config strictly: repeated keys, NaN and deep nesting are refused.

What json makes of a byte takes less than the RATE of `budget`, whatever the byte is: an empty object has two bytes.
"""

from __future__ import annotations

import json
from typing import Any

from purexport.weights.stored import CheckpointFile, shown


def parsed(file: CheckpointFile, data: bytes, what: str, advice: str) -> dict[str, Any]:
    """The JSON object in `data`; `what` names that part of the file. WeightsError with `advice` if it is none."""
    try:
        found = json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise file.error(f"{what} is nested too deeply; {advice}") from None
    except ValueError as error:
        raise file.error(f"{what} is not the JSON of the format: {error}; {advice}") from None
    if not isinstance(found, dict):
        raise file.error(f"{what} is not a JSON object; {advice}")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shown(twice)} comes twice")
    return found


def _constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")
