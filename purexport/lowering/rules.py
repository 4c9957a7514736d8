"""Imports every rule file; each registers its rules."""

from purexport.lowering import (  # noqa: F401
    activations,
    adaptive_pool,
    attention,
    bitwise,
    compare,
    borders,
    conv,
    create,
    elementwise,
    indexing,
    joins,
    linalg,
    norm,
    numbers,
    parts,
    pool,
    reduce,
    scatter,
    shape,
)
