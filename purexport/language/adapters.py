"""LoRA adapters of a model: kept as the products that they are, merged into the weights, or inputs of the file.

A layer of the package peft has a `base_layer`, and small matrices A and B by the name of an adapter; it gives
base(x) + scaling * B(A(x)).  For the time of an export layers of ours stand in its place.  Merged, there is one weight,
base + scaling * B @ A.  As inputs, A is [in, rank] and B is [rank, out], with the scaling in it: what runtimes call an
adapter.  peft is not imported: its layers are known by what they hold, and what else they could hold is refused.
Invariant: afterwards the model has its own layers and weights, also after an error.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import proto_schema as ps
from purexport.errors import ExportError
from purexport.language.library import library
from purexport.program import ONNXProgram

CHOICES = (None, "merge", "inputs")
A, B = "lora_A.weight", "lora_B.weight"
_RANK = "lora_rank"
# what a layer of peft may hold beside A and B; where it does, it computes something else
_MORE = ("lora_magnitude_vector", "lora_variant", "lora_embedding_A", "lora_bias", "use_dora")


def without_wrapper(model: Any) -> Any:
    """The model of transformers in a model of peft; other models as they are.

    Raises ExportError where peft computes more around it than its layers do.
    """
    if not (hasattr(model, "get_base_model") and hasattr(model, "peft_config")):
        return model
    if any(getattr(config, "is_prompt_learning", False) for config in model.peft_config.values()):
        raise ExportError(
            "the adapter puts learnt tokens in front of a prompt, which the file would not have; only adapters in "
            "layers can be exported",
            code="unknown-adapter",
        )
    return model.get_base_model()


@contextmanager
def adapters_as(model: Any, choice: str | None) -> Iterator[list[str]]:
    """Inside, the LoRA layers of `model` are merged or have their adapters as parameters.

    Gives the names of these parameters in the model.  Raises ExportError for adapters of another kind, and for a model
    without any where one is asked for.
    """
    if choice is None:
        yield []
        return
    adapted = [
        (parent, child, f"{path}.{child}".lstrip("."), layer)
        for path, parent in model.named_modules()
        for child, layer in parent.named_children()
        if hasattr(layer, "base_layer")
    ]
    if not adapted:
        raise ExportError(f"{type(model).__name__} has no LoRA layers, which lora={choice!r} needs", code="no-adapter")
    made = _merged if choice == "merge" else _AdaptedLayer
    ours = [made(*_matrices(layer, name, choice)) for _, _, name, layer in adapted]
    try:
        for (parent, child, _, _), layer in zip(adapted, ours, strict=True):
            parent._modules[child] = layer
        inputs = [f"{name}.{part}" for _, _, name, _ in adapted for part in (A, B)]
        yield inputs if choice == "inputs" else []
    finally:
        for parent, child, _, layer in adapted:
            parent._modules[child] = layer


def _matrices(layer: Any, name: str, choice: str) -> tuple[Any, Tensor, Tensor]:
    """The base layer, A [in, rank] and B [rank, out] with the scaling, of the adapters that are in use."""

    def refuse(why: str) -> ExportError:
        return ExportError(
            f"the adapter of {name} {why}, so lora={choice!r} cannot be used; leave lora out to keep the adapter "
            "beside the weights",
            code="unknown-adapter",
        )

    base = layer.base_layer
    if not (hasattr(layer, "lora_A") and hasattr(layer, "lora_B") and hasattr(layer, "scaling")):
        raise refuse("is not of LoRA")
    if not isinstance(base, (nn.Linear, library("pytorch_utils").Conv1D)):
        raise refuse(f"is on a layer of the kind {type(base).__name__}")
    if getattr(layer, "merged", False) or getattr(layer, "disable_adapters", False):
        raise refuse("is merged or disabled")
    names = [item for item in _names(layer) if item in layer.lora_A]
    if not names or (choice == "inputs" and len(names) > 1):
        raise refuse(f"is one of {len(names)} in use")
    parts = []
    for adapter in names:
        pair = [layer.lora_A[adapter], layer.lora_B[adapter]]
        if any(type(item) is not nn.Linear or item.bias is not None for item in pair):
            raise refuse("has more than two matrices")
        for more in _MORE:
            held = getattr(layer, more, None) or {}
            if adapter in held and held[adapter] is not False:
                raise refuse(f"has {more}")
        parts.append((pair[0].weight.t(), pair[1].weight.t() * layer.scaling[adapter]))
    return base, torch.cat([one for one, _ in parts], 1).detach(), torch.cat([two for _, two in parts]).detach()


def _names(layer: Any) -> list[str]:
    names = getattr(layer, "active_adapters", None) or getattr(layer, "active_adapter", None) or []
    return [names] if isinstance(names, str) else list(names)


def _merged(base: Any, a: Tensor, b: Tensor) -> nn.Module:
    """The base layer, with a weight of its own."""
    found = copy.copy(base)
    delta = a.to(torch.float32) @ b.to(torch.float32)
    if isinstance(base, nn.Linear):
        delta = delta.t()
    weight = (base.weight.detach() + delta).to(base.weight.dtype)
    found._parameters = {**base._parameters, "weight": nn.Parameter(weight, requires_grad=False)}
    return found  # type: ignore[no-any-return]


class _AdaptedLayer(nn.Module):
    """A layer with its adapter: base(x) + x @ A @ B."""

    def __init__(self, base: Any, a: Tensor, b: Tensor) -> None:
        super().__init__()
        self.base_layer = base
        for name, item in (("lora_A", a), ("lora_B", b)):
            holder = nn.Module()
            holder.weight = nn.Parameter(item.contiguous(), requires_grad=False)
            self.add_module(name, holder)

    def forward(self, x: Tensor) -> Tensor:
        """The layer, and its adapter added."""
        found = self.base_layer(x)
        a, b = (getattr(self, name).weight for name in ("lora_A", "lora_B"))
        result: Tensor = found + (x.to(a.dtype) @ a @ b).to(found.dtype)
        return result


def make_inputs(program: ONNXProgram, names: list[str]) -> None:
    """Make initializers inputs as well, which keep their values as defaults; the rank of an adapter may vary.

    Raises ExportError where the file has no initializer of such a name.
    """
    graph = program.model_proto.graph
    held = {item.name: item for item in graph.initializer} if graph is not None else {}
    for name in names:
        tensor = held.get(f"model.{name}")
        if graph is None or tensor is None:
            raise ExportError(f"the adapter {name} is not in the file: the model does not use it", code="no-adapter")
        shape: list[int | str] = list(tensor.dims)
        shape[1 if name.endswith(A) else 0] = _RANK
        graph.input.append(ps.helper.make_tensor_value_info(tensor.name or "", tensor.data_type or 0, shape))
