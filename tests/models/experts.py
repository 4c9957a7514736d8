"""A mixture of experts: each token goes to the two experts that the router prefers, in many ways of writing it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import ROUTES, Case
from tests.transformers_shim import grouped_mm_fallback

WIDTH, EXPERTS, CHOSEN = 16, 4, 2


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 24, bias=False), nn.Linear(WIDTH, 24, bias=False)
        self.down = nn.Linear(24, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """States [batch, length, width] -> the same, and the router's logits."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.router(flat)
        weights, chosen = torch.topk(functional.softmax(logits, dim=1, dtype=torch.float), CHOSEN, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), chosen, logits

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.view(-1, WIDTH)
        weights, chosen, logits = self.route(flat)
        return self.mix(flat, weights, chosen).reshape(x.shape), logits

    def mix(self, flat: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        raise NotImplementedError


class ByIndexAdd(Experts):
    """Each expert sees its tokens, found by where; what it says is added at their places."""

    def mix(self, flat: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        result = torch.zeros_like(flat)
        masks = functional.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
        for number, expert in enumerate(self.experts):
            rank, token = torch.where(masks[number])
            state = flat[None, token].reshape(-1, WIDTH)
            result.index_add_(0, token, (expert(state) * weights[token, rank, None]).to(flat.dtype))
        return result


class ByNonzero(Experts):
    """The same by nonzero, and a write through an index."""

    def mix(self, flat: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        result = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, rank = (chosen == number).nonzero(as_tuple=True)
            result[token] += weights[token, rank].unsqueeze(-1) * expert(flat[token])
        return result


class ByMask(Experts):
    """Boolean masks on both sides."""

    def mix(self, flat: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        spread = flat.repeat_interleave(CHOSEN, dim=0)
        result, which = torch.empty_like(spread), chosen.view(-1)
        for number, expert in enumerate(self.experts):
            result[which == number] = expert(spread[which == number])
        return (result.view(*weights.shape, -1) * weights.unsqueeze(-1)).sum(dim=1)


class Dense(Experts):
    """Every expert sees every token, all in one product; the weights of those not chosen are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Parameter(torch.randn(EXPERTS, WIDTH, 24) / 4)
        self.narrow = nn.Parameter(torch.randn(EXPERTS, 24, WIDTH) / 5)

    def mix(self, flat: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        full = torch.zeros(flat.size(0), EXPERTS).scatter_(1, chosen, weights)
        inner = functional.gelu(torch.einsum("tw,ewi->eti", flat, self.wide))
        return torch.einsum("eti,eiw,te->tw", inner, self.narrow, full)


class Capacity(Experts):
    """Each expert takes so many tokens and no more: places by a running count (Fedus et al. 2021)."""

    def mix(self, flat: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        first = functional.one_hot(chosen[:, 0], EXPERTS)
        place = torch.cumsum(first, dim=0) * first
        kept = first * (place <= 3)
        slots = functional.one_hot(((place - 1) * kept).clamp(min=0), 3) * kept.unsqueeze(-1)
        dispatched = torch.einsum("tec,tw->ecw", slots.to(flat.dtype), flat)
        outputs = torch.stack([expert(dispatched[number]) for number, expert in enumerate(self.experts)])
        combine = slots * weights[:, :1, None]
        return torch.einsum("tec,ecw->tw", combine, outputs)


class Grouped(Experts):
    """Rows sorted by expert, one grouped product for all of them, and back in order."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Parameter(torch.randn(EXPERTS, 24, WIDTH) / 4)
        self.narrow = nn.Parameter(torch.randn(EXPERTS, WIDTH, 24) / 5)

    def mix(self, flat: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        numbers, order = torch.sort(chosen.reshape(-1))
        counts = torch.histc(numbers.float(), bins=EXPERTS, min=0, max=EXPERTS - 1)
        ends = torch.cumsum(counts, dim=0, dtype=torch.int32)
        state = functional.silu(self.product(flat[order // CHOSEN], self.wide, ends))
        state = self.product(state, self.narrow, ends) * weights.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.size(0))
        return state[back].view(*chosen.shape, WIDTH).sum(dim=1)

    def product(self, state: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
        return grouped_mm_fallback(state, weights.transpose(-2, -1), ends)


class GroupedByTorch(Grouped):
    """torch's own grouped product, which torch.export takes in bfloat16 only."""

    def product(self, state: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
        return functional.grouped_mm(state, weights.transpose(-2, -1), offs=ends)


class ByHits(Experts):
    """A loop over the experts that have tokens: the data decides how often it runs."""

    def mix(self, flat: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        result = torch.zeros_like(flat)
        masks = functional.one_hot(chosen, num_classes=EXPERTS).permute(2, 1, 0)
        for (number,) in torch.greater(masks.sum(dim=(-1, -2)), 0).nonzero():
            rank, token = torch.where(masks[number])
            state = self.experts[0](flat[token]) * (number + 1)
            result.index_add_(0, token, state * weights[token, rank, None])
        return result


CASES = [
    Case(
        f"experts-{name}",
        make,
        lambda batch, length: (torch.randn(batch, length, WIDTH),),
        {0: {0: "batch", 1: "length"}},
        {"batch": 2, "length": 5},
        [{"batch": 1, "length": 1}, {"batch": 3, "length": 11}],
        min_opset=16 if name in ("index-add", "hits") else 13,
        routes=("trace",) if name == "grouped-by-torch" else ROUTES,
    )
    for name, make in (
        ("index-add", ByIndexAdd),
        ("nonzero", ByNonzero),
        ("mask", ByMask),
        ("dense", Dense),
        ("capacity", Capacity),
        ("grouped", Grouped),
        ("grouped-by-torch", GroupedByTorch),
        ("hits", ByHits),
    )
]
