"""onnx.checker: `proto_schema.checker`, with messages as protobuf has them.

Contexts can be changed, as in onnx. What only a full check finds is an InferenceError there: here it is that and a
ValidationError.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

from proto_schema import checker as ours
from proto_schema.compat.messages import PROTOS, plain
from proto_schema.errors import CheckError
from proto_schema.operators import newest_opset
from proto_schema.shape_inference import InferenceError
from proto_schema.wire.fields import Message

__all__ = [
    "DEFAULT_CONTEXT",
    "LEXICAL_SCOPE_CONTEXT",
    "MAXIMUM_PROTOBUF",
    "C",
    "ValidationError",
    "check_attribute",
    "check_function",
    "check_graph",
    "check_model",
    "check_node",
    "check_sparse_tensor",
    "check_tensor",
    "check_value_info",
]

MAXIMUM_PROTOBUF = (1 << 31) - 1
ValidationError = CheckError


class FullCheckError(CheckError, InferenceError):
    """The types or shapes of a model contradict each other."""

    def __init__(self, text: str) -> None:
        InferenceError.__init__(self, text)


class CheckerContext:
    """The versions at which a part of a model is checked. Both can be assigned."""

    def __init__(self) -> None:
        self.ir_version = int(PROTOS["Version"].IR_VERSION)
        self.opset_imports: dict[str, int] = {"": newest_opset()}


class LexicalScopeContext:
    """The names of enclosing graphs: none. onnx has no way to add any from Python either."""


DEFAULT_CONTEXT = CheckerContext()
LEXICAL_SCOPE_CONTEXT = LexicalScopeContext()
C = SimpleNamespace(
    CheckerContext=CheckerContext, LexicalScopeContext=LexicalScopeContext, ValidationError=ValidationError
)


def _core(message: Any, name: str) -> Message:
    if not isinstance(message, PROTOS[name]):
        raise TypeError(f"The proto message needs to be of type '{name}'")
    found: Message = plain(message)
    return found


def _context(ctx: CheckerContext) -> ours.CheckerContext:
    return ours.CheckerContext(ctx.ir_version, dict(ctx.opset_imports))


def check_value_info(value_info: Any, ctx: CheckerContext = DEFAULT_CONTEXT) -> None:
    """Raises ValidationError where an input or output breaks a rule."""
    ours.check_value_info(_core(value_info, "ValueInfoProto"), _context(ctx))  # type: ignore[arg-type]


def check_tensor(tensor: Any, ctx: CheckerContext = DEFAULT_CONTEXT) -> None:
    """Raises ValidationError where a tensor breaks a rule."""
    ours.check_tensor(_core(tensor, "TensorProto"), _context(ctx))  # type: ignore[arg-type]


def check_sparse_tensor(sparse: Any, ctx: CheckerContext = DEFAULT_CONTEXT) -> None:
    """Raises ValidationError where a sparse tensor breaks a rule."""
    ours.check_sparse_tensor(_core(sparse, "SparseTensorProto"), _context(ctx))  # type: ignore[arg-type]


def check_attribute(
    attr: Any,
    ctx: CheckerContext = DEFAULT_CONTEXT,
    lexical_scope_ctx: LexicalScopeContext = LEXICAL_SCOPE_CONTEXT,
) -> None:
    """Raises ValidationError where an attribute breaks a rule."""
    ours.check_attribute(_core(attr, "AttributeProto"), _context(ctx))  # type: ignore[arg-type]


def check_node(
    node: Any,
    ctx: CheckerContext = DEFAULT_CONTEXT,
    lexical_scope_ctx: LexicalScopeContext = LEXICAL_SCOPE_CONTEXT,
) -> None:
    """Raises ValidationError where a node breaks a rule."""
    ours.check_node(_core(node, "NodeProto"), _context(ctx))  # type: ignore[arg-type]


def check_function(
    function: Any,
    ctx: CheckerContext | None = None,
    lexical_scope_ctx: LexicalScopeContext = LEXICAL_SCOPE_CONTEXT,
) -> None:
    """Raises ValidationError where a function breaks a rule; by default at the versions that it imports."""
    core: Any = _core(function, "FunctionProto")
    ours.check_function(core, None if ctx is None else _context(ctx))


def check_graph(
    graph: Any,
    ctx: CheckerContext = DEFAULT_CONTEXT,
    lexical_scope_ctx: LexicalScopeContext = LEXICAL_SCOPE_CONTEXT,
) -> None:
    """Raises ValidationError where a graph breaks a rule."""
    ours.check_graph(_core(graph, "GraphProto"), _context(ctx))  # type: ignore[arg-type]


_check_model: Any = ours.check_model


def _registered() -> dict[str, Any]:
    """The registry of `onnx.defs`, if the program has imported that."""
    defs = sys.modules.get("proto_schema.compat.modules.defs")
    return {} if defs is None else {"registry": vars(defs)["_registry"]}


def check_model(
    model: Any,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None:
    """Raises ValidationError where a model (a message, its encoding, or a path) breaks a rule.

    With `full_check` types and shapes are inferred too: what contradicts raises an InferenceError. ValueError for bytes
    past 2 GiB.
    """
    if isinstance(model, bytes) and len(model) > MAXIMUM_PROTOBUF:
        raise ValueError(f"the model has {len(model)} bytes, past {MAXIMUM_PROTOBUF}: check it by its path")
    core: Any = model if isinstance(model, (str, bytes, os.PathLike)) else _core(model, "ModelProto")
    check = partial(_check_model, **_registered())
    check(core, False, skip_opset_compatibility_check, check_custom_domain)
    if full_check:
        try:
            check(core, True, skip_opset_compatibility_check, check_custom_domain)
        except CheckError as error:
            raise FullCheckError(str(error)) from error
