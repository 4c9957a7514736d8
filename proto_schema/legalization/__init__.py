"""Operators written by other operators, for opsets and runtimes that lack them: the rows of `table`."""

from proto_schema.legalization.table import Row, older, rows

__all__ = ["Row", "older", "rows"]
