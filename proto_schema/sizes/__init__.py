"""Sizes that are not known as numbers: exact integer expressions over symbols, and equations between them."""

from proto_schema.sizes.equations import ContradictionError, Equations
from proto_schema.sizes.evaluation import evaluated
from proto_schema.sizes.size import Dim, Size, maximum, minimum, parse, symbol

__all__ = ["ContradictionError", "Dim", "Equations", "Size", "evaluated", "maximum", "minimum", "parse", "symbol"]
