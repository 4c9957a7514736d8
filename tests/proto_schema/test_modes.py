"""Modes and owners of what a save writes, and targets that are no regular files.

A new file has the mode and the owner of what it replaces, and no file is wider for a moment, under whatever name.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.proto_schema.decoys import Watched, used_by
from tests.proto_schema.stress import SAVES, held_by, number_in
from tests.proto_schema.test_ownership import EXTERNAL, INLINE, W_BIN, save

root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")


LOCK = ".proto_schema-lock"  # an empty file, which all who may write to the folder must be able to open


@contextmanager
def widest_modes(folder: Path) -> Iterator[set[int]]:
    """The modes that files of the folder have: when they are made, and whenever progress is made."""
    seen: set[int] = set()
    real = os.open

    def look() -> None:
        seen.update(
            stat.S_IMODE(path.lstat().st_mode)
            for path in folder.iterdir()
            if not path.is_symlink() and not path.name.endswith(LOCK)
        )

    def noting(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        descriptor = real(path, flags, *args, **kwargs)
        if flags & os.O_CREAT:
            look()
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", noting)
        yield seen


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("kind", SAVES)
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_files_follow_the_umask(mask: int, kind: str, tmp_path: Path) -> None:
    with umask(mask), widest_modes(tmp_path) as seen:
        save(2, **SAVES[kind])(tmp_path)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o666 & ~mask}, modes
    assert all(not mode & mask for mode in seen)


@pytest.mark.parametrize("linked", [False, True], ids=["file", "link"])
@pytest.mark.parametrize("kind", SAVES)
@pytest.mark.parametrize("old", ["inline", "external"])
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_files_keep_the_mode_of_what_they_replace(mode: int, old: str, kind: str, linked: bool, tmp_path: Path) -> None:
    """The data has the mode of the model. No file is wider meanwhile, however short."""
    folder = tmp_path / "models"
    folder.mkdir()
    save(1, **SAVES[old])(folder)
    for path in folder.iterdir():
        path.chmod(mode)
    if linked:
        (folder / "m.onnx").rename(tmp_path / "elsewhere.onnx")
        (folder / "m.onnx").symlink_to(tmp_path / "elsewhere.onnx")
    with umask(0o022), widest_modes(folder) as seen:
        heard: list[Any] = []

        def told(done: int, total: int) -> None:
            heard.extend(stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if not path.name.endswith(LOCK))

        save(2, **SAVES[kind], progress=told)(folder)
    modes = {name: stat.S_IMODE((folder / name).stat().st_mode) for name in used_by(folder / "m.onnx")}
    assert set(modes.values()) == {mode}, {name: oct(value) for name, value in modes.items()}
    assert heard and all(not made & ~mode for made in {*heard, *seen}), [oct(made) for made in {*heard, *seen}]


@root
@pytest.mark.parametrize("kind", SAVES)
@pytest.mark.parametrize("old", ["inline", "external"])
def test_files_keep_the_owner_of_what_they_replace(old: str, kind: str, tmp_path: Path) -> None:
    save(1, **SAVES[old])(tmp_path)
    for path in tmp_path.iterdir():
        os.chown(path, 1234, 2345)
    save(2, **SAVES[kind])(tmp_path)
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in tmp_path.iterdir()}
    assert set(owners.values()) == {(1234, 2345)}, owners


AS_NOBODY = """
import logging, os, sys
from pathlib import Path
from tests.proto_schema.test_ownership import EXTERNAL, save
logging.basicConfig(stream=sys.stdout)
for _ in range(2):  # what is imported late may lie where only root can read
    save(1, **EXTERNAL)(Path(sys.argv[2]))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
save(2, **EXTERNAL)(Path(sys.argv[1]))
"""


@root
def test_an_owner_that_cannot_be_kept_is_said(quick_folder: Path, tmp_path: Path) -> None:
    """A folder that all may write to, with a file of another user's."""
    os.chmod(quick_folder, 0o777)
    save(1, **INLINE)(quick_folder)
    os.chmod(quick_folder / "m.onnx", 0o666)
    command = [sys.executable, "-c", AS_NOBODY, quick_folder, tmp_path]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert held_by(quick_folder / "m.onnx") == "2"
    assert (quick_folder / "m.onnx").stat().st_uid == 65534 and "owner" in said.stdout, said.stdout


APPENDING = """
import os, sys
from purexport import inspect
edits = inspect.Edits(metadata={"a": "b"})
inspect.edit(sys.argv[2], edits, append=True)
inspect.edit(sys.argv[2], edits)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
inspect.edit(sys.argv[1], edits, append=True)
"""


@root
def test_appending_in_a_folder_that_is_closed(quick_folder: Path, tmp_path: Path) -> None:
    """It needs no new file: a lock that cannot be made is no reason to refuse."""
    for folder in (quick_folder, tmp_path):
        save(2, **INLINE)(folder)
    os.chmod(quick_folder / "m.onnx", 0o666)
    os.chmod(quick_folder, 0o555)
    command = [sys.executable, "-c", APPENDING, quick_folder / "m.onnx", tmp_path / "m.onnx"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "a" in number_in(quick_folder / "m.onnx")[1] and os.listdir(quick_folder) == ["m.onnx"]


@pytest.mark.parametrize(("name", "kind"), [*(("m.onnx", kind) for kind in SAVES), ("w.bin", "location")])
def test_a_read_only_file_is_not_replaced(name: str, kind: str, tmp_path: Path) -> None:
    save(1, **W_BIN)(tmp_path)
    (tmp_path / name).chmod(0o444)
    watched = Watched(tmp_path)
    with pytest.raises(PermissionError, match=name):
        save(2, **SAVES[kind])(tmp_path)
    assert watched.changes() == [] and watched.left() == []


# ---- what is no regular file


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("name", ["stdout", "fd/9"])
def test_a_name_of_an_open_file_is_written_to(name: str, tmp_path: Path) -> None:
    """As /dev/stdout and /dev/fd/9, which are links into /proc; links of our own, which nothing else needs."""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    (tmp_path / "fd").symlink_to("/proc/self/fd")
    code = "import sys; from pathlib import Path; from tests.proto_schema.test_ownership import *"
    code += "; save(2, sys.argv[2], external_data=False)(Path(sys.argv[1]))"
    target = tmp_path / "written.onnx"
    words = 'exec "$0" -c "$1" "$2" "$3" 9> "$4" 1> "$4"'
    command = ["sh", "-c", words, sys.executable, code, tmp_path, name, target]
    subprocess.run(command, check=True, timeout=60)
    assert held_by(target) == "2"
    assert sorted(os.listdir(tmp_path)) == ["fd", "stdout", "written.onnx"] and (tmp_path / name).is_symlink()


@root
def test_a_device_stays(tmp_path: Path) -> None:
    os.mknod(tmp_path / "m.onnx", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    watched = Watched(tmp_path)
    save(2, **INLINE)(tmp_path)
    with pytest.raises((ValueError, OSError)):
        save(2, **EXTERNAL)(tmp_path)
    assert watched.changes() == [] and watched.left() == []


def test_a_socket_is_refused(quick_folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(quick_folder / "m.onnx"))
        watched = Watched(quick_folder)
        with pytest.raises(OSError, match=r"m\.onnx"):
            save(2, **INLINE)(quick_folder)
    assert watched.changes() == [] and watched.left() == []
