"""Operators that users bring: a class derived from `OpRun`, as those for `onnx.reference`.

    class InvAlpha(OpRun):
        op_domain = "custom"

        def _run(self, x, alpha=None):
            return (1 / (x + alpha),)

    ReferenceEvaluator(model, new_ops=[InvAlpha])

The name of the class is the operator's. Attributes of the node are keyword arguments of `_run`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proto_schema.onnx import NodeProto, TensorProto
from proto_schema.tensors.arrays import to_array

__all__ = ["OpRun"]


class OpRun(ABC):
    """The base of an operator's class. It is made once for each node, and `run` is called in each run."""

    op_domain: str = ""

    def __init__(self, onnx_node: NodeProto, run_params: Mapping[str, Any] | None = None, schema: Any = None) -> None:
        """`run_params` has `opsets` (domain -> version) and `verbose`."""
        self.onnx_node = onnx_node
        self.run_params = dict(run_params or {})
        self.schema = schema

    @property
    def input(self) -> Sequence[str]:
        """The names of the node's inputs."""
        return self.onnx_node.input

    @property
    def output(self) -> Sequence[str]:
        """The names of the node's outputs."""
        return self.onnx_node.output

    @property
    def op_type(self) -> str:
        """The operator."""
        return self.onnx_node.op_type or ""

    @property
    def domain(self) -> str:
        """The operator's domain."""
        return self.onnx_node.domain or ""

    def need_context(self) -> bool:
        """Whether `_run` takes `context`, the values around the node by name."""
        return False

    @abstractmethod
    def _run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, as a tuple. Inputs that the node leaves out are None."""

    def run(self, *args: Any, context: Mapping[str, Any] | None = None, **attributes: Any) -> tuple[Any, ...]:
        """What `_run` returns, checked. Raises TypeError where that is no tuple of arrays, sequences or maps."""
        for name, value in attributes.items():
            setattr(self, name, value)
        given = {**attributes, "context": context} if self.need_context() else attributes
        results = self._run(*args, **given)
        if isinstance(results, tuple) and not results:
            raise ValueError(f"{type(self).__name__}._run returned no output")
        if not isinstance(results, tuple):
            raise TypeError(f"{type(self).__name__}._run must return a tuple of outputs, not {type(results).__name__}")
        arrays = tuple(np.asarray(item) if np.isscalar(item) else item for item in results)
        for item in arrays:
            if not isinstance(item, (np.ndarray, list, dict)):
                raise TypeError(f"{type(self).__name__}._run returned a {type(item).__name__}, not an ONNX value")
        return arrays

    @classmethod
    def eval(cls, *args: Any, **attributes: Any) -> Any:
        """The output for these inputs and attributes, or a tuple where there are several."""
        node = NodeProto(op_type=cls.__name__, domain=cls.op_domain, input=[f"x{at}" for at in range(len(args))])
        results = cls(node, {"opsets": {}, "verbose": 0}).run(*args, **attributes)
        return results[0] if len(results) == 1 else results


def python_value(value: Any) -> Any:
    """An attribute's value as `_run` gets it: text as str, tensors as arrays."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, TensorProto):
        return to_array(value)
    return [python_value(item) for item in value] if isinstance(value, list) else value
