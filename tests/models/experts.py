"""A mixture of experts: each token goes to the two experts that the router prefers, in four ways of writing it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.models.case import Case

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


CASES = [
    Case(
        f"experts-{name}",
        make,
        lambda batch, length: (torch.randn(batch, length, WIDTH),),
        {0: {0: "batch", 1: "length"}},
        {"batch": 2, "length": 5},
        [{"batch": 1, "length": 1}, {"batch": 3, "length": 11}],
        min_opset=16 if name == "index-add" else 13,
    )
    for name, make in (
        ("index-add", ByIndexAdd),
        ("nonzero", ByNonzero),
        ("mask", ByMask),
        ("dense", Dense),
        ("capacity", Capacity),
    )
]
