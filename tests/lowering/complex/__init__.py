"""Operator rows for purexport/lowering/complex."""
