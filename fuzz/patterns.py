"""Files that grow: each row makes a model, whole or broken, of `n` times one thing, for tests of time and memory.

Strategy: a row is a function of `n` that returns bytes of a size in proportion to `n`. The rows are what a hostile or
careless writer may repeat: nodes, names, sizes, nesting, merged and unknown fields, damage. They are written with
`wire` where no writer of messages would write them. `tests/fuzz/test_steps.py` counts steps on all of them, and the
harness `growth` starts its mutations from their smallest sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import proto_schema as ps
from fuzz.harness import joined
from proto_schema.wire import EGROUP, I32, LEN, SGROUP, VARINT, varint

T = ps.TensorProto
Pattern = Callable[[int], bytes]

# field numbers
IR_VERSION, PRODUCER, GRAPH, OPSET_IMPORT, METADATA, FUNCTIONS = 1, 2, 7, 8, 14, 25
NODE, NAME, INITIALIZER, INPUT, OUTPUT, VALUE_INFO = 1, 2, 5, 11, 12, 13
N_INPUT, N_OUTPUT, N_NAME, N_OP, N_ATTRIBUTE, N_DOMAIN = 1, 2, 3, 4, 5, 7
A_NAME, A_STRING, A_GRAPH, A_FLOATS, A_INTS, A_STRINGS, A_GRAPHS, A_TYPE = 1, 4, 6, 7, 8, 9, 11, 20
T_DIMS, T_TYPE, T_NAME, T_RAW, T_EXTERNAL, T_LOCATION = 1, 2, 8, 9, 13, 14
UNKNOWN = 77


def field(number: int, *parts: bytes | str) -> bytes:
    """A length-delimited field."""
    body = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return varint(number << 3 | LEN) + varint(len(body)) + body


def number(at: int, value: int) -> bytes:
    """A varint field."""
    return varint(at << 3 | VARINT) + varint(value)


def node(op: str, inputs: list[str], outputs: list[str], *rest: bytes) -> bytes:
    """A node as a field of a graph."""
    ends = [field(N_INPUT, name) for name in inputs] + [field(N_OUTPUT, name) for name in outputs]
    return field(NODE, *ends, field(N_OP, op), *rest)


def model(*graph: bytes, rest: bytes = b"") -> bytes:
    """A model around the fields of a graph, with what a valid one needs besides."""
    return _HEAD + field(GRAPH, *graph, field(NAME, "g"), value(INPUT, "x"), value(OUTPUT, "y")) + rest


def value(where: int, name: str, kind: bytes = b"") -> bytes:
    """An input, output or inner value of type float and unknown sizes."""
    return field(where, field(1, name), field(2, kind or field(1, number(1, 1), field(2))))


def tensor(name: str, data: bytes, *rest: bytes, where: int = INITIALIZER) -> bytes:
    """A tensor of bytes in raw_data."""
    return field(
        where, number(T_DIMS, len(data)), number(T_TYPE, T.UINT8), field(T_NAME, name), field(T_RAW, data), *rest
    )


_HEAD = (
    number(IR_VERSION, 10)
    + field(OPSET_IMPORT, field(1, ""), number(2, 20))
    + field(OPSET_IMPORT, field(1, "my"), number(2, 1))
)
_LAST = node("Relu", ["x"], ["y"])


def _each(n: int, make: Callable[[int], bytes]) -> bytes:
    return b"".join(map(make, range(n)))


# -- graphs ------------------------------------------------------------------------------------------------------------


def _chain(n: int) -> bytes:
    names = ["x", *(f"v{at}" for at in range(n)), "y"]
    return model(*(node("Relu", [a], [b]) for a, b in pairwise(names)))


def _backwards(n: int) -> bytes:
    """Each node needs what a later one makes."""
    return model(*(node("Relu", [f"v{at + 1}"], [f"v{at}"]) for at in range(n)), _LAST)


def _star(n: int) -> bytes:
    """All take one value; the last takes all."""
    made = [f"v{at}" for at in range(n)]
    return model(*(node("Relu", ["x"], [name]) for name in made), node("Sum", made, ["y"]))


def _cycles(n: int) -> bytes:
    """One node needs what many make, and each of them needs what it makes."""
    made = [f"v{at}" for at in range(n)]
    return model(node("Sum", made, ["h"]), *(node("Relu", ["h"], [name]) for name in made), _LAST)


def _fan_out(n: int) -> bytes:
    """One node with many outputs, all of them outputs of the graph."""
    made = [f"v{at}" for at in range(n)]
    return model(
        field(
            NODE, field(N_INPUT, "x"), *(field(N_OUTPUT, name) for name in made), field(N_OP, "Split"), field(7, "my")
        ),
        *(value(OUTPUT, name) for name in made),
        *(value(VALUE_INFO, name) for name in made),
        _LAST,
    )


def _subgraphs(n: int, inner: bytes = b"") -> list[bytes]:
    body = [field(NAME, "b"), node("Neg", ["x"], ["i"]), value(OUTPUT, "i"), inner]
    return [field(A_GRAPHS, *body) for _ in range(n)]


def _in_attribute(n: int) -> bytes:
    """Many graphs in one attribute, its name after them."""
    held = field(N_ATTRIBUTE, *_subgraphs(n), field(A_NAME, "bodies"), number(A_TYPE, 10))
    return model(node("Many", ["x"], ["y"], field(N_DOMAIN, "my"), held))


def _branches(n: int) -> bytes:
    """Many nodes with a graph each, which all use one value."""
    body = field(A_GRAPH, field(NAME, "b"), node("Neg", ["x"], ["i"]), value(OUTPUT, "i"))
    held = field(N_ATTRIBUTE, field(A_NAME, "body"), body, number(A_TYPE, 5))
    return model(*(node("Run", ["x"], [f"v{at}"], field(N_DOMAIN, "my"), held) for at in range(n)), _LAST)


def _nested(n: int) -> bytes:
    """Graphs in graphs as deep as may be, again and again; each uses a value of the outermost one."""
    inside = node("Neg", ["x"], ["d0"])
    for depth in range(1, 30):
        body = field(A_GRAPH, inside, field(NAME, "b"), value(OUTPUT, f"d{depth - 1}"))
        held = field(N_ATTRIBUTE, field(A_NAME, "body"), body, number(A_TYPE, 5))
        inside = node("Run", ["x"], [f"d{depth}"], field(N_DOMAIN, "my"), held)
    return model(*[inside] * max(1, n // 16), _LAST)


def _merged(n: int) -> bytes:
    """One graph in n pieces, in the model and in an attribute."""
    body = field(A_GRAPH, field(NAME, "b"), node("Neg", ["x"], ["i"]))
    held = field(N_ATTRIBUTE, field(A_NAME, "body"), body * n, number(A_TYPE, 5))
    pieces = field(GRAPH, node("Neg", ["x"], ["z"])) * n
    return model(node("Run", ["x"], ["y"], field(N_DOMAIN, "my"), held)) + pieces


def _functions(n: int) -> bytes:
    """Many functions, each with a node that calls the one before."""
    made = _each(
        n,
        lambda at: field(
            FUNCTIONS,
            field(1, f"f{at}"),
            field(4, "a"),
            field(5, "b"),
            field(7, field(1, "a"), field(2, "b"), field(4, f"f{at - 1}" if at % 50 else "Neg"), field(7, "my")),
            field(9, field(1, "my"), number(2, 1)),
            field(10, "my"),
        ),
    )
    return model(node("f0", ["x"], ["y"], field(N_DOMAIN, "my")), rest=made)


def _calls(n: int) -> bytes:
    """A function with many attributes that have defaults, called many times."""
    defaults = _each(n, lambda at: field(11, field(1, f"a{at}"), number(3, 1), number(20, 2)))
    body = field(7, field(1, "a"), field(2, "b"), field(4, "Neg"))
    imports = field(9, field(1, ""), number(2, 20))
    function = field(FUNCTIONS, field(1, "f"), field(4, "a"), field(5, "b"), body, imports, field(10, "my"), defaults)
    use = field(N_ATTRIBUTE, field(A_NAME, "a0"), number(3, 1), number(A_TYPE, 2))
    nodes = [node("f", ["x"], [f"v{at}"], field(N_DOMAIN, "my"), use) for at in range(n)]
    return model(*nodes, _LAST, rest=function)


def _required(n: int) -> bytes:
    """A function with many attributes without defaults, and a call that gives them all."""
    body = field(7, field(1, "a"), field(2, "b"), field(4, "Neg"))
    head = [field(1, "f"), field(4, "a"), field(5, "b"), body, field(9, field(1, ""), number(2, 20)), field(10, "my")]
    function = field(FUNCTIONS, *head, _each(n, lambda at: field(6, f"a{at}")))
    given = _each(n, lambda at: field(N_ATTRIBUTE, field(A_NAME, f"a{at}"), number(3, 1), number(A_TYPE, 2)))
    return model(node("f", ["x"], ["y"], field(N_DOMAIN, "my"), given), rest=function)


# -- tensors -----------------------------------------------------------------------------------------------------------


def _external(at: int, offset: int, length: int, where: str = "w.data") -> bytes:
    rows = {"location": where, "offset": str(offset), "length": str(length)}
    said = [field(T_EXTERNAL, field(1, key), field(2, text)) for key, text in rows.items()]
    head = [number(T_DIMS, length), number(T_TYPE, T.UINT8), field(T_NAME, f"w{at}"), number(T_LOCATION, 1)]
    return field(INITIALIZER, *head, *said)


def _typed(name: str, count: int) -> bytes:
    data = field(5, b"\1" * count)
    return field(INITIALIZER, number(T_DIMS, count), number(T_TYPE, T.INT32), field(T_NAME, name), data)


def _collisions(n: int) -> bytes:
    """Tensors whose dims differ and have one hash: Python's of -1 and -2 are equal."""

    def of(at: int) -> bytes:
        dims = b"".join(number(T_DIMS, (1 << 64) - 1 - (at >> bit & 1)) for bit in range(12))
        return field(INITIALIZER, dims, number(T_TYPE, 2), field(T_NAME, f"w{at}"), field(T_RAW, bytes(80)))

    return model(_each(n, of), _LAST)


def _sparse(n: int) -> bytes:
    indices = field(2, number(T_DIMS, n), number(T_TYPE, T.INT64), field(7, b"".join(map(varint, range(n)))))
    values = field(1, number(T_DIMS, n), number(T_TYPE, T.UINT8), field(T_NAME, "s"), field(T_RAW, bytes(n)))
    return model(field(15, values, indices, number(3, n)), _LAST)


_OPERATORS = ("Flatten", "Size", "Shape", "Relu", "Transpose", "ReduceSum", "Identity")


def _sizes(n: int, said: Callable[[int], bytes]) -> bytes:
    """The type of a value with n sizes."""
    return field(1, number(1, 1), field(2, *(field(1, said(at)) for at in range(n))))


def _rank(n: int, said: Callable[[int], bytes]) -> bytes:
    """A value with many sizes, and what multiplies them."""
    made = [node(name, ["b"], [f"v{at}"]) for at, name in enumerate(_OPERATORS)]
    names = [value(INPUT, f"n{at}", _sizes(1, lambda _, at=at: field(2, f"s{at}"))) for at in range(n)]
    return model(value(INPUT, "b", _sizes(n, said)), *names, *made, node("Reshape", ["b", "v2"], ["r"]), _LAST)


def _ranks(n: int) -> bytes:
    """A value with many sizes, and many nodes that make such a value of it."""
    kind = _sizes(n, lambda _: number(1, 3))
    return model(value(INPUT, "b", kind), *(node("Relu", ["b"], [f"v{at}"]) for at in range(n)), _LAST)


def _joined(n: int) -> bytes:
    """Values of one unknown size each, put behind each other one by one."""
    n *= 2
    inputs = [value(INPUT, f"i{at}", _sizes(1, lambda _, at=at: field(2, f"s{at}"))) for at in range(n)]
    axis = field(N_ATTRIBUTE, field(A_NAME, "axis"), number(3, 0), number(A_TYPE, 2))
    names = ["i0", *(f"v{at}" for at in range(1, n))]
    steps = (node("Concat", [a, f"i{at + 1}"], [b], axis) for at, (a, b) in enumerate(pairwise(names)))
    return model(*inputs, *steps, _LAST)


def _unsqueezed(n: int) -> bytes:
    """Each node adds axes to what the one before made."""
    where = [number(T_DIMS, 50), number(T_TYPE, T.INT64), field(T_NAME, "a"), field(7, bytes(range(50)))]
    steps = (node("Unsqueeze", [f"v{at}", "a"], [f"v{at + 1}"]) for at in range(n))
    kind = field(1, number(1, 1), field(2, field(1, number(1, 3))))
    return model(value(INPUT, "v0", kind), field(INITIALIZER, *where), *steps, _LAST)


# -- damage ------------------------------------------------------------------------------------------------------------


def _cut_off(n: int) -> bytes:
    return _chain(n)[: -3 - n // 2]


def _cut_node(n: int) -> bytes:
    """A label encoder, cut off: one node with a long attribute."""
    n *= 4
    keys = field(N_ATTRIBUTE, field(A_NAME, "keys"), *(field(A_STRINGS, f"label{at}") for at in range(n)))
    values = field(N_ATTRIBUTE, field(A_NAME, "values"), field(A_INTS, *(varint(at) for at in range(n))))
    return model(node("LabelEncoder", ["x"], ["y"], field(N_DOMAIN, "ai.onnx.ml"), keys, values))[: -n // 2 - 9]


def _each_broken(n: int) -> bytes:
    """Every second node has a length that passes its end."""
    good, bad = node("Relu", ["x"], ["v"]), field(NODE, field(N_INPUT, "x"), varint(N_OUTPUT << 3 | LEN) + b"\x7f")
    return model((good + bad) * n)


def _zeros_inside(n: int) -> bytes:
    whole = _chain(n)
    return whole[: len(whole) // 2] + bytes(n) + whole[len(whole) // 2 + n :]


def _broken_end(n: int) -> bytes:
    return _chain(n) + b"\xff" * (4 + n // 4)


def _broken_inside(n: int) -> bytes:
    """One node of many is broken."""
    nodes = [node("Relu", ["x"], [f"v{at}"]) for at in range(n)]
    nodes[n // 2] = field(NODE, field(N_INPUT, "x"), b"\x12\x7f")
    return model(*nodes)


def _almost_fields(n: int) -> bytes:
    """Damage, after which every place looks like two fields of a node: a reader must look at each of them."""
    return model(node("Relu", ["x"], ["y"]), field(NODE, b"\x0a\x7f"), b"\x0a\x02\x0a\x00" * n)


def _decoys(n: int) -> bytes:
    """Names of a broken node in which nodes begin, each up to one bad byte at the end."""
    left = [6 * (n - at - 1) + 2 for at in range(n)]
    units = [field(N_NAME, b"\x0a", bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14))) for size in left]
    tail = bytes(9)
    return model(field(NODE, *units, b"\x1a\x7f", tail))[: -len(tail) - len(model()) + len(_HEAD) + 2]


def _open_groups(n: int) -> bytes:
    """Fields, between which groups begin that never end: a reader skips each of them up to the end."""
    good = field(NAME, "") * 3
    return model((good + varint(UNKNOWN << 3 | SGROUP)) * n)


def _long_fields(n: int) -> bytes:
    """Damage, after which every place begins a field up to the end."""
    return model(field(NODE, b"\x0a\x7f"), b"\x0a\x80\x01" * n)


# -- the table ---------------------------------------------------------------------------------------------------------


def _group(n: int) -> bytes:
    return varint(UNKNOWN << 3 | SGROUP) + number(1, 5) * n + varint(UNKNOWN << 3 | EGROUP)


def _groups_in_groups(n: int) -> bytes:
    head, tail = varint(UNKNOWN << 3 | SGROUP), varint(UNKNOWN << 3 | EGROUP)
    return (head * 90 + tail * 90) * max(1, n // 16)


def _deep_type(n: int) -> bytes:
    kind = field(1, number(1, 1))
    for _ in range(40):
        kind = field(4, field(1, kind))
    return model(*(value(VALUE_INFO, f"v{at}", kind) for at in range(max(1, n // 8))), _LAST)


def _attributes(n: int) -> bytes:
    return _each(n, lambda at: field(N_ATTRIBUTE, field(A_NAME, f"a{at}"), number(3, at), number(A_TYPE, 2)))


_PLAIN = node("Relu", ["x"], ["v"])
_ENTRY = field(1, "k") + field(2, "v")

PATTERNS: dict[str, Pattern] = {
    "chain": _chain,
    "chain backwards": _backwards,
    "star": _star,
    "cycles": _cycles,
    "fan out": _fan_out,
    "nodes of one name": lambda n: model(
        _each(n, lambda at: node("Relu", ["x"], [f"v{at}"], field(N_NAME, "same"))), _LAST
    ),
    "nodes without names": lambda n: model(_each(n, lambda at: field(NODE, field(N_OP, f"Op{at % 7}")))),
    "equal nodes": lambda n: model(_PLAIN * n),
    "nodes of changing operators": lambda n: model(
        _each(n, lambda at: field(NODE, field(N_INPUT, "x"), field(N_OP, f"Op{at * at % 13}")))
    ),
    "nodes of two operators": lambda n: model(
        _each(n, lambda at: field(NODE, field(N_OP, f"Op{at * 0x9E3779B1 >> 16 & 1}")))
    ),
    "nodes of many operators": lambda n: model(_each(n, lambda at: field(NODE, field(N_OP, f"Op{at}")))),
    "empty nodes": lambda n: model(field(NODE) * n),
    "long names": lambda n: model(_each(8, lambda at: node("Relu", ["x"], [f"{at}" + "v" * n])), _LAST),
    "names of control characters": lambda n: model(_each(8, lambda at: node("\x1b\x07" * n, ["x"], ["\0\n" * n]))),
    "names that are no text": lambda n: model(_each(n, lambda at: field(NODE, field(N_NAME, b"\xff\xfe" * 4)))),
    "graphs in one attribute": _in_attribute,
    "graphs in many nodes": _branches,
    "graphs in graphs": _nested,
    "merged graphs": _merged,
    "functions": _functions,
    "functions of one name": lambda n: model(_LAST, rest=field(FUNCTIONS, field(1, "f"), field(10, "my")) * n),
    "calls of one function": _calls,
    "required attributes": _required,
    "inputs": lambda n: model(_each(n, lambda at: value(INPUT, f"in{at}")), _LAST),
    "inputs of one name": lambda n: model(value(INPUT, "in") * n, _LAST),
    "values": lambda n: model(_each(n, lambda at: value(VALUE_INFO, f"v{at}")), _LAST),
    "types in types": _deep_type,
    "opset imports": lambda n: (
        model(_LAST) + _each(n, lambda at: field(OPSET_IMPORT, field(1, f"d{at}"), number(2, 1)))
    ),
    "opset imports of one domain": lambda n: model(_LAST) + field(OPSET_IMPORT, field(1, "d"), number(2, 1)) * n,
    "metadata": lambda n: model(_LAST) + _each(n, lambda at: field(METADATA, field(1, f"k{at}"), field(2, "v"))),
    "metadata of one key": lambda n: model(_LAST) + field(METADATA, _ENTRY) * n,
    "attributes": lambda n: model(node("Many", ["x"], ["y"], field(N_DOMAIN, "my"), _attributes(n))),
    "attributes of one name": lambda n: model(node("Relu", ["x"], ["y"], field(N_ATTRIBUTE, field(1, "a")) * n)),
    "numbers one by one": lambda n: model(
        node("Op", ["x"], ["y"], field(N_ATTRIBUTE, field(1, "a"), number(A_INTS, 7) * n))
    ),
    "numbers packed": lambda n: model(
        node("Op", ["x"], ["y"], field(N_ATTRIBUTE, field(1, "a"), field(A_INTS, b"\xff\x01" * n)))
    ),
    "numbers in pieces": lambda n: model(
        node("Op", ["x"], ["y"], field(N_ATTRIBUTE, field(1, "a"), field(A_FLOATS, bytes(4)) * n))
    ),
    "strings": lambda n: model(
        node("Op", ["x"], ["y"], field(N_ATTRIBUTE, field(1, "a"), field(A_STRINGS, b"s\xff") * n))
    ),
    "dims": lambda n: model(field(INITIALIZER, number(T_DIMS, 3) * n, number(T_TYPE, 1), field(T_NAME, "w"))),
    "large dims": lambda n: model(
        field(INITIALIZER, number(T_DIMS, (1 << 62) + 1) * n, number(T_TYPE, 1), field(T_NAME, "w"))
    ),
    "sizes of a value": lambda n: _rank(n, lambda _: number(1, (1 << 62) + 1)),
    "names of sizes": lambda n: _rank(n, lambda at: field(2, f"s{at}")),
    "sums of sizes": lambda n: _rank(n, lambda at: field(2, f"s{at}+1")),
    "values of many sizes": _ranks,
    "joined values": _joined,
    "more and more axes": _unsqueezed,
    "tensors": lambda n: model(_each(n, lambda at: tensor(f"w{at}", bytes([at & 255, at >> 8 & 255]) * 2)), _LAST),
    "tensors of one name": lambda n: model(tensor("w", b"1234") * n, _LAST),
    "tensors without names": lambda n: model(tensor("", b"1234") * n, _LAST),
    "equal tensors": lambda n: model(_each(n, lambda at: tensor(f"w{at}", bytes(80))), _LAST),
    "typed tensors": lambda n: model(_each(n, lambda at: _typed(f"w{at}", 20)), _LAST),
    "dims of one hash": _collisions,
    "sparse tensor": _sparse,
    "tensors at one place": lambda n: model(_each(n, lambda at: _external(at, 0, 1024 * n)), _LAST),
    "tensors that overlap": lambda n: model(_each(n, lambda at: _external(at, at, 1024 * n)), _LAST),
    "tensors in many files": lambda n: model(_each(n, lambda at: _external(at, 0, 4, f"w{at}.data")), _LAST),
    "entries of one tensor": lambda n: model(
        field(INITIALIZER, number(T_LOCATION, 1), field(T_EXTERNAL, field(1, "location"), field(2, "w.data")) * n),
        _LAST,
    ),
    "merged producer names": lambda n: model(_LAST) + field(PRODUCER, "me") * n,
    "unknown fields": lambda n: model(_LAST) + number(UNKNOWN, 1) * n,
    "unknown fields of many numbers": lambda n: model(_LAST) + _each(n, lambda at: number(1000 + (at << 12), 1)),
    "unknown fields in merged graphs": lambda n: model(_LAST) + field(GRAPH, number(UNKNOWN, 1)) * n,
    "unknown enum values": lambda n: model(
        node("Op", ["x"], ["y"], field(N_ATTRIBUTE, field(1, "a"), number(A_TYPE, 99) * n))
    ),
    "group": lambda n: model(_LAST) + _group(n),
    "groups": lambda n: model(_LAST) + _group(2) * n,
    "groups in groups": lambda n: model(_LAST) + _groups_in_groups(n),
    "wrong wire types": lambda n: model(_LAST) + (varint(GRAPH << 3 | I32) + bytes(4)) * n,
    "cut off": _cut_off,
    "cut off in a node": _cut_node,
    "zeros inside": _zeros_inside,
    "broken end": _broken_end,
    "one broken node": _broken_inside,
    "every second node broken": _each_broken,
    "almost fields": _almost_fields,
    "nodes in names": _decoys,
    "groups left open": _open_groups,
    "long fields": _long_fields,
    "zeros": lambda n: bytes(8 * n),
    "ones": lambda n: b"\xff" * (8 * n),
    "line ends": lambda n: b"\r\n" * (4 * n),
}
"""By what is repeated."""


def seeds() -> list[bytes]:
    """The patterns at a small size, for the harness `growth`."""
    return [joined(ps.ModelProto, make(2)) for make in PATTERNS.values()]


__all__ = ["PATTERNS", "Pattern", "seeds"]
