"""Mutation testing: change the code in one small place, and see whether a test notices.

    python -m tools.mutate all --count 600 --seed 7 --jobs 2 --log mutants.jsonl
    python -m tools.mutate codec --at proto_schema/wire/__init__.py:84      # every change of one line
    python -m tools.mutate all --count 600 --seed 7 --log before.jsonl --tree ../older
    python -m tools.mutate report --log mutants.jsonl --beside before.jsonl
    python -m tools.mutate planted --jobs 2                        # the faults of tools/planted.py

Changes are drawn by the seed, by room (`tools/rooms.py`) in proportion to its lines.  For each one the default tests
of the room run until the first failure: those of the files that mirror the module first, each row on one route and at
one opset before the others, and those that noticed most so far before all.  Where none notices, the room's tests of
the tier `full` run: all rows of the files that mirror the module, and of the other files each row once.  What became
of a change is a line of JSON in the log.  A run goes on where the log ends.

`--tree` makes the same changes in another checkout, with its tests; a change whose line is not there is left out.  A
tree from before the tiers has one tier, all but `sweep`.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tools.children import Folder, Slot, import_before, in_workers
from tools.mutants import Found, found_again, found_changes
from tools.rooms import ROOMS, Room, found_in, mirrors, modules_of, path_in

ROOT = Path(__file__).resolve().parent.parent
LEAST = 8  # changes a room
BASE_SECONDS, FACTOR = 45, 3  # what a test may take with a change: this, and so often the longest without one
# of the tests that come to a change: how many are tried before others, from how many files, for how many seconds
FIRST, FILES, MOST = 40, 10, 20
FULL_SECONDS = 240  # what a test of the tier `full` may take
LONG = 15  # seconds of a processor that the default tests of a room should not take
DEFAULT, FULL = "default", "full"
MARKS = {DEFAULT: "not full and not sweep", FULL: "full"}


@dataclass(frozen=True)
class Mutant:
    """A change of a module, and the room that it belongs to."""

    room: str
    module: str
    found: Found

    @property
    def name(self) -> str:
        return f"{self.module}:{self.found.key}"


def drawn(rooms: dict[str, Room], count: int, seed: int, at: list[str]) -> list[Mutant]:
    """Changes by room, or all changes at some lines (`at`: FILE or FILE:LINE)."""
    mutants, lines = {}, {}
    for name, room in rooms.items():
        modules = modules_of(room, ROOT)
        lines[name] = sum(len((ROOT / module).read_text().splitlines()) for module in modules)
        made = [
            Mutant(name, module, found)
            for module in modules
            for found in found_changes((ROOT / module).read_text(), module in room.texts)
            if not at or {module, f"{module}:{found.line}"} & set(at)
        ]
        random.Random(f"{seed} {name}").shuffle(made)
        mutants[name] = made
    if at:
        return [mutant for made in mutants.values() for mutant in made]
    shares = allotted({name: lines[name] for name in rooms}, count)
    return [mutant for name, made in mutants.items() for mutant in made[: shares[name]]]


def allotted(weights: dict[str, int], count: int) -> dict[str, int]:
    """`count` among names: a few each (`LEAST`, or equal shares of a small count), and the rest by weight."""
    least = min(LEAST, count // len(weights))
    rest, whole = count - least * len(weights), max(1, sum(weights.values()))
    shares = {name: least + rest * weight // whole for name, weight in weights.items()}
    for name in sorted(weights, key=lambda name: -weights[name])[: count - sum(shares.values())]:
        shares[name] += 1
    return shares


@dataclass(frozen=True)
class Phase:
    """Tests that run together, and the tier that a failure among them belongs to.

    `once`: a row that runs on several routes and at several opsets runs on the first of each.
    """

    tier: str
    files: tuple[str, ...]
    marks: str
    once: bool = False
    tests: frozenset[str] | None = None  # only these


@dataclass(frozen=True)
class Reached:
    """What `tools/reached.py` wrote: the tests that come to a change, by tier, and the seconds of each test."""

    changes: dict[str, dict[str, list[str]] | None]
    took: dict[str, float]

    def phases(self, mutant: Mutant, tree: Path, order: Counter[str]) -> list[Phase] | None:
        """The tests of a change: those that noticed others before, then one of each file in turn, the fast ones first.

        None for a change that an import comes to.  Of a tier run tests of `FILES` files and `MOST` seconds at most.
        """
        by_tier = self.changes[mutant.name]
        if by_tier is None:
            return None
        near = mirrors(mutant.module, found_in(tree, ROOMS[mutant.room].tests))
        made = []
        for tier, tests in by_tier.items():
            marks = MARKS[tier] if (tree / "tests" / "tiers.py").exists() else "not sweep"
            by_file: dict[str, list[str]] = {}
            for test in sorted(tests, key=lambda test: (-order[test], self.took[test])):
                by_file.setdefault(test.partition("::")[0], []).append(test)
            noticed = {name: max(order[test] for test in by_file[name]) for name in by_file}
            files = sorted(by_file, key=lambda name: (-noticed[name], name not in near, -len(by_file[name])))[:FILES]
            turns = itertools.zip_longest(*(by_file[name] for name in files))
            chosen = [test for turn in turns for test in turn if test is not None]
            total = list(itertools.accumulate(self.took[test] for test in chosen))
            chosen = chosen[: 1 + bisect.bisect(total, MOST)]
            for part in (chosen[:FIRST], chosen[FIRST:]):
                names = tuple(dict.fromkeys(test.partition("::")[0] for test in part))
                made.append(Phase(tier, names, marks, tests=frozenset(part)))
        return made


def phases(room: Room, module: str, tree: Path, killers: list[str]) -> list[Phase]:
    """What runs for a change of a module, in order; `killers` are files whose tests noticed changes of it before."""
    files = found_in(tree, room.tests)
    near = tuple(dict.fromkeys([*(name for name in killers if name in files), *mirrors(module, files)]))
    far = tuple(name for name in files if name not in near)
    further = tuple(name for name in found_in(tree, room.further) if name not in files)
    if not (tree / "tests" / "tiers.py").exists():  # before the tiers
        return [
            Phase(DEFAULT, near, "not sweep", once=True),
            Phase(DEFAULT, far, "not sweep", once=True),
            Phase(DEFAULT, near, "not sweep"),
            Phase(DEFAULT, further, "not sweep", once=True),
        ]
    return [
        Phase(DEFAULT, near, MARKS[DEFAULT], once=True),
        Phase(DEFAULT, far, MARKS[DEFAULT], once=True),
        Phase(DEFAULT, near, MARKS[DEFAULT]),
        Phase(DEFAULT, far, MARKS[DEFAULT]),
        Phase(FULL, near, MARKS[FULL]),
        Phase(FULL, far, MARKS[FULL], once=True),
        Phase(FULL, further, "not sweep", once=True),
    ]


class RoomRun:
    """The changes of one room, one after the other, in one copy of a tree."""

    def __init__(self, name: str, slot: Slot, log: Path, quick: bool, reached: Reached | None) -> None:
        self.reached = reached
        self.name, self.room, self.slot, self.log, self.quick = name, ROOMS[name], slot, log, quick
        self.killers: Counter[str] = Counter()
        self.ignored: frozenset[str] = frozenset()  # tests that fail without a change
        self.trusted: set[str] = set()  # tests that pass without one
        self.limit = 0.0

    def run(self, mutants: list[Mutant]) -> None:
        if self.reached is None or any(self.reached.changes[mutant.name] is None for mutant in mutants):
            self.baseline()
        for mutant in mutants:
            self.write(mutant, self.tried(mutant))

    def baseline(self) -> None:
        """Runs the default tests without a change, each row once: what fails is not asked afterwards."""
        marks = phases(self.room, "", self.slot.tree, [])[0].marks
        files = tuple(found_in(self.slot.tree, self.room.tests))
        ended = self.slot.run(
            [Phase(DEFAULT, files, marks, once=True)], self.room.without, 600, stop=False, bytecode=True
        )
        self.ignored = frozenset(ended.failed)
        self.trusted = set(ended.passed)
        for failed in ended.failed:
            say(f"{self.name}: fails without a change, and is left out: {failed}")
        if ended.late or (ended.status and not ended.failed):
            raise SystemExit(f"{self.name}: without a change the tests end with {ended.status} in {ended.running}")
        self.limit = BASE_SECONDS + FACTOR * (ended.slowest[0][1] if ended.slowest else 0.0)
        say(f"{self.name}: {len(ended.passed)} tests take {ended.cpu:.1f} s of a processor")
        for name, seconds in ended.slowest if ended.cpu > LONG else []:
            say(f"    {seconds:.1f} {name}")

    def tried(self, mutant: Mutant) -> dict[str, object]:
        """What becomes of a change."""
        module = path_in(self.slot.tree, mutant.module)
        path = self.slot.tree / module
        source = (
            found_again(path.read_text(), mutant.found, mutant.module in self.room.texts) if path.exists() else None
        )
        if source is None:
            return {"verdict": "absent"}
        order = self.killers
        killers = [name for name, _ in self.files_that_killed()]
        stages = self.reached.phases(mutant, self.slot.tree, order) if self.reached else None
        without, limit = "", BASE_SECONDS + FACTOR * MOST
        if stages is None:
            stages = phases(self.room, module, self.slot.tree, killers)[: 2 if self.quick else None]
            without, limit = self.room.without, self.limit
        elif not any(stage.files for stage in stages):
            return {"verdict": "survived", "tests": 0}
        start = time.monotonic()
        while True:
            with self.slot.changed({module: source}):
                ended = self.slot.run(stages, without, limit, FULL_SECONDS, order=order, ignored=self.ignored)
            if not ended.failed or self.trusts(ended.failed[0], stages[ended.phase]):
                break
            self.ignored |= {ended.failed[0]}
            say(f"{self.name}: fails without a change, and is left out: {ended.failed[0]}")
        found: dict[str, object] = {"seconds": round(time.monotonic() - start, 2), "cpu": round(ended.cpu, 2)}
        tier = stages[ended.phase].tier
        if ended.late:
            return {"verdict": "timed out", "tier": tier, "test": ended.running, **found}
        if ended.status == 0:
            tests = sum(len(stage.tests or ()) for stage in stages)
            return {"verdict": "survived", **({"tests": tests} if tests else {}), **found}
        test = ended.failed[0] if ended.failed else ended.running
        self.killers[test] += 1
        return {"verdict": "killed", "tier": tier, "test": test, **found}

    def files_that_killed(self) -> list[tuple[str, int]]:
        """The two files that noticed most changes of the room so far."""
        files = Counter[str]()
        for test, times in self.killers.items():
            files[test.partition("::")[0]] += times
        return files.most_common(2)

    def trusts(self, test: str, phase: Phase) -> bool:
        """Whether a test passes without a change; what is no test is a file that the change keeps from its import."""
        if test in self.trusted or "::" not in test:
            return True
        passes = not self.slot.run([Phase(phase.tier, (test,), phase.marks)], "", FULL_SECONDS).failed
        self.trusted |= {test} if passes else set()
        return passes

    def write(self, mutant: Mutant, verdict: dict[str, object]) -> None:
        line = {"room": self.name, "name": mutant.name, "module": mutant.module, "line": mutant.found.line}
        with self.log.open("a") as file:
            file.write(json.dumps({**line, "change": mutant.found.text, **verdict}) + "\n")
        if verdict["verdict"] != "killed" or verdict["tier"] == FULL:
            told = " ".join(str(verdict[key]) for key in ("verdict", "tier", "test") if key in verdict)
            say(f"{told}: {mutant.module}:{mutant.found.line}: {mutant.found.text}")


def run(mutants: list[Mutant], tree: Path, jobs: int, log: Path, quick: bool, reached: Reached | None = None) -> None:
    """Tries the changes that the log does not have, room by room, in as many processes."""
    known = {line["name"] for line in lines_of(log)}
    by_room: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        if mutant.name not in known:
            by_room.setdefault(mutant.room, []).append(mutant)
    rooms = sorted(by_room, key=lambda name: -len(by_room[name]))
    with Folder(tree, jobs) as folder:
        in_workers(rooms, folder, lambda room, slot: RoomRun(room, slot, log, quick, reached).run(by_room[room]))


def lines_of(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def report(log: Path, beside: Path | None) -> int:
    """Prints the log by room, and what only `full` notices.  The exit status: 1 when something survived."""
    lines = lines_of(log)
    print(f"{'room':28} {'changes':>8} {'default':>8} {'full':>8} {'survived':>8} {'late':>8} {'cpu':>8}")
    rooms: dict[str, list[dict[str, object]]] = {}
    for line in lines:
        rooms.setdefault(str(line["room"]), []).append(line)
    for name, of_room in [*rooms.items(), ("all", lines)]:
        counts = Counter(outcome(line) for line in of_room)
        late = sum(line["verdict"] == "timed out" for line in of_room)
        tried = [float(str(line["cpu"])) for line in of_room if "cpu" in line]
        mean = sum(tried) / max(1, len(tried))
        cells = (len(of_room), counts[DEFAULT], counts[FULL], counts["survived"], late)
        print(f"{name:28} " + " ".join(f"{cell:8}" for cell in cells) + f" {mean:8.1f}")
    for line in lines:
        if outcome(line) == FULL:
            print(f"only full: {line['module']}:{line['line']}: {line['change']}  by {line['test']}")
    for line in lines:
        if line["verdict"] == "survived":
            print(f"survived: {line['module']}:{line['line']}: {line['change']}")
    if beside is not None:
        compare(lines, lines_of(beside))
    return int(any(line["verdict"] == "survived" for line in lines))


def outcome(line: dict[str, object]) -> str:
    """The tier that noticed a change, also one whose tests ran too long; else what became of it."""
    return str(line.get("tier", line["verdict"]))


def compare(lines: list[dict[str, object]], others: list[dict[str, object]]) -> None:
    """Prints how many of the changes that both logs tried were noticed in each, and which in the other one only."""
    before = {line["name"]: line for line in others if line["verdict"] != "absent"}
    both = [line for line in lines if line["name"] in before]
    noticed = [line for line in both if "tier" in line]
    noticed_before = [line for line in both if "tier" in before[line["name"]]]
    default = [line for line in noticed_before if line.get("tier") == DEFAULT]
    share = 100 * len(default) / max(1, len(noticed_before))
    print(f"in both logs {len(both)}; noticed {len(noticed)}, in the other log {len(noticed_before)}")
    print(f"of those noticed in the other log, the default tests notice {len(default)} ({share:.1f} %)")
    for line in noticed_before:
        if "tier" not in line:
            test = before[line["name"]].get("test")
            print(f"lost: {line['module']}:{line['line']}: {line['change']}  by {test}")


def planted(tree: Path, jobs: int, only: list[str]) -> int:
    """Plants each fault of the table.  The exit status: 1 when the tests of one did not see it."""
    from tools.planted import FAULTS

    faults = [fault for fault in FAULTS if not only or fault.name in only]

    def one(name: str, slot: Slot) -> str:
        fault = next(fault for fault in faults if fault.name == name)
        start = time.monotonic()
        with slot.changed(fault.planted(slot.tree)):
            ended = slot.run([Phase(DEFAULT, fault.tests, MARKS[DEFAULT], once=True)], "", FULL_SECONDS)
        took = f"{ended.cpu:.1f} s of a processor, {time.monotonic() - start:.1f} s"
        if ended.status == 0:
            return f"{name}: NOT SEEN by {', '.join(fault.tests)} ({took})"
        if ended.late:
            return f"{name}: {ended.running} took too long ({took})"
        test = (ended.failed or [ended.running])[0]
        clean = slot.run([Phase(DEFAULT, (test,), MARKS[DEFAULT])], "", FULL_SECONDS)
        if clean.status:
            return f"{name}: fails without it: {test}"
        return f"{name}: seen by {test} ({took})"

    with Folder(tree, jobs) as folder, tempfile.TemporaryDirectory() as told:
        lines = Path(told) / "lines"

        def note(name: str, slot: Slot) -> None:
            line = one(name, slot)
            say(line)
            with lines.open("a") as file:
                file.write(f"{line}\n")

        in_workers([fault.name for fault in faults], folder, note)
        found = lines.read_text().splitlines()
    unseen = [fault.name for fault in faults if not any(line.startswith(f"{fault.name}: seen") for line in found)]
    say(f"{len(faults)} planted, {len(faults) - len(unseen)} seen")
    return int(bool(unseen))


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """The exit status: 1 when something survived."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description="Change the code and run the tests.")
    parser.add_argument(
        "what", choices=["all", "planted", "report", *ROOMS], metavar="what", help="all, planted, report, or a room"
    )
    parser.add_argument("--count", type=int, default=600, help="changes to try")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=1, help="children at a time")
    parser.add_argument("--log", type=Path, help="a line of JSON a change; those that are there are not tried again")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout, to try the same changes there")
    parser.add_argument("--beside", type=Path, help="with report: the log of another tree")
    parser.add_argument("--at", action="append", default=[], help="FILE or FILE:LINE: only changes there; may repeat")
    parser.add_argument("--quick", action="store_true", help="each default row once, and none of the tier `full`")
    parser.add_argument("--only", action="append", default=[], help="with planted: this fault; may repeat")
    parser.add_argument("--reached", type=Path, help="what tools.reached wrote: only tests that come to a change run")
    asked = parser.parse_args()
    if asked.what == "report":
        if asked.log is None:
            parser.error("report needs --log FILE")
        return report(asked.log, asked.beside)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # a process with threads cannot be forked
    tree = asked.tree.resolve()
    if asked.what == "planted":
        import_before()
        return planted(tree, asked.jobs, asked.only)
    rooms = ROOMS if asked.what == "all" else {asked.what: ROOMS[asked.what]}
    mutants = drawn(rooms, asked.count, asked.seed, asked.at)
    import_before()
    with tempfile.TemporaryDirectory() as folder:
        log = asked.log or Path(folder) / "log"
        reached = Reached(**json.loads(asked.reached.read_text())) if asked.reached else None
        run(mutants, tree, asked.jobs, log, asked.quick, reached)
        return report(log, asked.beside)


if __name__ == "__main__":
    sys.exit(main())
