"""What is known while a graph is lowered: what stands for each neutral value, and what cannot be lowered.

The walk (`lower`) owns it, and what lowers calls with blocks (`control`, `blocks`) works on it too.  These get
the walk itself as one function, `LowerCalls`, so that no file needs to know the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from proto_schema.wire.records import dataclass
from purexport.aten.graph import AtenValue, Call, Source, Type
from purexport.errors import Gap
from purexport.lowering.core.emitter import Emitter

# (op, calls, outputs): writes what `outputs` need of `calls` into the body of `op`, and gives the `op` with
# which to write behind the last of them
LowerCalls = Callable[[Emitter, Sequence[Call], Any], Emitter]


@dataclass(eq=False)
class LoweringState:
    """One lowering's tables, by neutral value.

    `env` holds values, Python numbers, `Pair`s and `Quantized`s, and lists of those.  `types` are those that this
    lowering knows better than the capture, because sizes of the example can change.
    """

    env: dict[AtenValue, Any] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    poisoned: set[AtenValue] = field(default_factory=set)  # results of what cannot be lowered
    absent: set[AtenValue] = field(default_factory=set)  # results that a symbolic function leaves out
    types: dict[AtenValue, Type] = field(default_factory=dict)

    def type(self, value: AtenValue) -> Type:
        """The type of a neutral value, as far as it is known here."""
        return self.types.get(value, value.type)

    def argument(self, arg: Any) -> Any:
        """What stands for a neutral argument: values, Python constants, lists of them."""
        if isinstance(arg, AtenValue):
            return self.env[arg]
        if isinstance(arg, (list, tuple)):
            return [self.argument(item) for item in arg]
        return arg

    def arguments(self, call: Call) -> dict[str, Any]:
        """What stands for each argument of a call, by name."""
        return {name: self.argument(arg) for name, arg in call.args.items()}

    def note(self, target: str, source: Source, reason: str, code: str, outer: str) -> None:
        """Report that a call of `target` cannot be lowered, by the error `code` of the cause.

        `outer` is the call whose decomposition holds it.
        """
        self.gaps.append(Gap(f"{target} (in {outer})" if outer else target, str(source), reason, code))
