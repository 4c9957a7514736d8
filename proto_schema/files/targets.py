"""The one judgement on the file that a save or a tool is going to write: may what is there be lost?

Never: what the same command reads, and what another model in the folder refers to as its data. Only if it is asked for
(`overwrite=True`, `--force`): a file that is read-only, or that is nothing which the command would have written there.
A model may replace a model, and an archive an archive: that is what saving again means. A page that this project made
is known by its first lines. Other files bear no mark, so they stay.
What is no regular file is written to and not replaced; it is not judged.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal, TypeAlias

from proto_schema.external.addresses import is_address
from proto_schema.files.archive import begins_as_archive
from proto_schema.files.owned import Surroundings, is_model

Kind: TypeAlias = Literal["model", "tar", "page", "file"]
"""What is written."""

PAGE_MARK = b'<meta name="generator" content="purexport'
_WHAT = {"model": "an ONNX model", "tar": "an archive of a model", "page": "a page of purexport", "file": "empty"}
_FORCE = "or allow it to be replaced (overwrite=True, --force)"


def judge(path: str, kind: Kind = "model", inputs: Iterable[str] = (), overwrite: bool = False) -> None:
    """Raises an error if the file at `path` must not be replaced; `inputs` are the files that the command reads.

    Raises FileNotFoundError if the folder does not exist, FileExistsError or PermissionError for a file that would be
    lost; both name the path.
    """
    if is_address(path):  # what is there is judged by the save, which reads nothing of it
        return
    folder, name = os.path.split(path)
    if not os.path.isdir(folder or "."):
        raise FileNotFoundError(errno.ENOENT, f"the folder {folder} does not exist", path)
    if not os.path.lexists(path):
        return
    status = _status(path)
    for place in inputs:
        if os.path.abspath(place) == os.path.abspath(path) or _same(status, _status(place)):
            raise FileExistsError(errno.EEXIST, "it is read by the same command; choose another name", path)
    user = Surroundings(path).user(name)
    if user:
        raise FileExistsError(errno.EEXIST, f"{user} has its data in it; choose another name", path)
    if overwrite or status is None or not stat.S_ISREG(status.st_mode):
        return
    if not status.st_mode & 0o222:
        raise PermissionError(errno.EACCES, f"it is read-only; make it writable, choose another name, {_FORCE}", path)
    if status.st_size and not _is(path, kind):
        raise FileExistsError(
            errno.EEXIST, f"it is there already and is not {_WHAT[kind]}; choose another name, {_FORCE}", path
        )


def _status(path: str) -> os.stat_result | None:
    """Of the file, behind links; None if there is none."""
    with suppress(OSError, ValueError):  # a model may name files that no file can be called
        return os.stat(path)
    return None


def _same(a: os.stat_result | None, b: os.stat_result | None) -> bool:
    return a is not None and b is not None and os.path.samestat(a, b)


def _is(path: str, kind: Kind) -> bool:
    """Whether a regular file is what the command would write: a model, an archive of one, a page of ours.

    What is called .onnx was meant as a model: a damaged one, or a pointer to one, is what a new export is for.
    """
    if kind == "model":
        return path.endswith(".onnx") or is_model(path)
    with open(path, "rb", buffering=0) as file:
        start = file.read(4096)
    if kind == "tar":
        return begins_as_archive(start)
    return kind == "page" and PAGE_MARK in start
