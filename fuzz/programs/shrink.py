"""Makes a program that shows a finding smaller: fewer statements, outputs, inputs and axes; simpler values and dtypes.

Each step is kept if the finding stays of the same key and torch still runs the program.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzz.programs.program import Program, Step
from fuzz.programs.routes import ROUTES, Finding, run

SECONDS = 30.0  # that making one finding smaller may take


def smaller(program: Program, finding: Finding) -> Program:
    """The smallest program found with a finding of the same key."""
    routes = tuple(route for route in ROUTES if route in finding.route)

    def shows(candidate: Program) -> bool:
        try:
            return any(found.key == finding.key for found in run(candidate, routes).findings)
        except Exception:
            return False

    return _reduced(program, shows, time.monotonic() + SECONDS)


def _reduced(program: Program, shows: Callable[[Program], bool], until: float) -> Program:
    tried = set()
    again = True
    while again:
        again = False
        for candidate in _candidates(program):
            if time.monotonic() > until:
                return program
            if repr(candidate) in tried or candidate == program:
                continue
            tried.add(repr(candidate))
            if shows(candidate):
                program, again = candidate, True
                break
    return program


def _candidates(program: Program) -> Iterator[Program]:
    """Simpler programs, those that leave out most first; they need not run."""
    for steps in _shorter(program.steps):
        yield _tidied(replace(program, steps=steps))
    if len(program.outputs) > 1:
        for output in program.outputs:
            yield _tidied(replace(program, outputs=(output,)))
        for output in program.outputs:
            yield _tidied(replace(program, outputs=tuple(o for o in program.outputs if o != output)))
    for step in program.steps:  # another name in its place
        made = re.match(r"(v\d+) = ", step.text)
        if made:
            for name in ("x0", "x1", "self.p0"):
                rest = tuple(_renamed(s, made.group(1), name) for s in program.steps if s is not step)
                outputs = tuple(name if o == made.group(1) else o for o in program.outputs)
                yield _tidied(replace(program, steps=rest, outputs=outputs))
    if program.sizes[0]:
        first = program.sizes[0]
        fixed = [
            replace(d, shape=tuple(first.get(s, s) if isinstance(s, str) else s for s in d.shape))
            for d in program.inputs
        ]
        yield replace(program, inputs=tuple(fixed), sizes=({}, {}))
    for field in ("inputs", "owned"):
        draws = getattr(program, field)
        for i, draw in enumerate(draws):
            for other in (
                *(replace(draw, dtype=d) for d in ("float32",) if draw.dtype != d),
                *(replace(draw, shape=draw.shape[:k] + draw.shape[k + 1 :]) for k in range(len(draw.shape))),
                *(
                    replace(draw, shape=(*draw.shape[:k], 2, *draw.shape[k + 1 :]))
                    for k, s in enumerate(draw.shape)
                    if s not in (0, 1, 2)
                ),
                *(replace(draw, kind=k) for k in ("lattice",) if draw.kind in ("normal", "positive")),
            ):
                yield replace(program, **{field: (*draws[:i], other, *draws[i + 1 :])})
    if program.opset != 20:
        yield replace(program, opset=20)
    if program.optimized:
        yield replace(program, optimized=False)


def _shorter(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Halves, all but one, a block's content in place of the block, and blocks made shorter."""
    half = len(steps) // 2
    if half > 1:
        yield steps[half:]
        yield steps[:half]
    for i, step in enumerate(steps):
        yield steps[:i] + steps[i + 1 :]
        if step.body:
            yield steps[:i] + step.body + steps[i + 1 :]
            if step.other:
                yield steps[:i] + step.other + steps[i + 1 :]
                yield (*steps[:i], replace(step, other=()), *steps[i + 1 :])
            for body in _shorter(step.body):
                yield (*steps[:i], replace(step, body=body or (Step("pass"),)), *steps[i + 1 :])
            for other in _shorter(step.other):
                yield (*steps[:i], replace(step, other=other), *steps[i + 1 :])


def _renamed(step: Step, name: str, by: str) -> Step:
    text = re.sub(rf"\b{name}\b", by, step.text)
    return Step(text, tuple(_renamed(s, name, by) for s in step.body), tuple(_renamed(s, name, by) for s in step.other))


def _tidied(program: Program) -> Program:
    """Without the inputs and buffers that nothing names, and the results that no statement makes."""
    text = "\n".join(line for step in program.steps for line in step.lines()) + " " + " ".join(program.outputs)
    inputs = tuple(draw for draw in program.inputs if re.search(rf"\b{draw.name}\b", text)) or program.inputs[:1]
    owned = tuple(draw for draw in program.owned if re.search(rf"\b{draw.name}\b", text))
    lines = "\n".join(line for step in program.steps for line in step.lines())
    outputs = tuple(o for o in program.outputs if not o.startswith("v") or re.search(rf"\b{o}\b", lines)) or ("x0",)
    return replace(program, inputs=inputs, owned=owned, outputs=outputs)
