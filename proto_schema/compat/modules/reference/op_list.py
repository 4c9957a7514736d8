"""onnx.reference.ops._op_list: a class for each operator (`Celu`), and for each of its versions (`Cast_19`)."""

from __future__ import annotations

from typing import Any

from proto_schema.compat.modules.reference.ops import class_named, load_op

__all__ = ["load_op"]


def __getattr__(name: str) -> Any:
    return class_named(name)
