"""Rows of attention.

Heads are an axis of their own in inputs of rank 4: (batch, heads, length, size of a head).  In inputs of rank 3 they
are packed into the last axis: (batch, length, heads * size), and attributes say how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from proto_schema.inference.rows import row
from proto_schema.inference.site import Outputs, Site
from proto_schema.inference.types import Shape, Type
from proto_schema.sizes import Dim


@dataclass(frozen=True)
class _Heads:
    """The four axes of a query, key or value, and whether the heads were packed."""

    batch: Dim
    heads: Dim
    length: Dim
    size: Dim
    packed: bool


def _unpacked(site: Site, place: int, attribute: str) -> _Heads | None:
    """The axes of an input; None for an unknown rank."""
    shape = site.shape(place)
    name = site.schema.inputs[place].name
    if shape is None:
        return None
    if len(shape) == 4:
        return _Heads(*shape, packed=False)
    if len(shape) != 3:
        site.fail(f"input {name!r} has rank {len(shape)}, and {site.schema.name} takes rank 3 or 4")
    heads = site.attribute(attribute)
    if not heads:
        return _Heads(shape[0], site.fresh(), shape[1], site.fresh(), packed=True)
    if isinstance(shape[2], int) and shape[2] % heads:
        site.fail(f"the last size of input {name!r} is {shape[2]}, which is not a multiple of {attribute} {heads}")
    return _Heads(shape[0], heads, shape[1], shape[2] // heads, packed=True)


@row("Attention")
def attention(site: Site) -> Outputs:
    """The query's shape with the values' size of a head; the keys and values with the past before them; the scores."""
    query, key, value = (_unpacked(site, place, "kv_num_heads" if place else "q_num_heads") for place in range(3))
    past_key, past_value = site.shape_of_rank(4, 4), site.shape_of_rank(5, 4)
    _check(site, query, key, value)
    made = _attended(site, query, value, past_value)
    total = _total(site, key, value, past_key, past_value)
    batch = _first(site, query and query.batch, key and key.batch, value and value.batch)
    heads = _first(site, key and key.heads, value and value.heads, past_key and past_key[1])
    present_key = (batch, heads, total, _first(site, key and key.size, past_key and past_key[3], query and query.size))
    present_value = (batch, heads, total, _first(site, value and value.size, past_value and past_value[3]))
    scores = (batch, *((query.heads, query.length) if query is not None else site.unknown(2)), total)
    return [site.out(made), site.out(present_key), site.out(present_value), site.out(scores)]


def _first(site: Site, *sizes: Dim | None) -> Dim:
    """The first size that is known; a fresh one where none is."""
    for size in sizes:
        if size is not None:
            return size
    return site.fresh()


def _check(site: Site, query: _Heads | None, key: _Heads | None, value: _Heads | None) -> None:
    if query is not None and key is not None:
        site.same(query.batch, key.batch, "the batches of query and key")
        site.same(query.size, key.size, "the sizes of a head of query and key")
        if isinstance(query.heads, int) and isinstance(key.heads, int) and key.heads and query.heads % key.heads:
            site.fail(f"{query.heads} heads of the query are not a multiple of {key.heads} heads of the key")
    if key is not None and value is not None:
        site.same(key.batch, value.batch, "the batches of key and value")
        site.same(key.heads, value.heads, "the heads of key and value")
        site.same(key.length, value.length, "the lengths of key and value")


def _attended(site: Site, query: _Heads | None, value: _Heads | None, past_value: Shape) -> Shape:
    if query is None:
        return None
    size = _first(site, value and value.size, past_value and past_value[3])
    if not query.packed:
        return (query.batch, query.heads, query.length, size)
    known = site.attribute("q_num_heads") and (value is not None or past_value is not None)
    return (query.batch, query.length, query.heads * size if known else site.fresh())


def _total(site: Site, key: _Heads | None, value: _Heads | None, past_key: Shape, past_value: Shape) -> Dim:
    """The length of the keys with the past."""
    now = key or value
    if now is None:
        return site.fresh()
    past = past_key if past_key is not None else past_value
    if past is not None:
        return past[2] + now.length
    return site.fresh() if site.has(4) else now.length


@row("FlexAttention", domain="ai.onnx.preview")
def flex_attention(site: Site) -> Type | None:
    """The query's shape with the values' size of a head."""
    query, key, value = (site.shape_of_rank(place, 4) for place in range(3))
    _check(site, *[None if shape is None else _Heads(*shape, packed=False) for shape in (query, key, value)])
    left = query[:3] if query is not None else site.unknown(3)
    return site.out((*left, value[3] if value is not None else site.fresh()))


@row("LinearAttention")
def linear_attention(site: Site) -> Outputs:
    """(batch, length, heads * size of a value), and the state (batch, heads of the key, size of a key, of a value)."""
    query, key, value = (site.shape_of_rank(place, 3) for place in range(3))
    past = site.shape_of_rank(3, 4)
    for place in range(3):
        _unpacked(site, place, "kv_num_heads" if place else "q_num_heads")
    query_heads, heads = site.attribute("q_num_heads", 0), site.attribute("kv_num_heads", 0)
    if not query_heads or not heads:
        site.fail("q_num_heads and kv_num_heads must be given")
    known = next((shape for shape in (query, key, value) if shape is not None), None)
    batch = _first(site, known and known[0], past and past[0])
    length = known[1] if known is not None else site.fresh()
    key_size = _first(site, past and past[2], query and query[2] // query_heads, key and key[2] // heads)
    value_size = _first(site, past and past[3], value and value[2] // heads)
    state = (batch, heads, key_size, value_size)
    return [site.out((batch, length, value_size * query_heads)), site.out(state, site.dtype(3) or site.dtype(0))]


@row("RotaryEmbedding")
def rotary_embedding(site: Site) -> Type | None:
    """The shape of the first input."""
    shape = site.shape(0)
    if shape is not None and len(shape) not in (3, 4):
        site.fail(f"input 'X' has rank {len(shape)}, and RotaryEmbedding takes rank 3 or 4")
    if shape is not None and len(shape) == 3 and not site.attribute("num_heads", 0):
        site.fail("input 'X' has rank 3, and num_heads is missing")
    return site.out(shape)
