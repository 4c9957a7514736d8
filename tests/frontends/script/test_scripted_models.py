"""Models whose control flow follows their data, as scripts: decoding, beam search, recurrence by length, trees.

And the scripts of torch's own documents about exporting.
"""

# ruff: noqa: UP006, UP035  TorchScript knows these forms, and they are what is tested

from __future__ import annotations

from typing import List, Tuple

import pytest
import torch
from torch import Tensor, nn

import purexport
from tests.frontends.script.scripted import SEED, Program, Programs, i64, run_program
from tests.tiers import dealt

programs = Programs()
WORDS, BEGIN, END, WIDTH = 7, 1, 2, 8


class Attention(nn.Module):
    """Additive attention over the encoder's states."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, h: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        scores = self.score(torch.tanh(self.query(h).unsqueeze(1) + self.key(memory))).squeeze(-1)
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)


class Step(nn.Module):
    """One step of a decoder: the logits of the next word, and the new state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.attention = Attention()
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, word: Tensor, h: Tensor, memory: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        context = self.attention(h, memory, mask)
        h = self.cell(torch.cat([self.embed(word), context], dim=1), h)
        return self.out(h) * 4, h


class Greedy(nn.Module):
    """Sequence to sequence with attention, decoded greedily until every sentence has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.step = Step()
        self.most, self.begin, self.end = 9, BEGIN, END

    def forward(self, source: Tensor) -> Tuple[Tensor, Tensor]:
        memory, last = self.encoder(self.embed(source))
        mask = source == 0
        h = last[0]
        word = torch.full((source.size(0),), self.begin, dtype=torch.long)
        ended = torch.zeros(source.size(0), dtype=torch.bool)
        words: List[Tensor] = []
        total = torch.zeros(source.size(0))
        for _ in range(self.most):
            logits, h = self.step(word, h, memory, mask)
            best, word = torch.log_softmax(logits, dim=1).max(dim=1)
            word = word.masked_fill(ended, 0)
            total = total + best.masked_fill(ended, 0.0)
            words.append(word)
            ended = ended | (word == self.end)
            if bool(ended.all()):
                break
        return torch.stack(words, dim=1), total


SOURCES = [torch.tensor(rows) for rows in ([[3, 4, 5, 0]], [[5, 5, 6, 6]], [[1, 6, 3, 2]], [[4, 4, 0, 0]])]
programs.row(SOURCES[0], others=[(source,) for source in SOURCES], min_opset=13)(Greedy)


@programs.row(
    SOURCES[0],
    others=[(torch.tensor([[3, 5], [6, 4], [1, 1]]),), (torch.tensor([[3, 5, 2, 2, 4]]),)],
    axes={"source": {0: "batch", 1: "length"}},
    min_opset=13,
)
class GreedyOfAnySize(Greedy):
    pass


class BeamSearch(nn.Module):
    """The best few sentences at each step; ended ones are kept aside, and the best by mean score is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.step = Step()
        self.beams, self.words = 3, WORDS
        self.most, self.begin, self.end = 7, BEGIN, END

    def forward(self, source: Tensor) -> Tuple[Tensor, Tensor, int]:
        memory, last = self.encoder(self.embed(source))
        memory = memory.expand(self.beams, -1, -1)
        mask = (source == 0).expand(self.beams, -1)
        h = last[0].expand(self.beams, -1)
        scores = torch.tensor([0.0, -1e4, -1e4])
        sentences = torch.full((self.beams, 1), self.begin, dtype=torch.long)
        ended: List[Tensor] = []
        ended_scores: List[Tensor] = []
        for step in range(self.most):
            logits, h = self.step(sentences[:, -1], h, memory, mask)
            totals = scores.unsqueeze(1) + torch.log_softmax(logits, dim=1)
            best, places = totals.view(-1).topk(self.beams)
            parents = torch.div(places, self.words, rounding_mode="floor")
            words = places % self.words
            sentences = torch.cat([sentences[parents], words.unsqueeze(1)], dim=1)
            h, scores = h[parents], best
            for beam in range(self.beams):
                if bool(words[beam] == self.end):
                    ended.append(sentences[beam])
                    ended_scores.append(scores[beam] / (step + 1))
                    scores = torch.where(torch.arange(self.beams) == beam, -1e4, scores)
            if len(ended) >= 2:
                break
        if len(ended) == 0:
            ended.append(sentences[0])
            ended_scores.append(scores[0])
        winner = int(torch.stack(ended_scores).argmax())
        return ended[winner], ended_scores[winner], len(ended)


programs.row(SOURCES[0], others=[(source,) for source in SOURCES], min_opset=13)(BeamSearch)


@programs.row(
    torch.rand(6, 2, 3),
    i64(4, 2),
    others=[(torch.rand(6, 2, 3), i64(*lengths)) for lengths in ((1, 1), (6, 3), (5, 6), (0, 0))],
)
class Unrolled(nn.Module):
    """A recurrent cell unrolled to the longest sentence; shorter ones keep their state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tuple[Tensor, Tensor]:
        h, c = torch.zeros(x.size(1), 4), torch.zeros(x.size(1), 4)
        step = 0
        while step < int(lengths.max()):
            new_h, new_c = self.cell(x[step], (h, c))
            running = (lengths > step).unsqueeze(1)
            h, c = torch.where(running, new_h, h), torch.where(running, new_c, c)
            step += 1
        return h, c


@programs.row(
    i64(0, 1, -1, 2, 3, -1, -1),
    others=[(i64(*code),) for code in ([3, 2, -1], [0, 1, 2, 3, -1, -1, -1], [0, 1, -1, 2, -1, 3, -1])],
    axes={"code": {0: "length"}},
    min_opset=13,
)
class StackMachine(nn.Module):
    """A tree in postfix form: a word is pushed, -1 joins the two on top."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, WIDTH)
        self.join = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, code: Tensor) -> Tuple[Tensor, int]:
        stack: List[Tensor] = []
        place, deepest = 0, 0
        while place < code.size(0):
            word = code[place]
            if bool(word >= 0):
                stack.append(self.embed(word))
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(torch.tanh(self.join(torch.cat([left, right]))))
            deepest = max(deepest, len(stack))
            place += 1
        return stack[-1], deepest


@programs.row(
    torch.tensor([[-1, 0], [-1, 1], [0, 1], [-1, 2], [2, 3]]),
    others=[
        (torch.tensor(tree),) for tree in ([[-1, 3]], [[-1, 0], [-1, 3], [1, 0]], [[-1, 0], [0, 0], [1, 1], [2, 0]])
    ],
    axes={"tree": {0: "nodes"}},
)
class RecursiveNet(nn.Module):
    """A tree by the indices of its children, written into one tensor; a leaf is (-1, word)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, WIDTH)
        self.join = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, tree: Tensor) -> Tensor:
        states = torch.zeros(tree.size(0), self.join.out_features)
        node = 0
        while node < tree.size(0):
            left, right = int(tree[node, 0]), int(tree[node, 1])
            if left < 0:
                states[node] = self.embed(tree[node, 1])
            else:
                states[node] = torch.tanh(self.join(torch.cat([states[left], states[right]])))
            node += 1
        return states[-1]


# The documents' examples ----------------------------------------------------------------------------------------------


@torch.jit.script
def loop(x: Tensor, loop_count: int) -> Tensor:
    for i in range(int(loop_count)):
        if bool((x % 2).sum() > 0) and i > 100:  # never, but a script cannot know
            x = x - 1
        x = x + i
    return x


@programs.row(torch.ones(2, 3, dtype=torch.long), i64(5), others=[(torch.ones(2, 3, dtype=torch.long), i64(9))])
class LoopModel(nn.Module):
    def forward(self, x: Tensor, loop_count: Tensor) -> Tensor:
        return loop(x, int(loop_count))


@programs.row(torch.randn(16))
class ListLoopModel(nn.Module):
    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        res: List[Tensor] = []
        res1: List[Tensor] = []
        arr = x.split(2, 0)
        res2 = torch.zeros(3, 4, dtype=torch.long)
        for i in range(len(arr)):
            res.append(arr[i].sum(0, False))
            res1.append(arr[-1 - i].sum(0, False))
            res2 += 1
        return torch.stack(res), torch.stack(res1), res2


@programs.row(torch.tensor([1.0]))
class ImplicitCastType(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x + 2
        return y + 3


@pytest.mark.parametrize(("program", "opset"), dealt(programs.params(), 5))
def test_program(program: Program, opset: int) -> None:
    run_program(program, opset)


def test_decoding_stops_at_the_end() -> None:
    """The sources above end after different numbers of words, so that the loop's condition is what stops it."""
    torch.manual_seed(SEED)
    model = Greedy().eval()
    lengths = {model(source)[0].size(1) for source in SOURCES}
    assert len(lengths) > 1 and min(lengths) < model.most


def test_layers_are_named_inside_of_loops() -> None:
    program = purexport.export(torch.jit.script(Unrolled().eval()), (torch.rand(6, 2, 3), i64(4, 2)))
    assert {"cell.weight_ih", "cell.bias_hh"} <= {item.name for item in program.model_proto.graph.initializer}
