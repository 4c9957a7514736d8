"""Operator rows for purexport/lowering/reduce."""
