"""What a model writes to its inputs and buffers: the user is warned, the export refuses, or the file keeps the writes.

With `mutated_state="io"` the file keeps them.  A buffer becomes an input of the file under its own name, and its value
after the call becomes an output (`cache` and `cache_out`), so the program that runs the file keeps the state.  An input
that the model writes to gets an output in the same way.
"""

from __future__ import annotations

from dataclasses import field, replace

import torch

from proto_schema.wire.records import dataclass
from purexport.aten.graph import AtenGraph, Input
from purexport.aten.unique_names import UniqueNames
from purexport.errors import ExportError
from purexport.functionalize.graph import Functionalized


@dataclass
class BufferState:
    """The buffers that became inputs, with their first values, and the names of everything that is written."""

    first: dict[str, torch.Tensor] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)


def write_remarks(pure: Functionalized, policy: str) -> list[str]:
    """One remark for each input, parameter or buffer that the model writes to, unless the file returns the value.

    `policy` is `mutated_state`.  With "io" there are no remarks, because the writes are kept.  With "error" an
    ExportError with all remarks is raised.
    """
    if policy == "io":
        return []
    remarks = [
        f"the model writes to its {_what(item.input)} {item.input.name!r} at {item.place}; the values inside the file "
        "are right, the write itself is not kept"
        for item in pure.mutations
        if item.value is None or item.input.kind != "user" or item.value not in pure.graph.outputs
    ]
    if remarks and policy == "error":
        raise ExportError("\n".join(remarks) + "\n(mutated_state='error')", code="state-written")
    return remarks


def _what(item: Input) -> str:
    return "input" if item.kind == "user" else item.kind


def keep_state(pure: Functionalized) -> tuple[AtenGraph, BufferState]:
    """The graph with the inputs and outputs: first those for the user's inputs, then those for the model's buffers.

    Raises ExportError for a buffer whose new value the capture does not know, or whose first value is not available.
    """
    graph, found = pure.graph, BufferState()
    written = {item.input: item for item in pure.mutations}
    kept: dict[Input, Input] = {}
    outputs, output_names = list(graph.outputs), list(graph.output_names)
    names = UniqueNames(graph.output_names)
    for item in sorted(written, key=lambda item: (item.kind != "user", graph.inputs.index(item))):
        if written[item].value is None:
            raise ExportError(
                f"the model assigns a tensor to its buffer {item.name!r}, and torch.export does not record which one; "
                "export with capture='trace', or write into the buffer (.copy_())",
                code="buffer-assigned",
            )
        found.written.append(item.name)
        outputs.append(written[item].value)
        output_names.append(names.unique(f"{item.name}_out"))
        if item.stored is not None:
            raise ExportError(
                f"the model writes to its buffer {item.name!r}, whose first value is not at hand; give that one as a "
                'tensor: weights=[checkpoint, {"NAME": tensor}]',
                code="tensor-without-values",
            )
        if item.tensor is not None:
            found.first[item.name] = item.tensor.detach().clone()
            kept[item] = replace(item, kind="state", tensor=None)
    inputs = [*(item for item in graph.inputs if item not in kept), *kept.values()]
    return replace(graph, inputs=inputs, outputs=outputs, output_names=output_names), found
