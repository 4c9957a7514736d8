"""In which dtypes a node is computed, so that the runtime of the target has a kernel for it.

The kernels are data (`proto_schema.operators.runtimes`).  Where the version in force has none for the dtypes of a
node, or its schema does not allow them:

- each constraint may go to a wider dtype that gives the same numbers (`proto_schema.legalization.widening`): halves to
  float32, which rounds as torch's own kernels do, small integers to larger ones, which are cast back;
- otherwise the operator may have a form of other operators, a row of `FORMS` (`purexport.lowering.forms`).

What has neither is written as it is, with a remark for the report.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from proto_schema import operators
from proto_schema.legalization import widening
from proto_schema.operators.runtimes import Release
from purexport.dtypes import BFLOAT16, FLOAT16
from purexport.lowering.core import versions

Types: TypeAlias = "tuple[tuple[str, int], ...]"  # constraint and dtype, in the order of the inputs
Form = TypeVar("Form", bound=Callable[..., Any])

# an operator, and a dtype or None for all others -> its form, which takes (op, *inputs, **named) as the operator does,
# and returns its result or a tuple of them
FORMS: dict[tuple[str, int | None], Callable[..., Any]] = {}

_HALVES = (FLOAT16, BFLOAT16)


def form(op_type: str, dtype: int | None = None) -> Callable[[Form], Form]:
    """Register the decorated function as the form of an operator for dtypes without a kernel, or for one dtype."""

    def register(function: Form) -> Form:
        if (op_type, dtype) in FORMS:
            raise ValueError(f"{op_type} has two forms")
        FORMS[op_type, dtype] = function
        return function

    return register


def runs(release: Release | None, schema: operators.OpSchema, types: Types) -> bool:
    """True when the schema allows the dtypes and the release has a kernel for them."""
    if not all(versions.allowed(schema, name, dtype) for name, dtype in types):
        return False
    if release is None or schema.domain or schema.since_version > release.newest_opset:
        return True
    return release.runs(schema.name, schema.since_version, dict(types))


@functools.lru_cache(maxsize=4096)
def chosen(release: Release | None, schema_of: tuple[str, int], types: Types, adds: bool) -> Mapping[str, int] | None:
    """Which constraints to compute in which other dtype: none where the node runs as it is; None where nothing helps.

    `schema_of` is an operator and an opset.  `adds` says that it does arithmetic, though it is one that moves elements:
    then the kernels, which are for all dtypes, refuse halves when they run.
    """
    op_type, opset = schema_of
    schema = operators.schema(op_type, opset)
    halves = release is not None and adds and any(dtype in _HALVES for _, dtype in types)
    if schema is None or (runs(release, schema, types) and not halves):
        return {}
    for candidate in _candidates(op_type, types, adds):
        if halves and any(dtype in _HALVES for _, dtype in candidate):
            continue
        if runs(release, schema, candidate):
            return {name: wide for (name, dtype), (_, wide) in zip(types, candidate, strict=True) if wide != dtype}
    return None


def _candidates(op_type: str, types: Types, adds: bool) -> Iterator[Types]:
    """Other dtypes for the constraints, those first that change the fewest and least."""
    ways = [[(name, wide) for wide in (dtype, *widening.wider(op_type, dtype, adds))] for name, dtype in types]
    ranked = sorted(itertools.product(*map(enumerate, ways)), key=lambda found: [sum(n for n, _ in found), *found])
    for found in ranked[1:]:
        yield tuple(item for _, item in found)
