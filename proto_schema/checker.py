"""Is a model valid? Structure, names, scopes, operators, attributes, data; with `full_check` types and shapes.

Names and arguments are onnx.checker's, and so are the verdicts, but for a few points where a file that no runtime takes
passes there; the modules of `checking` name them. `full_check` carries the types through the graph, in
`checking/types.py`, and then infers all shapes, in `shape_inference.py`.
Every error says where: `graph.node[3].attribute["pads"]: ...`. The facts about operators are those of every opset, see
`operators`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from proto_schema.checking import checksums, graphs, models, tensors, types
from proto_schema.checking.context import Context, NameScope, SchemaSource
from proto_schema.checking.place import Problem
from proto_schema.errors import CheckError
from proto_schema.external.addresses import size_of_file
from proto_schema.graphs.calls import domain_of
from proto_schema.helper import find_min_ir_version_for
from proto_schema.onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
    Version,
)
from proto_schema.operators import newest_opset
from proto_schema.wire import MAX_LENGTH
from proto_schema.wire.collection import paused_collection

__all__ = [
    "DEFAULT_CONTEXT",
    "CheckerContext",
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

ValidationError = CheckError
"""The name in onnx.checker."""


@dataclass(frozen=True)
class CheckerContext:
    """The versions at which a part of a model is checked: the newest, unless given."""

    ir_version: int = int(Version.IR_VERSION)
    opset_imports: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({"": newest_opset()}))

    def as_context(self, in_function: bool = False) -> Context:
        """What the rules take."""
        opsets = {domain_of(domain): version for domain, version in self.opset_imports.items()}
        return Context(self.ir_version, opsets, in_function=in_function)


DEFAULT_CONTEXT = CheckerContext(opset_imports=MappingProxyType({"": newest_opset()}))


def check_model(
    model: ModelProto | str | bytes | os.PathLike[str],
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
    *,
    registry: SchemaSource | None = None,
) -> None:
    """Raises CheckError for the first rule that the model breaks.

    `model`: a message, its encoding, or a path; then external data must be there, too, and the files for which the
    model has a checksum are read. `full_check` adds the types and the shapes of all values, as they are inferred.
    `skip_opset_compatibility_check` lets functions use other versions of operators than
    the model. `check_custom_domain` refuses operators of unknown domains. `registry`, a
    `defs.Registry`, has schemas of operators beside those of the standard. Raises DecodeError for what is no model.
    """
    if isinstance(model, (str, os.PathLike)):
        from proto_schema.files.models import load

        size = size_of_file(os.fspath(model))
        model = load(model)
        if size > MAX_LENGTH:
            raise CheckError(
                f"the file has {size} bytes, past protobuf's limit of 2 GiB: save it with external_data=True"
            )
    elif not isinstance(model, ModelProto):
        model = ModelProto.FromString(model)
    _reported(models.check_model, model, skip_opset_compatibility_check, check_custom_domain, registry)
    _reported(checksums.check_checksums, model)
    if full_check:
        _reported(types.check_types, model, registry)
        _check_shapes(model)


def _check_shapes(model: ModelProto) -> None:
    from proto_schema.shape_inference import InferenceError, infer_shapes

    try:
        infer_shapes(model, check_type=True, strict_mode=True)
    except InferenceError as error:
        raise CheckError(f"{error.path}: {error}") from error


def check_graph(graph: GraphProto, ctx: CheckerContext = DEFAULT_CONTEXT) -> None:
    """The rules for a main graph. Raises CheckError."""
    _expect(graph, GraphProto)
    _reported(graphs.check_graph, graph, ctx.as_context(), None)


def check_function(function: FunctionProto, ctx: CheckerContext | None = None) -> None:
    """The rules for a function, in a model of the versions `ctx`: by default those the function imports."""
    _expect(function, FunctionProto)
    if ctx is None:
        imports = {entry.domain or "": entry.version or 0 for entry in function.opset_import}
        ctx = CheckerContext(find_min_ir_version_for(function.opset_import, ignore_unknown=True), imports)
    context = ctx.as_context()
    _reported(graphs.check_function, function, context, dict(context.opsets))


def check_node(node: NodeProto, ctx: CheckerContext = DEFAULT_CONTEXT) -> None:
    """The rules for a node, but for those about other nodes. Raises CheckError."""
    _expect(node, NodeProto)
    _reported(graphs.check_node, node, ctx.as_context(in_function=True), NameScope())


def check_attribute(attr: AttributeProto, ctx: CheckerContext = DEFAULT_CONTEXT) -> None:
    """The rules for an attribute, but for its operator's. Raises CheckError."""
    _expect(attr, AttributeProto)
    _reported(graphs.check_attribute, attr, ctx.as_context(in_function=True), NameScope())


def check_value_info(value_info: ValueInfoProto, ctx: CheckerContext = DEFAULT_CONTEXT) -> None:
    """The rules for an input or output of a main graph. Raises CheckError."""
    _expect(value_info, ValueInfoProto)
    _reported(graphs.check_value_info, value_info, ctx.as_context())


def check_tensor(tensor: TensorProto, ctx: CheckerContext = DEFAULT_CONTEXT) -> None:
    """The rules for a tensor. Raises CheckError."""
    _expect(tensor, TensorProto)
    _reported(tensors.check_tensor, tensor)


def check_sparse_tensor(sparse: SparseTensorProto, ctx: CheckerContext = DEFAULT_CONTEXT) -> None:
    """The rules for a sparse tensor. Raises CheckError."""
    _expect(sparse, SparseTensorProto)
    _reported(tensors.check_sparse_tensor, sparse)


def _expect(message: object, kind: type) -> None:
    if not isinstance(message, kind):
        raise TypeError(f"a {kind.__name__} is expected, not a {type(message).__name__}")


def _reported(rule: Callable[..., None], *arguments: Any) -> None:
    try:
        with paused_collection():
            rule(*arguments)
    except Problem as problem:
        raise problem.as_error() from problem.__cause__
