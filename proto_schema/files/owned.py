"""Whose a file in the model's folder is: which models refer to it, and whether a save of ours wrote it for this one.

A data file may be replaced or removed with a model only where it bears that model's mark (`marks.py`) and no other
model in the folder refers to it. What a model says is never enough: it could name any file.
A model is a file that decodes as one, whatever it is called: copies are kept under all kinds of names.
What cannot be read may refer to anything: where the folder or an .onnx file in it is closed, nothing is removed.
"""

from __future__ import annotations

import errno
import logging
import os
import posixpath
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cached_property

from proto_schema.external import tensors
from proto_schema.external.payload import FileMap
from proto_schema.files.marks import is_journal, is_marked
from proto_schema.files.naming import JOURNAL, PARTIAL, is_any_temporary, is_temporary, wanted_name
from proto_schema.onnx import ModelProto, TensorProto
from proto_schema.wire.codec import decode

_CHECKPOINTS = (".safetensors", ".pt", ".pth", ".ckpt", ".npz", ".npy", ".onnx", ".gguf", ".h5", ".zip")
_TAGS = frozenset(row.number << 3 | kind for row in ModelProto.FIELDS for kind in (0, 2))
_SEARCHED = 1 << 24  # in files up to this size the key of an entry is first looked for as plain bytes: that is quicker
READ_ONLY = "it is read-only"
_LEADS_NOWHERE = {errno.ENOENT, errno.ELOOP, errno.ENOTDIR}
_log = logging.getLogger("proto_schema")


def is_checkpoint(name: str) -> bool:
    """Whether the name is that of a file that a save does not write: its suffix promises another format."""
    return name.endswith(_CHECKPOINTS)


class Surroundings:
    """The folder of a model that is to be replaced, as it is now: the data files of that model, and the other models.

    `searching`: a save that was killed may have left files of any name. `together` are the names of models that are
    replaced at the same time, so that they are no other models.
    """

    def __init__(self, path: str, searching: bool = False, together: Collection[str] = ()) -> None:
        self.path = path
        self._searching = searching
        self._together = together
        self.folder, self.name = os.path.split(path)

    @cached_property
    def data(self) -> set[str]:
        """The names of the files in its own folder that the model refers to which is there now.

        A save refers to no others, and where else the paths of a model lead nothing is looked at.
        """
        with suppress(OSError):
            found = set() if os.path.islink(self.path) else _referred(self.path)
            return {name for name in found if os.path.basename(name) == name and name not in (".", "..")}
        return set()

    def user(self, name: str) -> str:
        """Another model in the folder that refers to the file of that name; '' if there is none."""
        return self._users[0].get(name, "")

    def objection(self, name: str) -> str:
        """Why a save of the model must not replace or remove the file of that name; '' if it may."""
        if not os.path.lexists(self._path(name)):
            return ""
        if self.user(name):
            return f"{self.user(name)} refers to it"
        if self._users[1]:
            return f"{self._users[1]} cannot be read, and may refer to it"
        status = os.lstat(self._path(name))
        if not is_marked(self._path(name), {name, wanted_name(name) or name}, self.name):
            return f"it was not written for {self.name}"
        return "" if status.st_mode & 0o222 else READ_ONLY

    def leftovers(self, used: Collection[str]) -> Iterator[str]:
        """The paths of what nobody needs now that the model refers to the files `used` only. Says what stays."""
        beside = (f"{self.name}.", f"{self.name}-")
        found = [n for n in self._names if self._searching or n.startswith(beside) or n.endswith(JOURNAL)]
        for name in sorted({*found, *self.data}):
            if name in used or name == self.name or not os.path.lexists(self._path(name)):
                continue
            if name.endswith(JOURNAL) and is_journal(self._path(name), self.name):
                yield self._path(name)
                yield self._path(name).removesuffix(JOURNAL) + PARTIAL
                continue
            reason = self.objection(name)
            if not reason:
                yield self._path(name)
            elif name in self.data and not is_checkpoint(name):
                said = ascii(reason)[1:-1]
                _log.warning("%a stays, though the new %a does not need it: %s", self._path(name), self.path, said)

    def temporaries(self) -> Iterator[str]:
        """The paths of temporary files for this target. While its lock is held, nobody needs them."""
        for name in self._names:
            if is_temporary(name, self.name):
                with suppress(OSError):
                    if stat.S_ISREG(os.lstat(self._path(name)).st_mode):
                        yield self._path(name)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    @cached_property
    def _names(self) -> list[str]:
        return _names_in(self.folder or ".")

    @cached_property
    def _users(self) -> tuple[dict[str, str], str]:
        """For each file that another model refers to, that model; and what may be one and cannot be read, or ''.

        An .onnx file in the folder above is such a model too, as far as it can be read.
        """
        above = os.path.dirname(os.path.abspath(self.folder))
        prefix = f"{os.path.basename(os.path.abspath(self.folder))}/"
        found: dict[str, str] = {}
        closed = "" if self._names else "the folder"  # the target's lock is in it
        for model in _names_in(above):
            with suppress(OSError):
                referred = _referred(os.path.join(above, model)) if model.endswith(".onnx") else ()
                places = [name for name in referred if name.startswith(prefix)]
                found.update(dict.fromkeys((name.removeprefix(prefix) for name in places), f"../{model}"))
        for model in self._names:
            # what is being written looks again, under the folder's lock, at what it refers to
            if model == self.name or model in self._together or is_any_temporary(model):
                continue
            # a link to a model is one, as hubs have them; other links are not followed
            if model.endswith(".onnx") or not os.path.islink(self._path(model)):
                try:
                    found.update(dict.fromkeys(_referred(self._path(model)), model))
                except OSError as error:
                    if ".onnx" in model and error.errno not in _LEADS_NOWHERE:
                        closed = model
        return found, closed


def _names_in(folder: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def files_of(path: str) -> list[str]:
    """The paths of the model's file and of the data files that it refers to."""
    with suppress(OSError):
        return [path, *data_of(path)]
    return [path]


def data_of(path: str) -> list[str]:
    """The paths of the data files that the model at `path` refers to. OSError where it cannot be read."""
    return [os.path.join(os.path.dirname(path), *name.split("/")) for name in sorted(_referred(path))]


def is_model(path: str) -> bool:
    """Whether the file at `path` decodes as a model."""
    with suppress(OSError, ValueError):
        data = _possible_model(path)
        return data is not None and decode(ModelProto, data).graph is not None
    return False


def _referred(path: str) -> set[str]:
    """The files that the model at `path` refers to, as it names them; none where there is no model.

    OSError where that cannot be known.
    """
    found: set[str] = set()
    with suppress(ValueError):
        data = _possible_model(path)
        if data is None or (len(data) <= _SEARCHED and data.find(b"location") < 0):
            return found
        for tensor in tensors(decode(ModelProto, data)):
            if tensor.data_location == TensorProto.EXTERNAL:
                places = [entry.value for entry in tensor.external_data if entry.key == "location"]
                found.update(posixpath.normpath(place) for place in places if isinstance(place, str))
    return found


def _possible_model(path: str) -> FileMap | None:
    """The bytes of a regular file whose first byte is the tag of a field of a model."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return None
    with open(path, "rb", buffering=0) as file:
        start = file.read(1)
        return FileMap.of(file.fileno(), path) if start and start[0] in _TAGS else None
