"""What rows find in a decoder, and that the file computes the same: each way of writing a part, and near misses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

import proto_schema as ps
from purexport.aten.graph import AtenValue
from purexport.errors import VerificationError
from purexport.fusion.rewriting import FusionSite, Row
from tests.harness import run_ort
from tests.language import decoder as parts
from tests.tiers import dealt
from tests.tolerances import CHAIN, assert_near

NORM, ROTARY, ATTENTION, SKIP, TOKENS = "rms_norm", "rotary", "group_query_attention", "skip_norm", "tokens_first"
EXPERTS, PAST, GATED, LINEAR = "mixture_of_experts", "attention_with_past", "gated_unit", "linear_attention"
OF_RUNTIME = {ATTENTION, SKIP, TOKENS, EXPERTS, LINEAR}  # rows that the standard has not
HALVES = (parts.root_mean_square, parts.in_halves, parts.recorded)

# id: (norm, rotary embedding, attention, options of the decoder, what the rows find for onnxruntime)
# ruff: noqa: E501
ROWS: dict[str, tuple[Any, Any, Any, dict[str, Any], dict[str, int]]] = {
    "halves": (*HALVES, {}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1}),
    "window": (*HALVES, {"window": 3}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1}),
    "pairs-not-of-the-kernel": (*HALVES[:1], parts.first_part_only, parts.recorded, {"pairs": 3}, {NORM: 1, ROTARY: 2, "partial_rotary": 2, ATTENTION: 1, TOKENS: 1}),
    "interleaved": (parts.powers, parts.next_to_each_other, parts.recorded, {}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1}),
    "split": (parts.without_weight, parts.part_by_part, parts.capped, {}, {"bare_rms_norm": 1, "split_rotary": 2, ATTENTION: 1, TOKENS: 1}),
    "sinks": (parts.powers, parts.in_halves, parts.with_sinks, {}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1}),
    "biased": (parts.powers, parts.in_halves, parts.biased, {}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1}),
    "scaled-by-the-length": (parts.powers, parts.in_halves, parts.scaled_by_the_length, {}, {NORM: 1, ROTARY: 2}),
    "scaled-dot-product": (parts.powers, parts.in_halves, parts.scaled_dot_product, {}, {NORM: 1, ROTARY: 2, "fused_attention": 1}),
    "products": (parts.powers, parts.in_halves, parts.products, {}, {NORM: 1, ROTARY: 2, "written_attention": 1}),
    "masked-fill": (parts.powers, parts.in_halves, parts.masked_fill, {}, {NORM: 1, ROTARY: 2, "written_attention": 1}),
    "no-norm": (parts.mean_of_another, parts.in_halves, parts.recorded, {}, {ROTARY: 2, ATTENTION: 1, TOKENS: 1}),
    "no-rotary": (parts.powers, parts.with_a_mistake, parts.recorded, {}, {NORM: 1, ATTENTION: 1, TOKENS: 1}),
    "angles-without-batch": (parts.powers, parts.without_batch, parts.recorded, {}, {NORM: 1, ATTENTION: 1, TOKENS: 1}),
    "unequal-angles": (parts.powers, parts.unequal_angles, parts.recorded, {}, {NORM: 1, ATTENTION: 1, TOKENS: 1}),
    "no-biases": (*HALVES, {"biases": False}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1}),
    "behind-a-sum": (*HALVES, {"behind": parts.norm_of_a_sum}, {NORM: 2, ROTARY: 2, ATTENTION: 1, SKIP: 1, TOKENS: 1}),
    "layer-norm-behind-a-sum": (*HALVES, {"behind": parts.layer_norm_of_a_sum}, {NORM: 1, ROTARY: 2, ATTENTION: 1, SKIP: 1, TOKENS: 1}),
    "behind-a-row-added": (*HALVES, {"behind": parts.norm_of_a_row_added}, {NORM: 2, ROTARY: 2, ATTENTION: 1, TOKENS: 1}),
    "experts": (*HALVES, {"behind": parts.Experts(False, False)}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1, EXPERTS: 1}),
    "experts-in-turns": (*HALVES, {"behind": parts.Experts(True, True, 7.0)}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1, EXPERTS: 1}),
    "recurrence": (*HALVES, {"behind": parts.Recurrent(True)}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1, LINEAR: 1}),
    "recurrent-gated": (*HALVES, {"behind": parts.Recurrent(False)}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1, LINEAR: 1}),
    "gated": (*HALVES, {"behind": parts.Gated(torch.nn.functional.silu)}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1, GATED: 1}),
    "gated-otherwise": (*HALVES, {"behind": parts.Gated(torch.nn.functional.gelu)}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1}),
    "gated-by-one": (*HALVES, {"behind": parts.Gated(torch.nn.functional.silu, 1)}, {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1}),
}  # fmt: skip
# the kernel takes several rows either without a past or with one new token each
SIZES = [((2, 6, 0), [(1, 5), (1, 4)]), ((3, 1, 4), [(0, 0), (2, 0), (2, 1)]), ((1, 4, 3), [(0, 0)])]


# the standard's attention has no sinks; the others repeat keys and values for the heads, or are not found
WITHOUT_PAST = ("sinks", "scaled-by-the-length", "scaled-dot-product", "products", "masked-fill")
# no standard operator says experts: there the model's own function stays, before a graph is made
# by default each row runs for onnxruntime, and for the standard at an opset in turn
CASES = [
    pytest.param(
        name,
        target,
        opset,
        id=f"{name}-{target}-{opset}",
        marks=pytest.mark.full if opset == (23, 17)[place % 2] else (),
    )
    for place, (name, row) in enumerate(ROWS.items())
    for target, opset in (("onnxruntime", 21), ("onnx", 17), ("onnx", 23))
    if target != "onnx" or EXPERTS not in row[4]
]


@pytest.mark.parametrize(("name", "target", "opset"), dealt(CASES, 4))
def test_row(name: str, target: str, opset: int) -> None:
    norm, rotary, attention, options, wanted = ROWS[name]
    torch.manual_seed(0)
    model = parts.Decoder(norm, rotary, attention, **options).eval()
    program, fused = parts.fused_program(model, target, opset)
    if target == "onnx":
        wanted = {row: count for row, count in wanted.items() if row not in OF_RUNTIME}
        wanted |= {PAST: 1} if name not in WITHOUT_PAST else {}
    else:
        wanted = {row: count for row, count in wanted.items() if row != GATED}
    assert fused.counts == wanted
    assert fused.proven == fused.counts and not fused.unproven
    for sizes, holes in SIZES:
        args = parts.arguments(*sizes, holes=holes)
        with torch.no_grad():
            expected = model(*args)
        got = _run(program, args)
        seen = args[1][:, -sizes[1] :].bool()  # what a hidden token says is of no use
        assert_near(got[0][seen.numpy()], expected[0][seen], CHAIN, f"{sizes}, y")
        for place in (1, 2):
            assert_near(got[place], expected[place], CHAIN, f"{sizes}, {parts.OUTPUTS[place]}")


def test_operators_of_the_newest_standard() -> None:
    """At opset 28, which ONNX Runtime does not load yet: by our evaluator."""
    torch.manual_seed(0)
    model = parts.Decoder(*HALVES, behind=parts.Gated(torch.nn.functional.silu)).eval()
    program, _ = parts.fused_program(model, "onnx", 28)
    kinds = {node.op_type for node in program.model_proto.graph.node}
    assert {"Attention", "RotaryEmbedding", "RMSNormalization", "SwiGLU"} <= kinds
    args = parts.arguments(2, 3, 4)
    evaluator = ps.reference.ReferenceEvaluator(ps.loads(program.model_proto.SerializeToString()))
    feed = {name: item.numpy() for name, item in zip(parts.NAMES, args, strict=True)}
    with torch.no_grad():
        expected = model(*args)
    for ours, theirs in zip(evaluator.run(None, feed), expected, strict=True):
        assert_near(ours, theirs, CHAIN)


def _run(program: Any, args: Any) -> Any:
    feed = {name: item.numpy() for name, item in zip(parts.NAMES, args, strict=True)}
    return run_ort(program.model_proto.SerializeToString(), feed)


@pytest.mark.parametrize(("attention", "inputs"), [(parts.recorded, 9), (parts.biased, 11)], ids=["plain", "biased"])
def test_padding_behind_the_tokens(attention: Any, inputs: int) -> None:
    """For onnxruntime-genai only the number of a row's tokens counts, and the kernel knows their positions."""
    torch.manual_seed(0)
    model = parts.Decoder(*HALVES[:2], attention).eval()
    program, fused = parts.fused_program(model, "onnxruntime-genai", 21)
    assert fused.counts == fused.proven == {NORM: 1, ROTARY: 2, ATTENTION: 1, TOKENS: 1}
    nodes = [node for node in program.model_proto.graph.node if node.op_type == "GroupQueryAttention"]
    assert [len(node.input) for node in nodes] == [inputs]  # the angles, no positions, and the model's own bias
    args = parts.arguments(2, 6, 0, holes=[(1, 5), (1, 4)])
    with torch.no_grad():
        expected = model(*args)
    got = _run(program, args)
    seen = args[1].bool()
    assert_near(got[0][seen.numpy()], expected[0][seen], CHAIN, "y")


# id: (the example, the row, an argument of what it writes, a wrong value of it); without a name, all arguments
WRONG: dict[str, tuple[str, str, str, Callable[[Any], Any]]] = {
    "norm": ("halves", NORM, "eps", lambda eps: 0.1),
    "rotary": ("halves", ROTARY, "interleaved", lambda turned: not turned),
    "split": ("split", "split_rotary", "interleaved", lambda turned: not turned),
    "partial": ("pairs-not-of-the-kernel", "partial_rotary", "interleaved", lambda turned: not turned),
    "fused": ("scaled-dot-product", "fused_attention", "scale", lambda scale: scale * 1.01),
    "written": ("products", "written_attention", "mask", lambda mask: None),
    "scale": ("halves", ATTENTION, "scale", lambda scale: scale * 1.01),
    "window": ("window", ATTENTION, "window", lambda window: window + 1),
    "padding": ("halves", ATTENTION, "padding", lambda padding: None),
    "sinks": ("sinks", ATTENTION, "sinks", lambda sinks: None),
    "heads": ("no-rotary", ATTENTION, "heads", lambda heads: heads * 2),
    "tables": ("halves", ATTENTION, "interleaved", lambda turned: not turned),
    "order": ("halves", ATTENTION, "tensors", lambda weights: weights[::-1]),
    "skip": ("layer-norm-behind-a-sum", SKIP, "centered", lambda centered: not centered),
    "sum": ("behind-a-sum", SKIP, "eps", lambda eps: 0.1),
    "experts": ("experts", EXPERTS, "alpha", lambda alpha: alpha + 0.1),
    "past": ("biased", PAST, "bias", lambda bias: None),
    "past-scale": ("window", PAST, "scale", lambda scale: scale * 1.01),
    "gate": ("gated", GATED, "", lambda args: {"gate": args["up"], "up": args["gate"]}),
    "limit": ("experts-in-turns", EXPERTS, "limit", lambda limit: limit / 20),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_row_is_named(case: str) -> None:
    """A row that writes something else is named, with the layer, before a file is written."""
    name, wrong, argument, change = WRONG[case]
    norm, rotary, attention, options, _ = ROWS[name]

    def changed(row: Row) -> Row:
        if row.__name__ != wrong:
            return row

        @functools.wraps(row)
        def mistaken(site: FusionSite) -> Sequence[AtenValue] | None:
            found = row(site)
            for place, call in enumerate(site.before):
                if argument in call.args:
                    args = {**call.args, argument: change(call.args[argument])}
                else:
                    args = call.args if argument else change(call.args)
                site.before[place] = replace(call, args=args)
            return found

        return mistaken

    torch.manual_seed(0)
    model = parts.Decoder(norm, rotary, attention, **options).eval()
    with pytest.raises(VerificationError, match=f"decoder.py:[0-9]+.*the row '{wrong}' writes something else"):
        parts.fused_program(model, "onnx" if wrong in (PAST, GATED) else "onnxruntime", 23, changed)


def test_a_mask_of_the_model_stays() -> None:
    """A mask that nothing is known of is given to the standard's operator, and the report can say why."""

    def attention(query: Any, key: Any, value: Any, mask: Any) -> Any:
        return parts.recorded(query, key, value, mask & (torch.arange(mask.shape[-1]) != 2))

    torch.manual_seed(0)
    model = parts.Decoder(parts.powers, parts.in_halves, attention).eval()
    program, fused = parts.fused_program(model, "onnxruntime", 23)
    assert ATTENTION not in fused.counts and "its mask is made by code of the model" in fused.reasons[0]
    args = parts.arguments(1, 6, 2)
    with torch.no_grad():
        expected = model(*args)
    got = _run(program, args)
    assert_near(got[0], expected[0], CHAIN, "y")
