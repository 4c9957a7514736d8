"""Runs a harness on inputs, counts, and keeps what it finds: by coverage with atheris, or by plain seeded mutation."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random

from fuzz.harness import Harness
from fuzz.mutate import mutated

MOST_KEPT = 4000
SHRINKING = 20.0  # seconds that making a finding smaller may take


@dataclass
class Session:
    """One run of a harness. A finding is kept once for each way in which the invariant breaks, as small as it gets."""

    harness: Harness
    runs: int | None = None
    seconds: float | None = None
    folder: Path | None = None
    executions: int = 0
    coverage: str = ""  # what a guided run has reached
    findings: dict[str, bytes] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    _done_before: int = field(init=False)

    def __post_init__(self) -> None:
        self._done_before = self._done()

    def _done(self) -> int:
        return 0 if self.harness.done is None else self.harness.done()

    @property
    def taken(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def counted(self) -> int:
        """How many of the harness's unit were done."""
        return self.executions if self.harness.done is None else self._done() - self._done_before

    @property
    def over(self) -> bool:
        spent = self.seconds is not None and self.taken >= self.seconds
        return spent or (self.runs is not None and self.executions >= self.runs)

    def execute(self, data: bytes) -> str:
        """The harness's word for the input; a finding is kept, printed and written, and fuzzing goes on."""
        self.executions += 1
        word, broken = outcome(self.harness, data)
        if broken and broken not in self.findings:
            self.findings[broken] = data = smaller(self.harness, data, broken)
            self._show(broken, data)
        return word or broken

    def _show(self, broken: str, data: bytes) -> None:
        print(f"FINDING {self.harness.name}: {broken}\n  invariant: {self.harness.invariant}\n  input: {data.hex()}")
        for line in self.harness.told(data) if self.harness.told else []:
            print(f"    {line}")
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{self.harness.name}-{hashlib.sha1(data).hexdigest()[:12]}.bin"
            path.write_bytes(data)
            print(f"  file: {path}\n  again: python -m fuzz {self.harness.name} --replay {path}", flush=True)

    def summary(self) -> str:
        """One line: executions, their rate, coverage where it is known, findings."""
        taken = self.taken
        rate = self.counted / taken if taken else 0.0
        said = [f"{self.counted} {self.harness.unit}", f"{rate:.0f}/s", self.coverage, f"{len(self.findings)} findings"]
        return f"{self.harness.name}: {', '.join(filter(None, said))}"


def outcome(harness: Harness, data: bytes) -> tuple[str, str]:
    """(the harness's word, "") or ("", how the invariant broke): any exception that leaves the harness breaks it."""
    try:
        return harness.check(data), ""
    except Exception as error:
        return "", f"{type(error).__name__}: {error}"


def smaller(harness: Harness, data: bytes, broken: str) -> bytes:
    """The input with all pieces left out that the finding does not need, within SHRINKING seconds."""
    until = time.monotonic() + SHRINKING
    step = 1 << max(len(data).bit_length() - 2, 0)  # a power of two: records of such a length are left out whole
    while time.monotonic() < until:
        at = 0
        before = len(data)
        while at < len(data) and time.monotonic() < until:
            shorter = data[:at] + data[at + step :]
            if outcome(harness, shorter)[1] == broken:
                data = shorter
            else:
                at += step
        if step == 1 and len(data) == before:
            break
        step = max(1, step // 2)
    return data


def plain(session: Session, seed: int) -> None:
    """Mutates the seeds, and what behaved in a new way, or draws inputs. The same seed gives the same inputs."""
    harness = session.harness
    rng = Random(seed)
    kept = harness.seeds()
    words = set()
    for data in kept:
        if session.over:
            return
        words.add(session.execute(data))
    while harness.drawn is not None and not session.over:
        session.execute(harness.drawn(rng))
    while not session.over:
        data = mutated(rng.choice(kept), rng.choice(kept), rng, harness.longest, harness.head)
        word = session.execute(data)
        if word not in words and len(kept) < MOST_KEPT:
            words.add(word)
            kept.append(data)


def has_atheris() -> bool:
    return find_spec("atheris") is not None
