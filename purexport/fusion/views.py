"""Rows for views that lead back to where they came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from purexport.aten.graph import AtenValue
from purexport.fusion.expressions import Expressions, shape_of
from purexport.fusion.rewriting import FusionSite

_VIEWS = frozenset({"aten::view", "aten::reshape", "aten::flatten"})


def tokens_first(site: FusionSite) -> Sequence[AtenValue] | None:
    """[batch, length, heads * size], taken apart into heads, their axis moved there and back, and joined again."""
    call, known = site.call, site.known
    if call.base not in _VIEWS:
        return None
    apart = known.call(_untransposed(known, known.plain(call.args["self"])))
    if apart is None or apart.target != "aten::unflatten.int" or apart.args["dim"] != 2:
        return None
    source = known.plain(apart.args["self"])
    shape, kind = shape_of(source), call.outputs[0].tensor
    return [source] if shape == kind.shape and len(shape or ()) == 3 and source.tensor.dtype == kind.dtype else None


def _untransposed(known: Expressions, value: Any) -> Any:
    """x where `value` is x with two axes exchanged twice; otherwise `value` itself."""
    one = known.call(value)
    two = known.call(known.plain(one.args["self"])) if one is not None and one.base == "aten::transpose" else None
    if one is None or two is None or two.base != "aten::transpose":
        return value
    rank = len(shape_of(value) or (None,))
    axes = [{call.args[name] % rank for name in ("dim0", "dim1")} for call in (one, two)]
    return known.plain(two.args["self"]) if axes[0] == axes[1] else value
