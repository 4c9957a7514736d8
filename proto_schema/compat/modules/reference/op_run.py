"""onnx.reference.op_run: the base class of operators that users bring, with nodes as protobuf has messages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from proto_schema.compat.messages import mannered

__all__ = ["OpRun", "OpRunExpand", "RuntimeContextError", "RuntimeImplementationError", "RuntimeTypeError"]


_ours: Any = import_module("proto_schema.reference.op_run")


class RuntimeTypeError(RuntimeError):
    """A value has another type than it should."""


class RuntimeContextError(RuntimeError):
    """An operator needs the values around it, and has none."""


class RuntimeImplementationError(NotImplementedError):
    """Nothing computes an operator."""


class OpRun(_ours.OpRun):  # type: ignore[misc]
    """The base of an operator's class; see `proto_schema.reference.op_run`."""

    def __init__(self, onnx_node: Any, run_params: Mapping[str, Any] | None = None, schema: Any = None) -> None:
        super().__init__(mannered(onnx_node), run_params, schema)


class OpRunExpand(OpRun):
    """An operator that must not be computed by itself, but by the nodes of its function."""

    def _run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        raise RuntimeError(f"{type(self).__name__} must not be computed: it is to be replaced by its function")
