"""Rows of the domain ai.onnx.preview.training."""

from __future__ import annotations

from proto_schema.inference.rows import row
from proto_schema.inference.site import Outputs, Site

_DOMAIN = "ai.onnx.preview.training"

# The inputs are the rate, the count, and groups of as many tensors each: the values, their gradients, then the states.
_GROUPS = {"Adagrad": 3, "Adam": 4, "Momentum": 3}


@row(*_GROUPS, domain=_DOMAIN)
def optimizer(site: Site) -> Outputs:
    """The new values and the new states, in the shapes of the old ones."""
    groups = _GROUPS[site.schema.name]
    given = len(site.inputs) - 2
    if given % groups:
        site.fail(f"{given} inputs follow the count, and {site.schema.name} takes {groups} for each tensor")
    count = given // groups
    kept = [*range(2, 2 + count), *range(2 + 2 * count, 2 + given)]
    return [site.out(site.shape(place), site.dtype(place)) for place in kept]


@row("Gradient", domain=_DOMAIN)
def gradient(site: Site) -> Outputs:
    """For each tensor of `xs` its gradient, which has its shape."""
    wanted = site.attribute("xs") or ()
    return [site.out(site.shape(place), site.dtype(place)) for place in range(len(wanted))]
