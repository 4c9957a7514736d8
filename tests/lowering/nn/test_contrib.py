"""`target="onnxruntime"`: operators of com.microsoft, at the sizes of the example and at others, beside torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import purexport
from tests.harness import CAPTURES
from tests.tolerances import assert_near

_HEADS, _WIDTH = 4, 8


class Layer(nn.Module):
    """Attention as most models write it; `others` is what it attends to, itself by default."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(32, 32), nn.Linear(32, 64), nn.Linear(32, 32)
        self.options = options

    def forward(self, x: Tensor, mask: Tensor | None = None, others: Tensor | None = None) -> Tensor:
        apart = [self.q(x), *self.kv(x if others is None else others).chunk(2, -1)]
        heads = [item.view(*item.shape[:2], _HEADS, _WIDTH).transpose(1, 2) for item in apart]
        found = functional.scaled_dot_product_attention(*heads, attn_mask=mask, **self.options)
        return self.out(found.transpose(1, 2).reshape(x.shape))


def _mask(kind: str, batch: int, length: int, keys: int) -> Tensor | None:
    if kind == "keys":
        return torch.arange(keys) <= torch.arange(batch).reshape(batch, 1, 1, 1) + 1
    if kind == "nothing seen":
        return torch.zeros(batch, 1, 1, keys, dtype=torch.bool)
    return torch.randn(_HEADS, length, keys) if kind == "added" else None


# what is tried, options of attention, the kind of mask, whether it attends to something else, whether it is one node
ROWS = [
    ("plain", {}, "", False, True),
    ("scale", {"scale": 0.3}, "", False, True),
    ("causal", {"is_causal": True}, "", False, True),
    ("causal-to-others", {"is_causal": True}, "", True, False),  # the kernel counts from the last key, torch does not
    ("others", {}, "", True, True),
    ("mask", {}, "keys", False, True),
    ("mask-of-everything", {}, "nothing seen", False, True),
    ("added", {}, "added", True, True),
]


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize(("options", "kind", "to_others", "fused"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_attention(options: dict[str, Any], kind: str, to_others: bool, fused: bool, capture: str) -> None:
    model = Layer(**options).eval()

    def arguments(batch: int, length: int, keys: int) -> dict[str, Tensor]:
        keys = keys if to_others else length
        found = {"x": torch.randn(batch, length, 32), "mask": _mask(kind, batch, length, keys)}
        found["others"] = torch.randn(batch, keys, 32) if to_others else None
        return {name: item for name, item in found.items() if item is not None}

    axes = {"x": {0: "batch", 1: "length"}, "others": {0: "batch", 1: "keys"}}
    axes["mask"] = {1: "length", 2: "keys" if to_others else "length"}
    if kind != "added":
        axes["mask"] = {0: "batch", 3: "keys" if to_others else "length"}
    given = arguments(2, 5, 6)
    program = purexport.export(
        model,
        kwargs=given,
        input_names=list(given),
        dynamic_axes={name: axes[name] for name in given},
        target="onnxruntime",
        opset_version=17,
        capture=capture,
    )
    kinds = [(node.domain, node.op_type) for node in program.model_proto.graph.node]
    assert (("com.microsoft", "MultiHeadAttention") in kinds) == fused
    for sizes in ((2, 5, 6), (1, 1, 1), (3, 9, 4)):
        args = arguments(*sizes)
        (found,) = program(**args)
        assert_near(found.numpy(), model(**args).detach().numpy())


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(Layer().double(), id="float64"),  # which the kernel does not take
        pytest.param(Layer(dropout_p=0.5), id="dropout"),
    ],
)
def test_what_the_kernel_lacks_is_written_out(model: Layer) -> None:
    x = torch.randn(2, 5, 32, dtype=model.q.weight.dtype)
    program = purexport.export(model, (x,), target="onnxruntime")
    assert "MultiHeadAttention" not in {node.op_type for node in program.model_proto.graph.node}


def test_weights_become_those_of_its_operators() -> None:
    model, x = Layer().eval(), torch.randn(2, 5, 32)
    program = purexport.export(model, (x,), target="onnxruntime", quantize="int4", verify=True)
    kinds = [node.op_type for node in program.model_proto.graph.node]
    assert kinds.count("MatMulNBits") == 3 and "MatMul" not in kinds
    standard = purexport.export(model, (x,), target="onnxruntime", quantize={"type": "int4", "target": "onnx"})
    assert "DequantizeLinear" in {node.op_type for node in standard.model_proto.graph.node}
