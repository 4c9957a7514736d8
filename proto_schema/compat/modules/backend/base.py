"""onnx.backend.base: the interface by which a runtime offers itself.

https://github.com/onnx/onnx/blob/main/docs/ImplementingAnOnnxBackend.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proto_schema.compat.modules import checker

__all__ = ["Backend", "BackendRep", "Device", "DeviceType"]


class DeviceType:
    """Kinds of devices."""

    CPU = 0
    CUDA = 1


class Device:
    """A device by its text: `CPU`, `CUDA:1`. ValueError for an unknown kind."""

    def __init__(self, device: str) -> None:
        kind, _, number = device.partition(":")
        if not hasattr(DeviceType, kind):
            raise ValueError(f"unknown device {device!r}; there are CPU and CUDA")
        self.type: int = getattr(DeviceType, kind)
        self.device_id = int(number) if number else 0


class BackendRep:
    """A model that a runtime has prepared."""

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs; runtimes override it."""
        return (None,)


class Backend:
    """A runtime. Classes of runtimes derive from it."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether it can run the model."""
        return True

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> BackendRep | None:
        """The model, ready to run; here it is only checked."""
        checker.check_model(model)
        return None

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepares a model and runs it."""
        made = cls.prepare(model, device, **kwargs)
        if made is None:
            raise NotImplementedError(f"{cls.__name__} does not prepare models")
        return made.run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...] | None:
        """Runs a node; here it is only checked, at the opset `opset_version` of the keyword arguments."""
        context = checker.DEFAULT_CONTEXT
        if "opset_version" in kwargs:
            context = checker.CheckerContext()
            context.opset_imports = {"": kwargs["opset_version"]}
        checker.check_node(node, context)
        return None

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether it runs on a device."""
        return True
