"""Where mutation starts: small models made by proto_schema.helper, messages of every class, onnx's own models."""

from __future__ import annotations

import random
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import proto_schema as ps
from fuzz import patterns
from fuzz.build import UNKNOWN, Choices, build
from fuzz.harness import CLASSES, joined
from proto_schema import helper
from proto_schema.wire import generate

T = ps.TensorProto
LARGEST_BUNDLED, MOST_BUNDLED = 2048, 60


def small() -> ps.ModelProto:
    """Nodes with every kind of attribute, a subgraph, tensors in raw and typed storage, types and shapes."""
    inner = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["b"])], "inner", [], [helper.make_tensor_value_info("b", 1, None)]
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], "conv", pads=[1, 1, 1, 1], auto_pad="NOTSET", alpha=0.5),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node(
            "My",
            ["y", ""],
            ["z"],
            domain="my",
            f=[1.5, -2.5],
            s=["a", "b"],
            t=helper.make_tensor("", T.INT64, [2], [1, -2]),
        ),
    ]
    tensors = [
        helper.make_tensor("w", T.FLOAT, [2, 2], bytes(range(16)), raw=True),
        helper.make_tensor("i", T.INT32, [3], [1, -1, 300]),
        helper.make_tensor("s", T.STRING, [2], [b"a", b"\xff"]),
        helper.make_tensor("u", T.UINT64, [1], [2**64 - 1]),
        helper.make_tensor("d", T.DOUBLE, [2], [1e300, float("nan")]),
    ]
    values = [
        helper.make_tensor_value_info("x", T.FLOAT, ["N", 3, None]),
        helper.make_tensor_value_info("c", T.BOOL, []),
    ]
    graph = helper.make_graph(
        nodes, "main", values, [helper.make_tensor_value_info("z", T.FLOAT, ["N"])], tensors, "text"
    )
    return helper.make_model(
        graph, producer_name="fuzz", opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    )


@cache
def bundled() -> tuple[bytes, ...]:
    """The smaller models that the onnx package ships, where it is installed: nothing of it is imported."""
    found = find_spec("onnx")
    if found is None or found.origin is None:
        return ()
    paths = sorted(path for path in Path(found.origin).parent.rglob("*.onnx") if path.stat().st_size <= LARGEST_BUNDLED)
    return tuple(path.read_bytes() for path in paths[:: max(1, len(paths) // MOST_BUNDLED)])


def models() -> list[bytes]:
    """Encoded models."""
    return [b"", ps.dumps(small()), *bundled()]


def messages() -> list[bytes]:
    """Inputs of the harnesses whose first byte chooses the class: models, and every class with most of its fields."""
    return [joined(ps.ModelProto, data) for data in models()] + _random_messages(300)


def long_messages() -> list[bytes]:
    """As `messages`, and longer ones: the decoder of mapped files has children of more than 4096 bytes, and windows."""
    return messages() + _random_messages(6000) + [joined(ps.ModelProto, ps.dumps(_many_nodes()))] + runs()


def runs() -> list[bytes]:
    """Messages with many values in one field, which are decoded at once."""
    rng = random.Random(0)
    signed = [rng.randrange(-(2**63), 2**63) >> rng.choice((0, 20, 31, 50, 57, 63)) for _ in range(300)]
    small = [value >> 32 for value in signed]
    words = [b"J" * rng.randrange(4) + rng.randbytes(rng.choice((0, 3, 9))) for _ in range(300)]
    made = [
        ps.AttributeProto(name="a", ints=signed, floats=[rng.uniform(-1, 1) for _ in range(300)], strings=words),
        ps.AttributeProto(ints=range(700), strings=[b"LEAF", b"BRANCH_LEQ"] * 100, type=7),
        ps.TensorProto(dims=range(600), string_data=words, int32_data=small, float_data=[0.5, float("nan")] * 100),
        ps.TensorProto(int64_data=signed, double_data=[0.1] * 100, uint64_data=[value & 2**64 - 1 for value in signed]),
    ]
    models = [ps.NodeProto(attribute=made[:2]), *made]
    return [joined(type(message), message.SerializeToString()) for message in models]


def _many_nodes() -> ps.ModelProto:
    """A graph of small children that needs a second window: 16 KiB do not hold it."""
    model = small()
    assert model.graph is not None
    model.graph.node = [helper.make_node("Add", [f"a{at}", "b"], [f"a{at + 1}"], axis=at) for at in range(700)]
    assert model.ByteSize() > generate.SPAN
    return model


def small_messages() -> list[bytes]:
    """One message of every class, with a field or two; and a message that, repeated, is merged with unknown fields."""
    merged = ps.ModelProto(graph=ps.GraphProto.FromString(UNKNOWN[0]))
    return [*_random_messages(12, 1), joined(ps.ModelProto, ps.dumps(merged)), *patterns.seeds()]


def _random_messages(longest: int, each: int = 4) -> list[bytes]:
    rng = random.Random(longest)
    made = []
    for cls in CLASSES:
        encodings = [build(cls, Choices(rng.randbytes(longest))).SerializeToString() for _ in range(each)]
        made += [joined(cls, data) for data in encodings if len(data) < 1 << 14]
    return made


def streams() -> list[bytes]:
    """Streams of choices."""
    rng = random.Random(0)
    return [rng.randbytes(rng.choice((8, 40, 200, 800))) for _ in range(64)]
