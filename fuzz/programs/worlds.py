"""The programs being made are run as they grow: on each feed, with and without noise.  A world is one such run."""

from __future__ import annotations

import copy
import types
from typing import Any

import torch
from torch.nn import functional

from fuzz.programs.noise import SHARE, Noise, is_plain, near
from fuzz.programs.program import Draw

_MODULES = {"torch": torch, "F": functional, "Tensor": torch.Tensor}
DTYPES = frozenset(
    [
        *(torch.float16, torch.float32, torch.float64, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    ]
)
MOST_ELEMENTS = 600
MOST_AXES = 5


class Unfit(Exception):  # noqa: N818  the statement is dropped
    """A statement does not run, or its results say nothing about an exporter."""


class World:
    """The values of all names after the statements so far, on one feed; with `noise` inexact operations err."""

    def __init__(self, names: dict[str, Any], owned: dict[str, torch.Tensor], feed: int, noise: int) -> None:
        self.names, self.feed, self.noise = names, feed, noise
        self.owned = types.SimpleNamespace(**owned)

    def copied(self) -> World:
        """A copy in which the same names share memory."""
        memo: dict[int, Any] = {}
        names = copy.deepcopy(self.names, memo)
        return World(names, copy.deepcopy(vars(self.owned), memo), self.feed, self.noise)

    def run(self, code: Any) -> None:
        """Runs a statement; whatever torch raises leaves."""
        space = {**_MODULES, **self.names, "self": self.owned}
        if self.noise:
            with Noise(self.noise):
                exec(code, space)
        else:
            exec(code, space)
        for name, value in space.items():
            if name not in _MODULES and name not in ("self", "__builtins__"):
                self.names[name] = value

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors by the expression that names them."""
        found = {name: value for name, value in self.names.items() if isinstance(value, torch.Tensor)}
        found.update({f"self.{name}": value for name, value in vars(self.owned).items()})
        return found

    def value(self, text: str) -> Any:
        """What an expression gives; it must not write."""
        return eval(text, {**_MODULES, **self.names, "self": self.owned})


def check(worlds: list[World]) -> None:
    """Raises Unfit where a value is not allowed, differs in kind between feeds, or moves under noise."""
    first = worlds[0].tensors()
    for plain, noisy in zip(worlds[::2], worlds[1::2], strict=True):
        moved = noisy.tensors()
        for name, value in plain.tensors().items():
            if value.dtype not in DTYPES or value.numel() > MOST_ELEMENTS or value.dim() > MOST_AXES:
                raise Unfit("its size or dtype")
            if value.layout != torch.strided or not is_plain(value):
                raise Unfit("its numbers")
            if first[name].dtype != value.dtype or first[name].dim() != value.dim():
                raise Unfit("another rank on another feed")
            if not near(moved[name], value, SHARE):
                raise Unfit("ill-conditioned")


def worlds_of(inputs: list[Draw], owned: list[Draw], sizes: tuple[dict[str, int], ...]) -> list[World]:
    """Of each feed one world without noise and one with."""
    return [
        World(
            {draw.name: draw.at(row, feed * 1000) for draw in inputs},
            {draw.name: draw.at(sizes[0]) for draw in owned},
            feed,
            noise,
        )
        for feed, row in enumerate(sizes)
        for noise in (0, 1)
    ]
