"""Imports every rule file; each registers its rules."""

from purexport.lowering import (  # noqa: F401
    attention,
    conv,
    create,
    elementwise,
    indexing,
    linalg,
    norm,
    pool,
    reduce,
    scatter,
    shape,
)
