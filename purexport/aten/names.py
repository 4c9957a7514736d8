"""Names of operators: `namespace::name.overload`, without a dot for the default overload.

Everything that takes such a name apart, puts one together or asks torch for the operator behind it does so here.
Source: the grammar of operator names in torch's `aten/src/ATen/native/README.md`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from purexport.torch_patches.torch_jit import find_schema, find_schemas


class OperatorName(NamedTuple):
    """The parts of `namespace::name.overload`; the default overload is an empty text."""

    namespace: str
    name: str
    overload: str = ""

    @property
    def base(self) -> str:
        """The name without its overload: `aten::sum`."""
        return f"{self.namespace}::{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.base}.{self.overload}" if self.overload else self.base


def parsed(target: str) -> OperatorName:
    """The parts of `target`; a text without `::` has no namespace."""
    namespace, colons, rest = target.partition("::")
    name, _, overload = (rest if colons else target).partition(".")
    return OperatorName(namespace if colons else "", name, overload)


def base_of(target: str) -> str:
    """`target` without its overload: `aten::sum` of `aten::sum.dim_IntList`."""
    return target.partition(".")[0]


def without_underscore(target: str) -> str:
    """`aten::add.Tensor` of `aten::add_.Tensor`; any other name as it is."""
    name = parsed(target)
    return str(name._replace(name=name.name.removesuffix("_")))


def packet_of(base: str) -> Any | None:
    """torch's `OpOverloadPacket` of a name without its overload: it chooses one by the arguments.  None for unknown."""
    name = parsed(base)
    return getattr(getattr(torch.ops, name.namespace), name.name, None)


def operator_of(target: str) -> Any | None:
    """torch's `OpOverload` of that name; None where torch has none."""
    return getattr(packet_of(base_of(target)), parsed(target).overload or "default", None)


def schema_of(target: str) -> Any:
    """torch's `FunctionSchema` of that name.  Raises LookupError for a name that torch does not know."""
    name = parsed(target)
    try:
        return find_schema(name.base, name.overload)
    except RuntimeError as error:
        raise LookupError(f"torch has no schema for {target}") from error


def name_of(schema: Any) -> str:
    """The name that a `FunctionSchema` of torch is for."""
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def overloads_of(base: str) -> list[str]:
    """The names of all overloads of `namespace::name`, those of TorchScript included; none for an unknown name."""
    return [name_of(schema) for schema in find_schemas(base)]
