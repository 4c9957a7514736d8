"""The file with networks that tests of the command line export, and how they call it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from purexport.cli.main import main

ROOT = Path(__file__).parents[2]
X = ("--input", "x=float32[1,4]")

NET = """
import collections
import torch
from torch import nn

number = 5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x, scale=1.0):
        return self.linear(x).relu() * scale


class Wide(Net):
    def __init__(self, width):
        super().__init__()


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 4)

    def forward(self, ids):
        return self.table(ids)


class Strange(nn.Module):
    def forward(self, x):
        return torch.poisson(x.abs())


class zoo:
    made = Net()


def factory():
    return Net()


def script():
    return torch.jit.script(nn.Sequential(collections.OrderedDict(linear=nn.Linear(4, 2))))


def broken():
    raise RuntimeError("two\\nlines")


def nothing():
    return None


def example():
    return {"x": torch.ones(1, 4), "scale": torch.tensor(2.0)}


def nested():
    return {"data": {"left": torch.ones(2, 3), "right": torch.ones(2, 3)}}


def added():
    return lambda data: data["left"] + data["right"]
"""


def run(*argv: str) -> int:
    return main(argv)


def process(command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **options)
