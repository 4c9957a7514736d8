"""Models as users have them: a `Model`, a message, bytes or a path."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeAlias

from proto_schema.ir.model import Model, from_message
from proto_schema.onnx import ModelProto

Given: TypeAlias = "Model | ModelProto | bytes | str | os.PathLike[str]"


def message_of(model: ModelProto | bytes | str | os.PathLike[str]) -> ModelProto:
    """The message; raises what `ps.load` and `ps.loads` raise."""
    if isinstance(model, (str, os.PathLike)):
        from proto_schema.files.models import load

        return load(model)
    return model if isinstance(model, ModelProto) else ModelProto.FromString(model)


def opened(model: Given) -> tuple[Model, Callable[[], Model | ModelProto]]:
    """(the graph to work on, what gives the result): a `Model` is changed in place, and a message stays as it is."""
    if isinstance(model, Model):
        return model, lambda: model
    work = from_message(message_of(model))
    return work, work.to_message
