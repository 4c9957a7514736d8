"""Operator rows for purexport/lowering/special."""
