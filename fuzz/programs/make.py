"""Makes a program from a seed: inputs, then one statement after the other, each kept only if it runs on every feed.

A program runs on two feeds (other numbers; other sizes, where axes are named) with and without noise while it is made,
so what it computes is known to be finite, of the same kind everywhere and well-conditioned.
"""

from __future__ import annotations

import re
import warnings
from contextlib import suppress
from random import Random

from fuzz.programs import rows, schemas
from fuzz.programs.choose import Chooser
from fuzz.programs.kept_off import is_kept_off
from fuzz.programs.program import Draw, Program, Step
from fuzz.programs.worlds import Unfit, World, check, worlds_of

OPSETS = range(9, 27)
KINDS = ("normal", "normal", "lattice", "lattice", "positive")
DTYPES = ("float32",) * 10 + ("float64", "float16", "int64", "int64", "int32", "bool", "uint8", "int8")
SIZES = (2, 3, 4, 2, 3, 5, 1, 1, 0)
TRIES = 12  # statements that are made up for each that is kept


def make(seed: str, axes: int | None = None) -> Program:
    """The program of a seed; the same each time.

    With `axes` it has so many named axes, and four feeds of other sizes.  Otherwise chance decides, with two feeds.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Maker(Random(seed), axes).program()


def _four_sizes(rng: Random, names: str) -> tuple[dict[str, int], ...]:
    """Two rows of sizes that all differ, one in which an axis has size 1, and one whose sizes may be equal."""
    rows = [rng.sample(range(2, 8), len(names)) for _ in range(2)]
    rows += [[rng.randrange(1, 8) for _ in names], [rng.randrange(3, 8) for _ in names]]
    rows[2][rng.randrange(len(names))] = 1
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


class _Maker:
    def __init__(self, rng: Random, axes: int | None) -> None:
        self.rng = rng
        self.sizes: tuple[dict[str, int], ...] = ({}, {})
        if axes is not None:
            self.sizes = _four_sizes(rng, "nmkl"[:axes])
        elif rng.random() < 0.3:
            names = rng.sample(["n", "m"], rng.choice([1, 1, 2]))
            pairs = {name: rng.sample([2, 3, 4, 5, 6], 2) for name in names}
            self.sizes = tuple({name: pair[feed] for name, pair in pairs.items()} for feed in (0, 1))
        self.may_branch = rng.random() < 0.25
        self.may_loop = rng.random() < 0.25
        self.branches = False
        self.owned: list[Draw] = []
        self.inputs, self.worlds = self._fit_inputs()
        self.steps: list[Step] = []
        self.made = self.buffers = self.depth = 0

    def program(self) -> Program:
        rng = self.rng
        wanted = rng.choice([1, 2, 2, 3, 3, 4, 5, 6, 8])
        self._statements(wanted)
        return Program(
            tuple(self.inputs),
            tuple(self.owned),
            tuple(self.steps),
            self._outputs(),
            self.sizes,
            self._opset(),
            self.branches,
            rng.random() < 0.2,
        )

    def _opset(self) -> int:
        # onnx's shape inference of Slice at opset 10 calls the size of a part that of the whole, and ONNX Runtime then
        # puts it where it does not fit
        return self.rng.choice([opset for opset in OPSETS if opset != 10 or not self.sizes[0]])

    def _fit_inputs(self) -> tuple[list[Draw], list[World]]:
        """Inputs that pass the check, without which no statement is ever kept, and the worlds that hold them."""
        while True:
            inputs = self._inputs()
            worlds = worlds_of(inputs, [], self.sizes)
            with suppress(Unfit):
                check(worlds)
                return inputs, worlds

    def _inputs(self) -> list[Draw]:
        rng = self.rng
        base: list[int | str] = [rng.choice(SIZES) for _ in range(rng.choice([0, 1, 2, 2, 2, 3, 3, 3, 4]))]
        named = list(self.sizes[0])
        if named:
            base = [size or 3 for size in base] or [2]
            base += [3] * (len(named) - len(base))
            for name, place in zip(named, rng.sample(range(len(base)), len(named)), strict=True):
                base[place] = name
        draws = []
        for number in range(rng.choice([1, 1, 2, 2, 3])):
            shape = list(base)
            how = rng.randrange(6)
            if number and how == 1:
                shape = shape[rng.randrange(len(shape) + 1) :]
            elif number and how == 2:
                shape = [1 if rng.random() < 0.5 else size for size in shape]
            elif number and how == 3:
                rng.shuffle(shape)
            draws.append(Draw(f"x{number}", rng.choice(DTYPES), tuple(shape), rng.choice(KINDS), rng.randrange(1000)))
        return draws

    def _outputs(self) -> tuple[str, ...]:
        found = self.worlds[0].tensors()
        made = [name for name in found if name.startswith("v")]
        others = [name for name in found if not name.startswith("v")]
        kept = made[-1:] + [name for name in made[:-1] if self.rng.random() < 0.5]
        kept += [name for name in others if self.rng.random() < 0.3]
        return tuple(kept or ["x0"])

    def _statements(self, wanted: int) -> None:
        kept = len(self.steps) + wanted
        for _ in range(wanted * TRIES):
            if len(self.steps) >= kept:
                break
            try:
                self._statement()
            except Unfit:
                continue

    def _statement(self) -> None:
        rng = self.rng
        if self.depth < 2 and self.may_branch and rng.random() < 0.2:
            self._branch()
        elif self.depth < 2 and (self.may_loop or self.may_branch) and rng.random() < 0.2:
            self._loop()
        else:
            chooser = self._chooser()
            try:
                self._attempt(chooser, chooser.fill(self._row(chooser)))
            finally:
                self._forget(chooser)

    def _row(self, chooser: Chooser) -> str:
        if "i" in self.worlds[0].names and self.rng.random() < 0.3:
            return self._weighted(rows.IN_LOOPS)
        if self.rng.random() < 0.25:
            return schemas.call(chooser)
        weights = [weight for weight, _ in rows.SORTS]
        return self._weighted(self.rng.choices(rows.SORTS, weights)[0][1])

    def _weighted(self, found: list[tuple[int, str]]) -> str:
        return self.rng.choices(found, [weight for weight, _ in found])[0][1]

    def _chooser(self) -> Chooser:
        return Chooser(self.rng, self.worlds[::2], self.buffers, bool(self.sizes[0]) and self.rng.random() < 0.9)

    def _attempt(self, chooser: Chooser, text: str) -> None:
        """Keeps the statement if it runs and its results are fit; otherwise nothing happened, and Unfit is raised."""
        made = self.made
        while "$" in text:
            text = text.replace("$", f"v{made}", 1)
            made += 1
        named = {name: value for name, value in chooser.tensors.items() if re.search(rf"\b{name}\b", text)}
        if is_kept_off(text, named.values()):
            raise Unfit("a runtime is wrong there")
        self._own(chooser)
        try:
            self._keep(Step(text), forget=False)
        except Unfit:
            self._disown(chooser)
            raise
        self.made = made
        self.buffers = chooser.next_buffer
        self.owned += chooser.draws
        chooser.draws = []

    def _keep(self, step: Step, *, forget: bool) -> None:
        """Runs a statement in every world; with `forget` the names that it makes are not seen after it."""
        after = [world.copied() for world in self.worlds]
        before = set(self.worlds[0].names)
        try:
            code = compile("\n".join(step.lines()), "<statement>", "exec")
            for world in after:
                world.run(code)
        except Exception as error:
            raise Unfit(str(error)) from None
        for world in after:
            if forget:
                world.names = {name: value for name, value in world.names.items() if name in before}
            for value in world.names.values():
                if isinstance(value, (tuple, list)):
                    raise Unfit("no tensor")
        check(after)
        self.worlds = after
        self.steps.append(step)

    def _own(self, chooser: Chooser) -> None:
        for draw in chooser.draws:
            for world in self.worlds:
                setattr(world.owned, draw.name, draw.at({}))

    def _disown(self, chooser: Chooser) -> None:
        for draw in chooser.draws:
            for world in self.worlds:
                delattr(world.owned, draw.name)

    def _forget(self, chooser: Chooser) -> None:
        """Buffers of a row that could not be filled."""
        for draw in chooser.draws:
            vars(self.worlds[0].owned).pop(draw.name, None)

    def _branch(self) -> None:
        chooser = self._chooser()
        condition = chooser.fill(self._weighted(rows.CONDITIONS))
        target = self._target(chooser)
        body, other = self._block(target), self._block(target) if self.rng.random() < 0.7 else ()
        self._keep(Step(f"if {condition}:", body, other), forget=True)
        self.branches = True

    def _loop(self) -> None:
        chooser = self._chooser()
        count = "j" if "i" in self.worlds[0].names else "i"
        head = self._weighted(rows.LOOPS if self.may_branch else rows.PLAIN_LOOPS).replace("<count>", count)
        head = chooser.fill(head)
        target = self._target(chooser)
        counts = head.startswith("while")
        body = self._block(target, count)
        if counts:
            self._keep(Step(f"{count} = 0"), forget=False)
            body += (Step(f"{count} += 1"),)
        try:
            self._keep(Step(head, body), forget=True)
        except Unfit:
            if counts:
                self.steps.pop()
            raise
        finally:
            for world in self.worlds:
                world.names.pop(count, None)
        self.branches |= "int(" in head or counts

    def _target(self, chooser: Chooser) -> str:
        """A tensor that a block gives a new value, or none."""
        return chooser.tensor(tuple({t.dtype for t in chooser.tensors.values()})) if self.rng.random() < 0.7 else ""

    def _block(self, target: str, count: str = "") -> tuple[Step, ...]:
        """Statements of a block, the last of which gives `target` a new value of its dtype and rank."""
        worlds, steps, depth = self.worlds, self.steps, self.depth
        self.worlds, self.steps, self.depth = [world.copied() for world in worlds], [], depth + 1
        if count:
            for world in self.worlds:
                world.names[count] = 0
        try:
            self._statements(self.rng.choice([1, 1, 2, 3]))
            if not self.steps:
                raise Unfit("an empty block")
            if target and not target.startswith("self."):
                self._rebind(target, set(worlds[0].names))
            return tuple(self.steps)
        finally:
            owned = self.worlds
            self.worlds, self.steps, self.depth = worlds, steps, depth
            self._adopt(owned)

    def _rebind(self, target: str, outer: set[str]) -> None:
        found = self.worlds[0].tensors()
        like = found[target]
        fit = [n for n, t in found.items() if n not in outer and t.dtype == like.dtype and t.dim() == like.dim()]
        if fit:
            self._keep(Step(f"{target} = {self.rng.choice(fit)}"), forget=False)

    def _adopt(self, inner: list[World]) -> None:
        """Buffers that a block asked for exist before it too, with their first values."""
        known = vars(self.worlds[0].owned)
        for draw in self.owned:
            if draw.name not in known and draw.name in vars(inner[0].owned):
                for world in self.worlds:
                    setattr(world.owned, draw.name, draw.at({}))
