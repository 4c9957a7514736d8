"""What a quantization works on: the model as it can be quantized, the weights that are taken, and those that stay."""

from __future__ import annotations

from proto_schema.ir import Model, from_message
from proto_schema.onnx import ModelProto
from proto_schema.quantization.arranged import prepared
from proto_schema.quantization.candidates import Left, Weight, candidates
from proto_schema.quantization.hoisted import hoist
from proto_schema.quantization.scheme import Scheme
from proto_schema.wire.records import dataclass


@dataclass(frozen=True)
class Chosen:
    """The model, in which what is taken are initializers of the main graph; large tensors are left for a reason."""

    model: Model
    weights: list[Weight]
    left: list[Left]


def chosen(model: ModelProto, scheme: Scheme, target: str) -> Chosen:
    """The weights that the scheme takes, wherever the model keeps them; what is not taken stays where it is."""
    together, names = prepared(model, scheme)
    work = from_message(together)
    found = hoist(work, scheme.smallest)
    weights, left = candidates(work, scheme, target, names)
    left += found.left
    taken = {id(weight.tensor) for weight in weights}
    if not taken.issuperset(found.sources):
        only = {id(source) for made, source in found.sources.items() if made in taken}
        work = from_message(together)
        found = hoist(work, scheme.smallest, only)
        weights, _ = candidates(work, scheme, target, names)
    for weight in weights:
        weight.home = found.homes.get(id(weight.tensor))
    return Chosen(work, weights, left)
