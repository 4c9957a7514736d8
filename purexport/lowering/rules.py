"""Imports every rule file; each registers its rules."""

from purexport.lowering import (  # noqa: F401
    activations,
    adaptive_pool,
    attention,
    bitwise,
    borders,
    compare,
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
    resize,
    scatter,
    shape,
)
