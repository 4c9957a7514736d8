"""Where the model is: the frames of its code and its module, kept as code objects until somebody asks for lines."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from functools import lru_cache
from inspect import getattr_static
from types import CodeType, FrameType
from typing import Any

import torch

from purexport.aten.graph import Frame

_KEPT = type(lru_cache(len))
_CALL = torch.nn.Module._call_impl.__code__
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_BETWEEN = ("sym_node", _PACKAGE, os.path.join("torch", "__init__.py"))
_NOT_THE_MODEL = (os.path.dirname(torch.__file__) + os.sep, _PACKAGE + os.sep)


def asking_frame() -> FrameType | None:
    """The frame of the code that asks a symbolic number."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and any(part in frame.f_code.co_filename for part in _BETWEEN):
        frame = frame.f_back
    return frame


def line_of(error: BaseException | None) -> str:
    """The line of the model that raised an error."""
    frames = traceback.extract_tb(error.__traceback__ if error is not None else None)
    users = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_MODEL)]
    return f"{users[-1].filename}:{users[-1].lineno}" if users else "the model"


def frames_of(frame: FrameType | None, root: FrameType | None) -> tuple[list[tuple[CodeType, int]], Any]:
    """The frames up to the call of the model, innermost first, and the innermost module."""
    found = []
    module = None
    while frame is not None and frame is not root:
        code = frame.f_code
        if module is None and code is _CALL:
            module = frame.f_locals["self"]
        found.append((code, frame.f_lasti))
        frame = frame.f_back
    return found, module


class Lines:
    """The lines of one capture: most frames are those of the calls before, so each is looked up once."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], tuple[CodeType, Frame]] = {}  # by identity: equal code has other files

    def of(self, frames: Sequence[tuple[CodeType, int]]) -> list[Frame]:
        """File and line of each frame."""
        lines = []
        for code, at in frames:
            key = id(code), at
            found = self._found.get(key)
            if found is None:  # the code is kept, so that no other one gets its identity
                found = self._found[key] = code, (code.co_filename, _line(code, at))
            lines.append(found[1])
        return lines


def _line(code: CodeType, at: int) -> int:
    for start, end, line in code.co_lines():
        if start <= at < end and line is not None:
            return line
    return code.co_firstlineno


def calls_kept(frame: FrameType) -> bool:
    """Whether the code of a frame names a function that keeps its results (`functools.lru_cache`)."""
    named = [frame.f_globals.get(name) for name in frame.f_code.co_names]
    places = [frame.f_locals.get("self"), frame.f_locals.get("cls"), *named]
    inside = (getattr_static(place, name, None) for place in places for name in frame.f_code.co_names)
    found = (
        item.__func__ if isinstance(item, (classmethod, staticmethod)) else item
        for item in (*named, *frame.f_locals.values(), *inside)
    )
    return any(isinstance(item, _KEPT) for item in found)
