"""What the recorder must know of an operator, found out once: names and defaults of arguments, what a result is."""

from __future__ import annotations

from typing import Any

import torch

from purexport.aten.graph import OWN_NAMESPACE
from purexport.aten.names import name_of, operator_of
from purexport.aten.schema import MISSING, signature


class Operator:
    """One overload.

    `names` and `defaults` are those of its parameters, in order.  `same` says of each result which parameter is
    returned itself, because it was written.  `writes` are the places of the parameters that are written.  `kernel` is
    the operator that computes it.  `random` is True where a generator decides the result, `changes_layout` where a
    tensor that is written may get other sizes.
    """

    __slots__ = ("changes_layout", "defaults", "kernel", "names", "overload", "random", "same", "target", "writes")

    def __init__(self, overload: Any) -> None:
        self.overload = overload
        target = name_of(overload._schema)
        own = f"{OWN_NAMESPACE}::"
        self.target = f"aten::{target.removeprefix(own)}" if target.startswith(own) else target
        self.kernel: Any = operator_of(self.target) if target.startswith(own) else overload
        found = signature(target)
        self.names = tuple(parameter.name for parameter in found.parameters)
        self.defaults = tuple(parameter.default for parameter in found.parameters)
        written = {item.alias: place for place, item in enumerate(found.parameters) if item.writes}
        self.writes = tuple(written.values())
        self.same = tuple(written.get(alias) if alias is not None else None for alias in found.returns)
        self.random = torch.Tag.nondeterministic_seeded in overload.tags
        outs = any(item.kwarg_only and item.is_out for item in overload._schema.arguments)
        self.changes_layout = outs or torch.Tag.inplace_view in overload.tags or self.target in _RESIZING

    def bound(self, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, in the order of the schema, with defaults."""
        found = dict(zip(self.names, args, strict=False))
        for place in range(len(args), len(self.names)):
            name = self.names[place]
            if name in kwargs:
                found[name] = kwargs[name]
            else:
                default = self.defaults[place]
                if default is MISSING:
                    raise TypeError(f"{self.target} misses its argument {name!r}")
                found[name] = default
        return found


_RESIZING = frozenset(["aten::resize_", "aten::resize_as_", "aten::set_.source_Tensor", "aten::set_"])
