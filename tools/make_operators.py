"""Write proto_schema/data/operators.json: the operator history, as data, from the official package.

    python tools/make_operators.py                 # rewrites the data file in place
    python tools/make_operators.py some/where.json

The file depends on the installed `onnx` alone: every list is sorted, so the same package gives the same bytes
(a test compares them). Form of the file, which `proto_schema.operators` reads:

    types         every type string, once
    sets          every set of types that some constraint allows, once, as indices into `types`
    newest        domain -> newest opset
    ir_versions   domain -> [[opset, lowest IR version], ...] as published with the releases
    operators     domain -> operator -> one line a version, ascending:
                  [since_version, flags, inputs, outputs, attributes, constraints]

where flags is the sum of 1 for deprecated, 2 for having a function body, 4 where that depends on the node, 8 for not
deterministic, 16 where that is not known, 32 for experimental; a formal is "name type", followed by " ?" for an
optional one, " *n" for a variadic one of at least n homogeneous values, " ~n" for a heterogeneous one; an attribute is
its type code, negative when required, or [code, default]; a constraint is an index into `sets`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
from onnx import defs, helper

TARGET = Path(__file__).resolve().parent.parent / "proto_schema" / "data" / "operators.json"


class Interned:
    """Values in order of first use, each with its index."""

    def __init__(self) -> None:
        self.index: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self.index.setdefault(value, len(self.index))


def formal(parameter: defs.OpSchema.FormalParameter) -> str:
    """A formal parameter as "name type[ ?| *n| ~n]"."""
    option = defs.OpSchema.FormalParameterOption
    suffix = {
        option.Single: "",
        option.Optional: " ?",
        option.Variadic: f" {'*' if parameter.is_homogeneous else '~'}{parameter.min_arity}",
    }[parameter.option]
    return f"{parameter.name} {parameter.type_str}{suffix}"


def attribute(declared: defs.OpSchema.Attribute) -> int | list[Any]:
    """An attribute as its type code, negative when required, or as [code, default]."""
    code = int(declared.type.value)
    if declared.required:
        return -code
    if not declared.default_value.type:
        return code
    default = helper.get_attribute_value(declared.default_value)
    if isinstance(default, list):
        return [code, [item.decode() if isinstance(item, bytes) else item for item in default]]
    return [code, default.decode() if isinstance(default, bytes) else default]


def version_line(schema: defs.OpSchema, sets: Interned) -> list[Any]:
    """One version of one operator, as the row of the data file."""
    determinism = defs.OpSchema.NodeDeterminism
    facts = {
        1: schema.deprecated,
        2: schema.has_function or schema.has_context_dependent_function,
        4: schema.has_context_dependent_function,
        8: schema.node_determinism == determinism.NonDeterministic,
        16: schema.node_determinism == determinism.Unknown,
        32: schema.support_level == defs.OpSchema.SupportType.EXPERIMENTAL,
    }
    return [
        schema.since_version,
        sum(flag for flag, holds in facts.items() if holds),
        [formal(parameter) for parameter in schema.inputs],
        [formal(parameter) for parameter in schema.outputs],
        {name: attribute(schema.attributes[name]) for name in sorted(schema.attributes)},
        {c.type_param_str: sets(tuple(sorted(c.allowed_type_strs))) for c in schema.type_constraints},
    ]


def ir_versions() -> dict[str, list[list[int]]]:
    """Domain -> [[opset, lowest IR version], ...], of the releases up to this one."""
    table: dict[str, list[list[int]]] = {}
    for (domain, opset), ir_version in sorted(helper.OP_SET_ID_VERSION_MAP.items()):
        table.setdefault("" if domain == "ai.onnx" else domain, []).append([opset, ir_version])
    return table


def listed(values: Iterable[Any]) -> str:
    """A JSON list with one item on a line."""
    return "[\n" + ",\n".join(compact(value) for value in values) + "\n]"


def keyed(pairs: Iterable[tuple[str, str]]) -> str:
    """A JSON object of values that are JSON text already, one key on a line."""
    return "{\n" + ",\n".join(f"{compact(key)}:{text}" for key, text in pairs) + "\n}"


def compact(value: Any) -> str:
    """JSON without blanks."""
    return json.dumps(value, separators=(",", ":"))


def render() -> str:
    """The whole data file."""
    sets = Interned()
    history: dict[str, dict[str, list[list[Any]]]] = {}
    schemas = defs.get_all_schemas_with_history()
    for schema in sorted(schemas, key=lambda schema: (schema.domain, schema.name, schema.since_version)):
        history.setdefault(schema.domain, {}).setdefault(schema.name, []).append(version_line(schema, sets))
    types = sorted({name for allowed in sets.index for name in allowed})
    newest = {domain: high for domain, (_, high) in sorted(defs.C.schema_version_map().items())}
    operators = keyed((d, keyed((n, listed(rows)) for n, rows in names.items())) for d, names in history.items())
    parts = [
        ("source", compact(f"onnx {onnx.__version__}")),
        ("types", listed(types)),
        ("sets", listed([types.index(name) for name in allowed] for allowed in sets.index)),
        ("newest", compact(newest)),
        ("ir_versions", keyed((domain, compact(rows)) for domain, rows in ir_versions().items())),
        ("operators", operators),
    ]
    return keyed(parts) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(render(), encoding="ascii", newline="\n")
