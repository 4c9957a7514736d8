"""Graph networks on an edge list: sums, means and maxima over neighbours, and attention with a softmax over the edges
that meet in a node.  Nodes and edges are dynamic."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import Case

WIDTH = 12


class Convolution(nn.Module):
    """Neighbours weighted by the degrees of both ends, loops added (Kipf and Welling 2016, arXiv:1609.02907)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bias = nn.Linear(WIDTH, WIDTH, bias=False), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        nodes = x.size(0)
        loops = torch.arange(nodes).unsqueeze(0).repeat(2, 1)
        source, target = torch.cat([edges, loops], dim=1)
        degree = torch.zeros(nodes).scatter_add_(0, target, torch.ones(target.size(0)))
        weight = degree.pow(-0.5)
        weight = weight.masked_fill(weight == float("inf"), 0.0)
        messages = self.linear(x)[source] * (weight[source] * weight[target]).unsqueeze(-1)
        return torch.zeros_like(x).index_add_(0, target, messages) + self.bias


class Reduced(nn.Module):
    """What neighbours say, reduced by scatter_reduce with or without the node itself."""

    def __init__(self, reduce: str, include_self: bool) -> None:
        super().__init__()
        self.reduce, self.include_self = reduce, include_self
        self.own, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        said = self.other(x).index_select(0, edges[0])
        index = edges[1].unsqueeze(-1).expand_as(said)
        start = torch.zeros(x.size(0), WIDTH)
        heard = start.scatter_reduce(0, index, said, reduce=self.reduce, include_self=self.include_self)
        return functional.normalize(self.own(x) + heard, p=2.0, dim=-1)


class EdgeAttention(nn.Module):
    """A softmax over the edges of each node (Velickovic et al. 2017, arXiv:1710.10903)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)
        self.source, self.target = nn.Parameter(torch.randn(2, 6)), nn.Parameter(torch.randn(2, 6))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        nodes = x.size(0)
        source, target = edges.unbind(0)
        heads = self.linear(x).view(-1, 2, 6)
        score = (heads * self.source).sum(-1)[source] + (heads * self.target).sum(-1)[target]
        score = functional.leaky_relu(score, 0.2)
        index = target.view(-1, 1).expand(-1, 2)
        highest = torch.full((nodes, 2), float("-inf")).scatter_reduce_(0, index, score, "amax")
        grown = (score - highest[target]).exp()
        total = torch.zeros(nodes, 2).scatter_add(0, index, grown)[target] + 1e-16
        messages = heads[source] * (grown / total).unsqueeze(-1)
        return torch.zeros(nodes, 2, 6).index_add(0, target, messages).flatten(1)


class GraphNetwork(nn.Module):
    """Nodes [nodes, width], edges [2, edges], and the graph that each node belongs to -> a verdict a graph."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.second, self.out = layer, Convolution(), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor) -> tuple[Tensor, Tensor]:
        x = self.second(functional.elu(self.layer(x, edges)), edges)
        count = torch.bincount(graph, minlength=3).clamp(min=1)
        pooled = torch.zeros(3, WIDTH).index_add_(0, graph, x) / count[:3].unsqueeze(-1)
        return self.out(pooled), x


def _inputs(nodes: int, edges: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(nodes, WIDTH), torch.randint(0, nodes, (2, edges)), torch.randint(0, 3, (nodes,)).sort().values


_LAYERS = {
    "convolution": Convolution,
    "mean": lambda: Reduced("mean", False),
    "amax": lambda: Reduced("amax", False),
    "sum-self": lambda: Reduced("sum", True),
    "amin-self": lambda: Reduced("amin", True),
    "attention": EdgeAttention,
}
CASES = [
    Case(
        f"graph-{name}",
        lambda make=make: GraphNetwork(make()),
        _inputs,
        {0: {0: "nodes"}, 1: {1: "edges"}, 2: {0: "nodes"}},
        {"nodes": 7, "edges": 15},
        [{"nodes": 1, "edges": 1}, {"nodes": 11, "edges": 40}, {"nodes": 5, "edges": 0}],
        min_opset=16 if name in ("convolution", "sum-self") else 18,  # ScatterElements adds from 16 on
    )
    for name, make in _LAYERS.items()
]
