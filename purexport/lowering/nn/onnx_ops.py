"""The operators of torch.onnx.ops: a model names an operator of ONNX, and the file has it.

`RotaryEmbedding` and `Attention` are functions of torch too.  An opset without them gets what torch computes, by its
own definition (`decompose`).  A symbolic operator has no meaning in torch: its node is written as the model says, and
the dtype and shape that the model gives it are those of its results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proto_schema import operators
from purexport.graph.ir import Node, Value
from purexport.lowering.core.emitter import Emitter
from purexport.lowering.core.registry import lower


@lower("onnx::RotaryEmbedding.opset23")
def rotary_embedding(
    op: Emitter,
    x: Value,
    cos_cache: Value,
    sin_cache: Value,
    position_ids: Value | None = None,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Value:
    """onnx::RotaryEmbedding.opset23(Tensor x, Tensor cos_cache, Tensor sin_cache, Tensor? position_ids=None, *,
    bool interleaved=False, SymInt num_heads=0, SymInt rotary_embedding_dim=0) -> Tensor"""
    return op.RotaryEmbedding(
        x,
        cos_cache,
        sin_cache,
        position_ids,
        interleaved=int(interleaved),
        num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )


@lower("onnx::Attention.opset23")
def attention(
    op: Emitter,
    Q: Value,  # noqa: N803  the names are torch's
    K: Value,  # noqa: N803
    V: Value,  # noqa: N803
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    is_causal: bool = False,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Value, ...]:
    """onnx::Attention.opset23(Tensor Q, Tensor K, Tensor V, Tensor? attn_mask=None, Tensor? past_key=None,
    Tensor? past_value=None, *, bool is_causal=False, SymInt kv_num_heads=0, SymInt q_num_heads=0,
    SymInt qk_matmul_output_mode=0, float? scale=None, float softcap=0., SymInt? softmax_precision=None)
    -> (Tensor, Tensor, Tensor, Tensor)

    The key and value that torch gives without a past are K and V with their heads apart.
    """
    return op.multi(
        "Attention",
        Q,
        K,
        V,
        attn_mask,
        past_key,
        past_value,
        outputs=4,
        is_causal=int(is_causal),
        kv_num_heads=kv_num_heads or None,
        q_num_heads=q_num_heads or None,
        qk_matmul_output_mode=qk_matmul_output_mode,
        scale=scale,
        softcap=softcap,
        softmax_precision=softmax_precision,
    )


@lower("onnx_symbolic::_symbolic")
def symbolic(
    op: Emitter,
    inputs: Sequence[Value | None],
    op_type: str,
    onnx_dtype: int,
    shape: Sequence[Any],
    attr_keys: Sequence[str],
    attr_types: Sequence[str],
    attr_pos: Sequence[Sequence[int]],
    attr_ints: Sequence[int],
    attr_floats: Sequence[float],
    attr_strs: Sequence[str],
    metadata_props_keys: Sequence[str] = (),
    metadata_props_values: Sequence[str] = (),
    domain: str = "",
    version: int | None = None,
) -> Value:
    """onnx_symbolic::_symbolic(Tensor?[] inputs, str op_type, int onnx_dtype, *, SymInt[] shape, str[] attr_keys,
    str[] attr_types, int[][] attr_pos, int[] attr_ints, float[] attr_floats, str[] attr_strs,
    str[] metadata_props_keys, str[] metadata_props_values, str domain="", int? version=None) -> Tensor

    An attribute that is a list lies between two positions in the list of its kind, a number at the first of them.
    """
    attributes = _attributes(attr_keys, attr_types, attr_pos, (attr_ints, attr_floats, attr_strs))
    types = [_type(op, onnx_dtype, shape)]
    return _node(op, domain, op_type, inputs, attributes, types, version)[0]


@lower("onnx_symbolic::_symbolic_multi_out")
def symbolic_multi_out(
    op: Emitter,
    inputs: Sequence[Value | None],
    op_type: str,
    onnx_dtypes: Sequence[int],
    shapes: Sequence[Sequence[Any]],
    attr_keys: Sequence[str],
    attr_types: Sequence[str],
    attr_pos: Sequence[Sequence[int]],
    attr_ints: Sequence[int],
    attr_floats: Sequence[float],
    attr_strs: Sequence[str],
    metadata_props_keys: Sequence[str] = (),
    metadata_props_values: Sequence[str] = (),
    domain: str = "",
    version: int | None = None,
) -> list[Value]:
    """onnx_symbolic::_symbolic_multi_out(Tensor?[] inputs, str op_type, int[] onnx_dtypes, *, SymInt[][] shapes,
    str[] attr_keys, str[] attr_types, int[][] attr_pos, int[] attr_ints, float[] attr_floats, str[] attr_strs,
    str[] metadata_props_keys, str[] metadata_props_values, str domain="", int? version=None) -> Tensor[]
    """
    attributes = _attributes(attr_keys, attr_types, attr_pos, (attr_ints, attr_floats, attr_strs))
    types = [_type(op, dtype, shape) for dtype, shape in zip(onnx_dtypes, shapes, strict=True)]
    return _node(op, domain, op_type, inputs, attributes, types, version)


_LISTS = {"i": 0, "f": 1, "s": 2}  # by the first letter of a kind, which is doubled by an s for a list


def _attributes(
    keys: Sequence[str], kinds: Sequence[str], places: Sequence[Sequence[int]], lists: Sequence[Sequence[Any]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, kind, (first, last) in zip(keys, kinds, places, strict=True):
        items = lists[_LISTS[kind[0]]]
        found[key] = list(items[first:last]) if len(kind) > 1 else items[first]
    return found


def _type(op: Emitter, dtype: int, shape: Sequence[Any]) -> tuple[int, Any]:
    """The dtype and shape; computed sizes as the inference knows them."""
    sizes = op.ints(list(shape))
    return dtype, tuple(sizes) if isinstance(sizes, list) else op.ConstantOfShape(sizes).shape


def _node(
    op: Emitter,
    domain: str,
    op_type: str,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, Any],
    types: Sequence[tuple[int | None, Any]],
    version: int | None,
) -> list[Value]:
    """The node; an operator of ONNX is that of the file's opset, and is checked like any other."""
    domain = "" if domain == "ai.onnx" else domain
    if not domain and operators.versions(op_type):
        return list(op.multi(op_type, *inputs, outputs=len(types), **attributes))
    node = Node(op_type, list(inputs), [], dict(attributes), domain, op.source, version=version or 1)
    node.outputs = [Value(dtype, shape, node=node) for dtype, shape in types]
    op.graph.nodes.append(node)
    return node.outputs
