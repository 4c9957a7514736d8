"""Operator rows for purexport/lowering/core."""
