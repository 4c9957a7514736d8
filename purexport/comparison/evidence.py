"""What a search for a fault knows of a file: its values, the reference's, and which node makes which value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import proto_schema as ps
from proto_schema.budget import BudgetLike
from proto_schema.graphs.names import free_names
from purexport.comparison.closeness import TensorDifference, difference
from purexport.comparison.file_values import FileValues
from purexport.comparison.torch_values import Anchor
from purexport.runtime.verification import Tolerance


@dataclass(frozen=True)
class Judged:
    """One value of the file beside torch's."""

    name: str
    place: int  # of its node in the file
    anchor: Anchor
    difference: TensorDifference


@dataclass
class Evidence:
    """What is known of one file: its values, what torch has for some of them, and a new export with the same nodes.

    For a file of another exporter `missing` is the first value of torch that it does not have.  `quantizing` are the
    places of nodes that read numbers in fewer bits, where the reference has floats.
    """

    file: ps.ModelProto
    found: FileValues
    anchors: Mapping[str, Anchor]
    bounds: Tolerance
    fresh: ps.ModelProto | None = None
    missing: Anchor | None = None
    quantizing: frozenset[int] = frozenset()
    budget: BudgetLike = None  # of each run of our evaluator
    makers: dict[str, int] = field(default_factory=dict)
    constants: dict[str, ps.TensorProto] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.file.graph
        self.makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
        self.constants = {tensor.name or "": tensor for tensor in graph.initializer}

    def judged(self) -> Iterator[Judged]:
        """The values that both have, in the order of the file."""
        outputs = {item.name for item in self.file.graph.output}
        names = sorted((name for name in self.anchors if name in self.makers), key=self.makers.__getitem__)
        for name in names:
            if name in self.found.values:
                anchor = self.anchors[name]
                inside = name not in outputs
                apart = difference(self.found.values[name], anchor.tensor, self.bounds, inside=inside)
                yield Judged(name, self.makers[name], anchor, apart)

    def behind(self, names: Sequence[str], right: frozenset[str] = frozenset()) -> list[int]:
        """The places of the nodes that `names` depend on, in order; those behind values in `right` are left out."""
        places: set[int] = set()
        todo = [name for name in names if name not in right]
        while todo:
            place = self.makers.get(todo.pop())
            if place is not None and place not in places:
                places.add(place)
                todo += [name for name in free_names(self.file.graph.node[place]) if name not in right]
        return sorted(places)
