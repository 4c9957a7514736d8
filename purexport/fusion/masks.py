"""What a mask says of itself, for the rows of attention."""

from __future__ import annotations

from purexport.aten import own_operators as own
from purexport.aten.graph import AtenValue, Call
from purexport.fusion.expressions import Expressions


def made_by_visible(known: Expressions, mask: AtenValue) -> Call | None:
    """The call of `visible` that a mask is, or is made of: zero where a key is visible, the lowest number elsewhere."""
    call = known.call(known.plain(mask))
    if call is not None and call.base == "aten::where" and known.number(call.args.get("self")) == 0:
        hidden = known.number(call.args.get("other"))
        if isinstance(hidden, (int, float)) and hidden < 0:
            call = known.call(known.plain(call.args["condition"]))
    return call if call is not None and call.target == own.VISIBLE else None
