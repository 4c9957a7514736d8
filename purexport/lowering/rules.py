"""Imports every rule file; each registers its rules."""

from purexport.lowering import (  # noqa: F401
    adaptive_pool,
    attention,
    conv,
    create,
    elementwise,
    indexing,
    linalg,
    norm,
    numbers,
    pool,
    reduce,
    scatter,
    shape,
)
