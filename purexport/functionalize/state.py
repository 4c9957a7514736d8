"""What a model writes to its inputs and buffers: said or refused, or, with `mutated_state="io"`, part of the file.

Then a buffer becomes an input of the file, under its own name, and what it holds after the call an output (`cache`
and `cache_out`).  So whoever runs the file keeps the state.  Inputs that the model writes to get an output likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from purexport.aten.graph import Input
from purexport.aten.unique_names import UniqueNames
from purexport.errors import ExportError
from purexport.functionalize.graph import Functionalized


@dataclass
class State:
    """The buffers that are inputs now, with their first values, and the names of all that is written."""

    first: dict[str, torch.Tensor] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)


def write_remarks(pure: Functionalized, policy: str) -> list[str]:
    """What the model writes to its inputs, parameters and buffers, a remark for each.

    `policy` is `mutated_state`: nothing is to be said where the writes are kept.  Raises ExportError with all
    remarks for "error".
    """
    if policy == "io":
        return []
    remarks = [
        f"the model writes to its {_what(item.input)} {item.input.name!r} at {item.place}; the values inside the file "
        "are right, the write itself is not kept"
        for item in pure.mutations
    ]
    if remarks and policy == "error":
        raise ExportError("\n".join(remarks) + "\n(mutated_state='error')", code="state-written")
    return remarks


def _what(item: Input) -> str:
    return "input" if item.kind == "user" else item.kind


def keep_state(pure: Functionalized) -> State:
    """Add the inputs and outputs: those of the user first, then the model's own, in their order.

    Raises ExportError for a buffer whose new value the capture does not know.
    """
    graph, found = pure.graph, State()
    written = {item.input: item for item in pure.mutations}
    kept: list[Input] = []
    names = UniqueNames(graph.output_names)
    for item in sorted(written, key=lambda item: (item.kind != "user", graph.inputs.index(item))):
        if written[item].value is None:
            raise ExportError(
                f"the model assigns its buffer {item.name!r}, and torch.export does not record what; "
                "export with capture='trace', or write into the buffer (.copy_())",
                code="buffer-assigned",
            )
        found.written.append(item.name)
        graph.outputs.append(written[item].value)
        graph.output_names.append(names.unique(f"{item.name}_out"))
        if item.stored is not None:
            raise ExportError(
                f"the model writes to its buffer {item.name!r}, whose first value is not at hand; give that one as a "
                'tensor: weights=[checkpoint, {"NAME": tensor}]',
                code="tensor-without-values",
            )
        if item.tensor is not None:
            found.first[item.name] = item.tensor.detach().clone()
            item.kind, item.tensor = "state", None
            kept.append(item)
    graph.inputs = [item for item in graph.inputs if item not in kept] + kept
    return found
