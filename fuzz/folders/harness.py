"""Invariant: whatever sequence of writers a folder sees, no file of others, no weight and no permission is lost.

An input is a stream of choices: which decoys lie in the folder, then sixteen bytes a step. A step is one of our writers
(`doings.py`), in every fourth case with a fault at some call of the system; or something that others do (`others.py`).
After each step `promises.py` compares the folder with what it was. The input ends where the stream does.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType

from fuzz.build import Choices
from fuzz.folders import doings
from fuzz.folders.others import OTHERS
from fuzz.folders.promises import DONE, FAILED, KILLED, REFUSED, Step
from fuzz.folders.world import World, new_world
from fuzz.harness import Harness, Violation
from proto_schema.external import copying
from tests.proto_schema.faults import Disk, Fault

HEAD, RECORD, LONGEST = 16, 16, 40  # bytes before the steps, bytes of a step, steps of an input
FIRST = 2  # steps that are saves, so that there is something to lose
PATIENCE = 120.0  # seconds, for all steps of an input
FAULTS = (
    Fault("error", errno.ENOSPC),
    Fault("error", errno.EIO),
    Fault("interrupted before"),
    Fault("interrupted after"),
    Fault("short"),
    Fault("killed"),
    Fault("killed"),
    Fault("torn"),
)
DOCUMENTED = (ValueError, OSError)

_log = logging.getLogger("proto_schema")
_steps = [0]


def steps_done() -> int:
    """The steps of all inputs of this process."""
    return _steps[0]


@contextmanager
def _surroundings() -> Iterator[None]:
    """Small files are copied by the kernel too; the umask is given back; a step that waits for ever is a finding."""
    worth, mask, level = copying.WORTH, os.umask(0o022), _log.level
    copying.WORTH = 64
    _log.setLevel(logging.ERROR)  # what it warns of is not looked at here

    def late(_: int, __: FrameType | None) -> None:
        raise Violation("a step does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        copying.WORTH = worth
        _log.setLevel(level)
        os.umask(mask)


def walk(data: bytes, story: list[str]) -> str:
    """Goes through the steps of an input, and notes them in `story`; the word for the last one."""
    word = ""
    with _surroundings():
        world = new_world(Choices(data[:HEAD]))
        world.story = story
        for at in range(HEAD, min(len(data), HEAD + LONGEST * RECORD), RECORD):
            choices = Choices(data[at : at + RECORD])
            kind = choices.below(16)
            _steps[0] += 1
            first = at < HEAD + FIRST * RECORD
            word = _others(world, choices) if kind > 10 and not first else _ours(world, choices, first)
    return word


def _others(world: World, choices: Choices) -> str:
    step = choices.one_of(OTHERS)
    world.story.append(f"# {step(world, choices)}")
    before, now = world.now, world.look()
    for path in before.keys() | now.keys():
        old, new = before.get(path), now.get(path)
        if old is None or new is None or (old.content != new.content and old.inode != new.inode):
            world.ours.pop(path, None)
            world.stale.pop(path, None)
        elif old.content != new.content and path in world.ours:
            world.wrote(path, new.content, world.ours[path])  # the file is ours still
    world.settle()
    return step.__name__


def _ours(world: World, choices: Choices, first: bool) -> str:
    how, at = choices.below(32), 1 + choices.below(60)
    fault = FAULTS[how - 32 + len(FAULTS)] if how >= 32 - len(FAULTS) else None
    number = choices.below(256)
    made = doings.RARE if number == 255 else doings.save if first else doings.DOINGS[number % len(doings.DOINGS)]
    doing = made(world, choices)
    before = world.now
    world.story.append(doing.line)
    ended, said, call = _run(world, doing, fault, at)
    if said:
        world.story[-1] += f"  # {said}"
    step = Step(doing, ended, before, world.look(), world, call)
    if ended == REFUSED and doing.sound:
        step.fail(f"nothing speaks against it, but {said.split(':')[0]}")
    step.judge()
    return f"{doing.verb} {ended} {said.split(':')[0]}"


def _run(world: World, doing: doings.Doing, fault: Fault | None, at: int) -> tuple[str, str, str]:
    """(how it ended, what was raised, the call that met the fault)."""
    if fault is None:
        try:
            doing.run()
        except DOCUMENTED as error:
            return REFUSED, f"{type(error).__name__}: {error}", ""
        return DONE, "", ""
    disk = Disk(world.box, at, fault)
    said = ""
    open_before = _writable()
    try:
        with disk.mounted():
            doing.run()
    except KeyboardInterrupt:
        if not (disk.met and fault.kind.startswith("interrupted")):  # of whoever runs the harness
            raise
        said = "KeyboardInterrupt"
    except DOCUMENTED as error:
        said = f"{type(error).__name__}: {error}"
    finally:
        disk.close()
        for descriptor in _writable() - open_before:
            os.close(descriptor)  # what a process that is killed had open
    call = disk.log[at - 1] if disk.met else ""
    if disk.stopped:
        return KILLED, f"{fault} at call {at}, {call}", call
    met = f" ({fault} at call {at}, {call})" if disk.met else ""
    if said:
        return FAILED if disk.met else REFUSED, said + met, call
    return DONE, met, call


def _writable() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                found.add(int(name))
        except OSError:  # that of the listing
            continue
    return found


def check(data: bytes) -> str:
    return walk(data, [])


def told(data: bytes) -> list[str]:
    """The steps of an input, up to what breaks a promise."""
    story: list[str] = []
    try:
        walk(data, story)
    except Exception as error:
        story.append(f"# {type(error).__name__}: {error}")
    return story


def seeds() -> list[bytes]:
    rng = Random(0)
    return [rng.randbytes(HEAD + RECORD * rng.choice((3, 6, 12, 30))) for _ in range(200)]


HARNESS = Harness(
    "folders",
    "no sequence of writers costs a folder a file of others, a weight or a permission",
    ValueError,
    check,
    seeds,
    longest=HEAD + LONGEST * RECORD,
    told=told,
    done=steps_done,
    unit="steps",
)
