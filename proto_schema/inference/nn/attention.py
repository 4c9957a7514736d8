"""Rows of attention.

Heads are an axis of their own in inputs of rank 4: (batch, heads, length, size of a head).  In inputs of rank 3 they
are packed into the last axis: (batch, length, heads * size), and attributes say how many there are.  The rows unpack
them first.
"""

from __future__ import annotations

from proto_schema.inference.rows import row
from proto_schema.inference.site import Outputs, Site
from proto_schema.inference.types import Shape, Type
from proto_schema.sizes import Dim
from proto_schema.sizes.size import equals


def _unpacked(site: Site, place: int) -> Shape:
    """The shape of an input with the heads as an axis; None for an unknown rank."""
    shape = site.shape(place)
    name = site.schema.inputs[place].name
    if shape is None or len(shape) == 4:
        return shape
    if len(shape) != 3:
        site.fail(f"input {name!r} has rank {len(shape)}, and {site.schema.name} takes rank 3 or 4")
    batch, length, width = shape
    attribute = "kv_num_heads" if place else "q_num_heads"
    heads = site.attribute(attribute)
    if not heads:
        return (batch, site.fresh(), length, site.fresh())
    if isinstance(width, int) and width % heads:
        site.fail(f"the last size of input {name!r} is {width}, which is not a multiple of {attribute} {heads}")
    return (batch, heads, length, width // heads)


def _first(site: Site, *sources: tuple[Shape, int]) -> Dim:
    """The size of an axis of the first shape that is known; a fresh one where none is."""
    for shape, axis in sources:
        if shape is not None:
            return shape[axis]
    return site.fresh()


@row("Attention")
def attention(site: Site) -> Outputs:
    """The query's shape with the values' size of a head; the keys and values with the past before them; the scores."""
    query, key, value = (_unpacked(site, place) for place in range(3))
    _check_cache(site)
    past_key, past_value = site.shape_of_rank(4, 4), site.shape_of_rank(5, 4)
    _check(site, query, key, value)
    _check_past(site, key, past_key, "key")
    _check_past(site, value, past_value, "value")
    total = _total(site, key if key is not None else value, past_key if past_key is not None else past_value)
    batch = _first(site, (query, 0), (key, 0), (value, 0), (past_key, 0), (past_value, 0))
    heads = _first(site, (key, 1), (value, 1), (past_key, 1), (past_value, 1))
    key_size = _first(site, (key, 3), (past_key, 3), (query, 3))
    value_size = _first(site, (value, 3), (past_value, 3))
    query_heads, length = _first(site, (query, 1)), _first(site, (query, 2))
    made: Shape = None
    if query is not None:
        packed = site.rank(0) == 3
        width = query_heads * value_size
        made = (batch, length, width) if packed else (batch, query_heads, length, value_size)
    return [
        site.out(made),
        site.out((batch, heads, total, key_size)),
        site.out((batch, heads, total, value_size)),
        site.out((batch, query_heads, length, total)),
    ]


_CACHE_IS_CHECKED = 25


def _check_cache(site: Site) -> None:
    if site.version < _CACHE_IS_CHECKED:
        return
    if site.has(4) != site.has(5):
        site.fail("past_key and past_value are given together, and one of them is missing")
    if site.outputs == 2:
        site.fail("present_key and present_value are made together, and the second one is missing")
    if site.has(4) and site.has(6):
        site.fail("nonpad_kv_seqlen is of a cache outside, and past_key and past_value are of one inside: give one")
    if site.rank(0) == 4 and (site.attribute("q_num_heads") or site.attribute("kv_num_heads")):
        site.fail("q_num_heads and kv_num_heads are for inputs of rank 3, and these have rank 4")
    for name in ("left_window_size", "right_window_size"):
        size = site.attribute(name, -1)
        if size < -1:
            site.fail(f"{name} is {size}, and must be -1 (no bound) or more")


def _check(site: Site, query: Shape, key: Shape, value: Shape) -> None:
    if query is not None and key is not None:
        site.same(query[0], key[0], "the batches of query and key")
        site.same(query[3], key[3], "the sizes of a head of query and key")
        many, few = query[1], key[1]
        if isinstance(many, int) and isinstance(few, int) and (few == 0 or many % few):
            site.fail(f"{many} heads of the query are not a multiple of {few} heads of the key")
    if key is not None and value is not None:
        for axis, what in enumerate(("batches", "heads", "lengths")):
            site.same(key[axis], value[axis], f"the {what} of key and value")


def _check_past(site: Site, now: Shape, past: Shape, name: str) -> None:
    if now is not None and past is not None:
        for axis, what in ((0, "batches"), (1, "heads"), (3, "sizes of a head")):
            site.same(now[axis], past[axis], f"the {what} of {name} and past {name}")


def _total(site: Site, now: Shape, past: Shape) -> Dim:
    """The length of the keys with the past."""
    if now is None or (past is None and site.has(4)):
        return site.fresh()
    return now[2] if past is None else past[2] + now[2]


@row("FlexAttention", domain="ai.onnx.preview")
def flex_attention(site: Site) -> Type | None:
    """The query's shape with the values' size of a head."""
    query, key, value = (site.shape_of_rank(place, 4) for place in range(3))
    _check(site, query, key, value)
    left = query[:3] if query is not None else (_first(site, (key, 0), (value, 0)), *site.unknown(2))
    return site.out((*left, _first(site, (value, 3))))


@row("LinearAttention")
def linear_attention(site: Site) -> Outputs:
    """(batch, length, heads * size of a value), and the state (batch, heads of the key, size of a key, of a value)."""
    for place in range(3):
        site.shape_of_rank(place, 3)
    query_heads, heads = site.attribute("q_num_heads"), site.attribute("kv_num_heads")
    if not query_heads or not heads:
        site.fail("q_num_heads and kv_num_heads must be above 0")
    query, key, value = (_unpacked(site, place) for place in range(3))
    past = site.shape_of_rank(3, 4)
    _check(site, query, key, value)
    _check_gates(site, heads, key[3] if key is not None else None)
    batch = _first(site, (query, 0), (key, 0), (value, 0), (past, 0))
    length = _first(site, (query, 2), (key, 2), (value, 2))
    value_size = _first(site, (past, 3), (value, 3))
    state = (batch, heads, _first(site, (past, 2), (query, 3), (key, 3)), value_size)
    return [site.out((batch, length, value_size * query_heads)), site.out(state, site.dtype(3) or site.dtype(0))]


_GATES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""update_rule -> whether it takes (decay, beta)."""


def _check_gates(site: Site, heads: Dim, key_size: Dim | None) -> None:
    rule = site.text("update_rule", "gated_delta")
    if rule not in _GATES:
        site.fail(f"update_rule is {rule!r}, and must be one of {', '.join(_GATES)}")
    for place, name, taken in zip((4, 5), ("decay", "beta"), _GATES[rule], strict=True):
        if site.has(place) != taken:
            site.fail(f"update_rule {rule!r} {'needs' if taken else 'takes no'} {name}")
    wide = site.fresh() if key_size is None else heads * key_size
    for place, other in ((4, wide), (5, 1)):
        shape = site.shape_of_rank(place, 3)
        if shape is not None and equals(shape[2], heads) is False and equals(shape[2], other) is False:
            site.fail(f"the last size of input {place} is {shape[2]}, and must be {heads} or {other}")


@row("RotaryEmbedding")
def rotary_embedding(site: Site) -> Type | None:
    """The shape of the first input."""
    shape = site.shape(0)
    if shape is not None and len(shape) not in (3, 4):
        site.fail(f"input 'X' has rank {len(shape)}, and RotaryEmbedding takes rank 3 or 4")
    if shape is not None and len(shape) == 3 and not site.attribute("num_heads", 0):
        site.fail("input 'X' has rank 3, and num_heads is missing")
    return site.out(shape)
