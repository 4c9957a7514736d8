"""Fills a row: each place becomes a name that exists, a new buffer, or a literal (the places: `rows`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import torch

from fuzz.programs.program import Draw
from fuzz.programs.worlds import Unfit, World

_PLACE = re.compile(r"<(?:(\w+):)?([a-z][\w-]*\+?)((?: [^<>]*)?)>")
_TENSOR = re.compile(r"(any|num|float|real|int|bool)(\d?)([+]?)(?:-(\d))?$")
REAL = (torch.float32, torch.float64)
FLOAT = (*REAL, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
CLASSES = {
    "any": (*FLOAT, *WHOLE, torch.bool),
    "num": (*FLOAT, *WHOLE),
    "float": FLOAT,
    "real": REAL,
    "int": WHOLE,
    "bool": (torch.bool,),
}


class Chooser:
    """Fills one row in the plain world of the example, the first of `worlds`; the others are those of the other feeds.

    `draws` are the buffers that it asks for.
    """

    def __init__(self, rng: Random, worlds: Sequence[World], next_buffer: int, named_sizes: bool) -> None:
        self.rng, self.world, self.named_sizes = rng, worlds[0], named_sizes
        self.everywhere = [world.tensors() for world in worlds]
        self.tensors = self.everywhere[0]
        self.next_buffer = next_buffer
        self.draws: list[Draw] = []
        self.chosen: dict[str, str] = {}

    def fill(self, row: str) -> str:
        """The row with all its places filled: named tensors first, since others refer to them."""
        first = _PLACE.sub(lambda found: self._place(found) if _names_tensor(found) else found.group(), row)
        return _PLACE.sub(self._place, first)

    def _place(self, match: re.Match[str]) -> str:
        label, kind, rest = match.group(1), match.group(2), match.group(3)[1:]
        if not rest and kind in self.chosen:
            return self.chosen[kind]
        tensor = _TENSOR.match(kind)
        if tensor is not None and not rest:
            text = self.tensor(CLASSES[tensor.group(1)], *_ranks(tensor))
        else:
            maker: Callable[..., str] | None = getattr(self, "_" + kind.replace("-", "_"), None)
            if maker is None:
                raise LookupError(f"no place {match.group()}")
            text = maker(rest)
        if label:
            self.chosen[label] = text
        return text

    def of(self, label: str) -> torch.Tensor:
        """The tensor that a label stands for."""
        return self.tensors[self.chosen[label]]

    def tensor(self, dtypes: tuple[torch.dtype, ...], least: int = 0, most: int = 9) -> str:
        """A tensor of the dtypes and ranks; late ones more often."""
        fit = [n for n, t in self.tensors.items() if t.dtype in dtypes and least <= t.dim() <= most]
        return self._one(fit)

    def _one(self, fit: list[str]) -> str:
        if not fit:
            raise Unfit("nothing of the kind exists")
        return fit[max(self.rng.randrange(len(fit)), self.rng.randrange(len(fit)))]

    def own(self, kind: str, dtype: torch.dtype, shape: tuple[int, ...]) -> str:
        """A new buffer."""
        draw = Draw(f"p{self.next_buffer}", str(dtype)[6:], tuple(shape), kind, self.rng.randrange(1000))
        self.next_buffer += 1
        self.draws.append(draw)
        self.world.owned.__dict__[draw.name] = self.tensors[f"self.{draw.name}"] = draw.at({})
        return f"self.{draw.name}"

    def _own(self, rest: str) -> str:
        kind, dtype, shape = rest.split(" ", 2)
        names = self._chosen_in(self.tensors)
        try:
            if kind.startswith(
                "below:"
            ):  # on no feed is an index too large: torch does not look where nothing is taken
                kind = f"below {min(eval(kind[6:], self._chosen_in(tensors)) for tensors in self.everywhere)}"
            found = tuple(eval(shape, dict(names)))
            return self.own(kind, names["a"].dtype if dtype == "as-a" else getattr(torch, dtype), found)
        except (IndexError, RuntimeError, TypeError) as error:
            raise Unfit(str(error)) from None

    def _chosen_in(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        known = {**self.tensors, **tensors}
        names: dict[str, Any] = {label: known.get(text, text) for label, text in self.chosen.items()}
        return {label: int(v) if isinstance(v, str) and v.lstrip("-").isdigit() else v for label, v in names.items()}

    def _mate(self, label: str) -> str:
        shape = self.of(label).shape
        fit = [n for n, t in self.tensors.items() if t.dtype != torch.bool and _broadcast(t.shape, shape)]
        if self.rng.random() < 0.3 or not fit:
            small = tuple(self.rng.choice([size, 1]) for size in shape[self.rng.randrange(len(shape) + 1) :])
            return self.own("lattice", self.rng.choice([self.of(label).dtype, torch.float32]), small)
        return self._one(fit)

    def _same(self, label: str) -> str:
        like = self.of(label)
        fit = [n for n, t in self.tensors.items() if t.dtype == like.dtype and t.shape == like.shape]
        fit = [n for n in fit if n != self.chosen[label]] or fit
        return self.own("lattice", like.dtype, tuple(like.shape)) if self.rng.random() < 0.3 else self._one(fit)

    def _into(self, label: str) -> str:
        like = self.of(label)
        return self._given_to(like.dtype, tuple(like.shape))

    def _given(self, labels: str) -> str:
        label, index = labels.split()
        try:
            part = self.world.value(f"{self.chosen[label]}[{self.chosen[index]}]")
        except (IndexError, RuntimeError) as error:
            raise Unfit(str(error)) from None
        return self._given_to(part.dtype, tuple(part.shape))

    def _given_to(self, dtype: torch.dtype, shape: tuple[int, ...]) -> str:
        fit = [n for n, t in self.tensors.items() if _expands(t.shape, shape) and torch.can_cast(t.dtype, dtype)]
        if not fit or self.rng.random() < 0.3:
            return self.own("lattice", dtype, shape[self.rng.randrange(len(shape) + 1) :])
        return self._one(fit)

    def _mask(self, label: str) -> str:
        shape = self.of(label).shape
        fit = [n for n, t in self.tensors.items() if t.dtype == torch.bool and t.shape == shape]
        return self.own("normal", torch.bool, tuple(shape)) if not fit or self.rng.random() < 0.4 else self._one(fit)

    def _or(self, choices: str) -> str:
        return self.rng.choice(choices.split("|"))

    def _dim(self, label: str) -> str:
        rank = self.of(label).dim()
        return str(self.rng.randrange(-rank, rank)) if rank else self.rng.choice(["0", "-1"])

    def _dims(self, label: str) -> str:
        rank = self.of(label).dim()
        if not rank:
            raise Unfit("no axes")
        axes = self.rng.sample(range(rank), self.rng.randint(1, rank))
        return str([axis - rank if self.rng.random() < 0.4 else axis for axis in axes])

    def _order(self, label: str) -> str:
        return ", ".join(map(str, self.rng.sample(range(rank := self.of(label).dim()), rank)))

    def _size(self, rest: str) -> str:
        label, *axis = rest.split()
        tensor, name = self.of(label), self.chosen[label]
        at = int(axis[0]) if axis else self.rng.randrange(-tensor.dim(), tensor.dim())
        return f"{name}.size({at})" if self.named_sizes or self.rng.random() < 0.3 else str(tensor.shape[at])

    def _sizes(self, label: str) -> str:
        return ", ".join(self._size(f"{label} {axis}") for axis in range(self.of(label).dim())) or "1"

    def _ones(self, label: str) -> str:
        return ", ".join(["1"] * max(1, self.of(label).dim() - self.rng.randrange(2)))

    def _shape(self, label: str) -> str:
        """Sizes of the same number of elements: two axes joined, one split off, one of size 1 added, or all in one."""
        tensor = self.of(label)
        sizes = [self._size(f"{label} {axis}") for axis in range(tensor.dim())]
        what = self.rng.randrange(5)
        if what == 0 or not sizes:
            return self.rng.choice(["-1", "(1, -1)", "(-1, 1)"])
        at = self.rng.randrange(len(sizes))
        if what == 1 and at:
            sizes[at - 1 : at + 1] = ["-1"]
        elif what == 2:
            sizes[at : at + 1] = [self.rng.choice(["2", "1", "3"]), "-1"]
        elif what == 3:
            sizes.insert(at, "1")
        else:
            sizes[at] = "-1"
        return "(" + "".join(size + ", " for size in sizes) + ")"

    def _number(self, label: str) -> str:
        dtype = self.of(label).dtype
        if "i" in self.world.names and self.rng.random() < 0.3 and dtype != torch.bool:
            return self._count("")
        if dtype == torch.bool:
            return self.rng.choice(["True", "False"])
        if dtype in FLOAT:
            return self.rng.choice(["0.5", "-1.5", "2.0", "1", "0.0", "3", "-0.25"])
        return self.rng.choice(["2", "1", "0", "3"] if dtype == torch.uint8 else ["2", "-1", "0", "3", "1"])

    def _small(self, below: str) -> str:
        return str(self.rng.randrange(int(below)))

    def _count(self, _: str) -> str:
        return "j" if "j" in self.world.names else "i"

    def _compare(self, _: str) -> str:
        return self.rng.choice(["<", "<=", ">", ">=", "==", "!="])

    def _flag(self, _: str) -> str:
        return self.rng.choice(["True", "False"])

    def _dtype(self, _: str) -> str:
        return self.rng.choice(
            [
                "torch.float32",
                "torch.float64",
                "torch.int64",
                "torch.int32",
                "torch.bool",
                "torch.float16",
                "torch.uint8",
            ]
        )

    def _index(self, label: str) -> str:
        """What reads: numbers, slices, None, `...`, and tensors of indices or of bools."""
        return self._items(label, tensors=0.25)

    def _part(self, label: str) -> str:
        """What is written to: as `index`."""
        return self._items(label, tensors=0.3)

    def _items(self, label: str, tensors: float) -> str:
        tensor = self.of(label)
        shapes = [self._chosen_in(world)[label].shape for world in self.everywhere]
        items = []
        axis = 0
        masked = False
        rest = self.rng.randint(1, tensor.dim())
        while axis < rest:
            size = tensor.shape[axis]
            draw = self.rng.random()
            if draw < tensors and size:
                if self.rng.random() < 0.3 and not masked:
                    masked = True
                    items.append(self.own("normal", torch.bool, (size,)))
                else:
                    shape = self.rng.choice([(2,), (2,), (3,), (1,), (2, 1), ()])
                    least = min(shape[axis] for shape in shapes)
                    items.append(self.own(f"below {least or 1}", torch.int64, shape))
            elif draw < 0.5 and size:
                items.append(str(self.rng.randrange(-size, size)))
            elif draw < 0.9:
                items.append(self._slice(size))
            elif draw < 0.95 and "..." not in items:
                items.append("...")
                axis += self.rng.randint(0, tensor.dim() - axis)
                rest = tensor.dim()
                continue
            else:
                items.append("None")
                continue
            axis += 1
        return ", ".join(items) if items else "..."

    def _slice(self, size: int) -> str:
        start = self.rng.choice(["", "", "0", "1", "-1", "-2", "2"])
        stop = self.rng.choice(["", "", "-1", "2", str(size), "3", "100", "0"])
        step = self.rng.choice(["", "", "", ":2", ":3"])
        return f"{start}:{stop}{step}"


def _names_tensor(match: re.Match[str]) -> bool:
    return bool(match.group(1)) and _TENSOR.match(match.group(2)) is not None


def _ranks(match: re.Match[str]) -> tuple[int, int]:
    least = int(match.group(2) or 0)
    if match.group(4):
        return least, int(match.group(4))
    return least, 9 if match.group(3) or not match.group(2) else least


def _broadcast(one: torch.Size, other: torch.Size) -> bool:
    return all(1 in (a, b) or a == b for a, b in zip(reversed(one), reversed(other), strict=False))


def _expands(one: torch.Size, into: tuple[int, ...]) -> bool:
    return len(one) <= len(into) and all(a in (b, 1) for a, b in zip(reversed(one), reversed(into), strict=False))
