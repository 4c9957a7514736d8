"""onnx.hub: downloads of models, refused. Nothing here opens a connection."""

from __future__ import annotations

from typing import Any, NoReturn


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"onnx.hub.{name}: downloads are not offered; fetch the model file and use onnx.load")

    return refuse
