"""The ONNX graph while it is being built: values, nodes, graph.  It knows neither torch models nor bytes.

Invariants: a value has one producer (a node, a graph input, or it holds a constant); nodes are in an order in which
every input is produced before it is used.  Names are given once, at the end, by `passes.naming`.
Constants are torch tensors: exact in every dtype, and never copied from the model's own storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy.typing as npt
import torch

from proto_schema.external.payload import Payload
from proto_schema.wire.records import dataclass
from purexport.aten.graph import Dim, Source

Shape = tuple[Dim, ...] | None


class Value:
    """A tensor in the graph.  `dtype` is a TensorProto.DataType code; `shape` holds ints and sizes.
    `content` holds the elements of a small tensor in row-major order as far as they are known: numbers, sizes, None.

    A sequence has neither; instead `element` is the dtype and shape of its tensors.
    A constant whose bytes only the file needs has `stored` and no `const`; for every rule it is an unknown tensor.
    """

    __slots__ = ("const", "content", "dtype", "element", "name", "node", "sized", "stored")

    def __init__(
        self,
        dtype: int | None = None,
        shape: tuple[Dim, ...] | None = None,
        *,
        name: str = "",
        const: torch.Tensor | None = None,
        node: Node | None = None,
        stored: Payload | None = None,
    ) -> None:
        self.dtype = dtype
        self.sized = shape
        self.name = name
        self.const = const
        self.node = node
        self.stored = stored
        self.content: tuple[Any, ...] | None = None
        self.element: tuple[int, tuple[Dim, ...] | None] | None = None

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The sizes: ints where they cannot change."""
        return self.sized

    @shape.setter
    def shape(self, shape: tuple[Dim, ...] | None) -> None:
        self.sized = better(shape, self.sized)

    @property
    def is_constant(self) -> bool:
        """True for a value that the file holds as an initializer, whether its content is known here or not."""
        return self.const is not None or self.stored is not None

    @property
    def rank(self) -> int:
        """The number of dimensions.  Raises ValueError when it is unknown, which no rule can work around."""
        if self.shape is None:
            raise ValueError("the rank of a tensor is not known here")
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """True when every dimension is a known number."""
        return self.shape is not None and all(isinstance(dim, int) for dim in self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape as numbers.  Raises ValueError unless the shape is static."""
        sizes = tuple(dim for dim in self.shape or () if isinstance(dim, int))
        if self.shape is None or len(sizes) != len(self.shape):
            raise ValueError("the sizes of a tensor are not all known here")
        return sizes

    def array(self) -> npt.NDArray[Any] | None:
        """The elements of a constant, wider where numpy lacks the dtype; None for what is not a constant."""
        const = self.const
        if const is None or const.is_meta or const.is_complex() or const.is_quantized:
            return None
        narrow = const.is_floating_point() and const.dtype not in (torch.float16, torch.float32, torch.float64)
        found: npt.NDArray[Any] = (const.float() if narrow else const).detach().cpu().numpy()
        return found

    def ints(self) -> list[int] | None:
        """The elements in order, where they are integers and all are known."""
        content: Any = self.content
        if content is None and self.const is not None and not self.const.is_floating_point():
            array = self.array()
            content = None if array is None else array.reshape(-1).tolist()
        known = content is not None and all(isinstance(item, int) for item in content)
        return [int(item) for item in content] if known else None

    def number(self) -> float | None:
        """The only element of a constant."""
        array = self.array()
        return None if array is None or array.size != 1 else array.reshape(-1)[0].item()

    def __repr__(self) -> str:
        return f"<{self.name or 'value'}: {self.dtype} {self.shape}>"


@dataclass(slots=True, eq=False)
class Node:
    """One operator node; absent optional inputs are None.  `source` is the line of the model that it comes from.

    `version` is that of a domain of custom operators which the model names itself.
    """

    op_type: str
    inputs: list[Value | None]
    outputs: list[Value]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    source: Source = field(default_factory=Source)
    name: str = ""
    version: int = 1

    def subgraphs(self) -> Iterator[Graph]:
        """The bodies of If, Loop and Scan."""
        return (item for item in self.attributes.values() if isinstance(item, Graph))


@dataclass(slots=True, eq=False)
class Graph:
    """Inputs, outputs and nodes.

    Initializers are the constants that nodes or outputs refer to, including nodes in the bodies of If and Loop.  Bodies
    can use outer names, so all constants are in the main graph.
    """

    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def initializers(self) -> list[Value]:
        """The constants in use, in order of first use."""
        return list(dict.fromkeys(value for value in self.used() if value.is_constant))

    def used(self) -> Iterator[Value]:
        """Each value that a node or the result reads, in order, bodies included."""
        for node in self.nodes:
            yield from (value for value in node.inputs if value is not None)
            for body in node.subgraphs():
                yield from body.used()
        yield from self.outputs


def better(said: Shape, inferred: Shape) -> Shape:
    """What is known of a value in what is said of it and in what was inferred.

    Numbers go before sizes, and sizes before what is unknown.  Of two expressions, the one that is said has the names
    that users gave; of two ranks, the inferred one is the file's.
    """
    if said is None or inferred is None or len(said) != len(inferred):
        return said if inferred is None else inferred
    return tuple([_better(size, alternative) for size, alternative in zip(said, inferred, strict=True)])


def _better(one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) or other is None:
        return one
    return other if one is None or isinstance(other, int) else one
