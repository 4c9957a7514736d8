"""onnx.reference.ops: single operators as classes, `load_op("", "Celu").eval(x, alpha=0.5)`.

Each runs a node of one operator. Private functions of onnx's operators are not here (see `compat.absent`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from proto_schema import operators
from proto_schema.compat.modules import helper
from proto_schema.compat.modules.reference.evaluator import ReferenceEvaluator

__all__ = ["load_op"]
__path__: list[str] = []  # modules of onnx lie below this one


class Operator:
    """One operator with its attributes; the classes that `load_op` makes derive from it."""

    op_type: str
    op_domain: str
    version: int

    def __init__(self, n_inputs: int | None = None, n_outputs: int | None = None, **attributes: Any) -> None:
        schema = operators.schema(self.op_type, self.version, self.op_domain)
        inputs = schema.min_input if n_inputs is None and schema is not None else n_inputs or 0
        outputs = n_outputs or (schema.min_output if schema is not None else 1)
        names = [f"x{at}" for at in range(inputs)], [f"y{at}" for at in range(outputs)]
        self.attributes = attributes
        self.onnx_node = helper.make_node(self.op_type, *names, domain=self.op_domain, **attributes)

    def __getattr__(self, name: str) -> Any:
        try:
            return vars(self)["attributes"][name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}") from None

    def run(self, *args: Any) -> tuple[Any, ...]:
        """The outputs for these inputs."""
        node = helper.make_node(
            self.op_type,
            ["" if item is None else f"x{at}" for at, item in enumerate(args)],
            list(self.onnx_node.output),
            domain=self.op_domain,
            **self.attributes,
        )
        feed = {f"x{at}": item for at, item in enumerate(args) if item is not None}
        session = ReferenceEvaluator(node, opsets={"": operators.newest_opset(), self.op_domain: self.version})
        return tuple(session.run(None, feed))

    @classmethod
    def create(cls, n_inputs: int | None = None, n_outputs: int | None = None, verbose: int = 0, **kwargs: Any) -> Any:
        """The operator with these attributes."""
        return cls(n_inputs, n_outputs, **kwargs)

    @classmethod
    def eval(cls, *args: Any, n_outputs: int | None = None, verbose: int = 0, **kwargs: Any) -> Any:
        """The output for these inputs and attributes, or a tuple where there are several."""
        results = cls(len(args), n_outputs, **kwargs).run(*args)
        return results[0] if len(results) == 1 else results


@cache
def _class_of(domain: str, op_type: str, version: int) -> type[Operator]:
    return type(op_type, (Operator,), {"op_type": op_type, "op_domain": domain, "version": version})


def load_op(domain: str, op_type: str, version: int | None = None, **others: Any) -> type[Operator]:
    """The class of an operator at an opset (by default the newest). NotImplementedError for an unknown one."""
    opset = operators.newest_opset(domain) if version is None else version
    if operators.schema(op_type, opset, domain) is None:
        raise NotImplementedError(f"there is no operator {op_type!r} in domain {domain!r} at opset {opset}")
    return _class_of(domain, op_type, opset)


def class_named(name: str, domain: str = "") -> type[Operator]:
    """The class of `Cast`, or of version 19 for `Cast_19`. AttributeError where there is no such operator."""
    op_type, _, version = name.rpartition("_")
    try:
        return load_op(domain, op_type, int(version)) if op_type and version.isdigit() else load_op(domain, name)
    except (NotImplementedError, ValueError):
        raise AttributeError(f"there is no operator {name!r}") from None
