"""`import onnx` without onnx: code that was written for the official package runs on `proto_schema`.

    import proto_schema as ps
    ps.compat.install()                  # does nothing where onnx is installed; install(force=True) goes before it
    import onnx                          # proto_schema.compat.modules

    python -m proto_schema.compat SCRIPT [ARGUMENTS]

Strategy: `proto_schema`'s own messages are plain (an absent field is None). Protobuf's manners are a layer here:
`messages` makes, from the same field rows, classes whose objects are faces of plain messages. `crossing` turns
functions of `proto_schema` into functions of such faces, `modules` has the modules of onnx, `installing` the import.
So the toolkit knows nothing of this folder, nothing is converted, and `plain(message)` hands any message to
`proto_schema` itself.
"""

from __future__ import annotations

from typing import Any

from proto_schema.compat.installing import install, uninstall

__all__ = ["install", "mannered", "plain", "uninstall"]


def plain(message: Any) -> Any:
    """The message of `proto_schema` under one of `onnx`: the same message, not a copy. Also for lists of messages."""
    from proto_schema.compat import messages

    return messages.plain(message)


def mannered(message: Any) -> Any:
    """The message of `onnx` over one of `proto_schema`: the same message, not a copy. Also for lists of messages."""
    from proto_schema.compat import messages

    return messages.mannered(message)
