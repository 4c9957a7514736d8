"""Operators written by other operators, for opsets and runtimes that lack them: the rows of `table`."""

from proto_schema.legalization.table import ANY, Row, older, rows

__all__ = ["ANY", "Row", "older", "rows"]
