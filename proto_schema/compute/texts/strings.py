"""Rows of strings, and of counts of n-grams.

RE2's patterns are matched by `regex`, whose time is bounded as RE2's is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from proto_schema.budget import Cost
from proto_schema.compute.call import Array, Call
from proto_schema.compute.costs import TEXT, WIDE, characters, elements, pieces, weight
from proto_schema.compute.rows import row
from proto_schema.compute.texts.regex import Pattern, PatternError

__all__ = ["mapped", "texts"]


def texts(values: Sequence[Any]) -> list[str]:
    """Strings of an attribute."""
    return [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in values]


def mapped(function: Callable[[Any], Any], values: Array, dtype: Any) -> Array:
    """A function over all elements."""
    result = np.empty(values.size, dtype)
    result[:] = [function(item) for item in values.ravel().tolist()]
    return result.reshape(values.shape)


def _joined_cost(call: Call, one: Array, other: Array) -> Cost:
    """Each text is in the result as often as it is broadcast."""
    count = elements([one, other])
    letters = sum(characters(item) * (count // max(1, item.size)) for item in (one, other))
    return Cost(100 * count + letters, 4 * letters + 2 * TEXT * count, 4 * WIDE * count)


def _split_cost(call: Call, data: Array) -> Cost:
    """All texts have as many pieces as the one with most of them."""
    delimiter = call.text("delimiter") or None
    items = data.reshape(-1).tolist()
    counts = [item.count(delimiter) + 1 if delimiter else len(item) // 2 + 1 for item in items]
    whole = data.size * max(counts, default=0)
    work = 20 * whole + pieces(data.size) + 200 * sum(counts)
    return Cost(work, WIDE * (whole + data.size) + 2 * TEXT * sum(counts) + 4 * characters(data), 2 * weight(data))


def _words_cost(call: Call, data: Array) -> Cost:
    stops = call.attribute("stopwords") or ()
    held = 4 * weight(data) + sum(map(len, stops)) + TEXT * len(stops)
    return Cost(10 * held + pieces(data.size), held, held)


def _match_cost(call: Call, data: Array) -> Cost:
    """Each character is compared with all states that are reached."""
    states = len(_pattern(call).code)
    return Cost(500 * states * (characters(data) + data.size), data.size, 512 * states + WIDE * data.size)


def _grams_cost(call: Call, data: Array) -> Cost:
    """Of length n there are at most items / (n - 1) steps that fit."""
    columns = max([-1, *(call.attribute("ngram_indexes") or ())]) + 1
    rows = data.reshape(1, -1) if data.ndim < 2 else data
    items = prod(rows.shape[1:])
    shortest, longest = max(1, call.attribute("min_gram_length")), min(call.attribute("max_gram_length"), items)
    skips = max(0, call.attribute("max_skip_count"))
    lengths = range(shortest, longest + 1)
    found = sum(items * length * min(skips + 1, items // max(1, length - 1)) for length in lengths)
    pool = sum(len(call.attribute(name) or ()) for name in ("pool_int64s", "pool_strings", "ngram_indexes"))
    scratch = 4 * (len(rows) + 2) * columns + TEXT * found + 200 * pool + TEXT * rows.size
    return Cost(len(rows) * (100 * found + columns) + pieces(pool), 4 * len(rows) * columns, scratch)


@row("StringConcat", cost=_joined_cost)
def string_concat(call: Call, one: Array, other: Array) -> Array:
    """Each pair of strings joined, with broadcasting."""
    return np.asarray(np.add(one.astype(object), other.astype(object)), dtype=object)


@row("StringSplit", cost=_split_cost)
def string_split(call: Call, data: Array) -> tuple[Array, Array]:
    """The pieces of each string along a new last axis, filled up with empty strings, and how many they are."""
    delimiter, most = call.text("delimiter") or None, call.attribute("maxsplit")
    items = data.ravel().tolist() if delimiter else [item.strip() for item in data.ravel().tolist()]
    pieces = [item.split(delimiter, -1 if most is None else most) for item in items]
    longest = max(map(len, pieces), default=0)
    result = np.full((data.size, longest), "", object)
    for place, found in enumerate(pieces):
        result[place, : len(found)] = found
    counts = np.array([len(found) for found in pieces], np.int64)
    return result.reshape(*data.shape, longest), counts.reshape(data.shape)


@row("StringNormalizer", cost=_words_cost)
def string_normalizer(call: Call, data: Array) -> Array:
    """The words of (C) or (1, C) without stop words, in the case that is asked for; one empty word if none is left."""
    if data.ndim not in (1, 2) or (data.ndim == 2 and data.shape[0] != 1):
        call.fail(f"the data has shape {data.shape}, and must have [C] or [1, C]")
    sensitive = bool(call.attribute("is_case_sensitive", 0))
    stops = set(texts(call.attribute("stopwords") or ()))
    if not sensitive:
        stops = {word.lower() for word in stops}
    words = [word for word in data.ravel().tolist() if (word if sensitive else word.lower()) not in stops]
    action = call.text("case_change_action", "NONE")
    if action not in ("LOWER", "UPPER", "NONE"):
        call.fail(f"case_change_action is {action!r}, and may be LOWER, UPPER or NONE")
    words = [word.lower() if action == "LOWER" else word.upper() if action == "UPPER" else word for word in words]
    result = np.array(words or [""], object)
    return result.reshape(1, -1) if data.ndim == 2 else result


@row("RegexFullMatch", cost=_match_cost)
def regex_full_match(call: Call, data: Array) -> Array:
    """Whether the whole string matches the pattern."""
    return mapped(_pattern(call).matches, data, np.bool_)


def _pattern(call: Call) -> Pattern:
    text = call.text("pattern")
    try:
        return Pattern(text)
    except PatternError as error:
        call.fail(f"the pattern {text!r} cannot be used: {error}")


@row("TfIdfVectorizer", cost=_grams_cost)
def tf_idf(call: Call, data: Array) -> Array:
    """How often each n-gram of the pool is in a row, where up to `max_skip_count` items may lie between its items."""
    pool: Sequence[Any] = call.attribute("pool_int64s") or texts(call.attribute("pool_strings") or ())
    starts, columns = call.attribute("ngram_counts"), call.attribute("ngram_indexes")
    grams: dict[tuple[Any, ...], int] = {}
    place = 0
    for length, start in enumerate(starts, 1):
        stop = starts[length] if length < len(starts) else len(pool)
        for at in range(start, stop, length):
            grams[tuple(pool[at : at + length])] = place
            place += 1
    if place != len(columns):
        call.fail(f"the pool holds {place} n-grams, and ngram_indexes has {len(columns)} numbers")
    rows = data.reshape(1, -1) if data.ndim < 2 else data
    counts = np.zeros((len(rows), max(columns, default=-1) + 1), np.float32)
    weights = np.ones_like(counts[0])
    for column, factor in zip(columns, call.attribute("weights") or (), strict=False):
        weights[column] = factor
    for at, items in enumerate(rows.tolist()):
        for found in _grams(call, items):
            if found in grams:
                counts[at, columns[grams[found]]] += 1
    mode = call.text("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        call.fail(f"mode is {mode!r}, and may be TF, IDF or TFIDF")
    if mode != "TF":
        counts = (counts if mode == "TFIDF" else np.minimum(counts, 1)) * weights
    return counts[0] if data.ndim < 2 else counts


def _grams(call: Call, items: list[Any]) -> list[tuple[Any, ...]]:
    """All n-grams of a row. A single item has nothing in between, and counts once."""
    shortest, longest = call.attribute("min_gram_length"), call.attribute("max_gram_length")
    found = []
    for length in range(shortest, min(longest, len(items)) + 1):
        for step in range(1, (call.attribute("max_skip_count") if length > 1 else 0) + 2):
            reach = (length - 1) * step
            if reach >= len(items):
                break
            found += [tuple(items[at : at + reach + 1 : step]) for at in range(len(items) - reach)]
    return found
