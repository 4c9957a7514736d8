"""What must hold after each step, however it ended, judged by two snapshots.

Others' files are as they were. Every whole model but the target means what it meant. The target is the old one or the
new one. Nothing is written outside. What is new is used. Modes grow no wider. Words of a finding name no particulars,
so that one way of breaking a promise is one finding.
"""

from __future__ import annotations

import io
import os
import posixpath
import tarfile
from dataclasses import dataclass

from fuzz.folders.doings import Doing
from fuzz.folders.snapshot import (
    FIFO,
    FILE,
    LINK,
    Entry,
    Meaning,
    Snapshot,
    data_of,
    is_model,
    meaning,
    models,
    resolved,
)
from fuzz.folders.world import BOX, World
from fuzz.harness import Violation

DONE, REFUSED, FAILED, KILLED = "done", "refused", "failed", "killed"
_REMOVING = ("unlink", "open")  # where these fail, a file of ours may stay: to be removed, or to be locked for it
_GRANTING = ("fchmod", "fchown")


@dataclass
class Step:
    """One step of ours and how it ended. `call`: the function of the system that met a fault."""

    doing: Doing
    ended: str
    before: Snapshot
    after: Snapshot
    world: World
    call: str = ""

    @property
    def _how(self) -> str:
        return f"{self.doing.verb}, {self.ended}"

    def fail(self, broken: str) -> None:
        raise Violation(f"{self._how}: {broken}")

    def judge(self) -> None:
        """Raises Violation for the first promise that is broken, and notes whose the files are now."""
        self.used = data_of(self.after, self.doing.target) if self.doing.target else set()
        changed = [
            path
            for path in sorted(self.before.keys() | self.after.keys())
            if path not in self.before or not self.before[path].same(self.after.get(path))
        ]
        others = [path for path in changed if path != self.doing.target]
        for path in others:
            self._judge_file(path, self.before.get(path), self.after.get(path))
        self._judge_models()
        if self.ended == REFUSED and self.doing.target in changed:
            self.fail("the target is changed")
        if self.doing.target:
            self._judge_target(self.before.get(self.doing.target), self.after.get(self.doing.target))
        if self.ended == DONE and self.doing.verb in ("save", "extract"):
            self._judge_rest()
        self._note(changed)

    # Files ------------------------------------------------------------------------------------------------------------

    def _judge_file(self, path: str, old: Entry | None, new: Entry | None) -> None:
        """A file that is not the target, and is other than it was."""
        if not path.startswith(BOX):
            self.fail("something outside of the folder is changed")
        if old is None:
            assert new is not None
            self._judge_new(path, new)
        elif path not in self.world.ours and path not in self.world.stale:
            if self.doing.overwrite and self._is_wanted(path):
                return  # that no other model refers to it is seen below
            how = "is gone" if new is None else "has another mode or owner" if self._content(old, new) else "is changed"
            self.fail(f"a file of others {how}")
        elif self.ended == REFUSED and path not in self.world.stale:
            self.fail("a data file is changed")
        elif new is not None and new.kind == FILE and path in self.used:
            self._judge_mode(path, new)

    def _is_wanted(self, path: str) -> bool:
        """Whether it is to be a data file of the new model; one that was stopped may refer to a name made of that."""
        stopped = self.ended in (FAILED, KILLED) or self.call
        return path in self.used or bool(stopped and any(name.startswith(f"{path}.") for name in self.used))

    @staticmethod
    def _content(old: Entry, new: Entry) -> bool:
        return (old.kind, old.content) == (new.kind, new.content)

    def _judge_new(self, path: str, new: Entry) -> None:
        self._judge_mode(path, new)
        if self.ended == KILLED or path in self.used:
            return
        if self.call in _REMOVING or (self.ended == FAILED and self.doing.resume and ".partial" in path):
            return
        self.fail("something new is left behind")

    def _judge_mode(self, path: str, new: Entry) -> None:
        """A data file, or what is to become one or the model: no wider than the model, or the file of that name."""
        allowed = 0o666 & ~_umask()
        place = resolved(self.before, self.doing.target)
        model, earlier = self.before.get(place), self.before.get(path)
        if model is not None and model.kind == FILE:
            allowed = model.mode
            if any(self.before[name].mode & ~allowed for name in self._replaced()):
                return  # the data that is replaced was wider than its model
        if earlier is not None:
            allowed = earlier.mode
        if self.doing.overwrite and (self.call or self.ended == KILLED):  # it was to replace a file of any name
            allowed |= max(entry.mode for entry in self.before.values() if entry.kind == FILE)
        if new.kind == FILE and new.content and new.mode & ~allowed & 0o777:  # a lock is empty
            self.fail("a data file or temporary file may be read or written by more than the model")

    def _replaced(self) -> set[str]:
        return {path for path in data_of(self.before, self.doing.target) if path in self.before}

    # Models -----------------------------------------------------------------------------------------------------------

    def _judge_models(self) -> None:
        target = self.doing.target
        for path, means in models(self.before).items():
            leads_there = bool(target) and resolved(self.before, path) == target
            replaced = self.doing.overwrite and self._is_wanted(path)
            if path == target or path in self.world.stale or leads_there or replaced:
                continue
            now = meaning(self.after, path)
            if now is None:
                self.fail("another model is broken")
            if now != means:
                self.fail("another model has other weights")

    def _judge_target(self, old: Entry | None, new: Entry | None) -> None:
        before, now = meaning(self.before, self.doing.target), meaning(self.after, self.doing.target)
        if old is not None and old.kind == FIFO:
            self._judge_stream(new)
        elif self.ended == DONE:
            self._judge_result(old, new, now)
        elif old is None:
            if new is not None and not self._is_result(new, now):
                self.fail("the target is neither absent nor the new one")
        elif self.ended == KILLED and "append=True" in self.doing.line:
            if new is None or not new.content.startswith(old.content):  # a part of the record may be there
                self.fail("append changes what was there")
        elif not old.same(new) and (new is None or not self._is_result(new, now)):
            self.fail("the target is neither the old one nor the new one")
        elif before is None or (self.doing.means is None and not old.same(new)):
            return
        elif now is None:
            self.fail("the target's data is gone")
        elif now not in (before, self.doing.means):
            self.fail("the target has weights of neither the old one nor the new one")

    def _judge_stream(self, new: Entry | None) -> None:
        data = self.world.drained()
        if new is None or new.kind != FIFO:
            self.fail("a pipe is replaced")
        got = meaning({**self.before, self.doing.target: Entry(FILE, 0, (0, 0), 0, data)}, self.doing.target)
        if self.ended == DONE and self.doing.means is not None and got != self.doing.means:
            self.fail("a pipe got something else")

    def _is_result(self, new: Entry, now: Meaning | None) -> bool:
        return new.kind == FILE and (self.doing.means is None or now == self.doing.means)

    def _judge_result(self, old: Entry | None, new: Entry | None, now: Meaning | None) -> None:
        if new is None or new.kind != FILE:
            self.fail("the target is not a file")
            return
        if self.doing.means is not None and now is None:
            self.fail("the new model is broken")
        if self.doing.means is not None and now != self.doing.means:
            self.fail("the new model has other weights")
        if "archive='tar'" in self.doing.line and not _is_whole_tar(new.content):
            self.fail("the archive is broken")
        self._judge_permissions(old, new)

    def _judge_permissions(self, old: Entry | None, new: Entry) -> None:
        target = self.doing.target
        if self.before.get(target) is not None and new.same(old):
            return
        model = self.before.get(resolved(self.before, target))
        if model is None or model.kind != FILE:
            if new.mode & ~(0o666 & ~_umask()):
                self.fail("a new file may be read or written by more than the umask says")
            return
        if not model.mode & 0o222 and not self.doing.overwrite:
            self.fail("a read-only file is replaced")
        if new.mode != model.mode and not (self.call in _GRANTING and not new.mode & ~model.mode):
            self.fail("the target has another mode")
        if new.owner != model.owner and self.call not in _GRANTING:
            self.fail("the target has another owner")
        if target in self.before and self._is_needed(target):
            self.fail("the data of a model is replaced by something else")
        if target in self.doing.inputs or resolved(self.before, target) in self.doing.inputs:
            self.fail("a file that the same command reads is replaced")
        if model.content and not self.doing.overwrite and not self._is_its_kind(target, model.content):
            self.fail("a file of another kind is replaced")

    def _is_its_kind(self, path: str, content: bytes) -> bool:
        """Whether a file is of the kind that the step writes, or says so by its name."""
        if self.doing.verb in ("npy", "safetensors"):
            return False
        if self.doing.verb == "html":
            return b"<html" in content[:2000]
        if "archive='tar'" in self.doing.line:
            return path.endswith(".tar") or content[257:262] == b"ustar"
        return path.endswith(".onnx") or is_model(content)

    def _is_needed(self, path: str) -> bool:
        return any(path in data_of(self.before, other) for other in models(self.before))

    # What a completed save leaves -------------------------------------------------------------------------------------

    def _judge_rest(self) -> None:
        target = self.doing.target
        if self.call in _REMOVING or self._has_no_lock():
            return
        every = set().union(*(data_of(self.after, path) for path in self.after))  # also of what is whole no more
        there = {path for path in self.after if path not in every and path != target and self._may_go(path)}
        if any(self.world.stale.get(path) == target for path in there):
            self.fail("what a killed save left is still there")
        if target in self.before and self.before[target].kind == LINK:
            return  # the model that it led to is there still
        if any(self.world.ours.get(path) == target for path in there & data_of(self.before, target)):
            self.fail("data of the replaced model is still there, and nobody needs it")

    def _has_no_lock(self) -> bool:
        """Whether something of others has the name of the lock: then data files stay."""
        folder, name = posixpath.split(self.doing.target)
        lock = self.before.get(f"{folder}/.{name}.proto_schema-lock")
        return lock is not None and (lock.kind != FILE or bool(lock.content))

    def _may_go(self, path: str) -> bool:
        """A file that somebody has made read-only stays."""
        return path in self.before and bool(self.before[path].mode & 0o222)

    def _note(self, changed: list[str]) -> None:
        """What was written now is ours."""
        world, target = self.world, self.doing.target
        for path in changed:
            world.ours.pop(path, None)
            world.stale.pop(path, None)
            new = self.after.get(path)
            if new is None or path == target or new.kind != FILE:
                continue
            if path in self.used:
                world.wrote(path, new.content, target)
            else:
                kept = self.ended != KILLED and self.call in _REMOVING  # nothing tells the next save of it
                world.stale[path] = "" if kept else target
        world.settle()


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def _is_whole_tar(content: bytes) -> bool:
    """Whether it is an archive whose first member is a model that is whole in it."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found: Snapshot = {}
        for member in archive.getmembers():
            held = archive.extractfile(member)
            found[posixpath.normpath(member.name)] = Entry(FILE, 0, (0, 0), 0, held.read() if held else b"")
    return meaning(found, next(iter(found))) is not None
